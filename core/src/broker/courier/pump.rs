//! What goes out next, and to whom.
//!
//! What was given back goes before everything new, in log order; due retries take turns with both,
//! so that neither starves the other. A suspect goes out alone (P11). A live copy goes when the
//! stored entries before it have gone (P8). The next entry goes to the session with most room.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::store::Seq;

use super::super::queue::Mode;
use super::entry::{Entry, Held, Out, Place, Row, Slot};
use super::fresh::Next;
use super::state::State;
use super::{Effect, Style};

/// Other entries that go out between two suspects, if there are any.
pub(super) const REST: u32 = 64;
/// With so many suspects in hand nothing new is begun.
const MOST_SUSPECTS: usize = 1024;

/// What could go out next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pick {
    Again(Slot),
    Due(Slot),
    Fresh,
}

impl State {
    /// Hands out what can go.
    pub(super) fn pump(&mut self, effects: &mut Vec<Effect>) {
        if self.seats.is_empty() || self.loading.is_starting() || self.claiming.is_open() {
            return;
        }
        let mut is_first = true;
        // The stored entry that holds up the first of the live copies.
        let mut holder = None;
        loop {
            let apart = self.apart;
            self.pump_suspect(effects);
            if is_first || apart != self.apart || self.is_past(holder) {
                holder = self.pump_live(effects);
                is_first = false;
            }
            if !self.seats.has_room() {
                return;
            }
            let Some(pick) = self.next() else {
                if self.is_past(holder) {
                    // What held up live copies was dropped.
                    continue;
                }
                return;
            };
            if !self.send_pick(pick, effects) {
                return;
            }
            self.rest = self.rest.saturating_sub(1);
        }
    }

    /// The next stored entry, once everything that cannot go out is out of the way.
    fn next(&mut self) -> Option<Pick> {
        let retry = self.next_due();
        if self.retry_next
            && let Some(slot) = retry
        {
            return Some(Pick::Due(slot));
        }
        self.next_ready().or(retry.map(Pick::Due))
    }

    fn next_ready(&mut self) -> Option<Pick> {
        while let Some(slot) = self.again.first().copied() {
            if self.end_if_over(slot) {
                continue;
            }
            // One that was passed over has never been sent; it may not be under the mark yet.
            let is_first = self
                .held
                .get(&slot)
                .is_some_and(|held| held.entry.attempts == 0);
            if is_first && !slot.seq().is_some_and(|seq| self.ledger.may_send(seq)) {
                return None;
            }
            // After a restart what was out may be partly exceptions, partly in the pages.
            let is_before =
                |(seq, _, is_repeat): (Seq, _, bool)| is_repeat && Slot::stored(seq) < slot;
            let fresh_first = self.fresh.peek().is_some_and(is_before) && self.next_fresh();
            return Some(if fresh_first {
                Pick::Fresh
            } else {
                Pick::Again(slot)
            });
        }
        self.next_fresh().then_some(Pick::Fresh)
    }

    fn next_due(&mut self) -> Option<Slot> {
        while let Some(slot) = self.due.front().copied() {
            let is_there =
                matches!(self.held.get(&slot), Some(held) if matches!(held.place, Place::Due));
            if is_there && !self.end_if_over(slot) {
                return Some(slot);
            }
            self.due.pop_front();
        }
        None
    }

    /// Whether the first of the fresh line may go out now. Drops and parks what may not.
    fn next_fresh(&mut self) -> bool {
        if self.suspects.len() >= MOST_SUSPECTS {
            return false;
        }
        while let Some((seq, message, _)) = self.fresh.peek() {
            let is_ours = self.start.takes_all || message.guaranteed || self.fresh.is_paged();
            let is_skipped = !self.skip.is_empty() && self.skip.contains(&seq);
            if !is_ours || is_skipped {
                self.pass_fresh(seq);
                continue;
            }
            let is_expired = message.is_expired(self.now.wall);
            if is_expired || !self.seats.may_see(&message.event) {
                self.tally.expired += u64::from(is_expired);
                self.tally.hidden += u64::from(!is_expired);
                self.end_fresh(seq);
                continue;
            }
            if message
                .key
                .as_ref()
                .is_some_and(|key| self.keys.is_busy(0, key))
            {
                if self.keys.is_full() || self.is_live_next(seq) {
                    return false;
                }
                self.park_fresh();
                continue;
            }
            return self.ledger.may_send(seq);
        }
        false
    }

    /// The store knows that it is settled, or not for this queue.
    fn pass_fresh(&mut self, seq: Seq) {
        self.fresh.take();
        self.ledger.pass_up_to(seq);
        self.skip.remove(&seq);
    }

    /// Settles an entry that never goes out.
    fn end_fresh(&mut self, seq: Seq) {
        self.fresh.take();
        self.ledger.open(seq);
        self.ledger.settle(seq, Row::None);
    }

    fn park_fresh(&mut self) {
        let Some(next) = self.fresh.take() else {
            return;
        };
        self.ledger.open(next.seq);
        let entry = first_entry(next);
        if let Some(key) = &entry.message.key {
            self.keys.claim(0, key, entry.slot, entry.message.size());
        }
        let place = Place::Parked;
        self.held.insert(entry.slot, Held { entry, place });
    }

    /// Sends it to the session with most room; `false` if it fits nowhere.
    fn send_pick(&mut self, pick: Pick, effects: &mut Vec<Effect>) -> bool {
        let next = match pick {
            Pick::Fresh => self.fresh.peek().map(|(seq, message, _)| (seq, message)),
            Pick::Again(slot) | Pick::Due(slot) => self.held.get(&slot).map(|held| {
                // One that has been out does not wait for what came before it.
                let is_first = held.entry.attempts == 0;
                let seq = slot.seq().filter(|_| is_first).unwrap_or(0);
                (seq, &held.entry.message)
            }),
        };
        let seat = next.and_then(|(seq, message)| self.seats.choose(message, seq));
        let Some(seat) = seat else {
            return false;
        };
        let slot = match pick {
            Pick::Fresh => match self.take_fresh() {
                Some(slot) => slot,
                None => return false,
            },
            Pick::Again(slot) => {
                self.again.remove(&slot);
                slot
            }
            Pick::Due(slot) => {
                self.due.pop_front();
                slot
            }
        };
        self.retry_next = !matches!(pick, Pick::Due(_));
        self.send(seat, slot, effects);
        true
    }

    fn take_fresh(&mut self) -> Option<Slot> {
        let next = self.fresh.take()?;
        self.ledger.open(next.seq);
        let entry = first_entry(next);
        let slot = entry.slot;
        if let Some(key) = &entry.message.key {
            self.keys.claim(0, key, slot, 0);
        }
        let place = Place::Parked;
        self.held.insert(slot, Held { entry, place });
        Some(slot)
    }

    /// Hands an entry in hand to a session.
    pub(super) fn send(&mut self, seat: u32, slot: Slot, effects: &mut Vec<Effect>) {
        let now = self.now.elapsed;
        let (Some(post), Some(held)) = (self.seats.get(seat), self.held.get_mut(&slot)) else {
            return;
        };
        let size = held.entry.message.size();
        held.entry.attempts = held.entry.attempts.saturating_add(1);
        let attempts = held.entry.attempts;
        let (style, deadline) = match post.seat.mode {
            Mode::Ack { timeout } if !held.entry.is_untracked => {
                let deadline = post.time(now).saturating_add(timeout);
                self.timers.push(Reverse((post.real(deadline), slot)));
                (Style::Tracked(attempts), deadline)
            }
            _ if attempts > 1 => (Style::Repeated, now),
            _ => (Style::Plain, now),
        };
        held.place = Place::Out(Out {
            seat,
            size: u32::try_from(size).unwrap_or(u32::MAX),
            acked: matches!(style, Style::Tracked(_)),
            deadline,
        });
        effects.push(Effect::Send {
            seat,
            slot,
            message: Arc::clone(&held.entry.message),
            style,
        });
        // The sent mark counts one send; more of them need a row.
        if attempts > 1 && !slot.is_live() {
            self.tally.repeated += 1;
            if attempts > 2 || held.entry.row != Row::None {
                self.except(slot);
            }
        }
        self.tally.sent += 1;
        self.tally.stored += u64::from(!slot.is_live());
        self.seats.give(seat, slot, size);
        self.tidy_post(seat);
        self.tidy_timers();
    }

    /// Drops what `given` and `timers` name in vain, once that is most of them.
    fn tidy_post(&mut self, seat: u32) {
        let Some(post) = self.seats.get_mut(seat) else {
            return;
        };
        if post.given.len() > 2 * post.held as usize + 64 {
            let held = &self.held;
            post.given.retain(|slot| {
                held.get(slot)
                    .is_some_and(|held| matches!(held.place, Place::Out(out) if out.seat == seat))
            });
        }
    }

    fn tidy_timers(&mut self) {
        if self.timers.len() > 2 * self.held.len() + 64 {
            let held = &self.held;
            self.timers
                .retain(|Reverse((_, slot))| held.contains_key(slot));
            if self.timers.len() > held.len() + 64 {
                // The rest are clocks that were started anew; one for each is enough.
                let timers = std::mem::take(&mut self.timers).into_sorted_vec();
                let mut seen = std::collections::HashSet::new();
                let earliest = timers.into_iter().rev();
                self.timers = earliest
                    .filter(|Reverse((_, slot))| seen.insert(*slot))
                    .collect();
            }
        }
    }

    /// Brings a suspect to a session that has nothing else of this queue, and makes one session
    /// empty if none is.
    fn pump_suspect(&mut self, effects: &mut Vec<Effect>) {
        if self.suspects.is_empty() && self.apart.is_none() {
            return;
        }
        if let Some(seat) = self.apart
            && self.seats.get(seat).is_none_or(|post| post.is_empty())
            && (self.suspects.is_empty() || self.rest > 0)
        {
            self.set_apart(None);
        }
        while let Some(slot) = self.suspects.first().copied() {
            if !self.end_if_over(slot) {
                break;
            }
        }
        let Some(slot) = self.suspects.first().copied() else {
            return;
        };
        let holds_one = self.apart.is_some_and(|seat| {
            self.seats
                .get(seat)
                .is_some_and(|post| post.suspect.is_some())
        });
        if holds_one || (self.rest > 0 && self.next().is_some()) {
            return;
        }
        let Some(message) = self.held.get(&slot).map(|held| &held.entry.message) else {
            return;
        };
        let free = |post: &super::seats::Post| !post.blocked && post.may_see(&message.event);
        let posts = self.seats.iter().filter(|(_, post)| free(post));
        let Some((seat, held)) = posts
            .map(|(at, post)| (at, post.held))
            .min_by_key(|(at, held)| (*held, Some(*at) != self.apart))
        else {
            return;
        };
        if self.apart.is_none() || held == 0 {
            self.set_apart(Some(seat));
        }
        let can_go = held == 0
            && self
                .seats
                .get(seat)
                .is_some_and(|post| post.batch.is_empty());
        if can_go {
            self.suspects.remove(&slot);
            self.send(seat, slot, effects);
            if let Some(post) = self.seats.get_mut(seat) {
                post.suspect = Some(slot);
            }
        }
    }

    fn set_apart(&mut self, seat: Option<u32>) {
        for (at, apart) in [(self.apart, false), (seat, true)] {
            if let Some(post) = at.and_then(|at| self.seats.get_mut(at)) {
                post.apart = apart;
            }
        }
        self.apart = seat;
    }

    /// The entry a session was alone with is settled or back.
    pub(super) fn end_suspect(&mut self, seat: u32, slot: Slot) {
        if let Some(post) = self.seats.get_mut(seat)
            && post.suspect == Some(slot)
        {
            post.suspect = None;
            self.rest = REST;
        }
    }
}

fn first_entry(next: Next) -> Entry {
    Entry::new(Slot::stored(next.seq), next.message, u32::from(next.repeat))
}
