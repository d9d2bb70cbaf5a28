//! What a store says of itself: counters, gaps, health, upkeep done.
//!
//! Plain values without behaviour. Used by the stores, the broker and whoever shows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::RealmId;

/// What one bite of [`Store::maintain`](crate::store::Store::maintain) did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Maintained {
    /// There is more to do.
    pub more: bool,
    /// Entries that it found expired and settled, one per queue that would have got them, by realm.
    pub expired: BTreeMap<RealmId, u64>,
}

/// What a store has counted since it was made; none ever falls (P38).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreCounters {
    /// Entries written to logs.
    pub appended: u64,
    /// Messages that were known already.
    pub duplicates: u64,
    /// Entries that expired unsettled, one per queue that would have got it.
    pub expired: u64,
    /// Entries refused by full queues, one per queue.
    pub refused: u64,
    /// Entries dropped by full queues for newer ones, one per queue.
    pub dropped_oldest: u64,
    /// Entries that became dead letters.
    pub buried: u64,
    /// Dead letters dropped because there were too many.
    pub dead_letters_dropped: u64,
    /// Dead letters that ended by age.
    pub dead_letters_expired: u64,
    /// Entries set aside because their stored bytes are damaged, one per queue that met them (P7).
    pub damaged: u64,
    /// Calls that a custom store refused or did not answer in time.
    pub failures: u64,
}

/// Something that a store cannot hold of what is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The promise, as `P10`.
    pub promise: &'static str,
    /// What that means, in one sentence.
    pub what: &'static str,
}

/// What a store holds, all realms in sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    /// Unsettled entries, one per queue.
    pub messages: u64,
    /// About how many bytes their messages have, each counted once per queue.
    pub bytes: u64,
    /// When the oldest of them was produced.
    pub oldest: Option<Timestamp>,
    /// Messages that are held until they are due.
    pub delayed: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// How a store is doing (P27).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreHealth {
    /// What it holds, as of its last upkeep or later; `None`: it has not been counted yet.
    pub holding: Option<Holding>,
    /// It cannot do all that it promises at this moment.
    pub is_degraded: bool,
    /// What went wrong last, and when.
    pub last_error: Option<(Timestamp, Arc<str>)>,
    /// What an operator should know although nothing has failed, one sentence each.
    pub warnings: Vec<String>,
    /// Sizes by name, for stats and metrics.
    pub figures: Vec<(&'static str, u64)>,
}
