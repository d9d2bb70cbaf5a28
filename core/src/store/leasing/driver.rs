//! Calls the store: one call of a queue at a time, up to 256 queues at once, each with a deadline.
//!
//! Runs on a thread of its own, so that it depends on nobody's runtime. What the store throws,
//! panics included, becomes an error; an answer that comes too late is put right. Decides nothing.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};

use crate::{Error, ErrorKind, Result};

use super::super::pending::Pending;
use super::super::simple::{Place, RowId, RowPage, SimpleStore};
use super::super::types::QueueId;
use super::line::{Call, Job, Op};
use super::load::Outcome;
use super::queue::Stored;
use super::shared::Shared;

/// Queues with a call under way at once.
const MOST_CALLS: usize = 256;
/// Calls beyond their deadline that are still listened to.
const MOST_LATE: usize = 1024;
/// Ids in one `ack_many`.
const MOST_IDS: usize = 1024;

/// A row that was stored after its deadline.
type Late = Pin<Box<dyn Future<Output = (QueueId, Option<RowId>)> + Send>>;

/// A call that has been answered.
struct Answered {
    queue: QueueId,
    ops: Vec<Op>,
    outcome: Outcome,
    late: Vec<Pending<RowId>>,
}

/// Calls until the store is closed or nobody holds it any more.
pub(super) async fn run<S: SimpleStore>(shared: Arc<Shared<S>>) {
    let mut running = FuturesUnordered::new();
    let mut late: FuturesUnordered<Late> = FuturesUnordered::new();
    let mut saving = None;
    // Until when what is under way may take, once nothing new comes.
    let mut closing = None;
    loop {
        while running.len() < MOST_CALLS {
            let job = shared.state.lock().next_job(shared.clock.elapsed());
            match job {
                Some(job) => running.push(perform(Arc::clone(&shared), job)),
                None => break,
            }
        }
        if saving.is_none() {
            saving = shared.begin_save();
        }
        if shared.is_dropped.load(Ordering::Acquire) {
            return;
        }
        if closing.is_none() && shared.state.lock().is_closed {
            closing = Some(shared.clock.elapsed() + shared.timeout);
        }
        let is_idle = running.is_empty() && saving.is_none();
        if closing.is_some_and(|deadline| is_idle || shared.clock.elapsed() >= deadline) {
            return shared.shut().await;
        }
        let deadline = closing.map(|deadline| shared.clock.sleep_until(deadline));
        tokio::select! {
            Some(answered) = running.next() => {
                finish(&shared, answered, &mut late);
                while let Some(Some(answered)) = running.next().now_or_never() {
                    finish(&shared, answered, &mut late);
                }
            }
            Some((queue, row)) = late.next() => {
                if let Some(row) = row {
                    // Its producer was told no.
                    shared.state.lock().ack(queue, vec![Stored::taken(row)], None);
                }
            }
            saved = maybe(saving.as_mut().map(|(saved, _)| saved)) => {
                if let Some((_, savers)) = saving.take() {
                    shared.end_save(saved, savers);
                }
            }
            () = maybe(deadline) => {}
            () = shared.bell.notified() => {}
        }
    }
}

/// Ends with what there is; never, if there is nothing.
async fn maybe<F: Future + Unpin>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn finish<S: SimpleStore>(
    shared: &Shared<S>,
    answered: Answered,
    late: &mut FuturesUnordered<Late>,
) {
    let queue = answered.queue;
    for pending in answered.late {
        if late.len() < MOST_LATE {
            late.push(Box::pin(async move { (queue, pending.await.ok()) }));
        }
    }
    shared
        .state
        .lock()
        .finish_job(queue, answered.ops, answered.outcome);
}

async fn perform<S: SimpleStore>(shared: Arc<Shared<S>>, job: Job) -> Answered {
    let Job { queue, ops, call } = job;
    let store = &shared.simple;
    let mut late = Vec::new();
    let outcome = match call {
        Call::Nothing => match ops.first() {
            Some(Op::Ack { .. }) => Outcome::Dropped(Vec::new(), Ok(())),
            _ => Outcome::Done(Ok(())),
        },
        Call::Late => Outcome::Stored(ops.iter().map(|_| Err(too_late())).collect()),
        Call::Enqueue(rows) if rows.len() == 1 || !shared.methods.enqueue_many => {
            let mut answers = Vec::with_capacity(rows.len());
            for row in rows {
                let mut pending = shared.guard("enqueue", || store.enqueue(row));
                let answer = shared.wait("enqueue", &mut pending).await;
                if answer
                    .as_ref()
                    .is_err_and(|error| error.kind() == ErrorKind::StoreTimeout)
                {
                    late.push(pending);
                }
                answers.push(answer);
            }
            Outcome::Stored(answers)
        }
        Call::Enqueue(rows) => {
            let count = rows.len();
            let ids = shared
                .call("enqueueMany", || store.enqueue_many(rows))
                .await;
            Outcome::Stored(shared.ids(ids, count))
        }
        Call::Ack(ids) => drop_rows(&shared, ids).await,
        Call::Bury(id, reason) => Outcome::Done(
            shared
                .call("deadLetter", || store.dead_letter(id, reason))
                .await,
        ),
        Call::Discard(id, realm) => Outcome::Done(
            shared
                .call("discardDlq", || store.discard_dlq(id, &realm))
                .await,
        ),
        Call::Dequeue(place, page) => {
            Outcome::Rows(shared.call("dequeue", || store.dequeue(&place, page)).await)
        }
        Call::PurgeRealm(realm) => Outcome::Done(
            shared
                .call("purgeRealm", || store.purge_realm(&realm))
                .await,
        ),
    };
    Answered {
        queue,
        ops,
        outcome,
        late,
    }
}

/// Drops rows until the store refuses one.
async fn drop_rows<S: SimpleStore>(shared: &Shared<S>, mut ids: Vec<RowId>) -> Outcome {
    let store = &shared.simple;
    let most = if shared.methods.ack_many { MOST_IDS } else { 1 };
    let mut dropped = 0;
    while dropped < ids.len() {
        let next = &ids[dropped..ids.len().min(dropped + most)];
        let count = next.len();
        let result = match next {
            [id] => shared.call("ack", || store.ack(id.clone())).await,
            many => {
                shared
                    .call("ackMany", || store.ack_many(many.to_vec()))
                    .await
            }
        };
        if let Err(error) = result {
            return Outcome::Dropped(ids.split_off(dropped), Err(error));
        }
        dropped += count;
    }
    Outcome::Dropped(Vec::new(), Ok(()))
}

fn too_late() -> Error {
    Error::new(
        ErrorKind::StoreTimeout,
        "the store is too slow: this message waited for its turn for too long and is not stored",
    )
}

impl<S: SimpleStore> Shared<S> {
    /// One call with its deadline.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        method: &'static str,
        call: impl FnOnce() -> Pending<T>,
    ) -> Result<T> {
        let mut pending = self.guard(method, call);
        self.wait(method, &mut pending).await
    }

    /// Makes a call; a panic is its answer.
    fn guard<T: Send + 'static>(
        &self,
        method: &str,
        call: impl FnOnce() -> Pending<T>,
    ) -> Pending<T> {
        let called = std::panic::catch_unwind(AssertUnwindSafe(call));
        called.unwrap_or_else(|_| Pending::ready(Err(panicked(method))))
    }

    async fn wait<T>(&self, method: &'static str, pending: &mut Pending<T>) -> Result<T> {
        let answer = match pending.take_ready() {
            Some(answer) => answer,
            None => {
                let deadline = self.clock.sleep_until(self.clock.elapsed() + self.timeout);
                tokio::select! {
                    answer = AssertUnwindSafe(&mut *pending).catch_unwind() => {
                        answer.unwrap_or_else(|_| Err(panicked(method)))
                    }
                    () = deadline => Err(Error::new(
                        ErrorKind::StoreTimeout,
                        format!("the store did not answer {method} in time; it may have happened or not"),
                    )),
                }
            }
        };
        let answer = answer.map_err(|error| refused(method, error));
        match &answer {
            Ok(_) => self.health.worked(method),
            Err(error) => self.health.failed(method, error, &*self.clock),
        }
        answer
    }

    /// Reads a queue that nobody has: a row of a probe would be seen by the store's owner.
    pub(super) async fn probe(&self) -> Result<()> {
        let place = Place {
            realm: "default".into(),
            event: "restante-probe".into(),
            consumer: "restante-probe".into(),
        };
        let page = RowPage {
            limit: Some(1),
            after: None,
        };
        let rows = self
            .call("dequeue", || self.simple.dequeue(&place, page))
            .await;
        rows.map(|_| ())
    }

    /// The ids of rows that were stored in one call, one answer each.
    fn ids(&self, ids: Result<Vec<RowId>>, count: usize) -> Vec<Result<RowId>> {
        match ids {
            Ok(ids) if ids.len() == count => ids.into_iter().map(Ok).collect(),
            Ok(ids) => {
                let text = format!("enqueueMany answered {} ids for {count} rows", ids.len());
                vec![Err(Error::new(ErrorKind::StoreUnavailable, text)); count]
            }
            Err(error) => vec![Err(error); count],
        }
    }
}

fn panicked(method: &str) -> Error {
    Error::new(
        ErrorKind::StoreUnavailable,
        format!("the store panicked in {method}"),
    )
}

/// Stores of users may answer any error; what leaves here is one of those that a store may have.
fn refused(method: &str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::StoreUnavailable
        | ErrorKind::StoreTimeout
        | ErrorKind::StoreFull
        | ErrorKind::StoreCorrupt
        | ErrorKind::StoreUnsupported => error,
        _ => Error::new(
            ErrorKind::StoreUnavailable,
            format!("the store refused {method}: {error}"),
        ),
    }
}
