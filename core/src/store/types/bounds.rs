//! What a store keeps at most, and of that what may change while it runs. Knows no store.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::Overflow;
use crate::model::RealmId;

/// What a store keeps at most (P16, P25); given at construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Unsettled entries per queue; delayed messages per realm. 1,000,000.
    pub max_queued: u64,
    /// Unsettled entries of all queues of a realm in sum; a realm there refuses, whatever
    /// `overflow` says. None.
    pub max_queued_per_realm: Option<u64>,
    /// What counts instead of `max_queued_per_realm` once it was set; nothing.
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
    /// Unsettled entries that all queues of a realm may have in sum; `u64::MAX`: any number.
    pub fn queued_in(&self, realm: &RealmId) -> u64 {
        let set = self.realms.queued_in(realm);
        set.unwrap_or(self.max_queued_per_realm).unwrap_or(u64::MAX)
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

/// How many messages may wait in realms; clones share what is set, also while stores run.
#[derive(Debug, Clone, Default)]
pub struct RealmBounds(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_set: AtomicBool,
    table: ArcSwap<Table>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    base: Option<u64>,
    own: HashMap<RealmId, Option<u64>>,
}

impl RealmBounds {
    /// From now on a realm may hold what `own` says of it, else `base`; `None`: any number.
    pub fn set(&self, base: Option<u64>, own: HashMap<RealmId, Option<u64>>) {
        self.0.table.store(Arc::new(Table { base, own }));
        self.0.is_set.store(true, Ordering::Release);
    }

    /// `None`: nothing was set.
    fn queued_in(&self, realm: &RealmId) -> Option<Option<u64>> {
        if !self.0.is_set.load(Ordering::Acquire) {
            return None;
        }
        let table = self.0.table.load();
        Some(table.own.get(realm).copied().unwrap_or(table.base))
    }
}

impl PartialEq for RealmBounds {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0.table.load() == *other.0.table.load()
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
        assert_eq!(clone.queued_in(&one), 9);
        bounds.realms.set(None, [(other.clone(), Some(2))].into());
        assert_eq!(
            (clone.queued_in(&one), clone.queued_in(&other)),
            (u64::MAX, 2)
        );
        bounds.realms.set(Some(5), [(other.clone(), None)].into());
        assert_eq!(
            (clone.queued_in(&one), clone.queued_in(&other)),
            (5, u64::MAX)
        );
    }
}
