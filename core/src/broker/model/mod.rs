//! Random lives of a whole broker over a store in trouble: clients come, go, freeze, take over each
//! other's names, produce, ack and forget to; time goes by; the store stalls and refuses.
//!
//! [`book`] says what must come of it and checks every delivery; [`life`] and [`acts`] do it.
//! `RESTANTE_LONG=1` runs many more lives, `PROPTEST_CASES` as many as it says.

mod acts;
mod again;
mod book;
mod bounds;
mod cases;
mod casts;
mod deliver;
mod due;
mod end;
mod held;
mod life;
mod link;
mod names;
mod restart;
mod steps;
mod subscribe;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::{Leave, Verdict};
use crate::store::{Bounds, MemoryStore, Overflow, SharedStore};
use acts::{Item, Mark};
use book::{Who, Wish};
use casts::Cast;
use life::Life;

#[derive(Debug, Clone)]
enum Op {
    /// CONSUMER by a new connection; the one in the slot goes on without us.
    Connect {
        slot: usize,
        name: usize,
        instance: Option<u8>,
        acked: Option<bool>,
    },
    Leave {
        slot: usize,
        how: Leave,
    },
    Producer {
        slot: usize,
        name: usize,
        instance: Option<u8>,
    },
    Subscribe {
        slot: usize,
        wish: Wish,
    },
    Unsubscribe {
        slot: usize,
        name: usize,
        key: usize,
        purge: bool,
    },
    Produce {
        slot: usize,
        from: usize,
        items: Vec<Item>,
    },
    Judge {
        slot: usize,
        nth: usize,
        verdict: Verdict,
        says_attempt: bool,
    },
    Pong {
        slot: usize,
    },
    Limit {
        slot: usize,
        room: Option<usize>,
    },
    Pause {
        slot: usize,
        paused: bool,
    },
    Silent {
        slot: usize,
        silent: bool,
    },
    /// A numbered message is sent again.
    Repeat {
        slot: usize,
        nth: usize,
    },
    Advance {
        millis: u64,
    },
    /// The broker ends, with a word to its sessions or without, and another one takes its place.
    Restart {
        crashed: bool,
    },
    Store {
        stalled: bool,
        refusing: bool,
    },
}

fn wishes() -> impl Strategy<Value = Wish> {
    let who = prop_oneof![4 => Just(Who::Own), 2 => Just(Who::Shared), 2 => Just(Who::Group)];
    let flags = (prop::bool::weighted(0.6), any::<bool>());
    (0usize..4, 0usize..4, who, flags, 1u32..6).prop_map(|(name, key, who, flags, prefetch)| {
        let (durable, ack) = flags;
        Wish {
            name,
            key,
            who,
            durable,
            ack,
            prefetch,
        }
    })
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let ttl =
        prop_oneof![8 => Just(None), 1 => Just(Some(0)), 2 => (500u64..20_000).prop_map(Some)];
    let key = prop::option::weighted(0.2, 0usize..2);
    let delay = prop::option::weighted(0.15, 1u64..12_000);
    let mark = prop_oneof![
        6 => Just(None), 1 => Just(Some(Mark::Number)), 1 => Just(Some(Mark::Name)),
    ];
    let flags = (any::<bool>(), any::<bool>());
    let item = (0usize..2, flags, ttl, key, delay, mark);
    let item = item.prop_map(
        |(event, (guaranteed, confirm), ttl, key, delay, mark)| Item {
            event,
            guaranteed,
            ttl,
            key,
            confirm,
            delay,
            mark,
            cast: None,
        },
    );
    let cast = prop_oneof![2 => Just(Cast::Realm), 1 => (0usize..4).prop_map(Cast::Group)];
    let cast = (0usize..2, cast).prop_map(|(event, cast)| Item::cast(event, cast));
    prop::collection::vec(prop_oneof![12 => item, 1 => cast], 1..4)
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    let nack = |requeue| Verdict::Nack {
        delay: None,
        requeue,
        reason: None,
    };
    prop_oneof![
        6 => Just(Verdict::Ack),
        2 => Just(nack(true)),
        1 => Just(nack(false)),
        1 => Just(Verdict::Working),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let slot = 0usize..4;
    let instance = prop::option::of(0u8..2);
    let acked = prop::option::of(Just(false));
    let how = prop_oneof![
        Just(Leave::Closed),
        Just(Leave::Failed),
        Just(Leave::Returned)
    ];
    let room = prop_oneof![2 => Just(None), 1 => (0usize..60).prop_map(Some)];
    prop_oneof![
        6 => (slot.clone(), 0usize..4, instance.clone(), acked)
            .prop_map(|(slot, name, instance, acked)| Op::Connect { slot, name, instance, acked }),
        2 => (slot.clone(), how).prop_map(|(slot, how)| Op::Leave { slot, how }),
        1 => (slot.clone(), 0usize..2, instance)
            .prop_map(|(slot, name, instance)| Op::Producer { slot, name, instance }),
        10 => (slot.clone(), wishes()).prop_map(|(slot, wish)| Op::Subscribe { slot, wish }),
        1 => (slot.clone(), 0usize..4, 0usize..4, any::<bool>())
            .prop_map(|(slot, name, key, purge)| Op::Unsubscribe { slot, name, key, purge }),
        14 => (slot.clone(), 0usize..2, items())
            .prop_map(|(slot, from, items)| Op::Produce { slot, from, items }),
        12 => (slot.clone(), 0usize..6, verdicts(), any::<bool>())
            .prop_map(|(slot, nth, verdict, says_attempt)| Op::Judge { slot, nth, verdict, says_attempt }),
        3 => (slot.clone(), 0usize..6).prop_map(|(slot, nth)| Op::Repeat { slot, nth }),
        5 => slot.clone().prop_map(|slot| Op::Pong { slot }),
        3 => (slot.clone(), room).prop_map(|(slot, room)| Op::Limit { slot, room }),
        1 => (slot.clone(), any::<bool>()).prop_map(|(slot, paused)| Op::Pause { slot, paused }),
        2 => (slot, any::<bool>()).prop_map(|(slot, silent)| Op::Silent { slot, silent }),
        6 => (1u64..8_000).prop_map(|millis| Op::Advance { millis }),
        1 => any::<bool>().prop_map(|crashed| Op::Restart { crashed }),
        2 => prop_oneof![
            3 => Just((false, false)), 2 => Just((true, false)), 1 => Just((false, true)),
        ].prop_map(|(stalled, refusing)| Op::Store { stalled, refusing }),
    ]
}

impl Op {
    /// Whose it is; of time and the store nobody's.
    fn slot(&self) -> usize {
        match self {
            Self::Connect { slot, .. }
            | Self::Leave { slot, .. }
            | Self::Producer { slot, .. }
            | Self::Subscribe { slot, .. }
            | Self::Unsubscribe { slot, .. }
            | Self::Produce { slot, .. }
            | Self::Judge { slot, .. }
            | Self::Repeat { slot, .. }
            | Self::Pong { slot }
            | Self::Limit { slot, .. }
            | Self::Pause { slot, .. }
            | Self::Silent { slot, .. } => *slot,
            Self::Advance { .. } | Self::Restart { .. } | Self::Store { .. } => 0,
        }
    }
}

impl Life {
    async fn apply(&mut self, op: Op) {
        match op {
            Op::Connect {
                slot,
                name,
                instance,
                acked,
            } => {
                self.slots[slot] = Some(self.connect(name, instance, acked));
            }
            Op::Advance { millis } => self.clock.advance(Duration::from_millis(millis)),
            Op::Restart { crashed } => self.restart(crashed).await,
            Op::Store { stalled, refusing } => self.set_store(stalled, refusing),
            op => {
                if let Some(session) = self.slots[op.slot()] {
                    self.act(session, op);
                }
            }
        }
    }

    fn act(&mut self, session: usize, op: Op) {
        match op {
            Op::Leave { how, .. } => self.leave(session, how),
            Op::Producer { name, instance, .. } => self.produce_as(session, name, instance),
            Op::Subscribe { wish, .. } => self.subscribe(session, wish),
            Op::Unsubscribe {
                name, key, purge, ..
            } => self.unsubscribe(session, name, key, purge),
            Op::Produce { from, items, .. } => self.produce(session, from, &items),
            Op::Judge {
                nth,
                verdict,
                says_attempt,
                ..
            } => {
                self.judge(session, nth, verdict, says_attempt);
            }
            Op::Repeat { nth, .. } => self.repeat(session, nth),
            Op::Pong { .. } => self.pong(session),
            Op::Limit { room, .. } => self.limit(session, room),
            Op::Pause { paused, .. } => self.pause(session, paused),
            Op::Silent { silent, .. } => self.sessions[session].line.set_silent(silent),
            Op::Connect { .. } | Op::Advance { .. } | Op::Restart { .. } | Op::Store { .. } => {}
        }
    }
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let overflow = prop_oneof![Just(Overflow::Reject), Just(Overflow::DropOldest)];
    let small = (1u64..6, overflow).prop_map(|(max_queued, overflow)| Bounds {
        max_queued,
        overflow,
        ..Bounds::default()
    });
    prop_oneof![3 => Just(Bounds::default()), 1 => small]
}

async fn live(ops: Vec<Op>) {
    live_in(Bounds::default(), ops).await;
}

async fn live_in(bounds: Bounds, ops: Vec<Op>) {
    let store = Arc::new(MemoryStore::new(bounds.clone()));
    live_over(store, bounds, ops).await;
}

async fn live_over(store: SharedStore, bounds: Bounds, ops: Vec<Op>) {
    let mut life = Life::new(bounds, store).await;
    for op in ops {
        life.apply(op).await;
        life.observe().await;
    }
    life.settle_accounts().await;
    life.drain().await;
    life.check().await;
}

fn cases() -> u32 {
    let lives = match std::env::var("RESTANTE_LONG").as_deref() {
        Ok("1") => 20_000,
        _ => 400,
    };
    match std::env::var("PROPTEST_CASES").map(|cases| cases.parse()) {
        Ok(Ok(cases)) => cases,
        _ => lives,
    }
}

static HAS_FAILED: AtomicBool = AtomicBool::new(false);

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_clients_and_store_do_every_promise_holds(
        bounds in bounds(),
        ops in prop::collection::vec(ops(), 1..120),
    ) {
        // Which task wakes first is chance: once a life has failed, the smaller ones get more tries.
        let tries = if HAS_FAILED.load(Ordering::Relaxed) { 12 } else { 1 };
        for _ in 0..tries {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            HAS_FAILED.store(true, Ordering::Relaxed);
            runtime.unwrap().block_on(live_in(bounds.clone(), ops.clone()));
            HAS_FAILED.store(tries > 1, Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use crate::clock::SystemClock;
    use crate::store::faulty::FaultyStore;
    use crate::store::{SqliteOptions, SqliteStore};

    async fn store(bounds: Bounds) -> SharedStore {
        let options = SqliteOptions {
            path: None,
            ..SqliteOptions::default()
        };
        let clock = Arc::new(SystemClock::new());
        let opened = SqliteStore::open(options, bounds, clock).await;
        FaultyStore::prompt(Arc::new(opened.unwrap()))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: cases() / 10,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn every_promise_holds_over_sqlite_too(
            bounds in bounds(),
            ops in prop::collection::vec(ops(), 1..120),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                live_over(store(bounds.clone()).await, bounds, ops).await;
            });
        }
    }
}
