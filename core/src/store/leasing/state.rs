//! Everything that is known of a lifted store, and the life of queues, logs and realms.
//!
//! Methods assume the lock. What the store has to be told goes into the lines; nothing here waits.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock::{Elapsed, Timestamp};
use crate::model::{Key, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::documents::Book;
use super::super::memory::{Delays, Graves, MemoryUids};
use super::super::settings;
use super::super::simple::Place;
use super::super::state::{Marks, Runs};
use super::super::types::{
    Bounds, DeadLetter, DeadLetterId, LogId, QueueId, QueueKind, QueueRecord, QueueSpec, Seq,
    StoreCounters,
};
use super::append::InFlight;
use super::line::{Lines, Op, Told};
use super::queue::{Cell, Expiry, Known, Past, Queue};

/// What is there once per realm.
#[derive(Debug)]
pub(super) struct Realm {
    pub(super) logs: HashMap<Key, LogId>,
    pub(super) queues: HashMap<(LogId, QueueKind, Arc<str>), QueueId>,
    /// Unsettled entries of all its queues.
    pub(super) queued: u64,
    /// Bytes of their messages, one row a queue.
    pub(super) bytes: u64,
    pub(super) delayed: u64,
    pub(super) marks: Marks<MemoryUids>,
    pub(super) graves: Graves<DeadLetter>,
}

impl Default for Realm {
    fn default() -> Self {
        Self {
            logs: HashMap::new(),
            queues: HashMap::new(),
            queued: 0,
            bytes: 0,
            delayed: 0,
            marks: Marks::new(MemoryUids::default(), false),
            graves: Graves::default(),
        }
    }
}

impl Realm {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
            && self.delayed == 0
            && self.marks.is_empty()
            && self.graves.len() == 0
    }

    /// Buries; which of the oldest had to go for the bound.
    pub(super) fn bury(&mut self, letter: DeadLetter, max: usize) -> Vec<DeadLetterId> {
        self.graves.bury(letter);
        let over = self.graves.len().saturating_sub(max);
        self.graves.end_old(Timestamp(u64::MAX), over)
    }
}

/// The entries of one key: here only their numbers.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) realm: RealmId,
    pub(super) key: Key,
    pub(super) head: Seq,
    pub(super) queues: BTreeSet<QueueId>,
    /// Appends under way with their entries, in order.
    pub(super) line: VecDeque<(u64, Seq)>,
    /// Recent entries that were not guaranteed.
    pub(super) ordinary: Runs,
}

impl Log {
    fn new(realm: RealmId, key: Key, head: Seq) -> Self {
        Self {
            realm,
            key,
            head,
            queues: BTreeSet::new(),
            line: VecDeque::new(),
            ordinary: Runs::default(),
        }
    }

    /// Everything up to it is stored or was refused.
    pub(super) fn committed(&self) -> Seq {
        self.line.front().map_or(self.head, |(_, seq)| seq - 1)
    }
}

/// Everything.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) bounds: Bounds,
    pub(super) counters: StoreCounters,
    pub(super) is_closed: bool,
    pub(super) realms: HashMap<RealmId, Realm>,
    pub(super) logs: HashMap<LogId, Log>,
    pub(super) queues: BTreeMap<QueueId, Queue>,
    pub(super) places: HashSet<Arc<Place>>,
    pub(super) delays: Delays,
    /// Kept if subscriptions are.
    pub(super) documents: Book,
    pub(super) expiry: Expiry,
    pub(super) in_flight: HashMap<u64, InFlight>,
    /// Marks of appends under way.
    pub(super) coming: HashMap<super::append::MarkKey, u64>,
    pub(super) last_append: u64,
    /// Rows of dead letters.
    pub(super) dead_rows: HashMap<DeadLetterId, Cell>,
    pub(super) lines: Lines,
    pub(super) last_id: u64,
    /// Tells this process's rows from those of others.
    pub(super) nonce: u64,
    pub(super) last_row: u64,
    /// Whether `dequeue` leaves rows in the store, once that is known.
    pub(super) keeps_rows: Option<bool>,
    /// Whether it answers rows with their raw text, once that is known.
    pub(super) keeps_raw: Option<bool>,
    /// The store is being asked for both.
    pub(super) is_trying: bool,
    /// What is remembered has changed since it was written.
    pub(super) is_dirty: bool,
    pub(super) savers: Vec<oneshot::Sender<Result<()>>>,
    /// Who waits for the end.
    pub(super) closers: Vec<oneshot::Sender<Result<()>>>,
    /// How often this has been started on the same memory.
    pub(super) generation: u64,
    /// Whether what is remembered is written anywhere.
    pub(super) remembers: bool,
}

pub(super) fn no_queue() -> Error {
    Error::new(
        ErrorKind::DeliveryUnknown,
        "there is no such queue any more",
    )
}

impl State {
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A queue that is not forgotten.
    pub(super) fn live(&self, id: QueueId) -> Result<&Queue> {
        let queue = self.queues.get(&id).filter(|queue| !queue.is_left);
        queue.ok_or_else(no_queue)
    }

    /// A queue, left-over or not.
    pub(super) fn any(&self, id: QueueId) -> Result<&Queue> {
        self.queues.get(&id).ok_or_else(no_queue)
    }

    pub(super) fn log_of(&self, queue: &Queue) -> Result<&Log> {
        self.logs.get(&queue.log).ok_or_else(no_queue)
    }

    /// Runs `change` on a queue, left-over or not, and keeps the realm's sums in step.
    pub(super) fn change<T>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut Queue, &Log, &mut Expiry) -> T,
    ) -> Result<T> {
        let queue = self.queues.get_mut(&id).ok_or_else(no_queue)?;
        let log = self.logs.get(&queue.log).ok_or_else(no_queue)?;
        let before = (queue.count(), queue.bytes());
        let answer = change(queue, log, &mut self.expiry);
        let after = (queue.count(), queue.bytes());
        if before != after
            && let Some(realm) = self.realms.get_mut(&log.realm)
        {
            realm.queued = (realm.queued + after.0).saturating_sub(before.0);
            realm.bytes = (realm.bytes + after.1).saturating_sub(before.1);
        }
        Ok(answer)
    }

    /// Drops rows from the store.
    pub(super) fn ack(&mut self, id: QueueId, cells: Vec<Cell>, told: Told) {
        self.lines.push(id, Op::Ack { cells, told });
    }

    /// The same, and when that is done.
    pub(super) fn ack_then(&mut self, id: QueueId, cells: Vec<Cell>) -> Waits {
        let (told, waits) = oneshot::channel();
        self.ack(id, cells, Some(told));
        vec![waits]
    }

    /// What is remembered has changed; when that is written.
    pub(super) fn save(&mut self) -> Waits {
        if !self.remembers {
            return Vec::new();
        }
        self.is_dirty = true;
        let (saver, waits) = oneshot::channel();
        self.savers.push(saver);
        vec![waits]
    }

    pub(super) fn record(&self, id: QueueId) -> Result<QueueRecord> {
        self.record_of(id, self.live(id)?)
    }

    /// A forgotten queue of which something is left.
    pub(super) fn left_over(&self, id: QueueId) -> Option<QueueRecord> {
        let queue = self.queues.get(&id).filter(|queue| queue.is_left)?;
        self.record_of(id, queue).ok()
    }

    fn record_of(&self, id: QueueId, queue: &Queue) -> Result<QueueRecord> {
        let log = self.log_of(queue)?;
        Ok(QueueRecord {
            queue: id,
            log: queue.log,
            spec: spec_of(queue, log),
            seen: queue.seen,
            low: queue.low(log.head),
            sent: queue.sent,
            head: log.head,
            exceptions: queue.exceptions.len(),
            depth: queue.count(),
        })
    }

    pub(super) fn records(&self) -> Vec<QueueRecord> {
        self.queues
            .keys()
            .filter_map(|id| self.record(*id).ok())
            .collect()
    }

    pub(super) fn find(&self, spec: &QueueSpec) -> Option<QueueId> {
        let realm = self.realms.get(&spec.realm)?;
        let log = realm.logs.get(&spec.key)?;
        let name = (*log, spec.kind, Arc::clone(&spec.name));
        realm.queues.get(&name).copied()
    }

    pub(super) fn open(&mut self, spec: QueueSpec, now: Timestamp) -> Result<QueueId> {
        let id = match self.find(&spec) {
            Some(id) => {
                self.reopen(id, spec, now)?;
                id
            }
            None => self.create(spec, now),
        };
        Ok(id)
    }

    fn reopen(&mut self, id: QueueId, spec: QueueSpec, now: Timestamp) -> Result<()> {
        let queue = self.queues.get_mut(&id).ok_or_else(no_queue)?;
        settings::check_owner(&queue.settings, queue.is_left, &spec.settings)?;
        queue.is_left = false;
        queue.settings = spec.settings;
        queue.seen = now;
        queue.is_attached = true;
        Ok(())
    }

    fn create(&mut self, spec: QueueSpec, now: Timestamp) -> QueueId {
        let known = self.realms.get(&spec.realm);
        let known = known.and_then(|realm| realm.logs.get(&spec.key).copied());
        let log = known.unwrap_or_else(|| LogId(self.new_id()));
        let id = QueueId(self.new_id());
        let place = self.new_place(&spec);
        let (kind, name) = (spec.kind, Arc::clone(&spec.name));
        let mut queue = Queue::new(log, kind, name, spec.settings, place);
        let head = self.logs.get(&log).map_or(0, |log| log.head);
        (queue.joined, queue.sent, queue.found) = (head, head, head);
        (queue.seen, queue.is_attached) = (now, true);
        self.insert(id, queue, spec.realm, spec.key, head);
        id
    }

    /// Adds a queue, and its log if there is none yet.
    pub(super) fn insert(
        &mut self,
        id: QueueId,
        queue: Queue,
        realm: RealmId,
        key: Key,
        head: Seq,
    ) {
        let names = self.realms.entry(realm.clone()).or_default();
        names.logs.insert(key.clone(), queue.log);
        let name = (queue.log, queue.kind, Arc::clone(&queue.name));
        names.queues.insert(name, id);
        let log = self.logs.entry(queue.log);
        let log = log.or_insert_with(|| Log::new(realm, key, head));
        log.queues.insert(id);
        self.places.insert(Arc::clone(&queue.place));
        self.queues.insert(id, queue);
    }

    /// The queue's name in the store: as on the wire, unless another key has the same one.
    fn new_place(&self, spec: &QueueSpec) -> Arc<Place> {
        let consumer: Arc<str> = match spec.kind {
            QueueKind::Consumer if !is_marked(&spec.name) => Arc::clone(&spec.name),
            QueueKind::Consumer => format!("consumer:{}", spec.name).into(),
            QueueKind::Group => format!("group:{}", spec.name).into(),
            QueueKind::History => format!("history:{}", spec.name).into(),
        };
        let mut place = Place {
            realm: spec.realm.as_str().into(),
            event: spec.key.wire_name().into(),
            consumer,
        };
        if self.places.contains(&place) {
            place.event = spec.key.encode().into();
        }
        Arc::new(place)
    }

    /// Forgets a queue whose rows are known; how many it leaves.
    pub(super) fn forget(&mut self, id: QueueId, purge: bool) -> Result<(u64, Waits)> {
        let left = self.live(id)?.count();
        let mut waits = Vec::new();
        if purge || left == 0 {
            waits = self.remove(id);
        } else if let Some(queue) = self.queues.get_mut(&id) {
            queue.is_left = true;
        }
        waits.extend(self.save());
        Ok((left, waits))
    }

    /// Takes a queue away with its rows, and its log if it was the last one.
    pub(super) fn remove(&mut self, id: QueueId) -> Waits {
        let cells = self.change(id, |queue, _, expiry| queue.take_all(id, expiry));
        let waits = match cells {
            Ok(cells) if !cells.is_empty() => self.ack_then(id, cells),
            _ => Vec::new(),
        };
        let Some(queue) = self.queues.remove(&id) else {
            return waits;
        };
        self.places.remove(&queue.place);
        let Some(log) = self.logs.get_mut(&queue.log) else {
            return waits;
        };
        log.queues.remove(&id);
        let is_last = log.queues.is_empty();
        let (realm_id, key) = (log.realm.clone(), log.key.clone());
        if let Some(realm) = self.realms.get_mut(&realm_id) {
            realm.queues.remove(&(queue.log, queue.kind, queue.name));
            if is_last {
                realm.logs.remove(&key);
            }
            if realm.is_empty() {
                self.realms.remove(&realm_id);
            }
        }
        if is_last {
            self.logs.remove(&queue.log);
        }
        waits
    }

    /// Asks the store for the rows of earlier processes, unless they are known; when they are.
    pub(super) fn learn(&mut self, id: QueueId) -> Option<oneshot::Receiver<Result<()>>> {
        let queue = self.queues.get_mut(&id)?;
        if queue.known == Known::Yes {
            return None;
        }
        let (reader, waits) = oneshot::channel();
        queue.readers.push(reader);
        if queue.known == Known::No {
            queue.known = Known::Soon;
            let place = Arc::clone(&queue.place);
            self.lines.push(id, Op::Load { place, after: None });
        }
        Some(waits)
    }

    /// Whether messages may be left to the store until their turn comes.
    pub(super) fn may_leave(&self) -> bool {
        self.lines.methods.pages && self.keeps_rows == Some(true) && self.keeps_raw == Some(true)
    }

    /// Learns how the store treats rows, when a queue first has more than is kept here.
    pub(super) fn try_rows(&mut self, id: QueueId) {
        if !self.lines.methods.pages || self.keeps_rows.is_some() || self.is_trying {
            return;
        }
        if let Some(queue) = self.queues.get(&id).filter(|queue| queue.is_crowded()) {
            self.is_trying = true;
            let (place, then) = (Arc::clone(&queue.place), super::line::Then::Nothing);
            self.lines.push(
                id,
                Op::Try {
                    place,
                    first: None,
                    then,
                },
            );
        }
    }

    /// The next call to the store.
    pub(super) fn next_job(&mut self, now: Elapsed) -> Option<super::line::Job> {
        self.lines.next(now)
    }
}

/// What must be done before an answer is given.
pub(super) type Waits = Vec<oneshot::Receiver<Result<()>>>;

fn is_marked(name: &str) -> bool {
    ["consumer:", "group:", "history:"]
        .iter()
        .any(|mark| name.starts_with(mark))
}

/// What a queue was opened with; realm and key are its log's.
pub(super) fn spec_of(queue: &Queue, log: &Log) -> QueueSpec {
    QueueSpec {
        realm: log.realm.clone(),
        key: log.key.clone(),
        kind: queue.kind,
        name: Arc::clone(&queue.name),
        settings: queue.settings.clone(),
    }
}

impl Past {
    /// Where the numbers of this process begin.
    pub(super) const fn base(generation: u64) -> Seq {
        generation << 40
    }

    /// Dead letters of earlier processes whose number is unknown go behind this.
    pub(super) const DEAD: Seq = 1 << 37;
    /// Rows of earlier processes that were never sent go behind this.
    pub(super) const UNSENT: Seq = 1 << 38;
    /// Entries of this process go behind this.
    pub(super) const FRESH: Seq = 1 << 39;
}
