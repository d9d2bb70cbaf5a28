//! What waits in all queues in sum, for statistics: how many at any moment, bytes and the oldest by a
//! walk that visits some queues at each upkeep. Changes nothing that is kept.

use crate::clock::Timestamp;

use super::super::types::{Holding, Overflow, QueueId};
use super::keep::{Held as _, Keep};
use super::state::State;

/// Queues that one bite of upkeep visits.
const QUEUES: usize = 256;

#[derive(Debug, Default, Clone, Copy)]
struct Waits {
    bytes: u64,
    oldest: Option<Timestamp>,
}

/// A walk over all queues, and what the last one found.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    line: Vec<QueueId>,
    sum: Waits,
    last: Waits,
}

impl<K: Keep> State<K> {
    /// Goes on with the walk, a bite of it.
    pub(crate) fn sample(&mut self) {
        if self.sample.line.is_empty() {
            self.sample.line.extend(self.queues.keys());
        }
        for _ in 0..QUEUES {
            let Some(id) = self.sample.line.pop() else {
                break;
            };
            // It may have gone meanwhile.
            if let Some(waits) = self.waits(id) {
                let sum = &mut self.sample.sum;
                sum.bytes += waits.bytes;
                sum.oldest = sum.oldest.into_iter().chain(waits.oldest).min();
            }
        }
        if self.sample.line.is_empty() {
            self.sample.last = std::mem::take(&mut self.sample.sum);
        }
    }

    /// What is held at this moment, bytes and the oldest as of the last walk.
    pub(crate) fn holding(&self) -> Holding {
        let mut holding = Holding::default();
        for realm in self.realms.values() {
            holding.messages += realm.queued;
            holding.delayed += realm.delayed;
            holding.dead_letters += realm.dead as u64;
        }
        if holding.messages > 0 {
            holding.bytes = self.sample.last.bytes;
            holding.oldest = self.sample.last.oldest;
        }
        holding
    }

    fn waits(&self, id: QueueId) -> Option<Waits> {
        let queue = self.queues.get(&id)?;
        let log = self.logs.get(&queue.log)?;
        if queue.depth(log) == 0 {
            return None;
        }
        let drops = self.bounds.overflow == Overflow::DropOldest;
        let (bytes, first) = queue.glance(log, drops);
        let exception = match queue.exceptions {
            0 => None,
            _ => self.keep.first_exception(id),
        };
        let first = first.and_then(|seq| log.get(seq));
        let produced = first.iter().chain(&exception).map(|held| held.produced());
        Some(Waits {
            bytes,
            oldest: produced.min(),
        })
    }
}
