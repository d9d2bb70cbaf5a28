//! How much is too much: rates of a session, counts of sessions, realms and addresses (P25).
//!
//! Pure: time comes in as an argument, nothing is sent and nothing is closed here. [`Limits`] is what
//! an operator says, the rest keeps count. `server` reads them, `session` and `transport` ask.

mod addresses;
mod bucket;
mod proxies;
mod realm;
mod session;

use std::collections::HashMap;

use crate::model::RealmId;

pub use addresses::{Addresses, Ticket};
pub use bucket::{Bucket, Rate, Short};
pub use proxies::Proxies;
pub use realm::{RealmUse, RealmUses};
pub use session::SessionLimits;

/// Names that one session may register where authentication is on and nothing else is said.
pub const REGISTRATIONS: usize = 64;
/// Subscriptions of one session, likewise.
pub const SUBSCRIPTIONS: usize = 1_024;
/// How long a client should wait that is over a count, in seconds.
const COUNT_RETRY: u64 = 60;
/// The same for connections.
const CONNECTION_RETRY: u64 = 30;

/// The limits of one server. The default limits nothing but what [`Limits::caps`] says.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// False: nothing is limited, not even by default; true.
    pub enabled: bool,
    /// For every realm.
    pub base: Caps,
    /// What realms have of their own, over `base`.
    pub realms: HashMap<RealmId, Caps>,
    /// For each address.
    pub address: AddressCaps,
    /// Proxies whose word for a client's address counts; none.
    pub trust_proxy: Proxies,
    /// Authorization requests that may wait for a decision; 1,000.
    pub max_pending_authorization_requests: usize,
    /// Chunk transfers a session may have open; 16.
    pub max_transfers_per_socket: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            enabled: true,
            base: Caps::default(),
            realms: HashMap::new(),
            address: AddressCaps::default(),
            trust_proxy: Proxies::default(),
            max_pending_authorization_requests: 1_000,
            max_transfers_per_socket: 16,
        }
    }
}

/// Connections of one address, an IPv6 one by its network of 64 bits. `None`:
/// unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddressCaps {
    /// Sessions at a time.
    pub max_connections: Option<u32>,
    /// New sessions a minute; as many at once.
    pub connections_per_minute: Option<u32>,
}

/// What a session and a realm may. `None`: nothing was said; [`Cap::Unlimited`]: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Caps {
    /// PRODUCEs and chunks a second of one session.
    pub messages_per_second: Option<Cap>,
    /// How many of them at once; three times the rate.
    pub message_burst: Option<Cap>,
    /// Their JSON bytes a second.
    pub bytes_per_second: Option<Cap>,
    /// How many at once; twice the rate.
    pub bytes_burst: Option<Cap>,
    /// Names of one session.
    pub max_registrations_per_socket: Option<Cap>,
    /// Names of all sessions of a realm.
    pub max_registrations_per_realm: Option<Cap>,
    /// Subscriptions of one session.
    pub max_subscriptions_per_socket: Option<Cap>,
    /// Subscriptions of all sessions of a realm.
    pub max_subscriptions_per_realm: Option<Cap>,
    /// Unsettled messages of one queue.
    pub max_queued: Option<Cap>,
    /// Unsettled messages of a realm, all its queues together.
    pub max_queued_per_realm: Option<Cap>,
    /// Their bytes.
    pub max_queued_bytes_per_realm: Option<Cap>,
}

/// One limit that was said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cap {
    /// 0 or less was said.
    Unlimited,
    /// At most this.
    At(f64),
}

impl Cap {
    fn limit(cap: Option<Self>) -> Option<f64> {
        match cap {
            Some(Self::At(most)) => Some(most),
            Some(Self::Unlimited) | None => None,
        }
    }

    /// As a count; [`u64::MAX`]: any.
    pub fn most(self) -> u64 {
        match self {
            // Saturates.
            Self::At(most) => most as u64,
            Self::Unlimited => u64::MAX,
        }
    }

    /// As a count.
    fn count(cap: Option<Self>) -> Option<usize> {
        // Saturates: a count of more than all memory is none.
        Self::limit(cap).map(|most| most as usize)
    }
}

impl Caps {
    /// These, with what is not said taken from `base`.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        Self {
            messages_per_second: self.messages_per_second.or(base.messages_per_second),
            message_burst: self.message_burst.or(base.message_burst),
            bytes_per_second: self.bytes_per_second.or(base.bytes_per_second),
            bytes_burst: self.bytes_burst.or(base.bytes_burst),
            max_registrations_per_socket: self
                .max_registrations_per_socket
                .or(base.max_registrations_per_socket),
            max_registrations_per_realm: self
                .max_registrations_per_realm
                .or(base.max_registrations_per_realm),
            max_subscriptions_per_socket: self
                .max_subscriptions_per_socket
                .or(base.max_subscriptions_per_socket),
            max_subscriptions_per_realm: self
                .max_subscriptions_per_realm
                .or(base.max_subscriptions_per_realm),
            max_queued: self.max_queued.or(base.max_queued),
            max_queued_per_realm: self.max_queued_per_realm.or(base.max_queued_per_realm),
            max_queued_bytes_per_realm: self
                .max_queued_bytes_per_realm
                .or(base.max_queued_bytes_per_realm),
        }
    }

    /// The rate of messages, if there is one.
    pub fn messages(&self) -> Option<Rate> {
        rate(self.messages_per_second, self.message_burst, 3.0)
    }

    /// The rate of bytes, if there is one.
    pub fn bytes(&self) -> Option<Rate> {
        rate(self.bytes_per_second, self.bytes_burst, 2.0)
    }
}

fn rate(per_second: Option<Cap>, burst: Option<Cap>, times: f64) -> Option<Rate> {
    let per_second = Cap::limit(per_second)?;
    let burst = Cap::limit(burst).unwrap_or(per_second * times);
    Some(Rate { per_second, burst })
}

impl Limits {
    /// What counts in a realm. Where authentication is on, a session may have 64 names and 1,024
    /// subscriptions unless something else is said; where it is off, as many as it likes.
    pub fn caps(&self, realm: &RealmId, is_auth_on: bool) -> Caps {
        if !self.enabled {
            return Caps::default();
        }
        let mut caps = match self.realms.get(realm) {
            Some(own) => own.over(self.base),
            None => self.base,
        };
        if is_auth_on {
            let at = |most: usize| Some(Cap::At(most as f64));
            caps.max_registrations_per_socket =
                caps.max_registrations_per_socket.or(at(REGISTRATIONS));
            caps.max_subscriptions_per_socket =
                caps.max_subscriptions_per_socket.or(at(SUBSCRIPTIONS));
        }
        caps
    }

    /// What counts for an address.
    pub fn address(&self) -> AddressCaps {
        match self.enabled {
            true => self.address,
            false => AddressCaps::default(),
        }
    }
}

/// A limit that was met: what is over it, and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// The name of the limit, as options spell it; `message_too_large`: it is over the burst and
    /// never passes.
    pub reason: &'static str,
    /// Seconds, at least 1; `None`: never.
    pub retry_after: Option<u64>,
}

impl Exceeded {
    fn count(reason: &'static str) -> Self {
        Self {
            reason,
            retry_after: Some(COUNT_RETRY),
        }
    }
}

/// Refuses one more of what there are `have` of.
///
/// # Errors
/// [`Exceeded`] by `reason` when `cap` is met.
fn one_more(cap: Option<Cap>, have: usize, reason: &'static str) -> Result<(), Exceeded> {
    match Cap::count(cap) {
        Some(most) if have >= most => Err(Exceeded::count(reason)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
