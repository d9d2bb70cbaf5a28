//! What a change of stores leaves as it was when it fails, and in what order held calls go on.

use std::future::Future as _;
use std::task::{Context, Waker};

use bytes::Bytes;

use super::super::state::tests::{realm, spec};
use super::super::types::{Append, Bounds, QueueId, QueueRecord};
use super::super::{LogId, MemoryStore};
use super::*;
use crate::clock::{TestClock, Timestamp};
use crate::model::{Message, MessageId};

const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

fn memory() -> SharedStore {
    Arc::new(MemoryStore::new(Bounds::default()))
}

fn item(id: u64, log: LogId) -> Append {
    let message = Message {
        id: MessageId(id),
        event: "k".into(),
        from: "p".into(),
        body: Some(Bytes::from_static(b"1")),
        extras: None,
        produced: Timestamp(1),
        expires: None,
        guaranteed: false,
        key: None,
    };
    Append::new(realm(), Arc::new(message), vec![log])
}

/// A store with one queue and so many messages.
async fn filled(count: u64) -> (SwapStore, QueueRecord) {
    let store = SwapStore::new(memory(), TestClock::new());
    let record = store.open(spec(0, true), Timestamp(1)).await.unwrap();
    for id in 1..=count {
        let answers = store.append(vec![item(id, record.log)]).await.unwrap();
        answers
            .into_iter()
            .for_each(|answer| assert!(answer.is_ok()));
    }
    (store, record)
}

async fn waiting(store: &dyn Store, queue: QueueId) -> Vec<u64> {
    let entries = store.browse(queue, 0, ALL).await.unwrap();
    entries.iter().map(|entry| entry.message.id.0).collect()
}

#[tokio::test]
async fn a_change_that_cannot_be_made_known_does_not_happen() {
    let (store, record) = filled(3).await;
    let (old, new) = (store.current(), memory());
    let refused = || Err(Error::new(ErrorKind::Config, "no"));
    let swapped = store
        .swap_to(
            store.change().unwrap(),
            Arc::clone(&new),
            false,
            "there",
            refused,
        )
        .await;
    assert_eq!(swapped.unwrap_err().kind(), ErrorKind::Config);
    assert!(Arc::ptr_eq(&store.current(), &old));
    assert_eq!(waiting(&store, record.queue).await, [1, 2, 3]);
    assert!(new.queues().await.is_err(), "the copy is closed");
    let copied = store
        .swap_to(store.change().unwrap(), memory(), false, "there", || Ok(()))
        .await
        .unwrap();
    assert_eq!((copied.messages, copied.queues), (3, 1));
    assert_eq!(waiting(&store, record.queue).await, [1, 2, 3]);
    assert!(old.queues().await.is_err(), "the old one is closed");
    assert_eq!(store.counters().appended, 3, "no counter falls");
}

#[tokio::test]
async fn what_is_called_in_the_pause_happens_in_its_order_in_the_new_store() {
    let (store, record) = filled(2).await;
    let mut held = Vec::new();
    let in_the_pause = || {
        for id in 3..=5 {
            let mut answer = store.append(vec![item(id, record.log)]);
            assert!(answer.take_ready().is_none());
            held.push(answer);
        }
        Ok(())
    };
    let copied = store
        .swap_to(
            store.change().unwrap(),
            memory(),
            false,
            "there",
            in_the_pause,
        )
        .await;
    copied.unwrap();
    for (answer, seq) in held.into_iter().zip(3..) {
        let placed = answer.await.unwrap().remove(0).unwrap().placed;
        assert_eq!(placed[0].seq, seq);
    }
    assert_eq!(waiting(&store, record.queue).await, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn what_is_called_in_a_pause_that_fails_happens_in_the_old_store() {
    let (store, record) = filled(1).await;
    let mut held = None;
    let fails = || {
        held = Some(store.append(vec![item(2, record.log)]));
        Err(Error::new(ErrorKind::Config, "no"))
    };
    store
        .swap_to(store.change().unwrap(), memory(), false, "there", fails)
        .await
        .unwrap_err();
    held.unwrap().await.unwrap().remove(0).unwrap();
    assert_eq!(waiting(&store, record.queue).await, [1, 2]);
}

#[tokio::test]
async fn a_change_that_is_given_up_anywhere_leaves_the_old_store_at_work() {
    use super::super::faulty::FaultyStore;

    for after in 1.. {
        let (store, record) = filled(3).await;
        let old = store.current();
        let (new, clock) = (FaultyStore::new(memory()), TestClock::new());
        new.late(Some((clock.clone(), Duration::from_secs(1))));
        let mut is_known = false;
        let known = || {
            is_known = true;
            Ok(())
        };
        let mut change =
            Box::pin(store.swap_to(store.change().unwrap(), new.clone(), false, "there", known));
        let mut context = Context::from_waker(Waker::noop());
        // Every answer of the new store comes late; after so many it is given up.
        let mut is_over = false;
        for _ in 0..after {
            is_over = change.as_mut().poll(&mut context).is_ready();
            if is_over {
                break;
            }
            clock.advance(Duration::from_secs(1));
        }
        if is_over {
            assert!(after > 4, "it asked the new store {after} times");
            return;
        }
        drop(change);
        if is_known {
            new.late(None);
            assert!(
                !Arc::ptr_eq(&store.current(), &old),
                "what is known has happened"
            );
            assert_eq!(waiting(&store, record.queue).await, [1, 2, 3]);
            continue;
        }
        assert!(Arc::ptr_eq(&store.current(), &old));
        assert_eq!(waiting(&store, record.queue).await, [1, 2, 3]);
        store
            .swap_to(store.change().unwrap(), memory(), false, "there", || Ok(()))
            .await
            .unwrap();
        assert_eq!(waiting(&store, record.queue).await, [1, 2, 3]);
    }
}

#[tokio::test]
async fn one_change_at_a_time() {
    let (store, _) = filled(1).await;
    let (first, mut second) = (memory(), None);
    let during = || {
        second = Some(store.change().map(|_| ()));
        Ok(())
    };
    store
        .swap_to(store.change().unwrap(), first, false, "there", during)
        .await
        .unwrap();
    let error = second.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SwapInProgress);
    assert!(store.change().is_ok(), "that one is done");
}
