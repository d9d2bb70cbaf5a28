//! Who gets a message (wire §3, §8; scenarios 21–36, 39, 40, 68).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::*;
use crate::model::*;
use crate::store::Bounds;

#[tokio::test]
async fn overlapping_subscriptions_get_one_copy_each() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    for key in ["a/b/c:x", "*:X", "topic:+", "p:x", "p:#", "*:#"] {
        consumer.subscribe(wish("c", key)).await.unwrap();
    }
    let producer = world.producer("p");
    let published = producer.publish(message("p", "X", "1")).await.unwrap();
    assert_eq!((published.delivered, published.queued), (5, 0));
    let mut lines = consumer.lines();
    lines.retain(|line| line.starts_with("CONSUME"));
    assert_eq!(
        lines,
        [
            "CONSUME-p-x X 1 from p",
            "CONSUME-p-TM-ALL X 1 from p",
            "CONSUME-tyo-mq-all-x X 1 from p",
            "CONSUME-tyo-mq-all-TM-ALL X 1 from p",
            "CONSUME-tyo-mq-all-+ X 1 from p",
        ]
    );
}

#[tokio::test]
async fn events_match_in_any_case_and_producers_exactly() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "Orders:Paid")).await.unwrap();
    consumer.subscribe(wish("c", "a:b-c")).await.unwrap();
    let producer = world.join();
    producer
        .publish(message("Orders", "PAID", "1"))
        .await
        .unwrap();
    producer
        .publish(message("orders", "paid", "2"))
        .await
        .unwrap();
    producer.publish(message("a-b", "c", "3")).await.unwrap();
    assert_eq!(consumer.bodies(), ["1"]);
}

#[tokio::test]
async fn messages_of_one_read_reach_a_receiver_in_one_piece_and_in_order() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x")).await.unwrap();
    let producer = world.join();
    for n in 0..100 {
        drop(producer.gather(message("p", "x", &n.to_string())));
        // The reply has nowhere to go; only the order counts here.
        if n == 0 {
            assert!(consumer.bodies().is_empty());
        }
    }
    let mut batch = producer.batch.lock();
    batch.replies.clear();
    producer.broker.flush(&producer.member, &mut batch);
    let numbers: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(consumer.bodies(), numbers);
    assert_eq!(consumer.line.pieces.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_sender_receives_its_own_messages() {
    let world = world().await;
    let both = world.consumer("c").await;
    both.producer("p");
    both.subscribe(wish("c", "p:x")).await.unwrap();
    both.publish(message("p", "x", "1")).await.unwrap();
    assert_eq!(both.bodies(), ["1"]);
}

#[tokio::test]
async fn realms_do_not_mix_but_monitors_see_all() {
    let world = world().await;
    let admin = Pass {
        is_admin: true,
        ..Pass::default()
    };
    let monitor = world.join_with(&RealmId::parse("*").unwrap(), admin);
    monitor.subscribe(wish("m", "x")).await.unwrap();
    let here = world.consumer("c").await;
    here.subscribe(wish("c", "x")).await.unwrap();
    let other = world.join_in(&RealmId::parse("other").unwrap());
    other.subscribe(wish("c", "x")).await.unwrap();
    other.publish(message("p", "x", "1")).await.unwrap();
    assert!(here.bodies().is_empty());
    assert_eq!(other.bodies(), ["1"]);
    assert_eq!(monitor.bodies(), ["1"]);
    monitor.publish(message("p", "x", "2")).await.unwrap();
    assert_eq!(other.bodies(), ["1"]);
}

#[tokio::test]
async fn a_message_that_matches_nobody_never_touches_the_store() {
    let world = world().await;
    let producer = world.producer("p");
    let published = producer.publish(guaranteed("p", "x", "1")).await.unwrap();
    assert_eq!(published.queued, 0);
    producer.publish(message("p", "x", "2")).await.unwrap();
    assert_eq!(world.store.appends.load(Ordering::SeqCst), 0);
    assert_eq!(world.broker.metrics().unmatched.total(), 1);
}

#[tokio::test]
async fn a_message_that_matches_too_many_keys_is_refused() {
    let world = world_with(|config| config.max_matches = 3, Bounds::default()).await;
    let consumer = world.consumer("c").await;
    for key in ["topic:#", "topic:+", "topic:x/#", "x"] {
        consumer.subscribe(wish("c", key)).await.unwrap();
    }
    let producer = world.producer("p");
    let error = producer.publish(message("p", "x", "1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyMatches);
    assert!(consumer.bodies().is_empty());
}

#[tokio::test]
async fn keys_come_and_go_with_their_subscribers() {
    let world = world().await;
    let producer = world.producer("p");
    for n in 0..2_000 {
        let client = world.join();
        let name = format!("ANONYMOUS-{n}");
        let plain = wish(&name, &format!("event-{n}"));
        client.subscribe(plain).await.unwrap();
        let topic = wish(&name, &format!("topic:event/{n}/+"));
        client.subscribe(topic).await.unwrap();
        producer
            .publish(message("p", &format!("never-{n}"), "1"))
            .await
            .unwrap();
        client.leave(Leave::Closed);
    }
    let (_, stats) = world.broker.stats().remove(1);
    assert_eq!(
        (stats.subscriptions, stats.queues, stats.sessions),
        (0, 0, 1)
    );
    world.pass(std::time::Duration::from_secs(700)).await;
    world.broker.sweep().await;
    let (_, stats) = world.broker.stats().remove(1);
    assert_eq!((stats.consumers, stats.producers), (0, 1));
}

#[tokio::test]
async fn a_session_that_has_left_is_let_go_of() {
    let world = world().await;
    let producer = world.producer("p");
    let stays = world.consumer("stays").await;
    stays.subscribe(wish("stays", "shared")).await.unwrap();
    let gone = world.consumer("c").await;
    for event in ["own", "shared"] {
        gone.subscribe(wish("c", event).ack()).await.unwrap();
        producer.publish(message("p", event, "1")).await.unwrap();
    }
    gone.leave(Leave::Closed);
    breathe().await;
    world.broker.sweep().await;
    assert_eq!(Arc::strong_count(&gone.member), 1);
}

#[tokio::test]
async fn a_subscription_sees_the_very_next_message() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    for n in 0..10 {
        let event = format!("e{n}");
        producer
            .publish(message("p", &event, "early"))
            .await
            .unwrap();
        consumer.subscribe_at_once(wish("c", &event)).await.unwrap();
        producer.publish(message("p", &event, "now")).await.unwrap();
    }
    consumer.wait_for(10).await;
    assert_eq!(consumer.bodies(), ["now"; 10]);
}

#[tokio::test]
async fn subscribing_twice_is_one_subscription() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x")).await.unwrap();
    consumer.subscribe(wish("c", "x")).await.unwrap();
    world
        .producer("p")
        .publish(message("p", "x", "1"))
        .await
        .unwrap();
    assert_eq!(consumer.bodies(), ["1"]);
    assert_eq!(consumer.member.subscriptions(), 1);
}

#[tokio::test]
async fn a_full_line_drops_counts_and_tells_while_others_go_on() {
    let world = world().await;
    let (slow, fast) = (world.consumer("slow").await, world.consumer("fast").await);
    slow.subscribe(wish("slow", "x")).await.unwrap();
    fast.subscribe(wish("fast", "x")).await.unwrap();
    slow.wait_for(0).await;
    breathe().await;
    slow.line.is_full.store(true, Ordering::SeqCst);
    let producer = world.producer("p");
    for _ in 0..3 {
        producer.publish(message("p", "x", "1")).await.unwrap();
    }
    assert_eq!(fast.bodies().len(), 3);
    slow.line.is_full.store(false, Ordering::SeqCst);
    world.broker.writable(&slow.member);
    assert_eq!(slow.lines(), ["GAP tyo-mq-all-x 3"]);
    assert_eq!(world.broker.metrics().dropped.total(), 3);
    world.broker.writable(&slow.member);
    assert_eq!(slow.lines().len(), 1);
}

#[tokio::test]
async fn live_copies_that_too_many_others_wait_before_are_dropped_counted_and_told() {
    let world = world().await;
    let slow = world.consumer("s").await;
    let mut all = wish("s", "x").ack();
    all.options.prefetch = 100_000;
    slow.subscribe(all).await.unwrap();
    let producer = world.producer("p");
    let told: Vec<_> = (0..65_536 + 1_976)
        .map(|n| producer.gather(message("p", "x", &n.to_string())))
        .collect();
    producer.flush();
    for told in told {
        told.await.unwrap().unwrap();
    }
    let lines = slow.wait_for(65_537).await;
    assert_eq!(slow.bodies().len(), 65_536);
    assert!(lines.contains(&"GAP tyo-mq-all-x 1976".to_owned()));
    assert_eq!(world.broker.metrics().dropped.total(), 1_976);
}

#[tokio::test]
async fn a_realm_broadcast_reaches_everybody_once_per_subscription_and_once_by_its_event() {
    let world = world().await;
    let (one, idle) = (world.consumer("one").await, world.consumer("idle").await);
    one.subscribe(wish("one", "p:Hi")).await.unwrap();
    one.subscribe(wish("one", "topic:#").durable())
        .await
        .unwrap();
    idle.subscribe(wish("idle", "p:other")).await.unwrap();
    let producer = world.producer("p");
    let request = PublishRequest {
        broadcast: Some(Broadcast::Realm),
        ..message("p", "Hi", "1")
    };
    producer.publish(request).await.unwrap();
    let mut lines = one.lines();
    lines.retain(|line| line.starts_with("CONSUME"));
    lines.sort();
    assert_eq!(
        lines,
        [
            "CONSUME-Hi 1",
            "CONSUME-p-hi Hi 1 from p",
            "CONSUME-tyo-mq-all-# Hi 1 from p"
        ]
    );
    assert!(idle.lines().contains(&"CONSUME-Hi 1".to_owned()));
    assert!(producer.lines().contains(&"CONSUME-Hi 1".to_owned()));
}

#[tokio::test]
async fn a_group_broadcast_reaches_each_member_once_and_no_outsider() {
    let world = world().await;
    let (one, two, out) = (
        world.consumer("one").await,
        world.consumer("two").await,
        world.consumer("out").await,
    );
    one.subscribe(wish("one", "a").group("g")).await.unwrap();
    one.subscribe(wish("one", "b").group("g")).await.unwrap();
    two.subscribe(wish("two", "c").group("g")).await.unwrap();
    out.subscribe(wish("out", "a").group("h")).await.unwrap();
    let request = PublishRequest {
        broadcast: Some(Broadcast::Group("g")),
        ..message("p", "any", "1")
    };
    let published = world.producer("p").publish(request).await.unwrap();
    assert_eq!(published.delivered, 2);
    assert_eq!(one.lines(), ["CONSUME-tyo-mq-all-a any 1 from p"]);
    assert_eq!(two.lines(), ["CONSUME-tyo-mq-all-c any 1 from p"]);
    assert!(out.lines().is_empty());
}

fn to_all<'a>(body: &'a str) -> PublishRequest<'a> {
    PublishRequest {
        broadcast: Some(Broadcast::Realm),
        ..message("p", "x", body)
    }
}

fn to_group<'a>(body: &'a str) -> PublishRequest<'a> {
    PublishRequest {
        broadcast: Some(Broadcast::Group("g")),
        ..message("p", "x", body)
    }
}

#[tokio::test]
async fn nobody_acknowledges_a_broadcast() {
    let world = world().await;
    let producer = world.producer("p");
    let wishes = [
        wish("one", "p:x").ack(),
        wish("two", "p:x").ack().durable(),
        wish("three", "p:x").ack().group("g"),
    ];
    for (at, request) in wishes.into_iter().enumerate() {
        let consumer = world.consumer(request.consumer.as_str()).await;
        consumer.subscribe(request).await.unwrap();
        producer.publish(to_all("1")).await.unwrap();
        producer.publish(to_group("2")).await.unwrap();
        breathe().await;
        let mut lines = consumer.lines();
        lines.retain(|line| line.starts_with("CONSUME-p-x"));
        let delivery = |body| format!("CONSUME-p-x x {body} from p");
        let expected = [delivery("1"), delivery("2")];
        assert_eq!(lines, expected[..if at == 2 { 2 } else { 1 }]);
    }
}

#[tokio::test]
async fn a_broadcast_goes_behind_what_its_producer_has_stored_for_the_subscription() {
    let group = wish("c", "p:x").durable().group("g");
    let acked = wish("c", "p:x").durable().ack();
    for request in [
        wish("c", "p:x").durable(),
        acked,
        wish("c", "p:x").ack(),
        group,
    ] {
        let world = world().await;
        let consumer = world.consumer("c").await;
        let casts = match request.options.group {
            Some(_) => to_group,
            None => to_all,
        };
        consumer.subscribe(request).await.unwrap();
        let producer = world.producer("p");
        world.store.shut();
        let mut told = vec![producer.gather(guaranteed("p", "x", "1"))];
        producer.flush();
        told.push(producer.gather(casts("2")));
        told.push(producer.gather(guaranteed("p", "x", "3")));
        told.push(producer.gather(casts("4")));
        producer.flush();
        world.store.reopen();
        for told in told {
            told.await.unwrap().unwrap();
        }
        breathe().await;
        let mut lines = consumer.lines();
        lines.retain(|line| line.starts_with("CONSUME-p-x"));
        let bodies = lines.iter().filter_map(|line| line.split(' ').nth(2));
        assert_eq!(bodies.collect::<Vec<_>>(), ["1", "2", "3", "4"]);
    }
}

struct Only(&'static str);

impl Filter for Only {
    fn may_see(&self, event: &str) -> bool {
        event == self.0
    }
}

/// The consumer `c`, which may receive `b`.
async fn only_b(world: &World) -> Client {
    let pass = Pass {
        filter: Some(Arc::new(Only("b"))),
        ..Pass::default()
    };
    let client = world.join_with(&RealmId::default(), pass);
    client.consumer("c").await.unwrap();
    client
}

#[tokio::test]
async fn a_wildcard_sees_only_what_its_filter_lets_through() {
    let world = world().await;
    let consumer = only_b(&world).await;
    consumer.subscribe(wish("c", "topic:#")).await.unwrap();
    breathe().await;
    let producer = world.producer("p");
    for event in ["a", "b", "c"] {
        producer.publish(message("p", event, event)).await.unwrap();
    }
    assert_eq!(consumer.wait_for(1).await.len(), 1);
    assert_eq!(consumer.bodies(), ["b"]);
}

#[tokio::test]
async fn a_wildcards_queue_settles_and_counts_what_its_filter_hides() {
    let world = world().await;
    let request = || wish("c", "topic:#").durable().ack();
    let producer = world.producer("p");
    let consumer = only_b(&world).await;
    consumer.subscribe(request()).await.unwrap();
    for (n, event) in ["a", "b", "c"].iter().enumerate() {
        let body = n.to_string();
        producer.publish(message("p", event, &body)).await.unwrap();
    }
    consumer.wait_for(1).await;
    consumer.leave(Leave::Closed);
    for (n, event) in ["c", "b"].iter().enumerate() {
        let body = (n + 3).to_string();
        producer.publish(message("p", event, &body)).await.unwrap();
    }
    let back = only_b(&world).await;
    back.subscribe(request()).await.unwrap();
    for line in back.wait_for(2).await {
        back.settle(&id_of(&line), Verdict::Ack).await.unwrap();
    }
    breathe().await;
    assert_eq!(consumer.bodies(), ["1"]);
    assert_eq!(back.bodies(), ["1", "4"]);
    assert_eq!(world.broker.metrics().hidden.total(), 3);
    let stats = world.broker.queue_stats(&RealmId::default()).await.unwrap();
    assert_eq!((stats[0].waiting, stats[0].in_flight), (0, 0));
}

#[tokio::test]
async fn a_broadcast_to_no_group_or_for_later_is_refused() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x")).await.unwrap();
    let producer = world.producer("p");
    let nameless = PublishRequest {
        broadcast: Some(Broadcast::Group("")),
        ..message("p", "x", "1")
    };
    let later = PublishRequest {
        broadcast: Some(Broadcast::Realm),
        due: Some(crate::clock::Timestamp(u64::MAX)),
        ..message("p", "x", "1")
    };
    for request in [nameless, later] {
        let error = producer.publish(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadCommand);
    }
    assert!(consumer.lines().is_empty());
}

#[tokio::test]
async fn a_message_costs_the_same_lookups_whatever_the_number_of_subscriptions() {
    let world = world().await;
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    let consumer = world.join();
    for n in 0..1_000 {
        let request = wish("ANONYMOUS-1", &format!("other-{n}"));
        consumer.subscribe_at_once(request).await.unwrap();
    }
    // The first message after a change looks everything up, the next ones share what it found.
    producer.publish(message("p", "x", "2")).await.unwrap();
    let first = producer.batch.lock().cached("p", "x").unwrap();
    for _ in 0..100 {
        producer.publish(message("p", "x", "3")).await.unwrap();
    }
    let last = producer.batch.lock().cached("p", "x").unwrap();
    assert!(Arc::ptr_eq(&first, &last));
}
