//! Order, atomicity and what a batch answers.

use std::sync::Arc;

use crate::ErrorKind;
use crate::store::{Append, Appended, LogId, Overflow, Pending, Placed};

use super::Make;
use super::rig::{Rig, append, bounds, key, plain, realm, seqs, spec};

pub async fn commit_order_is_the_order_of_the_calls(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let calls: Vec<_> = (0..20)
        .map(|_| rig.store.append(vec![append(rig.message(), &[queue.log])]))
        .collect();
    // Awaited the other way round: polling decides nothing.
    for call in calls.into_iter().rev() {
        call.await.unwrap();
    }
    let page = rig
        .store
        .page(queue.queue, 0, super::rig::ALL, super::rig::START);
    let entries = page.await.unwrap().entries;
    assert_eq!(seqs(&entries), (1..=20).collect::<Vec<_>>());
    let ids: Vec<u64> = entries.iter().map(|entry| entry.message.id.0).collect();
    assert_eq!(ids, (1..=20).collect::<Vec<_>>());
}

pub async fn appends_of_many_threads_keep_each_threads_order(make: Make<'_>) {
    const THREADS: usize = 4;
    const EACH: usize = 50;
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    type Call = Pending<Vec<crate::Result<Appended>>>;
    let calls: Vec<Vec<Call>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let messages: Vec<Append> = (0..EACH)
                    .map(|_| {
                        let mut message = rig.message();
                        message.from = Arc::from(thread.to_string());
                        append(message, &[queue.log])
                    })
                    .collect();
                let store = Arc::clone(&rig.store);
                scope.spawn(move || {
                    let calls = messages.into_iter().map(|item| store.append(vec![item]));
                    calls.collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for call in calls.into_iter().flatten() {
        call.await.unwrap().remove(0).unwrap();
    }
    let page = rig
        .store
        .page(queue.queue, 0, super::rig::ALL, super::rig::START);
    let entries = page.await.unwrap().entries;
    assert_eq!(
        seqs(&entries),
        (1..=(THREADS * EACH) as u64).collect::<Vec<_>>()
    );
    for thread in 0..THREADS {
        let from = thread.to_string();
        let own = entries.iter().filter(|entry| *entry.message.from == *from);
        let ids: Vec<u64> = own.map(|entry| entry.message.id.0).collect();
        assert_eq!(ids.len(), EACH);
        assert!(ids.is_sorted(), "thread {thread} was reordered: {ids:?}");
    }
}

pub async fn a_dropped_answer_does_not_undo_the_call(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    drop(rig.store.append(vec![append(rig.message(), &[queue.log])]));
    rig.put(rig.message(), queue.log).await;
    assert_eq!(rig.waiting(queue.queue).await, [1, 2]);
}

pub async fn a_batch_is_answered_item_by_item(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    let a = rig.open(spec("a")).await;
    let mut other = spec("b");
    other.key = key("other");
    let b = rig.open(other).await;
    let mut marked = append(rig.message(), &[a.log]);
    marked.uid = Some("x".into());
    let mut again = append(rig.message(), &[a.log]);
    again.uid = Some("x".into());
    let batch = vec![
        marked,
        again,
        append(rig.message(), &[a.log]),
        append(rig.message(), &[a.log]),
        append(rig.message(), &[b.log]),
    ];
    let first = batch[0].message.id;
    let answers = rig.store.append(batch).await.unwrap();
    let seq = |index: usize| answers[index].as_ref().unwrap().placed[0].seq;
    assert_eq!(seq(0), 1);
    let duplicate = answers[1].as_ref().unwrap();
    assert!(duplicate.duplicate && duplicate.id == first && duplicate.placed.is_empty());
    assert_eq!(seq(2), 2);
    assert_eq!(
        answers[3].as_ref().unwrap_err().kind(),
        ErrorKind::QueueFull
    );
    assert_eq!(seq(4), 1);
    assert_eq!(rig.waiting(a.queue).await, [1, 2]);
}

pub async fn a_message_is_placed_once_in_every_log_that_wants_it(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let a = rig.open(spec("a")).await;
    rig.open(spec("b")).await;
    let mut other = plain("c");
    other.key = key("other");
    let c = rig.open(other).await;
    let placed = |log: LogId, seq, queued| Placed {
        log,
        seq,
        queued,
        refused: 0,
    };
    let logs = [a.log, c.log, LogId(u64::MAX)];
    let plain = rig.try_put(append(rig.message(), &logs)).await.unwrap();
    assert_eq!(
        plain.placed,
        [placed(a.log, 1, 2)],
        "c takes guaranteed ones only"
    );
    let both = rig.try_put(append(rig.guaranteed(), &logs)).await.unwrap();
    assert_eq!(both.placed, [placed(a.log, 2, 2), placed(c.log, 1, 1)]);
    assert_eq!(rig.store.counters().appended, 3);
}

pub async fn a_message_crosses_into_no_other_realm(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let mut item = append(rig.message(), &[queue.log]);
    item.realm = realm("other");
    assert!(rig.try_put(item).await.unwrap().placed.is_empty());
    assert_eq!(rig.depth(queue.queue).await, 0);
    let counted = rig.store.realm_depth(&realm("other")).await.unwrap();
    assert_eq!(counted.count, 0);
}
