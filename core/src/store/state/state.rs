//! Everything a store holds, and the life of queues, logs and realms.
//!
//! Logs and queues are found by id; a realm finds its own by name.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Key, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::settings;
use super::super::types::{
    Bounds, Depth, LogId, QueueId, QueueRecord, QueueSpec, Seq, StoreCounters,
};
use super::changes::Touched;
use super::keep::{Held as _, Keep, Row};
use super::log::{Log, Totals};
use super::queue::Queue;
use super::realm::Realm;
use super::runs::Runs;
use super::sample::Sample;

/// Everything.
#[derive(Debug)]
pub(crate) struct State<K: Keep> {
    pub(crate) bounds: Bounds,
    pub(crate) counters: StoreCounters,
    pub(crate) realms: HashMap<RealmId, Realm<K::Uids>>,
    pub(crate) logs: HashMap<LogId, Box<Log<K::Entries>>>,
    pub(crate) queues: HashMap<QueueId, Box<Queue>>,
    /// When the sweep visits which log.
    pub(crate) wakes: BTreeSet<(Timestamp, LogId)>,
    pub(crate) keep: K,
    /// Numbers of realms, logs and queues are given out of one row, and never again.
    pub(crate) last_id: u64,
    /// Realms by number, while another store is taken in.
    pub(crate) names: HashMap<u64, RealmId>,
    pub(crate) sample: Sample,
}

/// One queue within a change, with what its change may touch.
pub(crate) struct Change<'a, K: Keep> {
    pub(crate) queue: &'a mut Queue,
    pub(crate) log: &'a mut Log<K::Entries>,
    pub(crate) counters: &'a mut StoreCounters,
    pub(crate) keep: &'a mut K,
}

pub(crate) fn no_queue() -> Error {
    Error::new(
        ErrorKind::DeliveryUnknown,
        "there is no such queue any more",
    )
}

impl<K: Keep> State<K> {
    pub(crate) fn new(bounds: Bounds, keep: K) -> Self {
        Self {
            bounds,
            counters: StoreCounters::default(),
            realms: HashMap::new(),
            logs: HashMap::new(),
            queues: HashMap::new(),
            wakes: BTreeSet::new(),
            keep,
            last_id: 0,
            names: HashMap::new(),
            sample: Sample::default(),
        }
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A queue that is not forgotten.
    pub(crate) fn live(&self, id: QueueId) -> Result<&Queue> {
        let queue = self.queues.get(&id).filter(|queue| !queue.is_left);
        queue.map(|queue| &**queue).ok_or_else(no_queue)
    }

    /// A realm, made if it is new.
    pub(crate) fn realm_mut(&mut self, name: &RealmId) -> &mut Realm<K::Uids> {
        let (keep, last_id) = (&mut self.keep, &mut self.last_id);
        let bounds = &self.bounds;
        self.realms.entry(name.clone()).or_insert_with(|| {
            *last_id += 1;
            keep.note_realm(*last_id, name);
            let max = bounds.quota(name).queue;
            Realm::new(*last_id, keep.uids(*last_id, name), max, K::IS_WRITTEN)
        })
    }

    /// Runs `change` on a queue that is not forgotten, and keeps log and realm in step with it.
    pub(crate) fn change<T>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut Change<'_, K>) -> T,
    ) -> Result<T> {
        self.live(id)?;
        self.change_any(id, change)
    }

    /// The same for left-overs too.
    pub(crate) fn change_any<T>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut Change<'_, K>) -> T,
    ) -> Result<T> {
        let queue = self.queues.get_mut(&id).ok_or_else(no_queue)?;
        let log = self.logs.get_mut(&queue.log).ok_or_else(no_queue)?;
        queue.begin(log, self.bounds.overflow);
        let before = queue.depth(log);
        let answer = change(&mut Change {
            queue,
            log,
            counters: &mut self.counters,
            keep: &mut self.keep,
        });
        let after = queue.depth(log);
        queue.end_change(log, self.bounds.overflow);
        log.trim();
        self.keep.note_queue(id);
        self.keep.note_log(queue.log);
        if before != after
            && let Some(realm) = self.realms.get_mut(&log.realm)
        {
            realm.queued = (realm.queued + after).saturating_sub(before);
        }
        Ok(answer)
    }

    pub(crate) fn records(&self) -> Vec<QueueRecord> {
        let live = self.queues.values().filter(|queue| !queue.is_left);
        let mut records: Vec<QueueRecord> = live
            .filter_map(|queue| Some(queue.record(self.logs.get(&queue.log)?)))
            .collect();
        records.sort_unstable_by_key(|record| record.queue);
        records
    }

    pub(crate) fn left_over(&self, id: QueueId) -> Option<QueueRecord> {
        let queue = self.queues.get(&id).filter(|queue| queue.is_left)?;
        Some(queue.record(self.logs.get(&queue.log)?))
    }

    pub(crate) fn open(&mut self, spec: QueueSpec, now: Timestamp) -> Result<QueueRecord> {
        let realm = self.realms.get(&spec.realm);
        let log = realm.and_then(|realm| realm.logs.get(&spec.key).copied());
        let known = log.and_then(|log| {
            let name = (log, spec.kind, Arc::clone(&spec.name));
            realm.and_then(|realm| realm.queues.get(&name).copied())
        });
        match known {
            Some(id) => self.reopen(id, spec, now),
            None => self.create(log, spec, now),
        }
    }

    fn reopen(&mut self, id: QueueId, spec: QueueSpec, now: Timestamp) -> Result<QueueRecord> {
        let queue = self.queues.get(&id).ok_or_else(no_queue)?;
        settings::check_owner(&queue.settings, queue.is_left, &spec.settings)?;
        self.change_any(id, |change| {
            let Change {
                queue, log, keep, ..
            } = change;
            if queue.settings != spec.settings {
                keep.queue_set(id, &spec);
            }
            queue.remember(log);
            queue.set_durable(spec.settings.durable, log);
            queue.settings = spec.settings;
            queue.seen = now;
        })?;
        self.record(id)
    }

    fn create(
        &mut self,
        log: Option<LogId>,
        spec: QueueSpec,
        now: Timestamp,
    ) -> Result<QueueRecord> {
        let log_id = log.unwrap_or_else(|| LogId(self.new_id()));
        let id = QueueId(self.new_id());
        if log.is_none() {
            let (name, key) = (spec.realm.clone(), spec.key.clone());
            self.make_log(log_id, name, key);
        }
        let realm = self.realm_mut(&spec.realm);
        let name = (log_id, spec.kind, Arc::clone(&spec.name));
        realm.queues.insert(name, id);
        let log = self.logs.get_mut(&log_id).ok_or_else(no_queue)?;
        log.queues += 1;
        self.keep.queue_made(id, log_id, &spec);
        let mut queue = Box::new(Queue::new(id, log_id, spec, log.head(), K::IS_WRITTEN));
        queue.seen = now;
        queue.end_change(log, self.bounds.overflow);
        self.queues.insert(id, queue);
        self.keep.note_log(log_id);
        self.keep.note_queue(id);
        self.record(id)
    }

    /// Adds an empty log to a realm.
    pub(crate) fn make_log(&mut self, id: LogId, name: RealmId, key: Key) {
        self.realm_mut(&name);
        if let Some(realm) = self.realms.get_mut(&name) {
            realm.logs.insert(key.clone(), id);
            let entries = self.keep.entries(id, realm.id, &key, &realm.kept);
            let end = (Totals::default(), 0);
            let log = Self::log_of((name, realm), key, entries, end);
            self.logs.insert(id, Box::new(log));
        }
    }

    /// A log of a realm, with its end and up to where it is let go; it notes its changes if this
    /// state is written.
    pub(crate) fn log_of(
        (name, realm): (RealmId, &Realm<K::Uids>),
        key: Key,
        entries: K::Entries,
        (head, front): (Totals, Seq),
    ) -> Log<K::Entries> {
        let mut log = Log::new(name, key, entries, head, front);
        (log.max_queued, log.kept) = (realm.max_queued, realm.kept.clone());
        log.gone = Runs::new(K::IS_WRITTEN);
        log.gone_guaranteed = Runs::new(K::IS_WRITTEN);
        log
    }

    fn record(&self, id: QueueId) -> Result<QueueRecord> {
        let queue = self.live(id)?;
        let log = self.logs.get(&queue.log).ok_or_else(no_queue)?;
        Ok(queue.record(log))
    }

    pub(crate) fn forget(&mut self, id: QueueId, purge: bool) -> Result<u64> {
        let left = self.change(id, |change| {
            let Change { queue, log, .. } = change;
            let left = queue.depth(log);
            queue.forget(log);
            left
        })?;
        if purge || left == 0 {
            self.remove_queue(id);
        }
        Ok(left)
    }

    /// Takes a queue or left-over away, and its log if it was the last one.
    pub(crate) fn remove_queue(&mut self, id: QueueId) {
        let Some(mut queue) = self.queues.remove(&id) else {
            return;
        };
        if queue.exceptions > 0 {
            self.keep.drop_exceptions(id);
        }
        self.keep.queue_gone(id);
        self.keep.note(|| Touched::Queue(id));
        let Some(log) = self.logs.get_mut(&queue.log) else {
            return;
        };
        queue.begin(log, self.bounds.overflow);
        let depth = queue.depth(log);
        log.queues -= 1;
        log.kept.sub(queue.exception_bytes);
        let is_last = log.queues == 0;
        if !is_last {
            log.trim();
            self.keep.note_log(queue.log);
        }
        if let Some(realm) = self.realms.get_mut(&log.realm) {
            realm.queued = realm.queued.saturating_sub(depth);
            let name = Arc::clone(&queue.name);
            realm.queues.remove(&(queue.log, queue.kind, name));
            if is_last {
                realm.logs.remove(&log.key);
            }
            if realm.is_empty() {
                let name = log.realm.clone();
                let gone = realm.id;
                self.keep.realm_gone(gone, &name);
                self.keep.note(|| Touched::Realm(gone));
                self.realms.remove(&name);
            }
        }
        if is_last {
            self.remove_log(queue.log);
        }
    }

    fn remove_log(&mut self, id: LogId) {
        let Some(log) = self.logs.remove(&id) else {
            return;
        };
        if let Some(wake) = log.wake {
            self.wakes.remove(&(wake, id));
        }
        self.keep.log_gone(id, &log.kept);
        self.keep.note(|| Touched::Log(id));
    }

    pub(crate) fn purge_realm(&mut self, name: &RealmId) -> u64 {
        let Some(gone) = self.realms.remove(name) else {
            return 0;
        };
        for id in gone.queues.values() {
            self.remove_queue(*id);
        }
        self.keep.realm_gone(gone.id, name);
        self.keep.note(|| Touched::Realm(gone.id));
        gone.queued + gone.dead as u64 + gone.delayed
    }

    pub(crate) fn rename_realm(&mut self, from: &RealmId, to: &RealmId) -> Result<()> {
        if from == to {
            return Ok(());
        }
        if self.realms.get(to).is_some_and(|realm| !realm.is_empty()) {
            return Err(Error::new(
                ErrorKind::BadName,
                format!("the store holds messages of a realm {to} already; purge it first"),
            ));
        }
        let Some(realm) = self.realms.remove(from) else {
            return Ok(());
        };
        if let Some(empty) = self.realms.remove(to) {
            self.keep.realm_gone(empty.id, to);
            self.keep.note(|| Touched::Realm(empty.id));
        }
        for id in realm.logs.values() {
            if let Some(log) = self.logs.get_mut(id) {
                log.realm = to.clone();
            }
        }
        self.keep.realm_renamed(realm.id, from, to);
        self.keep.note_realm(realm.id, to);
        self.realms.insert(to.clone(), realm);
        Ok(())
    }

    /// What is unsettled in one queue.
    pub(crate) fn depth(&mut self, id: QueueId) -> Result<Depth> {
        self.change(id, |change| change.depth())
    }

    pub(crate) fn realm_names(&self) -> Vec<RealmId> {
        self.realms.keys().cloned().collect()
    }

    pub(crate) fn realm_depth(&mut self, realm: &RealmId) -> Depth {
        let ids: Vec<QueueId> = self
            .realms
            .get(realm)
            .map(|realm| realm.queues.values().copied().collect())
            .unwrap_or_default();
        let mut sum = Depth::default();
        for id in ids {
            let depth = self.change_any(id, |change| change.depth());
            if let Ok(depth) = depth {
                sum.count += depth.count;
                sum.bytes += depth.bytes;
                sum.oldest = sum.oldest.into_iter().chain(depth.oldest).min();
            }
        }
        sum
    }
}

impl<K: Keep> Change<'_, K> {
    fn depth(&self) -> Depth {
        let (queue, log) = (&*self.queue, &*self.log);
        let first = queue.next_waiting(0, log);
        let first = first.and_then(|number| log.get(queue.seq_of(number, log)));
        let exception = match queue.exceptions {
            0 => None,
            _ => self.keep.first_exception(queue.id),
        };
        let produced = first.iter().chain(&exception).map(|held| held.produced());
        Depth {
            count: queue.depth(log),
            bytes: queue.bytes(log),
            oldest: produced.min(),
        }
    }

    /// Changes how many bytes its exceptions have.
    fn weigh(&mut self, change: impl FnOnce(u64) -> u64) {
        self.queue.weigh_exceptions(self.log, change);
    }

    /// Takes an exception away, with its reference to the message.
    pub(crate) fn take_exception(&mut self, seq: Seq) -> Option<Row<K::Held>> {
        if self.queue.exceptions == 0 {
            return None;
        }
        let queue = self.queue.id;
        let row = self.keep.take_exception(queue, seq)?;
        self.keep.note(|| Touched::Exception(queue, seq));
        self.queue.exceptions -= 1;
        self.weigh(|bytes| bytes.saturating_sub(row.held.size()));
        Some(row)
    }

    /// Takes an exception away for good; whether there was one.
    pub(crate) fn end_exception(&mut self, seq: Seq) -> bool {
        let row = self.take_exception(seq);
        let found = row.is_some();
        if let Some(row) = row {
            self.keep.release(row.held);
        }
        found
    }

    /// Takes all exceptions away for good; how many that were.
    pub(crate) fn end_exceptions(&mut self) -> u64 {
        let count = std::mem::take(&mut self.queue.exceptions);
        self.weigh(|_| 0);
        if count > 0 {
            let queue = self.queue.id;
            self.keep.drop_exceptions(queue);
            self.keep.note(|| Touched::Exceptions(queue));
        }
        count
    }

    /// Adds an exception.
    pub(crate) fn except(&mut self, row: Row<K::Held>) {
        self.queue.exceptions += 1;
        self.weigh(|bytes| bytes + row.held.size());
        let (queue, seq) = (self.queue.id, row.state.seq);
        self.keep.insert_exception(queue, self.queue.log, row);
        self.keep.note(|| Touched::Exception(queue, seq));
    }
}
