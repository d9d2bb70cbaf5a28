//! Queues that hold only so much (P25), by what the store says of how full they are.

use std::collections::{BTreeMap, BTreeSet};

use super::book::*;
use super::life::Life;
use super::link::keys;
use crate::clock::Timestamp;
use crate::store::Overflow;

/// How many more messages the store takes.
#[derive(Default)]
pub(super) struct Rooms {
    /// Queues that are not in it take any number.
    pub(super) queues: BTreeMap<Qid, u64>,
    /// Queues whose room may be taken by what they perhaps do not take.
    pub(super) uncertain: BTreeSet<Qid>,
    /// Of delayed ones.
    pub(super) delayed: u64,
    /// What is produced now is held, see [`super::held`].
    pub(super) is_held: bool,
    /// Something is held, and takes its room later than it was produced.
    pub(super) is_doubtful: bool,
}

/// More than any life produces.
const PLENTY: u64 = 1_000;

impl Life {
    pub(super) fn rooms(&self) -> Rooms {
        let max = self.bounds.max_queued;
        let mut held = self.inner.delayed(usize::MAX, Timestamp(u64::MAX));
        let (held, _) = held.take_ready().unwrap().unwrap();
        let delayed = max.saturating_sub(held.len() as u64);
        if max > PLENTY || self.bounds.overflow == Overflow::DropOldest {
            return Rooms {
                delayed,
                ..Rooms::default()
            };
        }
        let keys = keys();
        let records = self.inner.queues().take_ready().unwrap().unwrap();
        let room = |record: &crate::store::QueueRecord| {
            let key = keys.iter().position(|key| **key == record.spec.key);
            let qid = (key.unwrap(), record.spec.name.to_string());
            (qid, max.saturating_sub(record.depth))
        };
        Rooms {
            queues: records.iter().map(room).collect(),
            delayed,
            ..Rooms::default()
        }
    }

    /// A message has come into queues, or may have, that drop others for it.
    pub(super) fn crowd(&mut self, queues: &[Qid]) {
        if self.bounds.max_queued > PLENTY || self.bounds.overflow == Overflow::Reject {
            return;
        }
        // What nobody knows of may take the place of others too.
        let is_loose = |sent: &&Sent| sent.is_loose && !sent.is_cast;
        let loose = self.book.sent.iter().filter(is_loose).count();
        let max = usize::try_from(self.bounds.max_queued).unwrap();
        for qid in queues {
            let queue = &self.book.queues[qid];
            // What was not settled in its turn keeps its place before what waits for its first.
            let was_sent = |entry: &&Entry| entry.attempts > 0 || entry.was_recalled;
            let sent = queue.entries.values().filter(was_sent).count();
            // The newest stays unless one that nobody knows of came after it.
            let newest = usize::from(loose == 0);
            let kept = max.saturating_sub(loose + sent).max(newest);
            let gone = queue.line.len().saturating_sub(kept);
            let gone: Vec<usize> = queue.line[..gone].to_vec();
            for n in gone {
                self.book.waver(qid, n);
            }
        }
    }
}

impl Sent {
    /// Nobody who wants it has room for it.
    pub(super) fn is_full(&self) -> bool {
        self.full > 0 && self.certain.is_empty() && self.possible.is_empty() && !self.may_be_full
    }
}
