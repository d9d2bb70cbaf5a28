//! What the store keeps of who subscribes by a queue, so that none of them is forgotten (P4, P5): the
//! names, and what the one that attached last calls itself in awareness.
//!
//! Written with the queue's settings, which stores do not read; written again a moment later when a
//! name has gone. Does not decide who subscribes: that is [`super::registry`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Broker;
use super::realm::{Consumer, Realm, SlotKey, State};
use super::registry::Users;
use super::request::SubscribeRequest;
use crate::Result;
use crate::model::{ConsumerId, ConsumerName, SubscriptionOptions};
use crate::store::{QueueKind, QueueRecord, QueueSettings, QueueSpec};

/// Names that are kept of one queue; it has others, if there are more, and they are not known.
pub(super) const MOST_NAMES: usize = 64;
/// Queues of one realm whose names are written in one go.
const BATCH: usize = 64;

/// In [`QueueSettings::consumer_meta`].
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Meta {
    /// The id in awareness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// `None`: only the name that attached last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    users: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

impl Meta {
    fn text(&self) -> Option<Arc<str>> {
        let has_something = *self != Self::default();
        let text = has_something.then(|| serde_json::to_string(self).ok());
        text.flatten().map(Arc::from)
    }

    fn of(settings: &QueueSettings) -> Self {
        let text = settings.consumer_meta.as_deref();
        let meta = text.and_then(|text| serde_json::from_str(text).ok());
        meta.unwrap_or_default()
    }

    fn set_users(&mut self, users: Option<&Users>, last: Option<&ConsumerName>) {
        let names = users.into_iter().flat_map(Users::names);
        let mut names = names.filter(|name| !name.is_anonymous());
        let kept: Vec<_> = names.by_ref().take(MOST_NAMES).collect();
        self.more = names.next().is_some() || users.is_some_and(Users::has_more);
        let is_last = kept.len() == 1 && kept.first().copied() == last;
        let names = kept.iter().map(|name| name.as_str().to_owned());
        self.users = (!is_last).then(|| names.collect());
    }
}

/// The text for the settings of a queue that a name subscribes by.
pub(super) fn meta(
    state: &State,
    slot_key: &SlotKey,
    request: &SubscribeRequest,
) -> Option<Arc<str>> {
    let mut meta = Meta {
        id: request.id.as_deref().map(str::to_owned),
        ..Meta::default()
    };
    meta.set_users(state.users.get(slot_key), Some(&request.consumer));
    meta.text()
}

/// The names that subscribe by a queue of the store, and whether there are more.
pub(super) fn users(settings: &QueueSettings) -> (Vec<ConsumerName>, bool) {
    let meta = Meta::of(settings);
    let names = match meta.users {
        Some(names) => names
            .iter()
            .filter_map(|name| ConsumerName::parse(name).ok())
            .collect(),
        None => settings.consumer.iter().cloned().collect(),
    };
    (names, meta.more)
}

/// A queue read at the start, or told of by another broker: its consumers are known again, though not
/// seen yet (P4); not those that are connected. Of several
/// queues of a name on one key the one that comes last here is its subscription.
pub(super) fn recall(state: &mut State, record: &QueueRecord) {
    let (spec, settings) = (&record.spec, &record.spec.settings);
    let key = Arc::new(spec.key.clone());
    let (names, has_more) = users(settings);
    for name in names {
        if state.consumer_holder(&name).is_some() {
            continue;
        }
        let consumer = state.consumers.entry(name.clone());
        let consumer = consumer.or_insert_with(|| Box::new(Consumer::new(name.shared().clone())));
        let is_own = spec.kind == QueueKind::Consumer;
        if is_own {
            consumer.ids.insert(spec.name.clone());
        }
        if settings.consumer.as_ref() == Some(&name)
            && let Some(id) = Meta::of(settings).id
        {
            consumer.id = id.into();
        }
        let defaults = SubscriptionOptions::default();
        let request = SubscribeRequest {
            key: key.clone(),
            consumer: name,
            id: None,
            consumer_id: ConsumerId::parse(&spec.name).ok().filter(|_| is_own),
            options: SubscriptionOptions {
                durable: settings.durable,
                ack: settings.ack,
                ack_timeout: settings.ack_timeout.unwrap_or(defaults.ack_timeout),
                retry: settings.retry_policy(),
                group: settings.group.clone(),
                ..defaults
            },
        };
        state.keep(&Arc::new(request), settings.owner.as_ref());
    }
    if has_more {
        state.has_more((key, spec.kind, spec.name.clone()));
    }
}

/// Tells the store of names that have gone.
pub(super) fn write(broker: &Broker, realm: &Arc<Realm>) {
    let mut state = realm.state.lock();
    let keys: Vec<SlotKey> = state.renamed.iter().take(BATCH).cloned().collect();
    for key in keys {
        state.renamed.remove(&key);
        let Some(slot) = state.slots.get(&key) else {
            continue;
        };
        let (mut settings, seen) = {
            let inner = slot.state.lock();
            (inner.settings.clone(), inner.seen)
        };
        let users = state.users.get(&key);
        let mut meta = Meta::of(&settings);
        meta.set_users(users, settings.consumer.as_ref());
        settings.consumer_meta = meta.text();
        // Somebody's SUBSCRIBE may be on its way that makes it durable.
        settings.durable |= users.is_some_and(Users::is_durable);
        let spec = QueueSpec {
            realm: realm.id.clone(),
            key: (*key.0).clone(),
            kind: key.1,
            name: key.2.clone(),
            settings,
        };
        let mut pending = broker.store().open(spec, seen);
        if let Some(result) = pending.take_ready() {
            written(&mut state, &key, result);
            continue;
        }
        let realm = realm.clone();
        tokio::spawn(async move {
            let result = pending.await;
            written(&mut realm.state.lock(), &key, result);
        });
    }
}

fn written(state: &mut State, key: &SlotKey, result: Result<QueueRecord>) {
    let slot = state.slots.get(key);
    match (result, slot) {
        (Ok(record), Some(slot)) if slot.id == record.queue => {
            slot.state.lock().settings.consumer_meta = record.spec.settings.consumer_meta;
        }
        (Err(error), Some(_)) => {
            tracing::debug!(%error, "the names of a queue could not be written; again later");
            state.renamed.insert(key.clone());
        }
        _ => {}
    }
}
