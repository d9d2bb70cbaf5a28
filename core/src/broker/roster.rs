//! A list that is read on every message and changed rarely: changes are O(1) under a lock, readers
//! share a snapshot that is rebuilt once after a change. What was removed lives on in the snapshot until
//! the next reader, so somebody should read now and then. Knows nothing of what is listed.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use indexmap::IndexMap;
use parking_lot::Mutex;

/// Values by key, in no promised order once something was removed.
pub(super) struct Roster<K, V> {
    table: Mutex<IndexMap<K, V>>,
    snapshot: ArcSwap<Vec<V>>,
    stale: AtomicBool,
    count: AtomicUsize,
}

impl<K: Hash + Eq, V: Clone> Roster<K, V> {
    pub(super) fn new() -> Self {
        Self {
            table: Mutex::new(IndexMap::new()),
            snapshot: ArcSwap::from_pointee(Vec::new()),
            stale: AtomicBool::new(false),
            count: AtomicUsize::new(0),
        }
    }

    /// Adds or replaces; what was there before.
    pub(super) fn insert(&self, key: K, value: V) -> Option<V> {
        let mut table = self.table.lock();
        let before = table.insert(key, value);
        self.count.store(table.len(), Ordering::Release);
        self.stale.store(true, Ordering::Release);
        before
    }

    pub(super) fn remove(&self, key: &K) -> Option<V> {
        let mut table = self.table.lock();
        let gone = table.swap_remove(key);
        if table.is_empty() {
            // A list that was long once does not keep its memory.
            *table = IndexMap::new();
        }
        self.count.store(table.len(), Ordering::Release);
        self.stale.store(true, Ordering::Release);
        gone
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// All values now. O(1) unless something has changed since the last call.
    pub(super) fn all(&self) -> Arc<Vec<V>> {
        if self.stale.load(Ordering::Acquire) {
            let table = self.table.lock();
            // Not stale before the new one is there: nobody may miss a change made before the call.
            if self.stale.load(Ordering::Acquire) {
                self.snapshot
                    .store(Arc::new(table.values().cloned().collect()));
                self.stale.store(false, Ordering::Release);
            }
        }
        self.snapshot.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_shows_every_change_made_before_it() {
        let roster = Roster::new();
        assert!(roster.all().is_empty());
        roster.insert(1, "a");
        roster.insert(2, "b");
        let before = roster.all();
        assert_eq!(roster.insert(1, "c"), Some("a"));
        roster.remove(&2);
        assert_eq!(*before, ["a", "b"]);
        assert_eq!(*roster.all(), ["c"]);
        assert!(Arc::ptr_eq(&roster.all(), &roster.all()));
    }
}
