//! Who holds a name, and who hears of it (P22, wire §2, §7; scenarios 11–19, 31).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::*;
use crate::model::*;
use crate::store::Bounds;

fn hello(name: &str, instance: &str) -> ConsumerHello {
    Client::hello(name, Some(instance))
}

#[tokio::test]
async fn a_live_holder_keeps_its_name_and_the_newcomer_is_told() {
    let world = world().await;
    let holder = world.consumer("c").await;
    holder.subscribe(wish("c", "x")).await.unwrap();
    let newcomer = world.join();
    let answer = tokio::spawn(world.broker.consumer(&newcomer.member, hello("c", "other")));
    breathe().await;
    assert_eq!(holder.line.probes.load(Ordering::SeqCst), 1);
    // A byte arrives: the silence is shorter than the wait.
    world.pass(Duration::from_millis(500)).await;
    let error = answer.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateConsumer);
    assert!(error.message().contains("duplicate"));
    world
        .producer("p")
        .publish(message("p", "x", "1"))
        .await
        .unwrap();
    assert_eq!(holder.bodies(), ["1"]);
    assert!(!holder.line.is_closed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_holder_whose_system_is_silent_is_replaced_after_a_second() {
    let world = world().await;
    let frozen = world.consumer("c").await;
    frozen.subscribe(wish("c", "x").durable()).await.unwrap();
    frozen.line.silence.store(3_000, Ordering::SeqCst);
    *frozen.line.acknowledged.lock() = Some(false);
    let newcomer = world.join();
    let answer = tokio::spawn(world.broker.consumer(&newcomer.member, hello("c", "other")));
    breathe().await;
    world.pass(Duration::from_millis(900)).await;
    assert!(!answer.is_finished());
    world
        .producer("p")
        .publish(message("p", "x", "1"))
        .await
        .unwrap();
    world.pass(Duration::from_millis(200)).await;
    answer.await.unwrap().unwrap();
    assert!(frozen.line.is_closed.load(Ordering::SeqCst));
    newcomer.subscribe(wish("c", "x").durable()).await.unwrap();
    assert_eq!(newcomer.wait_for(1).await.len(), 1);
}

#[tokio::test]
async fn a_holder_that_may_still_live_gets_five_seconds() {
    let world = world().await;
    let holder = world.consumer("c").await;
    holder.line.silence.store(10_000, Ordering::SeqCst);
    holder.line.is_polling.store(true, Ordering::SeqCst);
    let newcomer = world.join();
    let answer = tokio::spawn(world.broker.consumer(&newcomer.member, hello("c", "other")));
    breathe().await;
    world.pass(Duration::from_millis(4_900)).await;
    assert!(!answer.is_finished());
    world.pass(Duration::from_millis(200)).await;
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_same_client_object_replaces_its_own_older_connection_at_once() {
    let world = world().await;
    let older = world.join();
    world
        .broker
        .consumer(&older.member, hello("c", "i"))
        .await
        .unwrap();
    let newer = world.join();
    world
        .broker
        .consumer(&newer.member, hello("c", "i"))
        .await
        .unwrap();
    assert!(older.line.is_closed.load(Ordering::SeqCst));
    assert!(older.member.has_left());
    assert_eq!(world.broker.sessions(), 1);
}

#[tokio::test]
async fn subscribing_for_another_live_sessions_name_is_refused() {
    let world = world().await;
    let victim = world.consumer("v").await;
    victim.subscribe(wish("v", "x")).await.unwrap();
    let thief = world.join();
    let request = wish("v", "x");
    let claim = tokio::spawn(world.broker.subscriber(&thief.member, &request));
    world.pass(Duration::from_millis(500)).await;
    assert_eq!(victim.line.probes.load(Ordering::SeqCst), 1);
    let error = claim.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateConsumer);
    let refused = world.broker.subscribe(&thief.member, request).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::DuplicateConsumer);
    let request = UnsubscribeRequest {
        what: Unsubscribe::Key(key("x")),
        consumer: Some(ConsumerName::parse("v").unwrap()),
        consumer_id: None,
        purge: true,
        detach: false,
    };
    let error = world
        .broker
        .unsubscribe(&thief.member, request)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    world
        .producer("p")
        .publish(message("p", "x", "1"))
        .await
        .unwrap();
    assert_eq!(victim.bodies(), ["1"]);
    assert!(thief.bodies().is_empty());
}

#[tokio::test]
async fn a_silent_holder_gives_its_name_to_who_subscribes_under_it() {
    let world = world().await;
    let frozen = world.consumer("c").await;
    frozen.subscribe(wish("c", "x").durable()).await.unwrap();
    frozen.subscribe(wish("c", "y")).await.unwrap();
    frozen.line.silence.store(3_000, Ordering::SeqCst);
    *frozen.line.acknowledged.lock() = Some(false);
    let newcomer = world.join();
    let request = wish("c", "x").durable();
    let claim = tokio::spawn(world.broker.subscriber(&newcomer.member, &request));
    breathe().await;
    assert_eq!(frozen.line.probes.load(Ordering::SeqCst), 1);
    world.pass(Duration::from_millis(900)).await;
    assert!(!claim.is_finished());
    world.pass(Duration::from_millis(200)).await;
    claim.await.unwrap().unwrap();
    assert!(frozen.line.is_closed.load(Ordering::SeqCst));
    newcomer.subscribe(request).await.unwrap();
    let producer = world.producer("p");
    for event in ["x", "y"] {
        producer.publish(message("p", event, event)).await.unwrap();
    }
    newcomer.wait_for(2).await;
    let mut bodies = newcomer.bodies();
    bodies.sort_unstable();
    assert_eq!(
        bodies,
        ["x", "y"],
        "what the name listens to besides works too"
    );
}

#[tokio::test]
async fn anonymous_names_are_taken_where_the_realm_allows_them() {
    let world = world().await;
    world.join().consumer("ANONYMOUS-1").await.unwrap();
    let other = world.join_in(&RealmId::parse("strict").unwrap());
    let error = other.consumer("ANONYMOUS-1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AnonymousRefused);
}

#[tokio::test]
async fn a_producer_name_goes_to_the_newest_and_the_old_socket_is_told() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "p:x")).await.unwrap();
    let older = world.producer("p");
    assert_eq!(older.lines(), ["SUBSCRIBE-TO-id-p c [p-x] Some(true)"]);
    assert_eq!(consumer.lines(), ["CONNECT-socket p"]);
    let newer = world.producer("p");
    assert_eq!(older.lines()[1..], ["ERROR The same producer newly joined"]);
    assert_eq!(newer.lines(), ["SUBSCRIBE-TO-id-p c [p-x] Some(true)"]);
    assert_eq!(consumer.lines().len(), 2);
    // The old one's end is not the producer's.
    older.leave(Leave::Closed);
    assert_eq!(consumer.lines().len(), 2);
    newer.leave(Leave::Closed);
    assert_eq!(consumer.lines()[2..], ["DISCONNECT-socket p"]);
}

#[tokio::test]
async fn a_name_that_its_holder_left_goes_to_who_produces_under_it_next() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "p:x")).await.unwrap();
    let holder = world.producer("p");
    let other = world.join();
    // Its matches are cached from here on.
    other.publish(message("p", "x", "1")).await.unwrap();
    assert!(!other.member.is_producer("p"));
    holder.leave(Leave::Closed);
    other.publish(message("p", "x", "2")).await.unwrap();
    assert!(other.member.is_producer("p"));
    assert_eq!(consumer.bodies(), ["1", "2"]);
    let heard = consumer.lines().into_iter();
    let heard: Vec<_> = heard.filter(|line| !line.starts_with("CONSUME")).collect();
    let online = "CONNECT-socket p";
    assert_eq!(heard, [online, "DISCONNECT-socket p", online]);
}

#[tokio::test]
async fn a_producer_hears_of_every_key_that_concerns_it_and_of_no_other() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    for key in ["p:a", "p:b", "p:c", "q:a"] {
        consumer.subscribe(wish("c", key)).await.unwrap();
    }
    let any = world.consumer("any").await;
    any.subscribe(wish("any", "a")).await.unwrap();
    let producer = world.producer("p");
    assert_eq!(
        producer.lines(),
        [
            "SUBSCRIBE-TO-id-p c [p-a,p-b,p-c] Some(true)",
            "SUBSCRIBE-TO-id-p any [tyo-mq-all-a] Some(true)",
        ]
    );
    consumer.subscribe(wish("c", "q:d")).await.unwrap();
    assert_eq!(producer.lines().len(), 2);
    consumer.subscribe(wish("c", "p:d")).await.unwrap();
    assert_eq!(
        producer.lines()[2..],
        ["SUBSCRIBE-TO-id-p c [p-d] Some(true)"]
    );
}

#[tokio::test]
async fn a_producer_sees_a_consumer_leave_return_and_subscribe_in_that_order() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "p:x")).await.unwrap();
    consumer.leave(Leave::Failed);
    let back = world.consumer("c").await;
    back.subscribe(wish("c", "p:x")).await.unwrap();
    assert_eq!(
        producer.lines()[1..],
        [
            "DISCONNECT-id-p c",
            "CONNECT-id-p c",
            "SUBSCRIBE-TO-id-p c [p-x] Some(true)",
        ]
    );
}

#[tokio::test]
async fn a_plain_subscription_works_again_right_after_the_name_is_back() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x")).await.unwrap();
    consumer.leave(Leave::Closed);
    let back = world.consumer("c").await;
    world
        .producer("p")
        .publish(message("p", "x", "1"))
        .await
        .unwrap();
    assert_eq!(back.bodies(), ["1"]);
}

#[tokio::test]
async fn all_names_of_a_session_go_offline_with_it() {
    let world = world().await;
    let session = world.consumer("one").await;
    session.consumer("two").await.unwrap();
    session.subscribe(wish("one", "x").durable()).await.unwrap();
    session.subscribe(wish("two", "y").durable()).await.unwrap();
    session.leave(Leave::Closed);
    let producer = world.producer("p");
    for event in ["x", "y"] {
        let published = producer.publish(message("p", event, "1")).await.unwrap();
        assert_eq!(published.queued, 1, "{event}");
    }
}

#[tokio::test]
async fn a_long_list_of_subscribers_is_paced() {
    let world = world().await;
    for n in 0..600 {
        let client = world.join();
        let request = wish(&format!("ANONYMOUS-{n}"), "p:x");
        client.subscribe_at_once(request).await.unwrap();
    }
    let producer = world.producer("p");
    let first = producer.lines().len();
    assert!(first < 600, "{first}");
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(producer.lines().len(), 600);
}

#[tokio::test]
async fn idle_names_leave_the_live_tables_and_durable_queues_stay() {
    let world = world_with(
        |config| config.idle_ttl = Duration::from_secs(10),
        Bounds::default(),
    )
    .await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    consumer.leave(Leave::Closed);
    world.pass(Duration::from_secs(11)).await;
    world.broker.sweep().await;
    let stats = world.broker.stats();
    assert_eq!(stats[1].1.consumers, 0);
    assert_eq!(stats[1].1.queues, 1);
    let producer = world.producer("p");
    assert_eq!(
        producer
            .publish(message("p", "x", "1"))
            .await
            .unwrap()
            .queued,
        1
    );
    let back = world.consumer("c").await;
    back.subscribe(wish("c", "x").durable()).await.unwrap();
    assert_eq!(back.wait_for(1).await.len(), 1);
}
