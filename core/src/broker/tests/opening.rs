//! What comes for a plain subscription while the store is opening its queue (P2, P4, P8).

use std::time::Duration;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::*;

#[tokio::test]
async fn what_is_guaranteed_is_stored_for_a_subscription_whose_queue_is_being_opened() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    world.store.shut();
    consumer.subscribe(wish("c", "x")).await.unwrap();
    let producer = world.producer("p");
    let mut told = producer.gather(guaranteed("p", "x", "1"));
    producer.flush();
    breathe().await;
    assert!(told.try_recv().is_err());
    assert!(consumer.bodies().is_empty());
    world.store.reopen();
    let published = told.await.unwrap().unwrap();
    assert_eq!((published.queued, published.delivered), (1, 0));
    consumer.wait_for(1).await;
    assert_eq!(consumer.bodies(), ["1"]);
}

#[tokio::test]
async fn it_waits_there_for_who_left_before_the_queue_was_open() {
    for group in [None, Some("g")] {
        let world = world().await;
        let request = || match group {
            Some(name) => wish("c", "x").group(name),
            None => wish("c", "x"),
        };
        let consumer = world.consumer("c").await;
        world.store.shut();
        consumer.subscribe(request()).await.unwrap();
        consumer.leave(Leave::Closed);
        let producer = world.producer("p");
        let told = producer.gather(guaranteed("p", "x", "1"));
        producer.flush();
        breathe().await;
        world.store.reopen();
        assert_eq!(told.await.unwrap().unwrap().queued, 1, "{group:?}");
        let consumer = world.consumer("c").await;
        consumer.subscribe(request()).await.unwrap();
        consumer.wait_for(1).await;
        assert_eq!(consumer.bodies(), ["1"], "{group:?}");
    }
}

#[tokio::test]
async fn who_unsubscribes_before_its_queue_is_open_has_nothing_stored() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    world.store.shut();
    consumer.subscribe(wish("c", "x")).await.unwrap();
    let producer = world.producer("p");
    let told = producer.gather(guaranteed("p", "x", "1"));
    producer.flush();
    let end = UnsubscribeRequest {
        what: Unsubscribe::Key(key("x")),
        consumer: None,
        consumer_id: None,
        purge: true,
        detach: false,
    };
    let answer = world.broker.unsubscribe(&consumer.member, end);
    world.store.reopen();
    answer.await.unwrap();
    assert_eq!(told.await.unwrap().unwrap().queued, 0);
    assert!(consumer.bodies().is_empty());
    assert_eq!(world.broker.stats()[0].1.queues, 0);
}

#[tokio::test]
async fn what_its_producer_says_next_comes_after_it_and_what_others_say_does_not_wait() {
    let world = world().await;
    let durable = world.consumer("d").await;
    durable.subscribe(wish("d", "y").durable()).await.unwrap();
    let other = world.consumer("o").await;
    other.subscribe(wish("o", "z").durable()).await.unwrap();
    let consumer = world.consumer("c").await;
    world.store.shut();
    consumer.subscribe(wish("c", "x")).await.unwrap();
    let producer = world.producer("p");
    for (event, body) in [("x", "1"), ("x", "2"), ("y", "3"), ("x", "4"), ("y", "5")] {
        let request = match body {
            "1" | "4" => guaranteed("p", event, body),
            _ => message("p", event, body),
        };
        tokio::spawn(producer.gather(request));
        producer.flush();
    }
    let appends = || {
        world
            .store
            .appends
            .load(std::sync::atomic::Ordering::SeqCst)
    };
    breathe().await;
    assert_eq!(appends(), 0, "nothing overtakes what is held");
    let neighbour = world.producer("q");
    tokio::spawn(neighbour.gather(message("q", "z", "q")));
    neighbour.flush();
    breathe().await;
    assert_eq!(appends(), 1);
    assert!(consumer.bodies().is_empty() && durable.bodies().is_empty());
    world.store.reopen();
    consumer.wait_for(3).await;
    durable.wait_for(2).await;
    other.wait_for(1).await;
    assert_eq!(consumer.bodies(), ["1", "2", "4"]);
    assert_eq!(durable.bodies(), ["3", "5"]);
}

#[tokio::test]
async fn what_waits_too_long_for_a_queue_is_refused_and_never_stored() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    world.store.shut();
    consumer.subscribe(wish("c", "x")).await.unwrap();
    let producer = world.producer("p");
    let kept = producer.gather(guaranteed("p", "x", "1"));
    producer.flush();
    let behind = producer.gather(guaranteed("p", "x", "2"));
    producer.flush();
    breathe().await;
    world.pass(Duration::from_secs(6)).await;
    for told in [kept, behind] {
        let error = told.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreTimeout);
    }
    world.store.reopen();
    breathe().await;
    let published = producer.publish(guaranteed("p", "x", "3")).await.unwrap();
    assert_eq!(published.queued, 1);
    consumer.wait_for(1).await;
    assert_eq!(consumer.bodies(), ["3"]);
}

#[tokio::test]
async fn a_group_that_another_key_serves_gets_nothing_from_the_queue_that_is_being_opened() {
    let world = world().await;
    let member = world.consumer("m").await;
    member.subscribe(wish("m", "x").group("g")).await.unwrap();
    let durable = world.consumer("d").await;
    durable
        .subscribe(wish("d", "topic:#").durable())
        .await
        .unwrap();
    world.store.shut();
    member
        .subscribe(wish("m", "topic:#").group("g"))
        .await
        .unwrap();
    let producer = world.producer("p");
    let told = producer.gather(guaranteed("p", "x", "1"));
    producer.flush();
    breathe().await;
    world.store.reopen();
    assert_eq!(told.await.unwrap().unwrap().queued, 2);
    member.wait_for(1).await;
    durable.wait_for(1).await;
    breathe().await;
    assert_eq!(
        (member.bodies(), durable.bodies()),
        (vec!["1".to_owned()], vec!["1".to_owned()])
    );
}
