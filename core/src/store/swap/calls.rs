//! Every call of a store, passed on to the one in force or held back.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Result;
use crate::clock::Timestamp;
use crate::model::{MessageId, RealmId};

use super::super::claim::{Claim, Hear, Wish};
use super::super::documents::{Collection, Document, DocumentChange, Documents};
use super::super::record::{ExportCursor, Exported, Record};
use super::super::types::{
    Append, Appended, DeadLetter, DeadLetterId, Delayed, Depth, Due, Durability, Entry, Gap,
    Maintained, Page, PageLimit, QueueChange, QueueId, QueueRecord, QueueSpec, Seq, Settled,
    StoreCounters, StoreHealth,
};
use super::super::{Pending, Store};
use super::{SwapStore, replaced};

impl Documents for SwapStore {
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        self.call(move |store| store.documents(collection, after, limit, now))
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        self.call(move |store| store.change_documents(changes, now))
    }
}

impl Store for SwapStore {
    fn durability(&self) -> Durability {
        self.current().durability()
    }

    fn queues(&self) -> Pending<Vec<QueueRecord>> {
        self.call(|store| store.queues())
    }

    fn open(&self, spec: QueueSpec, now: Timestamp) -> Pending<QueueRecord> {
        self.call(move |store| store.open(spec, now))
    }

    fn touch(&self, queue: QueueId, now: Timestamp) -> Pending<()> {
        self.call(move |store| store.touch(queue, now))
    }

    fn forget(&self, queue: QueueId, purge: bool) -> Pending<u64> {
        self.call(move |store| store.forget(queue, purge))
    }

    fn evict(&self, queue: QueueId, now: Timestamp) -> Pending<u64> {
        self.call(move |store| store.evict(queue, now))
    }

    fn append(&self, batch: Vec<Append>) -> Pending<Vec<Result<Appended>>> {
        let gate = self.gate.read();
        let mut logs = batch.iter().flat_map(|item| &item.logs);
        if logs.any(|log| gate.stale.is_some_and(|stale| log.0 >= stale)) {
            return Pending::ready(Err(replaced()));
        }
        Self::call_at(&gate, move |store| store.append(batch))
    }

    fn page(&self, queue: QueueId, after: Seq, limit: PageLimit, now: Timestamp) -> Pending<Page> {
        self.call(move |store| store.page(queue, after, limit, now))
    }

    fn due(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Due> {
        self.call(move |store| store.due(queue, limit, now))
    }

    fn update(&self, queue: QueueId, change: QueueChange, now: Timestamp) -> Pending<()> {
        self.call(move |store| store.update(queue, change, now))
    }

    fn left_over(&self, queue: QueueId) -> Pending<Option<QueueRecord>> {
        self.call(move |store| store.left_over(queue))
    }

    fn settle(&self, queue: QueueId, seqs: Vec<Seq>) -> Pending<Vec<Settled>> {
        self.call(move |store| store.settle(queue, seqs))
    }

    fn depth(&self, queue: QueueId) -> Pending<Depth> {
        self.call(move |store| store.depth(queue))
    }

    fn realms(&self) -> Pending<Vec<RealmId>> {
        self.call(|store| store.realms())
    }

    fn realm_depth(&self, realm: &RealmId) -> Pending<Depth> {
        let realm = realm.clone();
        self.call(move |store| store.realm_depth(&realm))
    }

    fn browse(&self, queue: QueueId, after: Seq, limit: PageLimit) -> Pending<Vec<Entry>> {
        self.call(move |store| store.browse(queue, after, limit))
    }

    fn purge_queue(&self, queue: QueueId) -> Pending<u64> {
        self.call(move |store| store.purge_queue(queue))
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<u64> {
        let realm = realm.clone();
        self.call(move |store| store.purge_realm(&realm))
    }

    fn rename_realm(&self, from: &RealmId, to: &RealmId) -> Pending<()> {
        let (from, to) = (from.clone(), to.clone());
        self.call(move |store| store.rename_realm(&from, &to))
    }

    fn delayed(&self, limit: usize, now: Timestamp) -> Pending<(Vec<Delayed>, Option<Timestamp>)> {
        self.call(move |store| store.delayed(limit, now))
    }

    fn drop_delayed(&self, ids: Vec<MessageId>) -> Pending<()> {
        self.call(move |store| store.drop_delayed(ids))
    }

    fn dead_letters(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Pending<Vec<DeadLetter>> {
        let realm = realm.clone();
        self.call(move |store| store.dead_letters(&realm, after, limit))
    }

    fn revive(&self, realm: &RealmId, id: DeadLetterId, now: Timestamp) -> Pending<QueueId> {
        let realm = realm.clone();
        self.call(move |store| store.revive(&realm, id, now))
    }

    fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Pending<()> {
        let realm = realm.clone();
        self.call(move |store| store.discard(&realm, id))
    }

    fn purge_dead_letters(&self, realm: &RealmId) -> Pending<u64> {
        let realm = realm.clone();
        self.call(move |store| store.purge_dead_letters(&realm))
    }

    fn probe(&self) -> Pending<()> {
        self.call(|store| store.probe())
    }

    fn maintain(&self, budget: usize, now: Timestamp) -> Pending<Maintained> {
        self.call(move |store| store.maintain(budget, now))
    }

    fn counters(&self) -> StoreCounters {
        let gate = self.gate.read();
        gate.counted.plus(gate.store.counters())
    }

    fn health(&self) -> StoreHealth {
        self.current().health()
    }

    fn gaps(&self) -> Vec<Gap> {
        self.current().gaps()
    }

    fn known(&self, item: &Append) -> Option<Appended> {
        self.gate.read().store.known(item)
    }

    fn backup(&self, path: PathBuf) -> Pending<()> {
        self.call(move |store| store.backup(path))
    }

    fn export(&self, after: Option<ExportCursor>, limit: PageLimit) -> Pending<Exported> {
        self.call(move |store| store.export(after, limit))
    }

    fn begin_import(&self, replace: bool) -> Pending<()> {
        self.call(move |store| store.begin_import(replace))
    }

    fn import(&self, records: Vec<Record>) -> Pending<()> {
        self.call(move |store| store.import(records))
    }

    fn end_import(&self) -> Pending<()> {
        self.call(|store| store.end_import())
    }

    fn is_shared(&self) -> bool {
        self.gate.read().store.is_shared()
    }

    fn others(&self) -> usize {
        self.gate.read().store.others()
    }

    fn number(&self) -> u16 {
        self.gate.read().store.number()
    }

    fn claim(&self, queue: QueueId, wish: Wish) -> Pending<Claim> {
        self.call(move |store| store.claim(queue, wish))
    }

    fn release(&self, queue: QueueId, sent: Seq) -> Pending<()> {
        self.call(move |store| store.release(queue, sent))
    }

    fn listen(&self, hear: Hear) {
        let mut gate = self.gate.write();
        gate.hears.push(hear);
        gate.listen();
    }

    fn lead(&self) -> Pending<()> {
        self.call(|store| store.lead())
    }

    fn remember(&self, realm: &RealmId, marks: Vec<Record>) -> Pending<()> {
        let realm = realm.clone();
        self.call(move |store| store.remember(&realm, marks))
    }

    fn moved(&self, to: &str) -> Pending<()> {
        let to = to.to_owned();
        self.call(move |store| store.moved(&to))
    }

    fn close(&self) -> Pending<()> {
        self.call(|store| store.close())
    }
}
