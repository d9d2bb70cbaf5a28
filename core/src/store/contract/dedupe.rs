//! Marks of producer instances and users' own ids (P16).

use std::time::Duration;

use crate::ErrorKind;
use crate::model::{Message, MessageId};
use crate::store::{Append, Appended, Bounds, LogId, Overflow, QueueSpec};

use super::Make;
use super::rig::{Rig, append, at, bounds, low, realm, spec};

fn numbered(rig: &Rig, log: LogId, instance: &str, number: u64) -> Append {
    Append {
        mark: Some((instance.into(), number)),
        ..append(rig.message(), &[log])
    }
}

fn named(rig: &Rig, log: LogId, uid: &str, second: u64) -> Append {
    let message = Message {
        produced: at(second),
        ..rig.message()
    };
    Append {
        uid: Some(uid.into()),
        ..append(message, &[log])
    }
}

async fn put(rig: &Rig, item: Append) -> Appended {
    rig.try_put(item).await.unwrap()
}

pub async fn a_resend_by_number_is_stored_once(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let first = put(&rig, numbered(&rig, queue.log, "i", 1)).await;
    let again = put(&rig, numbered(&rig, queue.log, "i", 1)).await;
    assert_eq!(
        (again.duplicate, again.id, again.placed.len()),
        (true, first.id, 0)
    );
    assert!(
        !put(&rig, numbered(&rig, queue.log, "other", 1))
            .await
            .duplicate
    );
    assert_eq!(rig.depth(queue.queue).await, 2);
    assert_eq!(rig.store.counters().duplicates, 1);
}

pub async fn numbers_may_come_out_of_order_within_the_window(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    for (number, duplicate) in [
        (2000, false),
        (1999, false),
        (977, false),
        (976, true), // below the window
        (1, true),
        (1999, true),
        (3023, false),
        (2000, true),
        (2001, false),
        (1999, true), // now below
    ] {
        let answer = put(&rig, numbered(&rig, queue.log, "i", number)).await;
        assert_eq!(answer.duplicate, duplicate, "number {number}");
    }
}

pub async fn a_resend_of_a_full_window_is_stored_once(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    for duplicate in [false, true] {
        let batch = (1..=1024).map(|number| numbered(&rig, queue.log, "i", number));
        let answers = rig.store.append(batch.collect()).await.unwrap();
        let same = answers
            .iter()
            .all(|answer| answer.as_ref().unwrap().duplicate == duplicate);
        assert!(same, "the resend is {duplicate}");
    }
    assert_eq!(rig.depth(queue.queue).await, 1024);
}

pub async fn a_users_id_is_exact_within_its_window(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let first = put(&rig, named(&rig, queue.log, "x", 0)).await;
    let again = put(&rig, named(&rig, queue.log, "x", 299)).await;
    assert_eq!((again.duplicate, again.id), (true, first.id));
    assert!(!put(&rig, named(&rig, queue.log, "X", 299)).await.duplicate);
    let later = put(&rig, named(&rig, queue.log, "x", 300)).await;
    assert!(!later.duplicate, "the window is over");
    let again = put(&rig, named(&rig, queue.log, "x", 301)).await;
    assert_eq!((again.duplicate, again.id), (true, later.id));
}

pub async fn only_the_last_users_ids_are_remembered(make: Make<'_>) {
    let bounds = Bounds {
        dedupe_max: 2,
        dedupe_window: Duration::from_secs(1000),
        ..Bounds::default()
    };
    let rig = Rig::with(make, bounds).await;
    let queue = rig.open(spec("a")).await;
    for uid in ["x", "y", "z"] {
        assert!(!put(&rig, named(&rig, queue.log, uid, 0)).await.duplicate);
    }
    assert!(put(&rig, named(&rig, queue.log, "y", 1)).await.duplicate);
    assert!(put(&rig, named(&rig, queue.log, "z", 1)).await.duplicate);
    assert!(!put(&rig, named(&rig, queue.log, "x", 1)).await.duplicate);
}

pub async fn a_refused_message_leaves_no_mark(make: Make<'_>) {
    let rig = Rig::with(make, bounds(1, Overflow::Reject)).await;
    let queue = rig.filled("a", 1).await;
    let both = |rig: &Rig| Append {
        mark: Some(("i".into(), 1)),
        ..named(rig, queue.log, "x", 0)
    };
    let refused = rig.try_put(both(&rig)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::QueueFull);
    rig.change(queue.queue, low(1)).await;
    assert!(!put(&rig, both(&rig)).await.duplicate);
    rig.change(queue.queue, low(2)).await;
    assert!(put(&rig, both(&rig)).await.duplicate);
}

pub async fn a_message_that_nothing_stores_leaves_no_mark(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let nowhere = put(&rig, numbered(&rig, LogId(u64::MAX), "i", 1)).await;
    assert!(nowhere.placed.is_empty());
    assert!(!put(&rig, numbered(&rig, queue.log, "i", 1)).await.duplicate);
}

pub async fn marks_of_one_realm_are_unknown_in_another(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let there = rig
        .open(QueueSpec {
            realm: realm("other"),
            ..spec("a")
        })
        .await;
    put(&rig, named(&rig, queue.log, "x", 0)).await;
    let mut item = named(&rig, there.log, "x", 0);
    item.realm = realm("other");
    item.mark = Some(("i".into(), 1));
    assert!(!put(&rig, item).await.duplicate);
    assert!(!put(&rig, numbered(&rig, queue.log, "i", 1)).await.duplicate);
}

pub async fn a_silent_instance_is_forgotten_after_its_idle_time(make: Make<'_>) {
    let bounds = Bounds {
        mark_idle: Duration::from_secs(60),
        ..Bounds::default()
    };
    let rig = Rig::with(make, bounds).await;
    let queue = rig.open(spec("a")).await;
    let numbered_at = |second| {
        let mut item = named(&rig, queue.log, "unused", second);
        item.uid = None;
        item.mark = Some(("i".into(), 1));
        item
    };
    assert!(!put(&rig, numbered_at(0)).await.duplicate);
    assert!(put(&rig, numbered_at(59)).await.duplicate);
    rig.maintain(at(60)).await;
    assert!(!put(&rig, numbered_at(60)).await.duplicate);
}

pub async fn a_mark_holds_for_delayed_messages_too(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let hold = |rig: &Rig| Append {
        due: Some(at(10)),
        ..numbered(rig, LogId(0), "i", 1)
    };
    let first = put(&rig, hold(&rig)).await;
    let again = put(&rig, hold(&rig)).await;
    assert_eq!((again.duplicate, again.id), (true, first.id));
    let rows = rig.store.delayed(10, at(10)).await.unwrap().0;
    let ids: Vec<MessageId> = rows.iter().map(|row| row.message.id).collect();
    assert_eq!(ids, [first.id]);
}
