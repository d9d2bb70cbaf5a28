//! What other brokers on the same store do: the tables follow it, and who has lost a name is told.
//!
//! Heard on the store's thread; nothing here waits for the store but what it starts on the side. What
//! of a queue is ours is the courier's business.

use std::collections::HashSet;
use std::sync::Arc;

use super::listen::{Listener, Slot};
use super::realm::{Realm, SlotKey, State};
use super::realms;
use super::remembered;
use super::takeover;
use super::{Broker, Leave};
use crate::model::{ConsumerName, RealmId};
use crate::store::{News, QueueId, QueueRecord};

/// Hears from now on.
pub(super) fn listen(broker: &Arc<Broker>) {
    let weak = Arc::downgrade(broker);
    broker.store().listen(Arc::new(move |news| {
        if let Some(broker) = weak.upgrade().filter(|broker| !broker.is_closing()) {
            hear(&broker, news);
        }
    }));
}

fn hear(broker: &Arc<Broker>, news: News) {
    match news {
        News::Opened(record) => opened(broker, *record),
        News::Forgotten(realm, queue) => {
            if let Some(realm) = broker.find_realm(&realm) {
                forgotten(&realm, queue);
            }
        }
        News::Look(realm, queue) => with(broker, &realm, queue, |slot| slot.queue.look()),
        News::Wanted(realm, queue) => with(broker, &realm, queue, |slot| slot.queue.wanted()),
        News::Settled(realm, queue, seqs) => {
            with(broker, &realm, queue, |slot| slot.queue.settled(seqs));
        }
        News::Purged(realm, queue) => with(broker, &realm, queue, |slot| slot.queue.purged()),
        News::Grown(realm, log, head) => {
            let realm = broker.find_realm(&realm);
            let entry = realm.and_then(|realm| realm.state.lock().logs.get(&log).cloned());
            let Some(entry) = entry else { return };
            entry.raise_end(head);
            entry.may_be_ahead();
            let attached = entry.attached.all();
            attached.iter().for_each(|slot| slot.queue.missed(head));
        }
        News::Renamed(from, to) => realms::follow(broker, from, to),
        // Who may do what is another room's.
        News::Documents(_) => {}
        News::Missed => {
            broker.delayed_bell().notify_one();
            tokio::spawn(look_at_all(broker.clone()));
        }
    }
}

fn find(broker: &Broker, realm: &RealmId, queue: QueueId) -> Option<Arc<Slot>> {
    let realm = broker.find_realm(realm)?;
    let state = realm.state.lock();
    state.by_queue.get(&queue).cloned()
}

fn with(broker: &Broker, realm: &RealmId, queue: QueueId, act: impl FnOnce(&Slot)) {
    if let Some(slot) = find(broker, realm, queue) {
        act(&slot);
    }
}

/// A queue is new, or its settings, its names, its last use are. A name that is connected here says
/// itself what it subscribes to.
fn opened(broker: &Arc<Broker>, mut record: QueueRecord) {
    let realm = broker.realm(&record.spec.realm);
    let mut state = realm.state.lock();
    let key = Arc::new(record.spec.key.clone());
    let slot_key: SlotKey = (key, record.spec.kind, record.spec.name.clone());
    let known = state.slots.get(&slot_key).cloned();
    if let Some(slot) = known.filter(|slot| slot.id == record.queue) {
        let owner = &record.spec.settings.owner;
        if slot.state.lock().settings.owner != *owner {
            state.give(&slot, owner.as_ref());
        }
        let mut inner = slot.state.lock();
        inner.seen = inner.seen.max(record.seen);
        if inner.settings == record.spec.settings {
            return;
        }
        // What somebody here has made durable is so until its subscription ends (P5).
        let durable = state.users.get(&slot_key);
        let durable = durable.is_some_and(|users| users.is_durable());
        record.spec.settings.durable |= durable && !inner.seats.is_empty();
    }
    let (names, has_more) = remembered::users(&record.spec.settings);
    if !has_more {
        drop_names(&mut state, &slot_key, &names);
    }
    remembered::recall(&mut state, &record);
    realm.remember(&mut state, broker.engine(), broker.metrics(), record);
    let is_unknown = {
        let here = state.users.get(&slot_key).into_iter();
        let mut others = here.flat_map(|users| users.names());
        others.any(|name| {
            let is_here = !name.is_anonymous() && state.consumer_holder(name).is_some();
            is_here && !names.contains(name)
        })
    };
    if is_unknown && !has_more {
        // The other broker did not know of them when it wrote.
        state.renamed.insert(slot_key);
    }
}

/// Names that subscribe by a queue no more, and are not connected here.
fn drop_names(state: &mut State, slot_key: &SlotKey, names: &[ConsumerName]) {
    let users = state.users.get(slot_key);
    let users = users.into_iter().flat_map(|users| users.names());
    let gone: Vec<ConsumerName> = users
        .filter(|name| !names.contains(name) && !name.is_anonymous())
        .filter(|name| state.consumer_holder(name).is_none())
        .cloned()
        .collect();
    for name in gone {
        drop_name(state, slot_key, &name);
    }
}

fn drop_name(state: &mut State, slot_key: &SlotKey, name: &ConsumerName) {
    let subscriptions = state.consumers.get(name).map(|held| &held.subscriptions);
    let kept = subscriptions.and_then(|held| held.get(&slot_key.0));
    let is_by_it = kept
        .is_some_and(|kept| super::registry::slot_key(&kept.request).as_ref() == Some(slot_key));
    if is_by_it {
        state.drop_subscription(name, &slot_key.0);
    }
    state.leave_queue(name, slot_key);
    state.renamed.remove(slot_key);
}

/// A queue is gone from the store. Who is attached to it here finds out by its courier.
fn forgotten(realm: &Realm, queue: QueueId) {
    let mut state = realm.state.lock();
    let Some(slot) = state.by_queue.get(&queue).cloned() else {
        return;
    };
    let slot_key = (slot.entry.key.clone(), slot.kind, slot.name.clone());
    if slot.is_attached() {
        drop(state);
        tracing::warn!(
            realm = %realm.id, key = %slot_key.0.wire_name(), name = &*slot.name,
            "another broker has ended a subscription that is used here"
        );
        return slot.queue.look();
    }
    drop_names(&mut state, &slot_key, &[]);
    realm.forget(&mut state, &slot_key);
}

/// The store has lost a queue that is in use, as a Redis does that comes back empty: who is attached is
/// closed, and subscribes anew when it is back.
fn lost(broker: &Arc<Broker>, realm: &Realm, queue: QueueId) {
    let members: Vec<_> = {
        let state = realm.state.lock();
        let slot = state.by_queue.get(&queue);
        let seats = slot.map(|slot| slot.state.lock().seats.clone());
        let sessions = seats.into_iter().flatten().map(|(session, _)| session);
        sessions
            .filter_map(|session| state.members.get(&session).cloned())
            .collect()
    };
    for member in members {
        tracing::warn!(
            realm = %realm.id, socket = &**member.socket_id(),
            "the store has lost a subscription that is used; its session is closed, so that it subscribes again"
        );
        member.outbox().close();
        takeover::leave(broker, &member, Leave::Returned);
    }
}

/// What a listener does when another broker has taken its queue: its session ends if it was taken
/// under the same name (P22), else it waits for the queue.
pub(super) fn taken(broker: &Arc<Broker>, listener: &Arc<Listener>) -> Arc<dyn Fn() + Send + Sync> {
    let (broker, listener) = (Arc::downgrade(broker), Arc::downgrade(listener));
    Arc::new(move || {
        let (Some(broker), Some(listener)) = (broker.upgrade(), listener.upgrade()) else {
            return;
        };
        let slot = listener.slot.get();
        let newest = slot.and_then(|slot| slot.state.lock().settings.consumer.clone());
        if newest.as_ref() == Some(&listener.consumer) {
            takeover::replace(&broker, &listener.member, &listener.consumer);
        }
    })
}

/// Reads anew what is remembered, and drops what is not any more.
async fn look_at_all(broker: Arc<Broker>) {
    let known: Vec<(Arc<Realm>, QueueId)> = {
        let realms = broker.realms().into_iter();
        realms
            .flat_map(|realm| {
                let queues: Vec<QueueId> = realm.state.lock().by_queue.keys().copied().collect();
                queues.into_iter().map(move |queue| (realm.clone(), queue))
            })
            .collect()
    };
    let records = match broker.store().queues().await {
        Ok(records) => records,
        Err(error) => return tracing::debug!(%error, "the store cannot be looked at anew"),
    };
    let there: HashSet<QueueId> = records.iter().map(|record| record.queue).collect();
    records
        .into_iter()
        .for_each(|record| opened(&broker, record));
    for (realm, queue) in known {
        if !there.contains(&queue) {
            lost(&broker, &realm, queue);
            forgotten(&realm, queue);
            continue;
        }
        let slot = realm.state.lock().by_queue.get(&queue).cloned();
        if let Some(slot) = slot.filter(|slot| slot.is_attached()) {
            slot.queue.look();
        }
    }
}
