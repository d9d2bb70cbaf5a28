//! Messages to everybody: to a realm, or to a group (wire §8.3, decided 3 and 13).
//!
//! Costs the members of the realm, unlike a publish. Never acked, though it queues behind stored
//! messages like any other live copy (P8); stored only with `guaranteed`, for whoever has a
//! remembered queue and then gets it from there.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use super::Broker;
use super::batch::{Batch, Target};
use super::listen::{KeyEntry, Listener};
use super::matches::{Outgoing, RouteSet};
use super::member::Member;
use super::ports::{Content, Encode, Head};
use super::publish::{self, Placing};
use super::request::Broadcast;
use crate::metrics::Counter;
use crate::model::{ConsumerName, Key, fold};

/// Sends the copies of a broadcast; what is stored goes into the batch.
pub(super) fn place(
    broker: &Broker,
    member: &Member,
    batch: &mut Batch,
    set: &RouteSet,
    outgoing: &mut Outgoing<'_>,
    to: Broadcast<'_>,
) -> Placing {
    match to {
        Broadcast::Realm => to_realm(broker, member, batch, set, outgoing),
        Broadcast::Group(group) => to_group(member, batch, outgoing, group),
    }
}

/// One copy per matching subscription, and one under the event itself for who listens to nothing of
/// that name.
fn to_realm(
    broker: &Broker,
    member: &Member,
    batch: &mut Batch,
    set: &RouteSet,
    outgoing: &mut Outgoing<'_>,
) -> Placing {
    let mut placing = Placing::default();
    let keys = &set.own.keys;
    if outgoing.guaranteed && !outgoing.online_only {
        store(member, batch, set, outgoing, &mut placing);
    }
    let guard = placing.append;
    let one = |batch: &mut Batch, listener: &Arc<Listener>, outgoing: &mut Outgoing<'_>| {
        let target = Target::One(listener.clone());
        publish::live(
            member,
            batch,
            &listener.entry,
            target,
            guard,
            false,
            outgoing,
        )
    };
    for key in keys.iter().filter(|key| key.live.len() > 0) {
        let target = Target::Key;
        let at = publish::live(member, batch, key, target, guard, guard.is_some(), outgoing);
        placing.segments.push(at);
    }
    let matched: HashSet<usize> = keys.iter().map(|key| Arc::as_ptr(key) as usize).collect();
    let everybody = Arc::new(everybody(broker, outgoing.content.event));
    for receiver in members(member) {
        let names = receiver.names.lock();
        let mut has_name = false;
        for listener in names.listeners.values() {
            has_name |= listener.entry.key.wire_name() == outgoing.content.event;
            let is_matched = matched.contains(&(Arc::as_ptr(&listener.entry) as usize));
            let is_plain = !listener.is_durable && listener.group.is_none();
            let from_queue = guard.is_some() && listener.is_remembered;
            if is_matched && !is_plain && !from_queue && listener.may_see(outgoing.content.event) {
                placing.segments.push(one(batch, listener, outgoing));
            }
        }
        let is_registered = !names.consumers.is_empty() || !names.producers.is_empty();
        drop(names);
        if is_registered && !has_name && receiver.pass().may_see(outgoing.content.event) {
            let listener = stand_in(&everybody, receiver.clone());
            let seat = (receiver.session(), listener.consumer.clone());
            everybody.live.insert(seat, Arc::new(listener));
        }
    }
    if everybody.live.len() > 0 {
        let target = Target::Key;
        let at = publish::live(member, batch, &everybody, target, guard, false, outgoing);
        placing.segments.push(at);
    }
    placing
}

/// Every connected member of the group once, on its own key, whatever it listens to.
fn to_group(
    member: &Member,
    batch: &mut Batch,
    outgoing: &mut Outgoing<'_>,
    group: &str,
) -> Placing {
    let mut placing = Placing::default();
    let mut reached = HashSet::new();
    for receiver in members(member) {
        if !receiver.pass().may_see(outgoing.content.event) {
            continue; // a key of its own does not say what the event is
        }
        let names = receiver.names.lock();
        for listener in names.listeners.values() {
            let is_member = listener
                .group
                .as_ref()
                .is_some_and(|name| name.as_str() == group);
            if is_member && reached.insert(listener.consumer.clone()) {
                let (target, key) = (Target::One(listener.clone()), &listener.entry);
                let at = publish::live(member, batch, key, target, None, false, outgoing);
                placing.segments.push(at);
            }
        }
    }
    placing
}

fn members(member: &Member) -> Vec<Arc<Member>> {
    let state = member.realm_state().state.lock();
    state.members.values().cloned().collect()
}

fn store(
    member: &Member,
    batch: &mut Batch,
    set: &RouteSet,
    outgoing: &mut Outgoing<'_>,
    placing: &mut Placing,
) {
    let matches = &set.own;
    let wants = |key: &Arc<KeyEntry>| {
        key.stores(true) || key.groups.read().iter().any(|group| group.stores(true))
    };
    let keys: Vec<_> = matches
        .keys
        .iter()
        .filter(|key| wants(key))
        .cloned()
        .collect();
    if !keys.is_empty() {
        placing.append = Some(publish::append(
            batch,
            member.realm(),
            outgoing,
            &keys,
            Vec::new(),
        ));
    }
}

/// A key for this broadcast alone, so that its copies go the way of all others.
fn everybody(broker: &Broker, event: &str) -> KeyEntry {
    let key = Key::Any {
        event: fold(event).into(),
    };
    let head = Arc::new(ByEvent(broker.encode().clone()));
    KeyEntry::new(Arc::new(key), 0, head, Counter::default())
}

fn stand_in(entry: &Arc<KeyEntry>, member: Arc<Member>) -> Listener {
    Listener {
        member,
        consumer: ConsumerName::anonymous(),
        entry: entry.clone(),
        group: None,
        is_tracked: false,
        is_durable: false,
        is_remembered: false,
        filter: None,
        queue: OnceLock::new(),
        slot: OnceLock::new(),
        ended: OnceLock::new(),
    }
}

/// Deliveries under `CONSUME-<Event>`.
struct ByEvent(Arc<dyn Encode>);

impl Head for ByEvent {
    fn plain(&self, what: &Content<'_>, out: &mut Vec<u8>) {
        self.0.broadcast(what, out);
    }

    fn tracked(&self, what: &Content<'_>, _: &str, _: u32, out: &mut Vec<u8>) {
        self.0.broadcast(what, out);
    }

    fn repeated(&self, what: &Content<'_>, out: &mut Vec<u8>) {
        self.0.broadcast(what, out);
    }
}
