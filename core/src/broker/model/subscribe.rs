//! SUBSCRIBE and UNSUBSCRIBE in a life, and what the store makes of them.

use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::book::*;
use super::life::{Life, NAMES, Opening, SHARED, run};
use super::link::{Line, keys};
use crate::model::*;

impl Life {
    /// SUBSCRIBEs whose queue the store has opened, or not.
    pub(super) fn opened(&mut self) {
        let is_stalled = self.is_stalled;
        let done = |opening: &mut Opening| {
            let answered = opening.answer.lock().as_ref().map(Result::is_ok);
            answered.is_some_and(|ok| !ok || !is_stalled)
        };
        let done: Vec<Opening> = self.openings.extract_if(.., done).collect();
        for (at, opening) in done.iter().enumerate() {
            let same = |other: &Opening| {
                self.qid(0, &other.wish) == self.qid(0, &opening.wish)
                    && other.wish.durable != opening.wish.durable
            };
            let others = done.iter().enumerate().filter(|(other, _)| *other != at);
            let is_contested = others.map(|(_, other)| other).any(same);
            self.opened_one(opening, is_contested);
        }
    }

    fn opened_one(&mut self, opening: &Opening, is_contested: bool) {
        let (session, wish) = (opening.session, &opening.wish);
        let answer = opening.answer.lock().take().unwrap();
        let place = (session, wish.name, wish.key);
        let qid = self
            .qid(session, wish)
            .filter(|qid| !qid.1.starts_with('~'));
        let failed = opening.is_refused && qid.is_some();
        let is_current = self
            .book
            .subs
            .get(&place)
            .is_some_and(|sub| sub.wish == *wish);
        if let Some(qid) = &qid {
            let queue = self.book.queues.entry(qid.clone()).or_default();
            queue.is_promised = false;
            if failed {
                (queue.every, queue.guaranteed) = opening.before;
            } else if self.registry.get(&(wish.name, wish.key)) == Some(wish) {
                queue.every = if wish.durable { Tri::Yes } else { Tri::No };
                queue.guaranteed = Tri::Yes;
                if is_contested {
                    queue.every = Tri::Maybe;
                }
            }
        }
        assert!(
            answer.is_ok() || failed || !self.book.alive.contains(&session),
            "{wish:?} failed: {answer:?}"
        );
        if !is_current {
            return;
        }
        if answer.is_err() {
            assert!(wish.durable, "a plain subscription needs no store (P27)");
            self.registry.remove(&(wish.name, wish.key));
            return self.end_sub(place, false);
        }
        let Some(sub) = self.book.subs.get_mut(&place) else {
            return;
        };
        sub.enrolled = Tri::Yes;
        if let Some(qid) = qid {
            sub.remembered = if failed { Tri::No } else { Tri::Yes };
            let is_durable = sub.is_durable;
            if !failed {
                let line = self.sessions[session].line.clone();
                self.sit(session, &qid, wish, &line, is_durable);
            } else if opening.before == (Tri::No, Tri::No) {
                let qid = format!("~{session}-{}-{}", wish.name, self.book.sent.len());
                sub.qid = wish.ack.then_some((wish.key, qid));
                if let Some(qid) = sub.qid.clone() {
                    let line = self.sessions[session].line.clone();
                    self.sit(session, &qid, wish, &line, is_durable);
                }
            } else {
                sub.remembered = Tri::Maybe;
            }
        }
    }

    pub(super) fn qid(&self, session: usize, wish: &Wish) -> Option<Qid> {
        let is_anonymous = wish.name == 3;
        let who = match wish.who {
            Who::Group if is_anonymous && !wish.durable => None,
            Who::Group => Some(format!("g{}", wish.key)),
            Who::Shared => Some(SHARED.to_owned()),
            Who::Own if is_anonymous => None,
            Who::Own => Some(NAMES[wish.name].to_owned()),
        };
        match who {
            Some(who) => Some((wish.key, who)),
            None if wish.ack => Some((wish.key, format!("~{session}-{}", wish.name))),
            None => None,
        }
    }

    pub(super) fn request(wish: &Wish, name: &str) -> SubscribeRequest {
        let group = (wish.who == Who::Group).then(|| format!("g{}", wish.key));
        let delay = Some(Duration::from_secs(2));
        SubscribeRequest {
            key: keys()[wish.key].clone(),
            consumer: ConsumerName::parse(name).unwrap(),
            id: None,
            consumer_id: (wish.who == Who::Shared).then(|| ConsumerId::parse(SHARED).unwrap()),
            options: SubscriptionOptions {
                durable: wish.durable,
                ack: wish.ack,
                ack_timeout: ACK_TIMEOUT,
                retry: RetryPolicy::new(Some(MAX_ATTEMPTS), delay, Backoff::Fixed, None).unwrap(),
                retry_given: false,
                prefetch: wish.prefetch,
                group: group.map(|group| GroupName::parse(&group).unwrap()),
            },
        }
    }

    pub(super) fn subscribe(&mut self, session: usize, mut wish: Wish) {
        if self.sessions[session].is_waiting {
            return;
        }
        if wish.who != Who::Own {
            // A queue that several share is durable for all of them from the first one on that says
            // so. Those who sat there before are told apart by nobody here.
            let durable = Wish {
                durable: true,
                ..wish.clone()
            };
            let shared = self.qid(session, &durable);
            let mut openings = self.openings.iter();
            let is_opening = openings.any(|opening| self.qid(0, &opening.wish) == shared);
            let queue = shared.and_then(|qid| self.book.queues.get(&qid));
            let is_used = is_opening || queue.is_some_and(|queue| !queue.seats.is_empty());
            match queue.map_or(Tri::No, |queue| queue.every) {
                Tri::Yes => wish.durable = true,
                Tri::Maybe if is_used || !wish.durable => return,
                Tri::Maybe => {}
                Tri::No => wish.durable &= !is_used,
            }
        }
        // A change between durable and plain that the store refuses leaves both (it said no).
        let wanted = if wish.durable { Tri::Yes } else { Tri::No };
        let queue = self
            .qid(session, &wish)
            .and_then(|qid| self.book.queues.get(&qid));
        let changes =
            queue.is_some_and(|queue| queue.is_known() > Tri::No && queue.every != wanted);
        if changes && self.is_refusing {
            return;
        }
        // Two names of one session on one key would be told apart by nobody, unless they share all.
        let others = self.book.subs.range((session, 0, 0)..(session + 1, 0, 0));
        let mut others =
            others.filter(|((_, name, key), _)| *key == wish.key && *name != wish.name);
        if others.next().is_some() {
            return;
        }
        let request = Self::request(&wish, NAMES[wish.name]);
        let member = self.sessions[session].member.clone();
        let holder = self.holders.get(&wish.name).map(|(holder, _)| *holder);
        if holder != Some(session) {
            // What the name listens to comes with it, one day perhaps; see above.
            let subs = self.book.subs.range((session, 0, 0)..(session + 1, 0, 0));
            let mut others = subs.filter(|((_, name, _), _)| *name != wish.name);
            let comes = |key: usize| self.registry.contains_key(&(wish.name, key));
            if others.any(|((.., key), _)| holder.is_some() || comes(*key)) {
                return;
            }
            let answer = run(self.broker.subscriber(&member, &request));
            return self.claim(session, wish.name, None, Some(wish), answer);
        }
        let answer = run(self.broker.subscribe(&member, request));
        self.registry.insert((wish.name, wish.key), wish.clone());
        self.enlist(session, &wish, true);
        let qid = self.qid(session, &wish);
        let mut before = (Tri::No, Tri::No);
        if let Some(qid) = qid.filter(|qid| !qid.1.starts_with('~')) {
            let queue = self.book.queues.entry(qid).or_default();
            before = (queue.every, queue.guaranteed);
            let wanted = if wish.durable { Tri::Yes } else { Tri::No };
            queue.every = if before.0 == wanted {
                wanted
            } else {
                Tri::Maybe
            };
            queue.guaranteed = before.1.max(Tri::Maybe);
            queue.is_promised |= !wish.durable && !wish.ack && !self.is_refusing;
            self.take_held(&wish, session);
        }
        self.openings.push(Opening {
            session,
            wish,
            before,
            is_refused: self.is_refusing,
            answer,
        });
    }

    /// What a subscription is at once, before the store has said anything.
    pub(super) fn enlist(&mut self, session: usize, wish: &Wish, attaches: bool) {
        let qid = self.qid(session, wish);
        let named = qid.clone().filter(|qid| !qid.1.starts_with('~'));
        let known = named.as_ref().map_or(Tri::No, |qid| {
            self.book.queues.get(qid).map_or(Tri::No, Queue::is_known)
        });
        let place = (session, wish.name, wish.key);
        let old = self.book.subs.remove(&place);
        let is_volatile = |qid: &Qid| qid.1.starts_with('~');
        let before = old.as_ref().and_then(|old| old.qid.clone());
        let qid = match before.filter(is_volatile) {
            // The one it has goes on.
            Some(before) if qid.as_ref().is_some_and(is_volatile) => Some(before),
            _ => qid,
        };
        let was_group = old.as_ref().is_some_and(|old| old.wish.who == Who::Group);
        if was_group && wish.who != Who::Group {
            self.book.moved.insert((session, wish.key));
        }
        let keeps_seat = old
            .as_ref()
            .is_some_and(|old| old.qid == qid && qid.is_some());
        let had_to_ack = old.as_ref().is_some_and(|old| old.wish.ack);
        if let Some(old) = old
            && !keeps_seat
            && let Some(old) = old.qid
        {
            self.book.unseat(session, &old, false, self.clock.now());
        }
        if keeps_seat {
            self.keep_live(session, wish.key, had_to_ack, qid.as_ref());
        } else {
            self.book
                .live
                .retain(|(of, key, _), _| (*of, *key) != (session, wish.key));
        }
        self.book.forget_order(session, wish.key);
        let qid = match attaches {
            true => qid,
            // Live copies that must be acked have a queue of their own until SUBSCRIBE.
            false => wish
                .ack
                .then(|| (wish.key, format!("~{session}-{}", wish.name))),
        };
        let is_stored = qid.as_ref().is_some_and(|qid| !qid.1.starts_with('~'));
        let is_durable = wish.durable && named.is_some();
        let enrolled = match is_stored && wish.ack && known != Tri::Yes {
            true => Tri::Maybe,
            false => Tri::Yes,
        };
        let line = self.sessions[session].line.clone();
        if let Some(qid) = &qid
            && (!is_stored || known == Tri::Yes)
        {
            self.sit(session, qid, wish, &line, is_durable);
        }
        let sub = Sub {
            wish: wish.clone(),
            qid,
            enrolled,
            remembered: match (attaches, named.is_some()) {
                (_, false) => Tri::No,
                (true, true) => Tri::Maybe,
                (false, true) => known,
            },
            is_durable,
        };
        self.book.subs.insert(place, sub);
    }

    /// What is out stays out; what is on its way may come or not.
    fn keep_live(&mut self, session: usize, key: usize, had_to_ack: bool, qid: Option<&Qid>) {
        let own = (session, key, 0)..(session, key + 1, 0);
        let mut awaits = false;
        for (_, live) in self.book.live.range_mut(own) {
            live.must = false;
            awaits |= had_to_ack && !live.is_over;
        }
        let queue = qid.and_then(|qid| self.book.queues.get_mut(qid));
        if let Some(seat) = queue.and_then(|queue| queue.seats.get_mut(&session)) {
            seat.was_acked |= awaits;
        }
    }

    fn sit(&mut self, session: usize, qid: &Qid, wish: &Wish, line: &Arc<Line>, is_durable: bool) {
        let queue = self.book.queues.entry(qid.clone()).or_default();
        // Without acks the window adapts, from where it was when the session subscribes again.
        let before = queue.seats.get(&session).map(|seat| seat.is_exact);
        let is_exact = match before {
            None => wish.ack || is_durable,
            Some(was_exact) => was_exact && wish.ack,
        };
        let seat = Seat::new(line, wish.prefetch, is_exact);
        let seat = queue.seats.entry(session).or_insert(seat);
        seat.prefetch = wish.prefetch;
        seat.is_exact = is_exact;
    }

    pub(super) fn end_sub(&mut self, place: (usize, usize, usize), is_failed: bool) {
        let Some(sub) = self.book.subs.remove(&place) else {
            return;
        };
        self.book.end_live(place.0, place.2);
        if let Some(qid) = sub.qid {
            self.book.unseat(place.0, &qid, is_failed, self.clock.now());
        }
    }

    pub(super) fn unsubscribe(&mut self, session: usize, name: usize, key: usize, purge: bool) {
        let is_held = self
            .holders
            .get(&name)
            .is_some_and(|(holder, _)| *holder == session);
        let pending = |opening: &Opening| opening.wish.key == key;
        if self.sessions[session].is_waiting || self.openings.iter().any(pending) {
            return;
        }
        let request = UnsubscribeRequest {
            what: Unsubscribe::Key(keys()[key].clone()),
            consumer: Some(ConsumerName::parse(NAMES[name]).unwrap()),
            purge,
            detach: false,
            consumer_id: None,
        };
        let member = self.sessions[session].member.clone();
        let answer = run(self.broker.unsubscribe(&member, request));
        if !is_held {
            return;
        }
        drop(answer);
        let wish = self.registry.remove(&(name, key));
        self.end_sub((session, name, key), false);
        let qid = match &wish {
            Some(wish) => self.qid(session, wish),
            // A queue of an id of the name, whichever comes first.
            None => None,
        };
        let mut meant: Vec<Qid> = qid
            .into_iter()
            .filter(|qid| !qid.1.starts_with('~'))
            .collect();
        let is_sure = wish.is_some() && !self.is_refusing;
        if wish.is_none() {
            meant = vec![(key, NAMES[name].to_owned()), (key, SHARED.to_owned())];
        }
        for qid in meant {
            let shared = self
                .registry
                .values()
                .any(|other| self.qid(session, other).as_ref() == Some(&qid));
            let Some(queue) = self.book.queues.get_mut(&qid) else {
                continue;
            };
            if !queue.seats.is_empty() || shared {
                continue;
            }
            let level = if is_sure { Tri::No } else { Tri::Maybe };
            queue.every = queue.every.min(level);
            queue.guaranteed = queue.guaranteed.min(level);
            for entry in queue.entries.values_mut() {
                entry.was_left = true;
                entry.must &= !purge;
                if purge && is_sure {
                    entry.end.get_or_insert(End::Purged);
                }
            }
        }
    }
}
