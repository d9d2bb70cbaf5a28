//! What operators see of a lifted store, and what a damaged file of subscriptions does.

use super::*;

async fn refusing(store: &Leasing<Shelf>, shelf: &Shelf, log: LogId, id: u64) {
    let full = Error::new(ErrorKind::StoreUnavailable, "the disk is full");
    shelf.refuse(Some(full));
    assert!(put(store, id, log).await.is_err());
    shelf.refuse(None);
}

#[tokio::test]
async fn a_store_that_fails_is_not_healthy_until_the_same_works_again() {
    let shelf = Shelf::new(Habits::default());
    let store = lift(&shelf, &Side::None);
    let queue = store.open(spec("a"), NOW).await.unwrap();
    assert!(!store.health().is_degraded);
    refusing(&store, &shelf, queue.log, 1).await;
    let health = store.health();
    assert!(health.is_degraded);
    let (_, error) = health.last_error.unwrap();
    assert!(error.contains("the disk is full"), "{error}");
    store.browse(queue.queue, 0, ALL).await.unwrap();
    assert!(store.health().is_degraded, "it reads, and does not store");
    put(&store, 2, queue.log).await.unwrap();
    let health = store.health();
    assert!(!health.is_degraded);
    assert!(health.last_error.is_some(), "what went wrong last is known");
}

#[tokio::test]
async fn a_store_that_nobody_calls_any_more_is_well_when_it_answers() {
    let (shelf, clock) = (Shelf::new(Habits::default()), TestClock::new());
    let options = LeasingOptions {
        clock: clock.clone(),
        ..LeasingOptions::default()
    };
    let store = Leasing::new(shelf.clone(), options).unwrap();
    let queue = store.open(spec("a"), NOW).await.unwrap();
    refusing(&store, &shelf, queue.log, 1).await;
    store.maintain(1, NOW).await.unwrap();
    assert!(store.health().is_degraded, "it has just failed");
    clock.advance(Duration::from_secs(6));
    shelf.refuse(Some(Error::new(ErrorKind::StoreUnavailable, "still")));
    store.maintain(1, NOW).await.unwrap();
    assert!(store.health().is_degraded);
    shelf.refuse(None);
    clock.advance(Duration::from_secs(6));
    store.maintain(1, NOW).await.unwrap();
    assert!(!store.health().is_degraded);
}

#[tokio::test]
async fn what_waits_is_counted() {
    let shelf = Shelf::new(Habits::default());
    let store = lift(&shelf, &Side::None);
    let queue = store.open(spec("a"), NOW).await.unwrap();
    for id in 1..=3 {
        put(&store, id, queue.log).await.unwrap();
    }
    let holding = store.health().holding.unwrap();
    assert_eq!((holding.messages, holding.dead_letters), (3, 0));
    assert_eq!(holding.oldest, Some(message(1).produced));
    assert_eq!(holding.bytes, 3 * message(1).size() as u64);
}

#[tokio::test]
async fn a_damaged_file_of_subscriptions_is_refused_and_stays_as_it_is() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("restante.subscriptions.json");
    let side = Side::File(path.clone());
    let shelf = Shelf::new(Habits::default());
    let lifted = || {
        let options = LeasingOptions {
            side: side.clone(),
            ..LeasingOptions::default()
        };
        Leasing::new(shelf.clone(), options)
    };
    let store = lifted().unwrap();
    store.open(spec("a"), NOW).await.unwrap();
    store.close().await.unwrap();
    let whole = std::fs::read_to_string(&path).unwrap();
    for damaged in ["", "\n", "{", &whole[..whole.len() / 2]] {
        std::fs::write(&path, damaged).unwrap();
        let error = lifted().err().unwrap();
        assert_eq!(
            error.kind(),
            ErrorKind::StoreCorrupt,
            "{damaged:?}: {error}"
        );
        let text = error.message();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
    }
    std::fs::write(&path, whole).unwrap();
    let store = lifted().unwrap();
    assert_eq!(store.queues().await.unwrap().len(), 1);
    store.close().await.unwrap();
}
