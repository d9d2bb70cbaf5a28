//! Ordering keys: at most one unsettled entry of a key is out, the rest of it waits (P8).
//!
//! Stored entries and live copies of a queue share its keys; only the live copies of different
//! sessions, which are subscriptions of their own, do not wait for each other. Knows slots only;
//! where the entries themselves are is up to the courier.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use super::entry::Slot;

/// Entries of busy keys that are remembered; beyond it the queue waits.
pub(super) const MOST_PARKED: usize = 10_000;
/// And bytes of their messages.
const MOST_PARKED_BYTES: usize = 64 << 20;

/// An entry, with its home: 0 for stored ones, a number of the session's for live copies.
type Homed = (Slot, u32);

#[derive(Debug, Default)]
struct Line {
    holders: SmallVec<[Homed; 1]>,
    parked: VecDeque<(Homed, usize)>,
}

impl Line {
    /// Whether one more may be out beside the holders.
    fn takes(&self, home: u32) -> bool {
        let apart = |(_, other): &Homed| *other != 0 && home != 0 && *other != home;
        self.holders.iter().all(apart)
    }
}

/// Who holds which key, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Keys {
    lines: HashMap<Arc<str>, Line>,
    parked: usize,
    bytes: usize,
}

impl Keys {
    /// Whether no more entries may be parked.
    pub(super) fn is_full(&self) -> bool {
        self.parked >= MOST_PARKED || self.bytes >= MOST_PARKED_BYTES
    }

    /// Whether no key is held.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether an entry with this key and home would have to wait.
    pub(super) fn is_busy(&self, home: u32, key: &str) -> bool {
        let line = self.lines.get(key);
        line.is_some_and(|line| !line.parked.is_empty() || !line.takes(home))
    }

    /// Gives the key to `slot`, or parks it behind the holder: `false`.
    pub(super) fn claim(&mut self, home: u32, key: &Arc<str>, slot: Slot, size: usize) -> bool {
        let line = self.lines.entry(Arc::clone(key)).or_default();
        if line.holders.iter().any(|(holder, _)| *holder == slot) {
            return true;
        }
        if line.parked.is_empty() && line.takes(home) {
            line.holders.push((slot, home));
            return true;
        }
        line.parked.push_back(((slot, home), size));
        self.parked += 1;
        self.bytes += size;
        false
    }

    /// `slot` is settled: who gets the key next.
    pub(super) fn release(&mut self, key: &str, slot: Slot) -> SmallVec<[Slot; 1]> {
        let mut next = SmallVec::new();
        let Some(line) = self.lines.get_mut(key) else {
            return next;
        };
        let before = line.holders.len();
        line.holders.retain(|(holder, _)| *holder != slot);
        if line.holders.len() == before
            && let Some(at) = line.parked.iter().position(|((own, _), _)| *own == slot)
            && let Some((_, size)) = line.parked.remove(at)
        {
            self.parked -= 1;
            self.bytes -= size;
        }
        while let Some(((first, home), size)) = line.parked.front().copied()
            && line.takes(home)
        {
            line.parked.pop_front();
            self.parked -= 1;
            self.bytes -= size;
            line.holders.push((first, home));
            next.push(first);
        }
        if line.holders.is_empty() {
            self.lines.remove(key);
        }
        next
    }
}
