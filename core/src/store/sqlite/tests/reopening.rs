//! What is there after the store was closed and opened again: everything.

use super::*;
use crate::store::{Burial, Exception, QueueChange, Quota};

fn exception(seq: Seq, due: Timestamp) -> Exception {
    Exception {
        seq,
        attempts: 3,
        failures: 2,
        returns: 1,
        due,
        first_error: Some("first".into()),
        last_error: Some("last".into()),
        suspect: true,
    }
}

/// A store with something of everything.
async fn furnish(store: &SqliteStore) -> (QueueRecord, QueueRecord) {
    let queue = store.filled("a", 8, 50).await;
    let left = Store::open(store, spec("left"), START).await.unwrap();
    store.put(queue.log, 9, 50).await.unwrap();
    let change = QueueChange {
        low: Some(2),
        done: vec![5],
        sent: Some(6),
        except: vec![exception(3, at(7)), exception(1, at(9))],
        clear: Vec::new(),
        bury: vec![Burial {
            seq: 4,
            attempts: 5,
            reason: "max_attempts".into(),
            first_error: Some("one".into()),
            last_error: None,
        }],
    };
    store.update(queue.queue, change, at(2)).await.unwrap();
    store.touch(queue.queue, at(3)).await.unwrap();
    let held = |id, second, owner: Option<&str>| Append {
        due: Some(at(second)),
        owner: owner.map(Into::into),
        uid: Some(format!("held-{id}").into()),
        ..Append::new(realm(), Arc::new(message(id, 5)), Vec::new())
    };
    let marked = Append {
        mark: Some(("instance".into(), 7)),
        uid: Some("order-7".into()),
        ..Append::new(realm(), Arc::new(message(10, 50)), vec![queue.log])
    };
    let batch = vec![marked, held(20, 60, Some("me")), held(21, 50, None)];
    let answers = store.append(batch).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(store.forget(left.queue, false).await.unwrap(), 2);
    (queue, left)
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let house = House::new();
    let store = house.open().await;
    let (queue, left) = furnish(&store).await;
    let records = store.queues().await.unwrap();
    let page = store.page(queue.queue, 0, ALL, START).await.unwrap();
    let due = store.due(queue.queue, ALL, at(20)).await.unwrap();
    let depth = store.depth(queue.queue).await.unwrap();
    let realm_depth = store.realm_depth(&realm()).await.unwrap();
    let letters = store.dead_letters(&realm(), None, 9).await.unwrap();
    let delayed = store.delayed(9, at(100)).await.unwrap();
    assert_eq!((page.entries.len(), due.entries.len()), (5, 2));
    assert_eq!((letters.len(), delayed.0.len()), (1, 2));
    store.close().await.unwrap();

    let store = house.open().await;
    assert_eq!(store.queues().await.unwrap(), records);
    assert_eq!(store.page(queue.queue, 0, ALL, START).await.unwrap(), page);
    assert_eq!(store.due(queue.queue, ALL, at(20)).await.unwrap(), due);
    assert_eq!(store.depth(queue.queue).await.unwrap(), depth);
    assert_eq!(store.realm_depth(&realm()).await.unwrap(), realm_depth);
    let found = store.dead_letters(&realm(), None, 9).await.unwrap();
    assert_eq!(found, letters);
    assert_eq!(store.delayed(9, at(100)).await.unwrap(), delayed);
    assert_eq!(store.inspect().await.unwrap().unfit, 0);

    // Marks, left-overs and numbers.
    for (mark, uid) in [
        (Some(("instance".into(), 7)), None),
        (None, Some("order-7".into())),
        (None, Some("held-21".into())),
    ] {
        let again = Append {
            mark,
            uid,
            ..Append::new(realm(), Arc::new(message(30, 50)), vec![queue.log])
        };
        let answer = store.append(vec![again]).await.unwrap().remove(0).unwrap();
        assert!(answer.duplicate);
    }
    let back = Store::open(&store, spec("left"), START).await.unwrap();
    assert_eq!((back.queue, back.depth), (left.queue, 2));
    let new = Store::open(&store, spec("new"), START).await.unwrap();
    assert!(new.queue > back.queue, "ids are never used again");
    assert_eq!(store.put(queue.log, 31, 5).await.unwrap().placed[0].seq, 11);
    let revived = store.revive(&realm(), letters[0].id, at(30)).await;
    assert_eq!(revived.unwrap(), queue.queue);
}

#[tokio::test]
async fn what_expired_while_it_was_closed_is_counted_once_and_gives_its_room_back() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 30, 50).await;
    store.close().await.unwrap();
    let store = house.open().await;
    while store.maintain(7, at(4000)).await.unwrap().more {}
    assert_eq!(store.counters().expired, 30);
    assert_eq!(store.depth(queue.queue).await.unwrap().count, 0);
    let found = store.inspect().await.unwrap();
    assert_eq!((found.queued, found.unfit), (0, 0));
}

#[tokio::test]
async fn a_realm_is_as_full_of_bytes_after_a_restart_and_settling_makes_room() {
    let house = House::new();
    let quota = Quota {
        queue: Quota::ANY,
        queued: Quota::ANY,
        bytes: 4 * 102,
    };
    house.bounds.realms.set(quota, [].into());
    let store = house.open().await;
    let queue = store.filled("a", 4, 100).await;
    let change = |low, seq: Seq| QueueChange {
        low: Some(low),
        except: vec![exception(seq, at(60))],
        ..QueueChange::default()
    };
    store
        .update(queue.queue, change(2, 1), START)
        .await
        .unwrap();
    // Two in their turn, an exception, and room for one.
    store.close().await.unwrap();
    let store = house.open().await;
    store.put(queue.log, 5, 100).await.unwrap();
    let full = store.put(queue.log, 6, 100).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QueueFull);
    store.settle(queue.queue, vec![1, 3, 4, 5]).await.unwrap();
    store.close().await.unwrap();
    let store = house.open().await;
    assert_eq!(store.inspect().await.unwrap().kept, (0, 0));
    for id in 7..=10 {
        store.put(queue.log, id, 100).await.unwrap();
    }
    assert!(store.put(queue.log, 11, 100).await.is_err());
}

#[tokio::test]
async fn the_log_of_the_database_is_empty_when_idle_and_after_a_close() {
    let house = House::new();
    let store = house.open().await;
    store.filled("a", 30, 5000).await;
    let log = open::beside(house.path(), "-wal");
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    assert!(bytes(&log) > 0);
    for second in 1..=3 {
        store.maintain(10, at(second)).await.unwrap();
    }
    assert_eq!(bytes(&log), 0);
    store.close().await.unwrap();
    assert_eq!(bytes(&log), 0);
}

#[tokio::test]
async fn the_log_and_the_file_stay_small_under_constant_work() {
    let mut house = House::new();
    house.options.synchronous = Synchronous::Normal;
    let store = house.open().await;
    let queue = Store::open(&store, spec("a"), START).await.unwrap();
    let log = open::beside(house.path(), "-wal");
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let (mut last, mut largest) = (0, 0);
    for second in 0..200 {
        // 400 KiB come and go, 80 MiB in all.
        let item = |n: u64| {
            let message = Arc::new(message(last + n, 4096));
            Append::new(realm(), message, vec![queue.log])
        };
        let answers = store.append((1..=100).map(item).collect()).await.unwrap();
        assert!(answers.iter().all(Result::is_ok));
        last += 100;
        let change = QueueChange {
            low: Some(last),
            ..QueueChange::default()
        };
        store.update(queue.queue, change, START).await.unwrap();
        store.maintain(1000, at(second)).await.unwrap();
        largest = largest.max(bytes(&log).max(bytes(house.path())));
    }
    assert!(largest < 24 << 20, "{largest} bytes");
}

/// Bytes that one more message adds to the log of the database.
const FRAME: u64 = 24 + 4096;

#[tokio::test]
async fn a_message_that_waits_costs_two_pages_and_not_the_row_of_its_log() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 3, 50).await;
    let log = open::beside(house.path(), "-wal");
    let bytes = || std::fs::metadata(&log).unwrap().len();
    let before = bytes();
    store.put(queue.log, 4, 50).await.unwrap();
    assert_eq!((bytes() - before) / FRAME, 2);
}

#[tokio::test]
async fn where_a_log_ends_is_known_after_a_kill_whatever_was_written_of_it() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 4, 50).await;
    let low = |low| QueueChange {
        low: Some(low),
        ..QueueChange::default()
    };
    let reopened = async |store: &SqliteStore| {
        let killed = house.as_a_kill_leaves_it();
        let left = killed.open().await;
        let depth = store.depth(queue.queue).await.unwrap();
        assert_eq!(left.depth(queue.queue).await.unwrap(), depth);
        assert_eq!(
            left.waiting(queue.queue).await,
            store.waiting(queue.queue).await
        );
        let next = left.put(queue.log, 99, 7).await.unwrap().placed[0].seq;
        let found = left.inspect().await.unwrap();
        assert_eq!((found.queued, found.unfit), (depth.count + 1, 0));
        assert_eq!(found.kept.0, found.kept.1);
        next
    };
    assert_eq!(reopened(&store).await, 5, "nothing but pushes");
    store.update(queue.queue, low(4), START).await.unwrap();
    assert_eq!(reopened(&store).await, 5, "everything settled");
    for id in 5..=8 {
        store.put(queue.log, id, 60).await.unwrap();
    }
    store.update(queue.queue, low(6), START).await.unwrap();
    assert_eq!(reopened(&store).await, 9, "some settled since");
    while store.maintain(100, at(4000)).await.unwrap().more {}
    assert_eq!(store.depth(queue.queue).await.unwrap().count, 0);
    assert_eq!(reopened(&store).await, 9, "the rest expired");
}

#[tokio::test]
async fn late_ones_and_those_in_line_end_at_their_times_after_a_kill() {
    let house = House::new();
    let store = house.open().await;
    let queue = Store::open(&store, spec("a"), START).await.unwrap();
    for (id, seconds) in [(1, 100), (2, 300), (3, 50), (4, 200), (5, 400)] {
        let message = Message {
            expires: Some(at(seconds)),
            ..message(id, 50)
        };
        let item = Append::new(realm(), Arc::new(message), vec![queue.log]);
        store.append(vec![item]).await.unwrap().remove(0).unwrap();
    }
    let killed = house.as_a_kill_leaves_it();
    let left = killed.open().await;
    let mut count = 5;
    for second in [50, 100, 200, 300, 400] {
        while left.maintain(100, at(second)).await.unwrap().more {}
        count -= 1;
        let depth = left.depth(queue.queue).await.unwrap();
        assert_eq!(depth.count, count, "after {second} s");
    }
}
