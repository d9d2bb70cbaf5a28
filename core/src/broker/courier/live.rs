//! Live copies: which wait, which may go, and what a session lost when too many waited.
//!
//! A live copy goes when the stored entries before it have gone (P8). It is for one session, and goes
//! with it. Part of the machine; called by `state` and `pump`.

use std::sync::Arc;

use crate::model::Message;
use crate::store::Seq;

use super::super::ports::SessionId;
use super::Effect;
use super::entry::{Entry, Held, Place, Slot};
use super::state::State;

/// Live copies that wait for one session behind stored ones: as much as its line would take, so
/// that a reader that keeps up loses nothing (P23).
pub(crate) const MOST_LIVE: usize = 65_536;
/// And bytes of them, or one message.
pub(crate) const MOST_LIVE_BYTES: usize = 16 << 20;

impl State {
    /// A live copy for one session; dropped and counted if too many wait. It goes behind what was
    /// stored before the session came, and what its producer stored before it (P5, P8).
    pub(super) fn take_live(
        &mut self,
        session: SessionId,
        n: u64,
        message: Arc<Message>,
        behind: Seq,
        is_untracked: bool,
    ) {
        self.last_live = self.last_live.max(n);
        let Some(at) = self.seats.find(session) else {
            self.tally.dropped += 1;
            return;
        };
        let Some(post) = self.seats.get_mut(at) else {
            return;
        };
        if !post.may_see(&message.event) {
            self.tally.hidden += 1;
            return;
        }
        let size = message.size();
        let has_room = post.live.is_empty()
            || (post.live.len() < MOST_LIVE && post.live_bytes + size <= MOST_LIVE_BYTES);
        if !has_room {
            self.tally.dropped += 1;
            return self.lose(session, 1);
        }
        let mut entry = Entry::new(Slot::live(n), message, 0);
        entry.home = at + 1;
        entry.is_untracked = is_untracked;
        entry.after = behind.max(post.floor);
        post.live_bytes += size;
        // Those of one producer are in order already.
        let place = post
            .live
            .partition_point(|other| other.after <= entry.after);
        post.live.insert(place, entry);
        self.live.insert(at);
    }

    /// Live copies for a session were dropped because too many wait.
    pub(super) fn lose(&mut self, session: SessionId, count: u64) {
        if let Some(at) = self.seats.find(session)
            && let Some(post) = self.seats.get_mut(at)
        {
            post.lost += count;
            self.losing.insert(at);
        }
    }

    /// Tells sessions what they have lost, once for all of it when there is room again (P23).
    pub(super) fn tell_lost(&mut self, effects: &mut Vec<Effect>) {
        let seats = &mut self.seats;
        self.losing.retain(|at| {
            let Some(post) = seats.get_mut(*at) else {
                return false;
            };
            let has_room =
                post.live.len() <= MOST_LIVE / 2 && post.live_bytes <= MOST_LIVE_BYTES / 2;
            if has_room {
                let count = std::mem::take(&mut post.lost);
                effects.push(Effect::Lost { seat: *at, count });
            }
            !has_room
        });
    }

    /// The stored entry that goes out next, if there is one to wait for.
    fn front(&self) -> Option<Seq> {
        let again = self.again.first().and_then(|slot| slot.seq());
        again.or_else(|| self.fresh.front().filter(|_| self.is_backed()))
    }

    /// Whether a live copy that could go has its turn before the stored entry `seq`.
    pub(super) fn is_live_next(&self, seq: Seq) -> bool {
        let mut posts = self.live.iter().filter_map(|at| self.seats.get(*at));
        posts.any(|post| {
            let first = post.live.front().filter(|_| !post.apart);
            first.is_some_and(|entry| entry.after < seq && post.fits(entry.message.size()))
        })
    }

    /// Whether the stored entry that held up live copies is out of their way.
    pub(super) fn is_past(&self, holder: Option<Seq>) -> bool {
        holder.is_some_and(|holder| self.front().is_none_or(|front| front > holder))
    }

    /// Hands out live copies; the first of the stored entries that those wait for which are left.
    pub(super) fn pump_live(&mut self, effects: &mut Vec<Effect>) -> Option<Seq> {
        if self.live.is_empty() {
            return None;
        }
        let front = self.front();
        let mut holder: Option<Seq> = None;
        for at in self.live.clone() {
            while let Some(slot) = self.next_live(at, front) {
                let held = self.held.get(&slot);
                let size = held.map_or(0, |held| held.entry.message.size());
                let first = held.filter(|held| held.entry.attempts == 0);
                let after = first.map(|held| held.entry.after);
                let fits = self
                    .seats
                    .get(at)
                    .is_some_and(|post| !post.apart && post.fits(size));
                if !fits {
                    if let Some(post) = self.seats.get_mut(at) {
                        post.again.push_front((slot, after));
                    }
                    break;
                }
                self.send(at, slot, effects);
            }
            let post = self.seats.get(at);
            let waits_for = post.and_then(|post| post.live_after());
            let waits_for = waits_for.filter(|after| front.is_some_and(|front| front <= *after));
            holder = holder.into_iter().chain(waits_for).min();
            if post.is_none_or(|post| post.live.is_empty() && post.again.is_empty()) {
                self.live.remove(&at);
            }
        }
        holder
    }

    /// Takes the next live copy of a session that may go before the stored entry `front`.
    fn next_live(&mut self, at: u32, front: Option<Seq>) -> Option<Slot> {
        loop {
            let post = self.seats.get_mut(at)?;
            let first = post.live.front();
            let refused = post.again.front().copied().filter(|(_, after)| {
                let is_later = |after| first.is_some_and(|entry| entry.after < after);
                !after.is_some_and(is_later)
            });
            if let Some((slot, after)) = refused {
                if let (Some(front), Some(after)) = (front, after)
                    && front <= after
                {
                    return None;
                }
                post.again.pop_front();
                let is_there = self
                    .held
                    .get(&slot)
                    .is_some_and(|held| matches!(held.place, Place::Due | Place::Again));
                if is_there && !self.expire_if_due(slot) {
                    return Some(slot);
                }
                continue;
            }
            let first = first?;
            let key = first.message.key.as_ref();
            let must_park = key.is_some_and(|key| self.keys.is_busy(at + 1, key));
            if front.is_some_and(|front| front <= first.after) || (must_park && self.keys.is_full())
            {
                return None;
            }
            let entry = post.live.pop_front()?;
            let (slot, home, size) = (entry.slot, entry.home, entry.message.size());
            post.live_bytes -= size;
            if entry.message.is_expired(self.now.wall) {
                self.tally.expired += 1;
                continue;
            }
            let key = entry.message.key.clone();
            let place = Place::Again;
            self.held.insert(slot, Held { entry, place });
            let is_free = key.is_none_or(|key| self.keys.claim(home, &key, slot, size));
            if is_free {
                return Some(slot);
            }
            if let Some(held) = self.held.get_mut(&slot) {
                held.place = Place::Parked;
            }
        }
    }
}
