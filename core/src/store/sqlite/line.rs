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

/// How often the writer looks for the next command before it sleeps: some 50 µs where nobody else
/// wants the processor, which each look gives away.
const LOOKS: usize = 128;
/// How many of such waits may be in vain after one was not, and how rarely it is tried without.
const CREDIT: u32 = 8;
const RARELY: u32 = 32;

/// Whether it pays to look for the next command rather than to sleep. To be woken takes as long as
/// a good part of a sync, so a caller with one command after the other is met awake; where commands
/// come seldom hardly any time is spent on it.
#[derive(Debug, Default)]
pub(super) struct Patience {
    credit: u32,
    slept: u32,
}

impl Patience {
    fn may_look(&mut self) -> bool {
        self.slept = self.slept.wrapping_add(1);
        self.credit > 0 || self.slept.is_multiple_of(RARELY)
    }

    fn looked(&mut self, was_worth_it: bool) {
        self.credit = match was_worth_it {
            true => CREDIT,
            false => self.credit.saturating_sub(1),
        };
    }
}

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
    /// The writer sleeps and must be woken.
    is_idle: AtomicBool,
    /// Something is in the line, or it is closed.
    is_worth_a_look: AtomicBool,
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
        self.is_worth_a_look.store(true, Ordering::Release);
        drop(waiting);
        if self.is_idle.swap(false, Ordering::AcqRel) {
            self.has_more.notify_one();
        }
        Pending::waiting(async move { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// The next batch; waits for one. `None` when the line is closed and empty.
    pub(super) fn take(&self, patience: &mut Patience) -> Option<Vec<Box<dyn Task>>> {
        if !self.is_worth_a_look.load(Ordering::Acquire) && patience.may_look() {
            patience.looked(self.look());
        }
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
        let batch = waiting.tasks.drain(..count).collect();
        let is_more = !waiting.tasks.is_empty() || waiting.is_closed;
        self.is_worth_a_look.store(is_more, Ordering::Release);
        Some(batch)
    }

    /// Waits awake for a moment; whether something came.
    fn look(&self) -> bool {
        for _ in 0..LOOKS {
            if self.is_worth_a_look.load(Ordering::Acquire) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().tasks.is_empty()
    }

    /// Takes no more; what is in it is still done.
    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.is_worth_a_look.store(true, Ordering::Release);
        self.has_more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_calls_again_at_once_is_met_awake_and_who_comes_seldom_costs_little() {
        let mut patience = Patience::default();
        let mut looks = |waits: u32, is_met: bool| {
            let looks = (0..waits).filter(|_| {
                let may = patience.may_look();
                if may {
                    patience.looked(is_met);
                }
                may
            });
            looks.count()
        };
        assert!(looks(3200, false) <= 100);
        looks(RARELY, true);
        assert_eq!(looks(100, true), 100);
        assert!(looks(3200, false) <= 100 + CREDIT as usize);
    }
}
