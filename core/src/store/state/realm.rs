//! What is there once per realm. Knows no queue from within.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::Key;

use super::super::types::{LogId, QueueId, QueueKind};
use super::keep::Uids;
use super::marks::Marks;

/// A realm. It goes when nothing is in it.
#[derive(Debug)]
pub(crate) struct Realm<U> {
    /// Its number; a name that comes again has another one.
    pub(crate) id: u64,
    pub(crate) logs: HashMap<Key, LogId>,
    pub(crate) queues: HashMap<(LogId, QueueKind, Arc<str>), QueueId>,
    /// Unsettled entries of all its queues.
    pub(crate) queued: u64,
    pub(crate) delayed: u64,
    pub(crate) dead: usize,
    pub(crate) marks: Marks<U>,
}

impl<U: Uids> Realm<U> {
    pub(crate) fn new(id: u64, uids: U, is_noted: bool) -> Self {
        Self {
            id,
            logs: HashMap::new(),
            queues: HashMap::new(),
            queued: 0,
            delayed: 0,
            dead: 0,
            marks: Marks::new(uids, is_noted),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.delayed == 0 && self.marks.is_empty() && self.dead == 0
    }
}
