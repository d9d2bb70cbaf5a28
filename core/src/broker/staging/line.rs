//! The line of one session: batches in the order in which they were produced, with the gauge that stops
//! its reading.
//!
//! Batches are put in by the session's own thread and taken out by [`super::drain`]. A batch that
//! cannot be given to the store yet holds back those behind it, so that commit order is produce order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Staged;
use crate::broker::Broker;
use crate::broker::member::Member;
use crate::clock::Elapsed;

/// The staging line of one session.
#[derive(Default)]
pub(in crate::broker) struct Line {
    inner: Mutex<Inner>,
    /// Something is staged; saves the lock on the way of plain messages.
    is_busy: AtomicBool,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Staged>,
    is_draining: bool,
    /// Some batch cannot be given to the store yet.
    is_holding: bool,
    messages: usize,
    bytes: usize,
    is_paused: bool,
    held: HashMap<usize, usize>,
}

impl Line {
    /// Whether messages on this key wait here: later ones must wait too (P8).
    pub(in crate::broker) fn holds(&self, key: usize) -> bool {
        self.is_busy.load(Ordering::Acquire) && self.inner.lock().held.contains_key(&key)
    }

    /// Whether nothing is staged.
    pub(in crate::broker) fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::Acquire)
    }

    /// Puts a batch at the end; whether the caller must start a [`super::drain`], and whether the session
    /// must not be read from now on.
    pub(super) fn push(&self, mut staged: Staged, broker: &Broker) -> (bool, bool) {
        let mut inner = self.inner.lock();
        self.is_busy.store(true, Ordering::Release);
        if !inner.is_holding && staged.is_ready() {
            staged.ask(broker);
        }
        inner.is_holding |= staged.unasked.is_some();
        inner.messages += staged.messages;
        inner.bytes += staged.bytes;
        for key in &staged.held {
            *inner.held.entry(*key).or_default() += 1;
        }
        inner.waiting.push_back(staged);
        let is_full = inner.messages >= broker.config.staging_messages
            || inner.bytes >= broker.config.staging_bytes;
        let pauses = is_full && !inner.is_paused;
        inner.is_paused |= is_full;
        (!std::mem::replace(&mut inner.is_draining, true), pauses)
    }

    /// Whether what is put in now must not be given to the store yet.
    pub(super) fn is_holding(&self) -> bool {
        self.is_busy.load(Ordering::Acquire) && self.inner.lock().is_holding
    }

    /// Gives the store what was held back behind a batch that it has been given, in order.
    pub(super) fn ask(&self, broker: &Broker) {
        let mut inner = self.inner.lock();
        if !inner.is_holding {
            return;
        }
        inner.is_holding = false;
        let Inner {
            waiting,
            is_holding,
            ..
        } = &mut *inner;
        for staged in waiting.iter_mut() {
            if !staged.is_ready() {
                *is_holding = true;
                return;
            }
            staged.ask(broker);
        }
    }

    /// The next batch to wait for; `None`: the line is idle and whoever drains it may go.
    pub(super) fn next(&self) -> Option<Staged> {
        let mut inner = self.inner.lock();
        let next = inner.waiting.pop_front();
        if next.is_none() {
            inner.is_draining = false;
            self.is_busy.store(false, Ordering::Release);
        }
        next
    }

    pub(super) fn release(&self, held: &mut HashSet<usize>) {
        let mut inner = self.inner.lock();
        for key in held.drain() {
            if let Some(count) = inner.held.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    inner.held.remove(&key);
                }
            }
        }
    }

    /// A batch is through; whether the session may be read again.
    pub(super) fn done(&self, messages: usize, bytes: usize, broker: &Broker) -> bool {
        let mut inner = self.inner.lock();
        inner.messages -= messages;
        inner.bytes -= bytes;
        let has_room = inner.messages <= broker.config.staging_messages / 2
            && inner.bytes <= broker.config.staging_bytes / 2;
        has_room && std::mem::take(&mut inner.is_paused)
    }

    /// When the first of the waiting batches is too old; refused ones are not waited for.
    pub(super) fn oldest(&self) -> Option<Elapsed> {
        let inner = self.inner.lock();
        let mut waiting = inner.waiting.iter();
        waiting
            .find(|staged| !staged.is_refused)
            .map(|staged| staged.since)
    }

    /// Refuses what is older than `limit`.
    pub(super) fn refuse_late(&self, limit: Elapsed, broker: &Broker, member: &Member) {
        loop {
            // Out of the line while it is refused: replies are called without a lock.
            let (at, mut staged) = {
                let mut inner = self.inner.lock();
                let at = inner.waiting.iter().position(|staged| !staged.is_refused);
                let Some(at) = at.filter(|at| inner.waiting[*at].since <= limit) else {
                    return;
                };
                match inner.waiting.get_mut(at) {
                    Some(slot) => (at, std::mem::replace(slot, Staged::refused())),
                    None => return,
                }
            };
            staged.refuse(broker, member);
            // Only this task takes from the front, so the place is still the same.
            if let Some(slot) = self.inner.lock().waiting.get_mut(at) {
                *slot = staged;
            }
        }
    }
}
