//! A store without sharing and without laziness: every queue keeps its own entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::Message;

use super::super::super::types::{
    Bounds, DeadLetterId, LogId, Overflow, QueueId, Seq, StoreCounters,
};
use super::realm;

#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) message: Arc<Message>,
    pub(super) due: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct ModelQueue {
    pub(super) id: QueueId,
    pub(super) durable: bool,
    pub(super) is_left: bool,
    pub(super) items: BTreeMap<Seq, Item>,
}

impl ModelQueue {
    fn wants(&self, message: &Message) -> bool {
        !self.is_left && (self.durable || message.guaranteed)
    }

    /// Drops its oldest in their turn until it has so many of them; how many it dropped.
    fn drop_down_to(&mut self, most: u64) -> u64 {
        let waiting = self.items.iter().filter(|(_, item)| item.due.is_none());
        let waiting: Vec<Seq> = waiting.map(|(seq, _)| *seq).collect();
        let over = (waiting.len() as u64).saturating_sub(most);
        for seq in waiting.iter().take(over as usize) {
            self.items.remove(seq);
        }
        over
    }

    pub(super) fn drop_expired(&mut self, now: Timestamp, matches: impl Fn(&Item) -> bool) -> u64 {
        let before = self.items.len();
        self.items
            .retain(|_, item| !matches(item) || !item.message.is_expired(now));
        (before - self.items.len()) as u64
    }
}

/// Every queue keeps its own entries; nothing is shared, nothing is lazy.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) bounds: Bounds,
    pub(super) head: Seq,
    pub(super) log: LogId,
    pub(super) queues: BTreeMap<usize, ModelQueue>,
    pub(super) dead: BTreeMap<DeadLetterId, Arc<Message>>,
    pub(super) counters: StoreCounters,
}

impl Model {
    pub(super) fn sum(&self) -> u64 {
        self.queues
            .values()
            .map(|queue| queue.items.len() as u64)
            .sum()
    }

    pub(super) fn live(&mut self, queue: usize) -> Option<&mut ModelQueue> {
        self.queues.get_mut(&queue).filter(|queue| !queue.is_left)
    }

    /// How many take the message; `None` if it is refused.
    pub(super) fn append(&mut self, message: &Arc<Message>, skip: Option<QueueId>) -> Option<u32> {
        let quota = self.bounds.quota(&realm());
        let max = quota.queue;
        let is_dropping = self.bounds.overflow == Overflow::DropOldest;
        for queue in self.queues.values_mut() {
            if is_dropping && queue.wants(message) {
                self.counters.dropped_oldest += queue.drop_down_to(max);
            }
        }
        let sum = self.sum();
        let takers = self.queues.values_mut();
        let takers = takers.filter(|q| q.wants(message));
        let takers = takers.filter(|q| Some(q.id) != skip);
        let (full, free): (Vec<_>, Vec<_>) = takers.partition(|q| q.items.len() as u64 >= max);
        let is_over = sum + free.len() as u64 > quota.queued;
        let (counts_full, mut taking) = (full.len(), free);
        if is_dropping {
            taking.extend(full);
        }
        let refused = if is_dropping { 0 } else { counts_full };
        if taking.is_empty() && refused == 0 {
            return Some(0);
        }
        self.counters.refused += refused as u64;
        if is_over || taking.is_empty() {
            self.counters.refused += taking.len() as u64;
            return None;
        }
        self.head += 1;
        self.counters.appended += 1;
        let count = u32::try_from(taking.len()).unwrap();
        for queue in taking {
            let is_full = queue.items.len() as u64 >= max;
            let mut items = queue.items.iter();
            let oldest = items.find(|(_, item)| item.due.is_none());
            if let Some(oldest) = oldest.map(|(seq, _)| *seq).filter(|_| is_full) {
                queue.items.remove(&oldest);
                self.counters.dropped_oldest += 1;
            }
            let item = Item {
                message: Arc::clone(message),
                due: None,
            };
            queue.items.insert(self.head, item);
        }
        Some(count)
    }

    pub(super) fn maintain(&mut self, now: Timestamp) {
        for queue in self.queues.values_mut() {
            self.counters.expired += queue.drop_expired(now, |_| true);
        }
        self.queues
            .retain(|_, queue| !queue.is_left || !queue.items.is_empty());
    }
}
