//! What clients, time and the store do in a life, and what must be true after each step.

use std::time::Duration;

use super::super::*;
use super::book::*;
use super::life::{Cell, EVENTS, Judged, Life};
use super::link::Style;

/// One PRODUCE.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) event: usize,
    pub(super) guaranteed: bool,
    /// Milliseconds.
    pub(super) ttl: Option<u64>,
    pub(super) key: Option<usize>,
    pub(super) confirm: bool,
}

impl Life {
    /// One read of a session: its PRODUCEs in one batch.
    pub(super) fn produce(&mut self, session: usize, from: usize, items: &[Item]) {
        if self.sessions[session].line.is_paused() {
            return; // nobody reads
        }
        // Where a plain subscription has a queue that is durable (still), `ttl: 0` comes both ways.
        let takes_all = |qid: &Qid| {
            self.book
                .queues
                .get(qid)
                .is_some_and(|queue| queue.every > Tri::No)
        };
        let mut plain = self.book.subs.values().filter(|sub| !sub.is_durable);
        let is_doubtful = plain.any(|sub| sub.qid.as_ref().is_some_and(takes_all));
        let mut batch = std::mem::take(&mut self.sessions[session].batch);
        let member = self.sessions[session].member.clone();
        for item in items {
            let mut item = item.clone();
            item.ttl = item.ttl.filter(|ttl| *ttl > 0 || !is_doubtful);
            let n = self.book.sent.len();
            let body = n.to_string();
            let key = item.key.map(|key| key.to_string());
            let name = format!("p{from}");
            let request = PublishRequest {
                content: Content {
                    event: EVENTS[item.event],
                    from: &name,
                    body: Some(&body),
                    attachments: &[],
                    enc: None,
                    to: None,
                    content_type: None,
                    headers: None,
                },
                producer_id: None,
                ttl: item.ttl.map(Duration::from_millis),
                guaranteed: item.guaranteed,
                broadcast: None,
                uid: None,
                instance_seq: None,
                ordering_key: key.as_deref(),
                due: None,
                owner: None,
            };
            let replies = self.replies.clone();
            let reply = move |result| replies.lock().push((n, result));
            let reply = item.confirm.then(|| Box::new(reply) as Reply);
            self.broker.publish(&member, &mut batch, request, reply);
            self.producers.entry(from).or_insert((session, None));
            self.expect(session, from, &item);
        }
        self.broker.flush(&member, &mut batch);
        self.sessions[session].batch = batch;
    }

    /// What has to come of a PRODUCE.
    fn expect(&mut self, session: usize, from: usize, item: &Item) {
        let n = self.book.sent.len();
        let ttl = item
            .ttl
            .map_or(Duration::from_secs(86_400), Duration::from_millis);
        let mut sent = Sent {
            session,
            from,
            event: item.event,
            guaranteed: item.guaranteed,
            online_only: ttl.is_zero(),
            expires: self.clock.now().plus(ttl),
            key: item.key,
            is_refused: false,
            is_late: false,
            is_nowhere: false,
            certain: Vec::new(),
            possible: Vec::new(),
        };
        let takers = self
            .book
            .queues
            .iter()
            .filter(|((key, _), _)| matches(*key, &sent));
        let takers = takers.map(|(qid, queue)| (qid.clone(), queue.takes(item.guaranteed)));
        let takers: Vec<(Qid, Tri)> = takers.filter(|_| !ttl.is_zero()).collect();
        for (qid, takes) in takers {
            match takes {
                Tri::Yes => sent.certain.push(qid),
                Tri::Maybe => sent.possible.push(qid),
                Tri::No => {}
            }
        }
        let is_stored = !sent.certain.is_empty();
        sent.is_nowhere = self.is_refusing && is_stored;
        sent.is_refused = sent.is_nowhere && item.guaranteed;
        let is_doubtful = !sent.possible.is_empty() && self.is_refusing;
        // Without an answer only a store in good health is sure to have it.
        let is_sure =
            !item.confirm && !self.is_stalled && !self.is_refusing && self.unanswered.is_empty();
        if !sent.is_nowhere {
            for (qid, must) in sent
                .certain
                .iter()
                .map(|qid| (qid, is_sure))
                .chain(sent.possible.iter().map(|qid| (qid, false)))
            {
                let queue = self.book.queues.entry(qid.clone()).or_default();
                let must = must && queue.takes(item.guaranteed) == Tri::Yes;
                queue.is_plain_sailing &= item.key.is_none();
                queue.entries.insert(
                    n,
                    Entry {
                        must,
                        ..Entry::default()
                    },
                );
            }
        }
        self.expect_live(n, &sent, is_doubtful);
        let now = self.clock.elapsed();
        if item.confirm {
            self.unanswered.insert(n, now);
        } else if self.is_stalled {
            self.unasked.insert(n, now);
        }
        self.book.sent.push(sent);
    }

    /// Which subscriptions must get a live copy.
    fn expect_live(&mut self, n: usize, sent: &Sent, is_doubtful: bool) {
        let has_takers = !sent.certain.is_empty() || !sent.possible.is_empty();
        let waits = self.is_stalled && has_takers;
        if sent.is_refused || (sent.guaranteed && (is_doubtful || waits)) {
            return; // nobody, or nobody knows yet
        }
        let is_kept = sent.guaranteed && !sent.online_only;
        let comes_live = |sub: &Sub| {
            let is_plain = !sub.is_durable && sub.wish.who != Who::Group;
            let is_stored = is_kept && sub.remembered != Tri::No;
            is_plain && !is_stored && sub.enrolled == Tri::Yes
        };
        for ((to, _, key), sub) in &self.book.subs {
            if matches(*key, sent) && comes_live(sub) {
                let live = self.book.live.entry((*to, *key, n)).or_default();
                live.must = true;
            }
        }
    }

    pub(super) fn leave(&mut self, session: usize, how: Leave) {
        self.broker.leave(&self.sessions[session].member, how);
        self.left(session, how == Leave::Failed);
    }

    pub(super) fn left(&mut self, session: usize, is_failed: bool) {
        if !self.book.alive.remove(&session) {
            return;
        }
        self.holders.retain(|_, (holder, _)| *holder != session);
        self.producers.retain(|_, (holder, _)| *holder != session);
        let subs = self.book.subs.range((session, 0, 0)..(session + 1, 0, 0));
        let subs = subs.map(|(place, sub)| (*place, sub.qid.clone()));
        for (place, qid) in subs.collect::<Vec<_>>() {
            self.book.just_left.insert((session, place.2), qid);
            self.end_sub(place, is_failed);
        }
        for slot in &mut self.slots {
            *slot = slot.filter(|at| *at != session);
        }
    }

    /// ACK and the like of the `nth` newest delivery of a session.
    pub(super) fn judge(
        &mut self,
        session: usize,
        nth: usize,
        verdict: Verdict,
        says_attempt: bool,
    ) {
        let tracked = &self.sessions[session].tracked;
        let Some((got, qid)) = tracked.iter().rev().nth(nth).cloned() else {
            return;
        };
        let sub = self.book.sub(session, got.key);
        let Style::Tracked(attempt) = got.style else {
            return;
        };
        if sub.is_none_or(|sub| sub.qid.as_ref() != Some(&qid)) {
            return; // the id would name a copy of another queue
        }
        let held = (got.is_live(), got.n);
        let newest = self.book.attempts(&qid, session, held);
        let is_stale = says_attempt && attempt < newest;
        let holds = self.book.holds(&qid, session, held) && !is_stale;
        let is_ack = matches!(verdict, Verdict::Ack);
        if !holds && !is_ack {
            return; // what that means depends on where the delivery is by now
        }
        let answer = Cell::default();
        let told = answer.clone();
        let tell = Box::new(move |result| assert!(told.lock().replace(result).is_none()));
        let member = &self.sessions[session].member;
        let said = says_attempt.then_some(attempt);
        self.broker
            .settle(member, &got.id, said, verdict.clone(), tell);
        if holds {
            self.settled(session, &qid, held, &verdict);
        } else if !is_stale {
            // Late, but it counts (P9).
            self.book.acked(&qid, session, held);
        }
        self.judged.push(Judged {
            qid,
            since: self.clock.elapsed(),
            holds,
            is_stale,
            got,
            answer,
        });
    }

    fn settled(&mut self, session: usize, qid: &Qid, (is_live, n): Held, verdict: &Verdict) {
        let is_expired = self.book.sent[n].expires <= self.clock.now();
        let queue = self.book.queues.get_mut(qid).unwrap();
        let seat = queue.seats.get_mut(&session).unwrap();
        if matches!(verdict, Verdict::Working) {
            let line = seat.line.clone();
            return seat.holds.get_mut(&(is_live, n)).unwrap().restart(&line);
        }
        seat.holds.remove(&(is_live, n));
        let live = self.book.live.get_mut(&(session, qid.0, n));
        match (verdict, is_live) {
            (Verdict::Ack, true) => live.unwrap().is_over = true,
            (Verdict::Ack, false) => queue.entries.get_mut(&n).unwrap().end = Some(End::Settled),
            (Verdict::Nack { requeue, .. }, true) => {
                let live = live.unwrap();
                live.failures += 1;
                live.is_over |= !requeue || live.failures >= MAX_ATTEMPTS;
            }
            (Verdict::Nack { requeue: true, .. }, false) => {
                queue.fail(n, u32::MAX, false, is_expired)
            }
            (Verdict::Nack { .. }, false) => {
                queue.is_plain_sailing = false;
                let end = if is_expired { End::Expired } else { End::Dead };
                queue.entries.get_mut(&n).unwrap().end = Some(end);
            }
            (Verdict::Working, _) => {}
        }
    }

    pub(super) fn pong(&mut self, session: usize) {
        let Some(position) = self.sessions[session].line.pong() else {
            return;
        };
        let member = &self.sessions[session].member;
        self.broker.confirmed(member, position);
        for ((key, _), queue) in &mut self.book.queues {
            let Some(seat) = queue.seats.get_mut(&session) else {
                continue;
            };
            let confirmed = seat
                .holds
                .extract_if(.., |_, hold| !hold.acked && hold.position <= position);
            for ((is_live, n), _) in confirmed.collect::<Vec<_>>() {
                if is_live {
                    self.book.live.get_mut(&(session, *key, n)).unwrap().is_over = true;
                } else {
                    queue.entries.get_mut(&n).unwrap().end = Some(End::Settled);
                }
            }
        }
    }

    pub(super) fn limit(&mut self, session: usize, room: Option<usize>) {
        let at = &mut self.sessions[session];
        at.line.limit(room);
        at.was_limited |= room.is_some();
        if room.is_none() {
            self.broker.writable(&at.member);
        }
    }

    pub(super) fn pause(&mut self, session: usize, paused: bool) {
        let at = &mut self.sessions[session];
        if at.reader_paused == paused {
            return;
        }
        at.reader_paused = paused;
        if paused {
            at.line.pause();
            self.broker.pause(&at.member);
        } else {
            at.line.resume();
            self.broker.resume(&at.member);
        }
    }

    pub(super) fn set_store(&mut self, stalled: bool, refusing: bool) {
        if stalled {
            self.store.stall()
        } else {
            self.store.release()
        }
        self.store
            .refuse(refusing.then_some(ErrorKind::StoreUnavailable));
        self.trouble = Some(self.clock.elapsed());
        (self.is_stalled, self.is_refusing) = (stalled, refusing);
    }
}
