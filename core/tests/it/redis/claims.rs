//! Who of several brokers has a queue in hand, as their stores say it.

use std::time::{Duration, Instant};

use restante::ErrorKind;
use restante::store::{
    Claim, Hold, QueueChange, QueueId, QueueKind, QueueSpec, RedisOptions, RedisStore, Settled,
    Store as _, Wish,
};

use super::rig::{ALL, Rig, now, spec};
use super::server::{open, shared};

const LEASE: Duration = Duration::from_secs(1);

fn options() -> RedisOptions {
    let mut options = shared().options();
    options.lease = LEASE;
    options
}

/// A store with a queue of which `count` entries wait, and another store.
async fn two(spec: QueueSpec, count: usize) -> (Rig, RedisStore) {
    let options = options();
    let mut rig = Rig::new(options.clone()).await;
    rig.queue = rig.store.open(spec, now()).await.unwrap();
    for _ in 0..count {
        rig.put().await.unwrap().remove(0).unwrap();
    }
    let other = open(options, restante::store::Bounds::default()).await;
    (rig, other)
}

fn group() -> QueueSpec {
    QueueSpec {
        kind: QueueKind::Group,
        ..spec("g")
    }
}

async fn claim(store: &RedisStore, queue: QueueId, force: bool, taken: u64) -> Claim {
    store.claim(queue, Wish { force, taken }).await.unwrap()
}

async fn seqs(store: &RedisStore, queue: QueueId) -> Vec<(u64, u32)> {
    let page = store.page(queue, 0, ALL, now()).await.unwrap();
    let entries = page.entries.iter();
    entries.map(|entry| (entry.seq, entry.attempts)).collect()
}

fn sent(seq: u64) -> QueueChange {
    QueueChange {
        sent: Some(seq),
        ..QueueChange::default()
    }
}

#[tokio::test]
async fn who_has_lost_a_queue_can_do_nothing_with_it_but_settle() {
    let (a, b) = two(spec("a"), 4).await;
    let queue = a.queue.queue;
    let first = claim(&a.store, queue, true, 0).await;
    assert_eq!(first.hold, Hold::Sole);
    assert_eq!(seqs(&a.store, queue).await.len(), 4);
    a.store.update(queue, sent(2), now()).await.unwrap();
    assert_eq!(claim(&b, queue, false, 0).await.hold, Hold::Nothing);
    assert_eq!(
        b.page(queue, 0, ALL, now()).await.unwrap_err().kind(),
        ErrorKind::Fenced
    );
    let second = claim(&b, queue, true, 0).await;
    assert_eq!(second.hold, Hold::Sole);
    assert_eq!(second.position.unwrap().sent, 2);
    let fenced =
        |result: restante::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Fenced);
    fenced(a.store.page(queue, 0, ALL, now()).await.map(|_| ()));
    fenced(a.store.due(queue, ALL, now()).await.map(|_| ()));
    fenced(a.store.update(queue, sent(9), now()).await);
    assert_eq!(
        a.store.settle(queue, vec![2]).await.unwrap(),
        [Settled::Now]
    );
    assert_eq!(claim(&a.store, queue, false, 0).await.hold, Hold::Nothing);
    assert_eq!(seqs(&b, queue).await.len(), 3);
    b.release(queue, 2).await.unwrap();
    let third = claim(&a.store, queue, false, 0).await;
    assert_eq!(third.hold, Hold::Sole);
    assert!(third.position.is_some());
}

#[tokio::test]
async fn a_queue_that_nobody_else_has_had_is_as_it_was() {
    let (a, b) = two(spec("a"), 1).await;
    let queue = a.queue.queue;
    assert!(claim(&a.store, queue, true, 0).await.position.is_some());
    a.store.update(queue, sent(64), now()).await.unwrap();
    a.store.release(queue, 1).await.unwrap();
    assert_eq!(claim(&a.store, queue, true, 1).await.position, None);
    a.store.release(queue, 1).await.unwrap();
    let position = claim(&b, queue, true, 0).await.position.unwrap();
    assert_eq!(
        position.sent, 1,
        "what was marked and not sent is no repeat"
    );
}

#[tokio::test]
async fn a_silent_broker_loses_its_queues_within_the_lease() {
    let (a, b) = two(spec("a"), 1).await;
    let queue = a.queue.queue;
    claim(&a.store, queue, true, 0).await;
    let until = Instant::now() + LEASE * 2;
    while Instant::now() < until {
        assert_eq!(claim(&b, queue, false, 0).await.hold, Hold::Nothing);
        tokio::time::sleep(LEASE / 10).await;
    }
    drop(a);
    let died = Instant::now();
    while claim(&b, queue, false, 0).await.hold == Hold::Nothing {
        assert!(died.elapsed() < LEASE * 10, "it never ends");
        tokio::time::sleep(LEASE / 50).await;
    }
}

#[tokio::test]
async fn a_group_is_shared_without_an_entry_for_two() {
    let (a, b) = two(group(), 100).await;
    let queue = a.queue.queue;
    assert_eq!(claim(&a.store, queue, true, 0).await.hold, Hold::Sole);
    a.store.update(queue, sent(64), now()).await.unwrap();
    let joined = claim(&b, queue, true, 0).await;
    assert_eq!(joined.hold, Hold::Shared);
    let kind = |error: restante::Error| error.kind();
    assert_eq!(
        a.store.update(queue, sent(99), now()).await.map_err(kind),
        Err(ErrorKind::Fenced)
    );
    // It may have sent up to its mark, and the other gets half of what is left.
    let mine = seqs(&b, queue).await;
    assert_eq!(mine, (65..83).map(|seq| (seq, 0)).collect::<Vec<_>>());
    let shared = claim(&a.store, queue, false, 10).await;
    assert_eq!((shared.hold, shared.position), (Hold::Shared, None));
    let mut all = Vec::new();
    for store in [&*a.store, &b].into_iter().cycle().take(40) {
        all.extend(seqs(store, queue).await);
    }
    all.sort_unstable();
    let free = (11..65).chain(83..101);
    assert_eq!(all, free.map(|seq| (seq, 0)).collect::<Vec<_>>());
    // One that goes leaves the rest to the other, as repeats.
    a.store.settle(queue, (1..11).collect()).await.unwrap();
    b.release(queue, 0).await.unwrap();
    let left = seqs(&a.store, queue).await;
    assert!(left.len() >= 18 && left.iter().all(|(_, attempts)| *attempts == 1));
    assert!(mine.iter().all(|(seq, _)| left.contains(&(*seq, 1))));
}

#[tokio::test]
async fn what_a_dead_member_of_a_group_held_is_the_others_within_the_lease() {
    let (a, b) = two(group(), 10).await;
    let queue = a.queue.queue;
    claim(&a.store, queue, true, 0).await;
    a.store.update(queue, sent(10), now()).await.unwrap();
    claim(&b, queue, true, 0).await;
    claim(&a.store, queue, false, 10).await;
    assert_eq!(seqs(&b, queue).await, []);
    drop(a);
    let died = Instant::now();
    let mut all = Vec::new();
    while all.len() < 10 {
        assert!(died.elapsed() < LEASE * 10, "it never ends");
        all.extend(seqs(&b, queue).await);
        tokio::time::sleep(LEASE / 50).await;
    }
    assert_eq!(all, (1..11).map(|seq| (seq, 1)).collect::<Vec<_>>());
}
