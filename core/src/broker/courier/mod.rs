//! The courier: the task that empties one queue, and alone decides what goes out next.
//!
//! ```text
//!  inbox ─► State::step(inputs, now) ─► effects ─► frames to outboxes, store calls, answers
//!             ▲                                        │
//!             └──────────── their outcomes ────────────┘
//! ```
//!
//! [`state`] and its parts are a pure state machine: no I/O, no clock, no locks. [`task`] feeds it
//! and does what it says. Only [`super::queue`] starts one.

mod backoff;
mod claims;
mod entry;
mod fresh;
mod keys;
mod leave;
mod ledger;
mod live;
mod load;
mod outcome;
mod pump;
mod seats;
mod state;
mod task;

#[cfg(test)]
mod bench;
#[cfg(test)]
mod link;
#[cfg(test)]
mod maps;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::Result;
use crate::clock::{Elapsed, Timestamp};
use crate::model::Message;
use crate::store::{Claim, Due, Entry, Page, PageLimit, QueueChange, Seq, Settled, Wish};

use super::ports::SessionId;
use super::queue::{Answer, Leave, Outcome, Seat, Verdict};

pub(super) use entry::Slot;
pub(super) use fresh::{MOST_FED, MOST_FED_BYTES};
pub(super) use live::{MOST_LIVE, MOST_LIVE_BYTES};
pub(super) use state::{Start, State};
pub(super) use task::run;

/// The moment at which a batch of inputs is worked on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Decides TTL.
    pub(super) wall: Timestamp,
    /// Decides waits.
    pub(super) elapsed: Elapsed,
}

/// What a courier is told.
pub(super) enum Input {
    /// A session is here, or has new settings.
    Attach(Seat),
    /// A session is gone.
    Detach(SessionId, Leave),
    /// The next entry of the log.
    Feed(Seq, Arc<Message>),
    /// Entries up to this one are in the log and were not fed.
    Missed(Seq),
    /// A live copy for one session, whose producer has stored entries up to `behind` before it.
    Live {
        session: SessionId,
        n: u64,
        message: Arc<Message>,
        behind: Seq,
        /// Nobody is to acknowledge it.
        is_untracked: bool,
    },
    /// Live copies for a session that were dropped, and counted, before they came here.
    Lost(SessionId, u64),
    /// Somebody settles something.
    Verdict(Verdict),
    /// A session has received everything up to this position of its outbox.
    Confirmed(SessionId, u64),
    /// A full outbox has room again.
    Writable(SessionId),
    /// A session's ack clocks stand still.
    Pause(SessionId),
    /// They run again.
    Resume(SessionId),
    /// Something in the store may have changed.
    Wake,
    /// Another broker has done something to the queue.
    Look,
    /// Somebody has come to another broker for the queue.
    Wanted,
    /// These entries were settled elsewhere.
    Over(Vec<Seq>),
    /// See [`Effect::Claim`].
    Claimed(Result<Claim>),
    /// See [`Effect::Release`].
    Released,
    /// The backlog was dropped from the store.
    Purged,
    /// Whether every entry is for this queue has changed for those after this one.
    TakesAll { takes_all: bool, after: Seq },
    /// The outbox of a seat has taken the batch, or not.
    Offered { seat: u32, position: Option<u64> },
    /// Answers of the store.
    Paged(Result<Page>),
    /// See [`Effect::Due`].
    Due(Result<Due>),
    /// See [`Effect::Browse`].
    Browsed(Result<Vec<Entry>>),
    /// See [`Effect::Look`].
    Looked(Result<Vec<Entry>>),
    /// See [`Effect::Write`].
    Written(Result<()>),
    /// See [`Effect::Settle`].
    Settled(Result<Vec<Settled>>),
}

/// How a delivery is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// First delivery, without ack.
    Plain,
    /// With ack: carries `msgId` and which attempt it is.
    Tracked(u32),
    /// A repeat without ack.
    Repeated,
}

/// What a courier wants done. Of each call to the store one is under way at most.
pub(super) enum Effect {
    /// Put it into the batch of this seat.
    Send {
        seat: u32,
        slot: Slot,
        message: Arc<Message>,
        style: Style,
    },
    /// Ask for a confirmation of what this session was sent.
    Ask(u32),
    /// Tell a session that live copies were dropped.
    Lost { seat: u32, count: u64 },
    /// Tell a session that somebody has come to another broker for the queue.
    Taken(u32),
    /// Ask what of the queue is ours.
    Claim(Wish),
    /// Let the queue go.
    Release { sent: Seq },
    /// Read a page.
    Page { after: Seq, limit: PageLimit },
    /// Read due exceptions.
    Due(PageLimit),
    /// Look at exceptions by seq, due or not.
    Browse { after: Seq },
    /// Look at one entry that is not in hand.
    Look { seq: Seq },
    /// Write a change.
    Write(QueueChange),
    /// Settle entries that are not in hand.
    Settle(Vec<Seq>),
    /// Answer a verdict.
    Answer(Answer, Outcome),
}

/// What a courier has counted since it was last asked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    /// Deliveries.
    pub(super) sent: u64,
    /// Of them those from the store: live copies are counted where they are published.
    pub(super) stored: u64,
    /// Of them repeats.
    pub(super) repeated: u64,
    /// Entries that were settled.
    pub(super) settled: u64,
    /// Attempts that ended badly.
    pub(super) failed: u64,
    /// Of them ack timeouts.
    pub(super) timeouts: u64,
    /// Entries that became dead letters.
    pub(super) buried: u64,
    /// Entries that expired.
    pub(super) expired: u64,
    /// Entries that were settled because nobody here may see them (P30).
    pub(super) hidden: u64,
    /// Live copies that were dropped.
    pub(super) dropped: u64,
    /// Store calls that failed.
    pub(super) store_failures: u64,
}
