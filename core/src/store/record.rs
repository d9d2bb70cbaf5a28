//! One row of a store as a value that any other store understands: what copies and exports consist of.
//!
//! Rows refer to each other by number; a realm's number never changes while its name may. As JSON a
//! record is an object with `record` naming its kind. Knows no store.

mod message;

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};

use crate::model::{Key, Message};

use super::documents::{Collection, DocumentRecord};
use super::settings;
use super::types::{QueueKind, QueueSettings, Seq};

/// A run of numbers, both ends in it.
pub type Run = (u64, u64);

/// One row of a store.
///
/// In the order in which a store tells them every row comes after those it refers to; told again it
/// takes the place of what was told before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// Numbers up to `last` are used up.
    Numbers {
        /// The last one.
        last: u64,
    },
    /// A realm.
    Realm {
        /// Its number.
        realm: u64,
        /// Its name.
        name: Arc<str>,
    },
    /// A log and where it ends; its entries follow.
    Log(LogRecord),
    /// A queue, or what a forgotten one has left.
    Queue(Box<ReaderRecord>),
    /// An entry of a log.
    Entry(EntryRecord),
    /// An entry of a queue that was not settled in its turn.
    Exception(Box<ExceptionRecord>),
    /// A dead letter.
    Letter(Box<LetterRecord>),
    /// A message held until it is due; in order of due time, then of arrival.
    Delayed(DelayedRecord),
    /// What is remembered of a producer instance (P16).
    Mark(Box<MarkRecord>),
    /// A user's own id of a message (P16); the oldest first.
    Uid {
        /// The realm.
        realm: u64,
        /// The id.
        uid: Arc<str>,
        /// The message.
        message: u64,
        /// When that was produced, in Unix milliseconds.
        at: u64,
    },
    /// A document: a realm, a token, a request.
    Document(DocumentRecord),
    /// A row that was told before is no more.
    Gone(Gone),
}

/// Which row is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Gone {
    /// A realm with all that is in it but logs and queues.
    Realm {
        /// The realm.
        realm: u64,
    },
    /// A log with its entries.
    Log {
        /// The log.
        log: u64,
    },
    /// A queue with its exceptions.
    Queue {
        /// The queue.
        queue: u64,
    },
    /// One exception.
    Exception {
        /// The queue.
        queue: u64,
        /// The entry.
        seq: Seq,
    },
    /// All exceptions of a queue.
    Exceptions {
        /// The queue.
        queue: u64,
    },
    /// One dead letter.
    Letter {
        /// The realm.
        realm: u64,
        /// The queue it was in.
        queue: u64,
        /// Where it was.
        seq: Seq,
    },
    /// One delayed message.
    Delayed {
        /// The message.
        message: u64,
    },
    /// One document.
    Document {
        /// Where.
        collection: Collection,
        /// Which.
        key: Arc<str>,
    },
    /// All documents.
    Documents,
}

/// What there was in a log up to some entry, all in sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Entries.
    pub seq: Seq,
    /// Guaranteed entries.
    pub guaranteed: u64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Bytes of the guaranteed ones.
    pub guaranteed_bytes: u64,
}

/// A log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecord {
    /// The log.
    pub log: u64,
    /// The realm.
    pub realm: u64,
    /// What its queues listen to.
    #[serde(with = "key_text")]
    pub key: Key,
    /// Where it ends.
    pub head: Sums,
    /// Entries that expired and count for nobody, by seq.
    pub gone: Vec<Run>,
    /// The same by number among the guaranteed ones.
    pub gone_guaranteed: Vec<Run>,
}

/// A queue. Numbers count the entries that are for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderRecord {
    /// The queue.
    pub queue: u64,
    /// The log.
    pub log: u64,
    /// What reads it.
    #[serde(with = "kind_number")]
    pub kind: QueueKind,
    /// The consumer id or the group.
    pub name: Arc<str>,
    /// How it is to be.
    #[serde(with = "settings_text")]
    pub settings: QueueSettings,
    /// Last attach or detach, in Unix milliseconds.
    pub seen: u64,
    /// Entries up to it may have been sent.
    pub sent: Seq,
    /// It was forgotten.
    pub is_left: bool,
    /// How many exceptions it has.
    pub exceptions: u64,
    /// Bytes of their messages.
    pub exception_bytes: u64,
    /// Entries up to it never were for this queue.
    pub joined: Seq,
    /// Up to here numbers are seqs.
    pub owned: Seq,
    /// Guaranteed entries up to `owned`.
    pub owned_guaranteed: u64,
    /// Numbers up to it are settled.
    pub low: u64,
    /// Numbers above `low` that are gone from the log.
    pub gone: u64,
    /// Settled numbers above `low`.
    pub done: Vec<Run>,
    /// The last number and entry it had when it was found full, or forgotten.
    pub shut: Option<(u64, Seq)>,
}

/// An entry of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// The log.
    pub log: u64,
    /// What there was up to it, itself included.
    pub sums: Sums,
    /// The message.
    #[serde(with = "message")]
    pub message: Arc<Message>,
}

/// An exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceptionRecord {
    /// The queue.
    pub queue: u64,
    /// The entry.
    pub seq: Seq,
    /// Times it was a dead letter.
    pub rounds: u32,
    /// Times sent.
    pub attempts: u32,
    /// Attempts that ended badly.
    pub failures: u32,
    /// Times given back without a failure.
    pub returns: u32,
    /// Not before then, in Unix milliseconds.
    pub due: u64,
    /// What the first failure said.
    pub first_error: Option<Arc<str>>,
    /// What the last failure said.
    pub last_error: Option<Arc<str>>,
    /// Goes out alone (P11).
    pub suspect: bool,
    /// The message, with the expiry that holds in this queue.
    #[serde(with = "message")]
    pub message: Arc<Message>,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterRecord {
    /// The realm.
    pub realm: u64,
    /// The queue it was in.
    pub queue: u64,
    /// Where it was.
    pub seq: Seq,
    /// The key of its queue.
    #[serde(with = "key_text")]
    pub key: Key,
    /// The kind of its queue.
    #[serde(with = "kind_number")]
    pub kind: QueueKind,
    /// The consumer id or group of its queue.
    pub name: Arc<str>,
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
    /// When it was buried last, in Unix milliseconds.
    pub dead_at: u64,
    /// The message.
    #[serde(with = "message")]
    pub message: Arc<Message>,
}

/// A message held until it is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayedRecord {
    /// The realm.
    pub realm: u64,
    /// When to publish it, in Unix milliseconds.
    pub due: u64,
    /// Whose credential it was published with.
    pub owner: Option<Arc<str>>,
    /// The message.
    #[serde(with = "message")]
    pub message: Arc<Message>,
}

/// What is remembered of a producer instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRecord {
    /// The realm.
    pub realm: u64,
    /// The instance.
    pub instance: Arc<str>,
    /// When it was used last, in Unix milliseconds.
    pub used: u64,
    /// The highest number stored.
    pub high: u64,
    /// Which of the numbers below are stored, by number modulo their count.
    pub window: Vec<u64>,
    /// The latest numbers, each with its message.
    pub ids: Vec<(u64, u64)>,
}

impl Record {
    /// About how many bytes it takes.
    pub(super) fn weight(&self) -> usize {
        64 + match self {
            Self::Log(log) => 16 * (log.gone.len() + log.gone_guaranteed.len()),
            Self::Queue(queue) => 128 + 16 * queue.done.len(),
            Self::Entry(entry) => entry.message.size(),
            Self::Exception(exception) => 128 + exception.message.size(),
            Self::Letter(letter) => 128 + letter.message.size(),
            Self::Delayed(delayed) => delayed.message.size(),
            Self::Document(document) => document.key.len() + document.text.len(),
            Self::Mark(mark) => 16 * mark.ids.len() + 8 * mark.window.len(),
            Self::Numbers { .. } | Self::Realm { .. } | Self::Uid { .. } | Self::Gone(_) => 0,
        }
    }
}

mod key_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(key: &Key, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&key.encode())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Key, D::Error> {
        let text = String::deserialize(from)?;
        Key::decode(&text).ok_or_else(|| D::Error::custom("this is no key"))
    }
}

mod kind_number {
    use super::*;

    pub(super) fn serialize<S: Serializer>(kind: &QueueKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(settings::kind_number(*kind))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<QueueKind, D::Error> {
        let number = u8::deserialize(from)?;
        settings::kind(number).ok_or_else(|| D::Error::custom("this is no kind of queue"))
    }
}

mod settings_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        queue: &QueueSettings,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = settings::settings_text(queue);
        let value: serde_json::Value = serde_json::from_str(&text).map_err(S::Error::custom)?;
        value.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<QueueSettings, D::Error> {
        let value = serde_json::Value::deserialize(from)?;
        let settings = settings::settings(&value.to_string());
        settings.ok_or_else(|| D::Error::custom("these are no settings of a queue"))
    }
}

/// Where an export goes on. The store notes what changes for as long as it or a clone is held.
#[derive(Debug, Clone, Default)]
pub struct ExportCursor(pub(super) Arc<()>);

/// A page of all a store holds, see [`Store::export`](super::Store::export).
#[derive(Debug)]
pub struct Exported {
    /// The rows.
    pub records: Vec<Record>,
    /// Where the next page goes on.
    pub next: ExportCursor,
    /// About how many rows there are still to be told; 0: none at this moment.
    pub left: u64,
}
