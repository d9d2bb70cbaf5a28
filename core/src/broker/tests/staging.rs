//! A store that is slow or refuses (P2, P8, P24, P27).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::harness::*;
use crate::ErrorKind;

#[tokio::test]
async fn the_answer_comes_after_the_commit() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    let producer = world.producer("p");
    world.store.shut();
    let mut told = producer.gather(message("p", "x", "1"));
    producer.flush();
    breathe().await;
    assert!(told.try_recv().is_err());
    assert!(consumer.bodies().is_empty());
    world.store.reopen();
    assert_eq!(told.await.unwrap().unwrap().queued, 1);
    consumer.wait_for(1).await;
}

#[tokio::test]
async fn a_read_of_many_messages_is_one_append() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    let producer = world.producer("p");
    let told: Vec<_> = (0..50)
        .map(|n| producer.gather(message("p", "x", &n.to_string())))
        .collect();
    producer.flush();
    for told in told {
        assert_eq!(told.await.unwrap().unwrap().queued, 1);
    }
    assert_eq!(world.store.appends.load(Ordering::SeqCst), 1);
    consumer.wait_for(50).await;
}

#[tokio::test]
async fn while_the_store_is_slow_order_holds_and_others_go_on() {
    let world = world().await;
    let named = world.consumer("c").await;
    named.subscribe(wish("c", "x")).await.unwrap();
    let nameless = world.join();
    nameless.subscribe(wish("ANONYMOUS-1", "x")).await.unwrap();
    let other = world.consumer("o").await;
    other.subscribe(wish("o", "y")).await.unwrap();
    let producer = world.producer("p");
    world.store.shut();
    for (n, event) in ["x", "y", "x", "x", "y"].iter().enumerate() {
        let body = n.to_string();
        let request = if n == 2 {
            guaranteed("p", event, &body)
        } else {
            message("p", event, &body)
        };
        tokio::spawn(producer.gather(request));
        producer.flush();
    }
    breathe().await;
    assert_eq!(named.bodies(), ["0"]);
    assert_eq!(nameless.bodies(), ["0"]);
    assert_eq!(other.bodies(), ["1", "4"]);
    // Another producer's plain messages do not wait.
    world
        .producer("q")
        .publish(message("q", "x", "q"))
        .await
        .unwrap();
    assert_eq!(nameless.bodies(), ["0", "q"]);
    world.store.reopen();
    named.wait_for(4).await;
    nameless.wait_for(4).await;
    assert_eq!(nameless.bodies(), ["0", "q", "2", "3"]);
    assert_eq!(named.bodies(), ["0", "q", "2", "3"]);
}

#[tokio::test]
async fn a_live_copy_keeps_its_place_when_batches_of_several_producers_are_answered_together() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    let mut request = wish("c", "x");
    request.options.prefetch = 1;
    consumer.subscribe(request).await.unwrap();
    let (p, q) = (world.producer("p"), world.producer("q"));
    world.store.shut();
    for (producer, body) in [(&q, "q1"), (&p, "1"), (&p, "2"), (&p, "3"), (&q, "q2")] {
        let from = if body.starts_with('q') { "q" } else { "p" };
        let request = match body {
            "2" => message(from, "x", body),
            _ => guaranteed(from, "x", body),
        };
        tokio::spawn(producer.gather(request));
        producer.flush();
    }
    breathe().await;
    world.store.reopen();
    consumer.wait_for(5).await;
    let of = |producer: char| {
        let bodies = consumer.bodies().into_iter();
        bodies
            .filter(|body| body.starts_with('q') == (producer == 'q'))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of('p'), of('q')),
        (
            vec!["1".to_owned(), "2".to_owned(), "3".to_owned()],
            vec!["q1".to_owned(), "q2".to_owned()],
        )
    );
}

#[tokio::test]
async fn a_full_staging_line_stops_the_reading_until_it_is_half_empty() {
    let world = world_with(|config| config.staging_messages = 10, Default::default()).await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    let producer = world.producer("p");
    world.store.shut();
    for n in 0..10 {
        assert!(!producer.line.is_paused.load(Ordering::SeqCst), "{n}");
        tokio::spawn(producer.gather(message("p", "x", &n.to_string())));
        producer.flush();
    }
    assert!(producer.line.is_paused.load(Ordering::SeqCst));
    world.store.reopen();
    consumer.wait_for(10).await;
    breathe().await;
    assert!(!producer.line.is_paused.load(Ordering::SeqCst));
}

#[tokio::test]
async fn past_the_store_timeout_produces_are_refused_and_plain_ones_go_on() {
    let world = world().await;
    let durable = world.consumer("d").await;
    durable.subscribe(wish("d", "x").durable()).await.unwrap();
    let nameless = world.join();
    nameless.subscribe(wish("ANONYMOUS-1", "x")).await.unwrap();
    let producer = world.producer("p");
    world.store.shut();
    let kept = producer.gather(guaranteed("p", "x", "1"));
    producer.flush();
    let plain = producer.gather(message("p", "x", "2"));
    producer.flush();
    breathe().await;
    world.pass(Duration::from_secs(6)).await;
    for told in [kept, plain] {
        assert_eq!(
            told.await.unwrap().unwrap_err().kind(),
            ErrorKind::StoreTimeout
        );
    }
    // A refused guaranteed message reaches nobody; the plain one needs no store to be seen.
    assert_eq!(nameless.bodies(), ["2"]);
    world.store.reopen();
    durable.wait_for(2).await;
    assert_eq!(durable.bodies(), ["1", "2"]);
    breathe().await;
    assert_eq!(nameless.bodies(), ["2"]);
    assert!(producer.publish(message("p", "x", "3")).await.is_ok());
}

#[tokio::test]
async fn a_broken_store_refuses_what_must_be_stored_and_nothing_else() {
    let world = world().await;
    let durable = world.consumer("d").await;
    durable.subscribe(wish("d", "x").durable()).await.unwrap();
    let plain = world.join();
    plain.subscribe(wish("ANONYMOUS-1", "x")).await.unwrap();
    plain.subscribe(wish("ANONYMOUS-1", "y")).await.unwrap();
    let producer = world.producer("p");
    world.store.is_broken.store(true, Ordering::SeqCst);
    let error = producer
        .publish(guaranteed("p", "x", "1"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(plain.bodies().is_empty());
    producer.publish(message("p", "x", "2")).await.unwrap_err();
    producer.publish(message("p", "y", "3")).await.unwrap();
    assert_eq!(plain.bodies(), ["2", "3"]);
    // Who did not ask is told too.
    {
        let mut batch = producer.batch.lock();
        let request = message("p", "x", "4");
        world
            .broker
            .publish(&producer.member, &mut batch, request, None);
        world.broker.flush(&producer.member, &mut batch);
    }
    assert!(
        producer
            .lines()
            .contains(&"ERROR store_unavailable".to_owned())
    );
    world.store.is_broken.store(false, Ordering::SeqCst);
    assert_eq!(
        producer
            .publish(message("p", "x", "5"))
            .await
            .unwrap()
            .queued,
        1
    );
}
