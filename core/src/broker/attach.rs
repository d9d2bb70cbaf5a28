//! Listeners and their seats: into the tables and onto their queue, and off again.
//!
//! All under the realm's lock. Checks nothing: that is [`super::subscribe`], which calls this, as do
//! the ends of a subscription and of a session.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::claims;
use super::forget;
use super::listen::{Listener, Slot};
use super::member::Member;
use super::queue::{self, Mode, Queue, Seat};
use super::realm::{Realm, SlotKey, State};
use super::registry;
use super::request::SubscribeRequest;
use super::subscribe;
use super::unsubscribe;
use super::{Broker, SessionId};
use crate::model::{ConsumerName, Key};
use crate::store::QueueRecord;

/// Makes the listener and puts it into the tables, in the place of an older one of the same consumer
/// and key. One whose live copies are tracked waits for its queue.
pub(super) fn listen(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    state: &mut State,
    request: &SubscribeRequest,
    slot_key: Option<&SlotKey>,
    attaches: bool,
) -> Arc<Listener> {
    let realm = member.realm_state();
    let options = &request.options;
    let is_remembered = slot_key.is_some();
    let entry = realm.enter(&request.key, &**broker.encode(), broker.metrics());
    let listener = Arc::new(Listener {
        member: member.clone(),
        consumer: request.consumer.clone(),
        entry: entry.clone(),
        group: options.group.clone(),
        is_tracked: options.ack,
        is_durable: options.durable && is_remembered,
        is_remembered,
        filter: member.pass().filter_of(&request.key),
        queue: OnceLock::new(),
        slot: OnceLock::new(),
        ended: OnceLock::new(),
    });
    let place = (request.key.clone(), request.consumer.clone());
    let before = member
        .names
        .lock()
        .listeners
        .insert(place, listener.clone());
    // Without a queue that is remembered, what must be acked is tracked in memory.
    let is_volatile = options.ack && !(is_remembered && attaches);
    let mut volatile = None;
    if let Some(before) = &before {
        // What is out stays out when the session subscribes again (P9).
        if is_volatile && before.slot.get().is_none() {
            volatile = before.queue.get().cloned();
        }
        let keeps_seat = before.slot.get().is_some_and(|slot| {
            slot_key.is_some_and(|(_, kind, name)| *kind == slot.kind && *name == slot.name)
        });
        unlist(realm, state, before);
        if !keeps_seat && volatile.is_none() {
            unseat(broker, state, before, queue::Leave::Unsubscribed);
        }
    }
    if let Some(group) = &options.group {
        // After the older one has gone: it takes the group's interest with it if it was the last.
        realm.enter_group(&entry, group, options.retry);
        state.enter_group(group, member.pass().owner.as_ref());
    }
    let known = slot_key.and_then(|key| state.slots.get(key)).cloned();
    match known.filter(|_| attaches) {
        Some(slot) => sit(broker, &listener, &slot, request),
        None if is_volatile => attach_volatile(broker, state, &listener, request, volatile),
        None if !options.ack => enroll(&listener),
        None => {}
    }
    listener
}

/// Into the rosters by which messages find it.
fn enroll(listener: &Arc<Listener>) {
    let entry = &listener.entry;
    let seat = (listener.session(), listener.consumer.clone());
    if let Some(group) = &listener.group {
        if let Some(interest) = entry.group(group.as_str()) {
            interest.members.insert(seat, listener.clone());
        }
    } else if !listener.is_durable
        && entry.live.insert(seat, listener.clone()).is_none()
        && listener.needs_message()
    {
        entry.tracked.fetch_add(1, Ordering::AcqRel);
    }
}

/// Attaches a listener to its queue: backlog first, then live (P5).
fn sit(
    broker: &Arc<Broker>,
    listener: &Arc<Listener>,
    slot: &Arc<Slot>,
    request: &SubscribeRequest,
) {
    let seat = (listener.session(), listener.consumer.clone());
    let is_first = {
        let mut inner = slot.state.lock();
        inner.seen = broker.clock().now();
        let is_first = inner.seats.is_empty();
        if !inner.seats.contains(&seat) {
            inner.seats.push(seat);
        }
        is_first
    };
    slot.entry.attached.insert(slot.id, slot.clone());
    if is_first {
        // A courier that has not ended yet was not fed while nobody was attached.
        slot.queue.look_again();
    }
    // After it stands among the attached: what comes from now on is fed.
    let depth = broker.store().depth(slot.id).take_ready();
    let is_empty = matches!(depth, Some(Ok(depth)) if depth.count == 0);
    slot.queue
        .attach(seat_of(broker, listener, request), is_empty);
    listener.member.add_queue(&slot.queue);
    // A second time is the answer of the store to the same SUBSCRIBE: nothing new.
    let _ = listener.slot.set(slot.clone());
    let _ = listener.queue.set(slot.queue.clone());
    slot.entry.may_be_ahead();
    enroll(listener);
}

/// Whether it was neither replaced nor withdrawn. Under the realm's lock.
pub(super) fn is_current(listener: &Arc<Listener>) -> bool {
    let names = listener.member.names.lock();
    let place = (listener.entry.key.clone(), listener.consumer.clone());
    let current = names.listeners.get(&place);
    current.is_some_and(|current| Arc::ptr_eq(current, listener))
}

/// The store has opened the queue: attach. Messages waiting.
pub(super) fn attach(
    broker: &Arc<Broker>,
    listener: &Arc<Listener>,
    request: &SubscribeRequest,
    record: QueueRecord,
) -> u64 {
    let realm = listener.member.realm_state();
    let mut state = realm.state.lock();
    let depth = record.depth;
    let spec = &record.spec;
    let slot_key = (request.key.clone(), spec.kind, spec.name.clone());
    let is_durable = spec.settings.durable;
    let known = state.slots.get(&slot_key);
    let was_plain = known.is_some_and(|slot| !slot.state.lock().settings.durable);
    let slot = realm.remember(&mut state, broker.engine(), broker.metrics(), record);
    if was_plain && is_durable {
        raise(broker, &mut state, &slot_key, &slot);
    }
    if is_current(listener) {
        sit(broker, listener, &slot, request);
    } else if let Some(purge) = listener.ended.get()
        && let Some(gone) = unsubscribe::release(realm, &mut state, &slot_key, *purge)
    {
        // It ended before it was open. Of one that has only left, the queue is remembered.
        drop(forget::forget(broker, realm, &mut state, gone));
    }
    depth
}

/// A queue has become durable: who sat there already gets everything from it, too (P5).
fn raise(broker: &Arc<Broker>, state: &mut State, slot_key: &SlotKey, slot: &Arc<Slot>) {
    let seats = slot.state.lock().seats.clone();
    for (session, name) in seats {
        let held = state.consumers.get(&name).map(|held| &held.subscriptions);
        let kept = held.and_then(|held| held.get(&slot_key.0));
        let request = kept.map(|kept| kept.request.clone());
        let plain = request.filter(|request| {
            !request.options.durable && registry::slot_key(request).as_ref() == Some(slot_key)
        });
        let (Some(request), Some(member)) = (plain, state.members.get(&session).cloned()) else {
            continue;
        };
        let mut request = SubscribeRequest::clone(&request);
        request.options.durable = true;
        let owner = slot.state.lock().settings.owner.clone();
        state.keep(&Arc::new(request.clone()), owner.as_ref());
        listen(broker, &member, state, &request, Some(slot_key), true);
    }
}

fn seat_of(broker: &Arc<Broker>, listener: &Arc<Listener>, request: &SubscribeRequest) -> Seat {
    let options = &request.options;
    let group = options.group.as_ref();
    let retry = group
        .and_then(|group| listener.entry.group(group.as_str()))
        .map_or(options.retry, |interest| interest.retry);
    let (member, key) = (listener.member.clone(), listener.entry.key.clone());
    let encode = broker.encode().clone();
    Seat {
        session: listener.session(),
        outbox: listener.member.outbox().clone(),
        head: listener.entry.head.clone(),
        mode: match (options.ack, broker.config.confirm_on_flush) {
            (true, _) => Mode::Ack {
                timeout: options.ack_timeout,
            },
            (false, true) => Mode::Flush,
            (false, false) => Mode::Confirm,
        },
        prefetch: options.prefetch.max(1),
        prefetch_bytes: broker.config.prefetch_bytes,
        retry,
        filter: listener.filter.clone(),
        floor: listener.entry.end(),
        lost: Arc::new(move |count| member.lost(&key, count, &*encode)),
        taken: claims::taken(broker, listener),
    }
}

/// Acks of a subscription that nothing remembers are tracked in memory (P9); by `before` if there is
/// one already.
fn attach_volatile(
    broker: &Arc<Broker>,
    state: &mut State,
    listener: &Arc<Listener>,
    request: &SubscribeRequest,
    before: Option<Arc<Queue>>,
) {
    let queue = before.unwrap_or_else(|| {
        let metrics = listener.member.realm_state().queue_metrics(&listener.entry);
        Queue::volatile(broker.engine().clone(), request.options.retry, metrics)
    });
    queue.attach(seat_of(broker, listener, request), true);
    listener.member.add_queue(&queue);
    let session = listener.session();
    state
        .volatile
        .insert(queue.number(), (session, queue.clone()));
    let _ = listener.queue.set(queue);
    enroll(listener);
}

/// CONSUMER again: plain subscriptions of before work at once; what is stored waits for SUBSCRIBE
/// (wire §6.10-2).
pub(super) fn revive(broker: &Arc<Broker>, member: &Arc<Member>, name: &ConsumerName) {
    let realm = member.realm_state();
    let mut state = realm.state.lock();
    let Some(consumer) = state.consumers.get(name) else {
        return;
    };
    let held = |key: &Arc<Key>| {
        let names = member.names.lock();
        names.listeners.contains_key(&(key.clone(), name.clone()))
    };
    // They may have been somebody else's: of those the name gives nobody anything (P30).
    let pass = member.pass();
    let is_free = |request: &SubscribeRequest| {
        let slot_key = registry::slot_key(request);
        subscribe::check_owner(&state, member, request, slot_key.as_ref()).is_ok()
    };
    let plain: Vec<Arc<SubscribeRequest>> = consumer
        .subscriptions
        .values()
        .map(|kept| &kept.request)
        .filter(|request| pass.may_listen(&request.key) && is_free(request))
        .filter(|request| !request.options.durable && !held(&request.key))
        .cloned()
        .collect();
    for request in plain {
        let slot_key = registry::slot_key(&request).filter(|key| state.slots.contains_key(key));
        listen(
            broker,
            member,
            &mut state,
            &request,
            slot_key.as_ref(),
            false,
        );
    }
}

/// Takes a listener out of everything; `how` is what its queue hears.
pub(super) fn withdraw(
    broker: &Broker,
    realm: &Realm,
    state: &mut State,
    listener: &Arc<Listener>,
    how: queue::Leave,
) {
    unlist(realm, state, listener);
    unseat(broker, state, listener, how);
}

/// Out of the rosters of its key.
fn unlist(realm: &Realm, state: &mut State, listener: &Arc<Listener>) {
    let entry = &listener.entry;
    let seat = (listener.session(), listener.consumer.clone());
    if let Some(group) = &listener.group {
        if let Some(interest) = entry.group(group.as_str()) {
            interest.members.remove(&seat);
        }
        realm.exit_group(entry, group.as_str());
        state.exit_group(group);
    } else if !listener.is_durable && entry.live.remove(&seat).is_some() && listener.needs_message()
    {
        entry.tracked.fetch_sub(1, Ordering::AcqRel);
    }
    realm.exit(entry);
}

/// Off its queue, unless another name of the session still sits there.
fn unseat(broker: &Broker, state: &mut State, listener: &Listener, how: queue::Leave) {
    let Some(queue) = listener.queue.get() else {
        return;
    };
    let session = listener.session();
    let Some(slot) = listener.slot.get() else {
        state.volatile.remove(&queue.number());
        listener.member.remove_queue(queue);
        return queue.detach(session, how);
    };
    if unsit(slot, session, &listener.consumer) {
        listener.member.remove_queue(queue);
        queue.detach(session, how);
    }
    if !slot.is_attached() {
        slot.entry.attached.remove(&slot.id);
        let now = broker.clock().now();
        slot.state.lock().seen = now;
        broker.in_background(broker.store().touch(slot.id, now), "note a detach");
    }
}

/// Whether the session has no other seat on the queue.
fn unsit(slot: &Slot, session: SessionId, consumer: &ConsumerName) -> bool {
    let mut inner = slot.state.lock();
    inner
        .seats
        .retain(|(other, name)| *other != session || name != consumer);
    !inner.seats.iter().any(|(other, _)| *other == session)
}
