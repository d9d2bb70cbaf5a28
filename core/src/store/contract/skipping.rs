//! Queues that do not get what is appended to their log.

use crate::store::{Append, Bounds, LogId, Overflow, QueueId, Settled};

use super::Make;
use super::rig::{Rig, append, bounds, low, plain, realm, spec};

fn without(rig: &Rig, log: LogId, skip: &[QueueId]) -> Append {
    Append {
        skip: skip.to_vec(),
        ..append(rig.guaranteed(), &[log])
    }
}

pub async fn a_skipped_queue_does_not_get_the_entry(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let (a, b, c) = (
        rig.open(spec("a")).await,
        rig.open(spec("b")).await,
        rig.open(plain("c")).await,
    );
    rig.put(rig.guaranteed(), a.log).await;
    let item = without(&rig, a.log, &[b.queue, c.queue, b.queue]);
    let placed = rig.try_put(item).await.unwrap().placed[0];
    assert_eq!((placed.seq, placed.queued, placed.refused), (2, 1, 0));
    rig.put(rig.guaranteed(), a.log).await;
    assert_eq!(rig.waiting(a.queue).await, [1, 2, 3]);
    for skipped in [b.queue, c.queue] {
        assert_eq!(rig.waiting(skipped).await, [1, 3]);
        assert_eq!(rig.depth(skipped).await, 2);
        let settled = rig.store.settle(skipped, vec![2]).await.unwrap();
        assert_eq!(settled, [Settled::Before]);
    }
    let depth = rig.store.realm_depth(&realm("r")).await.unwrap();
    assert_eq!(depth.count, 7);
}

pub async fn a_message_whose_every_reader_is_skipped_is_not_stored(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let a = rig.open(spec("a")).await;
    let item = without(&rig, a.log, &[a.queue, QueueId(u64::MAX)]);
    assert!(rig.try_put(item).await.unwrap().placed.is_empty());
    assert_eq!(rig.store.counters().appended, 0);
    assert_eq!(rig.put(rig.message(), a.log).await.placed[0].seq, 1);
}

pub async fn a_skip_is_for_queues_of_the_appends_own_logs(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let a = rig.open(spec("a")).await;
    let mut elsewhere = spec("a");
    elsewhere.realm = realm("other");
    let elsewhere = rig.open(elsewhere).await;
    let item = without(&rig, a.log, &[elsewhere.queue]);
    assert_eq!(rig.try_put(item).await.unwrap().placed[0].queued, 1);
    assert_eq!(rig.waiting(a.queue).await, [1]);
    assert_eq!(rig.depth(elsewhere.queue).await, 0);
}

pub async fn a_full_queue_that_is_skipped_refuses_nothing(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    let full = rig.filled("full", 2).await;
    let other = rig.open(spec("other")).await;
    let item = without(&rig, full.log, &[full.queue]);
    let placed = rig.try_put(item).await.unwrap().placed[0];
    assert_eq!((placed.queued, placed.refused), (1, 0));
    assert_eq!(rig.store.counters().refused, 0);
    rig.change(full.queue, low(1)).await;
    rig.put(rig.message(), full.log).await;
    assert_eq!(rig.waiting(full.queue).await, [2, 4]);
    assert_eq!(rig.waiting(other.queue).await, [3, 4]);
}

pub async fn a_full_queue_that_is_skipped_drops_nothing(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::DropOldest)).await;
    let full = rig.filled("full", 3).await;
    let other = rig.open(spec("other")).await;
    let item = without(&rig, full.log, &[full.queue]);
    assert_eq!(rig.try_put(item).await.unwrap().placed[0].queued, 1);
    assert_eq!(rig.waiting(full.queue).await, [2, 3]);
    assert_eq!(rig.waiting(other.queue).await, [4]);
    rig.put(rig.message(), full.log).await;
    assert_eq!(rig.waiting(full.queue).await, [3, 5]);
    assert_eq!(rig.store.counters().dropped_oldest, 2);
}

pub async fn what_is_skipped_takes_no_room_of_the_realm(make: Make<'_>) {
    let bounds = Bounds {
        max_queued_per_realm: Some(2),
        ..Bounds::default()
    };
    let rig = Rig::with(make, bounds).await;
    let a = rig.filled("a", 1).await;
    let b = rig.open(spec("b")).await;
    rig.try_put(without(&rig, a.log, &[b.queue])).await.unwrap();
    assert_eq!(rig.depth(b.queue).await, 0);
    assert_eq!(rig.waiting(a.queue).await, [1, 2]);
    assert!(rig.try_put(without(&rig, a.log, &[a.queue])).await.is_err());
}
