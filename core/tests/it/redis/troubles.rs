//! What becomes of calls when Redis is killed, frozen, full, read-only, forgetful or cut off.

use std::time::{Duration, Instant};

use restante::ErrorKind;
use restante::clock::SystemClock;
use restante::store::{Bounds, Durability, QueueChange, RedisOptions, RedisStore, Store as _};

use crate::harness::until;

use super::relay::Relay;
use super::rig::{Rig, now, realm, spec};
use super::server::{self, RedisServer, free_port};

#[tokio::test]
async fn a_store_opened_again_has_everything() {
    let options = server::shared().options();
    let rig = Rig::new(options.clone()).await;
    for _ in 0..5 {
        rig.put().await.unwrap().remove(0).unwrap();
    }
    let queue = rig.queue.queue;
    let change = QueueChange {
        done: vec![2],
        sent: Some(4),
        ..QueueChange::default()
    };
    rig.store.update(queue, change, now()).await.unwrap();
    let before = rig.store.queues().await.unwrap();
    rig.store.close().await.unwrap();
    let again = server::open(options, Bounds::default()).await;
    assert_eq!(again.queues().await.unwrap(), before);
    let page = again.page(queue, 0, super::rig::ALL, now()).await.unwrap();
    let found: Vec<_> = page
        .entries
        .iter()
        .map(|entry| (entry.seq, entry.attempts))
        .collect();
    assert_eq!(found, [(1, 1), (3, 1), (4, 1), (5, 0)]);
    let other = again.open(spec("b"), now()).await.unwrap();
    assert!(other.queue > queue, "ids are never used again");
}

#[tokio::test]
async fn nothing_confirmed_is_lost_when_redis_is_killed_under_load() {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut options = server.options();
    options.timeout = Duration::from_secs(10);
    let rig = Rig::new(options).await;
    assert_eq!(rig.store.durability(), Durability::Disk);
    let mut confirmed = Vec::new();
    for _ in 0..4 {
        let calls: Vec<_> = (0..400).map(|_| rig.put()).collect();
        let waiting = tokio::spawn(async move {
            let mut ids = Vec::new();
            for call in calls {
                match call.await {
                    Ok(mut answers) => ids.push(answers.remove(0).unwrap().id.0),
                    Err(error) => panic!("{error}"),
                }
            }
            ids
        });
        // In the middle of it.
        until("the first answer", || async {
            rig.store.counters().appended > 0
        })
        .await;
        server.kill();
        server.run();
        confirmed.extend(waiting.await.unwrap());
    }
    assert_eq!(confirmed.len(), 1600);
    assert_eq!(rig.waiting().await, confirmed, "each once, in order");
}

#[tokio::test]
async fn a_frozen_redis_times_out_and_takes_up_again() {
    let server = RedisServer::start(&["--appendonly", "no"]);
    let mut options = server.options();
    options.timeout = Duration::from_millis(600);
    let rig = Rig::new(options).await;
    rig.put().await.unwrap().remove(0).unwrap();
    server.freeze();
    let begun = Instant::now();
    let calls: Vec<_> = (0..50).map(|_| rig.put()).collect();
    let mut kinds = Vec::new();
    for call in calls {
        kinds.push(call.await.unwrap_err().kind());
    }
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert!(kinds.contains(&ErrorKind::StoreTimeout), "{kinds:?}");
    server.thaw();
    until("recovery", || async { rig.put().await.is_ok() }).await;
    let last = rig.put().await.unwrap().remove(0).unwrap().id.0;
    let waiting = rig.waiting().await;
    assert!(
        waiting.is_sorted_by(|a, b| a < b),
        "once and in order: {waiting:?}"
    );
    assert_eq!((waiting.first(), waiting.last()), (Some(&1), Some(&last)));
}

#[tokio::test]
async fn a_forgotten_script_costs_no_order() {
    let server = RedisServer::start(&["--appendonly", "no"]);
    let rig = Rig::new(server.options()).await;
    let mut calls = Vec::new();
    for round in 0..600 {
        if round % 40 == 7 {
            server.say(&["SCRIPT", "FLUSH"]);
        }
        calls.push(rig.put());
        if round % 50 == 0 {
            rig.store.depth(rig.queue.queue).await.unwrap();
        }
    }
    for call in calls {
        call.await.unwrap().remove(0).unwrap();
    }
    assert_eq!(rig.waiting().await, (1..=600).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_full_redis_refuses_messages_and_takes_acks() {
    let server = RedisServer::start(&["--appendonly", "no"]);
    let rig = Rig::new(server.options()).await;
    for _ in 0..3 {
        rig.put().await.unwrap().remove(0).unwrap();
    }
    server.say(&["CONFIG", "SET", "maxmemory", "1"]);
    let calls: Vec<_> = (0..20).map(|_| rig.put()).collect();
    for call in calls {
        assert_eq!(call.await.unwrap_err().kind(), ErrorKind::StoreFull);
    }
    let done = QueueChange {
        done: vec![1, 2],
        ..QueueChange::default()
    };
    rig.store
        .update(rig.queue.queue, done, now())
        .await
        .unwrap();
    assert_eq!(rig.waiting().await, [3]);
    server.say(&["CONFIG", "SET", "maxmemory", "0"]);
    let id = rig.put().await.unwrap().remove(0).unwrap().id.0;
    assert_eq!(rig.waiting().await, [3, id]);
}

#[tokio::test]
async fn a_replica_is_no_store_until_it_is_a_master_again() {
    let server = RedisServer::start(&["--appendonly", "no"]);
    let mut options = server.options();
    options.timeout = Duration::from_millis(500);
    let rig = Rig::new(options).await;
    rig.put().await.unwrap().remove(0).unwrap();
    server.say(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    let error = rig.put().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains("read only"), "{error}");
    server.say(&["REPLICAOF", "NO", "ONE"]);
    until("recovery", || async { rig.put().await.is_ok() }).await;
    assert_eq!(rig.waiting().await[0], 1);
}

#[tokio::test]
async fn a_redis_that_cannot_write_its_file_says_why() {
    let server =
        RedisServer::start(&["--appendonly", "no", "--stop-writes-on-bgsave-error", "yes"]);
    let mut options = server.options();
    options.timeout = Duration::from_millis(500);
    let rig = Rig::new(options).await;
    server.say(&["CONFIG", "SET", "save", "1 1"]);
    server.say(&["CONFIG", "SET", "dbfilename", "dump.rdb"]);
    std::fs::create_dir(server.dir.join("dump.rdb")).unwrap();
    server.say(&["SET", "x", "1"]);
    server.say(&["BGSAVE"]);
    let is_failing = || async {
        server
            .say(&["INFO", "persistence"])
            .contains("last_bgsave_status:err")
    };
    until("a failed save", is_failing).await;
    let error = rig.put().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains("MISCONF"), "{error}");
    server.say(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    rig.put().await.unwrap().remove(0).unwrap();
}

/// Every kind of change, awaited one after the other; what is to be seen in the end.
async fn everything(rig: &Rig) -> Vec<String> {
    let (store, queue) = (&rig.store, rig.queue.queue);
    for _ in 0..3 {
        rig.put().await.unwrap().remove(0).unwrap();
    }
    let calls: Vec<_> = (0..30).map(|_| rig.put()).collect();
    for call in calls {
        call.await.unwrap().remove(0).unwrap();
    }
    let record = store.open(spec("b"), now()).await.unwrap();
    store.settle(queue, vec![2, 4]).await.unwrap();
    let change = QueueChange {
        low: Some(5),
        done: vec![9],
        ..QueueChange::default()
    };
    store.update(queue, change, now()).await.unwrap();
    rig.put().await.unwrap().remove(0).unwrap();
    store.forget(record.queue, false).await.unwrap();
    store.open(spec("b"), now()).await.unwrap();
    store.purge_queue(record.queue).await.unwrap();
    store.maintain(100, now()).await.unwrap();
    let page = store.page(queue, 0, super::rig::ALL, now()).await.unwrap();
    let mut said: Vec<String> = page
        .entries
        .iter()
        .map(|entry| format!("{} {}", entry.seq, entry.message.id.0))
        .collect();
    said.push(format!("{}", store.depth(queue).await.unwrap().count));
    said.push(format!(
        "{}",
        store.realm_depth(&realm()).await.unwrap().count
    ));
    said
}

#[tokio::test]
async fn a_link_cut_anywhere_leaves_nothing_half_and_nothing_twice() {
    let server = RedisServer::start(&["--appendonly", "no"]);
    let expected = everything(&Rig::new(server.options()).await).await;
    let relay = Relay::start(server.port).await;
    let mut cuts = 0;
    for round in 0..110i64 {
        let mut options = server.options();
        options.url = format!("redis://127.0.0.1:{}", relay.port);
        let rig = Rig::new(options).await;
        let before = relay.cuts();
        // Over all that goes to and fro, a little farther each time.
        match round % 2 {
            0 => relay.cut_there(round * 97 % 15_000),
            _ => relay.cut_back(round * 37 % 2_500),
        }
        assert_eq!(everything(&rig).await, expected, "round {round}");
        cuts += relay.cuts() - before;
        relay.cut_there(i64::MAX);
        relay.cut_back(i64::MAX);
        rig.store.close().await.unwrap();
    }
    assert!(cuts >= 100, "{cuts} cuts only");
}

#[tokio::test]
async fn closing_does_not_wait_for_a_redis_that_is_gone() {
    let mut server = RedisServer::start(&["--appendonly", "no"]);
    let rig = Rig::new(server.options()).await;
    server.kill();
    let call = rig.put();
    let begun = Instant::now();
    rig.store.close().await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    // It may have been on its way when the link broke.
    let kind = call.await.unwrap_err().kind();
    let kinds = [ErrorKind::StoreUnavailable, ErrorKind::StoreTimeout];
    assert!(kinds.contains(&kind), "{kind:?}");
    assert_eq!(
        rig.put().await.unwrap_err().kind(),
        ErrorKind::StoreUnavailable
    );
}

#[tokio::test]
async fn without_a_redis_there_is_no_start() {
    let url = format!("redis://user:secret@127.0.0.1:{}", free_port());
    let clock = std::sync::Arc::new(SystemClock::new());
    let opened = RedisStore::open(RedisOptions::at(url), Bounds::default(), clock).await;
    let error = opened.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains("127.0.0.1"), "{error}");
    assert!(!error.message().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_redis_that_evicts_is_refused_by_strict() {
    let server = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut options = server.options();
    drop(server::open(options.clone(), Bounds::default()).await);
    options.strict = true;
    let clock = std::sync::Arc::new(SystemClock::new());
    let error = RedisStore::open(options, Bounds::default(), clock)
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("allkeys-lru"), "{error}");
}

#[tokio::test]
async fn where_config_is_denied_the_start_says_what_it_cannot_know_and_works() {
    let server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let rule = [
        "ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all", "-config",
    ];
    assert!(server.say(&rule).starts_with("+OK"));
    let mut options = server.options();
    options.url = format!("redis://me:secret@127.0.0.1:{}", server.port);
    let mut strict = options.clone();
    let rig = Rig::new(options).await;
    rig.put().await.unwrap().remove(0).unwrap();
    assert_eq!(rig.waiting().await, [1]);
    // What Redis does not say is not promised.
    assert_eq!(rig.store.durability(), Durability::Process);
    let warnings = rig.store.health().warnings;
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("CONFIG is denied"))
    );
    assert!(!format!("{warnings:?}").contains("secret"));
    strict.strict = true;
    let clock = std::sync::Arc::new(SystemClock::new());
    let refused = RedisStore::open(strict, Bounds::default(), clock).await;
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::Config);
}
