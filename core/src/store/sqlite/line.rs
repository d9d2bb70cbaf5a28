//! The line before the writer: calls take their places in it when they are made, and are done in
//! that order.
//!
//! It never makes a caller wait: what is in it is bounded by who calls (sessions bound what they
//! have under way), and beyond a limit of its own it refuses (P25). Knows no table.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result};

use super::super::Pending;
use super::core::Core;

/// Most of one batch: commands, and bytes of messages.
const BATCH: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;
/// Most of the line.
const LINE: usize = 1 << 20;
const LINE_BYTES: usize = 512 << 20;

/// What a command may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// Reads, and settles what it finds expired.
    Read,
    /// Writes, and needs little room or makes some.
    Write,
    /// Adds messages.
    Grow,
    /// Upkeep: also when the store is in trouble, which it may end.
    Upkeep,
}

/// One command under way.
pub(super) trait Task: Send {
    fn nature(&self) -> Nature;
    /// Bytes of its messages.
    fn weight(&self) -> usize;
    /// Does it, once more if it was done before and taken back; keeps the answer.
    fn run(&mut self, core: &mut Core);
    /// Answers; what `run` kept, or the reason why nothing has come of it.
    fn answer(self: Box<Self>, failure: Option<&Error>);
}

struct Call<T, F> {
    nature: Nature,
    weight: usize,
    call: F,
    answer: Option<Result<T>>,
    asker: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Core) -> Result<T> + Send> Task for Call<T, F> {
    fn nature(&self) -> Nature {
        self.nature
    }

    fn weight(&self) -> usize {
        self.weight
    }

    fn run(&mut self, core: &mut Core) {
        self.answer = Some((self.call)(core));
    }

    fn answer(self: Box<Self>, failure: Option<&Error>) {
        let answer = match failure {
            Some(error) => Err(error.clone()),
            None => self.answer.unwrap_or_else(|| Err(closed())),
        };
        // Whoever asked may have stopped waiting; the command has happened all the same.
        let _ = self.asker.send(answer);
    }
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the store is closed")
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Box<dyn Task>>,
    bytes: usize,
    is_closed: bool,
}

/// The line.
#[derive(Default)]
pub(super) struct Line {
    waiting: Mutex<Waiting>,
    has_more: Condvar,
    is_idle: AtomicBool,
}

impl Line {
    /// Puts a command at the end; the answer.
    pub(super) fn call<T: Send + 'static>(
        &self,
        nature: Nature,
        weight: usize,
        call: impl FnMut(&mut Core) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (asker, answer) = oneshot::channel();
        let task = Box::new(Call {
            nature,
            weight,
            call,
            answer: None,
            asker,
        });
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Pending::ready(Err(closed()));
        }
        if waiting.tasks.len() >= LINE || waiting.bytes.saturating_add(weight) > LINE_BYTES {
            let why = "too much waits for the store already";
            return Pending::ready(Err(Error::new(ErrorKind::StoreUnavailable, why)));
        }
        waiting.bytes += weight;
        waiting.tasks.push_back(task);
        drop(waiting);
        if self.is_idle.swap(false, Ordering::AcqRel) {
            self.has_more.notify_one();
        }
        Pending::waiting(async move { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// The next batch; waits for one. `None` when the line is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<Box<dyn Task>>> {
        let mut waiting = self.waiting.lock();
        while waiting.tasks.is_empty() {
            if waiting.is_closed {
                return None;
            }
            self.is_idle.store(true, Ordering::Release);
            self.has_more.wait(&mut waiting);
        }
        let (mut count, mut bytes) = (0, 0);
        for task in waiting.tasks.iter().take(BATCH) {
            if count > 0 && bytes + task.weight() > BATCH_BYTES {
                break;
            }
            count += 1;
            bytes += task.weight();
        }
        waiting.bytes -= bytes;
        Some(waiting.tasks.drain(..count).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().tasks.is_empty()
    }

    /// Takes no more; what is in it is still done.
    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.has_more.notify_one();
    }
}
