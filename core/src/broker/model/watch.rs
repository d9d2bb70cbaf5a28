//! What must be true after each step of a life: answers, deliveries, and that nothing waits in vain.

use std::time::Duration;

use super::super::*;
use super::life::{Life, STAGING, breathe};
use super::link::{Event, Got, Style};
use crate::clock::Elapsed;

impl Life {
    /// Lets the broker do what it can, then compares.
    pub(super) async fn observe(&mut self) {
        breathe().await;
        self.release();
        let lost: Vec<usize> = self
            .book
            .alive
            .iter()
            .copied()
            .filter(|at| self.sessions[*at].line.is_closed())
            .collect();
        for session in &lost {
            self.book.doubt(*session);
            self.left(*session, false);
        }
        self.book.run_clocks(self.clock.now());
        self.answered();
        self.opened();
        self.claimed(&lost);
        self.judged();
        let events = std::mem::take(&mut *self.journal.lock());
        for event in events {
            match event {
                Event::Got(got) if self.book.sent[got.n].is_loose => self.take_loose(&got),
                Event::Got(got) => {
                    let line = self.sessions[got.session].line.clone();
                    if matches!(got.style, Style::Tracked(_)) {
                        let sub = self.book.sub(got.session, got.key);
                        let qid = sub.and_then(|sub| sub.qid.clone());
                        let tracked = &mut self.sessions[got.session].tracked;
                        tracked.extend(qid.map(|qid| (got.clone(), qid)));
                    }
                    self.book.deliver(&got, &line, &self.clock);
                }
                Event::Cast(session, n) => self.book.cast(session, None, n),
                Event::Refused(got) => self.refused(&got),
                Event::Gap(session, dropped) => self.sessions[session].gaps += dropped,
                Event::Error(..) | Event::Replaced(_) => {}
            }
        }
        self.casts_are_there();
        self.book.just_left.clear();
        if self.is_well() {
            self.nothing_waits_in_vain();
        }
        if self.is_stalled || self.is_refusing {
            self.trouble = Some(self.clock.elapsed());
        }
        if !self.granted.is_empty() {
            for (session, wish) in std::mem::take(&mut self.granted) {
                self.subscribe(session, wish);
            }
            Box::pin(self.observe()).await;
        }
    }

    fn refused(&mut self, got: &Got) {
        let qid = self
            .book
            .sub(got.session, got.key)
            .and_then(|sub| sub.qid.clone());
        let Some(queue) = qid.and_then(|qid| self.book.queues.get_mut(&qid)) else {
            return;
        };
        let is_shared = queue.seats.len() > 1;
        if let Some(entry) = queue.entries.get_mut(&got.n) {
            entry.was_refused |= is_shared;
        }
    }

    /// The store has been well for longer than any courier waits before it tries again.
    pub(super) fn is_well(&self) -> bool {
        let rest = Duration::from_secs(6);
        !self.is_stalled
            && !self.is_refusing
            && self
                .trouble
                .is_none_or(|since| self.clock.elapsed() > since + rest)
    }

    /// Whoever can take something has it: nobody's trouble holds up another (P23).
    fn nothing_waits_in_vain(&self) {
        let now = self.clock.now();
        for (qid, queue) in self
            .book
            .queues
            .iter()
            .filter(|(_, queue)| queue.is_plain_sailing)
        {
            let mut waiting = queue.entries.iter().filter(|(n, entry)| {
                entry.must
                    && entry.end.is_none()
                    && entry.attempts == 0
                    && self.book.sent[**n].expires > now
            });
            let Some((n, entry)) = waiting.next() else {
                continue;
            };
            let idle = queue.seats.iter().find(|(_, seat)| {
                seat.is_exact
                    && !seat.line.is_limited()
                    && seat.holds.len() < seat.prefetch as usize
            });
            assert!(
                idle.is_none(),
                "{n} {entry:?} waits in {qid:?} and {:?} takes nothing (P23)",
                idle.map(|(at, _)| at)
            );
        }
        for ((session, key, n), live) in &self.book.live {
            let sent = &self.book.sent[*n];
            let is_expired = !sent.online_only && sent.expires <= now;
            if !live.must || is_expired || live.attempts > 0 || self.sessions[*session].was_limited
            {
                continue;
            }
            let sub = self.book.sub(*session, *key).unwrap();
            // With stored entries about, or maybe, it waits behind them, and for pongs.
            let is_direct = sub.qid.as_ref().is_none_or(|qid| {
                let queue = self.book.queues.get(qid);
                let is_empty = queue.is_none_or(|queue| queue.entries.is_empty());
                // What others on the key store is fed to this one too, and live copies go behind it.
                let mut stored = sent.certain.iter().chain(&sent.possible);
                let is_fed = stored.any(|(of, _)| of == key);
                let seat = queue.and_then(|queue| queue.seats.get(session));
                let waits = seat.is_some_and(|seat| seat.was_acked);
                !sub.wish.ack && is_empty && !is_fed && !waits && self.trouble.is_none()
            });
            assert!(
                !is_direct,
                "the live copy of {n} on {key} has not come to {session} (P23)"
            );
        }
    }

    fn answered(&mut self) {
        let now = self.clock.elapsed();
        let replies = std::mem::take(&mut *self.replies.lock());
        for (n, result) in replies {
            if self.repeated(n, &result) {
                continue;
            }
            assert!(
                self.unanswered.remove(&n).is_some(),
                "{n} was answered twice (P2)"
            );
            match result {
                Ok(published) => self.accepted(n, &published),
                Err(error) => self.rejected(n, &error),
            }
        }
        self.nobody_waits_too_long(now);
    }

    fn accepted(&mut self, n: usize, published: &Published) {
        let sent = &self.book.sent[n];
        assert!(!sent.is_nowhere, "{n}: the store never had it (P2)");
        assert!(!published.duplicate, "{n} is new (P16)");
        assert_eq!(published.delayed, sent.is_delayed, "{n} (P17)");
        if sent.is_delayed {
            assert_eq!(published.queued, 0, "{n} (P17)");
            return;
        }
        let (certain, possible) = (sent.certain.len(), sent.possible.len());
        let queued = published.queued as usize;
        let is_right = certain <= queued && queued <= certain + possible;
        assert!(
            is_right,
            "{n}: {queued} queued, not {:?} (+ {:?})",
            sent.certain, sent.possible
        );
        let refused = published.refused as usize;
        let most = sent.full + possible + usize::from(sent.may_be_full) * 8;
        let is_right = sent.full <= refused && refused <= most;
        assert!(is_right, "{n}: {refused} refused, not {} (P25)", sent.full);
        for qid in &sent.certain {
            let queue = self.book.queues.get_mut(qid).unwrap();
            if let Some(entry) = queue.entries.get_mut(&n) {
                let wavers = self.book.doubtful.contains(&(qid.clone(), n));
                entry.must = entry.end.is_none() && !wavers;
            }
        }
    }

    fn rejected(&mut self, n: usize, error: &Error) {
        let sent = &mut self.book.sent[n];
        let timed_out = error.kind() == ErrorKind::StoreTimeout;
        let is_asked = !sent.certain.is_empty() || !sent.possible.is_empty();
        let is_full = error.kind() == ErrorKind::QueueFull;
        let had_no_room = sent.full > 0 || sent.may_be_full;
        let may_fail = is_asked || sent.is_delayed || had_no_room;
        let was_full = is_full && had_no_room;
        let fails = timed_out || sent.is_nowhere || self.is_refusing || was_full;
        assert!(may_fail && fails, "{n}: {error}");
        sent.is_late |= timed_out;
        // The store may have been asked or not.
        sent.is_loose |= timed_out && sent.is_delayed;
        self.marked.retain(|marked| marked.n != n || !timed_out);
        let sent = &mut self.book.sent[n];
        if sent.is_delayed {
            return; // held or not, it reaches nobody before it is due
        }
        sent.is_refused |= sent.is_guarded;
        if sent.is_guarded {
            let lost = self.book.live.iter_mut().filter(|((_, _, of), _)| *of == n);
            lost.for_each(|(_, live)| live.must = false);
        }
    }

    fn nobody_waits_too_long(&mut self, now: Elapsed) {
        for (n, since) in &self.unasked {
            let sent = &mut self.book.sent[*n];
            let is_late = now - *since >= Duration::from_secs(5);
            sent.is_late |= is_late;
            sent.is_loose |= is_late && sent.is_delayed;
            self.marked.retain(|marked| marked.n != *n || !is_late);
        }
        if !self.is_stalled {
            self.unasked.clear();
        }
        for (n, since) in &self.unanswered {
            let waited = now - *since;
            assert!(
                waited < Duration::from_secs(5),
                "{n} waits for {waited:?} (P24)"
            );
        }
        for repeated in self.repeats.values() {
            let waited = repeated.since.map_or(Duration::ZERO, |since| now - since);
            let n = repeated.n;
            let is_right = waited < Duration::from_secs(5);
            assert!(is_right, "the repeat of {n} waits for {waited:?} (P24)");
        }
        for (at, session) in self.sessions.iter().enumerate() {
            let waiting = self.unanswered.keys().filter(|n| {
                let sent = &self.book.sent[**n];
                sent.session == at && !sent.certain.is_empty()
            });
            let waiting = waiting.count();
            assert!(
                waiting < STAGING || session.line.is_paused(),
                "{at} is read although {waiting} of its messages wait (P24)"
            );
        }
    }

    fn judged(&mut self) {
        let now = self.clock.elapsed();
        let open = std::mem::take(&mut self.judged);
        for judged in open {
            let Some(answer) = judged.answer.lock().take() else {
                let waited = now - judged.since;
                assert!(
                    waited < Duration::from_secs(5),
                    "an ACK waits for {waited:?} (P27)"
                );
                self.judged.push(judged);
                continue;
            };
            let kind = answer.as_ref().err().map(Error::kind);
            if judged.holds {
                let is_kept = kind == Some(ErrorKind::StoreUnavailable);
                let place = (judged.qid.clone(), judged.got.n);
                let wavers = self.book.doubtful.contains(&place);
                assert!(
                    is_kept || wavers || answer == Ok(false),
                    "{:?} was held: {answer:?} (P9)",
                    judged.got
                );
                continue;
            }
            let is_kept = kind == Some(ErrorKind::StoreUnavailable);
            if judged.is_stale && (answer.is_ok() || is_kept) {
                let held = (judged.got.is_live(), judged.got.n);
                self.book.acked(&judged.qid, judged.got.session, held);
            }
            let is_right =
                is_kept || answer.is_ok() || (judged.is_stale && kind == Some(ErrorKind::StaleAck));
            assert!(
                is_right,
                "{:?} was this session's: {answer:?} (P9)",
                judged.got
            );
        }
    }
}
