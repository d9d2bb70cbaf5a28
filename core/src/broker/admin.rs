//! What operators ask: numbers, dead letters (P37), purges. Reads live state or asks the store; on the
//! way of no message.

use std::sync::Arc;

use super::listen::Slot;
use super::ports::Notice;
use super::realm::Realm;
use super::request::{Leave, QueueStats, RealmStats};
use super::{Answer, Broker, ready, takeover, unsubscribe};
use crate::model::RealmId;
use crate::store::{DeadLetterId, QueueId, QueueKind, QueueSettings, QueueSpec};
use crate::{Error, ErrorKind};

/// See [`Broker::stats`].
pub(super) fn stats(broker: &Broker) -> Vec<(RealmId, RealmStats)> {
    let realms = broker.realms();
    let stats = realms.iter().map(|realm| (realm.id.clone(), of(realm)));
    let mut stats: Vec<_> = stats.collect();
    stats.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    stats
}

fn of(realm: &Realm) -> RealmStats {
    let state = realm.state.lock();
    let producers = state.producers.values();
    let consumers = state.consumers.values();
    RealmStats {
        producers: state.producers.len(),
        producers_online: producers.filter(|entry| entry.holder.is_some()).count(),
        consumers: state.consumers.len(),
        consumers_online: consumers.filter(|entry| entry.holder.is_some()).count(),
        subscriptions: realm.routes.read().len(),
        queues: state.slots.len(),
        sessions: state.members.len(),
    }
}

/// See [`Broker::queue_stats`].
pub(super) fn queue_stats(broker: &Broker, realm: &RealmId) -> Answer<Vec<QueueStats>> {
    let Some(realm) = broker.find_realm(realm) else {
        return ready(Ok(Vec::new()));
    };
    let slots: Vec<_> = realm.state.lock().slots.values().cloned().collect();
    let (store, now) = (broker.store().clone(), broker.clock().now());
    Box::pin(async move {
        let mut stats = Vec::with_capacity(slots.len());
        for slot in slots {
            let depth = store.depth(slot.id).await?;
            let snapshot = slot.queue.snapshot();
            stats.push(QueueStats {
                queue: slot.id,
                key: slot.entry.key.clone(),
                name: slot.name.clone(),
                is_group: slot.kind == QueueKind::Group,
                is_durable: slot.state.lock().settings.durable,
                waiting: depth.count,
                in_flight: snapshot.in_flight,
                oldest: depth.oldest.map(|oldest| now.since(oldest)),
                sessions: u32::try_from(snapshot.sessions).unwrap_or(u32::MAX),
            });
        }
        Ok(stats)
    })
}

/// See [`Broker::requeue`].
pub(super) fn requeue(broker: &Arc<Broker>, realm: &RealmId, id: DeadLetterId) -> Answer<()> {
    let revived = broker.store().revive(realm, id, broker.clock().now());
    let realm = broker.find_realm(realm);
    Box::pin(async move {
        let queue = revived.await?;
        if let Some(realm) = realm {
            wake(&realm, queue);
        }
        Ok(())
    })
}

fn wake(realm: &Realm, queue: QueueId) {
    let slot = realm.state.lock().by_queue.get(&queue).cloned();
    if let Some(slot) = slot {
        slot.queue.wake();
    }
}

/// See [`Broker::purge_queue`].
pub(super) fn purge_queue(broker: &Broker, realm: &RealmId, queue: QueueId) -> Answer<u64> {
    let purged = broker.store().purge_queue(queue);
    let realm = broker.find_realm(realm);
    Box::pin(async move {
        let count = purged.await?;
        let slot = realm.and_then(|realm| realm.state.lock().by_queue.get(&queue).cloned());
        if let Some(slot) = slot {
            slot.queue.purged();
        }
        Ok(count)
    })
}

/// See [`Broker::release_queue`].
pub(super) fn release_queue(broker: &Arc<Broker>, realm: &RealmId, queue: QueueId) -> Answer<()> {
    let unknown = || Error::new(ErrorKind::DeliveryUnknown, "the realm has no such queue");
    let Some(realm) = broker.find_realm(realm) else {
        return ready(Err(unknown()));
    };
    let (slot, spec, seen) = {
        let state = realm.state.lock();
        let Some(slot) = state.by_queue.get(&queue).cloned() else {
            return ready(Err(unknown()));
        };
        let inner = slot.state.lock();
        let spec = QueueSpec {
            realm: realm.id.clone(),
            key: (*slot.entry.key).clone(),
            kind: slot.kind,
            name: slot.name.clone(),
            settings: QueueSettings {
                owner: None,
                ..inner.settings.clone()
            },
        };
        let seen = inner.seen;
        drop(inner);
        (slot, spec, seen)
    };
    let opening = broker.store().open(spec, seen);
    let broker = broker.clone();
    Box::pin(async move {
        opening.await?;
        let_go(&broker, &realm, &slot);
        Ok(())
    })
}

/// A queue is nobody's any more. Who used it as its owner listens to it no more, and is told; what
/// they hold goes back without a failure (P30).
fn let_go(broker: &Broker, realm: &Realm, slot: &Slot) {
    let told: Vec<_> = {
        let mut state = realm.state.lock();
        let has_owner = slot.state.lock().settings.owner.is_some();
        let listening = match has_owner {
            true => state.listening(slot),
            false => Vec::new(),
        };
        for (member, name) in &listening {
            unsubscribe::detach(broker, member, &mut state, name, &slot.entry.key);
        }
        state.give(slot, None);
        listening.into_iter().map(|(member, _)| member).collect()
    };
    let text = format!(
        "an administrator has released the queue {:?}: it belongs to whoever subscribes next",
        &*slot.name
    );
    let error = Error::new(ErrorKind::ConsumerIdTaken, text);
    for member in told {
        let notice = broker.encode().notice(&Notice::Failed(&error));
        member.outbox().notice(notice);
    }
}

/// Closes every session of a realm.
pub(super) fn kick_realm(broker: &Arc<Broker>, realm: &Realm) {
    let members: Vec<_> = realm.state.lock().members.values().cloned().collect();
    for member in members {
        member.outbox().close();
        takeover::leave(broker, &member, Leave::Returned);
    }
}

/// See [`Broker::purge_realm`].
pub(super) fn purge_realm(broker: &Arc<Broker>, id: &RealmId) -> Answer<u64> {
    if let Some(realm) = broker.find_realm(id) {
        kick_realm(broker, &realm);
        realm.clear();
    }
    Box::pin(broker.store().purge_realm(id))
}
