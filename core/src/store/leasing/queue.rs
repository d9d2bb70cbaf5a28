//! One queue: which of its rows are unsettled, and which of their messages are here.
//!
//! Every unsettled entry has a place here, its message only while there is room: what is beyond
//! that is read from the store again when its turn comes. Messages that a `dequeue` has brought
//! stay until they are settled: the store may not have them any more. Knows no log and no call.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::oneshot;

use crate::Result;
use crate::clock::Timestamp;
use crate::model::Message;

use super::super::memory::{Exceptions, Row};
use super::super::simple::{Place, RowId};
use super::super::types::{Depth, LogId, QueueId, QueueKind, QueueSettings, Seq};

/// Messages of one queue that are kept here beside the store.
const MOST_HERE: usize = if cfg!(test) { 8 } else { 1024 };
/// And bytes of them.
const MOST_HERE_BYTES: u64 = 1 << 20;

/// A row in the store.
#[derive(Debug, Default)]
pub(super) struct Stored {
    id: OnceLock<RowId>,
    /// A `dequeue` has brought it; the store may not have it any more.
    is_taken: AtomicBool,
}

impl Stored {
    /// A row that a `dequeue` has brought.
    pub(super) fn taken(id: RowId) -> Cell {
        Arc::new(Self {
            id: id.into(),
            is_taken: true.into(),
        })
    }

    /// Its id, once the store has given it.
    pub(super) fn id(&self) -> Option<&RowId> {
        self.id.get()
    }

    /// The store has given it an id. The first stays.
    pub(super) fn set(&self, id: RowId) {
        let _ = self.id.set(id);
    }

    pub(super) fn take(&self) {
        self.is_taken.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }
}

/// A row, shared by its entry and what is to be told of it.
pub(super) type Cell = Arc<Stored>;

/// What expires when, of all queues.
pub(super) type Expiry = BTreeSet<(Timestamp, QueueId, Seq)>;

/// Who waits for rows.
pub(super) type Reader = oneshot::Sender<Result<()>>;

/// An entry that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) cell: Cell,
    /// `None`: only the store has it.
    pub(super) message: Option<Arc<Message>>,
    pub(super) size: u64,
    pub(super) produced: Timestamp,
    pub(super) expires: Option<Timestamp>,
}

impl Waiting {
    pub(super) fn new(cell: Cell, message: Arc<Message>) -> Self {
        Self {
            cell,
            size: message.size() as u64,
            produced: message.produced,
            expires: message.expires,
            message: Some(message),
        }
    }
}

/// Whether the rows that were stored before this process are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nobody has asked yet.
    No,
    /// The store has been asked.
    Soon,
    /// All that is unsettled is here.
    Yes,
}

/// Where the rows of an earlier process go among the entries.
#[derive(Debug, Clone, Copy)]
pub(super) enum Past {
    /// Behind what is there: the queue is new here.
    New,
    /// Before all of this process, which numbers from `base`.
    Remembered {
        base: Seq,
        /// Entries up to it may have been sent.
        sent: Seq,
        /// Rows of a later time were not sent: nobody was attached.
        until: Option<Timestamp>,
    },
}

/// A queue, or what is left of a forgotten one.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) log: LogId,
    pub(super) kind: QueueKind,
    pub(super) name: Arc<str>,
    pub(super) settings: QueueSettings,
    pub(super) place: Arc<Place>,
    pub(super) seen: Timestamp,
    pub(super) is_attached: bool,
    pub(super) is_left: bool,
    /// Entries up to it never were for this queue.
    pub(super) joined: Seq,
    pub(super) sent: Seq,
    pub(super) past: Past,
    pub(super) known: Known,
    /// Rows of this process, until all are known.
    pub(super) own: HashSet<RowId>,
    /// The last entry that was found in the store.
    pub(super) found: Seq,
    pub(super) waiting: BTreeMap<Seq, Waiting>,
    pub(super) exceptions: Exceptions,
    /// The rows of exceptions.
    pub(super) cells: BTreeMap<Seq, Cell>,
    pub(super) readers: Vec<Reader>,
    pub(super) is_fetching: bool,
    bytes: u64,
    here: usize,
    here_bytes: u64,
}

impl Queue {
    pub(super) fn new(
        log: LogId,
        kind: QueueKind,
        name: Arc<str>,
        settings: QueueSettings,
        place: Arc<Place>,
    ) -> Self {
        Self {
            log,
            kind,
            name,
            settings,
            place,
            seen: Timestamp::default(),
            is_attached: false,
            is_left: false,
            joined: 0,
            sent: 0,
            past: Past::New,
            known: Known::No,
            own: HashSet::new(),
            found: 0,
            waiting: BTreeMap::new(),
            exceptions: Exceptions::default(),
            cells: BTreeMap::new(),
            readers: Vec::new(),
            is_fetching: false,
            bytes: 0,
            here: 0,
            here_bytes: 0,
        }
    }

    /// Unsettled entries that are known.
    pub(super) fn count(&self) -> u64 {
        self.waiting.len() as u64 + self.exceptions.len()
    }

    /// Bytes of their messages.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.exceptions.bytes()
    }

    pub(super) fn depth(&self) -> Depth {
        let waiting = self.waiting.values().next().map(|first| first.produced);
        let exception = self.exceptions.after(0).next();
        let exception = exception.map(|row| row.held.produced);
        Depth {
            count: self.count(),
            bytes: self.bytes(),
            oldest: waiting.into_iter().chain(exception).min(),
        }
    }

    /// Everything up to it is settled, an exception, or not for this queue.
    pub(super) fn low(&self, head: Seq) -> Seq {
        if self.known != Known::Yes && matches!(self.past, Past::Remembered { .. }) {
            return 0;
        }
        let first = self.waiting.keys().next();
        first.map_or(head, |first| first - 1)
    }

    /// Adds an entry. `may_leave`: its message may be left to the store.
    pub(super) fn add(
        &mut self,
        id: QueueId,
        seq: Seq,
        mut entry: Waiting,
        may_leave: bool,
        expiry: &mut Expiry,
    ) {
        if let Some(expires) = entry.expires {
            expiry.insert((expires, id, seq));
        }
        self.bytes += entry.size;
        if may_leave && self.is_crowded() {
            entry.message = None;
        } else {
            self.here += 1;
            self.here_bytes += entry.size;
        }
        self.waiting.insert(seq, entry);
    }

    /// Whether as many messages are here as are kept beside the store.
    pub(super) fn is_crowded(&self) -> bool {
        self.here >= MOST_HERE || self.here_bytes >= MOST_HERE_BYTES
    }

    /// A `dequeue` has brought the message of a known entry.
    pub(super) fn fill(&mut self, seq: Seq, message: Arc<Message>) {
        let Some(entry) = self.waiting.get_mut(&seq) else {
            return;
        };
        if entry.message.is_none() {
            // Its TTL is the one it was stored with: the store may not have kept it.
            let expires = entry.expires;
            let message = match message.expires == expires {
                true => message,
                false => Arc::new(Message {
                    expires,
                    ..Message::clone(&message)
                }),
            };
            entry.message = Some(message);
            self.here += 1;
            self.here_bytes += entry.size;
        }
    }

    /// Takes an entry that waits for its turn out, with its place in the order of expiry.
    pub(super) fn take_waiting(
        &mut self,
        id: QueueId,
        seq: Seq,
        expiry: &mut Expiry,
    ) -> Option<Waiting> {
        let entry = self.waiting.remove(&seq)?;
        self.bytes -= entry.size;
        if entry.message.is_some() {
            self.here -= 1;
            self.here_bytes -= entry.size;
        }
        if let Some(expires) = entry.expires {
            expiry.remove(&(expires, id, seq));
        }
        Some(entry)
    }

    /// Takes an exception out, with its place in the order of expiry.
    pub(super) fn take_exception(
        &mut self,
        id: QueueId,
        seq: Seq,
        expiry: &mut Expiry,
    ) -> Option<(Row, Cell)> {
        let row = self.exceptions.take(seq)?;
        if let Some(expires) = row.held.expires {
            expiry.remove(&(expires, id, seq));
        }
        Some((row, self.cells.remove(&seq).unwrap_or_default()))
    }

    /// Settles an entry; its row.
    pub(super) fn take(&mut self, id: QueueId, seq: Seq, expiry: &mut Expiry) -> Option<Cell> {
        if let Some((_, cell)) = self.take_exception(id, seq, expiry) {
            return Some(cell);
        }
        self.take_waiting(id, seq, expiry).map(|entry| entry.cell)
    }

    /// Settles everything; the rows.
    pub(super) fn take_all(&mut self, id: QueueId, expiry: &mut Expiry) -> Vec<Cell> {
        let mut seqs: Vec<Seq> = self.waiting.keys().copied().collect();
        seqs.extend(self.cells.keys());
        seqs.into_iter()
            .filter_map(|seq| self.take(id, seq, expiry))
            .collect()
    }

    pub(super) fn except(&mut self, id: QueueId, row: Row, cell: Cell, expiry: &mut Expiry) {
        if let Some(expires) = row.held.expires {
            expiry.insert((expires, id, row.state.seq));
        }
        self.cells.insert(row.state.seq, cell);
        self.exceptions.insert(row);
    }

    /// Every unsettled entry with its row, by seq.
    pub(super) fn entries(&self) -> Vec<(Seq, &Cell)> {
        let waiting = self.waiting.iter().map(|(seq, entry)| (*seq, &entry.cell));
        let exceptions = self.cells.iter().map(|(seq, cell)| (*seq, cell));
        let mut entries: Vec<_> = waiting.chain(exceptions).collect();
        entries.sort_unstable_by_key(|(seq, _)| *seq);
        entries
    }

    /// The message of an entry, if it is here.
    pub(super) fn message(&self, seq: Seq) -> Option<&Arc<Message>> {
        match self.waiting.get(&seq) {
            Some(entry) => entry.message.as_ref(),
            None => self.exceptions.get(seq).map(|row| &row.held),
        }
    }

    /// Tells everybody who waits for rows.
    pub(super) fn tell_readers(&mut self, outcome: &Result<()>) {
        for reader in self.readers.drain(..) {
            // Nobody may wait any more.
            let _ = reader.send(outcome.clone());
        }
    }
}
