//! What sessions have received, and what becomes of what they hold when they go.
//!
//! Failures and returns of a session that is gone are exactly those of P10; who fails one step from
//! burial that way is a suspect (P11).

use std::sync::Arc;

use crate::model::RetryPolicy;
use crate::store::Seq;

use super::super::ports::SessionId;
use super::super::queue::{Leave, Mode};
use super::Effect;
use super::entry::{Held, Place, Row, Slot};
use super::pump::REST;
use super::state::State;

/// After so many returns without a failure an entry is a dead letter (P10).
const MOST_RETURNS: u32 = 25;

impl State {
    /// A session has received everything up to `position` (P6).
    pub(super) fn confirmed(
        &mut self,
        session: SessionId,
        position: u64,
        effects: &mut Vec<Effect>,
    ) {
        let now = self.now.elapsed;
        let Some(at) = self.seats.find(session) else {
            return;
        };
        let mut settled = Vec::new();
        if let Some(post) = self.seats.get_mut(at) {
            while let Some((slot, _)) = post
                .unconfirmed
                .pop_front_if(|(_, behind)| *behind <= position)
            {
                settled.push(slot);
            }
            post.confirmed(now);
        }
        for slot in settled {
            self.settle_received(at, slot);
        }
        self.ask(at, effects);
    }

    fn settle_received(&mut self, seat: u32, slot: Slot) {
        let place = self.held.get(&slot).map(|held| held.place);
        if matches!(place, Some(Place::Out(out)) if out.seat == seat && !out.acked) {
            self.settle(slot);
        }
    }

    fn ask(&mut self, at: u32, effects: &mut Vec<Effect>) {
        let now = self.now.elapsed;
        if self.seats.get_mut(at).is_some_and(|post| post.ask(now)) {
            effects.push(Effect::Ask(at));
        }
    }

    /// The outbox has taken what was sent to a seat, or none of it.
    pub(super) fn offered(&mut self, at: u32, position: Option<u64>, effects: &mut Vec<Effect>) {
        let batch = self.seats.end_batch(at, position.is_some());
        let Some(position) = position else {
            // In reverse, so that live copies get back to the front in their order.
            for slot in batch.into_iter().rev() {
                self.unsend(at, slot);
            }
            return;
        };
        let mode = self.seats.get(at).map(|post| post.seat.mode);
        for slot in batch {
            let held = self.held.get(&slot);
            let is_over = held.is_some_and(|held| held.entry.is_untracked);
            match mode {
                Some(Mode::Flush) => self.settle_received(at, slot),
                _ if is_over => self.settle_received(at, slot),
                _ => {
                    let place = self.held.get(&slot).map(|held| held.place);
                    if matches!(place, Some(Place::Out(out)) if out.seat == at && !out.acked)
                        && let Some(post) = self.seats.get_mut(at)
                    {
                        post.unconfirmed.push_back((slot, position));
                    }
                }
            }
        }
        self.ask(at, effects);
    }

    /// It was not sent after all.
    fn unsend(&mut self, at: u32, slot: Slot) {
        let place = self.held.get(&slot).map(|held| held.place);
        if !matches!(place, Some(Place::Out(out)) if out.seat == at) {
            return;
        }
        self.unplace(slot);
        self.tally.sent = self.tally.sent.saturating_sub(1);
        let stored = u64::from(!slot.is_live());
        self.tally.stored = self.tally.stored.saturating_sub(stored);
        let Some(held) = self.held.get_mut(&slot) else {
            return;
        };
        held.entry.attempts = held.entry.attempts.saturating_sub(1);
        if held.entry.home != 0 {
            held.place = Place::Again;
            let after = (held.entry.attempts == 0).then_some(held.entry.after);
            if let Some(post) = self.seats.get_mut(at) {
                post.again.push_front((slot, after));
                self.live.insert(at);
            }
            return;
        }
        let (is_suspect, row) = (held.entry.is_suspect(), held.entry.row);
        if row != Row::None {
            // The row says that it was sent.
            self.except(slot);
        }
        self.put(
            slot,
            if is_suspect {
                Place::Suspect
            } else {
                Place::Again
            },
        );
    }

    /// A session is gone: what it held goes to the others at once.
    pub(super) fn detach(&mut self, session: SessionId, how: Leave) {
        let Some((at, mut post)) = self.seats.detach(session) else {
            return;
        };
        if self.apart == Some(at) {
            self.apart = None;
        }
        if post.suspect.is_some() {
            self.rest = REST;
        }
        self.live.remove(&at);
        self.losing.remove(&at);
        self.tally.dropped += post.live.len() as u64;
        post.given.sort_unstable();
        post.given.dedup();
        post.given.retain(|slot| {
            let place = self.held.get(slot).map(|held| held.place);
            matches!(place, Some(Place::Out(out)) if out.seat == at)
        });
        let many = post.given.iter().filter(|slot| !slot.is_live()).count() > 1;
        for slot in &post.given {
            if !slot.is_live() {
                self.give_back(*slot, how, many, &post.seat.retry);
            }
        }
        // Live copies live as long as their session.
        let own = |held: &&Held| held.entry.home == at + 1;
        let mine: Vec<Slot> = self
            .held
            .values()
            .filter(own)
            .map(|held| held.entry.slot)
            .collect();
        for slot in mine {
            self.remove(slot);
            self.tally.dropped += 1;
        }
    }

    /// An entry of a session that is gone (P10, P11).
    fn give_back(&mut self, slot: Slot, how: Leave, many: bool, retry: &RetryPolicy) {
        if self.expire_if_due(slot) {
            return;
        }
        let acked = match self.held.get(&slot).map(|held| held.place) {
            Some(Place::Out(out)) => out.acked,
            _ => return,
        };
        let max = retry.max_attempts();
        match how {
            Leave::Failed if acked => {
                let reason = Arc::from("the consumer's connection ended while it held the message");
                let most = if many { max - 1 } else { u32::MAX };
                let failures = self.count_failure(slot, &reason, most);
                if failures.is_some_and(|failures| failures >= max) {
                    return self.bury(slot, reason);
                }
                if let Some(held) = self.held.get_mut(&slot) {
                    held.entry.trouble().suspect = held.entry.failures() + 1 >= max;
                }
                self.except(slot);
            }
            Leave::Returned if acked => {
                let returns = self.held.get_mut(&slot).map_or(0, |held| {
                    let trouble = held.entry.trouble();
                    trouble.returns += 1;
                    trouble.returns
                });
                if returns >= MOST_RETURNS {
                    return self.bury(slot, Arc::from("redelivery_limit"));
                }
                self.except(slot);
            }
            _ => {}
        }
        self.unplace(slot);
        let suspect = self
            .held
            .get(&slot)
            .is_some_and(|held| held.entry.is_suspect());
        self.put(
            slot,
            if suspect {
                Place::Suspect
            } else {
                Place::Again
            },
        );
        let written = self
            .held
            .get(&slot)
            .is_some_and(|held| held.entry.attempts > 1 || held.entry.row != Row::None);
        if written {
            self.except(slot);
        }
    }

    /// Nothing stored is in hand any more.
    pub(super) fn drop_stored(&mut self) {
        let stored: Vec<Slot> = self
            .held
            .keys()
            .filter(|slot| !slot.is_live())
            .copied()
            .collect();
        for slot in stored {
            self.remove(slot);
        }
        self.again.clear();
        self.due.clear();
    }

    /// The backlog is gone from the store: nothing of it goes out any more.
    pub(super) fn purge(&mut self) {
        self.drop_stored();
        let end: Seq = self.fresh.clear().max(self.ledger.taken());
        self.ledger.purge(end);
    }
}
