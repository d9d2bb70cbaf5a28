//! What becomes of entries: verdicts, late acks, retries, burials, expiry.
//!
//! Failures are exactly those of P10; what follows one is the retry policy of the session that had
//! the entry. Sessions that go are in `leave`.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Elapsed;
use crate::model::RetryPolicy;
use crate::store::{Entry as Stored, Seq};

use super::super::queue::{Answer, Item, Mode, Outcome, Verdict, What};
use super::Effect;
use super::entry::{Held, Out, Place, Row, Slot};
use super::state::State;

/// The longest wait a nack may ask for.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);
/// Verdicts that may wait for the store at once.
const MOST_WAITING: usize = 65_536;

impl State {
    /// Acts on a verdict.
    pub(super) fn judge(&mut self, verdict: Verdict, effects: &mut Vec<Effect>) {
        let slot = match verdict.item {
            Item::Stored { queue, seq } if self.start.queue == Some(queue) => Slot::stored(seq),
            Item::Volatile { queue, n } if queue == self.start.number => Slot::live(n),
            _ => return effects.push(Effect::Answer(verdict.answer, Outcome::Unknown)),
        };
        let Some(held) = self.held.get(&slot) else {
            return self.judge_absent(slot, verdict, effects);
        };
        let out = match held.place {
            Place::Out(out) => Some(out),
            _ => None,
        };
        let attempts = held.entry.attempts;
        if verdict.attempt.is_some_and(|attempt| attempt < attempts) {
            return effects.push(Effect::Answer(verdict.answer, Outcome::Stale));
        }
        if self.ledger.waiting() >= MOST_WAITING {
            return effects.push(Effect::Answer(verdict.answer, Outcome::Failed(too_many())));
        }
        let outcome = match (verdict.what, out) {
            (What::Ack, _) => {
                self.settle(slot);
                Outcome::Ok { duplicate: false }
            }
            (
                What::Nack {
                    requeue,
                    delay,
                    reason,
                },
                out,
            ) if out.is_some() || !requeue => {
                let retry = out.map_or(self.start.retry, |out| self.retry_of(out.seat));
                self.fail(
                    slot,
                    reason.unwrap_or_else(rejected),
                    &retry,
                    delay,
                    requeue,
                );
                Outcome::Ok { duplicate: false }
            }
            // It is back already: there is nothing more to give back, and no clock runs.
            (What::Nack { .. }, _) => Outcome::Ok { duplicate: true },
            (What::Working, Some(out)) => {
                self.restart(slot, out);
                return effects.push(Effect::Answer(
                    verdict.answer,
                    Outcome::Ok { duplicate: false },
                ));
            }
            (What::Working, None) => Outcome::Ok { duplicate: true },
        };
        self.answer(slot, verdict.answer, outcome, effects);
    }

    /// Answers after the write that holds what was done.
    fn answer(&mut self, slot: Slot, answer: Answer, outcome: Outcome, effects: &mut Vec<Effect>) {
        let waits = !slot.is_live() && matches!(outcome, Outcome::Ok { duplicate: false });
        if waits && self.is_backed() {
            let deadline = self.now.elapsed + self.start.store_timeout;
            self.ledger.answer_later(deadline, answer, outcome);
        } else {
            effects.push(Effect::Answer(answer, outcome));
        }
    }

    fn judge_absent(&mut self, slot: Slot, verdict: Verdict, effects: &mut Vec<Effect>) {
        let outcome = match slot.seq() {
            None if slot.number() <= self.last_live => Outcome::Ok { duplicate: true },
            None => Outcome::Unknown,
            Some(_) if !self.is_backed() => Outcome::Unknown,
            Some(_) if self.loading.asked() >= MOST_WAITING => Outcome::Failed(too_many()),
            Some(seq) => match verdict.what {
                What::Ack => return self.look_up(seq, verdict.answer),
                _ if self.was_out(seq) => return self.look_at(seq, verdict),
                _ => Outcome::Unknown,
            },
        };
        effects.push(Effect::Answer(verdict.answer, outcome));
    }

    /// A NACK or WORKING for an entry that was not in hand, which the store has like this.
    pub(super) fn judge_stored(
        &mut self,
        slot: Slot,
        verdict: Verdict,
        stored: Option<Stored>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(held) = self.held.get(&slot) {
            if !matches!(held.place, Place::Out(_)) {
                return self.judge(verdict, effects);
            }
            // It is out again: that is another delivery than the one it was said of.
            let outcome = Outcome::Ok { duplicate: true };
            return effects.push(Effect::Answer(verdict.answer, outcome));
        }
        let stored = stored.filter(|stored| !self.over.contains_key(&stored.seq));
        let Some(stored) = stored else {
            return effects.push(Effect::Answer(verdict.answer, Outcome::Unknown));
        };
        if verdict.attempt.is_some_and(|said| said < stored.attempts) {
            return effects.push(Effect::Answer(verdict.answer, Outcome::Stale));
        }
        let What::Nack {
            requeue: false,
            reason,
            ..
        } = verdict.what
        else {
            let outcome = Outcome::Ok { duplicate: true };
            return effects.push(Effect::Answer(verdict.answer, outcome));
        };
        self.skip_if_out(stored.seq);
        let entry = self.excepted(stored);
        let place = Place::Parked;
        self.held.insert(slot, Held { entry, place });
        let retry = self.start.retry;
        self.fail(slot, reason.unwrap_or_else(rejected), &retry, None, false);
        let outcome = Outcome::Ok { duplicate: false };
        self.answer(slot, verdict.answer, outcome, effects);
    }

    /// The ack clock of a delivery starts anew (P13).
    fn restart(&mut self, slot: Slot, out: Out) {
        let now = self.now.elapsed;
        let Some(post) = self.seats.get(out.seat) else {
            return;
        };
        if let Mode::Ack { timeout } = post.seat.mode
            && let Some(held) = self.held.get_mut(&slot)
        {
            // The clock that runs already finds the later deadline and waits for it.
            let deadline = post.time(now).saturating_add(timeout);
            held.place = Place::Out(Out { deadline, ..out });
        }
    }

    fn retry_of(&self, seat: u32) -> RetryPolicy {
        let post = self.seats.get(seat);
        post.map_or(self.start.retry, |post| post.seat.retry)
    }

    /// Takes an entry out of hand, out of whatever line it is in, and frees its key.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Held> {
        self.unplace(slot);
        let held = self.held.remove(&slot)?;
        let key = held.entry.message.key.as_ref();
        let freed = key.map(|key| self.keys.release(key, slot));
        for next in freed.into_iter().flatten() {
            let next_held = self.held.get(&next);
            let is_suspect = next_held.is_some_and(|held| held.entry.is_suspect());
            let place = match is_suspect {
                true => Place::Suspect,
                false => Place::Again,
            };
            self.put(next, place);
        }
        Some(held)
    }

    pub(super) fn unplace(&mut self, slot: Slot) {
        let Some(held) = self.held.get(&slot) else {
            return;
        };
        match held.place {
            Place::Out(out) => {
                self.seats.give_back(out.seat, out.size as usize);
                self.end_suspect(out.seat, slot);
            }
            Place::Again => {
                self.again.remove(&slot);
            }
            Place::Suspect => {
                self.suspects.remove(&slot);
            }
            Place::Waiting { .. } => self.waiting -= 1,
            // Their lines are tidied when they are looked at.
            Place::Due | Place::Parked => {}
        }
    }

    /// Puts an entry that is in hand, and in no line, into one.
    pub(super) fn put(&mut self, slot: Slot, place: Place) {
        let Some(held) = self.held.get_mut(&slot) else {
            return;
        };
        held.place = place;
        if held.entry.home != 0 && !matches!(place, Place::Waiting { .. }) {
            let at = held.entry.home - 1;
            if let Some(post) = self.seats.get_mut(at) {
                post.again.push_back((slot, None));
                self.live.insert(at);
            }
            return;
        }
        match place {
            Place::Again => {
                self.again.insert(slot);
            }
            Place::Due => self.due.push_back(slot),
            Place::Suspect => {
                self.suspects.insert(slot);
                self.wake_for(slot, None);
            }
            Place::Waiting { at, .. } => {
                self.waiting += 1;
                self.wake_for(slot, Some(at));
            }
            Place::Out(_) | Place::Parked => {}
        }
    }

    /// Looks at an entry when its turn comes, or when it expires if it holds an ordering key: the
    /// rest of the key does not wait for its turn (P8, P15).
    fn wake_for(&mut self, slot: Slot, turn: Option<Elapsed>) {
        let message = self.held.get(&slot).map(|held| &held.entry.message);
        let keyed = message.filter(|message| message.key.is_some());
        let left = keyed.and_then(|message| Some(message.expires?.since(self.now.wall)));
        let expiry = left.map(|left| self.now.elapsed.saturating_add(left));
        let next = turn.into_iter().chain(expiry).min();
        self.timers.extend(next.map(|at| Reverse((at, slot))));
    }

    /// Settles an entry in hand.
    pub(super) fn settle(&mut self, slot: Slot) {
        self.tally.settled += u64::from(self.held.contains_key(&slot));
        self.end(slot);
    }

    /// Settles an entry that has outlived its TTL; `false` if it has not (P15).
    pub(super) fn expire_if_due(&mut self, slot: Slot) -> bool {
        let now = self.now.wall;
        let held = self.held.get(&slot);
        let is_expired = held.is_some_and(|held| held.entry.message.is_expired(now));
        if is_expired {
            self.tally.expired += 1;
            self.end(slot);
        }
        is_expired
    }

    /// Settles an entry in hand that will not go out any more.
    fn end(&mut self, slot: Slot) {
        if let Some(held) = self.remove(slot)
            && let Some(seq) = slot.seq()
        {
            self.over(seq, held.entry.row);
            self.ledger.settle(seq, held.entry.row);
        }
    }

    /// Settles a stored entry that may not go out any more: it has expired, or none of the sessions
    /// here may see it (P30).
    pub(super) fn end_if_over(&mut self, slot: Slot) -> bool {
        if self.expire_if_due(slot) {
            return true;
        }
        let held = self.held.get(&slot).filter(|_| !slot.is_live());
        let is_hidden = held.is_some_and(|held| !self.seats.may_see(&held.entry.message.event));
        if is_hidden {
            self.tally.hidden += 1;
            self.end(slot);
        }
        is_hidden
    }

    /// An entry in hand has ended: a read of the store may still bring its row.
    fn over(&mut self, seq: Seq, row: Row) {
        if matches!(row, Row::Sent | Row::Changed) {
            self.over.insert(seq, self.ledger.writes());
        }
    }

    pub(super) fn bury(&mut self, slot: Slot, reason: Arc<str>) {
        if let Some(held) = self.remove(slot) {
            match slot.seq() {
                Some(seq) => {
                    self.tally.buried += 1;
                    self.over(seq, held.entry.row);
                    self.ledger.bury(held.entry.burial(seq, reason));
                }
                None => self.tally.dropped += 1,
            }
        }
    }

    /// An attempt ended badly: a retry later, or a dead letter.
    fn fail(
        &mut self,
        slot: Slot,
        reason: Arc<str>,
        retry: &RetryPolicy,
        delay: Option<Duration>,
        requeue: bool,
    ) {
        if self.expire_if_due(slot) {
            return;
        }
        let Some(failures) = self.count_failure(slot, &reason, u32::MAX) else {
            return;
        };
        if !requeue || failures >= retry.max_attempts() {
            return self.bury(slot, reason);
        }
        let wait = delay.map_or_else(|| retry.delay(failures), |delay| delay.min(LONGEST_DELAY));
        self.unplace(slot);
        let due = self.now.wall.plus(wait);
        let at = self.now.elapsed.saturating_add(wait);
        self.put(slot, Place::Waiting { due, at });
        self.except(slot);
    }

    pub(super) fn count_failure(
        &mut self,
        slot: Slot,
        reason: &Arc<str>,
        most: u32,
    ) -> Option<u32> {
        let held = self.held.get_mut(&slot)?;
        let trouble = held.entry.trouble();
        trouble.failures = trouble.failures.max((trouble.failures + 1).min(most));
        trouble
            .first_error
            .get_or_insert_with(|| Arc::clone(reason));
        trouble.last_error = Some(Arc::clone(reason));
        self.tally.failed += 1;
        Some(trouble.failures)
    }

    /// Looks at the clocks that have run out.
    pub(super) fn run_timers(&mut self) {
        let now = self.now.elapsed;
        while let Some(Reverse((at, slot))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            match self.held.get(&slot).map(|held| held.place) {
                Some(Place::Out(out)) if out.acked => self.run_ack_timer(slot, out),
                Some(Place::Waiting { at, .. }) if at <= now => {
                    self.unplace(slot);
                    self.put(slot, Place::Due);
                }
                // This was the clock of an earlier attempt, or of its expiry.
                Some(Place::Waiting { at, .. }) if !self.expire_if_due(slot) => {
                    self.wake_for(slot, Some(at));
                }
                Some(Place::Suspect) if !self.expire_if_due(slot) => self.wake_for(slot, None),
                _ => {}
            }
        }
    }

    fn run_ack_timer(&mut self, slot: Slot, out: Out) {
        let now = self.now.elapsed;
        let Some(post) = self.seats.get(out.seat) else {
            return;
        };
        if post.time(now) < out.deadline {
            if post.is_paused() {
                if let Some(post) = self.seats.get_mut(out.seat) {
                    post.stalled.push(slot);
                }
            } else {
                let at = post.real(out.deadline);
                self.timers.push(Reverse((at, slot)));
            }
            return;
        }
        let attempts = self.held.get(&slot).map_or(0, |held| held.entry.attempts);
        let reason = format!("ack timeout after {attempts} attempt(s)");
        self.tally.timeouts += 1;
        let retry = self.retry_of(out.seat);
        self.fail(slot, reason.into(), &retry, None, true);
    }
}

fn rejected() -> Arc<str> {
    Arc::from("rejected by the consumer")
}

fn too_many() -> crate::Error {
    crate::Error::new(
        crate::ErrorKind::RateLimited,
        "too many acks of this queue wait for the store; send it again later",
    )
}
