//! The store in Redis beside the one in memory: the same calls, the same answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use restante::clock::Timestamp;
use restante::model::{Key, Message, MessageId, RealmId};
use restante::store::{
    Append, Bounds, Burial, DeadLetterId, Entry, Exception, LogId, MemoryStore, Overflow,
    PageLimit, QueueChange, QueueId, QueueKind, QueueSettings, QueueSpec, Quota, Seq, Settled,
    Store,
};

const QUEUES: usize = 4;
const SOME: PageLimit = PageLimit {
    entries: 500,
    bytes: usize::MAX,
};
const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

#[derive(Debug, Clone)]
enum Op {
    Append {
        guaranteed: bool,
        ttl: u64,
        size: usize,
        skip: Option<usize>,
        number: Option<u64>,
        times: usize,
    },
    Open {
        queue: usize,
        durable: bool,
    },
    Forget {
        queue: usize,
        purge: bool,
    },
    Change {
        queue: usize,
        low: Option<Seq>,
        done: Vec<Seq>,
        except: Vec<(Seq, u64)>,
        bury: Option<Seq>,
    },
    Settle {
        queue: usize,
        seqs: Vec<Seq>,
    },
    Page {
        queue: usize,
        after: Seq,
    },
    Due {
        queue: usize,
    },
    Purge {
        queue: usize,
    },
    Revive {
        nth: usize,
    },
    Bound {
        queue: u64,
        queued: Option<u64>,
        bytes: Option<u64>,
    },
    Maintain,
    Wait {
        ms: u64,
    },
}

/// Other numbers and bytes that may wait.
fn bound() -> impl Strategy<Value = Op> {
    let queued = prop::option::weighted(0.2, 5..20u64);
    let bytes = prop::option::weighted(0.7, 50..1000u64);
    (1..9u64, queued, bytes).prop_map(|(queue, queued, bytes)| Op::Bound {
        queue,
        queued,
        bytes,
    })
}

/// Calls about logs of up to about `width` entries, appended up to `times` at once.
fn ops(width: Seq, times: usize) -> impl Strategy<Value = Op> {
    let queue = 0..QUEUES;
    let seqs = move || prop::collection::vec(0..width, 0..5);
    let append = (
        any::<bool>(),
        1..60u64,
        0..50usize,
        prop::option::weighted(0.2, queue.clone()),
        prop::option::weighted(0.3, 0..2000u64),
        1..=times,
    );
    let change = (
        queue.clone(),
        prop::option::weighted(0.4, 0..width),
        seqs(),
        prop::collection::vec((0..width, 0..9u64), 0..3),
        prop::option::weighted(0.2, 0..width),
    );
    prop_oneof![
        14 => append.prop_map(|(guaranteed, ttl, size, skip, number, times)| Op::Append {
            guaranteed, ttl, size, skip, number, times
        }),
        3 => (queue.clone(), any::<bool>()).prop_map(|(queue, durable)| Op::Open { queue, durable }),
        1 => (queue.clone(), any::<bool>()).prop_map(|(queue, purge)| Op::Forget { queue, purge }),
        6 => change.prop_map(|(queue, low, done, except, bury)| Op::Change {
            queue, low, done, except, bury
        }),
        2 => (queue.clone(), seqs()).prop_map(|(queue, seqs)| Op::Settle { queue, seqs }),
        1 => (queue.clone(), 0..width).prop_map(|(queue, after)| Op::Page { queue, after }),
        1 => queue.clone().prop_map(|queue| Op::Due { queue }),
        1 => queue.prop_map(|queue| Op::Purge { queue }),
        1 => (0..4usize).prop_map(|nth| Op::Revive { nth }),
        1 => Just(Op::Maintain),
        2 => (1..30u64).prop_map(|ms| Op::Wait { ms }),
    ]
}

fn realm() -> RealmId {
    RealmId::parse("r").unwrap()
}

fn spec(name: usize, durable: bool) -> QueueSpec {
    QueueSpec {
        realm: realm(),
        key: Key::Any { event: "k".into() },
        kind: QueueKind::Consumer,
        name: name.to_string().into(),
        settings: QueueSettings {
            durable,
            ..QueueSettings::default()
        },
    }
}

fn shown(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| format!("{entry:?}")).collect()
}

/// One store with what its queues are called there.
struct Side<S> {
    store: S,
    log: LogId,
    queues: BTreeMap<usize, QueueId>,
}

impl<S: Store> Side<S> {
    fn new(store: S) -> Self {
        Self {
            store,
            log: LogId(0),
            queues: BTreeMap::new(),
        }
    }

    fn queue(&self, queue: usize) -> QueueId {
        self.queues.get(&queue).copied().unwrap_or(QueueId(1 << 60))
    }

    async fn append(&self, op: &Op, now: Timestamp, id: u64) -> Vec<String> {
        let store = &self.store;
        let Op::Append {
            guaranteed,
            ttl,
            size,
            skip,
            number,
            times,
        } = op
        else {
            return Vec::new();
        };

        let message = |at: usize| Message {
            id: MessageId(id * 1000 + at as u64),
            event: "k".into(),
            from: "p".into(),
            body: Some(Bytes::from(vec![b'1'; *size + at % 5])),
            extras: None,
            produced: now,
            expires: (*ttl < 50).then(|| now.plus(Duration::from_millis(*ttl + at as u64 % 3))),
            guaranteed: *guaranteed && at % 7 != 3,
            key: None,
        };
        let item = |at: usize| Append {
            skip: skip.iter().map(|queue| self.queue(*queue)).collect(),
            mark: number.map(|number| ("i".into(), number + at as u64)),
            uid: number.filter(|n| n % 3 == 0).map(|n| n.to_string().into()),
            ..Append::new(realm(), Arc::new(message(at)), vec![self.log])
        };
        let answers = store.append((0..*times).map(item).collect()).await.unwrap();
        let each = answers.into_iter().map(|answer| {
            let answer = answer.map(|answer| {
                let placed = answer.placed.iter();
                let placed: Vec<_> = placed.map(|p| (p.seq, p.queued, p.refused)).collect();
                (answer.id, answer.duplicate, placed)
            });
            format!("{answer:?}")
        });
        each.collect()
    }

    async fn change(&self, op: &Op, now: Timestamp) -> Vec<String> {
        let store = &self.store;
        let Op::Change {
            queue,
            low,
            done,
            except,
            bury,
        } = op
        else {
            return Vec::new();
        };

        let exception = |(seq, ms): &(Seq, u64)| Exception {
            seq: *seq,
            attempts: 2,
            failures: 1,
            returns: 0,
            due: now.plus(Duration::from_millis(*ms)),
            first_error: None,
            last_error: Some("e".into()),
            suspect: ms % 2 == 0,
        };
        let burial = |seq: &Seq| Burial {
            seq: *seq,
            attempts: 3,
            reason: "x".into(),
            first_error: Some("f".into()),
            last_error: None,
        };
        let change = QueueChange {
            low: *low,
            done: done.clone(),
            except: except.iter().map(exception).collect(),
            bury: bury.iter().map(burial).collect(),
            ..QueueChange::default()
        };
        let answer = store.update(self.queue(*queue), change, now).await;
        vec![format!("{:?}", answer.map_err(|error| error.kind()))]
    }

    /// The answer of a call, in words that say nothing of ids.
    async fn apply(&mut self, op: &Op, now: Timestamp, id: u64) -> Vec<String> {
        let store = &self.store;
        match op {
            Op::Append { .. } => self.append(op, now, id).await,
            Op::Open { queue, durable } => {
                let record = store.open(spec(*queue, *durable), now).await.unwrap();
                self.log = record.log;
                self.queues.insert(*queue, record.queue);
                let numbers = (record.head, record.sent, record.exceptions, record.depth);
                vec![format!("{numbers:?}")]
            }
            Op::Forget { queue, purge } => {
                let left = store.forget(self.queue(*queue), *purge).await;
                vec![format!("{:?}", left.map_err(|error| error.kind()))]
            }
            Op::Change { .. } => self.change(op, now).await,
            Op::Settle { queue, seqs } => {
                let answer = store.settle(self.queue(*queue), seqs.clone()).await;
                let marks = answer.map_err(|error| error.kind());
                // Of what is let go nobody knows for sure whether it was for this queue.
                let is_now = |mark: &Settled| *mark == Settled::Now;
                let marks = marks.map(|marks| marks.iter().map(is_now).collect::<Vec<_>>());
                vec![format!("{marks:?}")]
            }
            Op::Page { queue, after } => {
                match store.page(self.queue(*queue), *after, ALL, now).await {
                    Ok(page) => {
                        let mut said = shown(&page.entries);
                        said.push(format!("{} {} {}", page.next, page.expired, page.end));
                        said
                    }
                    Err(error) => vec![error.code().to_owned()],
                }
            }
            Op::Due { queue } => match store.due(self.queue(*queue), ALL, now).await {
                Ok(due) => {
                    let mut said = shown(&due.entries);
                    said.push(format!("{:?} {}", due.next, due.expired));
                    said
                }
                Err(error) => vec![error.code().to_owned()],
            },
            Op::Purge { queue } => {
                let answer = store.purge_queue(self.queue(*queue)).await;
                vec![format!("{:?}", answer.map_err(|error| error.kind()))]
            }
            Op::Revive { nth } => {
                let letters = store.dead_letters(&realm(), None, 100).await.unwrap();
                let Some(letter) = letters.get(*nth) else {
                    return Vec::new();
                };
                let answer = store.revive(&realm(), letter.id, now).await;
                let answer = answer.map(|_| ()).map_err(|error| error.kind());
                vec![format!("{answer:?}")]
            }
            Op::Maintain => {
                let mut expired = 0;
                loop {
                    let done = store.maintain(300, now).await.unwrap();
                    expired += done.expired.values().sum::<u64>();
                    if !done.more {
                        return vec![expired.to_string()];
                    }
                }
            }
            Op::Bound { .. } | Op::Wait { .. } => Vec::new(),
        }
    }

    /// Everything that can be seen.
    async fn all(&self) -> Vec<String> {
        let mut said = Vec::new();
        for queue in self.queues.values() {
            match self.store.browse(*queue, 0, SOME).await {
                Ok(entries) => said.extend(shown(&entries)),
                Err(error) => said.push(error.code().to_owned()),
            }
            let depth = self.store.depth(*queue).await;
            said.push(format!("{:?}", depth.map_err(|error| error.kind())));
        }
        let depth = self.store.realm_depth(&realm()).await.unwrap();
        said.push(format!("{depth:?} {:?}", self.store.counters()));
        let name = |id: DeadLetterId| {
            let mut queues = self.queues.iter();
            queues
                .find(|(_, queue)| **queue == id.queue)
                .map(|(name, _)| *name)
        };
        let letters = self.store.dead_letters(&realm(), None, 100).await.unwrap();
        for mut letter in letters {
            let name = name(letter.id);
            letter.id.queue = QueueId(0);
            said.push(format!("{name:?} {letter:?}"));
        }
        said
    }
}

fn bounds(max: u64, realm_max: Option<u64>, drops: bool) -> Bounds {
    Bounds {
        max_queued: max,
        max_queued_per_realm: realm_max,
        overflow: match drops {
            true => Overflow::DropOldest,
            false => Overflow::Reject,
        },
        dlq_max_per_realm: 3,
        dedupe_window: Duration::from_millis(200),
        mark_idle: Duration::from_millis(300),
        ..Bounds::default()
    }
}

/// Does all of this with both stores; what they answer must be the same.
async fn compare(store: impl Store, bounds: Bounds, ops: &[Op]) {
    let (realms, overflow) = (bounds.realms.clone(), bounds.overflow);
    let mut memory = Side::new(MemoryStore::new(bounds));
    let mut redis = Side::new(store);
    let mut now = Timestamp(1_000_000);
    let first = [true, false].map(|durable| Op::Open {
        queue: usize::from(durable),
        durable,
    });
    for (step, op) in first.iter().chain(ops).enumerate() {
        if let Op::Wait { ms } = op {
            now = now.plus(Duration::from_millis(*ms));
        }
        if let Op::Bound {
            queue,
            queued,
            bytes,
        } = op
        {
            // What a full queue drops is let go of at its next change, here and there another one.
            let bytes = bytes.filter(|_| overflow == Overflow::Reject);
            let quota = Quota {
                queue: *queue,
                queued: queued.unwrap_or(Quota::ANY),
                bytes: bytes.unwrap_or(Quota::ANY),
            };
            realms.set(quota, [].into());
        }
        let id = step as u64 + 1;
        let expected = memory.apply(op, now, id).await;
        let found = redis.apply(op, now, id).await;
        assert_eq!(found, expected, "step {step}: {op:?}");
        if step % 5 == 0 {
            assert_eq!(
                redis.all().await,
                memory.all().await,
                "after {step}: {op:?}"
            );
        }
    }
    assert_eq!(redis.all().await, memory.all().await, "in the end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(40)))]

    #[test]
    fn redis_does_what_memory_does(
        max in 1..9u64,
        realm_max in prop::option::weighted(0.2, 5..20u64),
        drops in any::<bool>(),
        ops in prop::collection::vec(prop_oneof![20 => ops(60, 1), 1 => bound()], 1..120),
    ) {
        run(bounds(max, realm_max, drops), &ops);
    }

    #[test]
    fn redis_does_what_memory_does_with_long_logs(
        max in 1..2500u64,
        drops in any::<bool>(),
        ops in prop::collection::vec(ops(4000, 900), 1..40),
    ) {
        run(bounds(max, None, drops), &ops);
    }
}

/// More of them on demand.
fn cases(usual: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

fn run(bounds: Bounds, ops: &[Op]) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let server = super::server::shared();
        let store = super::server::open(server.options(), bounds.clone()).await;
        compare(store, bounds, ops).await;
    });
}
