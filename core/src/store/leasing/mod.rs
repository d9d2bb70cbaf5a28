//! Lifts a [`SimpleStore`] to the [`Store`] that the broker sees.
//!
//! The store keeps one row for each queue and message; everything else (order, attempts, sent
//! marks, what a resend is) is kept here, and subscriptions in a [`Side`]. What that cannot hold
//! is said by [`Store::gaps`]. Knows no broker; the store is called by [`driver`] alone.
//!
//! ```text
//!  state  logs, queues, realms     append  who takes a message; when it counts
//!  queue  the entries of one       change  settle, except, bury, revive
//!  line   what the store is told   read    pages, due exceptions, a look
//!  driver who tells it             load    what it answers
//!  side   what is remembered       sweep   what time ends
//!  shared calls under the lock      upkeep  writing, and the end
//!  health what its calls say
//! ```

mod append;
mod change;
mod documents;
mod driver;
mod gaps;
mod health;
mod line;
mod load;
mod queue;
mod read;
mod realms;
mod shared;
mod side;
mod state;
mod sweep;
mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::clock::{Clock, SystemClock, Timestamp};
use crate::model::{MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::Store;
use super::pending::Pending;
use super::simple::SimpleStore;
use super::types::{
    Append, Appended, Bounds, DeadLetter, DeadLetterId, Delayed, Depth, Due, Durability, Entry,
    Gap, Maintained, Page, PageLimit, QueueChange, QueueId, QueueRecord, QueueSpec, Seq, Settled,
    StoreCounters, StoreHealth,
};
use append::Answered;
use health::Health;
use read::Look;
use shared::{Shared, after, closed};
use state::State;

pub use side::Side;

/// How a store is lifted.
#[derive(Clone)]
pub struct LeasingOptions {
    /// What it keeps at most.
    pub bounds: Bounds,
    /// Where subscriptions are kept; nowhere.
    pub side: Side,
    /// How long one call may take; 5 s.
    pub timeout: Duration,
    /// Where time comes from; the machine's clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for LeasingOptions {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            side: Side::None,
            timeout: Duration::from_secs(5),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl std::fmt::Debug for LeasingOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeasingOptions")
            .field("bounds", &self.bounds)
            .field("side", &self.side)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A lifted store. Dropped without [`Store::close`] it ends its thread at once.
pub struct Leasing<S> {
    shared: Arc<Shared<S>>,
}

impl<S> std::fmt::Debug for Leasing<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leasing")
            .field("side", &self.shared.side)
            .finish_non_exhaustive()
    }
}

impl<S> Drop for Leasing<S> {
    fn drop(&mut self) {
        self.shared.is_dropped.store(true, Ordering::Release);
        self.shared.bell.notify_one();
    }
}

impl<S: SimpleStore> Leasing<S> {
    /// Lifts a store and takes up what is remembered of it.
    ///
    /// ```
    /// # use restante::store::{NewRow, Pending, Place, Row, RowId, RowPage, SimpleStore};
    /// # struct Shelf;
    /// # impl SimpleStore for Shelf {
    /// #     fn enqueue(&self, row: NewRow) -> Pending<RowId> { Pending::ready(Ok(RowId::from(&*row.id))) }
    /// #     fn dequeue(&self, _: &Place, _: RowPage) -> Pending<Vec<Row>> { Pending::ready(Ok(Vec::new())) }
    /// #     fn ack(&self, _: RowId) -> Pending<()> { Pending::ready(Ok(())) }
    /// # }
    /// use std::sync::Arc;
    /// use restante::server::ServerConfig;
    /// use restante::store::{Leasing, LeasingOptions};
    ///
    /// let mut config = ServerConfig::default();
    /// config.store = Some(Arc::new(Leasing::new(Shelf, LeasingOptions::default())?));
    /// # Ok::<(), restante::Error>(())
    /// ```
    ///
    /// # Errors
    /// `config` if the side cannot be opened, `store_corrupt` if it cannot be read, `internal` if
    /// there is no thread.
    pub fn new(simple: S, options: LeasingOptions) -> Result<Self> {
        let methods = simple.methods();
        let (side, text) = side::Opened::open(options.side)?;
        let mut state = State {
            bounds: options.bounds,
            nonce: fastrand::u64(..),
            remembers: side.remembers(),
            ..State::default()
        };
        state.lines.methods = methods;
        state.lines.patience = options.timeout;
        side::read(&text, &mut state).map_err(|error| side.named(error))?;
        state.is_dirty = state.remembers && state.generation > 0;
        let shared = Arc::new(Shared {
            simple,
            methods,
            state: Mutex::new(state),
            bell: Notify::new(),
            side,
            timeout: options.timeout,
            clock: options.clock,
            health: Health::default(),
            is_dropped: AtomicBool::new(false),
        });
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorKind::Internal,
                format!("no thread for the store: {error}"),
            )
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let (runtime, driven) = (runtime.map_err(failed)?, Arc::clone(&shared));
        std::thread::Builder::new()
            .name("restante-store".to_owned())
            .spawn(move || runtime.block_on(driver::run(driven)))
            .map_err(failed)?;
        Ok(Self { shared })
    }
}

impl<S: SimpleStore> Store for Leasing<S> {
    fn durability(&self) -> Durability {
        self.shared.simple.durability()
    }

    fn gaps(&self) -> Vec<Gap> {
        gaps::of(self.shared.methods, &self.shared.side)
    }

    fn queues(&self) -> Pending<Vec<QueueRecord>> {
        let shared = Arc::clone(&self.shared);
        let recalled = self
            .shared
            .locked(|state| Ok((state.records(), state.generation > 0)));
        match recalled {
            Ok((records, true)) if shared.methods.list_dlq => Pending::waiting(async move {
                match shared
                    .call("listDlq", || shared.simple.list_dlq(None))
                    .await
                {
                    Ok(letters) => shared.state.lock().exhume(letters),
                    Err(error) => {
                        tracing::warn!("the dead letters of earlier cannot be read: {error}")
                    }
                }
                Ok(records)
            }),
            Ok((records, _)) => Pending::ready(Ok(records)),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn open(&self, spec: QueueSpec, now: Timestamp) -> Pending<QueueRecord> {
        let opened = self.shared.locked(|state| {
            let queue = state.open(spec, now)?;
            Ok((
                queue,
                state.learn(queue),
                state.save(),
                state.record(queue)?,
            ))
        });
        let (queue, learning, waits, record) = match opened {
            Ok(opened) => opened,
            Err(error) => return Pending::ready(Err(error)),
        };
        if learning.is_none() {
            return after(waits, record);
        }
        let shared = Arc::clone(&self.shared);
        Pending::waiting(async move {
            if let Some(learning) = learning
                && let Ok(Err(error)) = learning.await
            {
                // Whoever reads asks again.
                tracing::warn!("a queue's backlog could not be read yet: {error}");
            }
            after(waits, ()).await?;
            shared.locked(|state| state.record(queue))
        })
    }

    fn touch(&self, queue: QueueId, now: Timestamp) -> Pending<()> {
        Pending::ready(self.shared.locked(|state| state.touch(queue, now)))
    }

    fn forget(&self, queue: QueueId, purge: bool) -> Pending<u64> {
        self.shared.look_then(queue, move |state| {
            state.forget(queue, purge).map(Look::Found)
        })
    }

    fn append(&self, batch: Vec<Append>) -> Pending<Vec<Result<Appended>>> {
        let now = self.shared.clock.elapsed();
        let answers = self.shared.locked(|state| {
            let answers = batch.into_iter().map(|item| state.append(item, now));
            Ok(answers.collect::<Vec<_>>())
        });
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => return Pending::ready(Err(error)),
        };
        if answers
            .iter()
            .all(|answer| matches!(answer, Answered::Now(_)))
        {
            let answers = answers.into_iter().map(|answer| match answer {
                Answered::Now(answer) => answer,
                Answered::Later(_) => Err(closed()),
            });
            return Pending::ready(Ok(answers.collect()));
        }
        Pending::waiting(async move {
            let mut outcomes = Vec::with_capacity(answers.len());
            for answer in answers {
                outcomes.push(match answer {
                    Answered::Now(answer) => answer,
                    Answered::Later(later) => later.await.unwrap_or_else(|_| Err(closed())),
                });
            }
            Ok(outcomes)
        })
    }

    fn page(&self, queue: QueueId, after: Seq, limit: PageLimit, now: Timestamp) -> Pending<Page> {
        self.shared
            .look(queue, move |state| state.page(queue, after, limit, now))
    }

    fn due(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Due> {
        self.shared.look(queue, move |state| {
            state.due(queue, limit, now).map(Look::Found)
        })
    }

    fn update(&self, queue: QueueId, change: QueueChange, now: Timestamp) -> Pending<()> {
        self.shared.look_then(queue, move |state| {
            Ok(match state.update(queue, &change, now)? {
                Look::Found(waits) => Look::Found(((), waits)),
                Look::Wait(waits) => Look::Wait(waits),
            })
        })
    }

    fn left_over(&self, queue: QueueId) -> Pending<Option<QueueRecord>> {
        self.shared
            .look(queue, move |state| Ok(Look::Found(state.left_over(queue))))
    }

    fn settle(&self, queue: QueueId, seqs: Vec<Seq>) -> Pending<Vec<Settled>> {
        self.shared.look_then(queue, move |state| {
            state.settle(queue, &seqs).map(Look::Found)
        })
    }

    fn depth(&self, queue: QueueId) -> Pending<Depth> {
        let depth =
            move |state: &mut State| state.live(queue).map(|queue| Look::Found(queue.depth()));
        self.shared.look(queue, depth)
    }

    fn realms(&self) -> Pending<Vec<RealmId>> {
        let names = |state: &mut State| Ok(state.realms.keys().cloned().collect());
        Pending::ready(self.shared.locked(names))
    }

    fn realm_depth(&self, realm: &RealmId) -> Pending<Depth> {
        Pending::ready(self.shared.locked(|state| Ok(state.realm_depth(realm))))
    }

    fn browse(&self, queue: QueueId, after: Seq, limit: PageLimit) -> Pending<Vec<Entry>> {
        self.shared
            .look(queue, move |state| state.browse(queue, after, limit))
    }

    fn purge_queue(&self, queue: QueueId) -> Pending<u64> {
        self.shared.look_then(queue, move |state| {
            state.purge_queue(queue).map(Look::Found)
        })
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<u64> {
        self.shared.then(|state| Ok(state.purge_realm(realm)))
    }

    fn rename_realm(&self, from: &RealmId, to: &RealmId) -> Pending<()> {
        self.shared
            .then(|state| Ok(((), state.rename_realm(from, to)?)))
    }

    fn delayed(&self, limit: usize, now: Timestamp) -> Pending<(Vec<Delayed>, Option<Timestamp>)> {
        Pending::ready(self.shared.locked(|state| Ok(state.delays.due(limit, now))))
    }

    fn drop_delayed(&self, ids: Vec<MessageId>) -> Pending<()> {
        Pending::ready(self.shared.locked(|state| {
            ids.into_iter().for_each(|id| state.drop_delayed(id));
            Ok(())
        }))
    }

    fn dead_letters(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Pending<Vec<DeadLetter>> {
        Pending::ready(self.shared.locked(|state| {
            let realm = state.realms.get(realm);
            Ok(realm.map_or_else(Vec::new, |realm| {
                realm.graves.after(after).take(limit).cloned().collect()
            }))
        }))
    }

    fn revive(&self, realm: &RealmId, id: DeadLetterId, now: Timestamp) -> Pending<QueueId> {
        let since = self.shared.clock.elapsed();
        self.shared
            .then(|state| Ok((id.queue, state.revive(realm, id, now, since)?)))
    }

    fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Pending<()> {
        Pending::ready(self.shared.locked(|state| state.discard(realm, id)))
    }

    fn purge_dead_letters(&self, realm: &RealmId) -> Pending<u64> {
        Pending::ready(
            self.shared
                .locked(|state| Ok(state.purge_dead_letters(realm))),
        )
    }

    fn probe(&self) -> Pending<()> {
        if let Err(error) = self.shared.locked(|_| Ok(())) {
            return Pending::ready(Err(error));
        }
        let shared = Arc::clone(&self.shared);
        Pending::waiting(async move { shared.probe().await })
    }

    fn maintain(&self, budget: usize, now: Timestamp) -> Pending<Maintained> {
        let done = self.shared.locked(|state| Ok(state.maintain(budget, now)));
        if !self.shared.health.wants_probe(&*self.shared.clock) {
            return Pending::ready(done);
        }
        let shared = Arc::clone(&self.shared);
        Pending::waiting(async move {
            let began = shared.clock.elapsed();
            if shared.probe().await.is_ok() {
                shared.health.is_well(began);
            }
            done
        })
    }

    fn health(&self) -> StoreHealth {
        let holding = self.shared.state.lock().holding();
        self.shared.health.report(holding)
    }

    fn counters(&self) -> StoreCounters {
        self.shared.state.lock().counters
    }

    fn close(&self) -> Pending<()> {
        let (closer, waits) = oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            if std::mem::replace(&mut state.is_closed, true) && state.closers.is_empty() {
                return Pending::ready(Ok(()));
            }
            state.closers.push(closer);
        }
        self.shared.bell.notify_one();
        // The thread may have ended without a word: by a panic.
        Pending::waiting(async move { waits.await.unwrap_or_else(|_| Err(closed())) })
    }
}

#[cfg(test)]
mod tests;
