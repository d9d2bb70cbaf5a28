//! What comes of custom stores with every habit: the contract, restarts, troubles.

mod documents;
mod health;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::super::SharedStore;
use super::super::contract::{self, Making};
use super::super::shelf::{Habits, Shelf};
use super::super::simple::{self, Place, RowPage};
use super::super::types::{LogId, QueueKind, QueueSettings};
use super::*;
use crate::clock::TestClock;
use crate::model::{Key, Message};

const NOW: Timestamp = Timestamp(1_767_225_600_000);
const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

fn habits() -> Vec<Habits> {
    let on = [false, true];
    let mut habits = Vec::new();
    for destructive in on {
        for pages in on {
            for keeps_raw in on {
                for full in on {
                    habits.push(Habits {
                        destructive,
                        pages,
                        keeps_raw,
                        full,
                    });
                }
            }
        }
    }
    habits
}

fn lift(shelf: &Shelf, side: &Side) -> Leasing<Shelf> {
    let options = LeasingOptions {
        side: side.clone(),
        ..LeasingOptions::default()
    };
    Leasing::new(shelf.clone(), options).unwrap()
}

fn realm() -> RealmId {
    RealmId::parse("r").unwrap()
}

fn spec(name: &str) -> QueueSpec {
    QueueSpec {
        realm: realm(),
        key: Key::Any { event: "k".into() },
        kind: QueueKind::Consumer,
        name: name.into(),
        settings: QueueSettings {
            durable: true,
            ..QueueSettings::default()
        },
    }
}

fn message(id: u64) -> Message {
    Message {
        id: MessageId(id),
        event: "k".into(),
        from: "p".into(),
        body: Some(Bytes::from(id.to_string())),
        extras: None,
        produced: NOW.plus(Duration::from_secs(id)),
        expires: None,
        guaranteed: false,
        key: None,
    }
}

fn item(id: u64, log: LogId) -> Append {
    Append::new(realm(), Arc::new(message(id)), vec![log])
}

async fn put(store: &Leasing<Shelf>, id: u64, log: LogId) -> Result<Appended> {
    store.append(vec![item(id, log)]).await.unwrap().remove(0)
}

async fn waiting(store: &Leasing<Shelf>, queue: QueueId) -> Vec<Entry> {
    store.page(queue, 0, ALL, NOW).await.unwrap().entries
}

fn bodies(entries: &[Entry]) -> Vec<String> {
    let body = |entry: &Entry| {
        entry
            .message
            .body
            .as_ref()
            .map(|body| String::from_utf8_lossy(body).into_owned())
    };
    entries.iter().filter_map(body).collect()
}

fn numbers(range: impl Iterator<Item = u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn a_store_of_any_habit_passes_the_contract() {
    for habits in habits() {
        let make = move |bounds: Bounds| -> Making {
            Box::pin(async move {
                let options = LeasingOptions {
                    bounds,
                    ..LeasingOptions::default()
                };
                Arc::new(Leasing::new(Shelf::new(habits), options).unwrap()) as SharedStore
            })
        };
        contract::run(&make).await;
    }
}

#[tokio::test]
async fn what_waits_is_there_after_a_restart_in_order_and_once() {
    for habits in habits() {
        let (shelf, side) = (Shelf::new(habits), Side::Memory(Arc::default()));
        let store = lift(&shelf, &side);
        let queue = store.open(spec("a"), NOW).await.unwrap();
        for id in 1..=20 {
            put(&store, id, queue.log).await.unwrap();
        }
        store.settle(queue.queue, vec![2]).await.unwrap();
        store.close().await.unwrap();

        let store = lift(&shelf, &side);
        let record = store.queues().await.unwrap().remove(0);
        assert_eq!(
            (record.queue, record.log, &record.spec),
            (queue.queue, queue.log, &queue.spec)
        );
        // Before anybody is back.
        put(&store, 21, record.log).await.unwrap();
        let back = store.open(spec("a"), NOW).await.unwrap();
        assert_eq!(back.depth, 20, "{habits:?}");
        put(&store, 22, record.log).await.unwrap();
        let entries = waiting(&store, back.queue).await;
        let expected = numbers((1..=22).filter(|id| *id != 2));
        assert_eq!(bodies(&entries), expected, "{habits:?}");
        assert!(
            entries.iter().all(|entry| entry.attempts == 0),
            "nothing was sent: {habits:?}"
        );
        let seqs: Vec<Seq> = entries.iter().map(|entry| entry.seq).collect();
        store.settle(back.queue, seqs).await.unwrap();
        assert_eq!(shelf.rows(), 0, "{habits:?}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_may_have_been_sent_is_marked_after_a_restart() {
    for habits in habits() {
        let (shelf, side) = (Shelf::new(habits), Side::Memory(Arc::default()));
        let store = lift(&shelf, &side);
        let queue = store.open(spec("a"), NOW).await.unwrap();
        for id in 1..=3 {
            put(&store, id, queue.log).await.unwrap();
        }
        let sent = QueueChange {
            sent: Some(2),
            ..QueueChange::default()
        };
        store.update(queue.queue, sent, NOW).await.unwrap();
        let sent: Vec<Seq> = waiting(&store, queue.queue)
            .await
            .iter()
            .map(|e| e.seq)
            .collect();
        store
            .touch(queue.queue, NOW.plus(Duration::from_secs(5)))
            .await
            .unwrap();
        put(&store, 6, queue.log).await.unwrap();
        store.close().await.unwrap();

        let store = lift(&shelf, &side);
        let record = store.queues().await.unwrap().remove(0);
        store.open(spec("a"), NOW).await.unwrap();
        put(&store, 7, record.log).await.unwrap();
        let entries = waiting(&store, queue.queue).await;
        assert_eq!(bodies(&entries), ["1", "2", "3", "6", "7"]);
        let attempts: Vec<u32> = entries.iter().map(|entry| entry.attempts).collect();
        let under = entries
            .iter()
            .map(|entry| u32::from(entry.seq <= record.sent));
        assert_eq!(attempts, under.collect::<Vec<_>>());
        if habits.keeps_raw {
            assert_eq!(attempts, [1, 1, 0, 0, 0]);
            assert_eq!(entries[0].seq, sent[0], "a repeat keeps its number");
        } else {
            assert_eq!(attempts, [1, 1, 1, 0, 0], "all from before its detach");
        }
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_row_refuses_the_message_and_leaves_nothing() {
    let shelf = Shelf::new(Habits::default());
    let store = lift(&shelf, &Side::None);
    let a = store.open(spec("a"), NOW).await.unwrap();
    let b = store.open(spec("b"), NOW).await.unwrap();
    shelf.fail_every(2);
    let mut marked = item(1, a.log);
    marked.uid = Some("x".into());
    let error = store
        .append(vec![marked.clone()])
        .await
        .unwrap()
        .remove(0)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains("shaky"), "{error}");
    shelf.fail_every(0);
    let again = store.append(vec![marked]).await.unwrap().remove(0).unwrap();
    assert!(!again.duplicate, "a refused message leaves no mark");
    for queue in [a.queue, b.queue] {
        assert_eq!(bodies(&waiting(&store, queue).await), ["1"]);
    }
    store.close().await.unwrap();
    assert_eq!(shelf.rows(), 2, "the row that was taken is dropped again");
}

#[tokio::test]
async fn every_third_refusal_is_answered_and_the_others_are_kept() {
    let shelf = Shelf::new(Habits::default());
    let store = lift(&shelf, &Side::None);
    let queue = store.open(spec("a"), NOW).await.unwrap();
    shelf.fail_every(3);
    let items = (1..=30).map(|id| item(id, queue.log)).collect();
    let answers = store.append(items).await.unwrap();
    let refused = answers.iter().filter(|answer| answer.is_err()).count();
    assert_eq!((refused, store.counters().failures), (10, 10));
    let kept = numbers((1..=30).filter(|id| id % 3 != 0));
    assert_eq!(bodies(&waiting(&store, queue.queue).await), kept);
}

#[tokio::test]
async fn a_call_without_an_answer_ends_and_a_late_row_reaches_nobody() {
    let (shelf, clock) = (Shelf::new(Habits::default()), TestClock::new());
    let options = LeasingOptions {
        clock: clock.clone(),
        ..LeasingOptions::default()
    };
    let store = Leasing::new(shelf.clone(), options).unwrap();
    let queue = store.open(spec("a"), NOW).await.unwrap();
    let other = QueueSpec {
        key: Key::Any { event: "l".into() },
        ..spec("a")
    };
    let other = store.open(other, NOW).await.unwrap();
    shelf.stall();
    let slow = store.append(vec![item(1, queue.log)]);
    while shelf.rows() == 0 {
        tokio::task::yield_now().await;
    }
    let behind = store.append(vec![item(2, queue.log)]);
    clock.advance(Duration::from_secs(6));
    for pending in [slow, behind] {
        let error = pending.await.unwrap().remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreTimeout);
    }
    shelf.release();
    put(&store, 3, other.log).await.unwrap();
    put(&store, 4, queue.log).await.unwrap();
    assert_eq!(bodies(&waiting(&store, queue.queue).await), ["4"]);
    while shelf.rows() != 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn acks_that_are_refused_are_written_later() {
    let shelf = Shelf::new(Habits::default());
    let store = lift(&shelf, &Side::None);
    let queue = store.open(spec("a"), NOW).await.unwrap();
    put(&store, 1, queue.log).await.unwrap();
    shelf.refuse(Some(Error::new(ErrorKind::StoreUnavailable, "away")));
    store.settle(queue.queue, vec![1]).await.unwrap_err();
    assert!(
        waiting(&store, queue.queue).await.is_empty(),
        "it does not come again"
    );
    shelf.refuse(None);
    assert_eq!(shelf.rows(), 1);
    store.maintain(10, NOW).await.unwrap();
    while shelf.rows() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn rows_that_somebody_else_dropped_are_gone() {
    let shelf = Shelf::new(Habits {
        pages: true,
        keeps_raw: true,
        ..Habits::default()
    });
    let store = lift(&shelf, &Side::None);
    let queue = store.open(spec("a"), NOW).await.unwrap();
    for id in 1..=30 {
        put(&store, id, queue.log).await.unwrap();
    }
    for row in 20..=25 {
        shelf.ack(simple::RowId::from(row)).await.unwrap();
    }
    let left = waiting(&store, queue.queue).await;
    assert_eq!(bodies(&left), numbers((1..=19).chain(26..=30)));
}

#[tokio::test]
async fn dead_letters_are_told_to_a_store_that_takes_them() {
    let (shelf, side) = (
        Shelf::new(Habits {
            full: true,
            ..Habits::default()
        }),
        Side::Memory(Arc::default()),
    );
    let store = lift(&shelf, &side);
    let queue = store.open(spec("a"), NOW).await.unwrap();
    put(&store, 1, queue.log).await.unwrap();
    let burial = super::super::types::Burial {
        seq: 1,
        attempts: 3,
        reason: "max_attempts".into(),
        first_error: None,
        last_error: None,
    };
    let bury = QueueChange {
        bury: vec![burial],
        ..QueueChange::default()
    };
    store.update(queue.queue, bury, NOW).await.unwrap();
    assert_eq!((shelf.rows(), shelf.dead()), (0, 1));
    store.close().await.unwrap();

    let store = lift(&shelf, &side);
    store.queues().await.unwrap();
    let letter = store
        .dead_letters(&realm(), None, 9)
        .await
        .unwrap()
        .remove(0);
    assert_eq!(
        (&*letter.reason, letter.message.body.as_deref()),
        ("max_attempts", Some(&b"1"[..]))
    );
    store.revive(&realm(), letter.id, NOW).await.unwrap();
    assert_eq!(
        store
            .due(queue.queue, ALL, NOW)
            .await
            .unwrap()
            .entries
            .len(),
        1
    );
    store.close().await.unwrap();
    assert_eq!((shelf.rows(), shelf.dead()), (1, 0));
}

#[tokio::test]
async fn a_store_that_panics_is_a_store_that_refuses() {
    struct Panicking;
    impl SimpleStore for Panicking {
        fn enqueue(&self, _: simple::NewRow) -> Pending<simple::RowId> {
            panic!("at once")
        }
        fn dequeue(&self, _: &Place, _: RowPage) -> Pending<Vec<simple::Row>> {
            Pending::waiting(async { panic!("later") })
        }
        fn ack(&self, _: simple::RowId) -> Pending<()> {
            panic!("at once")
        }
    }
    let store = Leasing::new(Panicking, LeasingOptions::default()).unwrap();
    let queue = store.open(spec("a"), NOW).await.unwrap();
    let error = store
        .append(vec![item(1, queue.log)])
        .await
        .unwrap()
        .remove(0)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    let error = store.page(queue.queue, 0, ALL, NOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_file_of_subscriptions_belongs_to_one_server() {
    let folder = std::env::temp_dir().join(format!("restante-side-{}", std::process::id()));
    let side = Side::File(folder.join("subscriptions.json"));
    let shelf = Shelf::new(Habits::default());
    let options = || LeasingOptions {
        side: side.clone(),
        ..LeasingOptions::default()
    };
    let store = Leasing::new(shelf.clone(), options()).unwrap();
    store.open(spec("a"), NOW).await.unwrap();
    let error = Leasing::new(shelf.clone(), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    store.close().await.unwrap();
    let again = Leasing::new(shelf.clone(), options()).unwrap();
    assert_eq!(again.queues().await.unwrap().len(), 1);
    again.close().await.unwrap();
    std::fs::write(folder.join("subscriptions.json"), "{").unwrap();
    let error = Leasing::new(shelf, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreCorrupt);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn names_that_look_alike_on_the_wire_have_rows_of_their_own() {
    let shelf = Shelf::new(Habits::default());
    let store = lift(&shelf, &Side::None);
    let specs = [
        spec("group:a"),
        QueueSpec {
            kind: QueueKind::Group,
            ..spec("a")
        },
        spec("a"),
    ];
    let mut queues = Vec::new();
    for spec in specs {
        queues.push(store.open(spec, NOW).await.unwrap());
    }
    put(&store, 1, queues[0].log).await.unwrap();
    let state = store.shared.state.lock();
    let places: std::collections::HashSet<_> = state
        .queues
        .values()
        .map(|queue| queue.place.consumer.clone())
        .collect();
    assert_eq!(places.len(), 3);
}

/// Keeps the type in use where only other habits are tested.
#[test]
fn a_side_in_memory_is_shared() {
    let text = Arc::new(Mutex::new(String::new()));
    let (opened, _) = side::Opened::open(Side::Memory(text.clone())).unwrap();
    opened.save("x").unwrap();
    assert_eq!(*text.lock(), "x");
}
