//! The state of a courier and the order in which it works: inputs, clocks, sends, reads, writes.
//!
//! What it decides is in the neighbours: `pump` (what goes out next), `outcome` (what becomes of
//! it), `load` (what is read). Pure: the same inputs at the same moments give the same effects.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::ErrorKind;
use crate::clock::Elapsed;
use crate::model::RetryPolicy;
use crate::store::{Hold, QueueChange, QueueId, Seq};

use super::super::ports::SessionId;
use super::super::queue::{Outcome, QueueSnapshot, Seat};
use super::backoff::Backoff;
use super::claims::Claiming;
use super::entry::{Held, Place, Row, Slot, Table};
use super::fresh::Fresh;
use super::keys::Keys;
use super::ledger::Ledger;
use super::load::Loading;
use super::seats::Seats;
use super::{Effect, Input, Now, Tally};

/// With what a courier begins.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// Nothing waits in the store, and all that comes is fed.
    pub(crate) is_caught_up: bool,
    /// Names the queue in the store and in ids; `None` for one without a store behind it.
    pub(crate) queue: Option<QueueId>,
    /// Names the queue in ids of live copies.
    pub(crate) number: u64,
    /// Everything up to it is settled or an exception.
    pub(crate) low: Seq,
    /// Entries up to it may have been sent before.
    pub(crate) sent_before: Seq,
    /// Except these, ascending: they were passed over.
    pub(crate) unsent: Vec<Seq>,
    /// The sent mark as the store has it.
    pub(crate) marked: Seq,
    /// There may be exceptions in the store.
    pub(crate) has_exceptions: bool,
    /// It takes every entry; else guaranteed ones only.
    pub(crate) takes_all: bool,
    /// Which of the entries up to it are for this queue only the store knows.
    pub(crate) changed_at: Seq,
    /// For entries that no session holds.
    pub(crate) retry: RetryPolicy,
    /// Other brokers may use the store: the queue has to be claimed.
    pub(crate) claims: bool,
    /// How long an answer waits for its write (P27).
    pub(crate) store_timeout: Duration,
}

/// A courier.
pub(crate) struct State {
    pub(super) start: Start,
    pub(super) now: Now,
    pub(super) seats: Seats,
    pub(super) held: Table,
    pub(super) fresh: Fresh,
    pub(super) keys: Keys,
    pub(super) ledger: Ledger,
    pub(super) loading: Loading,
    pub(super) claiming: Claiming,
    /// Given back, in log order.
    pub(super) again: BTreeSet<Slot>,
    /// Retries whose time has come, in that order. May name slots that are elsewhere by now.
    pub(super) due: VecDeque<Slot>,
    pub(super) suspects: BTreeSet<Slot>,
    /// Whose turn it is if both a retry and something else could go.
    pub(super) retry_next: bool,
    /// The seat that is, or is to be, alone with a suspect.
    pub(super) apart: Option<u32>,
    /// Other entries that go out before the next suspect holds up a session.
    pub(super) rest: u32,
    /// Ack timeouts and retries; may name what is settled by now.
    pub(super) timers: BinaryHeap<Reverse<(Elapsed, Slot)>>,
    pub(super) waiting: usize,
    /// Seats that have live copies which have not been out.
    pub(super) live: BTreeSet<u32>,
    pub(super) last_live: u64,
    /// Seats that have not been told yet of live copies that were dropped.
    pub(super) losing: BTreeSet<u32>,
    /// Settled while they were being read or stood in the fresh line.
    pub(super) skip: HashSet<Seq>,
    /// Ended entries that have a row in the store, and dead ones, with the write that says so: no
    /// read that began before that one is done brings them back.
    pub(super) over: HashMap<Seq, u64>,
    /// The queue is gone from the store.
    pub(super) is_gone: bool,
    pub(super) tally: Tally,
}

impl Start {
    /// Notes what the queue takes after an entry; whether that is something else than before.
    pub(crate) fn set_takes_all(&mut self, takes_all: bool, after: Seq) -> bool {
        let is_new = std::mem::replace(&mut self.takes_all, takes_all) != takes_all;
        if is_new {
            self.changed_at = self.changed_at.max(after);
        }
        is_new
    }
}

impl State {
    /// A courier that knows nothing yet of what is in the store.
    pub(crate) fn new(start: Start, now: Now) -> Self {
        Self {
            now,
            seats: Seats::default(),
            held: Table::default(),
            fresh: Fresh::new(
                start.low,
                start.sent_before,
                start.unsent.clone(),
                start.is_caught_up,
                start.changed_at,
            ),
            keys: Keys::default(),
            ledger: Ledger::new(start.low, start.marked),
            loading: Loading::new(start.has_exceptions),
            claiming: Claiming::new(start.claims && start.queue.is_some()),
            again: BTreeSet::new(),
            due: VecDeque::new(),
            suspects: BTreeSet::new(),
            retry_next: false,
            apart: None,
            rest: 0,
            timers: BinaryHeap::new(),
            waiting: 0,
            live: BTreeSet::new(),
            last_live: 0,
            losing: BTreeSet::new(),
            skip: HashSet::new(),
            over: HashMap::new(),
            is_gone: false,
            tally: Tally::default(),
            start,
        }
    }

    /// Works on a batch of inputs at one moment; appends what is to be done.
    pub(crate) fn step(
        &mut self,
        inputs: impl IntoIterator<Item = Input>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if now.wall < self.now.wall {
            self.loading.clock_went_back(now.wall);
        }
        self.now = now;
        for input in inputs {
            self.on(input, effects);
        }
        self.run_timers();
        self.ask_claim(effects);
        self.pump(effects);
        self.tell_lost(effects);
        self.read(effects);
        self.write(effects);
        let late = self.ledger.late(now.elapsed);
        effects.extend(
            late.into_iter()
                .map(|(answer, _)| Effect::Answer(answer, Outcome::Kept)),
        );
        self.loading.late(now.elapsed, effects);
    }

    fn on(&mut self, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Attach(seat) => {
                self.start.retry = seat.retry;
                self.seats.attach(seat);
                self.come();
            }
            Input::Detach(session, how) => self.detach(session, how),
            Input::Feed(..) | Input::Missed(_) if self.claiming.is_shared() => self.fresh.doubt(),
            // Whoever has the queue sees to it.
            Input::Feed(..) | Input::Missed(_) if self.claiming.hold == Hold::Nothing => {}
            Input::Feed(seq, message) => self.fresh.feed(seq, message),
            Input::Missed(seq) => self.fresh.missed(seq),
            Input::Live {
                session,
                n,
                message,
                behind,
                is_untracked,
            } => self.take_live(session, n, message, behind, is_untracked),
            Input::Lost(session, count) => self.lose(session, count),
            Input::Verdict(verdict) => self.judge(verdict, effects),
            Input::Confirmed(session, position) => self.confirmed(session, position, effects),
            Input::Writable(session) => {
                if let Some(at) = self.seats.find(session)
                    && let Some(post) = self.seats.get_mut(at)
                {
                    post.blocked = false;
                }
            }
            Input::Pause(session) => self.pause(session),
            Input::Resume(session) => self.resume(session),
            Input::Wake if self.claiming.hold == Hold::Nothing => {}
            Input::Wake => self.doubt(),
            Input::Look => self.look(),
            Input::Wanted => self.wanted(effects),
            Input::Over(seqs) => self.settled_elsewhere(&seqs),
            Input::Claimed(claim) => self.claimed(claim, effects),
            Input::Released => {}
            Input::Purged => self.purge(),
            Input::TakesAll { takes_all, after } => {
                if self.start.set_takes_all(takes_all, after) && self.claiming.hold == Hold::Sole {
                    // What it took before it still takes: the store knows which those are (P5).
                    self.fresh.read_again(after);
                }
            }
            Input::Offered { seat, position } => self.offered(seat, position, effects),
            Input::Paged(page) => self.paged(page, effects),
            Input::Due(due) => self.due_read(due),
            Input::Browsed(entries) => self.browsed(entries),
            Input::Looked(entries) => self.looked(entries, effects),
            Input::Written(outcome) => self.written(outcome, effects),
            Input::Settled(outcome) => self.looked_up(outcome, effects),
        }
    }

    fn pause(&mut self, session: SessionId) {
        let now = self.now.elapsed;
        if let Some(at) = self.seats.find(session)
            && let Some(post) = self.seats.get_mut(at)
        {
            post.pause(now);
        }
    }

    fn resume(&mut self, session: SessionId) {
        let now = self.now.elapsed;
        let stalled = match self.seats.find(session) {
            Some(at) => self.seats.get_mut(at).map(|post| post.resume(now)),
            None => None,
        };
        for slot in stalled.unwrap_or_default() {
            self.timers.push(Reverse((now, slot)));
        }
    }

    fn write(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_backed() || !self.claiming.may_write() {
            return;
        }
        for seq in self.ledger.overdue(self.now.elapsed) {
            self.except(Slot::stored(seq));
        }
        if self.seats.is_empty() {
            self.ledger.want_no_more();
        }
        if let Some(change) = self.ledger.next_write(&mut self.held, self.now.elapsed) {
            effects.push(Effect::Write(change));
        }
    }

    /// The exception row of an entry in hand is new or has changed.
    pub(super) fn except(&mut self, slot: Slot) {
        if let Some(seq) = slot.seq()
            && let Some(held) = self.held.get_mut(&slot)
        {
            self.start.has_exceptions = true;
            self.ledger.except(seq, &mut held.entry.row);
        }
    }

    fn written(&mut self, outcome: crate::Result<()>, effects: &mut Vec<Effect>) {
        match outcome {
            Ok(()) => {
                let (answers, change) = self.ledger.written();
                self.tidy_over();
                effects.extend(
                    answers
                        .into_iter()
                        .map(|(answer, outcome)| Effect::Answer(answer, outcome)),
                );
                self.leave_to_store(&change);
            }
            Err(error) if error.kind() == ErrorKind::DeliveryUnknown => self.gone(effects),
            Err(error) if error.kind() == ErrorKind::Fenced => {
                self.ledger.not_written(&mut self.held, self.now.elapsed);
                self.fence();
            }
            Err(_) => {
                self.tally.store_failures += 1;
                self.ledger.not_written(&mut self.held, self.now.elapsed);
            }
        }
    }

    /// Entries that wait for a retry and are safely written need not be kept here, if there are
    /// many: they will be read again when due.
    fn leave_to_store(&mut self, change: &QueueChange) {
        for exception in &change.except {
            if self.waiting <= super::load::MOST_WAITING {
                break;
            }
            let slot = Slot::stored(exception.seq);
            let Some(held) = self.held.get(&slot) else {
                continue;
            };
            // One with a key holds the key; one that is due soon is not worth reading again.
            if let Place::Waiting { due, .. } = held.place
                && held.entry.message.key.is_none()
                && held.entry.row == Row::Sent
                && due.since(self.now.wall) > Duration::from_secs(1)
            {
                self.held.remove(&slot);
                self.waiting -= 1;
                self.loading.left(due);
            }
        }
    }

    /// The queue does not exist any more: nothing is left to deliver or to write.
    pub(super) fn gone(&mut self, effects: &mut Vec<Effect>) {
        self.is_gone = true;
        self.purge();
        let answers = self.ledger.gone();
        effects.extend(
            answers
                .into_iter()
                .map(|(answer, _)| Effect::Answer(answer, Outcome::Unknown)),
        );
    }

    /// Whether there is a store behind it (still).
    pub(super) fn is_backed(&self) -> bool {
        self.start.queue.is_some() && !self.is_gone
    }

    /// Whether stored entries are not out yet, or live copies wait behind some or have to keep to
    /// an ordering key.
    pub(crate) fn has_ahead(&self) -> bool {
        let stored = self.is_backed()
            && (!self.fresh.is_caught_up()
                || self.loading.is_starting()
                || self.claiming.is_open()
                || !self.again.is_empty());
        // What has a key that is held must not pass by.
        stored || !self.live.is_empty() || !self.keys.is_empty()
    }

    /// Nobody is here and nothing is left to be written or answered.
    pub(crate) fn is_finished(&self) -> bool {
        self.seats.is_empty()
            && self.ledger.is_clean()
            && self.loading.is_idle()
            && !self.loading.is_reading()
    }

    /// With what the next courier of this queue begins.
    pub(crate) fn into_start(self) -> Start {
        let taken = self.ledger.taken();
        let never_out = |held: &&Held| held.entry.attempts == 0;
        let passed_over = self.held.values().filter(never_out);
        let mut unsent: Vec<Seq> = passed_over
            .filter_map(|held| held.entry.slot.seq())
            .collect();
        // Who has not looked at the exceptions knows no better than who began.
        let is_unknown = self.loading.is_starting();
        let untouched = |seq: &&Seq| {
            **seq > taken || (is_unknown && !self.held.contains_key(&Slot::stored(**seq)))
        };
        unsent.extend(self.start.unsent.iter().filter(untouched));
        unsent.sort_unstable();
        Start {
            is_caught_up: false,
            low: self.ledger.low(),
            sent_before: self.start.sent_before.max(taken),
            unsent,
            marked: self.ledger.sent(),
            ..self.start
        }
    }

    /// When to step again, if nothing happens before.
    pub(crate) fn deadline(&self) -> Option<Elapsed> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        [
            timer,
            self.ledger.deadline(self.now.elapsed),
            self.claiming.deadline(),
            self.loading.deadline(self.now),
        ]
        .into_iter()
        .flatten()
        .filter(|at| *at > self.now.elapsed)
        .min()
    }

    /// What stats show.
    pub(crate) fn snapshot(&self) -> QueueSnapshot {
        QueueSnapshot {
            sessions: self.seats.len(),
            in_flight: self.seats.in_flight(),
            retrying: self.waiting + self.due.len(),
            suspects: self.suspects.len(),
        }
    }

    /// What was counted since the last time.
    pub(crate) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// The seats, for who does the sending.
    pub(crate) fn seat(&self, at: u32) -> Option<&Seat> {
        self.seats.get(at).map(|post| &post.seat)
    }

    /// The backoff that a failing read waits for.
    pub(super) fn failed_read(&mut self, backoff: fn(&mut Loading) -> &mut Backoff) {
        self.tally.store_failures += 1;
        backoff(&mut self.loading).failed(self.now.elapsed);
    }
}
