//! What a session was let in with, as far as delivery depends on it (P30).
//!
//! Holds, and asks nobody: whoever opens a door (`session`, HTTP) has asked before. Kept by the
//! [`Member`](super::Member) for as long as it is there.

use std::net::SocketAddr;
use std::sync::Arc;

use super::ports::Filter;
use crate::clock::Timestamp;
use crate::model::Key;

/// See the module. The default is everybody's while authentication is off.
#[derive(Clone)]
pub struct Pass {
    /// Whose queues it may use and make its own: the credential's owner; `None`: keyless.
    pub owner: Option<Arc<str>>,
    /// What it may receive; `None`: every event.
    pub filter: Option<Arc<dyn Filter>>,
    /// Whether it may be in realm `*`, which sees all others (wire §4.4).
    pub is_admin: bool,
    /// Its role's name, for operators.
    pub role: &'static str,
    /// Where it comes from, for operators.
    pub remote: Option<SocketAddr>,
    /// Since when it is there, for operators.
    pub since: Timestamp,
}

impl Default for Pass {
    fn default() -> Self {
        Self {
            owner: None,
            filter: None,
            is_admin: false,
            role: "both",
            remote: None,
            since: Timestamp(0),
        }
    }
}

impl Pass {
    /// Whether it may receive this event.
    pub fn may_see(&self, event: &str) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| filter.may_see(event))
    }

    /// Whether it may use what belongs to `owner`; what belongs to nobody is open to all.
    pub(super) fn may_use(&self, owner: Option<&Arc<str>>) -> bool {
        owner.is_none_or(|owner| self.owner.as_ref() == Some(owner))
    }

    /// What a subscription to the key has to look at for each event; an exact one was looked at when
    /// it began.
    pub(super) fn filter_of(&self, key: &Key) -> Option<Arc<dyn Filter>> {
        match key {
            Key::Event { .. } | Key::Any { .. } => None,
            _ => self.filter.clone(),
        }
    }

    /// Whether a subscription to the key may be: of an exact event, if that may be received.
    pub(super) fn may_listen(&self, key: &Key) -> bool {
        match key {
            Key::Event { event, .. } | Key::Any { event } => self.may_see(event),
            _ => true,
        }
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass")
            .field("owner", &self.owner)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}
