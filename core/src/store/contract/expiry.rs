//! What a TTL ends, and how often it is counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::Message;
use crate::store::{Append, PageLimit, QueueSpec, Settled};

use super::Make;
use super::rig::{Rig, START, at, done, except, exception, low, plain, realm, seqs, spec};

pub async fn an_expired_entry_is_never_read_and_counted_once(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    for seconds in [100, 10, 100] {
        rig.put(rig.expiring(seconds), queue.log).await;
    }
    assert_eq!(rig.waiting_at(queue.queue, at(9)).await, [1, 2, 3]);
    let page = rig
        .store
        .page(queue.queue, 0, PageLimit::default(), at(10))
        .await
        .unwrap();
    assert_eq!((seqs(&page.entries), page.expired), (vec![1, 3], 1));
    let page = rig
        .store
        .page(queue.queue, 0, PageLimit::default(), at(10))
        .await
        .unwrap();
    assert_eq!((page.entries.len(), page.expired), (2, 0));
    rig.maintain(at(10)).await;
    assert_eq!(rig.store.counters().expired, 1);
    assert_eq!(rig.depth(queue.queue).await, 2);
    let late = rig.store.settle(queue.queue, vec![2]).await.unwrap();
    assert_eq!(late, [Settled::Before]);
}

pub async fn expiry_counts_once_for_every_queue_that_would_have_got_it(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let a = rig.open(spec("a")).await;
    let b = rig.open(spec("b")).await;
    let plain = rig.open(plain("c")).await;
    for guaranteed in [false, true, false, true] {
        let message = Message {
            guaranteed,
            ..rig.expiring(10)
        };
        rig.put(message, a.log).await;
    }
    rig.change(a.queue, low(2)).await;
    rig.change(b.queue, done(&[3])).await;
    rig.maintain(at(10)).await;
    // a: 3 and 4; b: 1, 2 and 4; c: 2 and 4.
    assert_eq!(rig.store.counters().expired, 7);
    for queue in [a.queue, b.queue, plain.queue] {
        assert_eq!(rig.depth(queue).await, 0);
    }
    let depth = rig.store.realm_depth(&realm("r")).await.unwrap();
    assert_eq!((depth.count, depth.bytes), (0, 0));
    rig.maintain(at(20)).await;
    assert_eq!(rig.store.counters().expired, 7);
}

pub async fn expired_entries_between_others_leave_those_in_order(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    for seq in 1..=40u64 {
        rig.put(rig.expiring(if seq % 3 == 0 { 10 } else { 500 }), queue.log)
            .await;
    }
    rig.change(queue.queue, done(&[4, 7])).await;
    rig.maintain(at(10)).await;
    let left: Vec<u64> = (1..=40)
        .filter(|seq| seq % 3 != 0 && ![4, 7].contains(seq))
        .collect();
    assert_eq!(rig.waiting_at(queue.queue, at(10)).await, left);
    assert_eq!(rig.depth(queue.queue).await, left.len() as u64);
    assert_eq!(rig.store.counters().expired, 13);
    rig.change(queue.queue, low(20)).await;
    assert_eq!(
        rig.depth(queue.queue).await,
        left.iter().filter(|seq| **seq > 20).count() as u64
    );
}

pub async fn an_expired_exception_is_never_due_and_counted_once(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    for seconds in [10, 50, 20] {
        rig.put(rig.expiring(seconds), queue.log).await;
    }
    let exceptions = [1, 2, 3].map(|seq| exception(seq, at(5)));
    rig.change(queue.queue, except(exceptions.to_vec())).await;
    rig.change(queue.queue, low(3)).await;
    let due = rig
        .store
        .due(queue.queue, PageLimit::default(), at(10))
        .await
        .unwrap();
    assert_eq!((seqs(&due.entries), due.expired), (vec![2, 3], 1));
    rig.maintain(at(20)).await;
    rig.maintain(at(21)).await;
    assert_eq!(rig.store.counters().expired, 2);
    assert_eq!(rig.depth(queue.queue).await, 1);
}

pub async fn an_entry_without_expiry_stays(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let message = Message {
        expires: None,
        ..rig.message()
    };
    rig.put(message, queue.log).await;
    let end = at(u64::MAX / 10_000);
    rig.maintain(end).await;
    assert_eq!(rig.waiting_at(queue.queue, end).await, [1]);
}

pub async fn room_that_expiry_made_is_used(make: Make<'_>) {
    let rig = Rig::with(make, super::rig::bounds(2, crate::store::Overflow::Reject)).await;
    let queue = rig.open(spec("a")).await;
    rig.put(rig.expiring(500), queue.log).await;
    rig.put(rig.expiring(10), queue.log).await;
    let refused = rig
        .try_put(super::rig::append(rig.message(), &[queue.log]))
        .await;
    assert!(refused.is_err());
    rig.maintain(at(10)).await;
    rig.put(rig.expiring(500), queue.log).await;
    assert_eq!(rig.waiting_at(queue.queue, at(10)).await, [1, 3]);
}

pub async fn maintenance_says_per_realm_what_expired(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    rig.open(spec("b")).await;
    let elsewhere = QueueSpec {
        realm: realm("second"),
        ..spec("a")
    };
    let elsewhere = rig.open(elsewhere).await;
    for _ in 0..3 {
        rig.put(rig.expiring(10), queue.log).await;
    }
    let item = Append::new(
        elsewhere.spec.realm.clone(),
        Arc::new(rig.expiring(10)),
        vec![elsewhere.log],
    );
    rig.try_put(item).await.unwrap();
    rig.put(rig.expiring(500), queue.log).await;
    let mut expired = BTreeMap::new();
    loop {
        let done = rig.store.maintain(2, at(10)).await.unwrap();
        for (realm, count) in done.expired {
            *expired.entry(realm).or_insert(0) += count;
        }
        if !done.more {
            break;
        }
    }
    // Two queues read the first log.
    let expected = [(queue.spec.realm, 6), (elsewhere.spec.realm, 1)];
    assert_eq!(expired, BTreeMap::from(expected));
}

pub async fn maintenance_is_done_in_bites(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    for _ in 0..50 {
        rig.put(rig.expiring(10), queue.log).await;
    }
    assert!(
        !rig.store.maintain(10, START).await.unwrap().more,
        "nothing to do yet"
    );
    assert!(rig.store.maintain(10, at(10)).await.unwrap().more);
    assert!(rig.store.counters().expired < 50, "one bite is not all");
    rig.maintain(at(10)).await;
    assert_eq!(rig.store.counters().expired, 50);
    assert!(!rig.store.maintain(10, at(10)).await.unwrap().more);
}
