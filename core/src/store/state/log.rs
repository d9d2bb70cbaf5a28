//! The entries of one key in commit order, and what is still needed of them.
//!
//! Each entry stands for the totals up to it, so that counting a class between two places is a
//! subtraction. What no reader needs is let go: from the front up to the lowest reader, and between
//! the last reader that takes nothing more (full, or forgotten) and the lowest of the others.
//! Readers stand in ordered sets, so neither costs a scan. Knows not where the entries are.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Key, Message, RealmId};

use super::super::types::{QueueId, Seq};
use super::keep::Entries;
use super::realm::Kept;
use super::runs::Runs;
use super::small_set::SmallSet;

/// Which entries a reader takes. Each class numbers its entries on its own: `Every` by seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Every entry.
    Every,
    /// Guaranteed entries only.
    Guaranteed,
}

/// What there was in a log up to some entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) seq: Seq,
    pub(crate) guaranteed: u64,
    pub(crate) bytes: u64,
    pub(crate) guaranteed_bytes: u64,
}

impl Totals {
    pub(crate) fn of(&self, class: Class) -> u64 {
        match class {
            Class::Every => self.seq,
            Class::Guaranteed => self.guaranteed,
        }
    }

    /// What there was before an entry with this message, these being the totals including it.
    pub(crate) fn before(self, message: &Message) -> Self {
        let bytes = message.size() as u64;
        let guaranteed = u64::from(message.guaranteed);
        Self {
            seq: self.seq.saturating_sub(1),
            guaranteed: self.guaranteed.saturating_sub(guaranteed),
            bytes: self.bytes.saturating_sub(bytes),
            guaranteed_bytes: self.guaranteed_bytes.saturating_sub(bytes * guaranteed),
        }
    }

    fn plus(self, message: &Message) -> Self {
        let bytes = message.size() as u64;
        let guaranteed = u64::from(message.guaranteed);
        Self {
            seq: self.seq + 1,
            guaranteed: self.guaranteed + guaranteed,
            bytes: self.bytes + bytes,
            guaranteed_bytes: self.guaranteed_bytes + bytes * guaranteed,
        }
    }
}

/// Where the readers of one class stand, in the numbers of that class.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// Lows of those that may take more.
    pub(crate) open: SmallSet<(u64, QueueId)>,
    /// Lows of those that take nothing more until they are touched.
    pub(crate) shut: BTreeSet<(u64, QueueId)>,
    /// The last number each can take before it is full; only those not found full yet.
    pub(crate) rooms: SmallSet<(u64, QueueId)>,
    /// How many have been found full.
    pub(crate) full: u32,
    /// How far behind the newest entry the low of those is at most that drop their oldest.
    pub(crate) slack: BTreeSet<(u64, QueueId)>,
}

/// A log.
#[derive(Debug)]
pub(crate) struct Log<E> {
    pub(crate) realm: RealmId,
    pub(crate) key: Key,
    /// Queues and left-overs.
    pub(crate) queues: usize,
    /// Unsettled entries that each may have, as its realm says.
    pub(crate) max_queued: u64,
    /// Where the bytes of messages count: its realm's.
    pub(crate) kept: Kept,
    pub(crate) every: Readers,
    pub(crate) guaranteed: Readers,
    /// Last entries of the shut readers.
    pub(crate) shut_ends: BTreeSet<(Seq, QueueId)>,
    /// Entries that expired here and count for nobody, by seq and by number among the guaranteed.
    pub(crate) gone: Runs,
    pub(crate) gone_guaranteed: Runs,
    /// When the sweep comes by next; never later than the first expiry.
    pub(crate) wake: Option<Timestamp>,
    pub(crate) entries: E,
    head: Totals,
    /// Everything up to it is let go.
    front: Seq,
    /// Everything up to it and behind the shut readers is let go.
    cleared: Seq,
    /// The last entry of the shut readers when that was done.
    cleared_after: Seq,
}

impl<E: Entries> Log<E> {
    /// A log that ends at `head`, with nothing before `front`.
    pub(crate) fn new(realm: RealmId, key: Key, entries: E, head: Totals, front: Seq) -> Self {
        Self {
            realm,
            key,
            queues: 0,
            max_queued: u64::MAX,
            kept: Kept::default(),
            every: Readers::default(),
            guaranteed: Readers::default(),
            shut_ends: BTreeSet::new(),
            gone: Runs::default(),
            gone_guaranteed: Runs::default(),
            wake: None,
            entries,
            head,
            front,
            cleared: 0,
            cleared_after: 0,
        }
    }

    pub(crate) fn readers(&mut self, class: Class) -> &mut Readers {
        match class {
            Class::Every => &mut self.every,
            Class::Guaranteed => &mut self.guaranteed,
        }
    }

    /// The totals up to the newest entry.
    pub(crate) fn head(&self) -> Totals {
        self.head
    }

    /// Everything up to it is let go.
    pub(crate) fn front(&self) -> Seq {
        self.front
    }

    /// Puts the end of the log where it was told to be, with nobody reading it.
    pub(crate) fn restore(&mut self, head: Totals) {
        self.head = head;
        self.queues = 0;
        (self.every, self.guaranteed) = (Readers::default(), Readers::default());
        self.shut_ends.clear();
        (self.front, self.cleared, self.cleared_after) = (0, 0, 0);
    }

    /// Adds an entry; its seq.
    pub(crate) fn push(&mut self, message: &Arc<Message>) -> Seq {
        let totals = self.head.plus(message);
        let is_first = self.front == self.head.seq;
        self.entries.push(message, self.head, totals, is_first);
        self.head = totals;
        totals.seq
    }

    /// The message at `seq`, if it is still needed.
    pub(crate) fn get(&self, seq: Seq) -> Option<E::Held> {
        self.entries.get(seq)
    }

    /// The totals up to `seq`. Where entries are let go it is the end of the gap: nobody tells
    /// them apart any more.
    pub(crate) fn totals_at(&self, seq: Seq) -> Totals {
        if seq >= self.head.seq {
            return self.head;
        }
        self.entries.totals_at(seq).unwrap_or(self.head)
    }

    /// The seq of the guaranteed entry with this number; if it is let go, a seq of its gap.
    pub(crate) fn seq_of_guaranteed(&self, number: u64) -> Seq {
        if number > self.head.guaranteed {
            return self.head.seq + 1;
        }
        let seq = self.entries.seq_of_guaranteed(number);
        seq.unwrap_or(self.head.seq)
    }

    /// The seq before the first entry that `readers` of a class need; `None` if they need none.
    fn pin(&self, class: Class, low: Option<u64>) -> Option<Seq> {
        let low = low?;
        match class {
            Class::Every => Some(low),
            Class::Guaranteed if low >= self.head.guaranteed => None,
            Class::Guaranteed => Some(self.seq_of_guaranteed(low + 1).saturating_sub(1)),
        }
    }

    fn low_open(&self, class: Class, readers: &Readers) -> Option<u64> {
        let open = readers.open.first().map(|(low, _)| *low);
        let newest = self.head.of(class);
        let dropping = readers
            .slack
            .last()
            .map(|(slack, _)| newest.saturating_sub(*slack));
        open.into_iter().chain(dropping).min()
    }

    /// Lets go of what no reader needs.
    pub(crate) fn trim(&mut self) {
        let lowest = |pins: [Option<Seq>; 2]| pins.into_iter().flatten().min();
        let (every, guaranteed) = (Class::Every, Class::Guaranteed);
        let low_shut = |readers: &Readers| readers.shut.first().map(|(low, _)| *low);
        let open = lowest([
            self.pin(every, self.low_open(every, &self.every)),
            self.pin(guaranteed, self.low_open(guaranteed, &self.guaranteed)),
        ])
        .unwrap_or(self.head.seq);
        let shut = lowest([
            self.pin(every, low_shut(&self.every)),
            self.pin(guaranteed, low_shut(&self.guaranteed)),
        ]);
        let floor = shut.map_or(open, |shut| shut.min(open));
        if floor > self.front {
            self.entries.trim_front(self.front, floor);
            self.front = floor;
        }
        let shut_end = self.shut_ends.last().map_or(self.front, |(end, _)| *end);
        if shut_end < self.cleared_after {
            self.cleared = self.cleared.min(shut_end);
        }
        self.cleared_after = shut_end;
        let after = shut_end.max(self.cleared).max(self.front);
        if after < open {
            self.entries.clear_between(after, open);
        }
        self.cleared = self.cleared.max(open);
        // Those that drop their oldest still count expired entries behind the front.
        if self.every.slack.is_empty() && self.guaranteed.slack.is_empty() && self.gone.len() > 0 {
            let front = self.totals_at(self.front);
            self.gone.remove_run(0, front.seq);
            self.gone_guaranteed.remove_run(0, front.guaranteed);
        }
    }

    /// Takes the next entry that has expired out; its seq and, if it is a guaranteed one, its
    /// number among those.
    pub(crate) fn take_expired(&mut self, now: Timestamp) -> Option<(Seq, Option<u64>)> {
        self.entries.take_expired(now)
    }

    /// When the next entry expires.
    pub(crate) fn next_expiry(&mut self) -> Option<Timestamp> {
        self.entries.next_expiry()
    }
}
