//! Low, done and exceptions.

use crate::store::{Exception, PageLimit, QueueChange, Settled};

use super::Make;
use super::rig::{Rig, START, at, bury, done, except, exception, low, plain, seqs, spec};

pub async fn low_settles_everything_up_to_it_and_never_goes_back(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 5).await.queue;
    rig.change(queue, low(3)).await;
    assert_eq!(rig.waiting(queue).await, [4, 5]);
    rig.change(queue, low(1)).await;
    assert_eq!(rig.waiting(queue).await, [4, 5]);
    rig.change(queue, low(99)).await;
    assert_eq!(rig.depth(queue).await, 0);
    assert_eq!(rig.store.queues().await.unwrap()[0].low, 5);
}

pub async fn entries_settled_above_low_stay_settled(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 6).await.queue;
    rig.change(queue, done(&[2, 3, 5])).await;
    rig.change(queue, done(&[3])).await;
    assert_eq!(rig.waiting(queue).await, [1, 4, 6]);
    assert_eq!(rig.depth(queue).await, 3);
    rig.change(queue, low(1)).await;
    let record = rig.store.queues().await.unwrap().remove(0);
    assert_eq!(
        (record.low, record.depth),
        (3, 2),
        "low passes what is settled"
    );
}

pub async fn one_queue_settles_nothing_for_another(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let a = rig.open(spec("a")).await;
    let b = rig.open(spec("b")).await;
    rig.fill(a.log, 3).await;
    rig.change(a.queue, low(3)).await;
    assert_eq!(rig.waiting(b.queue).await, [1, 2, 3]);
}

pub async fn settling_says_whether_an_entry_was_known(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let early = rig.filled("early", 1).await;
    let queue = rig.open(plain("a")).await;
    rig.put(rig.guaranteed(), queue.log).await;
    rig.put(rig.message(), queue.log).await;
    for _ in 0..3 {
        rig.put(rig.guaranteed(), queue.log).await;
    }
    rig.change(queue.queue, except(vec![exception(4, START)]))
        .await;
    rig.change(queue.queue, bury(&[5])).await;
    let answers = rig
        .store
        .settle(queue.queue, vec![2, 2, 4, 4, 5, 1, 3, 7, 0, 6]);
    use Settled::{Before, Now, Unknown};
    assert_eq!(
        answers.await.unwrap(),
        [
            Now, Before, Now, Before, Before, Unknown, Unknown, Unknown, Unknown, Now
        ]
    );
    assert_eq!(rig.depth(queue.queue).await, 0);
    assert_eq!(rig.depth(early.queue).await, 6);
}

pub async fn an_exception_outlives_low_and_the_log(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 3).await.queue;
    let id = rig
        .store
        .browse(queue, 1, PageLimit::default())
        .await
        .unwrap()[0]
        .message
        .id;
    // Excepted and passed by low in one change.
    let change = QueueChange {
        low: Some(3),
        except: vec![exception(2, at(5))],
        ..QueueChange::default()
    };
    rig.change(queue, change).await;
    let record = rig.store.queues().await.unwrap().remove(0);
    assert_eq!((record.low, record.exceptions, record.depth), (3, 1, 1));
    assert!(rig.waiting(queue).await.is_empty());
    assert!(rig.due(queue, at(4)).await.is_empty());
    let due = rig.due(queue, at(5)).await;
    assert_eq!(
        (due[0].seq, due[0].message.id, due[0].due),
        (2, id, Some(at(5)))
    );
    assert_eq!((due[0].attempts, due[0].failures), (1, 1));
    assert_eq!(due[0].first_error.as_deref(), Some("first"));
    assert_eq!(due[0].last_error.as_deref(), Some("last"));
}

pub async fn exceptions_come_by_due_time_then_seq(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 5).await.queue;
    let times = [(1, 9), (2, 5), (3, 7), (4, 5), (5, 100)];
    let exceptions = times.map(|(seq, second)| exception(seq, at(second)));
    rig.change(queue, except(exceptions.to_vec())).await;
    let limit = PageLimit {
        entries: 3,
        bytes: usize::MAX,
    };
    let due = rig.store.due(queue, limit, at(9)).await.unwrap();
    assert_eq!(seqs(&due.entries), [2, 4, 3]);
    assert_eq!(due.next, Some(at(9)), "the limit cut it");
    let due = rig
        .store
        .due(queue, PageLimit::default(), at(9))
        .await
        .unwrap();
    assert_eq!(seqs(&due.entries), [2, 4, 3, 1]);
    assert_eq!(due.next, Some(at(100)));
    rig.change(queue, done(&[1, 2, 3, 4, 5])).await;
    let due = rig
        .store
        .due(queue, PageLimit::default(), at(200))
        .await
        .unwrap();
    assert_eq!((due.entries.len(), due.next), (0, None));
}

pub async fn an_exception_given_again_is_changed(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 1).await.queue;
    rig.change(queue, except(vec![exception(1, at(1))])).await;
    let changed = Exception {
        attempts: 4,
        failures: 2,
        returns: 3,
        due: at(8),
        last_error: None,
        suspect: true,
        ..exception(1, at(1))
    };
    rig.change(queue, except(vec![changed])).await;
    let due = rig
        .store
        .due(queue, PageLimit::default(), at(1))
        .await
        .unwrap();
    assert_eq!((due.entries.len(), due.next), (0, Some(at(8))));
    let entry = rig.due(queue, at(8)).await.remove(0);
    assert_eq!((entry.attempts, entry.failures, entry.returns), (4, 2, 3));
    assert_eq!((entry.suspect, entry.last_error), (true, None));
    assert_eq!(rig.depth(queue).await, 1);
}

pub async fn a_settled_entry_does_not_come_back_as_an_exception(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 3).await.queue;
    rig.change(queue, low(1)).await;
    rig.change(queue, done(&[3])).await;
    let late = [1, 3, 9].map(|seq| exception(seq, START));
    rig.change(queue, except(late.to_vec())).await;
    rig.change(queue, bury(&[1, 3, 9])).await;
    assert!(rig.due(queue, at(1)).await.is_empty());
    assert_eq!(rig.depth(queue).await, 1);
    assert_eq!(rig.store.counters().buried, 0);
}

pub async fn cleared_exceptions_are_settled(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 2).await.queue;
    let both = vec![exception(1, START), exception(2, START)];
    rig.change(queue, except(both)).await;
    let change = QueueChange {
        clear: vec![1],
        ..QueueChange::default()
    };
    rig.change(queue, change).await;
    assert_eq!(seqs(&rig.due(queue, START).await), [2]);
    assert_eq!(rig.depth(queue).await, 1);
    // Low settles no exception.
    rig.change(queue, low(2)).await;
    assert_eq!(rig.depth(queue).await, 1);
}
