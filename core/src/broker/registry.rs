//! What names subscribe to: by name, by the producer they want to hear of, by the queue that remembers
//! them. Every change is O(1). Under the realm's lock; knows no session and no store.

use std::collections::HashMap;
use std::sync::Arc;

use super::listen::Slot;
use super::member::Member;
use super::pass::Pass;
use super::realm::{SlotKey, State};
use super::remembered::MOST_NAMES;
use super::request::SubscribeRequest;
use super::subscribe::identity;
use crate::model::{ConsumerName, GroupName, Key};
use crate::store::QueueKind;

/// A consumer's table beyond this gives room back when most of its subscriptions have ended.
const ROOMY: usize = 64;

/// Who subscribes by one consumer id or group to one key, connected or not.
#[derive(Default)]
pub(super) struct Users {
    /// Whose the queue is, whether the store has opened it or not (P30).
    pub(super) owner: Option<Arc<str>>,
    /// Whether the subscription is durable.
    names: HashMap<ConsumerName, bool>,
    durable: usize,
    /// There are others, which are not known.
    has_more: bool,
}

impl Users {
    /// Whether somebody else subscribes durably.
    pub(super) fn is_durable_without(&self, name: &ConsumerName) -> bool {
        let own = self.names.get(name).is_some_and(|durable| *durable);
        self.durable > usize::from(own)
    }

    /// Whether somebody subscribes durably.
    pub(super) fn is_durable(&self) -> bool {
        self.durable > 0
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ConsumerName> {
        self.names.keys()
    }

    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    fn remove(&mut self, name: &ConsumerName) -> bool {
        let durable = self.names.remove(name);
        self.durable -= usize::from(durable == Some(true));
        durable.is_some()
    }
}

/// Whose a group is, on whatever key (P18, P30).
pub(super) struct GroupUse {
    pub(super) owner: Option<Arc<str>>,
    /// Listeners and queues.
    uses: usize,
}

/// A subscription of a name.
pub(super) struct Kept {
    pub(super) request: Arc<SubscribeRequest>,
    /// Who may go on with it or end it; nobody's is everybody's (P30).
    pub(super) owner: Option<Arc<str>>,
    /// Greater is newer.
    pub(super) age: u64,
}

/// The queue that remembers a subscription, if one does.
pub(super) fn slot_key(request: &SubscribeRequest) -> Option<SlotKey> {
    identity(request).map(|(kind, name)| (request.key.clone(), kind, name))
}

impl State {
    /// Keeps the subscription of a known name, in the place of an older one to the same key; it and
    /// its queue are `owner`'s.
    pub(super) fn keep(&mut self, request: &Arc<SubscribeRequest>, owner: Option<&Arc<str>>) {
        let (name, key) = (&request.consumer, &request.key);
        let Some(consumer) = self.consumers.get_mut(name) else {
            return;
        };
        consumer.next_age += 1;
        let kept = Kept {
            request: request.clone(),
            owner: owner.cloned(),
            age: consumer.next_age,
        };
        match consumer.subscriptions.insert(key.clone(), kept) {
            Some(before) => {
                if let Some(left) = self.not_used(&before.request)
                    && slot_key(request).as_ref() != Some(&left)
                {
                    self.rename(left);
                }
            }
            None => self.watch(name, key),
        }
        if let Some(slot_key) = slot_key(request) {
            let users = self.users.entry(slot_key).or_default();
            users.owner = owner.cloned();
            users.remove(name);
            users.names.insert(name.clone(), request.options.durable);
            users.durable += usize::from(request.options.durable);
        }
    }

    /// Ends a subscription of a name.
    pub(super) fn drop_subscription(
        &mut self,
        name: &ConsumerName,
        key: &Key,
    ) -> Option<Arc<SubscribeRequest>> {
        let consumer = self.consumers.get_mut(name)?;
        let kept = &mut consumer.subscriptions;
        let request = kept.swap_remove(key)?.request;
        if kept.capacity() > ROOMY && kept.len() < kept.capacity() / 4 {
            kept.shrink_to(kept.len() * 2);
        }
        if let Some(left) = self.not_used(&request) {
            self.rename(left);
        }
        self.unwatch(name, key);
        Some(request)
    }

    /// A name does not subscribe by a queue any more, whatever the live tables know of it.
    pub(super) fn leave_queue(&mut self, name: &ConsumerName, slot_key: &SlotKey) {
        if self.no_user(name, slot_key) {
            self.rename(slot_key.clone());
        }
    }

    /// The names of a queue are to be written, unless it has ended with its last one.
    fn rename(&mut self, slot_key: SlotKey) {
        if self.slots.contains_key(&slot_key) || self.users.contains_key(&slot_key) {
            self.renamed.insert(slot_key);
        }
    }

    /// There are users of a queue that are not known.
    pub(super) fn has_more(&mut self, slot_key: SlotKey) {
        self.users.entry(slot_key).or_default().has_more = true;
    }

    /// A queue is remembered no more: only who is in the live tables may still subscribe by it.
    pub(super) fn queue_ended(&mut self, slot_key: &SlotKey) {
        let Some(users) = self.users.get_mut(slot_key) else {
            return;
        };
        users.has_more = false;
        let is_live = |name: &ConsumerName| {
            let consumer = self.consumers.get(name);
            let kept = consumer.and_then(|consumer| consumer.subscriptions.get(&slot_key.0));
            kept.is_some_and(|kept| self::slot_key(&kept.request).as_ref() == Some(slot_key))
        };
        users.names.retain(|name, _| is_live(name));
        users.durable = users.names.values().filter(|durable| **durable).count();
        if users.names.is_empty() {
            self.users.remove(slot_key);
        }
    }

    /// What a name subscribes to by this key, as far as the holder of a pass may touch it.
    pub(super) fn kept(&self, name: &ConsumerName, key: &Key, pass: &Pass) -> Option<&Kept> {
        let kept = self.consumers.get(name)?.subscriptions.get(key)?;
        pass.may_use(kept.owner.as_ref()).then_some(kept)
    }

    /// Who listens by a queue here, under which names.
    pub(super) fn listening(&self, slot: &Slot) -> Vec<(Arc<Member>, ConsumerName)> {
        let seats = slot.state.lock().seats.clone();
        let seated = seats
            .into_iter()
            .filter_map(|(session, name)| Some((self.members.get(&session)?.clone(), name)));
        let mut listening: Vec<_> = seated.collect();
        let slot_key = (slot.entry.key.clone(), slot.kind, slot.name.clone());
        let users = self.users.get(&slot_key).into_iter();
        for name in users.flat_map(Users::names) {
            let is_seated = listening.iter().any(|(_, seated)| seated == name);
            if !is_seated && let Some(holder) = self.listener(name, &slot_key.0) {
                listening.push((holder.clone(), name.clone()));
            }
        }
        listening
    }

    /// Who holds a name and listens to the key by it.
    fn listener(&self, name: &ConsumerName, key: &Arc<Key>) -> Option<&Arc<Member>> {
        let holder = self.consumer_holder(name)?;
        let place = (key.clone(), name.clone());
        let listens = holder.names.lock().listeners.contains_key(&place);
        listens.then_some(holder)
    }

    /// Whether somebody else uses this queue at the moment: listens by it, or may go on with it without
    /// showing anything (P30).
    pub(super) fn is_shared(&self, slot_key: &SlotKey, but: &ConsumerName) -> bool {
        let users = self.users.get(slot_key).into_iter();
        let mut others = users.flat_map(Users::names).filter(|name| *name != but);
        others.any(|name| {
            let holder = self.consumer_holder(name);
            holder.is_some_and(|holder| holder.pass().owner.is_none())
                || self.listener(name, &slot_key.0).is_some()
        })
    }

    /// A group that nobody owns or else uses at this moment is its next member's (P30).
    pub(super) fn claim_group(&mut self, name: &GroupName, owner: &Arc<str>, by: &ConsumerName) {
        let group = self.groups.get(name);
        if group.is_none_or(|group| group.owner.is_some()) {
            return;
        }
        let mut keys = self.users.keys();
        let is_shared = keys.any(|key| {
            let is_its = key.1 == QueueKind::Group && *key.2 == *name.as_str();
            is_its && self.is_shared(key, by)
        });
        if !is_shared && let Some(group) = self.groups.get_mut(name) {
            group.owner = Some(owner.clone());
        }
    }

    /// Sessions of a queue's owner that sit there still are closed when it becomes another's: they come
    /// back to be told (P30).
    fn close_owners(&self, slot: &Slot, owner: Option<&Arc<str>>) {
        let inner = slot.state.lock();
        let before = &inner.settings.owner;
        if before.is_none() || before.as_ref() == owner {
            return;
        }
        for (session, _) in &inner.seats {
            let member = self.members.get(session);
            if let Some(member) = member.filter(|member| member.pass().owner.as_ref() != owner) {
                member.outbox().close();
            }
        }
    }

    /// A queue has another owner, or none, and so has what is subscribed by it (P30).
    pub(super) fn give(&mut self, slot: &Slot, owner: Option<&Arc<str>>) {
        self.close_owners(slot, owner);
        slot.state.lock().settings.owner = owner.cloned();
        let slot_key = (slot.entry.key.clone(), slot.kind, slot.name.clone());
        let names: Vec<_> = match self.users.get_mut(&slot_key) {
            Some(users) => {
                users.owner = owner.cloned();
                users.names.keys().cloned().collect()
            }
            None => Vec::new(),
        };
        for name in names {
            let consumer = self.consumers.get_mut(&name);
            let kept = consumer.and_then(|held| held.subscriptions.get_mut(&slot_key.0));
            if let Some(kept) = kept
                && self::slot_key(&kept.request).as_ref() == Some(&slot_key)
            {
                kept.owner = owner.cloned();
            }
        }
        let group = slot.state.lock().settings.group.clone();
        let Some(group) = group.and_then(|name| self.groups.get_mut(&name)) else {
            return;
        };
        // Whoever had it may own queues of the group on other keys still.
        let mut others = self.slots.values().filter(|other| {
            other.kind == slot.kind && other.name == slot.name && other.id != slot.id
        });
        let owned = others.find_map(|other| other.state.lock().settings.owner.clone());
        group.owner = owner.cloned().or(owned);
    }

    /// A listener or queue of a group more; the first says whose it is.
    pub(super) fn enter_group(&mut self, name: &GroupName, owner: Option<&Arc<str>>) {
        let new = || GroupUse {
            owner: owner.cloned(),
            uses: 0,
        };
        let group = self.groups.entry(name.clone()).or_insert_with(new);
        group.uses += 1;
    }

    /// Undoes one [`State::enter_group`].
    pub(super) fn exit_group(&mut self, name: &GroupName) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        group.uses -= 1;
        if group.uses == 0 {
            self.groups.remove(name);
        }
    }

    /// Forgets a name; what remembers its subscriptions in the store stays.
    pub(super) fn drop_consumer(&mut self, name: &ConsumerName) {
        let Some(consumer) = self.consumers.remove(name) else {
            return;
        };
        for kept in consumer.subscriptions.values() {
            self.unwatch(name, &kept.request.key);
            let slot_key = slot_key(&kept.request).filter(|_| !name.is_anonymous());
            let remembered = slot_key.filter(|slot_key| self.slots.contains_key(slot_key));
            let Some(slot_key) = remembered else {
                self.not_used(&kept.request);
                continue;
            };
            // It may come back, and has not unsubscribed.
            if let Some(users) = self.users.get_mut(&slot_key)
                && users.names.len() > MOST_NAMES
            {
                users.remove(name);
                users.has_more = true;
            }
        }
    }

    /// Whether somebody, connected or not, subscribes by this group or consumer id.
    pub(super) fn is_used(&self, slot_key: &SlotKey) -> bool {
        self.users.contains_key(slot_key)
    }

    /// The queue that a name subscribes by no more.
    fn not_used(&mut self, request: &SubscribeRequest) -> Option<SlotKey> {
        let slot_key = slot_key(request)?;
        self.no_user(&request.consumer, &slot_key)
            .then_some(slot_key)
    }

    fn no_user(&mut self, name: &ConsumerName, slot_key: &SlotKey) -> bool {
        let Some(users) = self.users.get_mut(slot_key) else {
            return false;
        };
        let was_there = users.remove(name);
        if users.names.is_empty() && !users.has_more {
            self.users.remove(slot_key);
        }
        was_there
    }

    /// Notes for awareness that a consumer listens to one key more.
    fn watch(&mut self, consumer: &ConsumerName, key: &Key) {
        let watchers = match key.producer() {
            Some(producer) => self.watchers.entry(producer.clone()).or_default(),
            None => &mut self.watch_all,
        };
        *watchers.entry(consumer.clone()).or_default() += 1;
    }

    /// Undoes one [`State::watch`].
    fn unwatch(&mut self, consumer: &ConsumerName, key: &Key) {
        let producer = key.producer();
        let watchers = match producer {
            Some(producer) => self.watchers.get_mut(producer),
            None => Some(&mut self.watch_all),
        };
        let Some(watchers) = watchers else { return };
        if let Some(keys) = watchers.get_mut(consumer) {
            *keys -= 1;
            if *keys == 0 {
                watchers.swap_remove(consumer);
            }
        }
        if let Some(producer) = producer.filter(|_| watchers.is_empty()) {
            self.watchers.remove(producer);
        }
    }
}
