//! Ordering keys: at most one unsettled entry of a key is out, the rest of it waits (P8).
//!
//! Knows slots only; where the entries themselves are is up to the courier.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::entry::Slot;

/// Entries of busy keys that are remembered; beyond it the queue waits.
pub(super) const MOST_PARKED: usize = 10_000;
/// And bytes of their messages.
const MOST_PARKED_BYTES: usize = 64 << 20;

/// A key within its scope: 0 for stored entries, a seat's own number for its live copies.
type Scoped = (u32, Arc<str>);

#[derive(Debug)]
struct Line {
    holder: Slot,
    parked: VecDeque<(Slot, usize)>,
}

/// Who holds which key, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Keys {
    lines: HashMap<Scoped, Line>,
    parked: usize,
    bytes: usize,
}

impl Keys {
    /// Whether no more entries may be parked.
    pub(super) fn is_full(&self) -> bool {
        self.parked >= MOST_PARKED || self.bytes >= MOST_PARKED_BYTES
    }

    /// Whether somebody holds the key.
    pub(super) fn is_busy(&self, home: u32, key: &Arc<str>) -> bool {
        !self.lines.is_empty() && self.lines.contains_key(&(home, Arc::clone(key)))
    }

    /// Gives the key to `slot`, or parks it behind the holder: `false`.
    pub(super) fn claim(&mut self, home: u32, key: &Arc<str>, slot: Slot, size: usize) -> bool {
        if let Some(line) = self.lines.get_mut(&(home, Arc::clone(key))) {
            if line.holder == slot {
                return true;
            }
            line.parked.push_back((slot, size));
            self.parked += 1;
            self.bytes += size;
            return false;
        }
        let line = Line {
            holder: slot,
            parked: VecDeque::new(),
        };
        self.lines.insert((home, Arc::clone(key)), line);
        true
    }

    /// `slot` is settled: the one that gets the key next, if it held it.
    pub(super) fn release(&mut self, home: u32, key: &Arc<str>, slot: Slot) -> Option<Slot> {
        let scoped = (home, Arc::clone(key));
        let line = self.lines.get_mut(&scoped)?;
        if line.holder != slot {
            if let Some(at) = line.parked.iter().position(|(parked, _)| *parked == slot)
                && let Some((_, size)) = line.parked.remove(at)
            {
                self.parked -= 1;
                self.bytes -= size;
            }
            return None;
        }
        let Some((next, size)) = line.parked.pop_front() else {
            self.lines.remove(&scoped);
            return None;
        };
        self.parked -= 1;
        self.bytes -= size;
        line.holder = next;
        Some(next)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
