//! Messages held until they are due (P17).

use crate::ErrorKind;
use crate::clock::Timestamp;
use crate::store::{Append, Overflow};

use super::Make;
use super::rig::{Rig, append, at, bounds, low, realm, spec};

fn held(rig: &Rig, due: Timestamp) -> Append {
    Append {
        due: Some(due),
        ..append(rig.message(), &[])
    }
}

pub async fn a_delayed_message_waits_until_it_is_due(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let mut ids = Vec::new();
    for second in [30, 10, 20, 10] {
        let answer = rig.try_put(held(&rig, at(second))).await.unwrap();
        assert!(answer.placed.is_empty() && !answer.duplicate);
        ids.push(answer.id);
    }
    let (rows, next) = rig.store.delayed(10, at(9)).await.unwrap();
    assert_eq!((rows.len(), next), (0, Some(at(10))));
    let (rows, next) = rig.store.delayed(10, at(20)).await.unwrap();
    let found: Vec<_> = rows.iter().map(|row| (row.message.id, row.due)).collect();
    assert_eq!(
        found,
        [(ids[1], at(10)), (ids[3], at(10)), (ids[2], at(20))]
    );
    assert_eq!((next, &rows[0].realm), (Some(at(30)), &realm("r")));
    let (rows, next) = rig.store.delayed(2, at(20)).await.unwrap();
    assert_eq!((rows.len(), next), (2, Some(at(20))), "the limit cut it");
    let (rows, next) = rig.store.delayed(10, at(30)).await.unwrap();
    assert_eq!((rows.len(), next), (4, None), "looking takes nothing away");
}

pub async fn a_delayed_message_keeps_its_owner(make: Make<'_>) {
    let rig = Rig::new(make).await;
    for owner in [Some("o"), None] {
        let item = Append {
            owner: owner.map(Into::into),
            ..held(&rig, at(1))
        };
        rig.try_put(item).await.unwrap();
    }
    let (rows, _) = rig.store.delayed(10, at(1)).await.unwrap();
    let owners: Vec<_> = rows.iter().map(|row| row.owner.as_deref()).collect();
    assert_eq!(owners, [Some("o"), None]);
}

pub async fn a_release_publishes_and_ends_the_delay_in_one(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let item = held(&rig, at(1));
    let id = rig.try_put(item.clone()).await.unwrap().id;
    let release = Append {
        logs: vec![queue.log],
        due: None,
        release: Some(id),
        ..item
    };
    let released = rig.try_put(release.clone()).await.unwrap();
    assert_eq!((released.duplicate, released.placed[0].queued), (false, 1));
    assert_eq!(
        rig.store.delayed(10, at(9)).await.unwrap(),
        (Vec::new(), None)
    );
    let again = rig.try_put(release).await.unwrap();
    assert!(again.duplicate && again.placed.is_empty());
    assert_eq!(rig.depth(queue.queue).await, 1);
}

pub async fn a_repeat_of_a_held_message_says_that_it_is_held(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let named = |item| Append {
        mark: Some(("i".into(), 1)),
        uid: Some("u".into()),
        ..item
    };
    let item = named(held(&rig, at(1)));
    let first = rig.try_put(item.clone()).await.unwrap();
    assert_eq!((first.duplicate, first.delayed), (false, true));
    let now = named(append(rig.message(), &[queue.log]));
    for repeat in [named(held(&rig, at(2))), now.clone()] {
        let again = rig.try_put(repeat).await.unwrap();
        assert_eq!(
            (again.duplicate, again.delayed, again.id),
            (true, true, first.id)
        );
    }
    let release = Append {
        logs: vec![queue.log],
        due: None,
        release: Some(first.id),
        mark: None,
        uid: None,
        ..item
    };
    let released = rig.try_put(release).await.unwrap();
    assert_eq!((released.duplicate, released.delayed), (false, false));
    let again = rig.try_put(now).await.unwrap();
    assert_eq!((again.duplicate, again.delayed), (true, false));
}

pub async fn a_refused_release_keeps_its_message(make: Make<'_>) {
    let rig = Rig::with(make, bounds(1, Overflow::Reject)).await;
    let queue = rig.filled("a", 1).await;
    let item = held(&rig, at(1));
    let id = rig.try_put(item.clone()).await.unwrap().id;
    let release = Append {
        logs: vec![queue.log],
        due: None,
        release: Some(id),
        ..item
    };
    let refused = rig.try_put(release.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::QueueFull);
    assert_eq!(rig.store.delayed(10, at(9)).await.unwrap().0.len(), 1);
    rig.change(queue.queue, low(1)).await;
    assert!(!rig.try_put(release).await.unwrap().duplicate);
    assert!(rig.store.delayed(10, at(9)).await.unwrap().0.is_empty());
}

pub async fn a_release_that_nobody_wants_ends_the_delay(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let item = held(&rig, at(1));
    let id = rig.try_put(item.clone()).await.unwrap().id;
    let release = Append {
        due: None,
        release: Some(id),
        ..item
    };
    assert!(rig.try_put(release).await.unwrap().placed.is_empty());
    assert!(rig.store.delayed(10, at(9)).await.unwrap().0.is_empty());
}

pub async fn dropped_delayed_messages_are_gone(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let first = rig.try_put(held(&rig, at(1))).await.unwrap().id;
    let second = rig.try_put(held(&rig, at(2))).await.unwrap().id;
    rig.store.drop_delayed(vec![first, first]).await.unwrap();
    let (rows, _) = rig.store.delayed(10, at(9)).await.unwrap();
    assert_eq!((rows.len(), rows[0].message.id), (1, second));
}

pub async fn delayed_messages_are_bounded(make: Make<'_>) {
    let rig = Rig::with(make, bounds(2, Overflow::Reject)).await;
    for _ in 0..2 {
        rig.try_put(held(&rig, at(1))).await.unwrap();
    }
    let refused = rig.try_put(held(&rig, at(1))).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::QueueFull);
}
