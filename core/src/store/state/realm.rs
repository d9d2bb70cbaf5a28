//! What is there once per realm. Knows no queue from within.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::Key;

use super::super::types::{LogId, QueueId, QueueKind};
use super::keep::Uids;
use super::marks::Marks;

/// A sum of bytes, shared by a realm and all that keeps messages for its queues. Until it is first
/// [set](Kept::set) it is what has come and gone since the store opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept(Arc<AtomicU64>);

impl Kept {
    /// That many more are kept.
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// That many were let go of.
    pub(crate) fn sub(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Whether both are the same realm's.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A realm. It goes when nothing is in it.
#[derive(Debug)]
pub(crate) struct Realm<U> {
    /// Its number; a name that comes again has another one.
    pub(crate) id: u64,
    pub(crate) logs: HashMap<Key, LogId>,
    pub(crate) queues: HashMap<(LogId, QueueKind, Arc<str>), QueueId>,
    /// Unsettled entries of all its queues.
    pub(crate) queued: u64,
    /// Bytes of the messages that are kept for them.
    pub(crate) kept: Kept,
    /// Whether that is known; else it was there when the store opened, and nobody has asked.
    pub(crate) is_weighed: bool,
    /// Unsettled entries that each of its queues may have, as far as its queues were told.
    pub(crate) max_queued: u64,
    pub(crate) delayed: u64,
    pub(crate) dead: usize,
    pub(crate) marks: Marks<U>,
}

impl<U: Uids> Realm<U> {
    pub(crate) fn new(id: u64, uids: U, max_queued: u64, is_noted: bool) -> Self {
        Self {
            id,
            logs: HashMap::new(),
            queues: HashMap::new(),
            queued: 0,
            kept: Kept::default(),
            is_weighed: true,
            max_queued,
            delayed: 0,
            dead: 0,
            marks: Marks::new(uids, is_noted),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.delayed == 0 && self.marks.is_empty() && self.dead == 0
    }
}
