//! The store that keeps everything in memory: it survives reconnects and nothing else (P1).
//!
//! One lock over all of it: calls are short, a batch is one turn, and commit order is call order
//! without further thought. Every call answers at once. Knows nothing of the broker.

mod delays;
mod entries;
mod exceptions;
mod graves;
mod keep;
mod read;
mod uids;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::model::{MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::documents::{Collection, Document, DocumentChange, Documents};
use super::record::{ExportCursor, Exported, Record};
use super::state::State;
use super::types::{
    Append, Appended, Bounds, DeadLetter, DeadLetterId, Delayed, Depth, Due, Durability, Entry,
    Maintained, Page, PageLimit, QueueChange, QueueId, QueueRecord, QueueSpec, Seq, Settled,
    StoreCounters, StoreHealth,
};
use super::{Pending, Store, not_empty};
use keep::MemoryKeep;

pub(super) use delays::Delays;
pub(super) use exceptions::{Exceptions, Row};
pub(super) use graves::Graves;
pub(super) use uids::MemoryUids;

/// A [`Store`] in memory.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State<MemoryKeep>>,
    is_closed: AtomicBool,
    /// What it holds is a copy that does not lead.
    is_copy: AtomicBool,
}

impl MemoryStore {
    /// An empty store with these bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            state: Mutex::new(State::new(bounds, MemoryKeep::default())),
            is_closed: AtomicBool::new(false),
            is_copy: AtomicBool::new(false),
        }
    }

    fn call<T>(&self, call: impl FnOnce(&mut State<MemoryKeep>) -> Result<T>) -> Pending<T> {
        let mut state = self.state.lock();
        if self.is_closed.load(Ordering::Acquire) {
            return Pending::ready(Err(Error::new(
                ErrorKind::StoreUnavailable,
                "the store is closed",
            )));
        }
        Pending::ready(call(&mut state))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(Bounds::default())
    }
}

impl Documents for MemoryStore {
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        self.call(|state| Ok(state.documents(collection, after.as_deref(), limit, now)))
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        self.call(|state| state.change_documents(&changes, now))
    }
}

impl Store for MemoryStore {
    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn queues(&self) -> Pending<Vec<QueueRecord>> {
        self.call(|state| Ok(state.records()))
    }

    fn open(&self, spec: QueueSpec, now: Timestamp) -> Pending<QueueRecord> {
        self.call(|state| state.open(spec, now))
    }

    fn touch(&self, queue: QueueId, now: Timestamp) -> Pending<()> {
        self.call(|state| state.change(queue, |change| change.queue.seen = now))
    }

    fn forget(&self, queue: QueueId, purge: bool) -> Pending<u64> {
        self.call(|state| state.forget(queue, purge))
    }

    fn append(&self, batch: Vec<Append>) -> Pending<Vec<Result<Appended>>> {
        self.call(|state| Ok(batch.iter().map(|item| state.append(item)).collect()))
    }

    fn known(&self, item: &Append) -> Option<Appended> {
        let mut state = self.state.lock();
        let id = state.known(item)?;
        Some(state.duplicate(id))
    }

    fn page(&self, queue: QueueId, after: Seq, limit: PageLimit, now: Timestamp) -> Pending<Page> {
        self.call(|state| state.page(queue, after, limit, now))
    }

    fn due(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Due> {
        self.call(|state| state.due(queue, limit, now))
    }

    fn update(&self, queue: QueueId, change: QueueChange, now: Timestamp) -> Pending<()> {
        self.call(|state| state.update(queue, &change, now))
    }

    fn left_over(&self, queue: QueueId) -> Pending<Option<QueueRecord>> {
        self.call(|state| Ok(state.left_over(queue)))
    }

    fn settle(&self, queue: QueueId, seqs: Vec<Seq>) -> Pending<Vec<Settled>> {
        self.call(|state| state.settle(queue, &seqs))
    }

    fn depth(&self, queue: QueueId) -> Pending<Depth> {
        self.call(|state| state.depth(queue))
    }

    fn realms(&self) -> Pending<Vec<RealmId>> {
        self.call(|state| Ok(state.realm_names()))
    }

    fn realm_depth(&self, realm: &RealmId) -> Pending<Depth> {
        self.call(|state| Ok(state.realm_depth(realm)))
    }

    fn browse(&self, queue: QueueId, after: Seq, limit: PageLimit) -> Pending<Vec<Entry>> {
        self.call(|state| state.browse(queue, after, limit))
    }

    fn purge_queue(&self, queue: QueueId) -> Pending<u64> {
        self.call(|state| state.purge_queue(queue))
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<u64> {
        self.call(|state| Ok(state.purge_realm(realm)))
    }

    fn rename_realm(&self, from: &RealmId, to: &RealmId) -> Pending<()> {
        self.call(|state| state.rename_realm(from, to))
    }

    fn delayed(&self, limit: usize, now: Timestamp) -> Pending<(Vec<Delayed>, Option<Timestamp>)> {
        self.call(|state| Ok(state.keep.delays().due(limit, now)))
    }

    fn drop_delayed(&self, ids: Vec<MessageId>) -> Pending<()> {
        self.call(|state| {
            ids.into_iter().for_each(|id| state.drop_delayed(id));
            Ok(())
        })
    }

    fn dead_letters(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Pending<Vec<DeadLetter>> {
        self.call(|state| {
            let id = state.realms.get(realm).map(|realm| realm.id);
            let graves = id.and_then(|id| state.keep.graves(id));
            Ok(graves.map_or_else(Vec::new, |graves| {
                let letters = graves.after(after).take(limit);
                letters.map(|letter| letter.dead_letter(realm)).collect()
            }))
        })
    }

    fn revive(&self, realm: &RealmId, id: DeadLetterId, now: Timestamp) -> Pending<QueueId> {
        self.call(|state| state.revive(realm, id, now))
    }

    fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Pending<()> {
        self.call(|state| state.discard(realm, id))
    }

    fn purge_dead_letters(&self, realm: &RealmId) -> Pending<u64> {
        self.call(|state| Ok(state.purge_dead_letters(realm)))
    }

    fn probe(&self) -> Pending<()> {
        self.call(|_| Ok(()))
    }

    fn maintain(&self, budget: usize, now: Timestamp) -> Pending<Maintained> {
        self.call(|state| Ok(state.maintain(budget, now)))
    }

    fn counters(&self) -> StoreCounters {
        self.state.lock().counters
    }

    fn health(&self) -> StoreHealth {
        StoreHealth {
            holding: Some(self.state.lock().holding()),
            ..StoreHealth::default()
        }
    }

    fn export(&self, after: Option<ExportCursor>, limit: PageLimit) -> Pending<Exported> {
        self.call(|state| state.export(after.as_ref(), limit))
    }

    fn begin_import(&self, replace: bool) -> Pending<()> {
        let is_free = replace || self.is_copy.load(Ordering::Acquire);
        self.call(|state| match is_free || state.is_empty() {
            true => {
                self.is_copy.store(true, Ordering::Release);
                *state = State::new(state.bounds.clone(), MemoryKeep::default());
                Ok(())
            }
            false => Err(not_empty()),
        })
    }

    fn import(&self, records: Vec<Record>) -> Pending<()> {
        self.call(|state| records.iter().try_for_each(|record| state.import(record)))
    }

    fn end_import(&self) -> Pending<()> {
        self.call(State::finish_import)
    }

    fn lead(&self) -> Pending<()> {
        self.is_copy.store(false, Ordering::Release);
        Pending::ready(Ok(()))
    }

    fn close(&self) -> Pending<()> {
        let _calls = self.state.lock();
        self.is_closed.store(true, Ordering::Release);
        Pending::ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
