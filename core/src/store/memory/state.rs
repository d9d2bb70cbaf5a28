//! Everything a memory store holds, and the life of queues, logs and realms.
//!
//! Logs and queues are found by id; a realm finds its own by name. Methods assume the store's lock.

use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Key, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::types::{
    Bounds, Depth, LogId, QueueId, QueueKind, QueueRecord, QueueSpec, Seq, StoreCounters,
};
use super::delays::Delays;
use super::exceptions::{Exceptions, Row};
use super::graves::Graves;
use super::log::Log;
use super::marks::Marks;
use super::queue::Queue;

/// What is there once per realm.
#[derive(Debug, Default)]
pub(super) struct Realm {
    pub(super) logs: HashMap<Key, LogId>,
    pub(super) queues: HashMap<(LogId, QueueKind, Arc<str>), QueueId>,
    /// Unsettled entries of all its queues.
    pub(super) queued: u64,
    pub(super) delayed: u64,
    pub(super) marks: Marks,
    pub(super) graves: Graves,
}

impl Realm {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
            && self.delayed == 0
            && self.marks.is_empty()
            && self.graves.len() == 0
    }
}

/// Everything.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) bounds: Bounds,
    pub(super) counters: StoreCounters,
    pub(super) is_closed: bool,
    pub(super) realms: HashMap<RealmId, Realm>,
    pub(super) logs: HashMap<LogId, Box<Log>>,
    pub(super) queues: HashMap<QueueId, Box<Queue>>,
    pub(super) delays: Delays,
    /// When the sweep visits which log.
    pub(super) wakes: BTreeSet<(Timestamp, LogId)>,
    pub(super) exception_expiry: BTreeSet<(Timestamp, QueueId, Seq)>,
    last_id: u64,
}

/// One queue within a change, with what its change may touch.
pub(super) struct Change<'a> {
    pub(super) queue: &'a mut Queue,
    pub(super) log: &'a mut Log,
    pub(super) counters: &'a mut StoreCounters,
    pub(super) exception_expiry: &'a mut BTreeSet<(Timestamp, QueueId, Seq)>,
}

pub(super) fn no_queue() -> Error {
    Error::new(
        ErrorKind::DeliveryUnknown,
        "there is no such queue any more",
    )
}

impl State {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A queue that is not forgotten.
    pub(super) fn live(&self, id: QueueId) -> Result<&Queue> {
        let queue = self.queues.get(&id).filter(|queue| !queue.is_left);
        queue.map(|queue| &**queue).ok_or_else(no_queue)
    }

    /// Runs `change` on a queue that is not forgotten, and keeps log and realm in step with it.
    pub(super) fn change<T>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut Change<'_>) -> T,
    ) -> Result<T> {
        self.live(id)?;
        self.change_any(id, change)
    }

    /// The same for left-overs too.
    pub(super) fn change_any<T>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut Change<'_>) -> T,
    ) -> Result<T> {
        let queue = self.queues.get_mut(&id).ok_or_else(no_queue)?;
        let log = self.logs.get_mut(&queue.log).ok_or_else(no_queue)?;
        queue.begin(log, self.bounds.overflow);
        let before = queue.depth(log);
        let answer = change(&mut Change {
            queue,
            log,
            counters: &mut self.counters,
            exception_expiry: &mut self.exception_expiry,
        });
        let after = queue.depth(log);
        queue.end_change(log, self.bounds.max_queued);
        log.trim();
        if before != after
            && let Some(realm) = self.realms.get_mut(&log.realm)
        {
            realm.queued = (realm.queued + after).saturating_sub(before);
        }
        Ok(answer)
    }

    pub(super) fn records(&self) -> Vec<QueueRecord> {
        let live = self.queues.values().filter(|queue| !queue.is_left);
        let mut records: Vec<QueueRecord> = live
            .filter_map(|queue| Some(queue.record(self.logs.get(&queue.log)?)))
            .collect();
        records.sort_unstable_by_key(|record| record.queue);
        records
    }

    pub(super) fn left_over(&self, id: QueueId) -> Option<QueueRecord> {
        let queue = self.queues.get(&id).filter(|queue| queue.is_left)?;
        Some(queue.record(self.logs.get(&queue.log)?))
    }

    pub(super) fn open(&mut self, spec: QueueSpec, now: Timestamp) -> Result<QueueRecord> {
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
        let owner = &queue.settings.owner;
        if queue.is_left && owner.is_some() && *owner != spec.settings.owner {
            return Err(Error::new(
                ErrorKind::ConsumerIdTaken,
                "what waits under this consumer id belongs to somebody else until its ttl is over",
            ));
        }
        self.change_any(id, |change| {
            let Change { queue, log, .. } = change;
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
        let realm = self.realms.entry(spec.realm.clone()).or_default();
        if log.is_none() {
            realm.logs.insert(spec.key.clone(), log_id);
        }
        let name = (log_id, spec.kind, Arc::clone(&spec.name));
        realm.queues.insert(name, id);
        let log = self
            .logs
            .entry(log_id)
            .or_insert_with(|| Box::new(Log::new(spec.realm.clone(), spec.key.clone())));
        log.queues += 1;
        let mut queue = Box::new(Queue::new(id, log_id, spec, log.head()));
        queue.seen = now;
        queue.end_change(log, self.bounds.max_queued);
        self.queues.insert(id, queue);
        self.record(id)
    }

    fn record(&self, id: QueueId) -> Result<QueueRecord> {
        let queue = self.live(id)?;
        let log = self.logs.get(&queue.log).ok_or_else(no_queue)?;
        Ok(queue.record(log))
    }

    pub(super) fn forget(&mut self, id: QueueId, purge: bool) -> Result<u64> {
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
    pub(super) fn remove_queue(&mut self, id: QueueId) {
        let Some(mut queue) = self.queues.remove(&id) else {
            return;
        };
        let rows = queue.exceptions().map(|rows| rows.after(0));
        for row in rows.into_iter().flatten() {
            if let Some(expires) = row.message.expires {
                self.exception_expiry.remove(&(expires, id, row.state.seq));
            }
        }
        let Some(log) = self.logs.get_mut(&queue.log) else {
            return;
        };
        queue.begin(log, self.bounds.overflow);
        let depth = queue.depth(log);
        log.queues -= 1;
        let is_last = log.queues == 0;
        log.trim();
        if let Place::Occupied(mut place) = self.realms.entry(log.realm.clone()) {
            let realm = place.get_mut();
            realm.queued = realm.queued.saturating_sub(depth);
            let name = Arc::clone(&queue.name);
            realm.queues.remove(&(queue.log, queue.kind, name));
            if is_last {
                realm.logs.remove(&log.key);
            }
            if realm.is_empty() {
                place.remove();
            }
        }
        if is_last {
            self.remove_log(queue.log);
        }
    }

    fn remove_log(&mut self, id: LogId) {
        if let Some(wake) = self.logs.remove(&id).and_then(|log| log.wake) {
            self.wakes.remove(&(wake, id));
        }
    }

    pub(super) fn purge_realm(&mut self, realm: &RealmId) -> u64 {
        let Some(gone) = self.realms.remove(realm) else {
            return 0;
        };
        for id in gone.queues.values() {
            self.remove_queue(*id);
        }
        gone.queued + gone.graves.len() as u64 + self.delays.purge(realm)
    }

    pub(super) fn rename_realm(&mut self, from: &RealmId, to: &RealmId) -> Result<()> {
        if from == to {
            return Ok(());
        }
        if self.realms.get(to).is_some_and(|realm| !realm.is_empty()) {
            return Err(Error::new(
                ErrorKind::BadName,
                format!("the store holds messages of a realm {to} already; purge it first"),
            ));
        }
        let Some(mut realm) = self.realms.remove(from) else {
            return Ok(());
        };
        for id in realm.logs.values() {
            if let Some(log) = self.logs.get_mut(id) {
                log.realm = to.clone();
            }
        }
        realm.graves.rename(to);
        self.delays.rename(from, to);
        self.realms.insert(to.clone(), realm);
        Ok(())
    }

    /// What is unsettled in one queue.
    pub(super) fn depth(&mut self, id: QueueId) -> Result<Depth> {
        self.change(id, |change| {
            let Change { queue, log, .. } = change;
            depth_of(queue, log)
        })
    }

    pub(super) fn realm_depth(&mut self, realm: &RealmId) -> Depth {
        let ids: Vec<QueueId> = self
            .realms
            .get(realm)
            .map(|realm| realm.queues.values().copied().collect())
            .unwrap_or_default();
        let mut sum = Depth::default();
        for id in ids {
            let depth = self.change_any(id, |change| depth_of(change.queue, change.log));
            if let Ok(depth) = depth {
                sum.count += depth.count;
                sum.bytes += depth.bytes;
                sum.oldest = sum.oldest.into_iter().chain(depth.oldest).min();
            }
        }
        sum
    }
}

fn depth_of(queue: &Queue, log: &Log) -> Depth {
    let first = queue.next_waiting(0, log);
    let first = first.and_then(|number| log.get(queue.seq_of(number, log)));
    let exception = queue.exceptions().and_then(|rows| rows.after(0).next());
    let produced = [first, exception.map(|row| &row.message)]
        .into_iter()
        .flatten();
    Depth {
        count: queue.depth(log),
        bytes: queue.bytes(log),
        oldest: produced.map(|message| message.produced).min(),
    }
}

impl Change<'_> {
    /// Takes an exception away.
    pub(super) fn take_exception(&mut self, seq: Seq) -> Option<Row> {
        let row = self.queue.take_exception(seq)?;
        if let Some(expires) = row.message.expires {
            self.exception_expiry.remove(&(expires, self.queue.id, seq));
        }
        Some(row)
    }

    /// Adds an exception.
    pub(super) fn except(&mut self, row: Row) {
        if let Some(expires) = row.message.expires {
            self.exception_expiry
                .insert((expires, self.queue.id, row.state.seq));
        }
        self.queue.except(row);
    }

    /// Exceptions, if there are any.
    pub(super) fn exceptions(&self) -> Option<&Exceptions> {
        self.queue.exceptions()
    }
}
