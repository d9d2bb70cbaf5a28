//! A reader of one log: what of it is settled, and where it stands among the other readers.
//!
//! A queue numbers the entries that are for it without gaps. One that takes every entry numbers
//! them by seq. One that takes guaranteed entries only does so up to `owned` (what it owned as
//! durable, or everything before it was opened) and then counts guaranteed entries on. So depth
//! and room are subtractions, and settled entries are runs. Everything up to `low` is settled, as
//! are `done` and what is gone from the log; the entry after `low` never is.

use std::sync::Arc;

use crate::clock::Timestamp;

use super::super::types::{
    LogId, QueueId, QueueKind, QueueRecord, QueueSettings, QueueSpec, Seq, Settled,
};
use super::keep::{Entries, Held as _};
use super::log::{Class, Log, Totals};
use super::runs::Runs;
use super::standing::Spot;

/// What a queue had when it was found full, or was forgotten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shut {
    /// The last number.
    pub(crate) number: u64,
    pub(crate) seq: Seq,
}

/// A queue, or what is left of a forgotten one.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) log: LogId,
    pub(crate) kind: QueueKind,
    pub(crate) name: Arc<str>,
    pub(crate) settings: QueueSettings,
    pub(crate) seen: Timestamp,
    pub(crate) sent: Seq,
    /// Forgotten: it takes nothing more and waits for its TTL or its next opening.
    pub(crate) is_left: bool,
    /// Its exceptions, and the bytes of their messages.
    pub(crate) exceptions: u64,
    pub(crate) exception_bytes: u64,
    /// Entries up to it never were for this queue.
    pub(crate) joined: Seq,
    /// For a queue of guaranteed entries: up to here every entry has a number.
    pub(crate) owned: Seq,
    pub(crate) owned_guaranteed: u64,
    pub(crate) low: u64,
    pub(crate) done: Runs,
    /// How many numbers above `low` are gone from the log.
    pub(crate) gone: u64,
    pub(crate) shut: Option<Shut>,
    pub(crate) spot: Option<Spot>,
}

impl Queue {
    /// A queue that begins at `head`; with `is_noted` its settled runs note their changes.
    pub(crate) fn new(
        id: QueueId,
        log: LogId,
        spec: QueueSpec,
        head: Totals,
        is_noted: bool,
    ) -> Self {
        Self {
            id,
            log,
            kind: spec.kind,
            name: spec.name,
            settings: spec.settings,
            seen: Timestamp::default(),
            sent: head.seq,
            is_left: false,
            exceptions: 0,
            exception_bytes: 0,
            joined: head.seq,
            owned: head.seq,
            owned_guaranteed: head.guaranteed,
            low: head.seq,
            done: Runs::new(is_noted),
            gone: 0,
            shut: None,
            spot: None,
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self.settings.durable {
            true => Class::Every,
            false => Class::Guaranteed,
        }
    }

    /// What the queue was opened with; realm and key are its log's.
    pub(crate) fn spec<E: Entries>(&self, log: &Log<E>) -> QueueSpec {
        QueueSpec {
            realm: log.realm.clone(),
            key: log.key.clone(),
            kind: self.kind,
            name: Arc::clone(&self.name),
            settings: self.settings.clone(),
        }
    }

    pub(crate) fn record<E: Entries>(&self, log: &Log<E>) -> QueueRecord {
        QueueRecord {
            queue: self.id,
            log: self.log,
            spec: self.spec(log),
            seen: self.seen,
            low: match self.low < self.end(log) {
                true => self.seq_of(self.low + 1, log).saturating_sub(1),
                false => log.head().seq,
            },
            sent: self.sent,
            head: log.head().seq,
            exceptions: self.exceptions,
            depth: self.depth(log),
        }
    }

    // --- Numbers ---

    /// The number up to a place in the log.
    pub(crate) fn number_upto(&self, totals: Totals) -> u64 {
        match self.class() {
            Class::Guaranteed if totals.seq > self.owned => {
                // Entries that are let go may be counted to the end of their gap.
                self.owned + totals.guaranteed.saturating_sub(self.owned_guaranteed)
            }
            _ => totals.seq,
        }
    }

    /// The number of the last entry for it up to `seq`.
    fn upto<E: Entries>(&self, seq: Seq, log: &Log<E>) -> u64 {
        match self.class() {
            Class::Guaranteed if seq > self.owned => self.number_upto(log.totals_at(seq)),
            _ => seq.min(log.head().seq),
        }
    }

    /// The number of the entry at `seq`, if it is for this queue and the log still has it.
    fn number_of<E: Entries>(&self, seq: Seq, log: &Log<E>) -> Option<u64> {
        if self.class() == Class::Every || seq <= self.owned {
            return (seq <= log.head().seq).then_some(seq);
        }
        let held = log.get(seq)?;
        held.is_guaranteed().then(|| self.upto(seq, log))
    }

    pub(crate) fn seq_of<E: Entries>(&self, number: u64, log: &Log<E>) -> Seq {
        match self.class() {
            Class::Guaranteed if number > self.owned => {
                log.seq_of_guaranteed(number - self.owned + self.owned_guaranteed)
            }
            _ => number,
        }
    }

    /// A low in the numbers of the class by which the log can tell what it pins.
    pub(crate) fn in_class(&self, number: u64) -> (Class, u64) {
        match self.class() {
            Class::Guaranteed if number >= self.owned => {
                let guaranteed = number - self.owned + self.owned_guaranteed;
                (Class::Guaranteed, guaranteed)
            }
            _ => (Class::Every, number),
        }
    }

    /// The last number.
    pub(crate) fn end<E: Entries>(&self, log: &Log<E>) -> u64 {
        let open = || self.number_upto(log.head());
        self.shut.map_or_else(open, |shut| shut.number)
    }

    /// Calls `each` with the runs of numbers within `first..=last` that are gone from the log.
    pub(crate) fn each_gone<E: Entries>(
        &self,
        first: u64,
        last: u64,
        log: &Log<E>,
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

    fn count_gone<E: Entries>(&self, first: u64, last: u64, log: &Log<E>) -> u64 {
        let mut count = 0;
        if self.gone > 0 {
            self.each_gone(first, last, log, |first, last| count += last - first + 1);
        }
        count
    }

    /// The last number of the run gone from the log that begins with or covers `number`.
    fn gone_end<E: Entries>(&self, number: u64, log: &Log<E>) -> Option<u64> {
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

    /// Whether its numbers can be: what another store tells may be anything.
    pub(crate) fn fits<E: Entries>(&self, log: &Log<E>) -> bool {
        let head = log.head();
        let is_within = self.owned <= head.seq && self.owned_guaranteed <= head.guaranteed;
        let shut = self.shut.map_or((0, 0), |shut| (shut.number, shut.seq));
        let (open, end) = match is_within {
            true => (self.number_upto(head), self.end(log)),
            false => return false,
        };
        let mut done = self.done.iter();
        self.joined <= head.seq
            && shut.0 <= open
            && shut.1 <= head.seq
            && self.low <= end
            && done.all(|(first, last)| first > self.low && first <= last && last <= end)
            && (end - self.low).checked_sub(self.done.len()) >= Some(self.gone)
    }

    // --- What is settled ---

    /// Unsettled entries, exceptions included.
    pub(crate) fn depth<E: Entries>(&self, log: &Log<E>) -> u64 {
        self.waiting(log) + self.exceptions
    }

    /// Changes how many bytes its exceptions have.
    pub(crate) fn weigh_exceptions<E: Entries>(
        &mut self,
        log: &Log<E>,
        change: impl FnOnce(u64) -> u64,
    ) {
        log.kept.sub(self.exception_bytes);
        self.exception_bytes = change(self.exception_bytes);
        log.kept.add(self.exception_bytes);
    }

    /// Unsettled entries in their turn.
    pub(crate) fn waiting<E: Entries>(&self, log: &Log<E>) -> u64 {
        self.end(log) - self.low - self.done.len() - self.gone
    }

    /// Bytes of all entries with these numbers.
    fn span<E: Entries>(&self, first: u64, last: u64, log: &Log<E>) -> u64 {
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
        upto(last).saturating_sub(upto(first - 1))
    }

    /// About how many bytes its unsettled entries have, and where the first in its turn is, without
    /// a look at what is settled between them. `drops`: when it is full it drops its oldest.
    pub(crate) fn glance<E: Entries>(&self, log: &Log<E>, drops: bool) -> (u64, Option<Seq>) {
        let end = self.end(log);
        let missed = match drops && !self.is_left {
            true => self.number_upto(log.head()).saturating_sub(end),
            false => 0,
        };
        let (low, end) = (self.low + missed, end + missed);
        if low >= end {
            return (self.exception_bytes, None);
        }
        let (all, waiting) = (u128::from(end - low), u128::from(self.waiting(log)));
        let bytes = u128::from(self.span(low + 1, end, log)) * waiting / all;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let first = Some(self.seq_of(low + 1, log));
        (bytes.saturating_add(self.exception_bytes), first)
    }

    /// Bytes of the unsettled entries.
    pub(crate) fn bytes<E: Entries>(&self, log: &Log<E>) -> u64 {
        let span = |first: u64, last: u64| self.span(first, last, log);
        let end = self.end(log);
        if self.low >= end {
            return self.exception_bytes;
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
        span(self.low + 1, end).saturating_sub(settled) + self.exception_bytes
    }

    /// The first unsettled number after `number`.
    pub(crate) fn next_waiting<E: Entries>(&self, number: u64, log: &Log<E>) -> Option<u64> {
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
    pub(crate) fn reading_from<E: Entries>(&self, seq: Seq, log: &Log<E>) -> u64 {
        self.upto(seq, log)
    }

    fn is_waiting<E: Entries>(&self, number: u64, log: &Log<E>) -> bool {
        number > self.low
            && number <= self.end(log)
            && self.done.end_of(number).is_none()
            && self.gone_end(number, log).is_none()
    }

    /// The message of an entry that waits for its turn.
    pub(crate) fn waiting_message<E: Entries>(&self, seq: Seq, log: &Log<E>) -> Option<E::Held> {
        let number = self.number_of(seq, log)?;
        self.is_waiting(number, log).then(|| log.get(seq))?
    }

    /// Settles an entry that waits for its turn.
    pub(crate) fn settle_waiting<E: Entries>(&mut self, seq: Seq, log: &Log<E>) -> Settled {
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
    pub(crate) fn pass<E: Entries>(&mut self, seq: Seq, log: &Log<E>) {
        let low = self.upto(seq, log).min(self.end(log));
        if low > self.low {
            self.gone -= self.count_gone(self.low + 1, low, log);
            self.done.remove_run(0, low);
            self.low = low;
        }
    }

    /// Drops what waits for its turn; how many that were.
    pub(crate) fn purge<E: Entries>(&mut self, log: &Log<E>) -> u64 {
        let waiting = self.waiting(log);
        self.pass(log.head().seq, log);
        waiting
    }

    /// Moves `low` over what is settled after it.
    pub(crate) fn compact<E: Entries>(&mut self, log: &Log<E>) {
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
    pub(crate) fn lose<E: Entries>(
        &mut self,
        every: &Runs,
        guaranteed: &Runs,
        log: &Log<E>,
    ) -> u64 {
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
}
