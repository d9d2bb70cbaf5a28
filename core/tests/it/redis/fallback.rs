//! Redis is away when the server starts: it begins on a file, and everything comes back (P29, case A08).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use restante::ErrorKind;
use restante::client::{Client, Messages, Produce, Subscribe};
use restante::server::{Persistence, Server, Storage};
use restante::store::RedisOptions;
use tempfile::TempDir;

use crate::harness::until;
use crate::sqlite::load::subscribe;
use crate::sqlite::process::{SECOND, soon};
use crate::sqlite::swap::{client, start, waiting};

use super::server::RedisServer;

fn storage(redis: &RedisServer, folder: &Path) -> Storage {
    let mut options = RedisOptions::at(redis.url());
    options.prefix = "f".to_owned();
    options.fallback = Some(folder.join("fallback.sqlite"));
    options.probe_timeout = 5 * SECOND;
    Storage::Redis(options)
}

/// Remembers the subscription of `billing`.
async fn remember(server: &Server) {
    let consumer = soon(client(server).consumer("billing")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
}

fn plain() -> Subscribe {
    Subscribe::to("paid").acked()
}

async fn produce(server: &Server, numbers: std::ops::Range<u64>) {
    let producer = soon(client(server).producer("orders")).await.unwrap();
    for number in numbers {
        let confirmed = soon(producer.confirm("paid", &number)).await.unwrap();
        assert_eq!(confirmed.queued, 1);
    }
    soon(producer.connection().close(SECOND)).await.unwrap();
}

/// The next numbers; each settled.
async fn take(messages: &mut Messages, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let message = soon(messages.next()).await.expect("one more");
        numbers.push(message.body().unwrap());
        message.ack();
    }
    numbers
}

async fn taken(server: &Server, count: usize) -> Vec<u64> {
    let consumer = soon(client(server).consumer("billing")).await.unwrap();
    let mut messages = soon(consumer.subscribe(subscribe())).await.unwrap();
    let numbers = take(&mut messages, count).await;
    drop(messages);
    soon(consumer.connection().close(SECOND)).await.unwrap();
    numbers
}

fn is_on_fallback(server: &Server) -> bool {
    let health = server.store_health();
    let is_on = health.figures.contains(&("fallback", 1));
    assert_eq!(
        is_on,
        health
            .warnings
            .iter()
            .any(|warning| warning.contains("fallback"))
    );
    assert!(!is_on || health.is_degraded);
    is_on
}

async fn until_back(server: &Server) {
    until("Redis is back", async || !is_on_fallback(server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_while_redis_was_away_is_there_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let mut redis = RedisServer::start(&["--appendonly", "yes"]);
    let storage = storage(&redis, folder.path());
    // Redis holds older messages of the same subscription.
    let server = start(folder.path(), storage.clone()).await.unwrap();
    assert!(!is_on_fallback(&server));
    remember(&server).await;
    produce(&server, 0..5).await;
    server.close(10 * SECOND).await.unwrap();
    redis.kill();

    let server = start(folder.path(), storage.clone()).await.unwrap();
    assert!(is_on_fallback(&server));
    remember(&server).await;
    produce(&server, 5..30).await;
    let refused = server.set_persistence(Persistence {
        storage: Storage::Memory,
        default_ttl: None,
        force: true,
    });
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Config);
    server.close(10 * SECOND).await.unwrap();

    // Still away: it goes on with the same file.
    let server = start(folder.path(), storage.clone()).await.unwrap();
    produce(&server, 30..55).await;
    assert!(is_on_fallback(&server));
    server.close(10 * SECOND).await.unwrap();

    redis.run();
    let server = start(folder.path(), storage.clone()).await.unwrap();
    assert!(!is_on_fallback(&server));
    assert_eq!(server.storage().0, "redis");
    assert_eq!(waiting(&server).await, [55]);
    assert_eq!(taken(&server, 55).await, (0..55).collect::<Vec<_>>());
    server.close(10 * SECOND).await.unwrap();

    // Nothing of it comes twice, and the file may serve again.
    let server = start(folder.path(), storage.clone()).await.unwrap();
    assert_eq!(waiting(&server).await, [0]);
    server.close(10 * SECOND).await.unwrap();
    redis.kill();
    let server = start(folder.path(), storage).await.unwrap();
    assert!(is_on_fallback(&server));
    assert_eq!(
        waiting(&server).await,
        [0],
        "it remembers, and holds nothing"
    );
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_comes_back_to_redis_while_the_server_runs() {
    let folder = TempDir::new().unwrap();
    let mut redis = RedisServer::start(&["--appendonly", "yes"]);
    let storage = storage(&redis, folder.path());
    let server = start(folder.path(), storage.clone()).await.unwrap();
    remember(&server).await;
    produce(&server, 0..5).await;
    server.close(10 * SECOND).await.unwrap();
    redis.kill();

    let server = start(folder.path(), storage.clone()).await.unwrap();
    remember(&server).await;
    produce(&server, 5..20).await;
    // Some are settled meanwhile; one fails and is to come again.
    assert_eq!(taken(&server, 3).await, [5, 6, 7]);
    let client: Client = client(&server);
    let consumer = soon(client.consumer("billing")).await.unwrap();
    let mut messages = soon(consumer.subscribe(subscribe())).await.unwrap();
    let producer = soon(client.producer("orders")).await.unwrap();
    redis.run();
    let mut seen = BTreeSet::new();
    let mut confirmed: BTreeSet<u64> = (8..20).chain(0..5).collect();
    let back = async {
        // Nobody who stays connected notices more than a reconnect.
        for number in 20.. {
            if soon(producer.confirm("paid", &number)).await.is_ok() {
                confirmed.insert(number);
            }
            if !is_on_fallback(&server) && confirmed.contains(&number) {
                break;
            }
        }
    };
    back.await;
    until_back(&server).await;
    assert_eq!(server.storage().0, "redis");
    while !confirmed.is_subset(&seen) {
        let message = soon(messages.next()).await.expect("one more");
        seen.insert(message.body::<u64>().unwrap());
        // An ack may be lost with its link; then it comes again.
        message.ack();
    }
    let settled = async {
        while waiting(&server).await != [0] {
            if let Ok(Some(message)) =
                tokio::time::timeout(Duration::from_millis(10), messages.next()).await
            {
                message.ack();
            }
        }
    };
    soon(settled).await;
    soon(consumer.connection().close(SECOND)).await.unwrap();
    soon(producer.connection().close(SECOND)).await.unwrap();
    server.close(10 * SECOND).await.unwrap();

    let server = start(folder.path(), storage).await.unwrap();
    assert_eq!(waiting(&server).await, [0]);
    assert_eq!(server.storage().0, "redis");
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_remembers_is_queued_for_while_it_is_away_and_nobody_has_come_yet() {
    let folder = TempDir::new().unwrap();
    let mut redis = RedisServer::start(&["--appendonly", "yes"]);
    let storage = storage(&redis, folder.path());
    let server = start(folder.path(), storage.clone()).await.unwrap();
    remember(&server).await;
    // A plain subscription is remembered for what is guaranteed.
    let named = soon(client(&server).consumer("audit")).await.unwrap();
    let messages = soon(named.subscribe(plain())).await.unwrap();
    produce(&server, 0..5).await;
    soon(named.connection().close(SECOND)).await.unwrap();
    drop(messages);
    server.close(10 * SECOND).await.unwrap();
    redis.kill();

    let server = start(folder.path(), storage.clone()).await.unwrap();
    assert!(is_on_fallback(&server));
    produce(&server, 5..20).await;
    let producer = soon(client(&server).producer("orders")).await.unwrap();
    let guaranteed = Produce {
        event: "paid",
        message: Some("20"),
        guaranteed: true,
        ..Produce::default()
    };
    let answer = producer.send(&guaranteed, 5 * SECOND);
    assert_eq!(soon(answer).await.unwrap().queued, 2);
    soon(producer.connection().close(SECOND)).await.unwrap();
    redis.run();
    until_back(&server).await;
    assert_eq!(taken(&server, 21).await, (0..21).collect::<Vec<_>>());
    let named = soon(client(&server).consumer("audit")).await.unwrap();
    let mut messages = soon(named.subscribe(plain())).await.unwrap();
    assert_eq!(take(&mut messages, 1).await, [20]);
    soon(named.connection().close(SECOND)).await.unwrap();
    server.close(10 * SECOND).await.unwrap();

    // What has ended on the fallback is not brought back by an older list.
    redis.kill();
    let server = start(folder.path(), storage.clone()).await.unwrap();
    let consumer = soon(client(&server).consumer("billing")).await.unwrap();
    let messages = soon(consumer.subscribe(subscribe())).await.unwrap();
    soon(messages.unsubscribe(true)).await.unwrap();
    soon(consumer.connection().close(SECOND)).await.unwrap();
    server.close(10 * SECOND).await.unwrap();
    let server = start(folder.path(), storage).await.unwrap();
    assert_eq!(waiting(&server).await, [0], "audit alone");
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test]
async fn a_redis_that_is_there_and_refused_is_no_reason_for_a_fallback() {
    let folder = TempDir::new().unwrap();
    let redis = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let Storage::Redis(mut options) = storage(&redis, folder.path()) else {
        panic!("it is Redis");
    };
    options.strict = true;
    let refused = start(folder.path(), Storage::Redis(options)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
    assert!(!folder.path().join("fallback.sqlite").exists());
}
