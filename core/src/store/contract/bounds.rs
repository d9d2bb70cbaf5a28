//! Full queues, full realms, counters.

use crate::ErrorKind;
use crate::store::{Append, Bounds, Overflow, StoreCounters};

use super::Make;
use super::rig::{
    Rig, START, append, at, bounds, bury, done, except, exception, low, plain, realm, spec,
};

pub async fn a_full_queue_refuses_for_itself(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    let full = rig.filled("full", 2).await;
    let other = rig.open(spec("other")).await;
    let third = rig.put(rig.message(), full.log).await.placed[0];
    assert_eq!((third.seq, third.queued, third.refused), (3, 1, 1));
    assert_eq!(rig.waiting(full.queue).await, [1, 2]);
    assert_eq!(rig.waiting(other.queue).await, [3]);
    assert_eq!(rig.store.counters().refused, 1);
}

pub async fn a_message_that_no_queue_takes_is_refused(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    let a = rig.filled("a", 2).await;
    let refused = rig
        .try_put(append(rig.message(), &[a.log]))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::QueueFull);
    rig.change(a.queue, done(&[2])).await;
    assert_eq!(
        rig.put(rig.message(), a.log).await.placed[0].seq,
        3,
        "no seq was lost"
    );
    assert_eq!(rig.waiting(a.queue).await, [1, 3]);
}

pub async fn a_queue_that_has_room_again_takes_only_what_comes_then(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    let queue = rig.filled("a", 2).await;
    let wide = rig.open(spec("wide")).await;
    rig.fill(queue.log, 2).await;
    rig.change(wide.queue, low(4)).await;
    rig.change(queue.queue, low(1)).await;
    rig.fill(queue.log, 1).await;
    assert_eq!(
        rig.waiting(queue.queue).await,
        [2, 5],
        "3 and 4 were refused"
    );
    rig.change(queue.queue, low(5)).await;
    rig.fill(queue.log, 2).await;
    assert_eq!(rig.waiting(queue.queue).await, [6, 7]);
    assert_eq!(rig.waiting(wide.queue).await, [5, 6]);
}

pub async fn exceptions_count_towards_a_full_queue(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    let queue = rig.filled("a", 2).await;
    rig.change(
        queue.queue,
        except(vec![exception(1, START), exception(2, START)]),
    )
    .await;
    rig.change(queue.queue, low(2)).await;
    assert!(
        rig.try_put(append(rig.message(), &[queue.log]))
            .await
            .is_err()
    );
    rig.change(queue.queue, bury(&[1])).await;
    rig.put(rig.message(), queue.log).await;
}

pub async fn a_full_plain_queue_counts_guaranteed_entries_only(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    let queue = rig.open(plain("a")).await;
    let keeper = rig.open(spec("keeper")).await;
    for _ in 0..4 {
        rig.put(rig.message(), queue.log).await;
        rig.change(keeper.queue, low(u64::MAX)).await;
    }
    for seq in 5..=6 {
        let placed = rig.put(rig.guaranteed(), queue.log).await.placed[0];
        assert_eq!((placed.seq, placed.queued, placed.refused), (seq, 2, 0));
        rig.change(keeper.queue, low(u64::MAX)).await;
    }
    let placed = rig.put(rig.guaranteed(), queue.log).await.placed[0];
    assert_eq!((placed.queued, placed.refused), (1, 1));
    assert_eq!(rig.waiting(queue.queue).await, [5, 6]);
}

pub async fn a_queue_that_drops_its_oldest_keeps_the_newest(make: Make<'_>) {
    let rig = Rig::with(make, bounds(3, Overflow::DropOldest)).await;
    let queue = rig.filled("a", 3).await;
    rig.change(queue.queue, done(&[2])).await;
    for seq in 4..=8 {
        let placed = rig.put(rig.message(), queue.log).await.placed[0];
        assert_eq!((placed.seq, placed.queued, placed.refused), (seq, 1, 0));
    }
    // 1, 2 (settled) and 3 to 5 are gone; room was for one more at first.
    assert_eq!(rig.store.counters().dropped_oldest, 4);
    assert_eq!(rig.depth(queue.queue).await, 3);
    assert_eq!(rig.waiting(queue.queue).await, [6, 7, 8]);
    rig.change(queue.queue, low(6)).await;
    rig.fill(queue.log, 1).await;
    assert_eq!(rig.waiting(queue.queue).await, [7, 8, 9]);
    assert_eq!(rig.store.counters().dropped_oldest, 4);
}

pub async fn a_queue_full_of_exceptions_that_drops_its_oldest_keeps_the_newest(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::DropOldest)).await;
    let queue = rig.filled("a", 2).await;
    let both = vec![exception(1, at(60)), exception(2, at(60))];
    rig.change(queue.queue, except(both)).await;
    rig.change(queue.queue, low(2)).await;
    for (seq, dropped) in [(3, 0), (4, 1), (5, 2)] {
        let placed = rig.put(rig.message(), queue.log).await.placed[0];
        assert_eq!((placed.seq, placed.queued, placed.refused), (seq, 1, 0));
        assert_eq!(rig.store.counters().dropped_oldest, dropped);
        assert_eq!(rig.waiting(queue.queue).await, [seq]);
    }
    assert_eq!(rig.depth(queue.queue).await, 3);
}

pub async fn dropping_the_oldest_of_one_queue_leaves_the_others(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::DropOldest)).await;
    let slow = rig.open(spec("slow")).await;
    let fast = rig.open(spec("fast")).await;
    let plain = rig.open(plain("plain")).await;
    rig.put(rig.guaranteed(), slow.log).await;
    for seq in 2..=700 {
        rig.put(rig.message(), slow.log).await;
        rig.change(fast.queue, low(seq - 1)).await;
    }
    assert_eq!(rig.waiting(slow.queue).await, [699, 700]);
    assert_eq!(rig.waiting(fast.queue).await, [700]);
    assert_eq!(rig.waiting(plain.queue).await, [1]);
    assert_eq!(rig.store.counters().dropped_oldest, 698);
}

pub async fn a_full_realm_refuses(make: Make<'_>) {
    let bounds = Bounds {
        max_queued_per_realm: Some(4),
        ..Bounds::default()
    };
    let rig = Rig::with(make, bounds).await;
    let a = rig.filled("a", 1).await;
    rig.open(spec("b")).await;
    rig.fill(a.log, 1).await;
    // Three are waiting; one more for two queues would be five.
    let refused = rig
        .try_put(append(rig.message(), &[a.log]))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::QueueFull);
    rig.change(a.queue, low(1)).await;
    rig.fill(a.log, 1).await;
    let depth = rig.store.realm_depth(&realm("r")).await.unwrap();
    assert_eq!(depth.count, 4);
    rig.maintain(at(3600)).await;
    rig.put(rig.expiring(9999), a.log).await;
}

pub async fn counters_never_fall(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    let queue = rig.filled("a", 2).await;
    let mut before = rig.store.counters();
    let numbers = |counters: &StoreCounters| {
        [
            counters.appended,
            counters.duplicates,
            counters.expired,
            counters.refused,
            counters.dropped_oldest,
            counters.buried,
            counters.dead_letters_dropped,
            counters.dead_letters_expired,
            counters.failures,
        ]
    };
    let mut check = |what: &str| {
        let now = rig.store.counters();
        let pairs = numbers(&before).into_iter().zip(numbers(&now));
        assert!(
            pairs.into_iter().all(|(old, new)| old <= new),
            "{what}: {before:?} {now:?}"
        );
        before = now;
    };
    assert!(
        rig.try_put(append(rig.message(), &[queue.log]))
            .await
            .is_err()
    );
    check("a refusal");
    rig.change(queue.queue, bury(&[1])).await;
    check("a burial");
    let named = Append {
        uid: Some("x".into()),
        ..append(rig.message(), &[queue.log])
    };
    rig.try_put(named.clone()).await.unwrap();
    rig.try_put(named).await.unwrap();
    check("a duplicate");
    rig.store.purge_dead_letters(&realm("r")).await.unwrap();
    check("purged dead letters");
    rig.maintain(at(3600)).await;
    check("expiry");
    rig.store.purge_realm(&realm("r")).await.unwrap();
    check("a purged realm");
    let last = rig.store.counters();
    assert_eq!((last.appended, last.duplicates, last.expired), (3, 1, 2));
    assert_eq!((last.refused, last.buried), (1, 1));
}
