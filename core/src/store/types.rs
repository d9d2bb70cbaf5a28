//! The nouns of a store: logs, queues, entries, changes, dead letters, bounds.
//!
//! Plain values without behaviour. Used by the stores and by the broker.

mod bounds;
mod reports;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::model::{ConsumerName, GroupName, Key, Message, MessageId, RealmId, RetryPolicy};
use crate::{Error, ErrorKind};

pub(in crate::store) use bounds::Full;
pub use bounds::{Bounds, Quota, RealmBounds};
pub use reports::{Gap, Holding, Maintained, StoreCounters, StoreHealth};

/// Position of an entry in its log, from 1, in commit order, never reused.
pub type Seq = u64;

/// A log of this store; unique in the store for ever, kept by copies to another store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

/// A queue of this store; unique in the store for ever, kept by copies to another store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// What a yes of a store survives (P1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Durability {
    /// Reconnects.
    Memory,
    /// The process being killed.
    Process,
    /// Power loss.
    Disk,
}

impl Durability {
    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Process => "process",
            Self::Disk => "disk",
        }
    }
}

/// What reads a queue; a field, never part of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueKind {
    /// The sessions of one consumer id.
    Consumer,
    /// The members of a group.
    Group,
    /// Kept to be read again, not to be settled.
    History,
}

/// Which queue, and how it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSpec {
    /// The realm.
    pub realm: RealmId,
    /// What it listens to; names the log.
    pub key: Key,
    /// What reads it.
    pub kind: QueueKind,
    /// The consumer id or the group.
    pub name: Arc<str>,
    /// How it is to be; does not name the queue.
    pub settings: QueueSettings,
}

/// How a queue is to be. The store keeps it for the broker and itself reads only `durable` and, for
/// left-overs, `owner`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueSettings {
    /// Takes every entry; else guaranteed ones only.
    pub durable: bool,
    /// Whether entries are settled by an ACK.
    pub ack: bool,
    /// How long a session may take to ack.
    pub ack_timeout: Option<Duration>,
    /// What happens after a failure; `None`: the default. Boxed: few queues have one of their own.
    pub retry: Option<Box<RetryPolicy>>,
    /// The name that attached last (awareness).
    pub consumer: Option<ConsumerName>,
    /// What the broker keeps of that consumer and of the others who subscribe by it. JSON text.
    pub consumer_meta: Option<Arc<str>>,
    /// The group, for queues of groups.
    pub group: Option<GroupName>,
    /// Whose queue it is (P30); `None`: nobody's.
    pub owner: Option<Arc<str>>,
}

impl QueueSettings {
    /// What happens after a failure.
    pub fn retry_policy(&self) -> RetryPolicy {
        self.retry.as_deref().copied().unwrap_or_default()
    }
}

/// A queue as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRecord {
    /// The queue.
    pub queue: QueueId,
    /// The log it reads.
    pub log: LogId,
    /// Which queue it is and how it is to be.
    pub spec: QueueSpec,
    /// Last attach or detach.
    pub seen: Timestamp,
    /// Everything up to it is settled, an exception, or not for this queue.
    pub low: Seq,
    /// Entries up to it may have been sent.
    pub sent: Seq,
    /// The last entry of the log.
    pub head: Seq,
    /// Entries not settled in their turn.
    pub exceptions: u64,
    /// Unsettled entries, exceptions included.
    pub depth: u64,
}

/// A message to store.
#[derive(Debug, Clone)]
pub struct Append {
    /// The realm.
    pub realm: RealmId,
    /// The message, with the id the broker has given it.
    pub message: Arc<Message>,
    /// The logs of the keys that match; empty with `due`.
    pub logs: Vec<LogId>,
    /// Readers of these logs that do not get it (P18): it is settled for them in the same commit,
    /// and they neither take it nor refuse it. Unknown ones are fine.
    pub skip: Vec<QueueId>,
    /// Producer instance and its number of this message (P16).
    pub mark: Option<(Arc<str>, u64)>,
    /// The user's own id (P16).
    pub uid: Option<Arc<str>>,
    /// Hold it until then (P17).
    pub due: Option<Timestamp>,
    /// Whose credential it was published with; kept with `due`, so that rights can be asked again.
    pub owner: Option<Arc<str>>,
    /// The delayed message that this publish ends.
    pub release: Option<MessageId>,
}

impl Append {
    /// A message for the readers of these logs, and nothing else.
    pub fn new(realm: RealmId, message: Arc<Message>, logs: Vec<LogId>) -> Self {
        Self {
            realm,
            message,
            logs,
            skip: Vec::new(),
            mark: None,
            uid: None,
            due: None,
            owner: None,
            release: None,
        }
    }
}

/// What became of an [`Append`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The id of the stored message. For a duplicate that of the first copy, if the store still
    /// knows it (always for a user's own id, for the last 128 numbers of an instance), else that
    /// of the repeat.
    pub id: MessageId,
    /// It was stored before; nothing has changed.
    pub duplicate: bool,
    /// It is held until it is due; of a duplicate: the first copy is, as far as the store knows its
    /// id (P17).
    pub delayed: bool,
    /// Where it was stored or refused. Empty for duplicates.
    pub placed: Vec<Placed>,
}

/// What one log did with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The log.
    pub log: LogId,
    /// The new entry; 0 if every queue refused.
    pub seq: Seq,
    /// Queues that took it.
    pub queued: u32,
    /// Queues that wanted it and were full.
    pub refused: u32,
}

/// One unsettled message in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its position in the log.
    pub seq: Seq,
    /// The message, with the expiry that holds in this queue.
    pub message: Arc<Message>,
    /// Times sent; at least 1 for entries under the sent mark.
    pub attempts: u32,
    /// Attempts that ended badly (P10).
    pub failures: u32,
    /// Times given back without a failure.
    pub returns: u32,
    /// Not before then; only exceptions have it.
    pub due: Option<Timestamp>,
    /// What the first failure said.
    pub first_error: Option<Arc<str>>,
    /// What the last failure said.
    pub last_error: Option<Arc<str>>,
    /// Goes out alone (P11).
    pub suspect: bool,
}

/// At most so much in one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Entries, at least 1.
    pub entries: usize,
    /// Bytes of their messages; the first entry comes whatever its size.
    pub bytes: usize,
}

impl Default for PageLimit {
    /// 256 entries or 1 MiB.
    fn default() -> Self {
        Self {
            entries: 256,
            bytes: 1 << 20,
        }
    }
}

/// A page of a backlog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Everything up to it was looked at.
    pub next: Seq,
    /// Entries that this read found expired and settled.
    pub expired: u64,
    /// Whether `next` was the last entry of the log at the time of the read.
    pub end: bool,
}

/// Exceptions whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// By due time, then seq.
    pub entries: Vec<Entry>,
    /// When the first of the others is due; not after `now` if the limit cut the answer.
    pub next: Option<Timestamp>,
    /// Exceptions that this read found expired and settled.
    pub expired: u64,
}

/// What happened in a queue. The store applies `except`, `clear`, `done`, `bury`, `low`, `sent` in
/// this order, in one commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueChange {
    /// Everything up to it is settled or an exception; never goes back.
    pub low: Option<Seq>,
    /// Settled above `low`.
    pub done: Vec<Seq>,
    /// Entries up to it may have been sent; never goes back.
    pub sent: Option<Seq>,
    /// New exceptions and changed ones.
    pub except: Vec<Exception>,
    /// Exceptions that are settled.
    pub clear: Vec<Seq>,
    /// Entries, exceptions or not, that become dead letters.
    pub bury: Vec<Burial>,
}

/// An entry not settled in its turn. It has its own reference to the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// The entry.
    pub seq: Seq,
    /// Times sent.
    pub attempts: u32,
    /// Attempts that ended badly.
    pub failures: u32,
    /// Times given back without a failure.
    pub returns: u32,
    /// Not before then.
    pub due: Timestamp,
    /// What the first failure said.
    pub first_error: Option<Arc<str>>,
    /// What the last failure said.
    pub last_error: Option<Arc<str>>,
    /// Goes out alone (P11).
    pub suspect: bool,
}

/// An entry given up on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burial {
    /// The entry.
    pub seq: Seq,
    /// Times sent.
    pub attempts: u32,
    /// Why, as a stable word.
    pub reason: Arc<str>,
    /// What the first failure said.
    pub first_error: Option<Arc<str>>,
    /// What the last failure said.
    pub last_error: Option<Arc<str>>,
}

/// What [`Store::settle`](super::Store::settle) found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It was unsettled and is settled now.
    Now,
    /// It was settled before: by an ack, as expired, as dropped, as a dead letter.
    Before,
    /// It never was an entry of this queue.
    Unknown,
}

/// What is unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Entries.
    pub count: u64,
    /// Bytes of their messages ([`Message::size`]), each counted once per queue.
    pub bytes: u64,
    /// When the oldest was produced.
    pub oldest: Option<Timestamp>,
}

/// A message held until it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delayed {
    /// The realm.
    pub realm: RealmId,
    /// The message.
    pub message: Arc<Message>,
    /// When to publish it.
    pub due: Timestamp,
    /// Whose credential it was published with; `None`: nobody had logged in.
    pub owner: Option<Arc<str>>,
}

/// Which dead letter. As text `queue-seq` in decimal, at most 41 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadLetterId {
    /// The queue it was in.
    pub queue: QueueId,
    /// Where it was.
    pub seq: Seq,
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.queue.0, self.seq)
    }
}

impl FromStr for DeadLetterId {
    type Err = Error;

    /// Reads what `Display` writes; anything else is `DeadLetterUnknown`.
    fn from_str(text: &str) -> Result<Self, Error> {
        // Only the one spelling: `+1` and `01` would parse as numbers too.
        let number = |digits: &str| {
            let number = digits.parse::<u64>().ok()?;
            (number.to_string() == digits).then_some(number)
        };
        text.split_once('-')
            .and_then(|(queue, seq)| {
                Some(Self {
                    queue: QueueId(number(queue)?),
                    seq: number(seq)?,
                })
            })
            .ok_or_else(|| Error::new(ErrorKind::DeadLetterUnknown, "this is no dead letter's id"))
    }
}

/// An entry given up on, with everything needed to judge it (P37).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its id.
    pub id: DeadLetterId,
    /// The realm.
    pub realm: RealmId,
    /// The key of its queue.
    pub key: Key,
    /// The kind of its queue.
    pub kind: QueueKind,
    /// The consumer id or group of its queue.
    pub name: Arc<str>,
    /// The message.
    pub message: Arc<Message>,
    /// Times sent, over all rounds.
    pub attempts: u32,
    /// Times buried.
    pub rounds: u32,
    /// Why, as a stable word.
    pub reason: Arc<str>,
    /// What the first failure said.
    pub first_error: Option<Arc<str>>,
    /// What the last failure said.
    pub last_error: Option<Arc<str>>,
    /// When it was buried last.
    pub dead_at: Timestamp,
}

/// What a full queue does with a new message (P25).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// It refuses for itself.
    #[default]
    Reject,
    /// It takes it and drops its oldest entry that is not an exception, counted. The newest entry
    /// stays even if exceptions alone fill the queue.
    DropOldest,
}

#[cfg(test)]
mod tests;
