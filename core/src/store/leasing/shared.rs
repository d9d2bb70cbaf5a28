//! What a lifted store and its thread share, and calls under its lock: those that are answered at
//! once, those that wait until something is written, and those that must read first.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::{Error, ErrorKind, Result};

use super::super::pending::Pending;
use super::super::simple::{Methods, SimpleStore};
use super::super::types::QueueId;
use super::health::Health;
use super::read::Look;
use super::side;
use super::state::{State, Waits};

/// What the adapter and its thread share.
pub(super) struct Shared<S> {
    pub(super) simple: S,
    pub(super) methods: Methods,
    pub(super) state: Mutex<State>,
    pub(super) bell: Notify,
    pub(super) side: side::Opened,
    pub(super) timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) health: Health,
    /// Nobody will call any more: the thread ends.
    pub(super) is_dropped: AtomicBool,
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the store is closed")
}

impl<S: SimpleStore> Shared<S> {
    /// Runs `call` under the lock and lets the thread tell the store what follows.
    pub(super) fn locked<T>(&self, call: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(closed());
        }
        let answer = call(&mut state);
        drop(state);
        self.bell.notify_one();
        answer
    }

    /// A call that is answered when its consequences are written.
    pub(super) fn then<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut State) -> Result<(T, Waits)>,
    ) -> Pending<T> {
        match self.locked(call) {
            Ok((answer, waits)) => after(waits, answer),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Looks at a queue whose rows are known, as often as rows must come from the store first.
    pub(super) fn look<T: Send + 'static>(
        self: &Arc<Self>,
        queue: QueueId,
        mut look: impl FnMut(&mut State) -> Result<Look<T>> + Send + 'static,
    ) -> Pending<T> {
        let shared = Arc::clone(self);
        let mut look = move || {
            shared.locked(|state| match state.learn(queue) {
                Some(waits) => Ok(Look::Wait(waits)),
                None => look(state),
            })
        };
        match look() {
            Err(error) => Pending::ready(Err(error)),
            Ok(Look::Found(found)) => Pending::ready(Ok(found)),
            Ok(Look::Wait(mut waits)) => Pending::waiting(async move {
                loop {
                    // An end without a word: the queue has gone, or the store is closed.
                    if let Ok(outcome) = waits.await {
                        outcome?;
                    }
                    match look()? {
                        Look::Found(found) => return Ok(found),
                        Look::Wait(more) => waits = more,
                    }
                }
            }),
        }
    }

    /// The same for calls that are answered when their consequences are written.
    pub(super) fn look_then<T: Send + 'static>(
        self: &Arc<Self>,
        queue: QueueId,
        look: impl FnMut(&mut State) -> Result<Look<(T, Waits)>> + Send + 'static,
    ) -> Pending<T> {
        let mut pending = self.look(queue, look);
        match pending.take_ready() {
            Some(Ok((answer, waits))) => after(waits, answer),
            Some(Err(error)) => Pending::ready(Err(error)),
            None => Pending::waiting(async move {
                let (answer, waits) = pending.await?;
                after(waits, answer).await
            }),
        }
    }
}

/// Answers once all of `waits` have said yes.
pub(super) fn after<T: Send + 'static>(waits: Waits, answer: T) -> Pending<T> {
    if waits.is_empty() {
        return Pending::ready(Ok(answer));
    }
    Pending::waiting(async move {
        for outcome in join_all(waits).await {
            outcome.unwrap_or_else(|_| Err(closed()))?;
        }
        Ok(answer)
    })
}
