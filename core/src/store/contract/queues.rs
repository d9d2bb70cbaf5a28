//! Opening, forgetting, purging and renaming.

use crate::ErrorKind;
use crate::store::{DeadLetterId, PageLimit, QueueId, QueueKind, QueueSpec, Settled};

use super::Make;
use super::rig::{
    ALL, Rig, START, append, at, bury, done, except, exception, key, low, plain, realm, spec,
};

pub async fn a_queue_begins_at_the_head_of_its_log(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let first = rig.filled("a", 3).await;
    let second = rig.open(spec("b")).await;
    assert_eq!((first.log, first.head), (second.log, 0));
    assert_eq!((second.low, second.sent, second.head), (3, 3, 3));
    assert_eq!((second.depth, second.exceptions), (0, 0));
    rig.fill(first.log, 1).await;
    assert_eq!(rig.waiting(second.queue).await, [4]);
    assert_eq!(rig.waiting(first.queue).await, [1, 2, 3, 4]);
}

pub async fn opening_again_updates_settings_and_keeps_the_backlog(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let first = rig.filled("a", 2).await;
    let mut changed = spec("a");
    changed.settings.ack = true;
    changed.settings.retry = Some(Box::default());
    changed.settings.consumer_meta = Some("{\"a\":1}".into());
    changed.settings.owner = Some("me".into());
    let again = rig.store.open(changed.clone(), at(5)).await.unwrap();
    assert_eq!((again.queue, again.log), (first.queue, first.log));
    assert_eq!((again.seen, again.depth, again.low), (at(5), 2, 0));
    assert_eq!(again.spec, changed);
    assert_eq!(rig.store.queues().await.unwrap(), [again]);
}

pub async fn kind_key_and_realm_tell_queues_of_one_name_apart(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let specs = [
        spec("a"),
        QueueSpec {
            kind: QueueKind::Group,
            ..spec("a")
        },
        QueueSpec {
            kind: QueueKind::History,
            ..spec("a")
        },
        QueueSpec {
            key: key("K"),
            ..spec("a")
        },
        QueueSpec {
            realm: realm("other"),
            ..spec("a")
        },
        spec("A"),
    ];
    let mut ids = Vec::new();
    for spec in &specs {
        ids.push(rig.open(spec.clone()).await.queue);
    }
    let records = rig.store.queues().await.unwrap();
    let listed: Vec<_> = records.iter().map(|record| record.queue).collect();
    assert_eq!(listed, ids, "in the order they were opened");
    assert!(records.iter().map(|record| &record.spec).eq(&specs));
}

pub async fn attach_times_are_kept(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    rig.store.touch(queue.queue, at(9)).await.unwrap();
    assert_eq!(rig.store.queues().await.unwrap()[0].seen, at(9));
}

pub async fn a_forgotten_queue_comes_back_with_what_it_left(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let keeper = rig.open(spec("keeper")).await;
    let queue = rig.filled("a", 4).await;
    rig.change(queue.queue, done(&[2])).await;
    rig.change(queue.queue, except(vec![exception(1, at(1))]))
        .await;
    assert_eq!(rig.store.forget(queue.queue, false).await.unwrap(), 3);
    assert_eq!(rig.store.queues().await.unwrap().len(), 1);
    let gone = rig
        .store
        .page(queue.queue, 0, ALL, START)
        .await
        .unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::DeliveryUnknown);
    // What comes meanwhile is not for it.
    let between = rig.put(rig.message(), queue.log).await;
    assert_eq!(between.placed[0].queued, 1);
    let back = rig.open(spec("a")).await;
    assert_eq!((back.log, back.depth, back.exceptions), (queue.log, 3, 1));
    rig.fill(queue.log, 1).await;
    assert_eq!(rig.waiting(back.queue).await, [3, 4, 6]);
    assert_eq!(rig.due(back.queue, at(1)).await[0].seq, 1);
    assert_eq!(rig.waiting(keeper.queue).await, [1, 2, 3, 4, 5, 6]);
}

pub async fn a_left_over_keeps_its_log_for_itself(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 2).await;
    rig.store.forget(queue.queue, false).await.unwrap();
    assert!(rig.put(rig.message(), queue.log).await.placed.is_empty());
    let depth = rig.store.realm_depth(&realm("r")).await.unwrap();
    assert_eq!(depth.count, 2);
    assert_eq!(rig.waiting(rig.open(spec("a")).await.queue).await, [1, 2]);
}

pub async fn a_left_over_is_refused_to_another_owner(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let owned = |owner: Option<&str>| {
        let mut spec = spec("a");
        spec.settings.owner = owner.map(Into::into);
        spec
    };
    let queue = rig.open(owned(Some("me"))).await;
    rig.fill(queue.log, 1).await;
    rig.store.forget(queue.queue, false).await.unwrap();
    for other in [None, Some("you")] {
        let error = rig.store.open(owned(other), START).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConsumerIdTaken);
    }
    assert_eq!(rig.open(owned(Some("me"))).await.depth, 1);
}

pub async fn a_queue_is_refused_to_another_owner_until_it_is_released(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let owned = |owner: Option<&str>| {
        let mut spec = spec("a");
        spec.settings.owner = owner.map(Into::into);
        spec
    };
    let queue = rig.open(owned(Some("me"))).await.queue;
    let error = rig.store.open(owned(Some("you")), START).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConsumerIdTaken);
    let again = rig.open(owned(Some("me"))).await;
    assert_eq!((again.queue, again.spec), (queue, owned(Some("me"))));
    rig.open(owned(None)).await;
    assert_eq!(rig.open(owned(Some("you"))).await.queue, queue);
}

pub async fn a_left_over_is_settled_like_any_other_queue(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 4).await;
    let id = queue.queue;
    let left = async || rig.store.left_over(id).await.unwrap();
    assert_eq!(left().await, None, "it is not forgotten");
    rig.store.forget(id, false).await.unwrap();
    let record = left().await.unwrap();
    assert_eq!(
        (record.queue, record.spec, record.depth),
        (id, spec("a"), 4)
    );
    let settled = rig.store.settle(id, vec![1, 1, 9]).await.unwrap();
    assert_eq!(settled, [Settled::Now, Settled::Before, Settled::Unknown]);
    rig.change(id, except(vec![exception(2, at(1))])).await;
    rig.change(id, done(&[3])).await;
    let seen = rig.store.browse(id, 0, ALL).await.unwrap();
    let seen: Vec<_> = seen.iter().map(|entry| (entry.seq, entry.due)).collect();
    assert_eq!(seen, [(2, Some(at(1))), (4, None)]);
    let back = rig.open(spec("a")).await;
    assert_eq!((back.queue, back.depth, back.exceptions), (id, 2, 1));
    rig.store.forget(id, false).await.unwrap();
    rig.store.settle(id, vec![2, 4]).await.unwrap();
    assert_eq!(left().await, None, "it ends with its last entry");
    assert_eq!(rig.store.realm_depth(&realm("r")).await.unwrap().count, 0);
}

pub async fn a_left_over_is_settled_by_a_place_that_is_let_go(make: Make<'_>) {
    const MANY: u64 = 3000;
    let rig = Rig::new(make).await;
    let durable = rig.open(spec("a")).await;
    let left = rig.open(plain("b")).await;
    rig.put(rig.guaranteed(), durable.log).await;
    rig.store.forget(left.queue, false).await.unwrap();
    let batch = (0..MANY).map(|_| append(rig.message(), &[durable.log]));
    for answer in rig.store.append(batch.collect()).await.unwrap() {
        answer.unwrap();
    }
    for _ in 0..2 {
        // A store may let go of what nobody needs bit by bit.
        rig.change(durable.queue, low(MANY + 1)).await;
    }
    rig.change(left.queue, low(MANY - 1000)).await;
    let record = rig.store.left_over(left.queue).await.unwrap();
    assert_eq!(record, None, "nothing of it is left");
}

pub async fn a_left_over_ends_with_its_ttl(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    rig.put(rig.expiring(10), queue.log).await;
    rig.put(rig.expiring(5), queue.log).await;
    rig.change(queue.queue, except(vec![exception(1, at(0))]))
        .await;
    rig.store.forget(queue.queue, false).await.unwrap();
    rig.maintain(at(10)).await;
    assert_eq!(rig.store.counters().expired, 2);
    let depth = rig.store.realm_depth(&realm("r")).await.unwrap();
    assert_eq!(depth.count, 0);
    assert_eq!(rig.open(spec("a")).await.depth, 0);
}

pub async fn forgetting_with_purge_leaves_nothing(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 3).await;
    rig.change(queue.queue, except(vec![exception(2, at(1))]))
        .await;
    assert_eq!(rig.store.forget(queue.queue, true).await.unwrap(), 3);
    let back = rig.open(spec("a")).await;
    assert_eq!((back.depth, back.exceptions), (0, 0));
    assert_ne!(back.queue, queue.queue, "ids are never used again");
    assert!(rig.waiting(back.queue).await.is_empty());
    assert!(rig.due(back.queue, at(100)).await.is_empty());
}

pub async fn a_log_goes_with_its_last_queue(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let a = rig.filled("a", 2).await;
    let b = rig.open(spec("b")).await;
    rig.store.forget(a.queue, true).await.unwrap();
    assert_eq!(rig.put(rig.message(), a.log).await.placed.len(), 1);
    rig.store.forget(b.queue, true).await.unwrap();
    assert!(rig.put(rig.message(), a.log).await.placed.is_empty());
    let again = rig.open(spec("a")).await;
    assert_ne!(again.log, a.log, "ids are never used again");
    assert_eq!(again.head, 0);
}

pub async fn an_unknown_queue_is_said_to_be_unknown(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let none = QueueId(u64::MAX);
    let store = &rig.store;
    let limit = PageLimit::default();
    let kinds = [
        store.touch(none, START).await.unwrap_err(),
        store.forget(none, true).await.unwrap_err(),
        store.page(none, 0, limit, START).await.unwrap_err(),
        store.due(none, limit, START).await.unwrap_err(),
        store.update(none, low(1), START).await.unwrap_err(),
        store.settle(none, vec![1]).await.unwrap_err(),
        store.depth(none).await.unwrap_err(),
        store.browse(none, 0, limit).await.unwrap_err(),
        store.purge_queue(none).await.unwrap_err(),
    ]
    .map(|error| error.kind());
    assert_eq!(kinds, [ErrorKind::DeliveryUnknown; 9]);
}

pub async fn looking_something_up_never_inserts(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let ghost = realm("ghost");
    let none = DeadLetterId {
        queue: QueueId(1),
        seq: 1,
    };
    assert_eq!(rig.store.realm_depth(&ghost).await.unwrap().count, 0);
    assert!(
        rig.store
            .dead_letters(&ghost, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(rig.store.revive(&ghost, none, START).await.is_err());
    assert!(rig.store.discard(&ghost, none).await.is_err());
    assert_eq!(rig.store.purge_dead_letters(&ghost).await.unwrap(), 0);
    assert_eq!(rig.store.purge_realm(&ghost).await.unwrap(), 0);
    rig.filled("a", 1).await;
    // Had one of these made the realm, its name would be taken now.
    rig.store.rename_realm(&realm("r"), &ghost).await.unwrap();
    assert_eq!(rig.store.realm_depth(&ghost).await.unwrap().count, 1);
}

pub async fn purging_a_queue_drops_its_backlog_and_keeps_the_queue(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 5).await;
    let other = rig.open(spec("b")).await;
    rig.fill(queue.log, 1).await;
    rig.change(queue.queue, done(&[3])).await;
    rig.change(queue.queue, except(vec![exception(1, at(1))]))
        .await;
    assert_eq!(rig.store.purge_queue(queue.queue).await.unwrap(), 5);
    assert_eq!(rig.depth(queue.queue).await, 0);
    assert!(rig.due(queue.queue, at(100)).await.is_empty());
    rig.fill(queue.log, 1).await;
    assert_eq!(rig.waiting(queue.queue).await, [7]);
    assert_eq!(rig.waiting(other.queue).await, [6, 7]);
}

pub async fn purging_while_others_append_loses_nothing_that_came_after(make: Make<'_>) {
    const COUNT: u64 = 200;
    let rig = Rig::new(make).await;
    let queue = rig.open(spec("a")).await;
    let (appends, purges) = std::thread::scope(|scope| {
        let appending = scope.spawn(|| {
            let items = (0..COUNT).map(|_| append(rig.message(), &[queue.log]));
            items
                .map(|item| rig.store.append(vec![item]))
                .collect::<Vec<_>>()
        });
        let purging = scope.spawn(|| {
            let calls = (0..20).map(|_| rig.store.purge_queue(queue.queue));
            calls.collect::<Vec<_>>()
        });
        (appending.join().unwrap(), purging.join().unwrap())
    });
    for append in appends {
        append.await.unwrap().remove(0).unwrap();
    }
    let mut purged = 0;
    for purge in purges {
        purged += purge.await.unwrap();
    }
    let waiting = rig.waiting(queue.queue).await;
    assert_eq!(waiting, (purged + 1..=COUNT).collect::<Vec<_>>());
    assert_eq!(rig.depth(queue.queue).await, COUNT - purged);
}

pub async fn purging_a_realm_leaves_nothing_of_it(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let r = realm("r");
    let queue = rig.filled("a", 3).await;
    rig.change(queue.queue, bury(&[1])).await;
    let mut held = append(rig.message(), &[]);
    held.due = Some(at(1));
    held.uid = Some("x".into());
    rig.try_put(held.clone()).await.unwrap();
    let other = rig
        .open(QueueSpec {
            realm: realm("other"),
            ..plain("a")
        })
        .await;
    assert_eq!(rig.store.purge_realm(&r).await.unwrap(), 4);
    assert_eq!(rig.store.realm_depth(&r).await.unwrap().count, 0);
    assert!(
        rig.store
            .dead_letters(&r, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(rig.store.delayed(10, at(9)).await.unwrap().0.is_empty());
    let left = rig.store.queues().await.unwrap();
    assert_eq!((left.len(), left[0].queue), (1, other.queue));
    assert!(
        !rig.try_put(held).await.unwrap().duplicate,
        "its marks went too"
    );
}

pub async fn a_renamed_realm_keeps_everything(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let (old, new) = (realm("r"), realm("new"));
    let queue = rig.filled("a", 3).await;
    rig.change(queue.queue, bury(&[1])).await;
    let mut held = append(rig.message(), &[]);
    held.due = Some(at(1));
    held.uid = Some("x".into());
    rig.try_put(held.clone()).await.unwrap();
    rig.store.rename_realm(&old, &new).await.unwrap();
    let record = rig.store.queues().await.unwrap().remove(0);
    assert_eq!((record.queue, &record.spec.realm), (queue.queue, &new));
    assert_eq!(rig.waiting(queue.queue).await, [2, 3]);
    let letter = rig
        .store
        .dead_letters(&new, None, 10)
        .await
        .unwrap()
        .remove(0);
    assert_eq!(letter.realm, new);
    assert_eq!(rig.store.delayed(10, at(1)).await.unwrap().0[0].realm, new);
    held.realm = new.clone();
    assert!(
        rig.try_put(held).await.unwrap().duplicate,
        "its marks came along"
    );
    let mut item = append(rig.message(), &[queue.log]);
    item.realm = new.clone();
    assert_eq!(rig.try_put(item).await.unwrap().placed[0].seq, 4);
    assert_eq!(
        rig.open(QueueSpec {
            realm: new,
            ..spec("a")
        })
        .await
        .queue,
        queue.queue
    );
}

/// Queues, dead letters, delayed messages: each alone names its realm.
pub async fn realms_are_known_by_whatever_is_left_in_them(make: Make<'_>) {
    let rig = Rig::new(make).await;
    assert!(rig.store.realms().await.unwrap().is_empty());
    let dead = rig.filled("a", 1).await;
    rig.change(dead.queue, bury(&[1])).await;
    rig.store.forget(dead.queue, true).await.unwrap();
    let queued = QueueSpec {
        realm: realm("queued"),
        ..spec("a")
    };
    rig.open(queued).await;
    let mut held = append(rig.message(), &[]);
    (held.realm, held.due) = (realm("delayed"), Some(at(1)));
    rig.try_put(held).await.unwrap();
    let mut realms = rig.store.realms().await.unwrap();
    realms.sort();
    assert_eq!(realms, [realm("delayed"), realm("queued"), realm("r")]);
    let (old, new) = (realm("queued"), realm("renamed"));
    rig.store.rename_realm(&old, &new).await.unwrap();
    assert!(rig.store.realms().await.unwrap().contains(&new));
}

pub async fn a_realm_is_not_renamed_onto_another(make: Make<'_>) {
    let rig = Rig::new(make).await;
    rig.filled("a", 1).await;
    rig.open(QueueSpec {
        realm: realm("taken"),
        ..spec("a")
    })
    .await;
    let error = rig
        .store
        .rename_realm(&realm("r"), &realm("taken"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadName);
    assert_eq!(rig.store.realm_depth(&realm("r")).await.unwrap().count, 1);
    rig.store
        .rename_realm(&realm("nobody"), &realm("taken"))
        .await
        .unwrap_err();
    rig.store
        .rename_realm(&realm("nobody"), &realm("free"))
        .await
        .unwrap();
    rig.store
        .rename_realm(&realm("r"), &realm("r"))
        .await
        .unwrap();
}

pub async fn a_probe_succeeds_until_the_store_is_closed(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let queue = rig.filled("a", 1).await;
    rig.store.probe().await.unwrap();
    rig.store.close().await.unwrap();
    rig.store.close().await.unwrap();
    let kinds = [
        rig.store.probe().await.unwrap_err().kind(),
        rig.store.depth(queue.queue).await.unwrap_err().kind(),
        rig.store.append(Vec::new()).await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::StoreUnavailable; 3]);
}
