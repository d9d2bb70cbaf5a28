//! What clients, time and the store do in a life, and what must be true after each step.

use std::time::Duration;

use super::super::*;
use super::book::*;
use super::bounds::Rooms;
use super::casts::Cast;
use super::life::{Cell, EVENTS, Judged, Life, Marked};
use super::link::Style;
use crate::clock::{Clock, Timestamp};

/// One PRODUCE.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) event: usize,
    pub(super) guaranteed: bool,
    /// Milliseconds.
    pub(super) ttl: Option<u64>,
    pub(super) key: Option<usize>,
    pub(super) confirm: bool,
    /// Milliseconds.
    pub(super) delay: Option<u64>,
    /// By what the store knows it again (P16).
    pub(super) mark: Option<Mark>,
    /// To everybody.
    pub(super) cast: Option<Cast>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Of its instance.
    Number,
    /// The user's own id.
    Name,
}

impl Item {
    /// When it is to be held until.
    pub(super) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let delay = self.delay?;
        Some(now.plus(Duration::from_millis(delay)))
    }
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
        let mut rooms = self.rooms();
        self.note_held(session, from, items, &mut rooms);
        for item in items {
            let mut item = item.clone();
            let keeps = |ttl: &u64| *ttl > 0 || !(is_doubtful || item.delay.is_some());
            item.ttl = item.ttl.filter(keeps);
            let n = self.book.sent.len();
            self.publish(session, from, &item, n, item.confirm.then_some(n));
            if item.mark.is_some() {
                let at = self.clock.elapsed();
                let item = item.clone();
                self.marked.push(Marked { n, from, item, at });
            }
            self.expect(session, from, &item, &mut rooms);
        }
        self.flush(session);
    }

    pub(super) fn flush(&mut self, session: usize) {
        let at = &mut self.sessions[session];
        self.broker.flush(&at.member, &mut at.batch);
    }

    /// PRODUCE of message `n`; the answer comes under `reply`.
    pub(super) fn publish(
        &mut self,
        session: usize,
        from: usize,
        item: &Item,
        n: usize,
        reply: Option<usize>,
    ) {
        let (body, name) = (n.to_string(), format!("p{from}"));
        let key = item.key.map(|key| key.to_string());
        let group = item.cast.and_then(Cast::group);
        let number = (item.mark == Some(Mark::Number)).then_some(("i", n as u64 + 1));
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
            broadcast: item.cast.map(|_| match &group {
                Some(group) => Broadcast::Group(group),
                None => Broadcast::Realm,
            }),
            uid: (item.mark == Some(Mark::Name)).then_some(&*body),
            instance_seq: number,
            ordering_key: key.as_deref(),
            due: item.due(self.clock.now()),
        };
        let replies = self.replies.clone();
        let reply = reply.map(|at| {
            let reply = move |result| replies.lock().push((at, result));
            Box::new(reply) as Reply
        });
        let at = &mut self.sessions[session];
        self.broker
            .publish(&at.member, &mut at.batch, request, reply);
        self.producers.entry(from).or_insert((session, None));
    }

    /// What has to come of a PRODUCE.
    fn expect(&mut self, session: usize, from: usize, item: &Item, rooms: &mut Rooms) {
        let n = self.book.sent.len();
        let ttl = item
            .ttl
            .map_or(Duration::from_secs(86_400), Duration::from_millis);
        let now = self.clock.now();
        let due = item.due(now);
        let mut sent = Sent {
            session,
            from,
            event: item.event,
            guaranteed: item.guaranteed,
            online_only: ttl.is_zero(),
            expires: due.unwrap_or(now).plus(ttl),
            key: item.key,
            is_guarded: item.guaranteed || item.mark.is_some() || due.is_some(),
            is_delayed: due.is_some(),
            is_loose: item.cast.is_some(),
            is_cast: item.cast.is_some(),
            is_held: false,
            full: 0,
            may_be_full: false,
            is_refused: false,
            // The order is that of the produces, not of their due times.
            is_late: due.is_some(),
            is_nowhere: false,
            certain: Vec::new(),
            possible: Vec::new(),
        };
        if let Some(cast) = item.cast {
            self.expect_cast(n, &sent, cast);
        } else if due.is_none() {
            self.find_takers(&mut sent, rooms);
        } else if rooms.delayed == 0 {
            sent.full = 1;
        } else if !self.is_refusing {
            rooms.delayed -= 1;
        }
        self.doubt_held(&mut sent, rooms);
        let is_stored = !sent.certain.is_empty() || due.is_some();
        sent.is_nowhere = (self.is_refusing && is_stored) || sent.is_full();
        sent.is_refused = sent.is_nowhere && sent.is_guarded;
        let may_fail = self.is_refusing || sent.full > 0 || sent.may_be_full;
        let is_doubtful = !sent.possible.is_empty() && may_fail;
        // Without an answer only a store in good health is sure to have it.
        let is_sure =
            !item.confirm && !self.is_stalled && !self.is_refusing && self.unanswered.is_empty();
        match due {
            Some(due) if !sent.is_nowhere => {
                self.held.insert(n, due);
            }
            Some(_) => {}
            None if sent.is_cast => {}
            None => {
                self.book.store(n, &sent, is_sure);
                self.crowd(&[&sent.certain[..], &sent.possible].concat());
                self.expect_live(n, &sent, is_doubtful);
            }
        }
        let now = self.clock.elapsed();
        if item.confirm {
            self.unanswered.insert(n, now);
        } else if self.is_stalled {
            self.unasked.insert(n, now);
        }
        self.book.sent.push(sent);
    }

    /// Whose queues take it now.
    pub(super) fn find_takers(&self, sent: &mut Sent, rooms: &mut Rooms) {
        if sent.online_only {
            return;
        }
        for (qid, queue) in &self.book.queues {
            if !matches(qid.0, sent) {
                continue;
            }
            let takes = queue.takes(sent.guaranteed);
            let has_room = match rooms.queues.get_mut(qid) {
                Some(room) if takes > Tri::No && *room > 0 => {
                    *room -= 1;
                    true
                }
                room => room.is_none(),
            };
            match takes {
                Tri::Yes if !has_room && rooms.uncertain.contains(qid) => {
                    sent.may_be_full = true;
                    sent.possible.push(qid.clone());
                }
                Tri::Yes if !has_room => sent.full += 1,
                Tri::Yes => sent.certain.push(qid.clone()),
                Tri::Maybe => {
                    sent.may_be_full |= !has_room;
                    rooms.uncertain.insert(qid.clone());
                    sent.possible.push(qid.clone());
                }
                Tri::No => {}
            }
        }
    }

    /// Which subscriptions must get a live copy.
    pub(super) fn expect_live(&mut self, n: usize, sent: &Sent, is_doubtful: bool) {
        let has_takers = !sent.certain.is_empty() || !sent.possible.is_empty();
        let waits = self.is_stalled && has_takers;
        if sent.is_refused || (sent.is_guarded && (is_doubtful || waits)) {
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
                    let entry = queue.entries.get_mut(&n).unwrap();
                    entry.end = Some(End::Settled);
                    entry.was_received = true;
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
        self.refuse_held();
    }
}
