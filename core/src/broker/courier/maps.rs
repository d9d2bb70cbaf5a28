//! For tests: a store of maps with one log and one queue, as plain as can be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::Message;
use crate::store::{Burial, Due, Entry, Exception, Page, PageLimit, QueueChange, Seq, Settled};

/// The store: one log, one queue.
#[derive(Default)]
pub(super) struct Maps {
    pub(super) log: Vec<Arc<Message>>,
    pub(super) low: Seq,
    pub(super) sent: Seq,
    pub(super) settled: BTreeSet<Seq>,
    pub(super) rows: BTreeMap<Seq, Exception>,
    pub(super) dead: BTreeMap<Seq, Burial>,
    pub(super) writes: usize,
}

impl Maps {
    pub(super) fn is_settled(&self, seq: Seq) -> bool {
        let is_known = seq >= 1 && seq <= self.log.len() as Seq;
        is_known
            && !self.rows.contains_key(&seq)
            && (seq <= self.low || self.settled.contains(&seq))
    }

    fn entry(&self, seq: Seq) -> Entry {
        let row = self.rows.get(&seq);
        Entry {
            seq,
            message: Arc::clone(&self.log[seq as usize - 1]),
            attempts: row.map_or(u32::from(seq <= self.sent), |row| row.attempts),
            failures: row.map_or(0, |row| row.failures),
            returns: row.map_or(0, |row| row.returns),
            due: row.map(|row| row.due),
            first_error: row.and_then(|row| row.first_error.clone()),
            last_error: row.and_then(|row| row.last_error.clone()),
            suspect: row.is_some_and(|row| row.suspect),
        }
    }

    pub(super) fn page(&self, after: Seq, limit: usize) -> Page {
        let head = self.log.len() as Seq;
        let open = |seq: &Seq| {
            *seq > self.low && !self.settled.contains(seq) && !self.rows.contains_key(seq)
        };
        let seqs: Vec<Seq> = (after + 1..=head).filter(open).take(limit).collect();
        let next = match seqs.last() {
            Some(last) if seqs.len() == limit => *last,
            _ => head,
        };
        Page {
            entries: seqs.into_iter().map(|seq| self.entry(seq)).collect(),
            next,
            expired: 0,
            end: next == head,
        }
    }

    pub(super) fn due(&self, limit: PageLimit, now: Timestamp) -> Due {
        let mut rows: Vec<_> = self.rows.values().map(|row| (row.due, row.seq)).collect();
        rows.sort_unstable();
        let due = rows
            .iter()
            .filter(|(due, _)| *due <= now)
            .take(limit.entries);
        let entries: Vec<Entry> = due.map(|(_, seq)| self.entry(*seq)).collect();
        Due {
            next: rows.get(entries.len()).map(|(due, _)| *due),
            entries,
            expired: 0,
        }
    }

    pub(super) fn browse(&self, after: Seq, limit: usize) -> Vec<Entry> {
        let seqs = after + 1..=self.log.len() as Seq;
        let open = seqs.filter(|seq| !self.is_settled(*seq)).take(limit);
        open.map(|seq| self.entry(seq)).collect()
    }

    pub(super) fn update(&mut self, change: QueueChange) {
        self.writes += 1;
        for row in change.except {
            if !self.is_settled(row.seq) {
                self.rows.insert(row.seq, row);
            }
        }
        for seq in change.clear {
            if self.rows.remove(&seq).is_some() {
                self.settled.insert(seq);
            }
        }
        self.settled.extend(change.done);
        for burial in change.bury {
            if !self.is_settled(burial.seq) {
                self.rows.remove(&burial.seq);
                self.settled.insert(burial.seq);
                self.dead.insert(burial.seq, burial);
            }
        }
        self.low = self.low.max(change.low.unwrap_or(0));
        self.sent = self.sent.max(change.sent.unwrap_or(0));
    }

    pub(super) fn settle(&mut self, seqs: &[Seq]) -> Vec<Settled> {
        let settle = |seq: &Seq| {
            if *seq == 0 || *seq > self.log.len() as Seq {
                return Settled::Unknown;
            }
            if self.is_settled(*seq) {
                return Settled::Before;
            }
            self.rows.remove(seq);
            self.settled.insert(*seq);
            Settled::Now
        };
        seqs.iter().map(settle).collect()
    }
}
