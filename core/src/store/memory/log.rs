//! The entries of one key in commit order, and what is still needed of them.
//!
//! Entries stand in pieces of 256. Each carries the totals up to it, so that counting a class
//! between two places is a subtraction. What no reader needs is let go: from the front up to the
//! lowest reader, and between the last reader that takes nothing more (full, or forgotten) and the
//! lowest of the others. Readers stand in ordered sets, so neither costs a scan.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Key, Message, RealmId};

use super::super::runs::Runs;
use super::super::types::{QueueId, Seq};
use super::small_set::SmallSet;

/// Entries of one piece; few in tests, so that these cross from piece to piece.
const PIECE: usize = if cfg!(test) { 4 } else { 256 };

/// Which entries a reader takes. Each class numbers its entries on its own: `Every` by seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Every entry.
    Every,
    /// Guaranteed entries only.
    Guaranteed,
}

/// What there was in a log up to some entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) seq: Seq,
    pub(super) guaranteed: u64,
    pub(super) bytes: u64,
    pub(super) guaranteed_bytes: u64,
}

impl Totals {
    pub(super) fn of(&self, class: Class) -> u64 {
        match class {
            Class::Every => self.seq,
            Class::Guaranteed => self.guaranteed,
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

/// An entry: its message until nobody needs it, and the totals including it.
#[derive(Debug)]
struct Slot {
    message: Option<Arc<Message>>,
    guaranteed: u64,
    bytes: u64,
    guaranteed_bytes: u64,
}

#[derive(Debug)]
struct Piece {
    /// The totals before its first slot.
    base: Totals,
    slots: Vec<Slot>,
}

impl Piece {
    fn end(&self) -> Seq {
        self.base.seq + self.slots.len() as u64
    }

    fn slot_mut(&mut self, seq: Seq) -> Option<&mut Slot> {
        let at = seq.checked_sub(self.base.seq + 1)?;
        self.slots.get_mut(usize::try_from(at).ok()?)
    }

    fn totals_at(&self, seq: Seq) -> Totals {
        let slot = seq
            .checked_sub(self.base.seq + 1)
            .and_then(|at| self.slots.get(usize::try_from(at).ok()?));
        slot.map_or(self.base, |slot| Totals {
            seq,
            guaranteed: slot.guaranteed,
            bytes: slot.bytes,
            guaranteed_bytes: slot.guaranteed_bytes,
        })
    }
}

/// Where the readers of one class stand, in the numbers of that class.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Lows of those that may take more.
    pub(super) open: SmallSet<(u64, QueueId)>,
    /// Lows of those that take nothing more until they are touched.
    pub(super) shut: BTreeSet<(u64, QueueId)>,
    /// The last number each can take before it is full; only those not found full yet.
    pub(super) rooms: SmallSet<(u64, QueueId)>,
    /// How many have been found full.
    pub(super) full: u32,
    /// How far behind the newest entry the low of those is at most that drop their oldest.
    pub(super) slack: BTreeSet<(u64, QueueId)>,
}

/// A log.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) realm: RealmId,
    pub(super) key: Key,
    /// Queues and left-overs.
    pub(super) queues: usize,
    pub(super) every: Readers,
    pub(super) guaranteed: Readers,
    /// Last entries of the shut readers.
    pub(super) shut_ends: BTreeSet<(Seq, QueueId)>,
    /// Entries that expired here and count for nobody, by seq and by number among the guaranteed.
    pub(super) gone: Runs,
    pub(super) gone_guaranteed: Runs,
    /// When the sweep comes by next; never later than the first expiry.
    pub(super) wake: Option<Timestamp>,
    pieces: VecDeque<Piece>,
    head: Totals,
    /// Everything up to it is let go.
    front: Seq,
    /// Everything up to it and behind the shut readers is let go.
    cleared: Seq,
    /// The last entry of the shut readers when that was done.
    cleared_after: Seq,
    /// The latest expiry so far: an entry that expires no earlier is *in line*, found by going
    /// through the log; the others are stragglers, found by their index.
    line_expires: Option<Timestamp>,
    stragglers: BTreeSet<(Timestamp, Seq)>,
    /// Up to it no entry in line is left that can expire.
    line_swept: Seq,
}

impl Log {
    pub(super) fn new(realm: RealmId, key: Key) -> Self {
        Self {
            realm,
            key,
            queues: 0,
            every: Readers::default(),
            guaranteed: Readers::default(),
            shut_ends: BTreeSet::new(),
            gone: Runs::default(),
            gone_guaranteed: Runs::default(),
            wake: None,
            pieces: VecDeque::new(),
            head: Totals::default(),
            front: 0,
            cleared: 0,
            cleared_after: 0,
            line_expires: None,
            stragglers: BTreeSet::new(),
            line_swept: 0,
        }
    }

    pub(super) fn readers(&mut self, class: Class) -> &mut Readers {
        match class {
            Class::Every => &mut self.every,
            Class::Guaranteed => &mut self.guaranteed,
        }
    }

    /// The totals up to the newest entry.
    pub(super) fn head(&self) -> Totals {
        self.head
    }

    /// Adds an entry; its seq.
    pub(super) fn push(&mut self, message: Arc<Message>) -> Seq {
        if self.front == self.head.seq {
            self.line_expires = None;
        }
        let totals = self.head.plus(&message);
        if let Some(expires) = message.expires {
            if self.line_expires.is_none_or(|latest| expires >= latest) {
                self.line_expires = Some(expires);
            } else {
                self.stragglers.insert((expires, totals.seq));
            }
        }
        let slot = Slot {
            message: Some(message),
            guaranteed: totals.guaranteed,
            bytes: totals.bytes,
            guaranteed_bytes: totals.guaranteed_bytes,
        };
        match self.pieces.back_mut() {
            Some(piece) if piece.end() == self.head.seq && piece.slots.len() < PIECE => {
                piece.slots.push(slot);
            }
            _ => self.pieces.push_back(Piece {
                base: self.head,
                slots: vec![slot],
            }),
        }
        self.head = totals;
        totals.seq
    }

    /// The piece with `seq`, or the first one behind it.
    fn piece_at(&self, seq: Seq) -> usize {
        self.pieces.partition_point(|piece| piece.end() < seq)
    }

    /// The message at `seq`, if it is still needed.
    pub(super) fn get(&self, seq: Seq) -> Option<&Arc<Message>> {
        let piece = self.pieces.get(self.piece_at(seq))?;
        let at = seq.checked_sub(piece.base.seq + 1)?;
        piece.slots.get(usize::try_from(at).ok()?)?.message.as_ref()
    }

    /// The totals up to `seq`. Where entries are let go it is the end of the gap: nobody tells
    /// them apart any more.
    pub(super) fn totals_at(&self, seq: Seq) -> Totals {
        if seq >= self.head.seq {
            return self.head;
        }
        let piece = self.pieces.get(self.piece_at(seq));
        piece.map_or(self.head, |piece| piece.totals_at(seq))
    }

    /// The seq of the guaranteed entry with this number; if it is let go, a seq of its gap.
    pub(super) fn seq_of_guaranteed(&self, number: u64) -> Seq {
        if number > self.head.guaranteed {
            return self.head.seq + 1;
        }
        let at = self
            .pieces
            .partition_point(|piece| piece.base.guaranteed < number);
        let Some(piece) = at.checked_sub(1).and_then(|at| self.pieces.get(at)) else {
            let first = self.pieces.front().map_or(self.head, |piece| piece.base);
            return first.seq;
        };
        let slots = piece.slots.partition_point(|slot| slot.guaranteed < number);
        piece.base.seq + slots as u64 + 1
    }

    /// The seq before the first entry that `readers` of a class need; `None` if they need none.
    fn pin(&self, class: Class, low: Option<u64>) -> Option<Seq> {
        let low = low?;
        match class {
            Class::Every => Some(low),
            Class::Guaranteed if low >= self.head.guaranteed => None,
            Class::Guaranteed => Some(self.seq_of_guaranteed(low + 1) - 1),
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
    pub(super) fn trim(&mut self) {
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
        self.trim_front(shut.map_or(open, |shut| shut.min(open)));
        let shut_end = self.shut_ends.last().map_or(self.front, |(end, _)| *end);
        if shut_end < self.cleared_after {
            self.cleared = self.cleared.min(shut_end);
        }
        self.cleared_after = shut_end;
        self.clear_between(shut_end.max(self.cleared).max(self.front), open);
        self.cleared = self.cleared.max(open);
        // Those that drop their oldest still count expired entries behind the front.
        if self.every.slack.is_empty() && self.guaranteed.slack.is_empty() && self.gone.len() > 0 {
            let front = self.totals_at(self.front);
            self.gone.remove_run(0, front.seq);
            self.gone_guaranteed.remove_run(0, front.guaranteed);
        }
    }

    fn trim_front(&mut self, floor: Seq) {
        while let Some(piece) = self.pieces.front_mut() {
            let upto = piece.end().min(floor);
            for seq in self.front.max(piece.base.seq) + 1..=upto {
                if let Some(slot) = piece.slot_mut(seq) {
                    let_go(slot, seq, &mut self.stragglers);
                }
            }
            if piece.end() > floor {
                break;
            }
            self.pieces.pop_front();
        }
        self.front = self.front.max(floor);
    }

    /// Lets go of the entries after `after` up to `upto`.
    fn clear_between(&mut self, after: Seq, upto: Seq) {
        let mut at = self.piece_at(after + 1);
        while let Some(piece) = self.pieces.get_mut(at) {
            if piece.base.seq >= upto {
                break;
            }
            for seq in after.max(piece.base.seq) + 1..=upto.min(piece.end()) {
                if let Some(slot) = piece.slot_mut(seq) {
                    let_go(slot, seq, &mut self.stragglers);
                }
            }
            if piece.base.seq >= after && piece.end() <= upto {
                self.pieces.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Takes the next entry that has expired out; its seq and, if it is a guaranteed one, its
    /// number among those.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Option<(Seq, Option<u64>)> {
        let straggler = self.stragglers.first().filter(|(at, _)| *at <= now);
        let seq = match straggler {
            Some((_, seq)) => *seq,
            None => {
                let (expires, seq) = self.next_in_line()?;
                if expires > now {
                    return None;
                }
                seq
            }
        };
        let at = self.piece_at(seq);
        let slot = self.pieces.get_mut(at)?.slot_mut(seq)?;
        let guaranteed = slot
            .message
            .as_ref()
            .is_some_and(|message| message.guaranteed);
        let number = guaranteed.then_some(slot.guaranteed);
        let_go(slot, seq, &mut self.stragglers);
        Some((seq, number))
    }

    /// When the next entry expires.
    pub(super) fn next_expiry(&mut self) -> Option<Timestamp> {
        let straggler = self.stragglers.first().map(|(at, _)| *at);
        let in_line = self.next_in_line().map(|(at, _)| at);
        straggler.into_iter().chain(in_line).min()
    }

    #[cfg(test)]
    pub(super) fn pieces_held(&self) -> usize {
        self.pieces.len()
    }

    fn next_in_line(&mut self) -> Option<(Timestamp, Seq)> {
        let mut at = self.piece_at(self.line_swept + 1);
        while let Some(piece) = self.pieces.get(at) {
            let from = self.line_swept.max(piece.base.seq);
            let passed = usize::try_from(from - piece.base.seq).ok()?;
            for (seq, slot) in (from + 1..).zip(piece.slots.iter().skip(passed)) {
                let expires = slot.message.as_ref().and_then(|message| message.expires);
                if let Some(expires) = expires
                    && !self.stragglers.contains(&(expires, seq))
                {
                    return Some((expires, seq));
                }
                self.line_swept = seq;
            }
            at += 1;
        }
        None
    }
}

fn let_go(slot: &mut Slot, seq: Seq, stragglers: &mut BTreeSet<(Timestamp, Seq)>) {
    let expires = slot.message.take().and_then(|message| message.expires);
    if let Some(expires) = expires
        && !stragglers.is_empty()
    {
        stragglers.remove(&(expires, seq));
    }
}
