//! What the store in Redis costs: appends with many in flight, a backlog read and settled.
//!
//! `cargo bench -p restante --bench redis`; needs `redis-server` on the path.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use restante::clock::SystemClock;
use restante::clock::Timestamp;
use restante::model::{Key, Message, MessageId, RealmId};
use restante::store::{
    Append, Bounds, PageLimit, QueueChange, QueueKind, QueueRecord, QueueSettings, QueueSpec,
    RedisOptions, RedisStore, Store as _,
};

struct Server {
    child: Child,
    port: u16,
    dir: std::path::PathBuf,
}

impl Server {
    fn start(fsync: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = port.local_addr().unwrap().port();
        let dir = std::env::temp_dir().join(format!("restante-bench-redis-{port}"));
        std::fs::create_dir_all(&dir).unwrap();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", ""])
            .args(["--dir", dir.to_str().unwrap()])
            .args(["--appendonly", "yes", "--appendfsync", fsync])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, port, dir }
    }

    async fn store(&self) -> Arc<RedisStore> {
        let options = RedisOptions::at(format!("redis://127.0.0.1:{}", self.port));
        let begun = Instant::now();
        loop {
            let clock = Arc::new(SystemClock::new());
            let opened = RedisStore::open(options.clone(), Bounds::default(), clock).await;
            match opened {
                Ok(store) => return Arc::new(store),
                Err(_) if begun.elapsed() < Duration::from_secs(5) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

fn realm() -> RealmId {
    RealmId::parse("default").unwrap()
}

async fn open(store: &RedisStore, event: &str, name: &str) -> QueueRecord {
    let spec = QueueSpec {
        realm: realm(),
        key: Key::Any {
            event: event.into(),
        },
        kind: QueueKind::Consumer,
        name: name.into(),
        settings: QueueSettings {
            durable: true,
            ..QueueSettings::default()
        },
    };
    store.open(spec, Timestamp(0)).await.unwrap()
}

fn item(queue: &QueueRecord, id: u64, bytes: usize, is_numbered: bool) -> Append {
    let message = Message {
        id: MessageId((1 << 60) + id),
        event: "order".into(),
        from: "shop".into(),
        body: Some(Bytes::from(vec![b'1'; bytes])),
        extras: None,
        produced: Timestamp(1_767_225_600_000 + id / 1000),
        expires: Some(Timestamp(1_767_312_000_000 + id / 1000)),
        guaranteed: false,
        key: None,
    };
    Append {
        mark: is_numbered.then(|| ("instance".into(), id)),
        ..Append::new(realm(), Arc::new(message), vec![queue.log])
    }
}

async fn appends(
    store: &Arc<RedisStore>,
    what: &str,
    tasks: u64,
    total: u64,
    bytes: usize,
    numbered: bool,
) {
    let queue = open(store, what, "a").await;
    let next = Arc::new(AtomicU64::new(1));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, queue, next) = (store.clone(), queue.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id > total {
                        return;
                    }
                    let item = item(&queue, id, bytes, numbered);
                    store.append(vec![item]).await.unwrap().remove(0).unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    println!("append {what}: {rate:.0}/s");
    drain(store, &queue, what, total).await;
}

async fn drain(store: &RedisStore, queue: &QueueRecord, what: &str, total: u64) {
    let begun = Instant::now();
    let mut after = 0;
    let mut slowest = Duration::ZERO;
    loop {
        let turn = Instant::now();
        let page = store.page(queue.queue, after, PageLimit::default(), Timestamp(0));
        let page = page.await.unwrap();
        after = page.next;
        let change = QueueChange {
            done: page.entries.iter().map(|entry| entry.seq).collect(),
            ..QueueChange::default()
        };
        store
            .update(queue.queue, change, Timestamp(0))
            .await
            .unwrap();
        slowest = slowest.max(turn.elapsed());
        if page.end {
            break;
        }
    }
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    println!("drain {what}, pages of 256, each settled: {rate:.0}/s, slowest page {slowest:?}");
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for fsync in ["everysec", "always"] {
            let server = Server::start(fsync);
            let store = server.store().await;
            println!("appendfsync {fsync}");
            appends(&store, "128 B, 1 in flight", 1, 5_000, 128, false).await;
            appends(&store, "128 B, 16 in flight", 16, 50_000, 128, false).await;
            appends(&store, "128 B, 256 in flight", 256, 200_000, 128, false).await;
            appends(
                &store,
                "128 B, numbered, 256 in flight",
                256,
                200_000,
                128,
                true,
            )
            .await;
            appends(&store, "4 KiB, 256 in flight", 256, 50_000, 4096, false).await;
            let many = Arc::clone(&store);
            for name in 0..1000 {
                open(
                    &many,
                    "128 B, 1,000 queues, 256 in flight",
                    &name.to_string(),
                )
                .await;
            }
            appends(
                &many,
                "128 B, 1,000 queues, 256 in flight",
                256,
                100_000,
                128,
                false,
            )
            .await;
            store.close().await.unwrap();
        }
    });
}
