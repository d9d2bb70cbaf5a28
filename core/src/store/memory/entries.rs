//! The entries of one log in memory, in pieces of 256, each with the totals up to it.
//!
//! An entry is let go by dropping its message; a piece goes when all of it is let go. Knows no
//! reader.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::Message;

use super::super::state::{Entries, Kept, Totals};
use super::super::types::Seq;

/// Entries of one piece; few in tests, so that these cross from piece to piece.
const PIECE: usize = if cfg!(test) { 4 } else { 256 };

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

/// The entries of one log.
#[derive(Debug)]
pub(crate) struct Pieces {
    pieces: VecDeque<Piece>,
    /// The latest expiry so far: an entry that expires no earlier is *in line*, found by going
    /// through the log; the others are stragglers, found by their index.
    line_expires: Option<Timestamp>,
    stragglers: BTreeSet<(Timestamp, Seq)>,
    /// Up to it no entry in line is left that can expire.
    line_swept: Seq,
    /// Bytes of the messages that are here, and where they count.
    bytes: u64,
    kept: Kept,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.kept.sub(self.bytes);
    }
}

impl Pieces {
    pub(super) fn new(kept: Kept) -> Self {
        Self {
            pieces: VecDeque::new(),
            line_expires: None,
            stragglers: BTreeSet::new(),
            line_swept: 0,
            bytes: 0,
            kept,
        }
    }

    fn let_go(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.kept.sub(bytes);
    }

    /// The piece with `seq`, or the first one behind it.
    fn piece_at(&self, seq: Seq) -> usize {
        self.pieces.partition_point(|piece| piece.end() < seq)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of the messages that are here, counted anew.
    #[cfg(test)]
    pub(super) fn weigh(&self) -> u64 {
        let slots = self.pieces.iter().flat_map(|piece| &piece.slots);
        let messages = slots.filter_map(|slot| slot.message.as_ref());
        messages.map(|message| message.size() as u64).sum()
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

impl Entries for Pieces {
    type Held = Arc<Message>;

    fn push(&mut self, message: &Arc<Message>, before: Totals, totals: Totals, is_first: bool) {
        if is_first {
            self.line_expires = None;
        }
        if let Some(expires) = message.expires {
            if self.line_expires.is_none_or(|latest| expires >= latest) {
                self.line_expires = Some(expires);
            } else {
                self.stragglers.insert((expires, totals.seq));
            }
        }
        let size = message.size() as u64;
        self.bytes += size;
        self.kept.add(size);
        let slot = Slot {
            message: Some(Arc::clone(message)),
            guaranteed: totals.guaranteed,
            bytes: totals.bytes,
            guaranteed_bytes: totals.guaranteed_bytes,
        };
        match self.pieces.back_mut() {
            Some(piece) if piece.end() == before.seq && piece.slots.len() < PIECE => {
                piece.slots.push(slot);
            }
            _ => self.pieces.push_back(Piece {
                base: before,
                slots: vec![slot],
            }),
        }
    }

    fn get(&self, seq: Seq) -> Option<Arc<Message>> {
        let piece = self.pieces.get(self.piece_at(seq))?;
        let at = seq.checked_sub(piece.base.seq + 1)?;
        piece.slots.get(usize::try_from(at).ok()?)?.message.clone()
    }

    fn totals_at(&self, seq: Seq) -> Option<Totals> {
        let piece = self.pieces.get(self.piece_at(seq));
        piece.map(|piece| piece.totals_at(seq))
    }

    fn seq_of_guaranteed(&self, number: u64) -> Option<Seq> {
        let at = self
            .pieces
            .partition_point(|piece| piece.base.guaranteed < number);
        let Some(piece) = at.checked_sub(1).and_then(|at| self.pieces.get(at)) else {
            return self.pieces.front().map(|piece| piece.base.seq);
        };
        let slots = piece.slots.partition_point(|slot| slot.guaranteed < number);
        Some(piece.base.seq + slots as u64 + 1)
    }

    fn trim_front(&mut self, front: Seq, floor: Seq) {
        let mut freed = 0;
        while let Some(piece) = self.pieces.front_mut() {
            let upto = piece.end().min(floor);
            for seq in front.max(piece.base.seq) + 1..=upto {
                if let Some(slot) = piece.slot_mut(seq) {
                    freed += let_go(slot, seq, &mut self.stragglers);
                }
            }
            if piece.end() > floor {
                break;
            }
            self.pieces.pop_front();
        }
        self.let_go(freed);
    }

    fn clear_between(&mut self, after: Seq, upto: Seq) {
        let mut freed = 0;
        let mut at = self.piece_at(after + 1);
        while let Some(piece) = self.pieces.get_mut(at) {
            if piece.base.seq >= upto {
                break;
            }
            for seq in after.max(piece.base.seq) + 1..=upto.min(piece.end()) {
                if let Some(slot) = piece.slot_mut(seq) {
                    freed += let_go(slot, seq, &mut self.stragglers);
                }
            }
            if piece.base.seq >= after && piece.end() <= upto {
                self.pieces.remove(at);
            } else {
                at += 1;
            }
        }
        self.let_go(freed);
    }

    fn take_expired(&mut self, now: Timestamp) -> Option<(Seq, Option<u64>)> {
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
        let freed = let_go(slot, seq, &mut self.stragglers);
        self.let_go(freed);
        Some((seq, number))
    }

    fn after(
        &self,
        after: Seq,
        (most, bytes): (usize, usize),
    ) -> Vec<(Totals, Option<Arc<Message>>)> {
        let (mut found, mut left) = (Vec::new(), bytes);
        for piece in self.pieces.range(self.piece_at(after + 1)..) {
            for (seq, slot) in (piece.base.seq + 1..).zip(&piece.slots) {
                let Some(message) = slot.message.as_ref().filter(|_| seq > after) else {
                    continue;
                };
                if !found.is_empty() && (found.len() >= most || left < message.size()) {
                    return found;
                }
                left = left.saturating_sub(message.size());
                found.push((piece.totals_at(seq), Some(Arc::clone(message))));
            }
        }
        found
    }

    fn next_expiry(&mut self) -> Option<Timestamp> {
        let straggler = self.stragglers.first().map(|(at, _)| *at);
        let in_line = self.next_in_line().map(|(at, _)| at);
        straggler.into_iter().chain(in_line).min()
    }
}

/// Drops the message of an entry; its bytes.
fn let_go(slot: &mut Slot, seq: Seq, stragglers: &mut BTreeSet<(Timestamp, Seq)>) -> u64 {
    let Some(message) = slot.message.take() else {
        return 0;
    };
    if let Some(expires) = message.expires
        && !stragglers.is_empty()
    {
        stragglers.remove(&(expires, seq));
    }
    message.size() as u64
}
