//! What names subscribe to: by name, by the producer they want to hear of, by the queue that remembers
//! them. Every change is O(1). Under the realm's lock; knows no session and no store.

use std::collections::HashMap;
use std::sync::Arc;

use super::realm::{SlotKey, State};
use super::request::SubscribeRequest;
use super::subscribe::identity;
use crate::model::{ConsumerName, Key};

/// Who subscribes by one consumer id or group to one key, connected or not.
#[derive(Default)]
pub(super) struct Users {
    /// Whether the subscription is durable.
    names: HashMap<ConsumerName, bool>,
    durable: usize,
}

impl Users {
    /// Whether somebody else subscribes durably.
    pub(super) fn is_durable_without(&self, name: &ConsumerName) -> bool {
        let own = self.names.get(name).is_some_and(|durable| *durable);
        self.durable > usize::from(own)
    }
}

/// The queue that remembers a subscription, if one does.
pub(super) fn slot_key(request: &SubscribeRequest) -> Option<SlotKey> {
    identity(request).map(|(kind, name)| (request.key.clone(), kind, name))
}

impl State {
    /// Keeps the subscription of a known name, in the place of an older one to the same key.
    pub(super) fn keep(&mut self, request: &Arc<SubscribeRequest>) {
        let (name, key) = (&request.consumer, &request.key);
        let Some(consumer) = self.consumers.get_mut(name) else {
            return;
        };
        match consumer.subscriptions.insert(key.clone(), request.clone()) {
            Some(before) => self.not_used(&before),
            None => self.watch(name, key),
        }
        if let Some(slot_key) = slot_key(request) {
            let users = self.users.entry(slot_key).or_default();
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
        let request = consumer.subscriptions.swap_remove(key)?;
        self.not_used(&request);
        self.unwatch(name, key);
        Some(request)
    }

    /// Forgets a name; what remembers its subscriptions in the store stays.
    pub(super) fn drop_consumer(&mut self, name: &ConsumerName) {
        let Some(consumer) = self.consumers.remove(name) else {
            return;
        };
        for request in consumer.subscriptions.values() {
            self.not_used(request);
            self.unwatch(name, &request.key);
        }
    }

    /// Whether somebody, connected or not, subscribes by this group or consumer id.
    pub(super) fn is_used(&self, slot_key: &SlotKey) -> bool {
        self.users.contains_key(slot_key)
    }

    fn not_used(&mut self, request: &SubscribeRequest) {
        let Some(slot_key) = slot_key(request) else {
            return;
        };
        if let Some(users) = self.users.get_mut(&slot_key) {
            let durable = users.names.remove(&request.consumer);
            users.durable -= usize::from(durable == Some(true));
            if users.names.is_empty() {
                self.users.remove(&slot_key);
            }
        }
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
