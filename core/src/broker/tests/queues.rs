//! What is kept for whom, and until when (P4, P5, P9, P32, P37; scenarios 45–61).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::*;
use crate::model::*;

fn unsubscribe(what: &str, purge: bool) -> UnsubscribeRequest {
    UnsubscribeRequest {
        what: Unsubscribe::Text(what.into()),
        consumer: None,
        consumer_id: None,
        purge,
        detach: false,
    }
}

#[tokio::test]
async fn a_durable_subscriber_gets_what_it_missed_then_what_is_new() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    consumer.leave(Leave::Closed);
    for n in 1..=3 {
        let published = producer
            .publish(message("p", "x", &n.to_string()))
            .await
            .unwrap();
        assert_eq!((published.queued, published.delivered), (1, 0));
    }
    let back = world.consumer("c").await;
    let subscribed = back
        .subscribe_at_once(wish("c", "x").durable())
        .await
        .unwrap();
    assert_eq!(subscribed.queued, 3);
    producer.publish(message("p", "x", "4")).await.unwrap();
    back.wait_for(4).await;
    assert_eq!(back.bodies(), ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn registering_the_name_alone_attaches_nothing_durable() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    consumer.leave(Leave::Closed);
    producer.publish(message("p", "x", "1")).await.unwrap();
    let back = world.consumer("c").await;
    producer.publish(message("p", "x", "2")).await.unwrap();
    breathe().await;
    assert!(back.bodies().is_empty());
    back.subscribe(wish("c", "x").durable()).await.unwrap();
    back.wait_for(2).await;
    assert_eq!(back.bodies(), ["1", "2"]);
}

#[tokio::test]
async fn a_subscriber_that_detaches_is_away_until_it_subscribes_again() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    let wish = || wish("c", "p:x").durable();
    consumer.subscribe(wish()).await.unwrap();
    let detach = UnsubscribeRequest {
        detach: true,
        ..unsubscribe("p-x", false)
    };
    let broker = &world.broker;
    let done = broker.unsubscribe(&consumer.member, detach).await.unwrap();
    assert_eq!(done.removed, 1);
    let published = producer.publish(message("p", "x", "1")).await.unwrap();
    assert_eq!((published.queued, published.delivered), (1, 0));
    assert!(consumer.bodies().is_empty());
    consumer.subscribe(wish()).await.unwrap();
    consumer.wait_for(1).await;
    assert_eq!(consumer.bodies(), ["1"]);
}

#[tokio::test]
async fn a_plain_subscriber_gets_guaranteed_messages_it_missed_and_no_others() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x")).await.unwrap();
    consumer.leave(Leave::Closed);
    producer.publish(message("p", "x", "lost")).await.unwrap();
    assert_eq!(
        producer
            .publish(guaranteed("p", "x", "kept"))
            .await
            .unwrap()
            .queued,
        1
    );
    let back = world.consumer("c").await;
    back.subscribe(wish("c", "x")).await.unwrap();
    back.wait_for(1).await;
    assert_eq!(back.bodies(), ["kept"]);
}

#[tokio::test]
async fn plain_and_guaranteed_messages_of_one_producer_keep_their_order() {
    let world = world().await;
    let producer = world.producer("p");
    let named = world.consumer("c").await;
    named.subscribe(wish("c", "x")).await.unwrap();
    let nameless = world.join();
    nameless.subscribe(wish("ANONYMOUS-1", "x")).await.unwrap();
    let mut wanted = Vec::new();
    for n in 0..60 {
        let body = n.to_string();
        let request = if n % 3 == 1 {
            guaranteed("p", "x", &body)
        } else {
            message("p", "x", &body)
        };
        let told = producer.gather(request);
        if n % 4 == 0 {
            producer.flush();
            drop(told.await);
        } else {
            tokio::spawn(told);
        }
        wanted.push(body);
    }
    producer.flush();
    named.wait_for(60).await;
    nameless.wait_for(60).await;
    assert_eq!(named.bodies(), wanted);
    assert_eq!(nameless.bodies(), wanted);
}

#[tokio::test]
async fn a_restart_keeps_subscriptions_and_what_came_before_their_return() {
    let before = world().await;
    let consumer = before.consumer("c").await;
    consumer
        .subscribe(wish("c", "p:x").durable())
        .await
        .unwrap();
    consumer.leave(Leave::Closed);
    before
        .producer("p")
        .publish(message("p", "x", "1"))
        .await
        .unwrap();
    let after = over(|_| {}, before.store.again()).await;
    let producer = after.producer("p");
    assert_eq!(producer.lines(), ["SUBSCRIBE-TO-id-p c [p-x] None"]);
    producer.publish(message("p", "x", "2")).await.unwrap();
    let back = after.consumer("c").await;
    back.subscribe(wish("c", "p:x").durable()).await.unwrap();
    back.wait_for(2).await;
    assert_eq!(back.bodies(), ["1", "2"]);
}

#[tokio::test]
async fn unsubscribing_ends_it_and_says_what_is_left() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    for request in [
        wish("c", "p:x").durable().ack(),
        wish("c", "topic:a/#"),
        wish("c", "y"),
    ] {
        consumer.subscribe(request).await.unwrap();
    }
    producer.publish(message("p", "x", "1")).await.unwrap();
    for (what, removed, left) in [("p-x", 1, 1), ("tyo-mq-all-a/#", 1, 0), ("never", 0, 0)] {
        let request = unsubscribe(what, false);
        let done = world
            .broker
            .unsubscribe(&consumer.member, request)
            .await
            .unwrap();
        assert_eq!((done.removed, done.left), (removed, left), "{what}");
    }
    assert!(
        producer
            .lines()
            .contains(&"UNSUBSCRIBE-id-p x c".to_owned())
    );
    let before = consumer.bodies().len();
    for event in ["x", "a/b"] {
        let published = producer.publish(guaranteed("p", event, "2")).await.unwrap();
        assert_eq!((published.queued, published.delivered), (0, 0), "{event}");
    }
    consumer.leave(Leave::Closed);
    let back = world.consumer("c").await;
    breathe().await;
    assert_eq!(consumer.bodies().len(), before);
    assert!(back.bodies().is_empty());
    // What was left waits for the same identity.
    back.subscribe(wish("c", "p:x").durable().ack())
        .await
        .unwrap();
    back.wait_for(1).await;
    assert_eq!(back.bodies(), ["1"]);
    let purged = unsubscribe("p-x", true);
    let done = world
        .broker
        .unsubscribe(&back.member, purged)
        .await
        .unwrap();
    assert_eq!((done.removed, done.left), (1, 0));
    assert_eq!(
        back.subscribe(wish("c", "p:x").durable())
            .await
            .unwrap()
            .queued,
        0
    );
}

#[tokio::test]
async fn unsubscribing_by_consumer_id_ends_that_ids_subscription_only() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    let id = |id: &str| Some(ConsumerId::parse(id).unwrap());
    // The second takes the first one's place as what the name listens by; both are remembered.
    for queue in ["a", "b"] {
        let mut request = wish("c", "x").durable().ack();
        request.consumer_id = id(queue);
        consumer.subscribe(request).await.unwrap();
    }
    let end = async |what: Unsubscribe, queue: &str| {
        let request = UnsubscribeRequest {
            what,
            consumer: None,
            consumer_id: id(queue),
            purge: false,
            detach: false,
        };
        let ended = world.broker.unsubscribe(&consumer.member, request).await;
        let ended = ended.unwrap();
        (ended.removed, ended.left)
    };
    producer.publish(message("p", "x", "1")).await.unwrap();
    assert_eq!(end(Unsubscribe::Key(key("x")), "none").await, (0, 0));
    assert_eq!(end(Unsubscribe::Key(key("x")), "a").await, (1, 1));
    assert_eq!(end(Unsubscribe::Key(key("x")), "a").await, (0, 0));
    let published = producer.publish(message("p", "x", "2")).await.unwrap();
    assert_eq!(published.queued, 1);
    consumer.wait_for(2).await;
    assert_eq!(consumer.bodies(), ["1", "2"]);
    let text = Unsubscribe::Text("tyo-mq-all-x".into());
    assert_eq!(end(text, "b").await, (1, 2));
    let published = producer.publish(message("p", "x", "3")).await.unwrap();
    assert_eq!(published.queued, 0);
}

#[tokio::test]
async fn an_ack_settles_from_any_session_of_the_owner_and_twice_is_a_duplicate() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    consumer
        .subscribe(wish("c", "x").durable().ack())
        .await
        .unwrap();
    producer.publish(message("p", "x", "1")).await.unwrap();
    let line = consumer.wait_for(1).await.remove(0);
    assert!(line.ends_with("x1"), "{line}");
    let id = id_of(&line);
    let stranger = world.consumer("other").await;
    let error = stranger.settle(&id, Verdict::Ack).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    consumer.leave(Leave::Closed);
    let back = world.consumer("c").await;
    assert_eq!(back.settle(&id, Verdict::Ack).await, Ok(false));
    assert_eq!(back.settle(&id, Verdict::Ack).await, Ok(true));
    let foreign = world.join_in(&RealmId::parse("other").unwrap());
    let error = foreign.settle(&id, Verdict::Ack).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeliveryUnknown);
    for unknown in ["", "no-such id", "zz-1"] {
        let error = back.settle(unknown, Verdict::Ack).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeliveryUnknown, "{unknown}");
    }
}

#[tokio::test]
async fn acks_of_plain_subscriptions_are_tracked_while_the_session_lives() {
    let world = world().await;
    let producer = world.producer("p");
    for name in ["c", "ANONYMOUS-1"] {
        let consumer = world.consumer(name).await;
        consumer.subscribe(wish(name, "x").ack()).await.unwrap();
        producer.publish(message("p", "x", "1")).await.unwrap();
        let id = id_of(&consumer.wait_for(1).await[0]);
        assert_eq!(
            consumer.settle(&id, Verdict::Ack).await,
            Ok(false),
            "{name}"
        );
        producer.publish(message("p", "x", "2")).await.unwrap();
        consumer.wait_for(2).await;
        consumer.leave(Leave::Closed);
        let back = world.consumer(name).await;
        back.subscribe(wish(name, "x").ack()).await.unwrap();
        assert!(back.bodies().is_empty(), "{name}");
        back.leave(Leave::Closed);
    }
}

#[tokio::test]
async fn subscribing_again_while_a_delivery_is_out_sends_nothing_twice() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer
        .subscribe(wish("c", "x").durable().ack())
        .await
        .unwrap();
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    consumer.wait_for(1).await;
    consumer
        .subscribe(wish("c", "x").durable().ack())
        .await
        .unwrap();
    producer.publish(message("p", "x", "2")).await.unwrap();
    consumer.wait_for(2).await;
    assert_eq!(consumer.bodies(), ["1", "2"]);
}

#[tokio::test]
async fn an_anonymous_durable_subscription_lasts_for_its_session() {
    let world = world().await;
    let consumer = world.consumer("ANONYMOUS-1").await;
    let subscribed = consumer
        .subscribe(wish("ANONYMOUS-1", "x").durable())
        .await
        .unwrap();
    assert!(subscribed.session_only);
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    assert_eq!(consumer.bodies(), ["1"]);
    consumer.leave(Leave::Closed);
    assert_eq!(
        producer
            .publish(guaranteed("p", "x", "2"))
            .await
            .unwrap()
            .queued,
        0
    );
}

#[tokio::test]
async fn dead_letters_are_listed_requeued_and_discarded_once() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer
        .subscribe(wish("c", "x").durable().ack())
        .await
        .unwrap();
    let producer = world.producer("p");
    for body in ["1", "2"] {
        producer.publish(message("p", "x", body)).await.unwrap();
    }
    for line in consumer.wait_for(2).await {
        let verdict = Verdict::Nack {
            delay: None,
            requeue: false,
            reason: Some("bad".into()),
        };
        assert_eq!(consumer.settle(&id_of(&line), verdict).await, Ok(false));
    }
    let realm = RealmId::default();
    let letters = world.broker.dead_letters(&realm, None, 10).await.unwrap();
    assert_eq!(letters.len(), 2);
    let page = world
        .broker
        .dead_letters(&realm, Some(letters[0].id), 1)
        .await
        .unwrap();
    assert_eq!(page, letters[1..]);
    world.broker.requeue(&realm, letters[0].id).await.unwrap();
    consumer.wait_for(3).await;
    assert!(
        consumer.lines()[2].ends_with("x2"),
        "{:?}",
        consumer.lines()
    );
    let again = world
        .broker
        .requeue(&realm, letters[0].id)
        .await
        .unwrap_err();
    assert_eq!(again.kind(), ErrorKind::DeadLetterUnknown);
    world.broker.discard(&realm, letters[1].id).await.unwrap();
    let again = world
        .broker
        .discard(&realm, letters[1].id)
        .await
        .unwrap_err();
    assert_eq!(again.kind(), ErrorKind::DeadLetterUnknown);
}

#[tokio::test]
async fn closing_ends_every_session_and_refuses_new_work() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    world.broker.close(Duration::from_secs(5)).await.unwrap();
    world.broker.close(Duration::from_secs(5)).await.unwrap();
    assert!(consumer.line.is_closed.load(Ordering::SeqCst));
    assert_eq!(world.broker.sessions(), 0);
    let late = world.join();
    let error = late.publish(message("p", "x", "1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShuttingDown);
    assert!(late.consumer("c").await.is_err());
}
