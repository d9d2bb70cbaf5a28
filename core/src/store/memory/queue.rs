//! A reader of one log: what of it is settled, and where it stands among the other readers.
//!
//! A queue numbers the entries that are for it without gaps. One that takes every entry numbers
//! them by seq. One that takes guaranteed entries only does so up to `owned` (what it owned as
//! durable, or everything before it was opened) and then counts guaranteed entries on. So depth
//! and room are subtractions, and settled entries are runs. Everything up to `low` is settled, as
//! are `done` and what is gone from the log; the entry after `low` never is.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::Message;

use super::super::exceptions::{Exceptions, Row};
use super::super::runs::Runs;
use super::super::types::{
    LogId, QueueId, QueueKind, QueueRecord, QueueSettings, QueueSpec, Seq, Settled,
};
use super::log::{Class, Log, Totals};
use super::standing::Spot;

/// What a queue had when it was found full, or was forgotten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shut {
    /// The last number.
    pub(super) number: u64,
    pub(super) seq: Seq,
}

/// A queue, or what is left of a forgotten one.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: QueueId,
    pub(super) log: LogId,
    pub(super) kind: QueueKind,
    pub(super) name: Arc<str>,
    pub(super) settings: QueueSettings,
    pub(super) seen: Timestamp,
    pub(super) sent: Seq,
    /// Forgotten: it takes nothing more and waits for its TTL or its next opening.
    pub(super) is_left: bool,
    exceptions: Option<Box<Exceptions>>,
    /// Entries up to it never were for this queue.
    joined: Seq,
    /// For a queue of guaranteed entries: up to here every entry has a number.
    pub(super) owned: Seq,
    pub(super) owned_guaranteed: u64,
    pub(super) low: u64,
    pub(super) done: Runs,
    /// How many numbers above `low` are gone from the log.
    pub(super) gone: u64,
    pub(super) shut: Option<Shut>,
    pub(super) spot: Option<Spot>,
}

impl Queue {
    pub(super) fn new(id: QueueId, log: LogId, spec: QueueSpec, head: Totals) -> Self {
        Self {
            id,
            log,
            kind: spec.kind,
            name: spec.name,
            settings: spec.settings,
            seen: Timestamp::default(),
            sent: head.seq,
            is_left: false,
            exceptions: None,
            joined: head.seq,
            owned: head.seq,
            owned_guaranteed: head.guaranteed,
            low: head.seq,
            done: Runs::default(),
            gone: 0,
            shut: None,
            spot: None,
        }
    }

    pub(super) fn class(&self) -> Class {
        match self.settings.durable {
            true => Class::Every,
            false => Class::Guaranteed,
        }
    }

    /// What the queue was opened with; realm and key are its log's.
    fn spec(&self, log: &Log) -> QueueSpec {
        QueueSpec {
            realm: log.realm.clone(),
            key: log.key.clone(),
            kind: self.kind,
            name: Arc::clone(&self.name),
            settings: self.settings.clone(),
        }
    }

    pub(super) fn record(&self, log: &Log) -> QueueRecord {
        QueueRecord {
            queue: self.id,
            log: self.log,
            spec: self.spec(log),
            seen: self.seen,
            low: match self.low < self.end(log) {
                true => self.seq_of(self.low + 1, log) - 1,
                false => log.head().seq,
            },
            sent: self.sent,
            head: log.head().seq,
            exceptions: self.exceptions().map_or(0, Exceptions::len),
            depth: self.depth(log),
        }
    }

    pub(super) fn exceptions(&self) -> Option<&Exceptions> {
        self.exceptions.as_deref()
    }

    // --- Numbers ---

    /// The number up to a place in the log.
    pub(super) fn number_upto(&self, totals: Totals) -> u64 {
        match self.class() {
            Class::Guaranteed if totals.seq > self.owned => {
                // Entries that are let go may be counted to the end of their gap.
                self.owned + (totals.guaranteed - self.owned_guaranteed)
            }
            _ => totals.seq,
        }
    }

    /// The number of the last entry for it up to `seq`.
    fn upto(&self, seq: Seq, log: &Log) -> u64 {
        match self.class() {
            Class::Guaranteed if seq > self.owned => self.number_upto(log.totals_at(seq)),
            _ => seq.min(log.head().seq),
        }
    }

    /// The number of the entry at `seq`, if it is for this queue and the log still has it.
    fn number_of(&self, seq: Seq, log: &Log) -> Option<u64> {
        if self.class() == Class::Every || seq <= self.owned {
            return (seq <= log.head().seq).then_some(seq);
        }
        let message = log.get(seq)?;
        message.guaranteed.then(|| self.upto(seq, log))
    }

    pub(super) fn seq_of(&self, number: u64, log: &Log) -> Seq {
        match self.class() {
            Class::Guaranteed if number > self.owned => {
                log.seq_of_guaranteed(number - self.owned + self.owned_guaranteed)
            }
            _ => number,
        }
    }

    /// A low in the numbers of the class by which the log can tell what it pins.
    pub(super) fn in_class(&self, number: u64) -> (Class, u64) {
        match self.class() {
            Class::Guaranteed if number >= self.owned => {
                let guaranteed = number - self.owned + self.owned_guaranteed;
                (Class::Guaranteed, guaranteed)
            }
            _ => (Class::Every, number),
        }
    }

    /// The last number.
    pub(super) fn end(&self, log: &Log) -> u64 {
        let open = || self.number_upto(log.head());
        self.shut.map_or_else(open, |shut| shut.number)
    }

    /// Calls `each` with the runs of numbers within `first..=last` that are gone from the log.
    pub(super) fn each_gone(
        &self,
        first: u64,
        last: u64,
        log: &Log,
        mut each: impl FnMut(u64, u64),
    ) {
        let split = match self.class() {
            Class::Every => u64::MAX,
            Class::Guaranteed => self.owned,
        };
        for (first, last) in log.gone.within(first, last.min(split)) {
            each(first, last);
        }
        if last > split {
            let guaranteed = |number: u64| number - self.owned + self.owned_guaranteed;
            let number = |guaranteed: u64| guaranteed - self.owned_guaranteed + self.owned;
            let first = guaranteed(first.max(split + 1));
            for (first, last) in log.gone_guaranteed.within(first, guaranteed(last)) {
                each(number(first), number(last));
            }
        }
    }

    fn count_gone(&self, first: u64, last: u64, log: &Log) -> u64 {
        let mut count = 0;
        if self.gone > 0 {
            self.each_gone(first, last, log, |first, last| count += last - first + 1);
        }
        count
    }

    /// The last number of the run gone from the log that begins with or covers `number`.
    fn gone_end(&self, number: u64, log: &Log) -> Option<u64> {
        if self.gone == 0 {
            return None;
        }
        match self.class() {
            Class::Every => log.gone.end_of(number),
            Class::Guaranteed if number <= self.owned => {
                log.gone.end_of(number).map(|end| end.min(self.owned))
            }
            Class::Guaranteed => {
                let guaranteed = number - self.owned + self.owned_guaranteed;
                let end = log.gone_guaranteed.end_of(guaranteed)?;
                Some(end - self.owned_guaranteed + self.owned)
            }
        }
    }

    // --- What is settled ---

    /// Unsettled entries, exceptions included.
    pub(super) fn depth(&self, log: &Log) -> u64 {
        self.waiting(log) + self.exceptions().map_or(0, Exceptions::len)
    }

    /// Unsettled entries in their turn.
    fn waiting(&self, log: &Log) -> u64 {
        self.end(log) - self.low - self.done.len() - self.gone
    }

    /// Bytes of the unsettled entries.
    pub(super) fn bytes(&self, log: &Log) -> u64 {
        let upto = |number: u64| {
            let totals = log.totals_at(self.seq_of(number, log));
            match self.in_class(number).0 {
                Class::Guaranteed => {
                    let owned = log.totals_at(self.owned);
                    owned.bytes + totals.guaranteed_bytes - owned.guaranteed_bytes
                }
                Class::Every => totals.bytes,
            }
        };
        let span = |first: u64, last: u64| upto(last).saturating_sub(upto(first - 1));
        let end = self.end(log);
        if self.low >= end {
            return self.exceptions().map_or(0, Exceptions::bytes);
        }
        let mut settled: u64 = self
            .done
            .iter()
            .map(|(first, last)| span(first, last))
            .sum();
        if self.gone > 0 {
            self.each_gone(self.low + 1, end, log, |first, last| {
                settled += span(first, last)
            });
        }
        span(self.low + 1, end).saturating_sub(settled)
            + self.exceptions().map_or(0, Exceptions::bytes)
    }

    /// The first unsettled number after `number`.
    pub(super) fn next_waiting(&self, number: u64, log: &Log) -> Option<u64> {
        let end = self.end(log);
        let mut next = number.max(self.low) + 1;
        while next <= end {
            let settled = self.done.end_of(next).or_else(|| self.gone_end(next, log));
            match settled {
                Some(last) => next = last + 1,
                None => return Some(next),
            }
        }
        None
    }

    /// The number to read on from after `seq`.
    pub(super) fn reading_from(&self, seq: Seq, log: &Log) -> u64 {
        self.upto(seq, log)
    }

    fn is_waiting(&self, number: u64, log: &Log) -> bool {
        number > self.low
            && number <= self.end(log)
            && self.done.end_of(number).is_none()
            && self.gone_end(number, log).is_none()
    }

    /// The message of an entry that waits for its turn.
    pub(super) fn waiting_message<'a>(&self, seq: Seq, log: &'a Log) -> Option<&'a Arc<Message>> {
        let number = self.number_of(seq, log)?;
        self.is_waiting(number, log).then(|| log.get(seq))?
    }

    /// Settles an entry that waits for its turn.
    pub(super) fn settle_waiting(&mut self, seq: Seq, log: &Log) -> Settled {
        if seq <= self.joined || seq > log.head().seq {
            return Settled::Unknown;
        }
        match self.number_of(seq, log) {
            Some(number) if self.is_waiting(number, log) => {
                self.done.insert(number);
                Settled::Now
            }
            // The log has it, so it is known not to be for this queue.
            None if log.get(seq).is_some() => Settled::Unknown,
            _ => Settled::Before,
        }
    }

    /// Settles everything up to `seq`.
    pub(super) fn pass(&mut self, seq: Seq, log: &Log) {
        let low = self.upto(seq, log).min(self.end(log));
        if low > self.low {
            self.gone -= self.count_gone(self.low + 1, low, log);
            self.done.remove_run(0, low);
            self.low = low;
        }
    }

    /// Drops everything; how many were unsettled.
    pub(super) fn purge(&mut self, log: &Log) -> u64 {
        let depth = self.depth(log);
        self.exceptions = None;
        self.pass(log.head().seq, log);
        depth
    }

    /// Moves `low` over what is settled after it.
    pub(super) fn compact(&mut self, log: &Log) {
        let end = self.end(log);
        while self.low < end {
            let next = self.low + 1;
            if let Some(last) = self.done.end_of(next) {
                self.done.remove_run(next, last);
                self.low = last;
            } else if let Some(last) = self.gone_end(next, log) {
                let last = last.min(end);
                self.gone -= last - self.low;
                self.low = last;
            } else {
                break;
            }
        }
    }

    /// Takes note of entries that are gone from the log, given as runs of seqs and of guaranteed
    /// numbers, and not yet in `log.gone`; how many of them it still waited for.
    pub(super) fn lose(&mut self, every: &Runs, guaranteed: &Runs, log: &Log) -> u64 {
        let end = self.end(log);
        let mut lost = 0;
        let mut lose = |first: u64, last: u64| {
            let (first, last) = (first.max(self.low + 1), last.min(end));
            if first <= last {
                let count = last - first + 1;
                lost += count - self.done.remove_run(first, last);
                self.gone += count;
            }
        };
        match self.settings.durable {
            true => every.iter().for_each(|(first, last)| lose(first, last)),
            false => {
                let (owned, base) = (self.owned, self.owned_guaranteed);
                every
                    .within(0, owned)
                    .for_each(|(first, last)| lose(first, last));
                guaranteed
                    .within(base + 1, u64::MAX)
                    .for_each(|(first, last)| lose(first - base + owned, last - base + owned));
            }
        }
        lost
    }

    pub(super) fn except(&mut self, row: Row) {
        self.exceptions.get_or_insert_default().insert(row);
    }

    pub(super) fn exceptions_mut(&mut self) -> Option<&mut Exceptions> {
        self.exceptions.as_deref_mut()
    }

    pub(super) fn take_exception(&mut self, seq: Seq) -> Option<Row> {
        let exceptions = self.exceptions.as_mut()?;
        let row = exceptions.take(seq);
        if exceptions.len() == 0 {
            self.exceptions = None;
        }
        row
    }
}
