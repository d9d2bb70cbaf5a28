//! Full queues, full realms, counters.

use crate::ErrorKind;
use crate::store::{Append, Bounds, Overflow, QueueSpec, Quota, StoreCounters};

use super::Make;
use super::rig::{
    Rig, START, append, at, bounds, bury, done, except, exception, key, low, plain, quota, realm,
    spec,
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

pub async fn a_bound_of_queues_that_changes_counts_from_the_next_message_on(make: Make<'_>) {
    let bounds = bounds(3, Overflow::Reject);
    let rig = Rig::with(make, bounds.clone()).await;
    let a = rig.filled("a", 3).await;
    let full = Some("max_queued".to_owned());
    assert_eq!(rig.refusal(a.log).await, full);
    let set = |queue| {
        let quota = quota(queue, Quota::ANY, Quota::ANY);
        bounds.realms.set(quota, [].into());
    };
    set(4);
    assert_eq!(rig.refusal(a.log).await, None);
    assert_eq!(rig.refusal(a.log).await, full);
    set(2);
    // What is there stays.
    assert_eq!(rig.waiting(a.queue).await, [1, 2, 3, 4]);
    for seq in 1..=2 {
        assert_eq!(rig.refusal(a.log).await, full);
        rig.change(a.queue, low(seq)).await;
    }
    assert_eq!(rig.refusal(a.log).await, full);
    rig.change(a.queue, low(3)).await;
    assert_eq!(rig.refusal(a.log).await, None);
    assert_eq!(rig.refusal(a.log).await, full);
    set(Quota::ANY);
    // What happens in a queue before the next message does not hide the change of another.
    let b = rig.open(spec("b")).await;
    set(2);
    rig.change(b.queue, low(0)).await;
    set(Quota::ANY);
    rig.fill(a.log, 20).await;
    assert_eq!(rig.depth(a.queue).await, 22);
    assert_eq!(rig.depth(b.queue).await, 20);
}

pub async fn a_queue_that_may_have_fewer_and_drops_its_oldest_drops_down_to_that(make: Make<'_>) {
    let bounds = bounds(6, Overflow::DropOldest);
    let rig = Rig::with(make, bounds.clone()).await;
    let queue = rig.filled("a", 6).await;
    let set = |queue| {
        let quota = quota(queue, Quota::ANY, Quota::ANY);
        bounds.realms.set(quota, [].into());
    };
    rig.change(queue.queue, except(vec![exception(1, at(60))]))
        .await;
    set(3);
    assert_eq!(rig.waiting(queue.queue).await, [2, 3, 4, 5, 6]);
    rig.fill(queue.log, 1).await;
    // Exceptions stay.
    assert_eq!(rig.waiting(queue.queue).await, [5, 6, 7]);
    assert_eq!(rig.store.counters().dropped_oldest, 3);
    let depth = rig.store.realm_depth(&realm("r")).await.unwrap();
    assert_eq!(depth.count, 4);
    set(8);
    rig.fill(queue.log, 4).await;
    assert_eq!(rig.waiting(queue.queue).await, [5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(rig.store.counters().dropped_oldest, 3);
}

pub async fn a_realm_has_bounds_of_its_own(make: Make<'_>) {
    let bounds = Bounds::default();
    let rig = Rig::with(make, bounds.clone()).await;
    let one = quota(1, Quota::ANY, Quota::ANY);
    let other = quota(Quota::ANY, Quota::ANY, 6);
    bounds.realms.set(one, [(realm("other"), other)].into());
    let a = rig.filled("a", 1).await;
    let mut there = spec("a");
    there.realm = realm("other");
    let there = rig.open(there).await;
    let put = async || {
        let item = Append::new(realm("other"), rig.message().into(), vec![there.log]);
        rig.try_put(item).await
    };
    assert_eq!(rig.refusal(a.log).await, Some("max_queued".into()));
    put().await.unwrap();
    put().await.unwrap();
    let full = put().await.unwrap_err();
    assert!(full.message().contains("max_queued_bytes_per_realm"));
}

pub async fn delayed_messages_are_bounded_as_those_of_a_queue_are(make: Make<'_>) {
    let bounds = bounds(1, Overflow::Reject);
    let rig = Rig::with(make, bounds.clone()).await;
    let hold = async || {
        let item = Append {
            due: Some(at(60)),
            ..append(rig.message(), &[])
        };
        rig.try_put(item).await
    };
    hold().await.unwrap();
    let full = hold().await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QueueFull);
    let two = quota(2, Quota::ANY, Quota::ANY);
    bounds.realms.set(two, [].into());
    hold().await.unwrap();
    assert_eq!(hold().await.unwrap_err().kind(), ErrorKind::QueueFull);
}

/// How many messages fit into a realm that keeps 30 bytes, each of them 3; they are settled again.
pub(super) async fn fits(rig: &Rig, bounds: &Bounds) -> usize {
    let queue = rig.open(spec("ruler")).await;
    let mut count = 0;
    let full = loop {
        match rig.refusal(queue.log).await {
            None => count += 1,
            Some(full) => break full,
        }
    };
    assert_eq!(full, "max_queued_bytes_per_realm");
    // Without a bound it makes no difference.
    bounds.realms.set(Bounds::default().base(), [].into());
    assert_eq!(rig.refusal(queue.log).await, None);
    bounds.realms.set(BYTES, [].into());
    rig.store.forget(queue.queue, true).await.unwrap();
    count
}

const BYTES: Quota = Quota {
    queue: Quota::ANY,
    queued: Quota::ANY,
    bytes: 30,
};

pub(super) async fn bounded_by_bytes(make: Make<'_>, overflow: Overflow) -> (Rig, Bounds) {
    let bounds = bounds(1000, overflow);
    bounds.realms.set(BYTES, [].into());
    (Rig::with(make, bounds.clone()).await, bounds)
}

/// In another log than that of `fits`.
pub(super) fn aside(name: &str) -> QueueSpec {
    let mut aside = spec(name);
    aside.key = key("aside");
    aside
}

pub async fn a_realm_full_of_bytes_refuses_until_some_are_settled(make: Make<'_>) {
    let (rig, bounds) = bounded_by_bytes(make, Overflow::Reject).await;
    let a = rig.open(aside("a")).await;
    assert_eq!(fits(&rig, &bounds).await, 10);
    rig.fill(a.log, 4).await;
    assert_eq!(fits(&rig, &bounds).await, 6);
    rig.change(a.queue, done(&[1])).await;
    assert_eq!(fits(&rig, &bounds).await, 7);
    rig.change(a.queue, low(3)).await;
    assert_eq!(fits(&rig, &bounds).await, 9);
    rig.store.settle(a.queue, vec![4]).await.unwrap();
    assert_eq!(fits(&rig, &bounds).await, 10);
}

pub async fn a_realm_full_of_bytes_refuses_even_where_the_oldest_are_dropped(make: Make<'_>) {
    let (rig, bounds) = bounded_by_bytes(make, Overflow::DropOldest).await;
    let a = rig.open(aside("a")).await;
    rig.fill(a.log, 4).await;
    assert_eq!(fits(&rig, &bounds).await, 6);
    let few = Quota { queue: 2, ..BYTES };
    bounds.realms.set(few, [].into());
    // Four, then two for the last two.
    rig.fill(a.log, 5).await;
    bounds.realms.set(BYTES, [].into());
    assert_eq!(rig.waiting(a.queue).await, [8, 9]);
    assert_eq!(fits(&rig, &bounds).await, 8);
}

pub async fn bytes_of_what_expires_may_wait_again(make: Make<'_>) {
    let (rig, bounds) = bounded_by_bytes(make, Overflow::Reject).await;
    let a = rig.open(aside("a")).await;
    rig.put(rig.message(), a.log).await;
    for seconds in [50, 10, 60, 5] {
        rig.put(rig.expiring(seconds), a.log).await;
    }
    rig.change(a.queue, except(vec![exception(5, at(600))]))
        .await;
    // What an exception holds counts once more, unless it has it alone.
    assert!((4..=5).contains(&fits(&rig, &bounds).await));
    rig.maintain(at(20)).await;
    assert_eq!(fits(&rig, &bounds).await, 7);
    rig.maintain(at(100)).await;
    assert_eq!(fits(&rig, &bounds).await, 9);
    rig.change(a.queue, done(&[1])).await;
    assert_eq!(fits(&rig, &bounds).await, 10);
}

pub async fn bytes_of_exceptions_count_and_those_of_dead_letters_do_not(make: Make<'_>) {
    let (rig, bounds) = bounded_by_bytes(make, Overflow::Reject).await;
    let a = rig.open(aside("a")).await;
    rig.fill(a.log, 3).await;
    let late = vec![exception(1, at(60)), exception(2, at(60))];
    rig.change(a.queue, except(late)).await;
    rig.change(a.queue, low(3)).await;
    assert_eq!(fits(&rig, &bounds).await, 8);
    rig.change(a.queue, bury(&[1])).await;
    assert_eq!(fits(&rig, &bounds).await, 9);
    let letters = rig.store.dead_letters(&realm("r"), None, 9).await.unwrap();
    let revived = rig.store.revive(&realm("r"), letters[0].id, START).await;
    assert_eq!(revived.unwrap(), a.queue);
    assert_eq!(fits(&rig, &bounds).await, 8);
    rig.change(a.queue, done(&[1, 2])).await;
    assert_eq!(fits(&rig, &bounds).await, 10);
}

pub async fn bytes_of_removed_queues_may_wait_again(make: Make<'_>) {
    let (rig, bounds) = bounded_by_bytes(make, Overflow::Reject).await;
    let a = rig.open(aside("a")).await;
    rig.fill(a.log, 4).await;
    rig.change(a.queue, except(vec![exception(1, at(60))]))
        .await;
    rig.store.purge_queue(a.queue).await.unwrap();
    assert_eq!(fits(&rig, &bounds).await, 10);
    rig.fill(a.log, 4).await;
    rig.store.forget(a.queue, false).await.unwrap();
    // What a left-over has still waits.
    assert_eq!(fits(&rig, &bounds).await, 6);
    let a = rig.open(aside("a")).await;
    rig.change(a.queue, except(vec![exception(5, at(60))]))
        .await;
    rig.store.forget(a.queue, true).await.unwrap();
    assert_eq!(fits(&rig, &bounds).await, 10);
    let a = rig.open(aside("a")).await;
    rig.fill(a.log, 4).await;
    rig.store.purge_realm(&realm("r")).await.unwrap();
    assert_eq!(fits(&rig, &bounds).await, 10);
}

pub async fn bytes_go_with_a_realm_that_is_renamed(make: Make<'_>) {
    let (rig, bounds) = bounded_by_bytes(make, Overflow::Reject).await;
    let mut there = aside("a");
    there.realm = realm("before");
    let there = rig.open(there).await;
    for _ in 0..4 {
        let item = Append::new(realm("before"), rig.message().into(), vec![there.log]);
        rig.try_put(item).await.unwrap();
    }
    assert_eq!(fits(&rig, &bounds).await, 10);
    rig.store.purge_realm(&realm("r")).await.unwrap();
    let renamed = rig.store.rename_realm(&realm("before"), &realm("r")).await;
    renamed.unwrap();
    assert_eq!(fits(&rig, &bounds).await, 6);
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
