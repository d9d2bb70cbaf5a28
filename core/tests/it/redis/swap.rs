//! Redis takes the place of another store, and another one that of Redis, while work goes on, and
//! after kills (P28).

use std::path::Path;

use restante::ErrorKind;
use restante::server::{STATE_FILE, Storage};
use restante::store::RedisOptions;
use tempfile::TempDir;
use tokio::process::Command;

use crate::sqlite::crash::is_killed_again_and_again;
use crate::sqlite::load::subscribe;
use crate::sqlite::process::{Broker, SECOND, soon};
use crate::sqlite::swap::{
    client, is_long, leads_alone, moves_under_load, named, queued, sqlite, start, waiting, wish,
};

use super::server::{self, RedisServer};

fn redis() -> Storage {
    Storage::Redis(server::shared().options())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_memory_moves_to_redis_under_load() {
    moves_under_load(Storage::Memory, redis(), false, queued()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_redis_moves_to_memory_under_load() {
    moves_under_load(redis(), Storage::Memory, true, queued()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_a_file_moves_to_redis_under_load() {
    moves_under_load(named("a"), redis(), false, queued()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_redis_moves_to_a_file_under_load() {
    moves_under_load(redis(), named("a"), false, queued()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_redis_moves_to_another_redis_under_load() {
    moves_under_load(redis(), redis(), false, queued()).await;
}

/// One queue with so many messages.
async fn fill(server: &restante::server::Server, count: u64) {
    let client = client(server);
    let consumer = soon(client.consumer("billing")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    let producer = soon(client.producer("orders")).await.unwrap();
    for number in 0..count {
        soon(producer.confirm("paid", &number)).await.unwrap();
    }
    soon(producer.connection().close(SECOND)).await.unwrap();
}

#[tokio::test]
async fn a_change_whose_state_file_cannot_be_written_leaves_redis_free_for_another() {
    let folder = TempDir::new().unwrap();
    let server = start(folder.path(), sqlite(folder.path(), "a"))
        .await
        .unwrap();
    fill(&server, 3).await;
    let target = redis();
    // A directory stands where the file is to be.
    std::fs::create_dir(folder.path().join(STATE_FILE)).unwrap();
    let refused = server.set_persistence(wish(target.clone())).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(server.storage().0, "sqlite");
    assert_eq!(waiting(&server).await, [3]);
    std::fs::remove_dir(folder.path().join(STATE_FILE)).unwrap();
    let changed = server.set_persistence(wish(target)).await.unwrap();
    assert_eq!(changed.copied.messages, 3);
    assert_eq!(waiting(&server).await, [3]);
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test]
async fn a_redis_that_was_left_says_so_and_opens_when_forced() {
    let folder = TempDir::new().unwrap();
    let options = server::shared().options();
    let old = Storage::Redis(options.clone());
    let server = start(folder.path(), old.clone()).await.unwrap();
    fill(&server, 2).await;
    let same = server.set_persistence(wish(old.clone())).await;
    assert_eq!(same.unwrap_err().kind(), ErrorKind::StoreLocked);
    let file = sqlite(folder.path(), "b");
    server.set_persistence(wish(file)).await.unwrap();
    let back = server.set_persistence(wish(old.clone())).await.unwrap_err();
    assert!(back.message().contains("has moved to"), "{back}");
    server.close(SECOND).await.unwrap();

    let other = TempDir::new().unwrap();
    let error = start(other.path(), old.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("have moved to sqlite"), "{error}");
    let mut forced: RedisOptions = options;
    forced.force = true;
    for storage in [Storage::Redis(forced), old] {
        // Once forced, it leads again.
        let server = start(other.path(), storage).await.unwrap();
        assert_eq!(waiting(&server).await, [2]);
        server.close(SECOND).await.unwrap();
    }
}

const CHILD: &str = "RESTANTE_TEST_MOVES_IN";
const REDIS: &str = "RESTANTE_TEST_MOVES_WITH";

/// What the test below kills: does nothing unless it is told where to work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_moves_between_redis_and_files_when_told_to() {
    let (Ok(folder), Ok(url)) = (std::env::var(CHILD), std::env::var(REDIS)) else {
        return;
    };
    let folder = Path::new(&folder);
    let server = start(folder, sqlite(folder, "0.sqlite")).await.unwrap();
    eprintln!("listening on {}", server.local_addr());
    for round in 0_u64.. {
        let name = format!("{}-{round}", std::process::id());
        let next = match server.storage().0 {
            "redis" => sqlite(folder, &format!("{name}.sqlite")),
            _ => {
                let mut options = RedisOptions::at(url.as_str());
                options.prefix = name;
                Storage::Redis(options)
            }
        };
        server.set_persistence(wish(next)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_to_a_kill_between_redis_and_a_file() {
    let folder = TempDir::new().unwrap();
    let redis = RedisServer::start(&["--appendonly", "no"]);
    let rounds = if is_long() { 20 } else { 5 };
    is_killed_again_and_again(rounds, async || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture"])
            .arg("redis::swap::a_broker_moves_between_redis_and_files_when_told_to")
            .env(CHILD, folder.path())
            .env(REDIS, redis.url());
        Broker::start(command).await
    })
    .await;
    leads_alone(folder.path(), 1).await;
    let state = std::fs::read_to_string(folder.path().join(STATE_FILE)).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let leading = state["storage_options"]["prefix"].as_str();
    let port = redis.port.to_string();
    let mut asking = std::process::Command::new("redis-cli");
    let asked = asking.args(["-p", &port, "KEYS", "*:realms"]).output();
    let keys = String::from_utf8(asked.unwrap().stdout).unwrap();
    for key in keys.lines() {
        let prefix = key.strip_suffix(":realms").unwrap();
        if Some(prefix) == leading {
            continue;
        }
        let mut options = RedisOptions::at(redis.url());
        options.prefix = prefix.to_owned();
        let elsewhere = TempDir::new().unwrap();
        match start(elsewhere.path(), Storage::Redis(options)).await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Config, "{error}"),
            Ok(server) => {
                assert_eq!(waiting(&server).await, [0; 0], "only one leads");
                server.close(SECOND).await.unwrap();
            }
        }
    }
}
