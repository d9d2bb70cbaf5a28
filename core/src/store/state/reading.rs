//! How much an answer may hold, and what an entry looks like that waits for its turn.

use std::sync::Arc;

use crate::model::Message;

use super::super::types::{Entry, PageLimit, Seq};

/// A page looks at most at this many expired entries for each one it may return, so that one call
/// never walks a whole log.
pub(crate) const LOOKS: usize = 16;

/// How much still fits into an answer.
pub(crate) struct Room {
    entries: usize,
    bytes: usize,
    is_empty: bool,
}

impl Room {
    pub(crate) fn new(limit: PageLimit) -> Self {
        Self {
            entries: limit.entries.max(1),
            bytes: limit.bytes,
            is_empty: true,
        }
    }

    /// Whether a message of so many bytes fits; if so its room is taken. The first always does.
    pub(crate) fn take(&mut self, size: usize) -> bool {
        let fits = self.is_empty || (self.entries > 0 && self.bytes >= size);
        if fits {
            self.entries -= 1;
            self.bytes = self.bytes.saturating_sub(size);
            self.is_empty = false;
        }
        fits
    }
}

/// An entry that waits for its turn in a queue whose sent mark is at `sent`.
pub(crate) fn waiting_entry(sent: Seq, seq: Seq, message: Arc<Message>) -> Entry {
    Entry {
        seq,
        message,
        attempts: u32::from(seq <= sent),
        failures: 0,
        returns: 0,
        due: None,
        first_error: None,
        last_error: None,
        suspect: false,
    }
}
