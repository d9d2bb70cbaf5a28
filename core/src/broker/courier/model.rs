//! Random lives of a queue: clients come, go, freeze, ack, nack, time out and crash; the store stalls
//! and fails; the process dies. [`super::bench`] checks every delivery; here is what must be true at
//! the end: nothing is lost, nothing is settled without a reason, failures are counted.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use crate::clock::Timestamp;
use crate::store::Seq;

use super::super::ports::SessionId;
use super::super::queue::{Leave, Mode, Outcome, What};
use super::bench::{Bench, Got, Health, TIMEOUT, message};
use super::{Input, Slot, Style};

#[derive(Debug, Clone)]
enum Op {
    Publish {
        key: Option<usize>,
        ttl: Option<u64>,
        fed: bool,
    },
    Attach {
        session: u64,
        mode: usize,
        prefetch: u32,
    },
    Leave {
        session: u64,
        how: usize,
    },
    Ack {
        session: u64,
        nth: usize,
    },
    Nack {
        session: u64,
        nth: usize,
        requeue: bool,
    },
    /// A verdict from nowhere.
    Stray {
        seq: Seq,
        attempt: u32,
        kind: usize,
    },
    Confirm {
        session: u64,
    },
    Freeze {
        session: u64,
        accepts: bool,
    },
    Pause {
        session: u64,
        paused: bool,
    },
    Advance {
        millis: u64,
    },
    Store(Health),
    Crash,
}

fn ops() -> impl Strategy<Value = Op> {
    let session = 0u64..4;
    let key = prop::option::weighted(0.4, 0usize..3);
    let ttl = prop::option::weighted(0.1, 1_000u64..60_000);
    prop_oneof![
        8 => (key, ttl, prop::bool::weighted(0.8))
            .prop_map(|(key, ttl, fed)| Op::Publish { key, ttl, fed }),
        4 => (session.clone(), 0usize..5, 1u32..6)
            .prop_map(|(session, mode, prefetch)| Op::Attach { session, mode, prefetch }),
        2 => (session.clone(), 0usize..4).prop_map(|(session, how)| Op::Leave { session, how }),
        8 => (session.clone(), 0usize..6).prop_map(|(session, nth)| Op::Ack { session, nth }),
        3 => (session.clone(), 0usize..6, prop::bool::weighted(0.9))
            .prop_map(|(session, nth, requeue)| Op::Nack { session, nth, requeue }),
        2 => (0u64..40, 1u32..4, 0usize..4)
            .prop_map(|(seq, attempt, kind)| Op::Stray { seq, attempt, kind }),
        3 => session.clone().prop_map(|session| Op::Confirm { session }),
        2 => (session.clone(), any::<bool>())
            .prop_map(|(session, accepts)| Op::Freeze { session, accepts }),
        1 => (session, any::<bool>()).prop_map(|(session, paused)| Op::Pause { session, paused }),
        4 => (1u64..15_000).prop_map(|millis| Op::Advance { millis }),
        1 => prop_oneof![Just(Health::Well), Just(Health::Silent), Just(Health::Failing)]
            .prop_map(Op::Store),
        1 => Just(Op::Crash),
    ]
}

struct Life {
    bench: Bench,
    /// What clients have settled, or may have.
    done: BTreeSet<Seq>,
}

impl Life {
    fn new(max_attempts: u32) -> Self {
        let mut bench = Bench::new();
        bench.max_attempts = max_attempts;
        bench.page = 3;
        Self {
            bench,
            done: BTreeSet::new(),
        }
    }

    fn apply(&mut self, op: Op) {
        let bench = &mut self.bench;
        match op {
            Op::Publish { key, ttl, fed } => {
                let expires = ttl.map(|ttl| bench.now.wall.plus(Duration::from_millis(ttl)));
                let key = key.map(|key| ["A", "B", "C"][key]);
                // A store that fails takes nothing.
                if bench.health != Health::Failing {
                    bench.publish(message(key, expires, 10), fed);
                }
            }
            Op::Attach {
                session,
                mode,
                prefetch,
            } => {
                // A session keeps its window while it lives: the bench compares with one.
                if !bench.clients.contains_key(&session) {
                    let ack = Mode::Ack { timeout: TIMEOUT };
                    let mode = [ack, ack, ack, Mode::Confirm, Mode::Flush][mode];
                    bench.attach(session, mode, prefetch);
                } else if let Some(client) = bench.clients.get(&session) {
                    let (mode, prefetch) = (client.mode, client.prefetch);
                    bench.attach(session, mode, prefetch);
                }
            }
            Op::Leave { session, how } => {
                let hows = [
                    Leave::Closed,
                    Leave::Returned,
                    Leave::Failed,
                    Leave::Unsubscribed,
                ];
                bench.leave(session, hows[how]);
            }
            Op::Ack { session, nth } => self
                .done
                .extend(bench.ack(session, nth).and_then(Slot::seq)),
            Op::Nack {
                session,
                nth,
                requeue,
            } => {
                bench.nack(session, nth, requeue);
            }
            Op::Stray { seq, attempt, kind } => self.stray(seq, attempt, kind),
            Op::Confirm { session } => {
                self.note_received(session);
                self.bench.confirm(session);
            }
            Op::Freeze { session, accepts } => {
                if let Some(client) = bench.clients.get_mut(&session) {
                    client.accepts = accepts;
                    if accepts {
                        bench.tell(Input::Writable(SessionId(session)));
                    }
                }
            }
            Op::Pause { session, paused } => {
                if let Some(client) = bench.clients.get_mut(&session) {
                    client.was_paused = true;
                    let session = SessionId(session);
                    let input = if paused {
                        Input::Pause(session)
                    } else {
                        Input::Resume(session)
                    };
                    bench.tell(input);
                }
            }
            Op::Advance { millis } => bench.advance(Duration::from_millis(millis)),
            Op::Store(Health::Well) => bench.heal(),
            Op::Store(health) => bench.health = health,
            Op::Crash => bench.crash(),
        }
    }

    /// A verdict from nowhere: only on something nobody holds, else it is like an ordinary one.
    fn stray(&mut self, seq: Seq, attempt: u32, kind: usize) {
        let slot = Slot::stored(seq);
        let held = self
            .bench
            .clients
            .values()
            .any(|c| c.holds.iter().any(|got| got.slot == slot));
        if held {
            return;
        }
        let nack = |requeue| What::Nack {
            delay: None,
            requeue,
            reason: Some("no".into()),
        };
        let what = [What::Ack, What::Working, nack(true), nack(false)][kind].clone();
        if what == What::Ack {
            self.done.insert(seq);
        }
        self.bench.verdict(slot, Some(attempt), what, "stray");
    }

    /// The pong of a session settles what it received without ack.
    fn note_received(&mut self, session: u64) {
        if let Some(client) = self
            .bench
            .clients
            .get(&session)
            .filter(|client| client.asked)
        {
            let unacked = |got: &&Got| !matches!(got.style, Style::Tracked(_));
            let received = client.holds.iter().filter(unacked);
            self.done.extend(received.filter_map(|got| got.slot.seq()));
        }
    }

    /// Everybody behaves: all that is left comes out and is acked.
    fn drain(&mut self) {
        for session in self.bench.clients.keys().copied().collect::<Vec<_>>() {
            self.bench.leave(session, Leave::Closed);
        }
        self.bench.heal();
        self.bench.advance(Duration::from_secs(30));
        assert!(self.bench.state.is_finished(), "the courier does not end");
        self.bench.restart();
        self.bench.ack_session(9, 2);
        self.bench.tell(Input::Wake);
        for _ in 0..2000 {
            let slot = self.bench.ack(9, 0);
            self.done.extend(slot.and_then(Slot::seq));
            if slot.is_none() {
                if self.bench.maps.low == self.bench.maps.log.len() as Seq
                    && self.bench.maps.rows.is_empty()
                {
                    break;
                }
                self.bench.advance(Duration::from_secs(2));
            }
        }
    }

    fn check(&self, flushed: bool) {
        let bench = &self.bench;
        let log = &bench.maps.log;
        assert!(
            bench.maps.rows.is_empty(),
            "rows are left: {:?}",
            bench.maps.rows
        );
        for seq in 1..=log.len() as Seq {
            let expired: bool = log[seq as usize - 1].is_expired(bench.now.wall);
            let dead = bench.maps.dead.contains_key(&seq);
            assert!(
                bench.maps.is_settled(seq),
                "{seq} is neither settled nor dead"
            );
            assert!(
                flushed || dead || expired || self.done.contains(&seq),
                "{seq} was lost: settled, and nobody did it"
            );
        }
        for (seq, burial) in &bench.maps.dead {
            let known = bench.known.get(&Slot::stored(*seq));
            let known = known.cloned().unwrap_or_default();
            let by_failures = known.failures >= bench.max_attempts;
            let by_wish = &*burial.reason == "no";
            assert!(
                by_failures || by_wish || bench.crashed,
                "{seq} was buried too early"
            );
            assert!(burial.attempts >= known.sends.min(1));
        }
        for (slot, known) in &bench.known {
            let seq = slot.number();
            let settled = self.done.contains(&seq) || bench.maps.dead.contains_key(&seq);
            let expired = log[seq as usize - 1].is_expired(bench.now.wall);
            let too_many = known.failures >= bench.max_attempts;
            assert!(
                !too_many || settled || expired,
                "{seq} outlived its attempts"
            );
        }
        for (tag, outcome) in bench.answers.lock().iter() {
            let refused = matches!(outcome, Outcome::Failed(_));
            assert!(!refused, "{tag} was refused: {outcome:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_is_lost_and_every_rule_holds(
        max_attempts in 1u32..4,
        ops in prop::collection::vec(ops(), 1..150),
    ) {
        let mut life = Life::new(max_attempts);
        let flushed = ops.iter().any(|op| matches!(op, Op::Attach { mode: 4, .. }));
        for op in ops {
            life.apply(op);
        }
        life.drain();
        life.check(flushed);
        prop_assert!(life.bench.state.held.is_empty());
        prop_assert!(life.bench.now.wall > Timestamp(0));
    }
}
