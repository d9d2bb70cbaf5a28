//! One remembered queue: the handle through which everybody talks to its courier.
//!
//! Cheap while nobody is attached: then no courier runs and a publish costs nothing here. Cheap too
//! while somebody is attached and nothing waits: the seats are kept, and the courier starts with the
//! first entry. Knows who may be told what, not how it is decided; that is [`super::courier`].
//! Called by the broker's verbs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::model::{Message, RetryPolicy};
use crate::store::{QueueId, QueueRecord, Seq};
use crate::{Error, ErrorKind};

use super::courier::{
    self, Input, MOST_FED, MOST_FED_BYTES, MOST_LIVE, MOST_LIVE_BYTES, Slot, Start, State,
};
use super::engine::{Counters, Engine, QueueMetrics};
use super::ports::SessionId;

mod words;

pub(crate) use words::{
    Answer, Fed, Item, Leave, Mode, Outcome, QueueSnapshot, Seat, Verdict, What,
};

/// Verdicts that may wait for a courier at once.
const MOST_VERDICTS: usize = 65_536;

/// What a courier has not looked at yet.
#[derive(Default)]
struct Inbox {
    inputs: Vec<Input>,
    fed: usize,
    fed_bytes: usize,
    live: usize,
    live_bytes: usize,
    /// Live copies that were dropped because of that.
    lost: HashMap<SessionId, u64>,
    verdicts: usize,
    last_live: u64,
    /// With what the next courier begins; `None` while one runs. Meanwhile `inputs` hold the seats.
    start: Option<Box<Start>>,
    /// Where the next courier runs: with its first session, not with whoever produces.
    home: Option<Handle>,
    /// Entries have come while no courier ran: the next attach must look at the store.
    is_stale: bool,
    snapshot: QueueSnapshot,
}

/// A remembered queue, or one of live copies only.
pub(crate) struct Queue {
    engine: Arc<Engine>,
    metrics: QueueMetrics,
    id: Option<QueueId>,
    number: u64,
    has_ahead: AtomicBool,
    inbox: Mutex<Inbox>,
    bell: Notify,
}

impl Queue {
    /// The queue of a record that was just read or opened.
    pub(crate) fn new(
        engine: Arc<Engine>,
        record: &QueueRecord,
        metrics: QueueMetrics,
    ) -> Arc<Self> {
        // Of what the log does not hold yet nothing can have been sent, whatever is marked.
        let sent = record.sent.min(record.head);
        let retry = record.spec.settings.retry_policy();
        let mut start = Self::start(&engine, retry);
        start.queue = Some(record.queue);
        start.low = record.low;
        start.sent_before = sent;
        start.marked = record.sent;
        start.has_exceptions = record.exceptions > 0;
        start.takes_all = record.spec.settings.durable;
        Self::with(engine, start, metrics)
    }

    /// A queue of live copies alone: nothing is stored, and all goes with its session (P9).
    pub(crate) fn volatile(
        engine: Arc<Engine>,
        retry: RetryPolicy,
        metrics: QueueMetrics,
    ) -> Arc<Self> {
        let start = Self::start(&engine, retry);
        Self::with(engine, start, metrics)
    }

    fn start(engine: &Engine, retry: RetryPolicy) -> Start {
        Start {
            is_caught_up: false,
            queue: None,
            number: engine.next_number(),
            low: 0,
            sent_before: 0,
            unsent: Vec::new(),
            marked: 0,
            has_exceptions: false,
            takes_all: true,
            changed_at: 0,
            retry,
            store_timeout: engine.config.store_timeout,
        }
    }

    fn with(engine: Arc<Engine>, start: Start, metrics: QueueMetrics) -> Arc<Self> {
        Arc::new(Self {
            engine,
            metrics,
            id: start.queue,
            number: start.number,
            has_ahead: AtomicBool::new(false),
            inbox: Mutex::new(Inbox {
                start: Some(Box::new(start)),
                ..Inbox::default()
            }),
            bell: Notify::new(),
        })
    }

    /// Its id in the store; `None` for a queue of live copies.
    pub(crate) fn id(&self) -> Option<QueueId> {
        self.id
    }

    /// Names it in [`Item::Volatile`]; unique across restarts.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Somebody subscribed: the backlog first, then live, in one order (P5). The same session
    /// again: its seat gets the new settings, and nothing is sent again. `is_empty`: the store was
    /// asked after the queue had become one that is fed, and nothing waits.
    pub(crate) fn attach(self: &Arc<Self>, seat: Seat, is_empty: bool) {
        let mut inbox = self.inbox.lock();
        let is_empty = is_empty && !inbox.is_stale;
        if let Some(start) = &mut inbox.start {
            start.is_caught_up = is_empty;
            inbox.unseat(seat.session);
            if inbox.inputs.is_empty() {
                inbox.home = Handle::try_current().ok();
            }
            if is_empty {
                inbox.inputs.reserve_exact(1);
                inbox.inputs.push(Input::Attach(seat));
                return;
            }
        }
        self.has_ahead.store(true, Ordering::Release);
        self.tell(inbox, Input::Attach(seat));
    }

    /// A session left; what it held goes to the others, or waits.
    pub(crate) fn detach(self: &Arc<Self>, session: SessionId, how: Leave) {
        let mut inbox = self.inbox.lock();
        match inbox.start {
            Some(_) => inbox.unseat(session),
            None => self.tell(inbox, Input::Detach(session, how)),
        }
    }

    /// These entries are in the log, in this order. All entries of the log must come here while
    /// somebody is attached, except ones this queue does not get: a gap makes the courier read.
    pub(crate) fn feed(self: &Arc<Self>, entries: &[Fed]) {
        let mut inbox = self.inbox.lock();
        if inbox.start.is_some() && inbox.inputs.is_empty() {
            // Somebody is about to attach.
            inbox.is_stale = true;
            return;
        }
        self.has_ahead.store(true, Ordering::Release);
        for fed in entries {
            inbox.feed(fed);
        }
        self.ring(inbox);
    }

    /// The log has entries up to this one that were not fed: the courier reads which are for it.
    pub(crate) fn missed(self: &Arc<Self>, seq: Seq) {
        let mut inbox = self.inbox.lock();
        if inbox.start.is_some() && inbox.inputs.is_empty() {
            inbox.is_stale = true;
            return;
        }
        self.has_ahead.store(true, Ordering::Release);
        inbox.missed(seq);
        self.ring(inbox);
    }

    /// A live copy for an attached session of a plain subscription that must be tracked, or must
    /// wait behind stored entries: those its producer stored before it, up to `behind` (P8).
    /// `is_untracked`: nobody is to acknowledge it, whatever the subscription says. Dropped and
    /// counted if nobody is attached or too many wait, of which the session is told (P23).
    pub(crate) fn live(
        self: &Arc<Self>,
        session: SessionId,
        message: &Arc<Message>,
        behind: Seq,
        is_untracked: bool,
    ) {
        let mut inbox = self.inbox.lock();
        let is_alone = inbox.start.is_some() && inbox.inputs.is_empty();
        let size = message.size();
        let is_full = inbox.live > 0
            && (inbox.live >= MOST_LIVE || inbox.live_bytes + size > MOST_LIVE_BYTES);
        if is_alone || is_full {
            Counters::add(&self.engine.counters.dropped, 1);
            self.metrics.dropped.add(1);
            if inbox.start.is_none() {
                *inbox.lost.entry(session).or_default() += 1;
            }
            return;
        }
        self.has_ahead.store(true, Ordering::Release);
        inbox.live += 1;
        inbox.live_bytes += size;
        inbox.last_live += 1;
        let input = Input::Live {
            session,
            n: inbox.last_live,
            message: Arc::clone(message),
            behind,
            is_untracked,
        };
        self.tell(inbox, input);
    }

    /// Whether stored entries are not out yet: then live copies must go through [`Queue::live`].
    /// Whoever publishes must have fed what it stored before, and calls this after.
    pub(crate) fn has_ahead(&self) -> bool {
        self.has_ahead.load(Ordering::Acquire)
    }

    /// ACK, NACK or WORKING, from any session of the owner, attached or not (P9, P10, P13). The
    /// answer comes after the store's write, or as [`Outcome::Kept`] at `store_timeout` (P27).
    pub(crate) fn settle(self: &Arc<Self>, verdict: Verdict) {
        let mut inbox = self.inbox.lock();
        if inbox.verdicts >= MOST_VERDICTS {
            drop(inbox);
            let error = Error::new(
                ErrorKind::RateLimited,
                "too many acks of this queue are under way; send it again later",
            );
            return (verdict.answer)(Outcome::Failed(error));
        }
        inbox.verdicts += 1;
        self.tell(inbox, Input::Verdict(verdict));
    }

    /// The session has received everything up to this position of its outbox (P6).
    pub(crate) fn confirmed(self: &Arc<Self>, session: SessionId, position: u64) {
        self.tell_running(Input::Confirmed(session, position));
    }

    /// The session's outbox, which was full, has room again.
    pub(crate) fn writable(self: &Arc<Self>, session: SessionId) {
        self.tell_running(Input::Writable(session));
    }

    /// The session is not read: its ack clocks stand still (P24).
    pub(crate) fn pause(self: &Arc<Self>, session: SessionId) {
        let mut inbox = self.inbox.lock();
        if inbox.start.is_none() {
            self.tell(inbox, Input::Pause(session));
        } else if inbox.is_seated(session) {
            inbox.inputs.push(Input::Pause(session));
        }
    }

    /// It is read again.
    pub(crate) fn resume(self: &Arc<Self>, session: SessionId) {
        let mut inbox = self.inbox.lock();
        if inbox.start.is_none() {
            return self.tell(inbox, Input::Resume(session));
        }
        let paused = |input: &Input| matches!(input, Input::Pause(other) if *other == session);
        if let Some(at) = inbox.inputs.iter().position(paused) {
            inbox.inputs.remove(at);
        }
    }

    /// A dead letter was revived, or the log has entries that were not fed.
    pub(crate) fn wake(self: &Arc<Self>) {
        let mut inbox = self.inbox.lock();
        let is_seated = !inbox.inputs.is_empty();
        if let Some(start) = &mut inbox.start {
            start.has_exceptions = true;
            if !is_seated {
                inbox.is_stale = true;
                return;
            }
        }
        self.has_ahead.store(true, Ordering::Release);
        self.tell(inbox, Input::Wake);
    }

    /// A running courier may have missed entries: it was not fed for a while.
    pub(crate) fn look_again(self: &Arc<Self>) {
        self.tell_running(Input::Wake);
    }

    /// The backlog was dropped from the store: nothing of it goes out any more.
    pub(crate) fn purged(self: &Arc<Self>) {
        self.tell_running(Input::Purged);
    }

    /// Its settings changed: whether it takes every entry after this one.
    pub(crate) fn set_takes_all(self: &Arc<Self>, takes_all: bool, after: Seq) {
        let mut inbox = self.inbox.lock();
        if let Some(start) = &mut inbox.start {
            start.set_takes_all(takes_all, after);
        } else {
            self.tell(inbox, Input::TakesAll { takes_all, after });
        }
    }

    /// What stats show.
    pub(crate) fn snapshot(&self) -> QueueSnapshot {
        let inbox = self.inbox.lock();
        let mut snapshot = inbox.snapshot;
        if inbox.start.is_some() {
            let seats = inbox
                .inputs
                .iter()
                .filter(|input| matches!(input, Input::Attach(_)));
            snapshot.sessions = seats.count();
        }
        snapshot
    }

    /// Tells the courier, starting one if none runs.
    fn tell(self: &Arc<Self>, mut inbox: MutexGuard<'_, Inbox>, input: Input) {
        inbox.inputs.push(input);
        self.ring(inbox);
    }

    /// There is something in the inbox.
    fn ring(self: &Arc<Self>, mut inbox: MutexGuard<'_, Inbox>) {
        let Some(start) = inbox.start.take() else {
            drop(inbox);
            return self.bell.notify_one();
        };
        inbox.is_stale = false;
        let home = inbox.home.take();
        drop(inbox);
        let courier = courier::run(Arc::clone(self), *start);
        match home {
            Some(home) => home.spawn(courier),
            None => tokio::spawn(courier),
        };
    }

    /// Tells the courier if one runs; else it is nobody's business.
    fn tell_running(self: &Arc<Self>, input: Input) {
        let inbox = self.inbox.lock();
        if inbox.start.is_none() {
            self.tell(inbox, input);
        }
    }

    /// Whether a courier runs.
    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.inbox.lock().start.is_none()
    }

    /// The engine, for the courier.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What its courier counts in.
    pub(super) fn metrics(&self) -> &QueueMetrics {
        &self.metrics
    }

    /// Rings when the inbox is not empty.
    pub(super) fn bell(&self) -> &Notify {
        &self.bell
    }

    /// The id of a delivery.
    pub(super) fn item(&self, slot: Slot) -> Item {
        match (slot.seq(), self.id) {
            (Some(seq), Some(queue)) => Item::Stored { queue, seq },
            _ => Item::Volatile {
                queue: self.number,
                n: slot.number(),
            },
        }
    }

    /// Moves what the courier has been told to `inputs`.
    pub(super) fn take_inputs(&self, inputs: &mut Vec<Input>) {
        let mut inbox = self.inbox.lock();
        inputs.append(&mut inbox.inputs);
        let lost = inbox.lost.drain();
        inputs.extend(lost.map(|(session, count)| Input::Lost(session, count)));
        (inbox.fed, inbox.fed_bytes) = (0, 0);
        (inbox.live, inbox.live_bytes, inbox.verdicts) = (0, 0, 0);
    }

    /// Shows what the courier knows after a step.
    pub(super) fn show(&self, snapshot: QueueSnapshot, has_ahead: bool) {
        let mut inbox = self.inbox.lock();
        inbox.snapshot = snapshot;
        let more = !inbox.inputs.is_empty();
        self.has_ahead.store(has_ahead || more, Ordering::Release);
    }

    /// Ends the courier, unless it was told something meanwhile: then it gets its state back.
    pub(super) fn end(&self, state: State) -> Option<State> {
        let mut inbox = self.inbox.lock();
        if !inbox.inputs.is_empty() {
            return Some(state);
        }
        inbox.start = Some(Box::new(state.into_start()));
        inbox.inputs = Vec::new();
        inbox.snapshot = QueueSnapshot::default();
        self.has_ahead.store(false, Ordering::Release);
        None
    }
}

impl Inbox {
    /// Takes the seat of a session away, and what was noted of it. Only while no courier runs.
    fn unseat(&mut self, session: SessionId) {
        self.inputs.retain(|input| match input {
            Input::Attach(seat) => seat.session != session,
            Input::Pause(other) => *other != session,
            _ => true,
        });
        if self.inputs.is_empty() {
            self.inputs = Vec::new();
        }
    }

    fn is_seated(&self, session: SessionId) -> bool {
        let own = |input: &Input| matches!(input, Input::Attach(seat) if seat.session == session);
        self.inputs.iter().any(own)
    }

    fn feed(&mut self, fed: &Fed) {
        let size = fed.message.size();
        let has_room =
            self.fed == 0 || (self.fed < MOST_FED && self.fed_bytes + size <= MOST_FED_BYTES);
        if has_room {
            self.fed += 1;
            self.fed_bytes += size;
            let message = Arc::clone(&fed.message);
            return self.inputs.push(Input::Feed(fed.seq, message));
        }
        // The courier is behind; it will read them.
        self.missed(fed.seq);
    }

    fn missed(&mut self, seq: Seq) {
        match self.inputs.last_mut() {
            Some(Input::Missed(last)) => *last = seq.max(*last),
            _ => self.inputs.push(Input::Missed(seq)),
        }
    }
}
