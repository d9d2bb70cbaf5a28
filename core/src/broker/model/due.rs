//! Messages that are held until they are due (P17), and those that are sent again (P16).

use std::time::Duration;

use super::super::*;
use super::book::*;
use super::bounds::Rooms;
use super::life::{Life, Repeated};
use super::link::{Got, Style};
use crate::clock::{Clock, Timestamp};

/// Answers to repeats come under numbers from here.
const REPEATS: usize = 1 << 32;
/// The user's own ids are known for five minutes.
const NAME_LIFE: Duration = Duration::from_secs(300);

impl Life {
    /// Sends a message again of which the store knows; whoever has it gets it no second time (P16).
    pub(super) fn repeat(&mut self, session: usize, nth: usize) {
        let Some(marked) = self.marked.iter().rev().nth(nth).cloned() else {
            return;
        };
        let (n, sent) = (marked.n, &self.book.sent[marked.n]);
        // Of what is held and its repeat either may come to the store first.
        let waits = self.unanswered.contains_key(&n) || self.unasked.contains_key(&n);
        let is_there = !(sent.is_nowhere || sent.is_held && waits);
        let is_known = is_there && (sent.is_delayed || !sent.certain.is_empty());
        let is_over = self.clock.elapsed() >= marked.at + NAME_LIFE;
        let mut asks = Tri::No;
        for (qid, queue) in &self.book.queues {
            if matches(qid.0, sent) {
                asks = asks.max(queue.takes(sent.guaranteed));
            }
        }
        // Where nothing stores it the store need not be asked, in whatever state it is.
        let is_asked = sent.is_delayed || asks == Tri::Yes;
        let may_be_asked = is_asked || (asks == Tri::Maybe && self.is_refusing);
        let is_unclear = may_be_asked && !is_asked;
        if !is_known || is_over || is_unclear || self.sessions[session].line.is_paused() {
            return;
        }
        let at = REPEATS + self.repeats.len();
        // What a full queue refused is held on.
        let is_known = self.is_well() && !sent.is_loose;
        let is_held = is_known.then(|| self.held.contains_key(&n));
        self.publish(session, marked.from, &marked.item, n, Some(at));
        self.flush(session);
        let repeated = Repeated {
            n,
            since: Some(self.clock.elapsed()),
            is_refused: self.is_refusing && is_asked,
            is_held,
        };
        self.repeats.insert(at, repeated);
    }

    /// The answer to a repeat; whether it is one.
    pub(super) fn repeated(&mut self, at: usize, result: &crate::Result<Published>) -> bool {
        let Some(repeated) = self.repeats.get_mut(&at) else {
            return false;
        };
        let n = repeated.n;
        assert!(
            repeated.since.take().is_some(),
            "the repeat of {n} was answered twice (P2)"
        );
        match result {
            Ok(published) => {
                assert!(!repeated.is_refused, "{n}: the store was not asked (P2)");
                assert!(published.duplicate, "{n} was taken twice (P16)");
                assert_eq!((published.queued, published.delivered), (0, 0));
                let is_held = repeated.is_held;
                let is_right = is_held.is_none_or(|is_held| published.delayed == is_held);
                assert!(
                    is_right,
                    "{n}: {is_held:?}, not {} (P17)",
                    published.delayed
                );
            }
            Err(error) => {
                let is_late = error.kind() == ErrorKind::StoreTimeout;
                assert!(is_late || repeated.is_refused, "the repeat of {n}: {error}");
            }
        }
        true
    }

    /// What is due is routed by who listens now; what became due in trouble is known to nobody.
    pub(super) fn release(&mut self) {
        let now = self.clock.now();
        let due: Vec<usize> = self.due(now);
        for n in due {
            self.held.remove(&n);
            // Where it is refused it waits and comes later.
            let is_well = self.is_well() && self.rooms().queues.is_empty();
            let mut sent = self.book.sent[n].clone();
            let is_well = is_well && !sent.is_loose;
            if is_well {
                self.find_takers(&mut sent, &mut Rooms::default());
                self.book.store(n, &sent, true);
                self.crowd(&[&sent.certain[..], &sent.possible].concat());
                self.expect_live(n, &sent, !sent.possible.is_empty());
                self.book.sent[n] = sent;
                continue;
            }
            self.book.sent[n].is_loose = true;
            let queues = self.book.queues.iter_mut();
            let mut asked = Vec::new();
            for (qid, queue) in queues.filter(|(qid, _)| matches(qid.0, &sent)) {
                queue.is_plain_sailing = false;
                asked.push(qid.clone());
            }
            self.crowd(&asked);
        }
    }

    /// Who may have what nobody expects settles it, so that it is in nobody's way.
    pub(super) fn take_loose(&mut self, got: &Got) {
        if self.book.sent[got.n].is_cast {
            let is_tracked = matches!(got.style, Style::Tracked(_));
            assert!(!is_tracked, "a broadcast wants an ACK: {got:?}");
            self.book.cast(got.session, Some(got.key), got.n);
        }
        let qid = self.book.sub(got.session, got.key);
        let qid = qid.and_then(|sub| sub.qid.clone());
        let queue = qid.and_then(|qid| self.book.queues.get_mut(&qid));
        if let Some(seat) = queue.and_then(|queue| queue.seats.get_mut(&got.session)) {
            seat.is_exact = false;
        }
        if let Style::Tracked(_) = got.style {
            let member = &self.sessions[got.session].member;
            let told = Box::new(|_| ());
            self.broker
                .settle(member, &got.id, None, Verdict::Ack, told);
        }
    }

    fn due(&self, now: Timestamp) -> Vec<usize> {
        let due = self.held.iter().filter(|(_, due)| **due <= now);
        let mut due: Vec<_> = due.map(|(n, due)| (*due, *n)).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, n)| n).collect()
    }
}
