//! What goes wrong while it runs, and that it goes on by itself (P27).

use std::fs;

use rusqlite::Connection;

use super::*;
use crate::store::QueueChange;

fn low(seq: Seq) -> QueueChange {
    QueueChange {
        low: Some(seq),
        ..QueueChange::default()
    }
}

#[tokio::test]
async fn a_full_database_refuses_messages_and_takes_acks() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 50, 4000).await;
    store.sql("PRAGMA max_page_count = 1").await;
    let mut confirmed = 50;
    let refused = loop {
        match store.put(queue.log, confirmed + 1, 4000).await {
            Ok(_) => confirmed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::StoreFull);
    let health = store.health();
    assert!(health.is_degraded && health.last_error.is_some());
    assert!(!house.files().contains(&"store.sqlite.ballast".to_owned()));
    // Others of the same batch go on.
    let calls = (
        store.update(queue.queue, low(10), START),
        store.put(queue.log, 999, 10),
        store.settle(queue.queue, vec![11]),
    );
    calls.0.await.unwrap();
    assert_eq!(calls.1.await.unwrap_err().kind(), ErrorKind::StoreFull);
    assert_eq!(calls.2.await.unwrap(), [Settled::Now]);
    let back = Store::open(&store, spec("a"), START).await.unwrap();
    assert_eq!(back.depth, confirmed - 11, "who comes back can drain it");
    assert_eq!(
        store.waiting(queue.queue).await,
        (12..=confirmed).collect::<Vec<_>>()
    );

    store.sql("PRAGMA max_page_count = 1000000").await;
    store.maintain(100, at(1)).await.unwrap();
    store.put(queue.log, confirmed + 1, 4000).await.unwrap();
    assert!(!store.health().is_degraded, "{:?}", store.health());
    assert!(house.files().contains(&"store.sqlite.ballast".to_owned()));
    let expected: Vec<Seq> = (12..=confirmed + 1).collect();
    assert_eq!(store.waiting(queue.queue).await, expected);
    store.close().await.unwrap();
    assert_eq!(house.open().await.waiting(queue.queue).await, expected);
}

#[tokio::test]
async fn a_database_that_another_process_holds_is_unavailable_for_that_long() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 2, 10).await;
    let other = Connection::open(house.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.put(queue.log, 3, 10).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StoreUnavailable);
    assert!(store.health().is_degraded);
    assert_eq!(store.waiting(queue.queue).await, [1, 2], "reading goes on");
    other.execute_batch("ROLLBACK").unwrap();
    store.put(queue.log, 3, 10).await.unwrap();
    assert!(!store.health().is_degraded);
    assert_eq!(store.waiting(queue.queue).await, [1, 2, 3]);
}

#[tokio::test]
async fn a_command_that_fails_takes_no_other_along() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 1, 10).await;
    let mut calls = Vec::new();
    for id in 2..=30 {
        if id % 10 == 0 {
            let failing = store.fail_once();
            calls.push(tokio::spawn(async move { failing.await.is_err() }));
        }
        let item = Append::new(realm(), Arc::new(message(id, 10)), vec![queue.log]);
        let good = store.append(vec![item]);
        calls.push(tokio::spawn(async move { good.await.unwrap()[0].is_ok() }));
    }
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!(
        store.waiting(queue.queue).await,
        (1..=30).collect::<Vec<_>>()
    );
    let found = store.inspect().await.unwrap();
    assert_eq!((found.queued, found.unfit), (30, 0));
    assert_eq!(store.counters().appended, 30);
}

#[tokio::test]
async fn a_command_that_panics_takes_no_other_along() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 1, 10).await;
    let panicking: Pending<()> = store.call(Nature::Write, |core| {
        core.state.queues.clear();
        panic!("a test wants it");
    });
    let good = store.settle(queue.queue, vec![1]);
    assert_eq!(panicking.await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(good.await.unwrap(), [Settled::Now]);
}

#[tokio::test]
async fn a_damaged_body_is_set_aside_and_the_queue_goes_on() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 4, 100).await;
    let other = Store::open(&store, spec("b"), START).await.unwrap();
    let except = QueueChange {
        except: vec![crate::store::Exception {
            seq: 4,
            attempts: 1,
            failures: 1,
            returns: 0,
            due: START,
            first_error: None,
            last_error: None,
            suspect: false,
        }],
        ..QueueChange::default()
    };
    store.update(queue.queue, except, START).await.unwrap();
    let damage = "UPDATE body SET data = substr(data, 1, 40) || x'00' || substr(data, 42) \
                  WHERE mid IN (2, 4)";
    store.sql(damage).await;
    assert_eq!(store.waiting(queue.queue).await, [1, 3]);
    let due = store.due(queue.queue, ALL, START).await.unwrap();
    assert!(due.entries.is_empty());
    assert_eq!(store.counters().damaged, 2);
    assert_eq!(store.depth(queue.queue).await.unwrap().count, 2);
    let again = store.settle(queue.queue, vec![2, 4]).await.unwrap();
    assert_eq!(again, [Settled::Before, Settled::Before]);
    assert_eq!(store.depth(other.queue).await.unwrap().count, 0);
    store.close().await.unwrap();
    let file = Connection::open(house.path()).unwrap();
    let kept = "SELECT count(*) FROM damaged";
    let kept: i64 = file.query_row(kept, [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 2, "what is left of them can be looked at");
}

#[tokio::test]
async fn nothing_is_confirmed_after_the_file_was_removed() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 1, 10).await;
    fs::remove_file(house.path()).unwrap();
    let refused = store.put(queue.log, 2, 10).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StoreUnavailable);
    assert!(store.health().is_degraded);
    assert_eq!(store.waiting(queue.queue).await, [1], "reading goes on");
}

#[tokio::test]
async fn a_file_that_was_moved_away_and_back_has_everything() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 1, 10).await;
    let away = open::beside(house.path(), ".away");
    fs::rename(house.path(), &away).unwrap();
    store.maintain(10, at(1)).await.unwrap();
    assert!(store.health().is_degraded);
    fs::rename(&away, house.path()).unwrap();
    store.maintain(10, at(2)).await.unwrap();
    store.put(queue.log, 2, 10).await.unwrap();
    assert!(!store.health().is_degraded);
    let left = house.as_a_kill_leaves_it();
    assert_eq!(left.open().await.waiting(queue.queue).await, [1, 2]);
}

/// What becomes of the log, and what is seen of the store after a write or a second without one.
async fn log_taken_away(how: impl Fn(&Path), writes: bool) {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 20, 500).await;
    let log = open::beside(house.path(), "-wal");
    how(&log);
    match writes {
        true => drop(store.put(queue.log, 21, 500).await.unwrap()),
        false => drop(store.maintain(10, at(1)).await.unwrap()),
    }
    let last = if writes { 21 } else { 20 };
    let all: Vec<Seq> = (1..=last).collect();
    assert_eq!(
        house
            .as_a_kill_leaves_it()
            .open()
            .await
            .waiting(queue.queue)
            .await,
        all,
        "what was confirmed is in files that are there"
    );
    let health = store.health();
    assert!(!health.is_degraded, "{health:?}");
    let (_, said) = health.last_error.unwrap();
    assert!(said.contains("log"), "{said}");
    // It goes on with a log that is in its place.
    store.put(queue.log, last + 1, 500).await.unwrap();
    let all: Vec<Seq> = (1..=last + 1).collect();
    assert_eq!(store.waiting(queue.queue).await, all);
    let left = house.as_a_kill_leaves_it();
    assert_eq!(left.open().await.waiting(queue.queue).await, all);
}

#[cfg(unix)]
#[tokio::test]
async fn a_log_that_was_removed_or_replaced_takes_nothing_confirmed_along() {
    let removed = |log: &Path| fs::remove_file(log).unwrap();
    let replaced = |log: &Path| {
        let old = fs::read(log).unwrap();
        fs::remove_file(log).unwrap();
        fs::write(log, &old[..old.len() / 2]).unwrap();
    };
    let all = |log: &Path| {
        let database = log.with_extension("sqlite");
        fs::remove_file(open::beside(&database, "-shm")).unwrap();
        fs::remove_file(log).unwrap();
    };
    for writes in [true, false] {
        log_taken_away(removed, writes).await;
        log_taken_away(replaced, writes).await;
        log_taken_away(all, writes).await;
    }
}

#[tokio::test]
async fn a_log_that_was_cut_loses_its_end_only() {
    let house = House::new();
    let store = house.open().await;
    let queue = store.filled("a", 60, 2000).await;
    let copy = house.as_a_kill_leaves_it();
    let log = open::beside(copy.path(), "-wal");
    let log = fs::OpenOptions::new().write(true).open(log).unwrap();
    log.set_len(log.metadata().unwrap().len() * 2 / 3).unwrap();
    let cut = copy.open().await;
    let waiting = cut.waiting(queue.queue).await;
    let count = waiting.len() as u64;
    assert!((1..60).contains(&count), "{count} are left");
    assert_eq!(waiting, (1..=count).collect::<Vec<_>>());
    assert_eq!(cut.inspect().await.unwrap().unfit, 0);
}

#[tokio::test]
async fn a_large_backlog_that_is_purged_goes_bit_by_bit() {
    let house = House::new();
    let store = house.open().await;
    let queue = Store::open(&store, spec("a"), START).await.unwrap();
    for batch in 0..5u64 {
        let item = |n: u64| {
            let message = Arc::new(message(batch * 1000 + n + 1, 10));
            Append::new(realm(), message, vec![queue.log])
        };
        let answers = store.append((0..1000).map(item).collect()).await.unwrap();
        assert!(answers.iter().all(Result::is_ok));
    }
    assert_eq!(store.purge_queue(queue.queue).await.unwrap(), 5000);
    assert_eq!(store.depth(queue.queue).await.unwrap().count, 0);
    while store.maintain(10_000, at(1)).await.unwrap().more {}
    assert_eq!(store.inspect().await.unwrap().kept, (0, 0));
    store.close().await.unwrap();
    let file = Connection::open(house.path()).unwrap();
    let left = "SELECT (SELECT count(*) FROM entry) + (SELECT count(*) FROM body)";
    let left: i64 = file.query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}
