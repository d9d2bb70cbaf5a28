//! What a [`State`](super::State) asks of the place where its rows are.
//!
//! A keep never fails a call: one that cannot read or write answers as if there was nothing, remembers why, and
//! whoever drives the state throws away what came of it.

use std::fmt::Debug;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Key, Message, MessageId, RealmId};

use super::super::documents::Rows;
use super::super::types::{
    Bounds, DeadLetterId, Delayed, Exception, LogId, QueueId, QueueKind, QueueSpec, Seq,
};
use super::changes::{Changes, Touched};
use super::log::Totals;
use super::realm::Kept;

/// A stored message, without its body where that is elsewhere. Each is one reference to it.
pub(crate) trait Held: Clone + Debug {
    /// [`Message::size`].
    fn size(&self) -> u64;
    /// When it was accepted.
    fn produced(&self) -> Timestamp;
    /// The expiry that holds here.
    fn expires(&self) -> Option<Timestamp>;
    /// Whether it is for plain queues too.
    fn is_guaranteed(&self) -> bool;
    /// The same with another expiry.
    fn expiring(self, expires: Option<Timestamp>) -> Self;
}

/// The entries of one log. They count the bytes of their messages in their realm's [`Kept`].
pub(crate) trait Entries: Debug {
    /// How a message is held.
    type Held: Held;

    /// Adds an entry; `before` are the totals up to the last one, `totals` those including it.
    /// `is_first`: nothing is left before it.
    fn push(&mut self, message: &Arc<Message>, before: Totals, totals: Totals, is_first: bool);

    /// The entry at `seq`, if it is not let go.
    fn get(&self, seq: Seq) -> Option<Self::Held>;

    /// The totals up to `seq`; where entries are let go it is the end of the gap. `None`: up to the newest.
    fn totals_at(&self, seq: Seq) -> Option<Totals>;

    /// The seq of the guaranteed entry with this number; if it is let go, a seq of its gap. `None`: the newest.
    fn seq_of_guaranteed(&self, number: u64) -> Option<Seq>;

    /// Lets go of everything up to `floor`; up to `front` that has been done.
    fn trim_front(&mut self, front: Seq, floor: Seq);

    /// Lets go of the entries after `after` up to `upto`.
    fn clear_between(&mut self, after: Seq, upto: Seq);

    /// Takes the next entry that has expired out; its seq and, if it is a guaranteed one, its number among those.
    fn take_expired(&mut self, now: Timestamp) -> Option<(Seq, Option<u64>)>;

    /// When the next entry expires.
    fn next_expiry(&mut self) -> Option<Timestamp>;

    /// Entries after `after` in order, at most so many and so many bytes or one, each with the totals including it
    /// and its message; without one that is damaged, which is set aside.
    fn after(&self, after: Seq, most: (usize, usize)) -> Vec<(Totals, Option<Arc<Message>>)>;
}

/// Users' own ids of one realm (P16).
pub(crate) trait Uids: Debug {
    /// The message stored under this id, and when.
    fn find(&self, uid: &Arc<str>) -> Option<(MessageId, Timestamp)>;
    /// Remembers a stored message.
    fn set(&mut self, uid: Arc<str>, id: MessageId, now: Timestamp);
    /// Forgets what is past its time or beyond the bounds.
    fn end(&mut self, now: Timestamp, bounds: &Bounds);
    /// Whether none is remembered.
    fn is_empty(&self) -> bool;
    /// Those behind a place, the oldest first, at most `most`; the place of the last one if there was any.
    #[expect(clippy::type_complexity, reason = "a row and its place")]
    fn after(
        &self,
        after: u64,
        most: usize,
    ) -> (Vec<(Arc<str>, MessageId, Timestamp)>, Option<u64>);
}

/// One exception.
#[derive(Debug, Clone)]
pub(crate) struct Row<H> {
    /// The message.
    pub(crate) held: H,
    /// Times it was a dead letter.
    pub(crate) rounds: u32,
    pub(crate) state: Exception,
}

/// A dead letter; its fields are those of [`DeadLetter`](super::super::types::DeadLetter).
#[derive(Debug, Clone)]
pub(crate) struct Letter<H> {
    pub(crate) id: DeadLetterId,
    pub(crate) key: Key,
    pub(crate) kind: QueueKind,
    pub(crate) name: Arc<str>,
    pub(crate) held: H,
    pub(crate) attempts: u32,
    pub(crate) rounds: u32,
    pub(crate) reason: Arc<str>,
    pub(crate) first_error: Option<Arc<str>>,
    pub(crate) last_error: Option<Arc<str>>,
    pub(crate) dead_at: Timestamp,
}

/// Where the rows are. Realms go by a number here, so that a new name costs one row.
pub(crate) trait Keep: Debug {
    /// How a message is held.
    type Held: Held;
    /// The entries of one log.
    type Entries: Entries<Held = Self::Held>;
    /// Users' own ids of one realm.
    type Uids: Uids;
    /// Documents.
    type Documents: Rows;
    /// Whether what the state holds itself is written too: then changes are noted until they are.
    const IS_WRITTEN: bool;

    /// Room for a new log's entries.
    fn entries(&mut self, log: LogId, realm: u64, key: &Key, kept: &Kept) -> Self::Entries;
    /// Room for a new realm's ids.
    fn uids(&mut self, realm: u64, name: &RealmId) -> Self::Uids;

    /// Where documents are.
    fn documents(&self) -> &Self::Documents;
    /// The same, to be changed.
    fn documents_mut(&mut self) -> &mut Self::Documents;

    /// What an export that is under way has still to tell.
    fn changes(&mut self) -> &mut Option<Box<Changes>>;

    /// Notes a row for the export, if one is under way.
    fn note(&mut self, row: impl FnOnce() -> Touched) {
        let changes = self.changes();
        if let Some(noted) = changes {
            match noted.is_over() {
                true => *changes = None,
                false => noted.add(row()),
            }
        }
    }

    /// Notes a realm that is new or has a new name.
    fn note_realm(&mut self, realm: u64, name: &RealmId) {
        if let Some(changes) = self.changes() {
            changes.names.insert(realm, name.clone());
        }
        self.note(|| Touched::Realm(realm));
    }

    /// A message that comes from another store, as one reference.
    fn adopt(&mut self, message: &Arc<Message>) -> Self::Held;

    /// Exceptions of a queue after a seq, by seq, at most `most`; without a row if it is damaged and set aside.
    fn exceptions_after(
        &self,
        queue: QueueId,
        after: Seq,
        most: usize,
    ) -> Vec<(Seq, Option<Row<Arc<Message>>>)>;

    /// Dead letters of a realm by id, at most `most`, without damaged ones.
    fn letters_after(
        &self,
        realm: u64,
        after: Option<DeadLetterId>,
        most: usize,
    ) -> Vec<Letter<Arc<Message>>>;

    /// A delayed message, if it is there and not damaged.
    fn delayed_of(&self, id: MessageId) -> Option<Delayed>;

    /// Delayed messages behind a due time and place, in order, at most `most`, without damaged ones; the due time
    /// and place of the last one if there was any.
    fn delayed_after(
        &self,
        after: Option<(u64, u64)>,
        most: usize,
    ) -> (Vec<Delayed>, Option<(u64, u64)>);

    /// One more reference to a message that stays where it was too.
    fn retain(&mut self, held: &Self::Held);
    /// One reference less.
    fn release(&mut self, held: Self::Held);

    /// Puts an exception in, with its reference.
    fn insert_exception(&mut self, queue: QueueId, log: LogId, row: Row<Self::Held>);
    /// Takes an exception out, with its reference.
    fn take_exception(&mut self, queue: QueueId, seq: Seq) -> Option<Row<Self::Held>>;
    /// Changes the state of an exception; whether there is one.
    fn change_exception(&mut self, queue: QueueId, state: &Exception) -> bool;
    /// The exception with the lowest seq.
    fn first_exception(&self, queue: QueueId) -> Option<Self::Held>;
    /// Drops all exceptions of a queue.
    fn drop_exceptions(&mut self, queue: QueueId);
    /// An exception of any queue that has expired.
    fn expired_exception(&self, now: Timestamp) -> Option<(QueueId, Seq)>;

    /// Puts a dead letter in, with its reference; whether there was none of this id.
    fn bury(&mut self, realm: u64, letter: Letter<Self::Held>) -> bool;
    /// Whether a dead letter is there.
    fn has_letter(&self, realm: u64, id: DeadLetterId) -> bool;
    /// Takes a dead letter out, with its reference.
    fn take_letter(&mut self, realm: u64, id: DeadLetterId) -> Option<Letter<Self::Held>>;
    /// Drops the oldest dead letters, at most `most`, of those buried at `before` or earlier; which.
    fn end_letters(&mut self, realm: u64, most: usize, before: Timestamp) -> Vec<DeadLetterId>;

    /// Holds a message until it is due.
    fn hold(&mut self, realm: u64, row: Delayed);
    /// Whether a delayed message is there.
    fn holds(&self, id: MessageId) -> bool;
    /// Drops a delayed message; its realm.
    fn drop_delayed(&mut self, id: MessageId) -> Option<RealmId>;

    /// A realm has ended: whatever is left of it goes.
    fn realm_gone(&mut self, realm: u64, name: &RealmId);
    /// A realm has another name.
    fn realm_renamed(&mut self, realm: u64, from: &RealmId, to: &RealmId);
    /// Bytes of the entries of a realm that were there when the store opened.
    fn weigh(&self, _realm: u64, _kept: &Kept) -> u64 {
        0
    }
    /// A log has ended: its entries go.
    fn log_gone(&mut self, _log: LogId, _kept: &Kept) {}
    /// A queue is there.
    fn queue_made(&mut self, _queue: QueueId, _log: LogId, _spec: &QueueSpec) {}
    /// How a queue is to be has changed.
    fn queue_set(&mut self, _queue: QueueId, _spec: &QueueSpec) {}
    /// A queue has ended, and its exceptions with it.
    fn queue_gone(&mut self, _queue: QueueId) {}

    /// Something of a queue may have changed.
    fn note_queue(&mut self, queue: QueueId) {
        self.note(|| Touched::Queue(queue));
    }
    /// Something of a log may have changed.
    fn note_log(&mut self, log: LogId) {
        self.note(|| Touched::Log(log));
    }
    /// Marks of a realm have changed.
    fn note_marks(&mut self, _realm: &RealmId) {}
}
