//! What several brokers on one store agree on: who hands out a queue, and what they tell each other.
//!
//! Plain values. A store that one broker has for itself needs none of it: what [`Store`] does by
//! default says that everything is this broker's.
//!
//! [`Store`]: super::Store

use std::sync::Arc;
use std::time::Duration;

use crate::model::RealmId;

use super::documents::Collection;
use super::types::{LogId, QueueId, QueueRecord, Seq};

/// What of a queue a broker may hand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// All of it.
    Sole,
    /// What [`Store::page`](super::Store::page) and [`Store::due`](super::Store::due) answer, which
    /// is nobody else's from then on. Its low is the store's business.
    Shared,
    /// Nothing: another broker has it.
    Nothing,
}

/// What a [`Store::claim`](super::Store::claim) found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What this broker has now.
    pub hold: Hold,
    /// The queue as it is now, of which this broker holds nothing yet; `None`: nobody has had it
    /// since this broker's last claim, so what that one knows is true.
    pub position: Option<Position>,
    /// When to look again, for who shares it or has nothing of it.
    pub again: Duration,
}

impl Claim {
    /// All of a queue, as it was.
    pub fn sole() -> Self {
        Self {
            hold: Hold::Sole,
            position: None,
            again: Duration::MAX,
        }
    }
}

/// Where a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Everything up to it is settled, an exception, or not for this queue.
    pub low: Seq,
    /// Entries up to it may have been sent.
    pub sent: Seq,
    /// The last entry of the log.
    pub head: Seq,
    /// Entries not settled in their turn.
    pub exceptions: u64,
    /// It takes every entry.
    pub durable: bool,
}

/// How a broker asks for a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Somebody has just come here for it: who has it is asked to let go, and has to, unless it can
    /// be shared or somebody has come later elsewhere.
    pub force: bool,
    /// The last entry that this broker has handed out; what lies behind it may be anybody's.
    pub taken: Seq,
}

/// What another broker, or a change of stores, has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A queue was opened or is another one now.
    Opened(Box<QueueRecord>),
    /// A queue was forgotten.
    Forgotten(RealmId, QueueId),
    /// Somebody has come to it for a queue that this broker has.
    Wanted(RealmId, QueueId),
    /// A claim of this queue, or something in it, may be another one now.
    Look(RealmId, QueueId),
    /// These entries of a queue that this broker has in hand were settled elsewhere.
    Settled(RealmId, QueueId, Vec<Seq>),
    /// What waited in a queue is gone.
    Purged(RealmId, QueueId),
    /// A log has entries up to this one.
    Grown(RealmId, LogId, Seq),
    /// A realm has another name, with all that is in it.
    Renamed(RealmId, RealmId),
    /// Documents of a collection may be other ones now.
    Documents(Collection),
    /// Anything may have happened.
    Missed,
}

/// Who hears it, at once and on the store's thread: it must not wait for the store.
pub type Hear = Arc<dyn Fn(News) + Send + Sync>;
