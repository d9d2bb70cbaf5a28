//! Pages, depth and browsing.

use bytes::Bytes;

use crate::model::Message;
use crate::store::{Append, Depth, PageLimit, QueueChange};

use super::Make;
use super::rig::{
    ALL, Rig, START, append, at, bury, done, except, exception, low, plain, realm, seqs, spec,
};

fn sized(rig: &Rig, bytes: usize) -> Message {
    Message {
        body: Some(Bytes::from(vec![b'1'; bytes])),
        ..rig.message()
    }
}

pub async fn a_page_is_bounded_by_entries(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 300).await.queue;
    let limit = PageLimit::default();
    let first = rig.store.page(queue, 0, limit, START).await.unwrap();
    assert_eq!(seqs(&first.entries), (1..=256).collect::<Vec<_>>());
    assert_eq!((first.next, first.end), (256, false));
    let rest = rig
        .store
        .page(queue, first.next, limit, START)
        .await
        .unwrap();
    assert_eq!(seqs(&rest.entries), (257..=300).collect::<Vec<_>>());
    assert_eq!((rest.next, rest.end), (300, true));
    let none = rig
        .store
        .page(queue, rest.next, limit, START)
        .await
        .unwrap();
    assert_eq!((none.entries.len(), none.next, none.end), (0, 300, true));
}

pub async fn a_page_is_bounded_by_bytes_and_a_giant_comes_alone(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    for bytes in [400_000, 400_000, 400_000, 3_000_000, 10] {
        rig.put(sized(&rig, bytes), queue.log).await;
    }
    let mut after = 0;
    let mut pages = Vec::new();
    loop {
        let page = rig
            .store
            .page(queue.queue, after, PageLimit::default(), START);
        let page = page.await.unwrap();
        pages.push(seqs(&page.entries));
        after = page.next;
        if page.end {
            break;
        }
    }
    assert_eq!(pages, [vec![1, 2], vec![3], vec![4], vec![5]]);
}

pub async fn reading_settles_nothing(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 3).await.queue;
    let before = rig.store.queues().await.unwrap();
    let first = rig.store.page(queue, 0, ALL, START).await.unwrap();
    let second = rig.store.page(queue, 0, ALL, START).await.unwrap();
    assert_eq!(first, second);
    assert!(first.entries.iter().all(|entry| entry.attempts == 0));
    assert_eq!(rig.store.queues().await.unwrap(), before);
}

pub async fn a_page_skips_settled_entries_and_exceptions(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 6).await.queue;
    rig.change(queue, done(&[2, 5])).await;
    rig.change(queue, except(vec![exception(3, at(1))])).await;
    assert_eq!(rig.waiting(queue).await, [1, 4, 6]);
    let page = rig.store.page(queue, 1, ALL, START).await.unwrap();
    assert_eq!(seqs(&page.entries), [4, 6]);
}

pub async fn entries_under_the_sent_mark_count_as_sent_once(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 3).await.queue;
    let sent = |seq| QueueChange {
        sent: Some(seq),
        ..QueueChange::default()
    };
    rig.change(queue, sent(2)).await;
    rig.change(queue, sent(1)).await;
    let page = rig.store.page(queue, 0, ALL, START).await.unwrap();
    let attempts: Vec<u32> = page.entries.iter().map(|entry| entry.attempts).collect();
    assert_eq!(attempts, [1, 1, 0], "and the mark never goes back");
    assert!(page.entries.iter().all(|entry| entry.failures == 0));
    assert_eq!(rig.store.queues().await.unwrap()[0].sent, 2);
}

pub async fn depth_counts_entries_bytes_and_the_oldest(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let mut sizes = Vec::new();
    for (second, bytes) in [(3, 10), (4, 200), (5, 3000), (6, 40_000)] {
        let message = Message {
            produced: at(second),
            ..sized(&rig, bytes)
        };
        sizes.push(message.size() as u64);
        rig.put(message, queue.log).await;
    }
    let expected = |count, bytes, oldest| Depth {
        count,
        bytes,
        oldest: Some(at(oldest)),
    };
    let all: u64 = sizes.iter().sum();
    let depth = rig.store.depth(queue.queue).await.unwrap();
    assert_eq!(depth, expected(4, all, 3));
    rig.change(queue.queue, except(vec![exception(2, at(9))]))
        .await;
    rig.change(queue.queue, done(&[1, 3])).await;
    let depth = rig.store.depth(queue.queue).await.unwrap();
    assert_eq!(depth, expected(2, sizes[1] + sizes[3], 4));
    // A second queue of the realm on the same log counts its own.
    let other = rig.open(plain("b")).await;
    rig.put(rig.guaranteed(), other.log).await;
    let size = rig.guaranteed().size() as u64;
    let depth = rig.store.realm_depth(&realm("r")).await.unwrap();
    assert_eq!(
        (depth.count, depth.bytes),
        (4, sizes[1] + sizes[3] + 2 * size)
    );
    rig.change(queue.queue, low(5)).await;
    rig.change(queue.queue, done(&[2])).await;
    assert_eq!(
        rig.store.depth(queue.queue).await.unwrap(),
        Depth::default()
    );
}

pub async fn browsing_shows_everything_unsettled_and_changes_nothing(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 5).await.queue;
    rig.change(queue, done(&[3])).await;
    rig.change(queue, except(vec![exception(2, at(7))])).await;
    let before = (rig.store.queues().await.unwrap(), rig.store.counters());
    let entries = rig.store.browse(queue, 0, ALL).await.unwrap();
    assert_eq!(seqs(&entries), [1, 2, 4, 5]);
    assert_eq!((entries[1].due, entries[1].failures), (Some(at(7)), 1));
    let two = PageLimit {
        entries: 2,
        bytes: usize::MAX,
    };
    let some = rig.store.browse(queue, 1, two).await.unwrap();
    assert_eq!(seqs(&some), [2, 4]);
    let after = (rig.store.queues().await.unwrap(), rig.store.counters());
    assert_eq!(before, after);
}

pub async fn what_a_store_holds_is_told_in_sum(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 6).await;
    let other = rig.open(plain("b")).await;
    rig.put(rig.guaranteed(), other.log).await;
    rig.change(queue.queue, bury(&[1])).await;
    rig.change(queue.queue, except(vec![exception(2, at(7))]))
        .await;
    rig.change(queue.queue, low(3)).await;
    let held = Append {
        due: Some(at(60)),
        ..append(rig.message(), &[])
    };
    rig.try_put(held).await.unwrap();
    rig.maintain(at(0)).await;
    let depth = rig.store.realm_depth(&realm("r")).await.unwrap();
    let holding = rig.store.health().holding.unwrap();
    let told = (holding.messages, holding.bytes, holding.oldest);
    assert_eq!(told, (depth.count, depth.bytes, depth.oldest));
    assert_eq!(
        (depth.count, holding.delayed, holding.dead_letters),
        (6, 1, 1)
    );
}
