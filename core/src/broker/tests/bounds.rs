//! What ends by age or number: ttl, delay, repeats, full queues, old subscriptions (P4, P15–P17, P25).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::*;
use crate::clock::Timestamp;
use crate::model::*;
use crate::store::{Bounds, Overflow};

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test]
async fn a_zero_ttl_reaches_those_online_and_is_stored_for_nobody() {
    let world = world().await;
    let (online, away) = (world.consumer("on").await, world.consumer("away").await);
    online.subscribe(wish("on", "x").durable()).await.unwrap();
    away.subscribe(wish("away", "x").durable()).await.unwrap();
    away.leave(Leave::Closed);
    let request = PublishRequest {
        ttl: Some(Duration::ZERO),
        ..guaranteed("p", "x", "1")
    };
    let published = world.producer("p").publish(request).await.unwrap();
    assert_eq!((published.queued, published.delivered), (0, 1));
    online.wait_for(1).await;
    let back = world.consumer("away").await;
    assert_eq!(
        back.subscribe(wish("away", "x").durable())
            .await
            .unwrap()
            .queued,
        0
    );
}

#[tokio::test]
async fn a_message_lives_as_long_as_it_says_else_its_producer_else_the_default() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    consumer.leave(Leave::Closed);
    let producer = world.join();
    let hello = ProducerHello {
        name: ProducerName::parse("p").unwrap(),
        id: None,
        default_ttl: Some(Duration::from_secs(60)),
        instance: None,
    };
    world.broker.producer(&producer.member, hello).unwrap();
    for (body, ttl) in [("short", Some(1)), ("own", None), ("long", Some(600))] {
        let request = PublishRequest {
            ttl: ttl.map(Duration::from_secs),
            ..message("p", "x", body)
        };
        producer.publish(request).await.unwrap();
    }
    world
        .join()
        .publish(message("q", "x", "default"))
        .await
        .unwrap();
    world.clock.advance(Duration::from_secs(61));
    let back = world.consumer("c").await;
    back.subscribe(wish("c", "x").durable()).await.unwrap();
    back.wait_for(2).await;
    assert_eq!(back.bodies(), ["long", "default"]);
}

#[tokio::test]
async fn a_repeat_is_stored_once_and_told_so() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    let plain = world.join();
    plain.subscribe(wish("ANONYMOUS-1", "x")).await.unwrap();
    let (one, two) = (world.producer("p"), world.producer("p"));
    let request = PublishRequest {
        uid: Some("order-7"),
        ..message("p", "x", "1")
    };
    let first = one.publish(request).await.unwrap();
    let second = two.publish(request).await.unwrap();
    assert!(!first.duplicate && second.duplicate);
    assert_eq!(
        (first.id, second.queued, second.delivered),
        (second.id, 0, 0)
    );
    let numbered = PublishRequest {
        instance_seq: Some(("i", 1)),
        ..message("p", "x", "2")
    };
    assert!(!one.publish(numbered).await.unwrap().duplicate);
    assert!(two.publish(numbered).await.unwrap().duplicate);
    consumer.wait_for(2).await;
    assert_eq!(consumer.bodies(), ["1", "2"]);
    assert_eq!(plain.bodies(), ["1", "2"]);
}

#[tokio::test]
async fn a_delayed_message_is_routed_when_it_is_due() {
    let world = world().await;
    let producer = world.producer("p");
    let due = Timestamp(1_767_225_600_000 + 60_000);
    let request = PublishRequest {
        due: Some(due),
        ..message("p", "x", "1")
    };
    let published = producer.publish(request).await.unwrap();
    assert_eq!((published.queued, published.delayed), (0, true));
    let (durable, plain) = (world.consumer("d").await, world.consumer("c").await);
    durable.subscribe(wish("d", "x").durable()).await.unwrap();
    plain.subscribe(wish("c", "x")).await.unwrap();
    world.pass(Duration::from_secs(59)).await;
    assert!(plain.bodies().is_empty());
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(durable.wait_for(1).await.len(), 1);
    assert_eq!(plain.wait_for(1).await.len(), 1);
    world.pass(Duration::from_secs(120)).await;
    assert_eq!((durable.bodies().len(), plain.bodies().len()), (1, 1));
    let past = PublishRequest {
        due: Some(Timestamp(1)),
        ..message("p", "x", "2")
    };
    assert!(!producer.publish(past).await.unwrap().delayed);
}

/// Who may publish, for the moment.
struct Publishers(Mutex<Vec<&'static str>>);

impl Rights for Publishers {
    fn may_still_publish(&self, _: &RealmId, owner: Option<&str>, _: &str) -> bool {
        owner.is_some_and(|owner| self.0.lock().contains(&owner))
    }
}

#[tokio::test]
async fn a_delayed_message_is_published_by_the_rights_its_owner_has_when_it_is_due() {
    let rights = Arc::new(Publishers(Mutex::new(vec!["kept", "revoked"])));
    let asked = rights.clone();
    let world = world_with(move |config| config.rights = asked, Bounds::default()).await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    for owner in ["revoked", "kept"] {
        let pass = Pass {
            owner: Some(owner.into()),
            ..Pass::default()
        };
        let producer = world.join_with(&RealmId::default(), pass);
        let request = PublishRequest {
            due: Some(Timestamp(1_767_225_600_000 + 60_000)),
            ..message("p", "x", owner)
        };
        assert!(producer.publish(request).await.unwrap().delayed);
    }
    *rights.0.lock() = vec!["kept"];
    world.pass(Duration::from_secs(61)).await;
    consumer.wait_for(1).await;
    world.pass(Duration::from_secs(61)).await;
    assert_eq!(consumer.bodies(), ["kept"]);
}

#[tokio::test]
async fn a_full_queue_refuses_or_drops_its_oldest() {
    let bounds = |overflow| Bounds {
        max_queued: 100,
        overflow,
        ..Bounds::default()
    };
    for (overflow, refused) in [(Overflow::Reject, 50), (Overflow::DropOldest, 0)] {
        let world = world_with(|_| {}, bounds(overflow)).await;
        let consumer = world.consumer("c").await;
        consumer.subscribe(wish("c", "x").durable()).await.unwrap();
        consumer.leave(Leave::Closed);
        let producer = world.producer("p");
        let mut no = 0;
        for n in 0..150 {
            if let Err(error) = producer.publish(message("p", "x", &n.to_string())).await {
                assert_eq!(error.kind(), ErrorKind::QueueFull);
                no += 1;
            }
        }
        assert_eq!(no, refused);
        let back = world.consumer("c").await;
        back.subscribe(wish("c", "x").durable()).await.unwrap();
        back.wait_for(100).await;
        let first = if refused > 0 { "0" } else { "50" };
        assert_eq!((back.bodies().len(), &*back.bodies()[0]), (100, first));
    }
}

#[tokio::test]
async fn what_expired_gives_its_room_back_within_a_second_and_is_counted() {
    let bounds = Bounds {
        max_queued: 2,
        ..Bounds::default()
    };
    let world = world_with(|_| {}, bounds).await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    consumer.leave(Leave::Closed);
    let producer = world.producer("p");
    for body in ["1", "2"] {
        let request = PublishRequest {
            ttl: Some(Duration::from_secs(1)),
            ..message("p", "x", body)
        };
        producer.publish(request).await.unwrap();
    }
    let full = producer.publish(message("p", "x", "3")).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QueueFull);
    world.pass(Duration::from_secs(2)).await;
    let published = producer.publish(message("p", "x", "4")).await.unwrap();
    assert_eq!((published.queued, published.refused), (1, 0));
    assert_eq!(world.broker.metrics().expired.total(), 2);
}

#[tokio::test]
async fn what_a_full_queue_refused_does_not_reach_its_sessions_and_reaches_others_in_order() {
    let bounds = Bounds {
        max_queued: 2,
        ..Bounds::default()
    };
    let world = world_with(|_| {}, bounds).await;
    let (full, roomy) = (world.consumer("f").await, world.consumer("r").await);
    for (client, name) in [(&full, "f"), (&roomy, "r")] {
        let mut request = wish(name, "x").durable().ack();
        request.options.ack_timeout = DAY;
        client.subscribe(request).await.unwrap();
    }
    let producer = world.producer("p");
    let ack_new = async |client: &Client, from: usize, to: usize| {
        for line in &client.wait_for(to).await[from..to] {
            client.settle(&id_of(line), Verdict::Ack).await.unwrap();
        }
    };
    for n in 0..2 {
        let body = n.to_string();
        let published = producer.publish(message("p", "x", &body)).await.unwrap();
        assert_eq!((published.queued, published.refused), (2, 0));
    }
    ack_new(&roomy, 0, 2).await;
    let told: Vec<_> = ["2", "3"]
        .map(|body| producer.gather(message("p", "x", body)))
        .into();
    producer.flush();
    for told in told {
        let published = told.await.unwrap().unwrap();
        assert_eq!((published.queued, published.refused), (1, 1));
    }
    ack_new(&roomy, 2, 4).await;
    breathe().await;
    assert_eq!(full.bodies(), ["0", "1"]);
    ack_new(&full, 0, 1).await;
    let published = producer.publish(message("p", "x", "4")).await.unwrap();
    assert_eq!((published.queued, published.refused), (2, 0));
    full.wait_for(3).await;
    roomy.wait_for(5).await;
    assert_eq!(full.bodies(), ["0", "1", "4"]);
    assert_eq!(roomy.bodies(), ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn remembered_subscriptions_end_by_age() {
    let world = world().await;
    for (name, request) in [
        ("d", wish("d", "x").durable()),
        ("empty", wish("empty", "x")),
        ("full", wish("full", "y")),
    ] {
        let client = world.consumer(name).await;
        client.subscribe(request).await.unwrap();
        client.leave(Leave::Closed);
    }
    let producer = world.producer("p");
    let request = PublishRequest {
        ttl: Some(DAY * 60),
        ..guaranteed("p", "y", "1")
    };
    producer.publish(request).await.unwrap();
    world.pass(DAY * 2).await;
    world.broker.sweep().await;
    assert_eq!(world.broker.stats()[1].1.queues, 2);
    world.pass(DAY * 29).await;
    world.broker.sweep().await;
    assert_eq!(world.broker.stats()[1].1.queues, 1);
    assert_eq!(world.broker.metrics().forgotten.total(), 2);
}

#[tokio::test]
async fn plain_subscriptions_past_the_bound_displace_the_oldest_away() {
    let world = world_with(
        |config| config.guaranteed_subscriptions = 3,
        Bounds::default(),
    )
    .await;
    for n in 0..5 {
        let name = format!("c{n}");
        let client = world.consumer(&name).await;
        client.subscribe(wish(&name, "x")).await.unwrap();
        client.leave(Leave::Closed);
    }
    let stats = world.broker.queue_stats(&RealmId::default()).await.unwrap();
    let mut names: Vec<&str> = stats.iter().map(|queue| &*queue.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["c2", "c3", "c4"]);
}
