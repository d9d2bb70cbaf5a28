//! The end of a life: everybody reads, everybody comes back, time goes by. Then nothing is missing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::*;
use super::book::*;
use super::life::Life;
use crate::model::*;
use crate::store::QueueKind;

impl Life {
    /// Plain messages that were dropped were counted and told (P23). Comes before sessions leave.
    pub(super) async fn settle_accounts(&mut self) {
        self.set_store(false, false);
        self.observe().await;
        self.pass(20).await;
        for session in self.book.alive.clone() {
            self.pause(session, false);
            self.limit(session, None);
        }
        for _ in 0..60 {
            self.observe().await;
            for session in self.book.alive.clone() {
                self.pong(session);
                while self.ack_one(session) {}
            }
        }
        self.pass(20).await;
        for at in self.book.alive.clone() {
            let session = &self.sessions[at];
            let own = self.book.live.iter().filter(|((of, ..), _)| *of == at);
            let now = self.clock.now();
            let missing = own.filter(|((_, key, n), live)| {
                let sent = &self.book.sent[*n];
                let is_expired = !sent.online_only && sent.expires <= now;
                let is_acked = self.book.sub(at, *key).is_some_and(|sub| sub.wish.ack);
                live.must && live.attempts == 0 && !is_acked && !is_expired
            });
            let missing: Vec<_> = missing.map(|((_, key, n), _)| (*key, *n)).collect();
            assert!(
                missing.len() as u64 <= session.gaps,
                "{at} was told of {} lost messages and misses {missing:?} (P23)",
                session.gaps
            );
            assert!(
                session.was_limited || session.gaps == 0,
                "{at} took everything and was told of {} lost messages",
                session.gaps
            );
        }
    }

    async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.observe().await;
        }
    }

    /// Acks one delivery that the session holds; whether there was one.
    fn ack_one(&mut self, session: usize) -> bool {
        let tracked = &self.sessions[session].tracked;
        let held = tracked
            .iter()
            .rev()
            .position(|(got, qid)| self.book.holds(qid, session, (got.is_live(), got.n)));
        if let Some(nth) = held {
            self.judge(session, nth, Verdict::Ack, false);
        }
        held.is_some()
    }

    /// Every queue's consumer comes back and acks all it gets.
    pub(super) async fn drain(&mut self) {
        for session in self.book.alive.clone() {
            self.leave(session, Leave::Closed);
        }
        self.observe().await;
        let owing = self.book.queues.iter().filter(|(_, queue)| {
            let mut entries = queue.entries.values();
            queue.is_known() == Tri::Yes || entries.any(|entry| entry.must && entry.end.is_none())
        });
        let owing: Vec<Qid> = owing.map(|(qid, _)| qid.clone()).collect();
        for (key, id) in owing {
            let (name, who) = match id.strip_prefix('c') {
                Some(name) => (name.parse().unwrap(), Who::Own),
                None if id.starts_with('g') => (1, Who::Group),
                None => (0, Who::Shared),
            };
            let wish = Wish {
                name,
                key,
                who,
                durable: true,
                ack: true,
                prefetch: 4,
            };
            let session = self.join(None);
            self.subscribe(session, wish);
            self.observe().await;
            let mut idle = 0;
            for _ in 0..400 {
                let mut any = false;
                while self.ack_one(session) {
                    any = true;
                }
                self.observe().await;
                if !any {
                    idle += 1;
                    self.clock.advance(Duration::from_secs(3));
                    self.observe().await;
                }
                if idle > 6 {
                    break;
                }
            }
            self.leave(session, Leave::Closed);
            self.observe().await;
        }
    }

    /// Nothing that was accepted is missing, and what is dead died for a reason (P3, P10).
    pub(super) async fn check(&mut self) {
        let now = self.clock.now();
        for (qid, queue) in &self.book.queues {
            for (n, entry) in &queue.entries {
                let is_expired = self.book.sent[*n].expires <= now;
                assert!(
                    !entry.must || entry.end.is_some() || is_expired,
                    "{n} {entry:?} was lost in {qid:?} (P3)"
                );
            }
        }
        let dead = self.broker.dead_letters(&RealmId::default(), None, 10_000);
        let dead: BTreeSet<(String, usize)> = dead
            .await
            .unwrap()
            .into_iter()
            .map(|letter| {
                let body = std::str::from_utf8(letter.message.body.as_ref().unwrap());
                let is_group = letter.kind == QueueKind::Group;
                assert!(!is_group || letter.name.starts_with('g'));
                (
                    format!("{} {}", letter.key.wire_name(), letter.name),
                    body.unwrap().parse().unwrap(),
                )
            })
            .collect();
        let keys = super::link::keys();
        let name = |(key, id): &Qid| format!("{} {id}", keys[*key].wire_name());
        let doubtful = self.book.doubtful.iter().map(|(qid, n)| (name(qid), *n));
        let doubtful = doubtful.collect::<BTreeSet<_>>();
        let is_loose = |n: usize| self.book.sent[n].is_loose;
        let dead = dead.difference(&doubtful);
        let dead: BTreeSet<_> = dead.filter(|(_, n)| !is_loose(*n)).cloned().collect();
        let mut buried = BTreeSet::new();
        for (qid, queue) in &self.book.queues {
            let ends = queue
                .entries
                .iter()
                .filter(|(_, entry)| entry.end == Some(End::Dead));
            buried.extend(ends.map(|(n, _)| (name(qid), *n)));
        }
        let buried: BTreeSet<_> = buried.difference(&doubtful).cloned().collect();
        assert_eq!(dead, buried, "dead letters (P10)");
        assert!(
            self.unanswered.is_empty(),
            "never answered (P2): {:?}",
            self.unanswered
        );
        assert!(self.judged.is_empty(), "ACKs were never answered (P27)");
        let mut repeats = self.repeats.values();
        let is_answered = repeats.all(|repeated| repeated.since.is_none());
        assert!(is_answered, "a repeat was never answered (P2)");
        assert!(self.held.is_empty(), "never due: {:?} (P17)", self.held);
    }
}
