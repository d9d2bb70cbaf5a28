//! A store whose place another one can take while work goes on (P28).
//!
//! The broker always holds a [`SwapStore`]; it passes every call to the store in force. To change
//! that store it copies the old one page by page while that leads, until little is left; then it
//! holds calls back for a moment, in their order, copies the last difference and lets the new one
//! lead. Ids are the same in the copy, so nobody else notices. Whatever fails before that leaves the
//! old store as it was. Knows no kind of store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::{Error, ErrorKind, Result};

use super::claim::{Hear, News};
use super::documents::Collection;
use super::record::{ExportCursor, Record};
use super::types::{PageLimit, StoreCounters};
use super::{Pending, SharedStore, Store};

mod calls;

/// Rows left below which calls are held back; fewer each time that did not do.
const LITTLE: u64 = 10_000;
/// How long calls are held back at most before the copy goes on without.
const PAUSE: Duration = Duration::from_secs(1);
/// How often that is tried.
const PAUSES: u32 = 6;
/// How long a copy may come no nearer to its end.
const STUCK: Duration = Duration::from_secs(60);
/// Most calls that are held back.
const HELD: usize = 1 << 20;
/// A page of a copy.
const PAGE: PageLimit = PageLimit {
    entries: 1024,
    bytes: 1 << 20,
};

/// What a change of stores has copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    /// Entries, exceptions and delayed messages.
    pub messages: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Remembered subscriptions.
    pub queues: u64,
    /// How long calls were held back.
    pub pause: Duration,
}

type Held = Box<dyn FnOnce(&dyn Store) + Send>;

/// The store in force, and what waits while it changes.
struct Gate {
    store: SharedStore,
    /// What the stores before it have counted.
    counted: StoreCounters,
    held: Option<Mutex<Vec<Held>>>,
    /// Who is told what other brokers do.
    hears: Vec<Hear>,
    /// Logs with numbers from here on were in a store before this one.
    stale: Option<u64>,
}

impl Gate {
    /// Puts `new` in force; what was before.
    fn lead(&mut self, new: SharedStore) -> SharedStore {
        let old = std::mem::replace(&mut self.store, new);
        self.counted = self.counted.plus(old.counters());
        self.listen();
        // What is kept there may be other than what was here.
        for collection in Collection::ALL {
            let news = News::Documents(*collection);
            self.hears.iter().for_each(|hear| hear(news.clone()));
        }
        old
    }

    /// Has the store in force tell everybody who wants to hear.
    fn listen(&self) {
        let hears = self.hears.clone();
        if !hears.is_empty() {
            let all = move |news: News| hears.iter().for_each(|hear| hear(news.clone()));
            self.store.listen(Arc::new(all));
        }
    }
}

/// A [`Store`] that passes calls on to another one, which can be changed.
pub struct SwapStore {
    gate: RwLock<Gate>,
    clock: Arc<dyn Clock>,
    is_changing: Arc<AtomicBool>,
}

/// Lets the held calls go to the store in force, whatever ended the pause.
struct Pause<'a>(&'a SwapStore);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut gate = self.0.gate.write();
        // Under the lock, so that they are before every later call.
        if let Some(held) = gate.held.take() {
            for call in held.into_inner() {
                call(&*gate.store);
            }
        }
    }
}

/// The one change of the store that may be under way; another may begin when it is dropped.
#[derive(Debug)]
pub struct Changing(Arc<AtomicBool>);

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn too_much_held() -> Error {
    let why = "too much waits for the store already";
    Error::new(ErrorKind::StoreUnavailable, why)
}

fn replaced() -> Error {
    let why = "the store has been changed; send it again";
    Error::new(ErrorKind::StoreUnavailable, why)
}

impl SwapStore {
    /// With this store in force.
    pub fn new(store: SharedStore, clock: Arc<dyn Clock>) -> Self {
        Self {
            gate: RwLock::new(Gate {
                store,
                counted: StoreCounters::default(),
                held: None,
                hears: Vec::new(),
                stale: None,
            }),
            clock,
            is_changing: Arc::default(),
        }
    }

    /// The store in force.
    pub fn current(&self) -> SharedStore {
        Arc::clone(&self.gate.read().store)
    }

    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Store) -> Pending<T> + Send + 'static,
    ) -> Pending<T> {
        // Held during the call: one that comes before a pause is in the old store's line then.
        Self::call_at(&self.gate.read(), call)
    }

    fn call_at<T: Send + 'static>(
        gate: &Gate,
        call: impl FnOnce(&dyn Store) -> Pending<T> + Send + 'static,
    ) -> Pending<T> {
        let Some(held) = &gate.held else {
            return call(&*gate.store);
        };
        let (tell, told) = oneshot::channel();
        let mut held = held.lock();
        if held.len() >= HELD {
            return Pending::ready(Err(too_much_held()));
        }
        held.push(Box::new(move |store| {
            // Whoever asked may have stopped waiting; the call happens all the same.
            let _ = tell.send(call(store));
        }));
        Pending::waiting(async move {
            match told.await {
                Ok(answer) => answer.await,
                Err(_) => Err(replaced()),
            }
        })
    }

    /// Begins a change, before anything is opened for it.
    ///
    /// # Errors
    /// `swap_in_progress` if one is under way already, which goes on (P28).
    pub fn change(&self) -> Result<Changing> {
        if self.is_changing.swap(true, Ordering::AcqRel) {
            let why = "the store is being changed already; try it when that is done";
            return Err(Error::new(ErrorKind::SwapInProgress, why));
        }
        Ok(Changing(Arc::clone(&self.is_changing)))
    }

    /// Makes `new` the store in force, with everything the old one holds. `commit` makes it known
    /// when the copy is whole, before `new` leads: what it refuses does not happen. `place` says in
    /// words where everything has moved to.
    ///
    /// # Errors
    /// `store_unsupported` if either store cannot do that, `store_unavailable` if more comes than can
    /// be copied, and what the stores say. The old store leads then as before, and the copy is
    /// dropped.
    pub async fn swap_to(
        &self,
        _changing: Changing,
        new: SharedStore,
        replace: bool,
        place: &str,
        commit: impl FnOnce() -> Result<()> + Send,
    ) -> Result<Copied> {
        let old = self.current();
        let begun = async {
            new.probe().await?;
            new.begin_import(replace).await
        };
        let copied = match begun.await {
            Ok(()) => {
                let copied = self.copy(&old, &new, commit).await;
                if copied.is_err() {
                    // Nothing of it is ever opened; whether it is gone is told by its mark.
                    let _ = new.begin_import(false).await;
                }
                copied
            }
            Err(error) => Err(error),
        };
        if let Err(error) = copied {
            let _ = new.close().await;
            return Err(error);
        }
        if let Err(error) = old.moved(place).await {
            tracing::warn!(%error, "the old store does not know that its messages have moved");
        }
        if let Err(error) = old.close().await {
            tracing::warn!(%error, "closing the old store");
        }
        copied
    }

    async fn copy(
        &self,
        old: &SharedStore,
        new: &SharedStore,
        commit: impl FnOnce() -> Result<()> + Send,
    ) -> Result<Copied> {
        let mut copied = Copied::default();
        let mut cursor = None;
        let (mut best, mut since, mut last) = (u64::MAX, self.clock.elapsed(), u64::MAX);
        let (mut little, mut pauses) = (LITTLE, 0);
        loop {
            let left = page(old, new, &mut cursor, &mut copied).await?;
            if left < best {
                (best, since) = (left, self.clock.elapsed());
            } else if self.clock.elapsed() >= since + STUCK {
                let why = "more comes than can be copied; try it when there is less to do";
                return Err(Error::new(ErrorKind::StoreUnavailable, why));
            }
            // The less is left, the shorter the pause: it waits while the copy still gains.
            let is_gaining = left < std::mem::replace(&mut last, left);
            if left >= little || (is_gaining && left > PAGE.entries as u64) {
                continue;
            }
            let began = self.clock.elapsed();
            let pause = self.hold();
            if self
                .catch_up(old, new, &mut cursor, &mut copied, began)
                .await?
            {
                new.end_import().await?;
                copied.queues = new.queues().await?.len() as u64;
                commit()?;
                self.gate.write().lead(Arc::clone(new));
                if let Err(error) = new.lead().await {
                    // The next start knows that it was chosen.
                    tracing::warn!(%error, "the new store does not know yet that it leads");
                }
                drop(pause);
                copied.pause = self.clock.elapsed().saturating_sub(began);
                return Ok(copied);
            }
            drop(pause);
            (little, pauses, best) = (little / 4, pauses + 1, u64::MAX);
            if pauses == PAUSES {
                let why = "the last changes could not be copied in a second";
                return Err(Error::new(ErrorKind::StoreTimeout, why));
            }
        }
    }

    /// Lets `new` lead, which knows what it takes over by other numbers, once `last` has brought it
    /// what is left; the old store's logs all have numbers from `stale` on. Calls that come
    /// meanwhile are refused, so are appends to those logs from then on: whoever asks has to learn
    /// the new numbers first.
    ///
    /// # Errors
    /// What `last` says; the old store leads then as before.
    pub async fn replace<T>(
        &self,
        new: SharedStore,
        stale: u64,
        last: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let pause = self.hold();
        let done = last.await?;
        let (old, held) = {
            let mut gate = self.gate.write();
            gate.stale = Some(stale);
            (gate.lead(new), gate.held.as_mut().map(std::mem::take))
        };
        // Who asked hears that nobody answers.
        drop(held);
        drop(pause);
        if let Err(error) = old.close().await {
            tracing::warn!(%error, "closing the old store");
        }
        Ok(done)
    }

    /// Copies what is left; whether that was done in the time of a pause.
    async fn catch_up(
        &self,
        old: &SharedStore,
        new: &SharedStore,
        cursor: &mut Option<ExportCursor>,
        copied: &mut Copied,
        began: Duration,
    ) -> Result<bool> {
        loop {
            if page(old, new, cursor, copied).await? == 0 {
                return Ok(true);
            }
            if self.clock.elapsed() >= began + PAUSE {
                return Ok(false);
            }
        }
    }

    /// Holds calls back from now on.
    fn hold(&self) -> Pause<'_> {
        self.gate.write().held.get_or_insert_default();
        Pause(self)
    }
}

/// Copies one page; about how many rows are left.
async fn page(
    old: &SharedStore,
    new: &SharedStore,
    cursor: &mut Option<ExportCursor>,
    copied: &mut Copied,
) -> Result<u64> {
    let page = old.export(cursor.clone(), PAGE).await?;
    *cursor = Some(page.next);
    for record in &page.records {
        match record {
            Record::Entry(_) | Record::Exception(_) | Record::Delayed(_) => copied.messages += 1,
            Record::Letter(_) => copied.dead_letters += 1,
            _ => {}
        }
    }
    new.import(page.records).await?;
    Ok(page.left)
}

impl std::fmt::Debug for SwapStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SwapStore").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
