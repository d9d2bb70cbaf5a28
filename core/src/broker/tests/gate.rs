//! A store that can be made to wait or to refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

use crate::clock::Timestamp;
use crate::model::{MessageId, RealmId};
use crate::store::*;
use crate::{Error, ErrorKind, Result};

/// A store whose appends, openings and purges of realms wait while it is shut; appends and forgetting fail while it is broken.
pub(super) struct Gate {
    inner: Arc<MemoryStore>,
    open: watch::Sender<bool>,
    pub(super) is_broken: AtomicBool,
    pub(super) appends: AtomicU64,
}

impl Gate {
    pub(super) fn new(inner: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            open: watch::Sender::new(true),
            is_broken: AtomicBool::new(false),
            appends: AtomicU64::new(0),
        })
    }

    pub(super) fn shut(&self) {
        self.open.send_replace(false);
    }

    pub(super) fn reopen(&self) {
        self.open.send_replace(true);
    }

    /// A call takes its place at once; only its answer waits.
    fn later<T: Send + 'static>(&self, answer: Pending<T>) -> Pending<T> {
        if *self.open.borrow() {
            return answer;
        }
        let mut open = self.open.subscribe();
        Pending::waiting(async move {
            open.wait_for(|open| *open).await.unwrap();
            answer.await
        })
    }

    /// What a later broker over the same data sees.
    pub(super) fn again(&self) -> Arc<Self> {
        Self::new(self.inner.clone())
    }
}

macro_rules! delegate {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $out:ty;)*) => {
        $(fn $name(&self $(, $arg: $type)*) -> $out { self.inner.$name($($arg),*) })*
    };
}

impl Documents for Gate {}

impl Store for Gate {
    fn append(&self, batch: Vec<Append>) -> Pending<Vec<Result<Appended>>> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        if self.is_broken.load(Ordering::SeqCst) {
            return Pending::ready(Err(Error::new(ErrorKind::StoreUnavailable, "broken")));
        }
        self.later(self.inner.append(batch))
    }

    fn open(&self, spec: QueueSpec, now: Timestamp) -> Pending<QueueRecord> {
        self.later(self.inner.open(spec, now))
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<u64> {
        self.later(self.inner.purge_realm(realm))
    }

    fn known(&self, item: &Append) -> Option<Appended> {
        self.inner.known(item)
    }

    fn forget(&self, queue: QueueId, purge: bool) -> Pending<u64> {
        if self.is_broken.load(Ordering::SeqCst) {
            return Pending::ready(Err(Error::new(ErrorKind::StoreUnavailable, "broken")));
        }
        self.inner.forget(queue, purge)
    }

    delegate! {
        fn durability(&self) -> Durability;
        fn queues(&self) -> Pending<Vec<QueueRecord>>;
        fn touch(&self, queue: QueueId, now: Timestamp) -> Pending<()>;
        fn page(&self, queue: QueueId, after: Seq, limit: PageLimit, now: Timestamp) -> Pending<Page>;
        fn due(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Due>;
        fn update(&self, queue: QueueId, change: QueueChange, now: Timestamp) -> Pending<()>;
        fn left_over(&self, queue: QueueId) -> Pending<Option<QueueRecord>>;
        fn settle(&self, queue: QueueId, seqs: Vec<Seq>) -> Pending<Vec<Settled>>;
        fn depth(&self, queue: QueueId) -> Pending<Depth>;
        fn realms(&self) -> Pending<Vec<RealmId>>;
        fn realm_depth(&self, realm: &RealmId) -> Pending<Depth>;
        fn browse(&self, queue: QueueId, after: Seq, limit: PageLimit) -> Pending<Vec<Entry>>;
        fn purge_queue(&self, queue: QueueId) -> Pending<u64>;
        fn rename_realm(&self, from: &RealmId, to: &RealmId) -> Pending<()>;
        fn delayed(&self, limit: usize, now: Timestamp) -> Pending<(Vec<Delayed>, Option<Timestamp>)>;
        fn drop_delayed(&self, ids: Vec<MessageId>) -> Pending<()>;
        fn dead_letters(&self, realm: &RealmId, after: Option<DeadLetterId>, limit: usize) -> Pending<Vec<DeadLetter>>;
        fn revive(&self, realm: &RealmId, id: DeadLetterId, now: Timestamp) -> Pending<QueueId>;
        fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Pending<()>;
        fn purge_dead_letters(&self, realm: &RealmId) -> Pending<u64>;
        fn probe(&self) -> Pending<()>;
        fn maintain(&self, budget: usize, now: Timestamp) -> Pending<Maintained>;
        fn counters(&self) -> StoreCounters;
        fn close(&self) -> Pending<()>;
    }
}
