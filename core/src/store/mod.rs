//! Where durable messages wait: the one trait that every store keeps, and its words.
//!
//! A **log** belongs to a key that has at least one queue: entries in commit order. A **queue** is a
//! reader of one log. The message is stored once per log entry, whatever the number of queues, so
//! an append costs O(logs), never O(queues). A store decides nothing about delivery: it keeps what
//! the courier tells it, atomically per call. It knows no session, no socket and reads no clock.
//! The broker calls it through [`Store`]; only the server's assembly names a concrete one.
//!
//! **Order.** A call takes its place in the store's line when the method is *called*, not when the
//! returned [`Pending`] is first polled; commit order is call order. Dropping a `Pending` does not
//! undo the call.
//!
//! **Life of an entry** in one queue:
//!
//! ```text
//! append ─► waiting ─┬─ low / done / settle ─────────────────────────► gone
//!                    ├─ except ─► exception ─┬─ clear / settle ──────► gone
//!                    │               ▲       └─ bury ─► dead letter ─┬─ discard ─► gone
//!                    ├─ bury ────────┼──────────────────► (same)     │
//!                    │               └───────────── revive ──────────┘
//!                    └─ expired, dropped as the oldest, purged ──────► gone
//! ```

mod claim;
#[cfg(feature = "testing")]
pub mod contract;
mod documents;
pub mod fallback;
#[cfg(feature = "testing")]
pub mod faulty;
mod leasing;
mod memory;
mod pending;
pub mod record;
#[cfg(feature = "redis")]
mod redis;
mod settings;
#[cfg(feature = "testing")]
pub mod shelf;
mod simple;
#[cfg(feature = "sqlite")]
mod sqlite;
mod state;
mod swap;
mod turns;
mod types;

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

#[cfg(feature = "redis")]
pub use self::redis::{GivenClient, RedisClient, RedisOptions, RedisStore};
pub use claim::{Claim, Hear, Hold, News, Position, Wish};
pub use documents::{
    Collection, Condition, Document, DocumentChange, DocumentRecord, Documents, FileDocuments,
};
pub use leasing::{Leasing, LeasingOptions, Side};
pub use memory::MemoryStore;
pub use pending::Pending;
pub use record::{ExportCursor, Exported, Record};
pub use simple::{DeadRow, Methods, NewRow, Place, Row, RowId, RowPage, SimpleStore};
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::NewPlace;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore, Synchronous};
pub use swap::{Changing, Copied, SwapStore};
pub use types::{
    Append, Appended, Bounds, Burial, DeadLetter, DeadLetterId, Delayed, Depth, Due, Durability,
    Entry, Exception, Gap, Holding, LogId, Maintained, Overflow, Page, PageLimit, Placed,
    QueueChange, QueueId, QueueKind, QueueRecord, QueueSettings, QueueSpec, Quota, RealmBounds,
    Seq, Settled, StoreCounters, StoreHealth,
};

/// A place where messages wait. All methods are called on any thread and return at once; the
/// answer is in the [`Pending`].
///
/// **Errors** common to all: [`StoreUnavailable`], [`StoreTimeout`] (the write may or may not have
/// happened), [`StoreFull`], [`StoreCorrupt`]; [`StoreUnavailable`] after [`Store::close`]. Calls
/// about a queue that does not exist (any more) answer [`DeliveryUnknown`].
///
/// [`StoreUnavailable`]: crate::ErrorKind::StoreUnavailable
/// [`StoreTimeout`]: crate::ErrorKind::StoreTimeout
/// [`StoreFull`]: crate::ErrorKind::StoreFull
/// [`StoreCorrupt`]: crate::ErrorKind::StoreCorrupt
/// [`DeliveryUnknown`]: crate::ErrorKind::DeliveryUnknown
pub trait Store: Documents {
    /// What a yes of this store survives (P1).
    fn durability(&self) -> Durability;

    /// What it cannot hold of the promises, for operators; nothing.
    fn gaps(&self) -> Vec<Gap> {
        Vec::new()
    }

    /// Every remembered queue, in the order they were opened; read once before the port opens
    /// (P4). Left-overs of forgotten queues are not among them.
    fn queues(&self) -> Pending<Vec<QueueRecord>>;

    /// Opens a queue: creates it (and its log) at the log's head, or updates its settings. `now`
    /// is stored as last attach.
    ///
    /// A queue that takes up [`durable`](QueueSettings::durable) gets every entry from here on;
    /// one that gives it up keeps what it already owns. A forgotten queue of the same realm, key,
    /// kind and name comes back with what it left, without what was appended in between.
    ///
    /// Errors: `ConsumerIdTaken` if it belongs to another owner (P30), who may be at another broker.
    fn open(&self, spec: QueueSpec, now: Timestamp) -> Pending<QueueRecord>;

    /// Marks attach or detach time for the idle TTLs (P4). Need not wait for the disk.
    fn touch(&self, queue: QueueId, now: Timestamp) -> Pending<()>;

    /// Forgets the queue and answers what was left unsettled. With `purge` its entries go too;
    /// else they stay for a later [`open`](Store::open) of the same name and key until their TTL
    /// (P5). The log goes with its last queue and the last left-over.
    fn forget(&self, queue: QueueId, purge: bool) -> Pending<u64>;

    /// Forgets a queue that nobody has used for long, with its entries; one that another broker has in
    /// hand stays, and is told of as [`News::Opened`].
    fn evict(&self, queue: QueueId, now: Timestamp) -> Pending<u64> {
        let _ = now;
        self.forget(queue, true)
    }

    /// Stores a batch: one commit for the batch, all or nothing per item; answers per item in
    /// order. Items of one batch see each other's marks.
    ///
    /// - An item whose mark or uid is known answers `duplicate` and changes nothing.
    /// - A log takes a message once if at least one of its queues takes it; [`Placed`] says how
    ///   many took it and how many refused because they were full. Logs that are unknown, or none
    ///   of whose queues wants this class, are left out of `placed`. Queues of
    ///   [`skip`](Append::skip) count for nothing there.
    /// - Marks are left only by what was stored: not by a refused message, nor by one that no queue
    ///   wanted (P16). Windows are measured by [`Message::produced`](crate::model::Message).
    /// - With `due` nothing is placed: the message is held for [`delayed`](Store::delayed).
    /// - With `release` the delayed row goes in the same commit. A row that is gone already was
    ///   published before: `duplicate`. A refused release keeps its row.
    ///
    /// Errors per item: `QueueFull` if queues wanted the message and none took it, or the realm is
    /// at a bound of its [`Quota`], or holds as many delayed messages as one queue may have. The
    /// bytes of a realm are those of its unsettled messages: once for each log, however many queues
    /// wait for it there (a lifted store keeps one row a queue, so once for each queue), and once
    /// more for each exception. What is settled counts until it is let go of, which is with what
    /// settles it or by the next [`maintain`](Store::maintain); so does a settled entry that an
    /// unsettled one before it holds. Delayed messages and dead letters do not count.
    fn append(&self, batch: Vec<Append>) -> Pending<Vec<Result<Appended>>>;

    /// What [`append`](Store::append) would say of an item whose mark or uid is known; `None`: it is
    /// not, or only a call would tell. Looks in memory, at once, and changes nothing (P16).
    fn known(&self, _item: &Append) -> Option<Appended> {
        None
    }

    /// Entries after `after` for this queue, oldest first, at most `limit`, without settled ones,
    /// exceptions, ones not for it, and expired ones. What it finds expired it settles and counts,
    /// once. A single entry larger than the limit comes alone.
    fn page(&self, queue: QueueId, after: Seq, limit: PageLimit, now: Timestamp) -> Pending<Page>;

    /// Exceptions due at `now`, by due time then seq, with the time of the next one. They stay due
    /// until the courier upserts them with a later time, clears or buries them. What it finds
    /// expired it settles and counts, once.
    fn due(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Due>;

    /// One queue's change, atomic: see [`QueueChange`]. Entries that are settled already stay so:
    /// excepting or burying them does nothing. A burial that pushes the dead letters of the realm
    /// over their bound drops the oldest, counted.
    fn update(&self, queue: QueueId, change: QueueChange, now: Timestamp) -> Pending<()>;

    /// A forgotten queue of which something is left (P5), as it was when it was forgotten; `None`:
    /// there is none with this id. [`update`](Store::update), [`settle`](Store::settle) and
    /// [`browse`](Store::browse) speak of it as of any other (P9); it ends with its last entry. When
    /// it comes back, it has the same id.
    ///
    /// A store that keeps no left-overs need not answer anything else than by default.
    fn left_over(&self, _queue: QueueId) -> Pending<Option<QueueRecord>> {
        Pending::ready(Ok(None))
    }

    /// Settles entries of a queue; one answer per seq, in order.
    fn settle(&self, queue: QueueId, seqs: Vec<Seq>) -> Pending<Vec<Settled>>;

    /// What is unsettled in a queue. Expired entries count until they are found.
    fn depth(&self, queue: QueueId) -> Pending<Depth>;

    /// Every realm the store knows of, in no order; some may hold nothing any more.
    fn realms(&self) -> Pending<Vec<RealmId>>;

    /// What is unsettled in all queues of a realm in sum, left-overs included.
    fn realm_depth(&self, realm: &RealmId) -> Pending<Depth>;

    /// Looks at unsettled entries after `after` by seq, exceptions among them, without changing
    /// anything.
    fn browse(&self, queue: QueueId, after: Seq, limit: PageLimit) -> Pending<Vec<Entry>>;

    /// Drops a queue's backlog, keeps the queue; answers how many entries went.
    fn purge_queue(&self, queue: QueueId) -> Pending<u64>;

    /// Drops every queue, log, dead letter, delayed message and mark of a realm; answers how many
    /// unsettled entries, dead letters and delayed messages went.
    fn purge_realm(&self, realm: &RealmId) -> Pending<u64>;

    /// Gives everything of a realm another name; ids stay. A realm the store knows nothing of is
    /// fine.
    ///
    /// Errors: `BadName` if the store holds anything under `to`.
    fn rename_realm(&self, from: &RealmId, to: &RealmId) -> Pending<()>;

    /// Delayed messages due at `now` in order of due time, at most `limit`, and when the first of
    /// the others is due. They are not removed: an [`Append`] with `release`, or
    /// [`drop_delayed`](Store::drop_delayed), does that.
    fn delayed(&self, limit: usize, now: Timestamp) -> Pending<(Vec<Delayed>, Option<Timestamp>)>;

    /// Drops delayed messages; unknown ids are fine.
    fn drop_delayed(&self, ids: Vec<MessageId>) -> Pending<()>;

    /// The dead letters of a realm by id, after `after` (which need not exist any more), at most
    /// `limit` (P37).
    fn dead_letters(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Pending<Vec<DeadLetter>>;

    /// Puts a dead letter back into its queue as an exception due now: attempts and errors kept,
    /// failures and returns zero, TTL anew: `message.expires` of the entry is the new one (P37).
    /// A full queue takes it too.
    ///
    /// Errors: `DeadLetterUnknown`; `DeliveryUnknown` if its queue is gone (it stays dead then).
    fn revive(&self, realm: &RealmId, id: DeadLetterId, now: Timestamp) -> Pending<QueueId>;

    /// Drops one dead letter.
    ///
    /// Errors: `DeadLetterUnknown`.
    fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Pending<()>;

    /// Drops all dead letters of a realm; answers how many.
    fn purge_dead_letters(&self, realm: &RealmId) -> Pending<u64>;

    /// Writes, reads and deletes something.
    fn probe(&self) -> Pending<()>;

    /// Settles and counts what has expired, ends dead letters, marks and left-overs that are past
    /// their time, and gives their room back; looks at about `budget` rows.
    fn maintain(&self, budget: usize, now: Timestamp) -> Pending<Maintained>;

    /// Counters for stats and metrics; none ever falls (P38).
    fn counters(&self) -> StoreCounters;

    /// How it is doing (P27). Answers at once and touches no disk.
    fn health(&self) -> StoreHealth {
        StoreHealth::default()
    }

    /// Writes a copy of everything as of one moment to a new file, while work goes on.
    ///
    /// Errors: `StoreUnsupported` where there is no file; `Config` if the path exists.
    fn backup(&self, path: PathBuf) -> Pending<()> {
        let _ = path;
        Pending::ready(Err(Error::new(
            ErrorKind::StoreUnsupported,
            "this store has no file that could be copied",
        )))
    }

    /// A page of all the store holds, in an order in which every row comes after those it refers
    /// to; `after` is where the page before said that the next one goes on.
    ///
    /// Work goes on meanwhile: what changes while somebody holds the cursor is told (again) at the
    /// end. When nobody writes and a page says that nothing is left, everything was told. One
    /// export at a time: the next one ends it. What is found damaged is set aside and not told.
    ///
    /// Errors: `StoreUnavailable` for an export that has ended; `StoreUnsupported`.
    fn export(&self, after: Option<ExportCursor>, limit: PageLimit) -> Pending<Exported> {
        let _ = (after, limit);
        Pending::ready(Err(no_copies()))
    }

    /// Makes the store ready for [`import`](Store::import), with nothing in it. What an import
    /// that did not come to its end has left is dropped, and with `replace` what has moved to
    /// another store.
    ///
    /// Errors: `Config` if it holds anything else; `StoreUnsupported`.
    fn begin_import(&self, replace: bool) -> Pending<()> {
        let _ = replace;
        Pending::ready(Err(no_copies()))
    }

    /// Takes in what another store exported, pages in their order. Until
    /// [`end_import`](Store::end_import) nothing else may be asked of the store.
    ///
    /// Errors: `StoreCorrupt` for rows that do not fit together; `StoreUnsupported`.
    fn import(&self, records: Vec<Record>) -> Pending<()> {
        let _ = records;
        Pending::ready(Err(no_copies()))
    }

    /// Everything has come: from here on the store answers as the one that it is a copy of. Ids
    /// are the same, and none is given twice. Until [`lead`](Store::lead) it still is a copy, which
    /// another import may drop.
    ///
    /// Errors: `StoreCorrupt` for rows that do not fit together; `StoreUnsupported`.
    fn end_import(&self) -> Pending<()> {
        Pending::ready(Err(no_copies()))
    }

    /// Whether other brokers may use it at the same time: then queues have to be claimed.
    fn is_shared(&self) -> bool {
        false
    }

    /// How many other brokers use it now, as far as is known.
    fn others(&self) -> usize {
        0
    }

    /// Which of the brokers on it this one is, below 1,024: their ids of messages must differ.
    fn number(&self) -> u16 {
        0
    }

    /// Takes a queue in hand for this broker, or asks what it has of it. Whoever holds a queue that
    /// another has taken is refused `fenced` by [`page`](Store::page), [`due`](Store::due) and
    /// [`update`](Store::update), and claims again to know; [`settle`](Store::settle) is for all.
    fn claim(&self, queue: QueueId, wish: Wish) -> Pending<Claim> {
        let _ = (queue, wish);
        Pending::ready(Ok(Claim::sole()))
    }

    /// Lets a queue go, of which entries up to `sent` may have been sent.
    fn release(&self, queue: QueueId, sent: Seq) -> Pending<()> {
        let _ = (queue, sent);
        Pending::ready(Ok(()))
    }

    /// Tells `hear` from now on what other brokers do; a [`SwapStore`] tells it besides those that
    /// it was given before.
    fn listen(&self, hear: Hear) {
        let _ = hear;
    }

    /// What has come leads from now on.
    fn lead(&self) -> Pending<()> {
        Pending::ready(Ok(()))
    }

    /// Adds what another store remembers of producers and of users' ids to what this one does: rows of
    /// [`Record::Mark`] and [`Record::Uid`], of a realm that goes by this name here.
    ///
    /// Errors: `StoreUnsupported`.
    fn remember(&self, realm: &RealmId, marks: Vec<Record>) -> Pending<()> {
        let _ = (realm, marks);
        Pending::ready(Err(no_copies()))
    }

    /// Notes where everything has moved to, so that it is not opened again by mistake (P28).
    fn moved(&self, to: &str) -> Pending<()> {
        let _ = to;
        Pending::ready(Ok(()))
    }

    /// Writes what is still to be written and ends; later calls are refused. Any number of times.
    fn close(&self) -> Pending<()>;
}

fn no_copies() -> Error {
    Error::new(
        ErrorKind::StoreUnsupported,
        "this store can neither be copied nor take a copy",
    )
}

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be the broker's store.
    Lead,
    /// The same, as what was chosen last: a whole copy that did not come to lead does so now.
    Chosen,
    /// To take in another store.
    TakeCopy,
}

fn not_empty() -> Error {
    Error::new(
        ErrorKind::Config,
        "the new store holds messages already; use an empty one",
    )
}

/// A store as the broker holds it.
pub type SharedStore = Arc<dyn Store>;
