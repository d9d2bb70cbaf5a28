//! What a producer and event match, and a message on its way through it.
//!
//! Values only: made and used by [`super::publish`], cached by [`super::batch`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use indexmap::IndexMap;

use super::listen::{GroupKey, KeyEntry};
use super::ports::Content;
use super::realm::Realm;
use crate::clock::Timestamp;
use crate::metrics::Counter;
use crate::model::{Extras, GroupName, Message, MessageId, ProducerName, fold};

/// A producer without a default ttl.
pub(super) const NO_TTL: u64 = u64::MAX;

/// What a producer and event match, in the producer's realm and in the monitors' (wire §4.4).
pub(super) struct RouteSet {
    pub(super) own: Matches,
    /// `None` in the monitors' own realm.
    pub(super) monitor: Option<Matches>,
    pub(super) standing: Arc<Standing>,
    pub(super) produced: Counter,
}

/// What cached matches see of their producer's name.
pub(super) struct Standing {
    /// Milliseconds, or [`NO_TTL`].
    pub(super) default_ttl: AtomicU64,
    /// Whether a session holds the name; else it goes to who produces under it next (wire §2.5).
    pub(super) is_held: AtomicBool,
}

/// What matches in one realm.
pub(super) struct Matches {
    pub(super) realm: Arc<Realm>,
    generation: u64,
    pub(super) keys: Vec<Arc<KeyEntry>>,
    /// Of each group its keys in the order of P18.
    pub(super) groups: Vec<Vec<(Arc<KeyEntry>, Arc<GroupKey>)>>,
}

/// One message on its way through the matches of a realm.
pub(super) struct Outgoing<'a> {
    pub(super) content: Content<'a>,
    pub(super) guaranteed: bool,
    /// Nothing is stored: `ttl: 0`.
    pub(super) online_only: bool,
    pub(super) key: Option<&'a str>,
    pub(super) expires: Option<Timestamp>,
    pub(super) produced: Timestamp,
    pub(super) mark: Option<(&'a str, u64)>,
    pub(super) uid: Option<&'a str>,
    /// The delayed message that this is.
    pub(super) release: Option<MessageId>,
    pub(super) id: MessageId,
    /// Made when somebody stores or tracks it.
    pub(super) message: Option<Arc<Message>>,
}

impl Standing {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            default_ttl: AtomicU64::new(NO_TTL),
            is_held: AtomicBool::new(true),
        })
    }
}

impl RouteSet {
    pub(super) fn holds(&self) -> bool {
        let is_held = self.standing.is_held.load(Ordering::Acquire);
        is_held && self.own.holds() && self.monitor.as_ref().is_none_or(Matches::holds)
    }
}

impl Matches {
    pub(super) fn find(realm: &Arc<Realm>, from: &ProducerName, event: &str) -> Self {
        // Before the look-up: what changes during it makes the matches stale.
        let generation = realm.generation();
        let keys = realm.routes.read().matches(from, &fold(event).into());
        let mut groups: IndexMap<GroupName, Vec<_>> = IndexMap::new();
        for key in &keys {
            for group in key.groups.read().iter() {
                let targets = groups.entry(group.name.clone()).or_default();
                targets.push((key.clone(), group.clone()));
            }
        }
        Self {
            realm: realm.clone(),
            generation,
            keys,
            groups: groups.into_values().collect(),
        }
    }

    fn holds(&self) -> bool {
        self.realm.generation() == self.generation
    }
}

impl Outgoing<'_> {
    /// The message itself; made once.
    pub(super) fn message(&mut self) -> Arc<Message> {
        if let Some(message) = &self.message {
            return message.clone();
        }
        let content = &self.content;
        let text = |text: Option<&str>| text.map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let extras = Extras {
            enc: text(content.enc),
            to: text(content.to),
            content_type: text(content.content_type),
            headers: text(content.headers),
            attachments: content.attachments.to_vec(),
        };
        let message = Arc::new(Message {
            id: self.id,
            event: content.event.into(),
            from: content.from.into(),
            body: text(content.body),
            extras: (!extras.is_empty()).then(|| Box::new(extras)),
            produced: self.produced,
            expires: self.expires,
            guaranteed: self.guaranteed,
            key: self.key.map(Arc::from),
        });
        self.message = Some(message.clone());
        message
    }

    /// Whether the store may know it already (P16, P17).
    pub(super) fn is_numbered(&self) -> bool {
        self.mark.is_some() || self.uid.is_some() || self.release.is_some()
    }
}
