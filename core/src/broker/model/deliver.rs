//! Checks every single delivery against what the model knows.

use std::sync::Arc;

use super::book::*;
use super::link::{Got, Line, Style};
use crate::clock::{Clock, TestClock, Timestamp};

impl Book {
    /// Whether anybody else's seat has it.
    fn holder(&self, qid: &Qid, n: usize) -> Option<usize> {
        let seats = self.queues.get(qid)?.seats.iter();
        let mut holders = seats.filter(|(_, seat)| seat.holds.contains_key(&(false, n)));
        holders.next().map(|(session, _)| *session)
    }

    /// Checks a delivery and notes it.
    pub(super) fn deliver(&mut self, got: &Got, line: &Arc<Line>, clock: &TestClock) {
        let (session, key, n) = (got.session, got.key, got.n);
        let sent = &self.sent[n];
        assert!(
            matches(key, sent),
            "routed to a key it does not match: {got:?}"
        );
        assert!(
            sent.online_only || sent.expires > clock.now(),
            "expired and delivered (P15): {got:?}"
        );
        let Some(sub) = self.sub(session, key) else {
            if self.alive.contains(&session) {
                return; // a group's choice that has unsubscribed while the copy waited
            }
            let left = self.just_left.get(&(session, key)).cloned();
            let qid = left.unwrap_or_else(|| panic!("nobody has subscribed: {got:?}"));
            let queue = qid.and_then(|qid| self.queues.get_mut(&qid));
            let entry = queue.and_then(|queue| queue.entries.get_mut(&n));
            // It went out just before the session ended.
            if let Some(entry) = entry.filter(|_| !got.is_live()) {
                entry.attempts += 1;
            }
            return;
        };
        let qid = sub.qid.clone();
        let live = self.live.get(&(session, key, n));
        let was_live = live.is_some_and(|live| !live.came_stored);
        let only_stored = sub.is_durable && !sent.online_only && !was_live;
        let entry = qid
            .as_ref()
            .and_then(|qid| self.queues.get(qid)?.entries.get(&n));
        if entry.is_none() && only_stored && self.moved.contains(&(session, key)) {
            return;
        }
        let is_stored = match got.style {
            Style::Tracked(_) => !got.is_live(),
            _ => {
                let is_open = entry.is_some_and(|entry| entry.end.is_none());
                let mut doubtful = self.doubtful.iter();
                let wavers = doubtful.any(|(at, of)| Some(at) == qid.as_ref() && *of == n);
                only_stored || is_open || wavers
            }
        };
        let is_doubtful = |qid: &Qid| !got.is_live() && sent.possible.contains(qid);
        if !matches!(got.style, Style::Tracked(_)) && qid.as_ref().is_some_and(is_doubtful) {
            // Its queue was being opened: nobody can tell which copy this is.
            return self.deliver_doubtful(got, &qid.unwrap());
        }
        if let Some(qid) = qid
            .as_ref()
            .filter(|_| matches!(got.style, Style::Tracked(_)))
        {
            self.check_key(got, qid);
        }
        if is_stored {
            self.deliver_stored(got, &qid.unwrap(), line, clock.now());
        } else {
            self.deliver_live(got, qid.as_ref(), line);
        }
    }

    fn check_order(&mut self, got: &Got) {
        let sent = &self.sent[got.n];
        if sent.is_late {
            return;
        }
        let place = (got.session, got.key, sent.session, sent.key);
        let last = self.order.insert(place, got.n);
        assert!(
            last.is_none_or(|last| last < got.n),
            "first deliveries out of order (P8): {got:?} after {last:?}"
        );
    }

    fn deliver_doubtful(&mut self, got: &Got, qid: &Qid) {
        let queue = self.queues.get_mut(qid);
        let seat = queue.and_then(|queue| {
            let entry = queue.entries.get_mut(&got.n);
            entry.into_iter().for_each(|entry| entry.was_left = true);
            queue.seats.get_mut(&got.session)
        });
        seat.into_iter().for_each(|seat| seat.is_exact = false);
        let live = self.live.entry((got.session, got.key, got.n)).or_default();
        live.must = false;
    }

    fn deliver_stored(&mut self, got: &Got, qid: &Qid, line: &Arc<Line>, now: Timestamp) {
        let n = got.n;
        assert!(
            !self.sent[n].is_nowhere,
            "refused and yet delivered (P27): {got:?}"
        );
        if self.doubtful.contains(&(qid.clone(), n)) {
            let seats = self.queues.get_mut(qid).map(|queue| &mut queue.seats);
            let seat = seats.and_then(|seats| seats.get_mut(&got.session));
            if let Some(seat) = seat {
                seat.is_exact = false;
                seat.holds.insert((false, n), Hold::new(got, line));
            }
            return;
        }
        let holder = self.holder(qid, n);
        assert!(holder.is_none(), "out at {holder:?} already: {got:?}");
        let queue = self.queues.get_mut(qid).unwrap();
        let Some(entry) = queue.entries.get_mut(&n) else {
            panic!("came from nowhere: {got:?}");
        };
        assert!(
            entry.end.is_none(),
            "delivered after its end: {got:?} {entry:?}"
        );
        let wanted = match got.style {
            Style::Plain => entry.attempts == 0,
            Style::Repeated => entry.attempts > 0 || entry.was_left,
            Style::Tracked(attempt) if entry.was_recalled => {
                // That it is a repeat is all that a new broker has to know.
                let least = if entry.attempts > 0 { 2 } else { 1 };
                (least..=entry.attempts + 2).contains(&attempt)
            }
            Style::Tracked(attempt) => {
                let is_more = entry.was_left && attempt == entry.attempts + 2;
                is_more || attempt == entry.attempts + 1
            }
        };
        assert!(wanted, "marked wrongly (P3): {got:?} {entry:?}");
        let is_first = entry.attempts == 0;
        let is_counted_twice = entry.was_left && got.style == Style::Repeated && is_first;
        entry.was_left = false;
        entry.was_recalled = false;
        entry.attempts = match got.style {
            Style::Tracked(attempt) => attempt,
            _ => entry.attempts + 1 + u32::from(is_counted_twice),
        };
        let (is_suspect, was_refused) = (entry.is_suspect, entry.was_refused);
        if let Some(key) = self.sent[n].key {
            let same = |other: &usize| *other != n && self.sent[*other].key == Some(key);
            let begun = queue
                .entries
                .iter()
                .find(|(other, entry)| same(other) && entry.end.is_none() && entry.attempts > 0);
            let begun = begun.filter(|(other, _)| self.sent[**other].expires > now);
            let is_doubtful = |other: usize| self.doubtful.contains(&(qid.clone(), other));
            let begun = begun.filter(|(other, _)| !is_doubtful(**other));
            assert!(
                begun.is_none(),
                "two of one ordering key (P8): {got:?} {begun:?}"
            );
        }
        let hold = Hold::new(got, line);
        if let Some(seat) = queue.seats.get_mut(&got.session) {
            seat.take((false, n), hold, is_suspect, got);
        }
        let live = self.live.entry((got.session, got.key, n)).or_default();
        live.came_stored = true;
        live.must = false;
        assert!(
            !is_first || live.attempts == 0,
            "live and stored (P3): {got:?}"
        );
        if is_first && !was_refused {
            self.check_order(got);
        }
    }

    /// Of one ordering key a session has one at most to settle, stored or live.
    fn check_key(&self, got: &Got, qid: &Qid) {
        let Some(key) = self.sent[got.n].key else {
            return;
        };
        let seat = self
            .queues
            .get(qid)
            .and_then(|queue| queue.seats.get(&got.session));
        let holds = seat.into_iter().flat_map(|seat| &seat.holds);
        let mut acked = holds.filter(|(_, hold)| hold.acked).map(|(held, _)| *held);
        let other = acked.find(|(_, n)| *n != got.n && self.sent[*n].key == Some(key));
        assert!(
            other.is_none(),
            "two of one ordering key (P8): {got:?} {other:?}"
        );
    }

    fn deliver_live(&mut self, got: &Got, qid: Option<&Qid>, line: &Arc<Line>) {
        let n = got.n;
        assert!(
            !self.sent[n].is_refused,
            "refused and yet delivered (P27): {got:?}"
        );
        let live = self.live.entry((got.session, got.key, n)).or_default();
        let wanted = match got.style {
            Style::Plain => live.attempts == 0,
            Style::Repeated => live.attempts > 0,
            Style::Tracked(attempt) => attempt == live.attempts + 1,
        };
        assert!(wanted, "marked wrongly (P3): {got:?} {live:?}");
        assert!(!live.came_stored, "stored and live (P3): {got:?}");
        assert!(!live.is_over, "delivered after its end: {got:?}");
        live.attempts += 1;
        let is_first = live.attempts == 1;
        let sub = self.sub(got.session, got.key).unwrap();
        let is_group = sub.wish.who == Who::Group;
        // Who is durable gets it through its queue, but for groups.
        let holds = got.is_live() || (sub.is_durable && !is_group);
        if is_group && is_first {
            let is_new = self.group.insert((got.key, n));
            assert!(is_new, "a group has had it already (P18): {got:?}");
        }
        let seat = qid.and_then(|qid| self.queues.get_mut(qid)?.seats.get_mut(&got.session));
        if let Some(seat) = seat {
            if holds {
                seat.take((true, n), Hold::new(got, line), false, got);
            } else {
                // It may have come through the queue and count there until its pong.
                seat.is_exact = false;
            }
        }
        if is_first {
            self.check_order(got);
        }
    }
}
