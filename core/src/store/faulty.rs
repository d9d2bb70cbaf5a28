//! A store with troubles on demand, around any other: for tests of what the broker promises when
//! its store stalls, refuses or answers late (P24, P27).
//!
//! What reaches the store inside keeps its place in line; a held or late answer is the answer of a
//! call that *has* happened, as with a store that did not answer in time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::{Clock, Timestamp};
use crate::model::{MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::{
    Append, Appended, Collection, DeadLetter, DeadLetterId, Delayed, Depth, Document,
    DocumentChange, Documents, Due, Durability, Entry, ExportCursor, Exported, Gap, Hear,
    Maintained, News, Page, PageLimit, Pending, QueueChange, QueueId, QueueRecord, QueueSpec,
    Record, Seq, Settled, SharedStore, Store, StoreCounters, StoreHealth,
};

/// A [`Store`] that passes calls on to another one, unless it is told to make trouble.
pub struct FaultyStore {
    inner: SharedStore,
    faults: Mutex<Faults>,
    stalled: watch::Sender<bool>,
    is_prompt: bool,
}

#[derive(Default)]
struct Faults {
    refuse: Option<ErrorKind>,
    fail_next: (usize, Option<ErrorKind>),
    late: Option<(Arc<dyn Clock>, Duration)>,
    calls: u64,
    hears: Vec<Hear>,
}

impl FaultyStore {
    /// A store without trouble so far.
    pub fn new(inner: SharedStore) -> Arc<Self> {
        Self::around(inner, false)
    }

    /// A store around one that answers from a thread of its own: each call waits for the answer, so
    /// that tests on a clock that stands still meet no chance.
    pub fn prompt(inner: SharedStore) -> Arc<Self> {
        Self::around(inner, true)
    }

    fn around(inner: SharedStore, is_prompt: bool) -> Arc<Self> {
        Arc::new(Self {
            inner,
            faults: Mutex::default(),
            stalled: watch::Sender::new(false),
            is_prompt,
        })
    }

    /// Holds the answers of all calls from now on until [`release`](Self::release). The calls
    /// themselves happen.
    pub fn stall(&self) {
        self.stalled.send_replace(true);
    }

    /// Gives all held answers out and holds no more.
    pub fn release(&self) {
        self.stalled.send_replace(false);
    }

    /// Refuses every call with this kind from now on; `None`: no more. Refused calls do not
    /// happen.
    pub fn refuse(&self, kind: Option<ErrorKind>) {
        self.faults.lock().refuse = kind;
    }

    /// Refuses the next `count` calls with this kind. Refused calls do not happen.
    pub fn fail_next(&self, count: usize, kind: ErrorKind) {
        self.faults.lock().fail_next = (count, Some(kind));
    }

    /// Answers every call from now on this much later on `clock`; `None`: at once again.
    pub fn late(&self, late: Option<(Arc<dyn Clock>, Duration)>) {
        self.faults.lock().late = late;
    }

    /// Tells what another broker has done.
    pub fn tell(&self, news: &News) {
        let hears = self.faults.lock().hears.clone();
        hears.iter().for_each(|hear| hear(news.clone()));
    }

    /// How many calls have come, refused ones too, but for `durability` and `counters`.
    pub fn calls(&self) -> u64 {
        self.faults.lock().calls
    }

    fn call<T: Send + 'static>(&self, call: impl FnOnce(&dyn Store) -> Pending<T>) -> Pending<T> {
        let mut faults = self.faults.lock();
        faults.calls += 1;
        let failing = match faults.fail_next {
            (left @ 1.., kind) => {
                faults.fail_next.0 = left - 1;
                kind
            }
            _ => faults.refuse,
        };
        if let Some(kind) = failing {
            return Pending::ready(Err(Error::new(kind, "the store was told to refuse")));
        }
        let late = faults.late.clone();
        // Under the lock, so that calls reach the store in the order they came.
        let answer = match self.is_prompt {
            true => Pending::ready(wait(call(&*self.inner))),
            false => call(&*self.inner),
        };
        drop(faults);
        let mut stalled = self.stalled.subscribe();
        let is_stalled = *stalled.borrow();
        if !is_stalled && late.is_none() {
            return answer;
        }
        let slept = late.map(|(clock, by)| clock.sleep_until(clock.elapsed() + by));
        Pending::waiting(async move {
            if let Some(slept) = slept {
                slept.await;
            }
            if is_stalled {
                // A sender that is gone can hold nothing back.
                let _ = stalled.wait_for(|is_stalled| !is_stalled).await;
            }
            answer.await
        })
    }
}

/// The answer, with the calling thread asleep until it comes.
fn wait<T>(mut pending: Pending<T>) -> Result<T> {
    struct Caller(Thread);
    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Caller(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut pending).poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

impl Documents for FaultyStore {
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        self.call(|store| store.documents(collection, after, limit, now))
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        self.call(|store| store.change_documents(changes, now))
    }
}

impl Store for FaultyStore {
    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn gaps(&self) -> Vec<Gap> {
        self.inner.gaps()
    }

    fn counters(&self) -> StoreCounters {
        self.inner.counters()
    }

    fn health(&self) -> StoreHealth {
        self.inner.health()
    }

    fn known(&self, item: &Append) -> Option<Appended> {
        self.inner.known(item)
    }

    fn queues(&self) -> Pending<Vec<QueueRecord>> {
        self.call(|store| store.queues())
    }

    fn open(&self, spec: QueueSpec, now: Timestamp) -> Pending<QueueRecord> {
        self.call(|store| store.open(spec, now))
    }

    fn touch(&self, queue: QueueId, now: Timestamp) -> Pending<()> {
        self.call(|store| store.touch(queue, now))
    }

    fn forget(&self, queue: QueueId, purge: bool) -> Pending<u64> {
        self.call(|store| store.forget(queue, purge))
    }

    fn append(&self, batch: Vec<Append>) -> Pending<Vec<Result<Appended>>> {
        self.call(|store| store.append(batch))
    }

    fn page(&self, queue: QueueId, after: Seq, limit: PageLimit, now: Timestamp) -> Pending<Page> {
        self.call(|store| store.page(queue, after, limit, now))
    }

    fn due(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Due> {
        self.call(|store| store.due(queue, limit, now))
    }

    fn update(&self, queue: QueueId, change: QueueChange, now: Timestamp) -> Pending<()> {
        self.call(|store| store.update(queue, change, now))
    }

    fn left_over(&self, queue: QueueId) -> Pending<Option<QueueRecord>> {
        self.call(|store| store.left_over(queue))
    }

    fn settle(&self, queue: QueueId, seqs: Vec<Seq>) -> Pending<Vec<Settled>> {
        self.call(|store| store.settle(queue, seqs))
    }

    fn depth(&self, queue: QueueId) -> Pending<Depth> {
        self.call(|store| store.depth(queue))
    }

    fn realms(&self) -> Pending<Vec<RealmId>> {
        self.call(|store| store.realms())
    }

    fn realm_depth(&self, realm: &RealmId) -> Pending<Depth> {
        self.call(|store| store.realm_depth(realm))
    }

    fn browse(&self, queue: QueueId, after: Seq, limit: PageLimit) -> Pending<Vec<Entry>> {
        self.call(|store| store.browse(queue, after, limit))
    }

    fn purge_queue(&self, queue: QueueId) -> Pending<u64> {
        self.call(|store| store.purge_queue(queue))
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<u64> {
        self.call(|store| store.purge_realm(realm))
    }

    fn rename_realm(&self, from: &RealmId, to: &RealmId) -> Pending<()> {
        self.call(|store| store.rename_realm(from, to))
    }

    fn delayed(&self, limit: usize, now: Timestamp) -> Pending<(Vec<Delayed>, Option<Timestamp>)> {
        self.call(|store| store.delayed(limit, now))
    }

    fn drop_delayed(&self, ids: Vec<MessageId>) -> Pending<()> {
        self.call(|store| store.drop_delayed(ids))
    }

    fn dead_letters(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Pending<Vec<DeadLetter>> {
        self.call(|store| store.dead_letters(realm, after, limit))
    }

    fn revive(&self, realm: &RealmId, id: DeadLetterId, now: Timestamp) -> Pending<QueueId> {
        self.call(|store| store.revive(realm, id, now))
    }

    fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Pending<()> {
        self.call(|store| store.discard(realm, id))
    }

    fn purge_dead_letters(&self, realm: &RealmId) -> Pending<u64> {
        self.call(|store| store.purge_dead_letters(realm))
    }

    fn probe(&self) -> Pending<()> {
        self.call(|store| store.probe())
    }

    fn maintain(&self, budget: usize, now: Timestamp) -> Pending<Maintained> {
        self.call(|store| store.maintain(budget, now))
    }

    fn export(&self, after: Option<ExportCursor>, limit: PageLimit) -> Pending<Exported> {
        self.call(|store| store.export(after, limit))
    }

    fn begin_import(&self, replace: bool) -> Pending<()> {
        self.call(|store| store.begin_import(replace))
    }

    fn import(&self, records: Vec<Record>) -> Pending<()> {
        self.call(|store| store.import(records))
    }

    fn end_import(&self) -> Pending<()> {
        self.call(|store| store.end_import())
    }

    fn listen(&self, hear: Hear) {
        self.faults.lock().hears.push(hear);
    }

    fn lead(&self) -> Pending<()> {
        self.call(|store| store.lead())
    }

    fn remember(&self, realm: &RealmId, marks: Vec<Record>) -> Pending<()> {
        self.call(|store| store.remember(realm, marks))
    }

    fn moved(&self, to: &str) -> Pending<()> {
        self.call(|store| store.moved(to))
    }

    fn close(&self) -> Pending<()> {
        self.call(|store| store.close())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::clock::TestClock;
    use crate::store::MemoryStore;

    fn store() -> Arc<FaultyStore> {
        FaultyStore::new(Arc::new(MemoryStore::default()))
    }

    fn hold(id: u64) -> Vec<Append> {
        use crate::model::Message;
        let message = Message {
            id: MessageId(id),
            event: "k".into(),
            from: "p".into(),
            body: None,
            extras: None,
            produced: Timestamp(0),
            expires: None,
            guaranteed: false,
            key: None,
        };
        vec![Append {
            due: Some(Timestamp(1)),
            ..Append::new(RealmId::parse("r").unwrap(), Arc::new(message), Vec::new())
        }]
    }

    async fn held(store: &FaultyStore) -> usize {
        store.inner.delayed(9, Timestamp(9)).await.unwrap().0.len()
    }

    #[tokio::test]
    async fn a_stalled_call_has_happened_and_answers_when_released() {
        let store = store();
        store.stall();
        let mut answer = store.append(hold(1));
        assert!(answer.take_ready().is_none());
        assert!((&mut answer).now_or_never().is_none());
        assert_eq!(held(&store).await, 1);
        store.release();
        assert!(answer.await.unwrap()[0].is_ok());
        assert!(store.probe().take_ready().is_some());
    }

    #[tokio::test]
    async fn refused_calls_do_not_happen() {
        let store = store();
        store.fail_next(2, ErrorKind::StoreTimeout);
        store.refuse(Some(ErrorKind::StoreFull));
        let mut kinds = Vec::new();
        for id in 1..=3 {
            kinds.push(store.append(hold(id)).await.unwrap_err().kind());
        }
        use ErrorKind::{StoreFull, StoreTimeout};
        assert_eq!(kinds, [StoreTimeout, StoreTimeout, StoreFull]);
        assert_eq!((held(&store).await, store.calls()), (0, 3));
        store.refuse(None);
        store.append(hold(4)).await.unwrap();
        assert_eq!(held(&store).await, 1);
    }

    #[tokio::test]
    async fn a_late_answer_comes_when_its_time_has_come() {
        let (store, clock) = (store(), TestClock::new());
        store.late(Some((clock.clone(), Duration::from_secs(3))));
        let mut answer = store.append(hold(1));
        clock.advance(Duration::from_secs(2));
        assert!((&mut answer).now_or_never().is_none());
        assert_eq!(held(&store).await, 1);
        clock.advance(Duration::from_secs(1));
        answer.await.unwrap();
    }
}
