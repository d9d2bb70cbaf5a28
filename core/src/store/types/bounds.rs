//! What a store keeps at most, and of that what may change while it runs. Knows no store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::Overflow;
use crate::model::RealmId;
use crate::{Error, ErrorKind};

/// What a store keeps at most (P16, P25); given at construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Unsettled entries per queue; delayed messages per realm. 1,000,000.
    pub max_queued: u64,
    /// Unsettled entries of all queues of a realm in sum; a realm there refuses, whatever
    /// `overflow` says. None.
    pub max_queued_per_realm: Option<u64>,
    /// What counts instead of these two once it was set; nothing.
    pub realms: RealmBounds,
    /// What a full queue does. Refuse.
    pub overflow: Overflow,
    /// How long a user's own id is remembered. 5 min.
    pub dedupe_window: Duration,
    /// How many of them per realm. 1,000,000.
    pub dedupe_max: usize,
    /// Dead letters per realm. 10,000.
    pub dlq_max_per_realm: usize,
    /// How long they are kept. 7 d.
    pub dlq_ttl: Duration,
    /// How long the mark of a silent producer instance is kept. 24 h.
    pub mark_idle: Duration,
    /// How many of them per realm. 100,000.
    pub marks_per_realm: usize,
}

impl Bounds {
    /// What may wait in a realm at this moment.
    pub fn quota(&self, realm: &RealmId) -> Quota {
        self.realms.quota(realm).unwrap_or_else(|| self.base())
    }

    /// What may wait in a realm of which nothing was set.
    pub fn base(&self) -> Quota {
        Quota {
            queue: self.max_queued,
            queued: self.max_queued_per_realm.unwrap_or(Quota::ANY),
            bytes: Quota::ANY,
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        Self {
            max_queued: 1_000_000,
            max_queued_per_realm: None,
            realms: RealmBounds::default(),
            overflow: Overflow::Reject,
            dedupe_window: Duration::from_secs(300),
            dedupe_max: 1_000_000,
            dlq_max_per_realm: 10_000,
            dlq_ttl: 7 * 24 * HOUR,
            mark_idle: 24 * HOUR,
            marks_per_realm: 100_000,
        }
    }
}

/// What may wait in one realm; [`Quota::ANY`]: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Unsettled entries of one queue; delayed messages of the realm.
    pub queue: u64,
    /// Unsettled entries of all its queues in sum.
    pub queued: u64,
    /// Bytes of the messages that the store keeps for its queues; see
    /// [`Store::append`](crate::store::Store::append).
    pub bytes: u64,
}

impl Quota {
    /// No bound.
    pub const ANY: u64 = u64::MAX;

    /// Whether so many entries and bytes may wait in the realm.
    pub(in crate::store) fn admit(&self, queued: u64, bytes: u64) -> Result<(), Full> {
        match (queued > self.queued, bytes > self.bytes) {
            (true, _) => Err(Full::Realm),
            (_, true) => Err(Full::Bytes),
            _ => Ok(()),
        }
    }
}

/// The bound that a refused message met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Full {
    Queues,
    Realm,
    Bytes,
    Delayed,
}

impl From<Full> for Error {
    fn from(full: Full) -> Self {
        let why = match full {
            Full::Queues => "every queue that wants this message is full (max_queued)",
            Full::Realm => {
                "the realm has as many messages waiting as it may (max_queued_per_realm)"
            }
            Full::Bytes => {
                "the messages that wait in the realm would be larger than they may be in sum \
                 (max_queued_bytes_per_realm)"
            }
            Full::Delayed => "the realm holds as many delayed messages as it may (max_queued)",
        };
        Self::new(ErrorKind::QueueFull, why)
    }
}

/// What may wait in realms; clones share what is set, also while stores run.
#[derive(Debug, Clone, Default)]
pub struct RealmBounds(Arc<ArcSwapOption<Table>>);

#[derive(Debug, PartialEq, Eq)]
struct Table {
    base: Quota,
    own: HashMap<RealmId, Quota>,
}

impl RealmBounds {
    /// From now on what `own` says of a realm may wait in it, else `base`.
    pub fn set(&self, base: Quota, own: HashMap<RealmId, Quota>) {
        self.0.store(Some(Arc::new(Table { base, own })));
    }

    /// `None`: nothing was set.
    fn quota(&self, realm: &RealmId) -> Option<Quota> {
        let table = self.0.load();
        let table = table.as_ref()?;
        Some(table.own.get(realm).copied().unwrap_or(table.base))
    }
}

impl PartialEq for RealmBounds {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0.load() == *other.0.load()
    }
}

impl Eq for RealmBounds {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_counts_in_every_clone_and_a_realm_has_its_own() {
        let bounds = Bounds {
            max_queued_per_realm: Some(9),
            ..Bounds::default()
        };
        let (one, other) = (RealmId::default(), RealmId::parse("acme").unwrap());
        let clone = bounds.clone();
        assert_eq!(clone.quota(&one), bounds.base());
        let quota = |queue, queued, bytes| Quota {
            queue,
            queued,
            bytes,
        };
        assert_eq!(clone.quota(&one), quota(1_000_000, 9, Quota::ANY));
        let small = quota(1, 2, 3);
        let large = quota(Quota::ANY, 5, Quota::ANY);
        bounds.realms.set(large, [(other.clone(), small)].into());
        assert_eq!((clone.quota(&one), clone.quota(&other)), (large, small));
        bounds.realms.set(small, [(other.clone(), large)].into());
        assert_eq!((clone.quota(&one), clone.quota(&other)), (small, large));
    }

    #[test]
    fn a_refusal_says_which_bound_was_met() {
        let quota = Quota {
            queue: 1,
            queued: 2,
            bytes: 3,
        };
        assert_eq!(quota.admit(2, 3), Ok(()));
        assert_eq!(quota.admit(3, 4), Err(Full::Realm));
        assert_eq!(quota.admit(2, 4), Err(Full::Bytes));
        for (full, name) in [
            (Full::Queues, "(max_queued)"),
            (Full::Realm, "(max_queued_per_realm)"),
            (Full::Bytes, "(max_queued_bytes_per_realm)"),
            (Full::Delayed, "(max_queued)"),
        ] {
            let error = Error::from(full);
            assert_eq!(error.kind(), ErrorKind::QueueFull);
            assert!(error.message().contains(name), "{error}");
        }
    }
}
