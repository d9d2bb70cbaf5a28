//! What a stand-in took in while Redis was away comes to what Redis holds: in order, with what had
//! happened to it, once (P29).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use restante::clock::{SystemClock, Timestamp};
use restante::model::{Message, MessageId};
use restante::store::fallback::{FIRST_NUMBER, Merged, Merging, begin_numbers};
use restante::store::{
    Append, Appended, Bounds, Burial, Exception, PageLimit, QueueChange, QueueRecord, SharedStore,
    SqliteOptions, SqliteStore,
};

use super::rig::{now, realm, spec};
use super::server;

const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

fn message(id: u64) -> Message {
    Message {
        id: MessageId(id),
        event: "k".into(),
        from: "p".into(),
        body: Some(Bytes::from_static(b"1")),
        extras: None,
        produced: now(),
        expires: Some(now().plus(Duration::from_secs(3600))),
        guaranteed: id.is_multiple_of(2),
        key: None,
    }
}

fn item(id: u64, queue: &QueueRecord) -> Append {
    Append::new(realm(), Arc::new(message(id)), vec![queue.log])
}

async fn put(store: &SharedStore, item: Append) -> Appended {
    store.append(vec![item]).await.unwrap().remove(0).unwrap()
}

async fn change(store: &SharedStore, queue: &QueueRecord, change: QueueChange) {
    store.update(queue.queue, change, now()).await.unwrap();
}

fn exception(seq: u64) -> Exception {
    Exception {
        seq,
        attempts: 2,
        failures: 1,
        returns: 0,
        due: Timestamp(5),
        first_error: Some("first".into()),
        last_error: Some("last".into()),
        suspect: false,
    }
}

async fn stand_in() -> SharedStore {
    let options = SqliteOptions {
        path: None,
        ..SqliteOptions::default()
    };
    let opening = SqliteStore::open(options, Bounds::default(), Arc::new(SystemClock::new()));
    let store: SharedStore = Arc::new(opening.await.unwrap());
    begin_numbers(&*store, false).await.unwrap();
    store
}

async fn redis() -> SharedStore {
    let options = server::shared().options();
    Arc::new(server::open(options, Bounds::default()).await)
}

async fn merge(from: &SharedStore, to: &SharedStore) -> Merged {
    let mut merging = Merging::begin(from.clone(), to.clone()).await.unwrap();
    while merging.page().await.unwrap() > 0 {}
    merging.finish(now()).await.unwrap()
}

/// Ids of what waits, in order, with times sent.
async fn waiting(store: &SharedStore, queue: &QueueRecord) -> Vec<(u64, u32)> {
    let entries = store.browse(queue.queue, 0, ALL).await.unwrap();
    let ids = entries
        .iter()
        .map(|entry| (entry.message.id.0, entry.attempts));
    ids.collect()
}

/// Something of everything in a stand-in, some of which two resends repeat.
async fn fill(from: &SharedStore) -> [Append; 2] {
    let new = from.open(spec("a"), now()).await.unwrap();
    assert!(new.queue.0 > FIRST_NUMBER && new.log.0 > FIRST_NUMBER);
    for id in 11..=20 {
        put(from, item(id, &new)).await;
    }
    let numbered = Append {
        mark: Some(("i".into(), 7)),
        ..item(21, &new)
    };
    let named = Append {
        uid: Some("u".into()),
        ..item(22, &new)
    };
    put(from, numbered.clone()).await;
    put(from, named.clone()).await;
    let held = Append {
        due: Some(now().plus(Duration::from_secs(60))),
        ..Append::new(realm(), Arc::new(message(30)), Vec::new())
    };
    put(from, held).await;
    let happened = QueueChange {
        low: Some(2),
        sent: Some(6),
        done: vec![5],
        except: vec![exception(4), exception(1)],
        bury: vec![Burial {
            seq: 7,
            attempts: 3,
            reason: "max_attempts".into(),
            first_error: None,
            last_error: Some("last".into()),
        }],
        ..QueueChange::default()
    };
    change(from, &new, happened).await;
    [numbered, named]
}

#[tokio::test]
async fn a_stand_in_is_merged_behind_what_was_there_with_all_that_had_happened() {
    let (from, to) = (stand_in().await, redis().await);
    let old = to.open(spec("a"), now()).await.unwrap();
    let away = to.open(spec("b"), now()).await.unwrap();
    for id in 1..=3 {
        put(&to, item(id, &old)).await;
    }
    let resends = fill(&from).await;

    let merged = merge(&from, &to).await;
    let again = merge(&from, &to).await;
    assert_eq!(
        (merged.dead_letters, again),
        (1, Merged::default()),
        "nothing comes twice"
    );
    let expected = [1, 2, 3, 13, 14, 16, 18, 19, 20, 21, 22, 11];
    let found = waiting(&to, &old).await;
    assert_eq!(
        found.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        expected
    );
    for (id, attempts) in found {
        // Up to the mark everything may have been sent.
        let least = if [14, 11].contains(&id) {
            2
        } else {
            u32::from(id <= 16)
        };
        assert_eq!(attempts, least, "{id}");
    }
    let missed: Vec<u64> = waiting(&to, &away)
        .await
        .iter()
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(missed[..3], [1, 2, 3]);
    assert_eq!(
        missed[3..],
        (13..=22).collect::<Vec<_>>(),
        "who was away gets what is still there"
    );
    let letters = to.dead_letters(&realm(), None, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].message.id.0, letters[0].attempts), (17, 3));
    let (held, _) = to
        .delayed(10, now().plus(Duration::from_secs(100)))
        .await
        .unwrap();
    assert_eq!(held.len(), 1);
    for item in resends {
        let item = Append {
            logs: vec![old.log],
            ..item
        };
        assert!(put(&to, item).await.duplicate);
    }
}

#[tokio::test]
async fn a_stand_in_that_holds_something_keeps_its_numbers() {
    let from = stand_in().await;
    let queue = from.open(spec("a"), now()).await.unwrap();
    begin_numbers(&*from, false).await.unwrap();
    let same = from.open(spec("a"), now()).await.unwrap();
    assert_eq!((same.queue, same.log), (queue.queue, queue.log));
}

#[tokio::test]
async fn a_queue_that_was_used_in_redis_since_stays_as_it_is_there() {
    let (from, to) = (stand_in().await, redis().await);
    let mut older = spec("a");
    older.settings.durable = false;
    let stood_in = from.open(older, Timestamp(5)).await.unwrap();
    put(&from, item(2, &stood_in)).await;
    let there = to.open(spec("a"), Timestamp(9)).await.unwrap();
    merge(&from, &to).await;
    let found = to.queues().await.unwrap().remove(0);
    assert_eq!((found.queue, found.seen), (there.queue, Timestamp(9)));
    assert_eq!(found.spec, spec("a"));
    assert_eq!(waiting(&to, &there).await, [(2, 0)]);
}
