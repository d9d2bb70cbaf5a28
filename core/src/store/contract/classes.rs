//! Which entries a queue takes, and what changing that does.

use crate::store::{LogId, Settled};

use super::Make;
use super::rig::{Rig, at, done, low, plain, spec};

pub async fn a_plain_queue_takes_guaranteed_entries_only(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let durable = rig.open(spec("a")).await;
    let plain = rig.open(plain("b")).await;
    let one = rig.put(rig.message(), plain.log).await;
    let all = rig.put(rig.guaranteed(), plain.log).await;
    rig.put(rig.message(), plain.log).await;
    assert_eq!((one.placed[0].queued, all.placed[0].queued), (1, 2));
    assert_eq!(rig.waiting(durable.queue).await, [1, 2, 3]);
    assert_eq!(rig.waiting(plain.queue).await, [2]);
    assert_eq!(rig.depth(plain.queue).await, 1);
}

pub async fn what_no_queue_wants_is_not_stored(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let plain = rig.open(plain("a")).await;
    assert!(rig.put(rig.message(), plain.log).await.placed.is_empty());
    let nowhere = rig.put(rig.guaranteed(), LogId(u64::MAX)).await;
    assert!(nowhere.placed.is_empty() && !nowhere.duplicate);
    assert_eq!(rig.put(rig.guaranteed(), plain.log).await.placed[0].seq, 1);
}

pub async fn a_plain_queue_made_durable_takes_every_later_entry(make: Make<'_>) {
    let rig = Rig::new(make).await;
    rig.open(spec("keeper")).await;
    let queue = rig.open(plain("a")).await;
    for _ in 0..3 {
        rig.put(rig.message(), queue.log).await;
        rig.put(rig.guaranteed(), queue.log).await;
    }
    rig.change(queue.queue, done(&[4])).await;
    let durable = rig.open(spec("a")).await;
    assert_eq!((durable.queue, durable.depth), (queue.queue, 2));
    rig.put(rig.message(), queue.log).await;
    assert_eq!(rig.waiting(queue.queue).await, [2, 6, 7]);
    rig.change(queue.queue, low(6)).await;
    assert_eq!(rig.waiting(queue.queue).await, [7]);
}

pub async fn a_durable_queue_made_plain_keeps_what_it_owned(make: Make<'_>) {
    let rig = Rig::new(make).await;
    rig.open(spec("keeper")).await;
    let queue = rig.filled("a", 3).await;
    rig.change(queue.queue, done(&[2])).await;
    assert_eq!(rig.open(plain("a")).await.depth, 2);
    rig.put(rig.message(), queue.log).await;
    rig.put(rig.guaranteed(), queue.log).await;
    rig.put(rig.message(), queue.log).await;
    assert_eq!(rig.waiting(queue.queue).await, [1, 3, 5]);
    assert_eq!(rig.depth(queue.queue).await, 3);
    rig.change(queue.queue, low(4)).await;
    assert_eq!(rig.waiting(queue.queue).await, [5]);
    rig.change(queue.queue, low(6)).await;
    assert_eq!(rig.depth(queue.queue).await, 0);
}

pub async fn a_queue_may_change_its_class_again_and_again(make: Make<'_>) {
    let rig = Rig::new(make).await;
    rig.open(spec("keeper")).await;
    let queue = rig.open(plain("a")).await;
    let mut owned = Vec::new();
    for round in 0..6u64 {
        rig.put(rig.message(), queue.log).await;
        rig.put(rig.guaranteed(), queue.log).await;
        let is_durable = round % 2 == 1;
        if is_durable {
            owned.push(2 * round + 1);
        }
        owned.push(2 * round + 2);
        assert_eq!(rig.waiting(queue.queue).await, owned, "round {round}");
        assert_eq!(rig.depth(queue.queue).await, owned.len() as u64);
        rig.open(if is_durable { plain("a") } else { spec("a") })
            .await;
    }
}

pub async fn a_plain_queue_does_not_keep_what_is_not_for_it(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let durable = rig.open(spec("a")).await;
    let queue = rig.open(plain("b")).await;
    rig.fill(queue.log, 3).await;
    rig.change(durable.queue, low(3)).await;
    let records = rig.store.queues().await.unwrap();
    assert!(
        records
            .iter()
            .all(|record| record.depth == 0 && record.low == 3)
    );
    // It is at the end of its log although it never settled anything.
    rig.put(rig.guaranteed(), queue.log).await;
    assert_eq!(rig.waiting(queue.queue).await, [4]);
}

pub async fn what_came_while_a_queue_was_plain_is_never_its(make: Make<'_>) {
    let rig = Rig::new(make).await;
    rig.open(spec("keeper")).await;
    let queue = rig.filled("a", 1).await;
    rig.open(plain("a")).await;
    for _ in 0..2 {
        rig.put(rig.expiring(5), queue.log).await;
    }
    rig.open(spec("a")).await;
    rig.put(rig.expiring(5), queue.log).await;
    let settled = rig.store.settle(queue.queue, vec![2]).await.unwrap();
    assert_ne!(settled, [Settled::Now]);
    assert_eq!(rig.waiting(queue.queue).await, [1, 4]);
    rig.maintain(at(10)).await;
    assert_eq!(rig.depth(queue.queue).await, 1);
    assert_eq!(rig.store.counters().expired, 4);
}
