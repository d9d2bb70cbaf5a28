//! Two brokers on one Redis while brokers die, links break and clients come and go.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use restante::store::RedisOptions;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::relay::Relay;
use super::server::{RedisServer, shared};
use super::two::{broker, confirmed, consumer, durable, producer};
use crate::harness::{Client, size, until};
use crate::transport::harness::PATIENCE;

/// What was produced, and how often each was delivered and acknowledged.
#[derive(Default)]
struct Book {
    produced: AtomicU64,
    acked: Mutex<HashMap<u64, u64>>,
    is_over: AtomicBool,
}

impl Book {
    fn missing(&self) -> Vec<u64> {
        let acked = self.acked.lock();
        let produced = 0..self.produced.load(Ordering::SeqCst);
        produced.filter(|n| !acked.contains_key(n)).collect()
    }
}

/// Takes what comes until it is time to go, and acknowledges most of it.
async fn take(client: &mut Client, book: &Book, rng: &mut fastrand::Rng) {
    for _ in 0..rng.usize(1..30) {
        let wait = Duration::from_millis(rng.u64(1..200));
        let Ok(delivery) = timeout(wait, client.delivery()).await else {
            return;
        };
        let number = delivery["message"].as_u64().unwrap();
        assert!(
            !book.acked.lock().contains_key(&number),
            "delivered after its ack: {delivery}"
        );
        if rng.u8(..) < 200 {
            client.ack(&delivery).await;
            *book.acked.lock().entry(number).or_default() += 1;
        }
    }
}

async fn produce(addr: std::net::SocketAddr, name: String, book: Arc<Book>, count: u64) {
    let mut client = Client::open(addr, "PRODUCER", &name).await;
    for _ in 0..count {
        let number = book.produced.fetch_add(1, Ordering::SeqCst);
        let answer = client.produce("e", json!(number), json!({})).await;
        assert_eq!(answer["queued"], 1, "{answer}");
    }
}

/// Members of a queue that come and go at both brokers while both produce; `names` may be the same.
async fn storm(subscribe: Value, names: &[&str], count: u64, seed: u64) {
    let options = shared().options();
    let (a, b) = (broker(&options).await, broker(&options).await);
    let addrs = [a.local_addr(), b.local_addr()];
    let book = Arc::new(Book::default());
    let mut first = consumer(&a, names[0]).await;
    first.subscribe(subscribe.clone()).await;
    first.leave().await;
    let producing: Vec<_> = (0..4)
        .map(|n| {
            let addr = addrs[n % 2];
            tokio::spawn(produce(addr, format!("p{n}"), book.clone(), count))
        })
        .collect();
    let taking: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let (book, name, subscribe) = (book.clone(), (*name).to_owned(), subscribe.clone());
            let mut rng = fastrand::Rng::with_seed(seed + at as u64);
            tokio::spawn(async move {
                while !book.is_over.load(Ordering::SeqCst) {
                    let addr = addrs[rng.usize(..2)];
                    let mut client = Client::open(addr, "CONSUMER", &name).await;
                    client.subscribe(subscribe.clone()).await;
                    take(&mut client, &book, &mut rng).await;
                    match rng.u8(..) {
                        0..60 => client.cut(),
                        _ => client.leave().await,
                    }
                }
            })
        })
        .collect();
    for task in producing {
        task.await.unwrap();
    }
    let done = async {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        while !book.missing().is_empty() {
            pace.tick().await;
        }
    };
    let result = timeout(PATIENCE * 3, done).await;
    book.is_over.store(true, Ordering::SeqCst);
    for task in taking {
        task.await.unwrap();
    }
    assert!(result.is_ok(), "never delivered: {:?}", book.missing());
    let mut last = consumer(&b, names[0]).await;
    last.subscribe(subscribe).await;
    assert_eq!(last.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_at_two_brokers_loses_nothing_while_members_come_and_go() {
    let member = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true,
        "group": "g", "prefetch": 8, "retry": { "max_attempts": 1000, "delay": "1ms" } });
    storm(member, &["w", "x", "y", "z"], size(150, 3_000) as u64, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_keeps_moving_loses_nothing() {
    let member = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true,
        "retry": { "max_attempts": 1000, "delay": "1ms" } });
    storm(member, &["c"], size(150, 1_000) as u64, 11).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_cut_off_gives_way_and_comes_back() {
    let server = RedisServer::start(&["--appendonly", "no"]);
    let relay = Relay::start(server.port).await;
    let mut near = server.options();
    near.lease = Duration::from_secs(1);
    let mut far = RedisOptions::at(format!("redis://127.0.0.1:{}", relay.port));
    far.prefix = near.prefix.clone();
    far.lease = near.lease;
    let (a, b) = (broker(&far).await, broker(&near).await);
    let member = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true,
        "group": "g" });
    let mut here = consumer(&a, "x").await;
    here.subscribe(member.clone()).await;
    let mut there = consumer(&b, "y").await;
    let mut from = producer(&b, "p").await;
    confirmed(&mut from, 0..6).await;
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(timeout(PATIENCE, here.delivery()).await.unwrap());
    }
    there.subscribe(member).await;
    relay.block();
    // What the lost broker held comes here within its lease.
    for n in 0..6 {
        let delivery = timeout(PATIENCE, there.delivery()).await.unwrap();
        assert_eq!(delivery["message"], n);
        assert_eq!(delivery["delivery_attempt"], 2);
        if n < 3 {
            there.ack(&delivery).await;
        }
    }
    relay.unblock();
    // Its late acks count.
    let late = async || here.settle("ACK", &held[3], json!({})).await["ok"] == true;
    until("a late ack counts", late).await;
    there.leave().await;
    for n in 4..6 {
        let delivery = timeout(PATIENCE, here.delivery()).await.unwrap();
        assert_eq!(delivery["message"], n, "{delivery}");
        here.ack(&delivery).await;
    }
    assert_eq!(here.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_broker_held_is_the_others_within_the_lease() {
    use crate::sqlite::process::Broker;
    let server = RedisServer::start(&["--appendonly", "no"]);
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_restante"));
    command.args(["serve", "--port", "0", "--host", "127.0.0.1"]);
    command.args(["--storage", "redis", "--url", &server.url()]);
    command.args(["--options", r#"{"storage_options":{"lease":"3s"}}"#]);
    let a = Broker::start(command).await;
    let mut options = RedisOptions::at(server.url());
    options.lease = Duration::from_secs(3);
    let b = broker(&options).await;
    let group = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true,
        "group": "g" });
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], a.port));
    let mut here = Client::open(addr, "CONSUMER", "x").await;
    here.subscribe(group.clone()).await;
    let mut own = Client::open(addr, "CONSUMER", "c").await;
    own.subscribe(
        json!({ "event": "own", "producer": "TYO-MQ-ALL", "durable": true, "ack": true }),
    )
    .await;
    let mut from = producer(&b, "p").await;
    confirmed(&mut from, 0..5).await;
    from.produce("own", json!("mine"), json!({})).await;
    for _ in 0..5 {
        here.delivery().await;
    }
    own.delivery().await;
    let mut there = consumer(&b, "y").await;
    there.subscribe(group).await;
    a.kill().await;
    // A consumer that comes back elsewhere waits for nothing.
    let mut again = consumer(&b, "c").await;
    again
        .subscribe(
            json!({ "event": "own", "producer": "TYO-MQ-ALL", "durable": true, "ack": true }),
        )
        .await;
    let delivery = timeout(PATIENCE, again.delivery()).await.unwrap();
    assert_eq!(
        (&delivery["message"], &delivery["delivery_attempt"]),
        (&json!("mine"), &json!(2))
    );
    for n in 0..5 {
        let delivery = timeout(PATIENCE, there.delivery()).await.unwrap();
        assert_eq!(delivery["message"], n);
        assert_eq!(delivery["delivery_attempt"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_hear_each_other_again_when_redis_has_come_back() {
    let mut server = RedisServer::start(&["--appendonly", "yes"]);
    let options = server.options();
    let (a, b) = (broker(&options).await, broker(&options).await);
    let mut here = consumer(&a, "c").await;
    here.subscribe(durable()).await;
    let mut from = producer(&b, "p").await;
    for round in 0..3 {
        confirmed(&mut from, round..round + 1).await;
        let delivery = timeout(PATIENCE, here.delivery()).await.unwrap();
        assert_eq!(delivery["message"], round);
        here.ack(&delivery).await;
        server.kill();
        server.run();
    }
    let mut there = consumer(&b, "c").await;
    there.subscribe(durable()).await;
    assert_eq!(there.rest().await, 0);
}
