//! The small contract for stores that users write: rows in, rows out, rows gone.
//!
//! One row is one message in one queue. Such a store knows no attempts, no sent marks and no
//! subscriptions: [`Leasing`](super::Leasing) lifts it to the full [`Store`](super::Store) and
//! keeps those itself. It calls from a thread of its own, one call of a queue at a time, many
//! queues at once.

mod raw;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::model::{Extras, Message, MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::pending::Pending;
use super::types::{Durability, LogId, Seq};

/// The id that a store gave a row: a text or a whole number, handed back as it came.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowId {
    /// A text.
    Text(Arc<str>),
    /// A number, as databases count rows.
    Number(i64),
}

impl From<&str> for RowId {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for RowId {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// Which queue, in the words of such stores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The realm.
    pub realm: Arc<str>,
    /// The key, as on the wire after `CONSUME-`.
    pub event: Arc<str>,
    /// The consumer id; `group:` and the name for a group.
    pub consumer: Arc<str>,
}

/// A row to store.
#[derive(Debug, Clone)]
pub struct NewRow {
    /// Its queue.
    pub place: Arc<Place>,
    /// A proposal for its id, unique in the world; the store may choose another one.
    pub id: Arc<str>,
    /// The message.
    pub message: Arc<Message>,
    /// How long it lives from now; `None`: for ever.
    pub ttl: Option<Duration>,
    /// The entry that it is; kept in [`NewRow::raw`].
    pub entry: (LogId, Seq),
}

/// A row that is stored.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its id.
    pub id: RowId,
    /// The message.
    pub message: Arc<Message>,
    /// The entry that it was, if the store has kept [`NewRow::raw`].
    pub entry: Option<(LogId, Seq)>,
}

/// A row given up on, as [`SimpleStore::list_dlq`] tells it.
#[derive(Debug, Clone)]
pub struct DeadRow {
    /// Its queue.
    pub place: Place,
    /// The row.
    pub row: Row,
    /// Why.
    pub reason: Arc<str>,
    /// When.
    pub dead_at: Timestamp,
}

/// How much of a queue is wanted. A store may ignore it and answer all rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowPage {
    /// At most so many; `None`: all.
    pub limit: Option<usize>,
    /// Those behind this row, which need not be there any more; `None`: from the oldest.
    pub after: Option<RowId>,
}

/// Which optional methods a store has. Read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each optional method"
)]
pub struct Methods {
    /// [`SimpleStore::dequeue`] heeds its [`RowPage`]. Together with [`NewRow::raw`] it lets a
    /// backlog stay in the store until its turn comes.
    pub pages: bool,
    /// [`SimpleStore::enqueue_many`].
    pub enqueue_many: bool,
    /// [`SimpleStore::ack_many`].
    pub ack_many: bool,
    /// [`SimpleStore::dead_letter`].
    pub dead_letter: bool,
    /// [`SimpleStore::list_dlq`].
    pub list_dlq: bool,
    /// [`SimpleStore::discard_dlq`].
    pub discard_dlq: bool,
    /// [`SimpleStore::count_queued`].
    pub count_queued: bool,
    /// [`SimpleStore::purge_realm`].
    pub purge_realm: bool,
    /// [`SimpleStore::import`].
    pub import: bool,
}

/// A store as its user writes it. Only the first three methods must be there; [`Methods`] says
/// which others are.
///
/// ```
/// use std::sync::Mutex;
/// use restante::store::{NewRow, Pending, Place, Row, RowId, RowPage, SimpleStore};
///
/// #[derive(Default)]
/// struct Shelf(Mutex<Vec<(NewRow, RowId)>>);
///
/// impl SimpleStore for Shelf {
///     fn enqueue(&self, row: NewRow) -> Pending<RowId> {
///         let id = RowId::from(&*row.id);
///         self.0.lock().unwrap().push((row, id.clone()));
///         Pending::ready(Ok(id))
///     }
///     fn dequeue(&self, place: &Place, _: RowPage) -> Pending<Vec<Row>> {
///         let rows = self.0.lock().unwrap();
///         let rows = rows.iter().filter(|(row, _)| *row.place == *place);
///         Pending::ready(Ok(rows.map(|(row, id)| row.stored(id.clone())).collect()))
///     }
///     fn ack(&self, id: RowId) -> Pending<()> {
///         self.0.lock().unwrap().retain(|(_, other)| *other != id);
///         Pending::ready(Ok(()))
///     }
/// }
/// ```
pub trait SimpleStore: Send + Sync + 'static {
    /// Stores a row behind the others of its queue; its id.
    fn enqueue(&self, row: NewRow) -> Pending<RowId>;

    /// The rows of a queue, oldest first. It may take them out of the store or leave them there.
    fn dequeue(&self, place: &Place, page: RowPage) -> Pending<Vec<Row>>;

    /// Drops a row; one that is not there is fine.
    fn ack(&self, id: RowId) -> Pending<()>;

    /// Which of the following there are. None.
    fn methods(&self) -> Methods {
        Methods::default()
    }

    /// What its yes survives (P1). Reconnects.
    fn durability(&self) -> Durability {
        Durability::Memory
    }

    /// Stores rows of one queue in this order, all or none; their ids.
    fn enqueue_many(&self, rows: Vec<NewRow>) -> Pending<Vec<RowId>> {
        let _ = rows;
        missing("enqueue_many")
    }

    /// Drops rows; ones that are not there are fine.
    fn ack_many(&self, ids: Vec<RowId>) -> Pending<()> {
        let _ = ids;
        missing("ack_many")
    }

    /// Moves a row from its queue to the dead letters.
    fn dead_letter(&self, id: RowId, reason: Arc<str>) -> Pending<()> {
        let _ = (id, reason);
        missing("dead_letter")
    }

    /// The dead letters of a realm, or of all.
    fn list_dlq(&self, realm: Option<&RealmId>) -> Pending<Vec<DeadRow>> {
        let _ = realm;
        missing("list_dlq")
    }

    /// Drops a dead letter; one that is not there is fine.
    fn discard_dlq(&self, id: RowId, realm: &RealmId) -> Pending<()> {
        let _ = (id, realm);
        missing("discard_dlq")
    }

    /// How many rows the queues of a realm hold.
    fn count_queued(&self, realm: &RealmId) -> Pending<u64> {
        let _ = realm;
        missing("count_queued")
    }

    /// Drops all rows and dead letters of a realm.
    fn purge_realm(&self, realm: &RealmId) -> Pending<()> {
        let _ = realm;
        missing("purge_realm")
    }

    /// Puts rows of one queue that [`SimpleStore::dequeue`] took out back in front, under the ids
    /// they had.
    fn import(&self, place: &Place, rows: Vec<Row>) -> Pending<()> {
        let _ = (place, rows);
        missing("import")
    }

    /// Nothing follows.
    fn close(&self) -> Pending<()> {
        Pending::ready(Ok(()))
    }
}

fn missing<T>(method: &str) -> Pending<T> {
    Pending::ready(Err(Error::new(
        ErrorKind::StoreUnsupported,
        format!("the store has no {method}"),
    )))
}

impl NewRow {
    /// The row as it will come back from a store that keeps everything.
    pub fn stored(&self, id: RowId) -> Row {
        Row {
            id,
            message: Arc::clone(&self.message),
            entry: Some(self.entry),
        }
    }

    /// The whole message as one JSON text, attachments in base64, with a checksum (P7, P20);
    /// [`Row::from_raw`] reads it.
    pub fn raw(&self) -> String {
        raw::write(&self.message, self.entry)
    }
}

impl Row {
    /// A row of which the store has kept the body only (JSON text, with placeholders for the
    /// attachments) and who produced it when. Its event is that of its queue.
    pub fn plain(
        id: RowId,
        (body, attachments): (Bytes, Vec<Bytes>),
        from: &str,
        produced: Timestamp,
        expires: Option<Timestamp>,
    ) -> Self {
        let extras = Extras {
            attachments,
            ..Extras::default()
        };
        Self {
            id,
            message: Arc::new(Message {
                id: MessageId(0),
                event: "".into(),
                from: from.into(),
                body: Some(body),
                extras: (!extras.is_empty()).then(|| Box::new(extras)),
                produced,
                expires,
                guaranteed: false,
                key: None,
            }),
            entry: None,
        }
    }

    /// A row as [`NewRow::raw`] wrote it.
    ///
    /// # Errors
    /// `store_corrupt` for anything else (P7).
    pub fn from_raw(id: RowId, raw: &str) -> Result<Self> {
        let (message, entry) = raw::read(raw)?;
        Ok(Self {
            id,
            message: Arc::new(message),
            entry: Some(entry),
        })
    }
}
