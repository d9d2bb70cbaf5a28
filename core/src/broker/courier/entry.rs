//! One unsettled message as its courier knows it, and where in the courier it is.
//!
//! Plain values. Knows no session, no store call and no time but the moments written into it. Used
//! by every part of the courier.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::clock::{Elapsed, Timestamp};
use crate::model::Message;
use crate::store::{self, Burial, Exception, Seq};

/// Names an entry within one queue: a stored one by its seq, a live copy by a number of its own.
///
/// Stored ones sort before live ones, each kind in the order of its first hand-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u64);

const LIVE: u64 = 1 << 63;

impl Slot {
    /// The slot of a stored entry.
    pub(crate) fn stored(seq: Seq) -> Self {
        Self(seq & !LIVE)
    }

    /// The slot of the live copy number `n`.
    pub(crate) fn live(n: u64) -> Self {
        Self(n | LIVE)
    }

    /// The seq of a stored entry.
    pub(crate) fn seq(self) -> Option<Seq> {
        (self.0 & LIVE == 0).then_some(self.0)
    }

    /// The number, of whichever kind.
    pub(crate) fn number(self) -> u64 {
        self.0 & !LIVE
    }

    /// Whether it is a live copy.
    pub(crate) fn is_live(self) -> bool {
        self.0 & LIVE != 0
    }
}

/// Spreads our own numbers over a table; nobody outside chooses them.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Entries by slot.
pub(super) type Table = HashMap<Slot, Held, BuildHasherDefault<SlotHasher>>;

/// What went wrong with an entry so far; most have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Attempts that ended badly.
    pub(super) failures: u32,
    /// Times given back by heartbeat loss, takeover or cut.
    pub(super) returns: u32,
    pub(super) first_error: Option<Arc<str>>,
    pub(super) last_error: Option<Arc<str>>,
    /// Goes out alone (P11).
    pub(super) suspect: bool,
}

/// How far the exception row of an entry has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    /// There is none: `low` and the sent mark say all about this entry.
    None,
    /// It is to be written with the next change.
    Wanted,
    /// A change with it was given to the store.
    Sent,
    /// That, and it has changed since.
    Changed,
}

/// An entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) slot: Slot,
    pub(super) message: Arc<Message>,
    /// Times sent.
    pub(super) attempts: u32,
    /// The seat a live copy is for; 0 for stored entries, else the seat's index + 1.
    pub(super) home: u32,
    /// Of a live copy: stored entries up to it go first.
    pub(super) after: Seq,
    /// A live copy that nobody acknowledges: it is over when it is written.
    pub(super) is_untracked: bool,
    pub(super) row: Row,
    pub(super) trouble: Option<Box<Trouble>>,
}

impl Entry {
    /// An entry nothing has happened to yet but `attempts` sends.
    pub(super) fn new(slot: Slot, message: Arc<Message>, attempts: u32) -> Self {
        Self {
            slot,
            message,
            attempts,
            home: 0,
            after: 0,
            is_untracked: false,
            row: Row::None,
            trouble: None,
        }
    }

    /// An exception as the store has it.
    pub(super) fn excepted(entry: store::Entry) -> Self {
        let trouble = Trouble {
            failures: entry.failures,
            returns: entry.returns,
            first_error: entry.first_error,
            last_error: entry.last_error,
            suspect: entry.suspect,
        };
        Self {
            slot: Slot::stored(entry.seq),
            message: entry.message,
            attempts: entry.attempts,
            home: 0,
            after: 0,
            is_untracked: false,
            row: Row::Sent,
            trouble: (trouble != Trouble::default()).then(|| Box::new(trouble)),
        }
    }

    pub(super) fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    pub(super) fn failures(&self) -> u32 {
        self.trouble.as_ref().map_or(0, |trouble| trouble.failures)
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.suspect)
    }

    /// Its row for the store.
    pub(super) fn exception(&self, seq: Seq, due: Timestamp) -> Exception {
        let trouble = self.trouble.as_deref().cloned().unwrap_or_default();
        Exception {
            seq,
            attempts: self.attempts,
            failures: trouble.failures,
            returns: trouble.returns,
            due,
            first_error: trouble.first_error,
            last_error: trouble.last_error,
            suspect: trouble.suspect,
        }
    }

    /// Its burial, for `reason`.
    pub(super) fn burial(&self, seq: Seq, reason: Arc<str>) -> Burial {
        let trouble = self.trouble.as_deref().cloned().unwrap_or_default();
        Burial {
            seq,
            attempts: self.attempts,
            reason,
            first_error: trouble.first_error,
            last_error: trouble.last_error,
        }
    }
}

/// A delivery that is out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    /// The seat that holds it.
    pub(super) seat: u32,
    /// What it takes of the seat's window, in bytes.
    pub(super) size: u32,
    /// Settled by an ACK rather than by receipt.
    pub(super) acked: bool,
    /// When the ack is late, in the time of the seat, which stands still while it is paused.
    pub(super) deadline: Elapsed,
}

/// Where an entry is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Out(Out),
    /// Given back: goes before everything new.
    Again,
    /// Its retry is due.
    Due,
    /// Waits for its retry, until `due` (stored) which is `at` here.
    Waiting {
        due: Timestamp,
        at: Elapsed,
    },
    /// Waits to go out alone.
    Suspect,
    /// Waits for its ordering key.
    Parked,
}

/// An entry that has been taken from the line of fresh ones and is not settled.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) entry: Entry,
    pub(super) place: Place,
}

impl Held {
    /// When it may go out, as the store writes it: the beginning of time if nothing holds it up,
    /// which also brings it to the front when it is loaded again.
    pub(super) fn due(&self) -> Timestamp {
        match self.place {
            Place::Waiting { due, .. } => due,
            _ => Timestamp(0),
        }
    }
}
