//! What attached queues are fed after a commit, gathered by log (P8).
//!
//! Made and used by [`super::Staged`]; waits for nothing.

use std::sync::Arc;

use indexmap::IndexMap;
use smallvec::SmallVec;

use super::Given;
use crate::broker::listen::{KeyEntry, Slot};
use crate::broker::member::Member;
use crate::broker::queue::Fed;
use crate::store::{LogId, Placed, QueueId, Seq};

/// What attached queues are to be fed, by log, and how far each log has got.
#[derive(Default)]
pub(super) struct Feeds {
    logs: IndexMap<LogId, Feed>,
    ends: SmallVec<[(Arc<KeyEntry>, LogId, Seq); 2]>,
}

struct Feed {
    key: Arc<KeyEntry>,
    entries: Vec<Fed>,
    /// Which queue does not get which of them.
    skips: Vec<(QueueId, Seq)>,
    /// The last one that some queue was too full for; only the store knows which.
    refused: Option<Seq>,
}

impl Feeds {
    pub(super) fn add(&mut self, placed: &Placed, given: &Given) {
        // Of what no queue had room for the log has nothing.
        if placed.queued == 0 {
            return;
        }
        let mut keys = given.keys.iter();
        let Some(key) = keys.find(|key| key.log() == Some(placed.log)) else {
            return;
        };
        match self.ends.iter_mut().find(|(_, log, _)| *log == placed.log) {
            Some((_, _, end)) => *end = placed.seq,
            None => self.ends.push((key.clone(), placed.log, placed.seq)),
        }
        if key.attached.len() == 0 {
            return;
        }
        let feed = self.logs.entry(placed.log).or_insert_with(|| Feed {
            key: key.clone(),
            entries: Vec::new(),
            skips: Vec::new(),
            refused: None,
        });
        if placed.refused > 0 {
            feed.refused = Some(placed.seq);
            return;
        }
        let skips = given.skip.iter().map(|queue| (*queue, placed.seq));
        feed.skips.extend(skips);
        feed.entries.push(Fed {
            seq: placed.seq,
            message: given.message.clone(),
        });
    }

    pub(super) fn flush(&mut self, producer: &Member) {
        producer.note_stored(self.ends.drain(..));
        for (_, feed) in self.logs.drain(..) {
            feed.key.may_be_ahead();
            for slot in feed.key.attached.all().iter() {
                feed.to(slot);
            }
        }
    }
}

impl Feed {
    /// What a queue is not fed is a gap to it, and its courier reads what it is to get from there.
    fn to(&self, slot: &Slot) {
        if self.skips.iter().all(|(queue, _)| *queue != slot.id) {
            slot.queue.feed(&self.entries);
        } else {
            let is_for_it = |fed: &&Fed| !self.skips.contains(&(slot.id, fed.seq));
            let entries: Vec<Fed> = self.entries.iter().filter(is_for_it).cloned().collect();
            slot.queue.feed(&entries);
        }
        if let Some(seq) = self.refused {
            slot.queue.missed(seq);
        }
    }
}
