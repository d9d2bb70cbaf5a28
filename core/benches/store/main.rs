//! What the stores cost: appends, a backlog read and settled, bytes per message and queue.
//!
//! `cargo bench -p restante --bench store`; what comes after `--` picks some by name.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

mod sqlite;

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use restante::clock::Timestamp;
use restante::model::{Key, Message, MessageId, RealmId};
use restante::store::{
    Append, Bounds, LogId, MemoryStore, PageLimit, Pending, QueueChange, QueueKind, QueueRecord,
    QueueSettings, QueueSpec, Store,
};

const BATCH: usize = 64;

fn answer<T>(mut pending: Pending<T>) -> T {
    pending.take_ready().unwrap().unwrap()
}

fn realm() -> RealmId {
    RealmId::parse("default").unwrap()
}

fn spec(event: &str, name: &str, durable: bool) -> QueueSpec {
    QueueSpec {
        realm: realm(),
        key: Key::Any {
            event: event.into(),
        },
        kind: QueueKind::Consumer,
        name: name.into(),
        settings: QueueSettings {
            durable,
            ..QueueSettings::default()
        },
    }
}

fn open(store: &MemoryStore, event: &str, name: &str, durable: bool) -> QueueRecord {
    answer(store.open(spec(event, name, durable), Timestamp(0)))
}

/// Makes messages, of 128 bytes if not said otherwise, as a session would: names shared, a body of its own.
struct Source {
    realm: RealmId,
    event: Arc<str>,
    from: Arc<str>,
    instance: Option<Arc<str>>,
    bytes: usize,
    last: u64,
}

impl Source {
    fn new(instance: Option<&str>) -> Self {
        Self {
            realm: realm(),
            event: "order".into(),
            from: "shop".into(),
            instance: instance.map(Into::into),
            bytes: 128,
            last: 0,
        }
    }

    fn sized(bytes: usize) -> Self {
        Self {
            bytes,
            ..Self::new(None)
        }
    }

    fn item(&mut self, log: LogId) -> Append {
        self.last += 1;
        let message = Message {
            id: MessageId(self.last),
            event: Arc::clone(&self.event),
            from: Arc::clone(&self.from),
            body: Some(Bytes::from(vec![b'1'; self.bytes])),
            extras: None,
            produced: Timestamp(self.last / 1000),
            expires: Some(Timestamp(86_400_000 + self.last / 1000)),
            guaranteed: false,
            key: None,
        };
        Append {
            mark: self.instance.clone().map(|instance| (instance, self.last)),
            ..Append::new(self.realm.clone(), Arc::new(message), vec![log])
        }
    }

    fn batch(&mut self, log: LogId, count: usize) -> Vec<Append> {
        (0..count).map(|_| self.item(log)).collect()
    }
}

fn unbounded() -> MemoryStore {
    MemoryStore::new(Bounds {
        max_queued: u64::MAX,
        ..Bounds::default()
    })
}

fn appends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append 128 B");
    group.throughput(Throughput::Elements(BATCH as u64));
    let cases = [
        ("1 queue", 1, None),
        ("1 queue, numbered", 1, Some("instance")),
        ("10,000 queues", 10_000, None),
    ];
    for (name, queues, instance) in cases {
        let store = unbounded();
        for queue in 1..queues {
            open(&store, "order", &queue.to_string(), true);
        }
        let queue = open(&store, "order", "last", true);
        let mut source = Source::new(instance);
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || {
                    // One queue is kept from growing without end, outside of the time taken.
                    let low = Some(source.last.saturating_sub(100_000));
                    let change = QueueChange {
                        low,
                        ..QueueChange::default()
                    };
                    if queues == 1 {
                        answer(store.update(queue.queue, change, Timestamp(0)));
                    }
                    source.batch(queue.log, BATCH)
                },
                |batch| black_box(answer(store.append(batch))),
                BatchSize::SmallInput,
            );
        });
    }
    let store = unbounded();
    let queue = open(&store, "order", "last", true);
    let mut source = Source::new(Some("instance"));
    group.throughput(Throughput::Elements(1));
    group.bench_function("settled by one done after another", |bencher| {
        bencher.iter_batched(
            || source.batch(queue.log, 1),
            |batch| {
                let answers = answer(store.append(batch));
                let seq = answers[0].as_ref().unwrap().placed[0].seq;
                let change = QueueChange {
                    done: vec![seq],
                    ..QueueChange::default()
                };
                answer(store.update(queue.queue, change, Timestamp(0)));
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn drain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("drain 128 B");
    const COUNT: usize = 10_000;
    group.throughput(Throughput::Elements(COUNT as u64));
    group.bench_function("pages of 256, low after each", |bencher| {
        bencher.iter_batched(
            || {
                let store = unbounded();
                let queue = open(&store, "order", "a", true);
                answer(store.append(Source::new(None).batch(queue.log, COUNT)));
                (store, queue)
            },
            |(store, queue)| {
                let mut after = 0;
                loop {
                    let page =
                        answer(store.page(queue.queue, after, PageLimit::default(), Timestamp(0)));
                    after = page.next;
                    let change = QueueChange {
                        low: Some(after),
                        ..QueueChange::default()
                    };
                    answer(store.update(queue.queue, change, Timestamp(0)));
                    if page.end {
                        return store;
                    }
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// What the process holds in memory, in bytes; 0 where there is no `/proc`.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4096
}

/// Bytes per thing, printed; too simple for criterion.
#[allow(clippy::print_stdout, reason = "a bench reports by printing")]
fn sizes(_: &mut Criterion) {
    let measure = |what: &str, count: usize, fill: &dyn Fn(&MemoryStore)| {
        let store = unbounded();
        let before = resident();
        fill(&store);
        let bytes = resident().saturating_sub(before);
        println!("memory per {what}: {} B", bytes / count);
        // Kept, so that the next one cannot live in memory that was counted already.
        std::mem::forget(store);
    };
    const MESSAGES: usize = 200_000;
    measure("queued message of 128 B", MESSAGES, &|store| {
        let queue = open(store, "order", "a", true);
        let mut source = Source::new(None);
        for _ in 0..MESSAGES / BATCH {
            answer(store.append(source.batch(queue.log, BATCH)));
        }
    });
    const QUEUES: usize = 20_000;
    measure("idle queue of one key", QUEUES, &|store| {
        for queue in 0..QUEUES {
            open(store, "order", &format!("consumer-{queue}"), true);
        }
    });
    measure("idle plain queue of one key", QUEUES, &|store| {
        for queue in 0..QUEUES {
            open(store, "order", &format!("consumer-{queue}"), false);
        }
    });
    measure("idle queue with a key of its own", QUEUES, &|store| {
        for queue in 0..QUEUES {
            open(store, &format!("event-{queue}"), "consumer", true);
        }
    });
}

/// The printing ones run whole or not at all: `-- sqlite` runs those of SQLite alone, `-- alone` the
/// first of them.
fn printed(criterion: &mut Criterion) {
    let is_asked = |name: &str| {
        let asked: Vec<String> = std::env::args().skip(1).collect();
        let mut names = asked.iter().filter(|arg| !arg.starts_with('-')).peekable();
        names.peek().is_none() || names.any(|asked| asked == name)
    };
    if is_asked("memory") {
        sizes(criterion);
    }
    if is_asked("sqlite") || is_asked("alone") {
        sqlite::alone(criterion);
    }
    if is_asked("sqlite") {
        sqlite::backlog(criterion);
        sqlite::rates(criterion);
        sqlite::reads(criterion);
    }
}

criterion_group!(benches, printed, appends, drain);
criterion_main!(benches);
