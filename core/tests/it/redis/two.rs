//! Two brokers on one Redis: what is promised of one holds wherever a consumer is (P29).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use restante::limits::Cap;
use restante::server::{Persistence, Server, ServerConfig, Storage};
use restante::store::RedisOptions;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::server::shared;
use crate::harness::Client;
use crate::transport::harness::PATIENCE;

pub async fn broker(options: &RedisOptions) -> Server {
    broker_with(options, |_| ()).await
}

async fn broker_with(options: &RedisOptions, change: impl FnOnce(&mut ServerConfig)) -> Server {
    let mut config = ServerConfig::default();
    config.host = Some("127.0.0.1".to_owned());
    config.port = 0;
    config.data_dir = std::env::temp_dir().join("restante-two-without-a-state");
    config.storage = Storage::Redis(options.clone());
    change(&mut config);
    Server::start(config).await.unwrap()
}

fn options(lease: Duration) -> RedisOptions {
    let mut options = shared().options();
    options.lease = lease;
    options
}

async fn two() -> (Server, Server) {
    let options = options(Duration::from_secs(15));
    (broker(&options).await, broker(&options).await)
}

pub async fn consumer(at: &Server, name: &str) -> Client {
    Client::open(at.local_addr(), "CONSUMER", name).await
}

pub async fn producer(at: &Server, name: &str) -> Client {
    Client::open(at.local_addr(), "PRODUCER", name).await
}

pub fn durable() -> Value {
    json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true })
}

pub async fn confirmed(producer: &mut Client, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let answer = producer.produce("e", json!(n), json!({})).await;
        assert_eq!(answer["queued"], 1, "{answer}");
    }
}

fn numbers(range: std::ops::Range<u64>) -> Vec<Value> {
    range.map(Value::from).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_made_at_one_broker_is_known_to_the_other_once_it_is_answered() {
    let (a, b) = two().await;
    let mut there = producer(&b, "p").await;
    for round in 0..20 {
        let name = format!("c{round}");
        let event = format!("e{round}");
        let mut here = consumer(&a, &name).await;
        here.subscribe(json!({ "event": event, "producer": "TYO-MQ-ALL", "durable": true }))
            .await;
        here.leave().await;
        let answer = there.produce(&event, json!(round), json!({})).await;
        assert_eq!(answer["queued"], 1, "round {round}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_broker_stores_reaches_who_is_attached_at_the_other() {
    let (a, b) = two().await;
    reaches(&a, &b).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_what_one_broker_stores_reaches_who_is_attached_at_the_other() {
    let options = super::cluster::shared().options();
    for _ in 0..4 {
        // Each listens at one node of three.
        let (a, b) = (broker(&options).await, broker(&options).await);
        reaches(&a, &b).await;
    }
}

async fn reaches(a: &Server, b: &Server) {
    let mut here = consumer(a, "c").await;
    here.subscribe(durable()).await;
    let mut there = producer(b, "p").await;
    for n in 0..20 {
        confirmed(&mut there, n..n + 1).await;
        let delivery = timeout(PATIENCE, here.delivery()).await.unwrap();
        assert_eq!(delivery["message"], n);
        assert_eq!(delivery["delivery_attempt"], 1);
        here.ack(&delivery).await;
    }
    here.leave().await;
    let mut there = consumer(b, "c").await;
    there.subscribe(durable()).await;
    assert_eq!(there.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_moves_gets_its_backlog_once_in_order_and_what_it_held_again() {
    let (a, b) = two().await;
    let mut here = consumer(&a, "c").await;
    here.subscribe(json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true, "prefetch": 5 }))
        .await;
    let mut from_a = producer(&a, "p").await;
    let mut from_b = producer(&b, "q").await;
    confirmed(&mut from_a, 0..10).await;
    confirmed(&mut from_b, 10..20).await;
    let mut held = Vec::new();
    for n in 0..5 {
        let delivery = here.delivery().await;
        assert_eq!(delivery["message"], n);
        held.push(delivery);
    }
    here.ack(&held[1]).await;
    let next = here.delivery().await;
    assert_eq!(next["message"], 5);
    here.leave().await;
    let mut there = consumer(&b, "c").await;
    let answer = there.subscribe(durable()).await;
    assert_eq!(answer["ok"], true);
    let mut got = Vec::new();
    for _ in 0..19 {
        let delivery = timeout(PATIENCE, there.delivery()).await.unwrap();
        let number = delivery["message"].as_u64().unwrap();
        let attempt = if number < 6 { 2 } else { 1 };
        assert_eq!(delivery["delivery_attempt"], attempt, "{delivery}");
        got.push(delivery["message"].clone());
        if number == 2 {
            // What the other broker delivered is acknowledged here.
            there.ack(&held[2]).await;
        }
        if number != 2 {
            there.ack(&delivery).await;
        }
    }
    let mut all = numbers(0..20);
    all.remove(1);
    assert_eq!(got, all);
    assert_eq!(there.rest().await, 0);
    there.leave().await;
    let mut again = consumer(&a, "c").await;
    again.subscribe(durable()).await;
    confirmed(&mut from_b, 20..21).await;
    assert_eq!(again.messages(1).await, [json!(20)]);
    assert_eq!(again.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_session_of_a_name_takes_its_queue_and_the_old_one_is_told() {
    let (a, b) = two().await;
    let mut old = consumer(&a, "c").await;
    old.subscribe(durable()).await;
    let mut from = producer(&a, "p").await;
    confirmed(&mut from, 0..3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(old.delivery().await);
    }
    let mut new = consumer(&b, "c").await;
    new.subscribe(durable()).await;
    timeout(PATIENCE, old.ended())
        .await
        .expect("the old session ends");
    for n in 0..3 {
        let delivery = timeout(PATIENCE, new.delivery()).await.unwrap();
        assert_eq!(delivery["message"], n);
        assert_eq!(delivery["delivery_attempt"], 2);
        new.ack(&delivery).await;
    }
    confirmed(&mut from, 3..6).await;
    assert_eq!(new.messages(3).await, numbers(3..6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_ends_at_one_broker_takes_nothing_at_the_other() {
    let (a, b) = two().await;
    let mut here = consumer(&a, "c").await;
    here.subscribe(durable()).await;
    here.leave().await;
    let mut there = consumer(&b, "c").await;
    let ended = there
        .call(
            "UNSUBSCRIBE",
            &json!({ "consumer": "c", "event": "e", "producer": "TYO-MQ-ALL" }),
        )
        .await;
    assert_eq!(ended["ok"], true, "{ended}");
    let mut from = producer(&a, "p").await;
    let stops = async {
        loop {
            let answer = from.produce("e", json!(0), json!({})).await;
            if answer["queued"] == 0 {
                return;
            }
        }
    };
    timeout(PATIENCE, stops)
        .await
        .expect("the other broker forgets it too");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_group_at_two_brokers_share_what_comes() {
    let (a, b) = two().await;
    let one_each = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true, "group": "g", "prefetch": 1 });
    let mut here = consumer(&a, "x").await;
    here.subscribe(one_each.clone()).await;
    let mut from = producer(&a, "p").await;
    confirmed(&mut from, 0..1).await;
    let first = here.delivery().await;
    here.ack(&first).await;
    let mut there = consumer(&b, "y").await;
    there.subscribe(one_each).await;
    let total = 40;
    let mut got: [BTreeSet<u64>; 2] = [BTreeSet::new(), BTreeSet::new()];
    confirmed(&mut from, 1..total).await;
    while got[0].len() + got[1].len() < total as usize - 1 {
        let (delivery, at) = timeout(PATIENCE, async {
            tokio::select! {
                delivery = here.delivery() => (delivery, 0),
                delivery = there.delivery() => (delivery, 1),
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{got:?}"));
        assert_eq!(delivery["delivery_attempt"], 1, "{delivery}");
        let number = delivery["message"].as_u64().unwrap();
        assert!(
            !got[0].contains(&number) && !got[1].contains(&number),
            "{delivery}"
        );
        got[at].insert(number);
        let client = if at == 0 { &mut here } else { &mut there };
        client.ack(&delivery).await;
    }
    assert!(!got[0].is_empty() && !got[1].is_empty(), "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_leaves_gives_what_it_held_to_the_member_at_the_other_broker() {
    let (a, b) = two().await;
    let member = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true, "group": "g" });
    let mut here = consumer(&a, "x").await;
    here.subscribe(member.clone()).await;
    let mut from = producer(&b, "p").await;
    confirmed(&mut from, 0..4).await;
    for _ in 0..4 {
        here.delivery().await;
    }
    let mut there = consumer(&b, "y").await;
    there.subscribe(member).await;
    here.leave().await;
    for n in 0..4 {
        let delivery = timeout(PATIENCE, there.delivery()).await.unwrap();
        assert_eq!(delivery["message"], n);
        assert_eq!(delivery["delivery_attempt"], 2);
        there.ack(&delivery).await;
    }
    assert_eq!(there.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_group_member_acknowledges_at_another_broker_is_not_sent_again() {
    let (a, b) = two().await;
    let member = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true,
        "group": "g", "ack_timeout": "1s", "retry": { "delay": "1ms" } });
    let mut here = consumer(&a, "x").await;
    here.subscribe(member.clone()).await;
    let mut from = producer(&b, "p").await;
    confirmed(&mut from, 0..2).await;
    let (first, second) = (here.delivery().await, here.delivery().await);
    let mut there = consumer(&b, "y").await;
    there.subscribe(member).await;
    there.ack(&first).await;
    // The other one comes again, this one does not.
    let again = timeout(PATIENCE, async {
        tokio::select! {
            delivery = here.delivery() => delivery,
            delivery = there.delivery() => delivery,
        }
    });
    let again = again.await.unwrap();
    assert_eq!(again["message"], second["message"]);
    there.ack(&again).await;
    assert_eq!((here.rest().await, there.rest().await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_again_to_the_other_broker_is_stored_once() {
    let (a, b) = two().await;
    let mut here = consumer(&a, "c").await;
    here.subscribe(durable()).await;
    let (mut one, mut two) = (producer(&a, "p").await, producer(&b, "p2").await);
    let with = json!({ "instance_seq": ["i", 1] });
    let first = one.produce("e", json!(1), with.clone()).await;
    let again = two.produce("e", json!(1), with).await;
    assert_eq!(first["duplicate"], false);
    assert_eq!(again["duplicate"], true);
    assert_eq!(again["id"], first["id"]);
    let with = json!({ "msg_uid": "u" });
    assert_eq!(
        two.produce("e", json!(2), with.clone()).await["duplicate"],
        false
    );
    assert_eq!(one.produce("e", json!(2), with).await["duplicate"], true);
    assert_eq!(here.messages(2).await, numbers(1..3));
    assert_eq!(here.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_broker_held_is_the_others_at_once() {
    let (a, b) = two().await;
    let member = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true,
        "group": "g" });
    let mut here = consumer(&a, "x").await;
    here.subscribe(member.clone()).await;
    let mut from = producer(&b, "p").await;
    confirmed(&mut from, 0..4).await;
    for _ in 0..4 {
        here.delivery().await;
    }
    let mut there = consumer(&b, "y").await;
    there.subscribe(member).await;
    a.close(PATIENCE).await.unwrap();
    for n in 0..4 {
        let delivery = timeout(PATIENCE, there.delivery()).await.unwrap();
        assert_eq!(
            (&delivery["message"], &delivery["delivery_attempt"]),
            (&json!(n), &json!(2))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_share_a_consumer_id_wait_for_the_newest_one_at_another_broker() {
    let (a, b) = two().await;
    let shared = json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true, "ack": true,
        "consumer_id": "s" });
    let mut old = consumer(&a, "x").await;
    old.subscribe(shared.clone()).await;
    let mut new = consumer(&b, "y").await;
    new.subscribe(shared).await;
    let mut from = producer(&a, "p").await;
    confirmed(&mut from, 0..1).await;
    let first = timeout(PATIENCE, new.delivery()).await.unwrap();
    new.ack(&first).await;
    confirmed(&mut from, 1..3).await;
    assert_eq!(new.messages(2).await, numbers(1..3));
    let before = old.rest().await;
    assert!(before <= 1, "what came while it was asked to let go");
    new.leave().await;
    old.messages(before).await;
    for n in 1..3 {
        let delivery = timeout(PATIENCE, old.delivery()).await.unwrap();
        assert_eq!(
            (&delivery["message"], &delivery["delivery_attempt"]),
            (&json!(n), &json!(2))
        );
        old.ack(&delivery).await;
    }
    confirmed(&mut from, 3..4).await;
    assert_eq!(old.messages(1).await, [json!(3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_until_it_is_due_is_published_once() {
    let (a, b) = two().await;
    let mut here = consumer(&a, "c").await;
    here.subscribe(durable()).await;
    let mut from = [producer(&a, "p").await, producer(&b, "q").await];
    for n in 0..20 {
        let with = json!({ "delay": "300ms" });
        let answer = from[n % 2].produce("e", json!(n), with).await;
        assert_eq!(answer["delayed"], true, "{answer}");
    }
    let mut got: Vec<u64> = Vec::new();
    for _ in 0..20 {
        let delivery = timeout(PATIENCE, here.delivery()).await.unwrap();
        got.push(delivery["message"].as_u64().unwrap());
    }
    got.sort_unstable();
    assert_eq!(got, (0..20).collect::<Vec<u64>>());
    assert_eq!(here.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_broker_held_until_it_is_due_is_published_by_the_other() {
    let (a, b) = two().await;
    let mut here = consumer(&a, "c").await;
    here.subscribe(durable()).await;
    let mut from = producer(&b, "p").await;
    let answer = from.produce("e", json!(1), json!({ "delay": "1s" })).await;
    assert_eq!(answer["delayed"], true, "{answer}");
    b.close(PATIENCE).await.unwrap();
    let delivery = timeout(PATIENCE, here.delivery()).await.unwrap();
    assert_eq!(delivery["message"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_as_full_for_one_broker_as_for_the_other() {
    let options = options(Duration::from_secs(15));
    let bounded = |config: &mut ServerConfig| config.bounds.max_queued = 4;
    let a = broker_with(&options, bounded).await;
    let b = broker_with(&options, bounded).await;
    let mut here = consumer(&a, "c").await;
    here.subscribe(durable()).await;
    here.leave().await;
    let mut from = [producer(&a, "p").await, producer(&b, "q").await];
    for n in 0..4 {
        let answer = from[n % 2].produce("e", json!(n), json!({})).await;
        assert_eq!(answer["queued"], 1, "{answer}");
    }
    for from in &mut from {
        assert_eq!(
            from.produce("e", json!(4), json!({})).await["error"],
            "queue_full"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_realm_is_as_full_of_bytes_for_one_broker_as_for_the_other() {
    let options = options(Duration::from_secs(15));
    let bounded = |config: &mut ServerConfig| {
        let limits = Arc::make_mut(&mut config.limits);
        limits.base.max_queued_bytes_per_realm = Some(Cap::At(3_000.0));
    };
    let a = broker_with(&options, bounded).await;
    let b = broker_with(&options, bounded).await;
    let mut here = consumer(&a, "c").await;
    here.subscribe(durable()).await;
    here.leave().await;
    let mut from = [producer(&a, "p").await, producer(&b, "q").await];
    let large = || json!("x".repeat(1_000));
    for from in &mut from {
        let answer = from.produce("e", large(), json!({})).await;
        assert_eq!(answer["queued"], 1, "{answer}");
    }
    for from in &mut from {
        let answer = from.produce("e", large(), json!({})).await;
        assert_eq!(answer["error"], "queue_full", "{answer}");
    }
    let mut there = consumer(&b, "c").await;
    there.subscribe(durable()).await;
    for _ in 0..2 {
        let delivery = timeout(PATIENCE, there.delivery()).await.unwrap();
        there.ack(&delivery).await;
    }
    for from in &mut from {
        let answer = from.produce("e", large(), json!({})).await;
        assert_eq!(answer["queued"], 1, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_others_use_is_not_changed() {
    let (a, b) = two().await;
    let to_memory = || Persistence {
        storage: Storage::Memory,
        default_ttl: None,
        force: true,
    };
    let refused = a.set_persistence(to_memory()).await.unwrap_err();
    assert_eq!(refused.kind(), restante::ErrorKind::StoreLocked);
    drop(b);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_broker_did_not_hear_it_learns_when_its_link_is_back() {
    let server = super::server::RedisServer::start(&["--appendonly", "no"]);
    let relay = super::relay::Relay::start(server.port).await;
    let near = server.options();
    let mut far = near.clone();
    far.url = format!("redis://127.0.0.1:{}", relay.port);
    let (a, b) = (broker(&far).await, broker(&near).await);
    let mut from = producer(&a, "p").await;
    let mut there = consumer(&b, "c").await;
    there
        .subscribe(json!({ "event": "old", "producer": "TYO-MQ-ALL", "durable": true }))
        .await;
    assert_eq!(from.produce("old", json!(0), json!({})).await["queued"], 1);
    relay.block();
    there.subscribe(durable()).await;
    let over = json!({ "consumer": "c", "event": "old", "producer": "TYO-MQ-ALL" });
    assert_eq!(there.call("UNSUBSCRIBE", &over).await["ok"], true);
    relay.unblock();
    for (event, queued) in [("e", 1), ("old", 0)] {
        let learns =
            async { while from.produce(event, json!(1), json!({})).await["queued"] != queued {} };
        timeout(PATIENCE, learns)
            .await
            .unwrap_or_else(|_| panic!("{event}"));
    }
    let got = there.messages(2).await;
    assert_eq!(got, [json!(0), json!(1)]);
}
