//! Dead letters: burying, listing, reviving, discarding, bounds.

use std::time::Duration;

use crate::ErrorKind;
use crate::store::{Bounds, DeadLetter, DeadLetterId, QueueKind, Seq, Settled};

use super::Make;
use super::rig::{Rig, START, TTL, at, burial, bury, except, exception, key, realm, spec};

async fn letters(rig: &Rig) -> Vec<DeadLetter> {
    rig.store
        .dead_letters(&realm("r"), None, 100)
        .await
        .unwrap()
}

fn letter_seqs(letters: &[DeadLetter]) -> Vec<Seq> {
    letters.iter().map(|letter| letter.id.seq).collect()
}

pub async fn a_buried_entry_is_settled_and_keeps_all_there_is_to_know(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 2).await.queue;
    let message = rig
        .store
        .browse(queue, 0, super::rig::ALL)
        .await
        .unwrap()
        .remove(0)
        .message;
    rig.store.update(queue, bury(&[1]), at(4)).await.unwrap();
    assert_eq!(rig.waiting(queue).await, [2]);
    assert_eq!(
        rig.store.settle(queue, vec![1]).await.unwrap(),
        [Settled::Before]
    );
    let expected = DeadLetter {
        id: DeadLetterId { queue, seq: 1 },
        realm: realm("r"),
        key: key("k"),
        kind: QueueKind::Consumer,
        name: "a".into(),
        message,
        attempts: 3,
        rounds: 1,
        reason: burial(1).reason,
        first_error: Some("first".into()),
        last_error: Some("last".into()),
        dead_at: at(4),
    };
    assert_eq!(letters(&rig).await, [expected]);
    assert_eq!(rig.store.counters().buried, 1);
}

pub async fn an_exception_can_be_buried_after_low_has_passed_it(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 2).await.queue;
    rig.change(queue, except(vec![exception(1, START)])).await;
    rig.change(queue, super::rig::low(2)).await;
    rig.change(queue, bury(&[1])).await;
    assert_eq!(rig.depth(queue).await, 0);
    assert!(rig.due(queue, at(1)).await.is_empty());
    assert_eq!(letter_seqs(&letters(&rig).await), [1]);
}

pub async fn a_revived_dead_letter_is_due_now_with_a_new_ttl(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 1).await.queue;
    rig.change(queue, bury(&[1])).await;
    let id = letters(&rig).await[0].id;
    let revived = rig.store.revive(&realm("r"), id, at(7200)).await.unwrap();
    assert_eq!(revived, queue);
    let entry = rig.due(queue, at(7200)).await.remove(0);
    assert_eq!(
        (entry.seq, entry.attempts, entry.failures, entry.returns),
        (1, 3, 0, 0)
    );
    assert_eq!(entry.first_error.as_deref(), Some("first"));
    assert_eq!(entry.message.expires, Some(at(7200).plus(TTL)));
    assert_eq!(entry.message.body.as_deref(), Some(&b"1"[..]));
    assert!(letters(&rig).await.is_empty());
    let again = rig.store.revive(&realm("r"), id, START).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::DeadLetterUnknown);
    rig.maintain(at(7200)).await;
    assert_eq!(rig.depth(queue).await, 1, "the old ttl does not end it");
}

pub async fn a_dead_letter_buried_again_counts_its_rounds(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 1).await.queue;
    for round in 1..=3 {
        rig.store
            .update(queue, bury(&[1]), at(round))
            .await
            .unwrap();
        let letter = letters(&rig).await.remove(0);
        assert_eq!(
            (u64::from(letter.rounds), letter.dead_at),
            (round, at(round))
        );
        rig.store
            .revive(&realm("r"), letter.id, at(round))
            .await
            .unwrap();
        // A failure in between does not lose the count.
        rig.change(queue, except(vec![exception(1, at(round))]))
            .await;
    }
}

pub async fn a_discarded_dead_letter_is_gone(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 2).await.queue;
    rig.change(queue, bury(&[1, 2])).await;
    let id = DeadLetterId { queue, seq: 1 };
    let wrong = rig.store.discard(&realm("other"), id).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::DeadLetterUnknown);
    rig.store.discard(&realm("r"), id).await.unwrap();
    let again = rig.store.discard(&realm("r"), id).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::DeadLetterUnknown);
    let dead = rig.store.revive(&realm("r"), id, START).await.unwrap_err();
    assert_eq!(dead.kind(), ErrorKind::DeadLetterUnknown);
    assert_eq!(letter_seqs(&letters(&rig).await), [2]);
    assert_eq!(rig.store.purge_dead_letters(&realm("r")).await.unwrap(), 1);
    assert!(letters(&rig).await.is_empty());
}

pub async fn dead_letters_are_listed_in_pages(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 5).await.queue;
    rig.change(queue, bury(&[4, 2, 5, 1, 3])).await;
    let r = realm("r");
    let first = rig.store.dead_letters(&r, None, 2).await.unwrap();
    assert_eq!(letter_seqs(&first), [1, 2]);
    let after = first[1].id;
    rig.store.discard(&r, after).await.unwrap();
    let rest = rig.store.dead_letters(&r, Some(after), 9).await.unwrap();
    assert_eq!(letter_seqs(&rest), [3, 4, 5]);
}

pub async fn dead_letters_beyond_the_bound_drop_the_oldest(make: Make<'_>) {
    let bounds = Bounds {
        dlq_max_per_realm: 2,
        ..Bounds::default()
    };
    let rig = Rig::with(make, bounds).await;
    let queue = rig.filled("a", 4).await.queue;
    for (second, seq) in [(1, 4), (2, 1), (3, 3)] {
        rig.store
            .update(queue, bury(&[seq]), at(second))
            .await
            .unwrap();
    }
    assert_eq!(letter_seqs(&letters(&rig).await), [1, 3]);
    assert_eq!(rig.store.counters().dead_letters_dropped, 1);
}

pub async fn dead_letters_end_by_age(make: Make<'_>) {
    let bounds = Bounds {
        dlq_ttl: Duration::from_secs(10),
        ..Bounds::default()
    };
    let rig = Rig::with(make, bounds).await;
    let queue = rig.filled("a", 2).await.queue;
    rig.store.update(queue, bury(&[1]), at(0)).await.unwrap();
    rig.store.update(queue, bury(&[2]), at(5)).await.unwrap();
    rig.maintain(at(10)).await;
    assert_eq!(letter_seqs(&letters(&rig).await), [2]);
    assert_eq!(rig.store.counters().dead_letters_expired, 1);
}

pub async fn a_dead_letter_of_a_vanished_queue_stays_dead(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 1).await.queue;
    rig.change(queue, bury(&[1])).await;
    rig.store.forget(queue, true).await.unwrap();
    let id = letters(&rig).await[0].id;
    let error = rig.store.revive(&realm("r"), id, START).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeliveryUnknown);
    assert_eq!(letter_seqs(&letters(&rig).await), [1]);
    // A new queue of the same name is another queue.
    rig.open(spec("a")).await;
    assert!(rig.store.revive(&realm("r"), id, START).await.is_err());
    rig.store.discard(&realm("r"), id).await.unwrap();
}
