//! Of a group one member gets a message (P18; scenarios 36–38, F02).

use std::time::Duration;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::Leave;
use crate::model::*;

#[tokio::test]
async fn each_message_reaches_one_member_and_all_members_get_some() {
    let world = world().await;
    let (one, two, watcher) = (
        world.consumer("one").await,
        world.consumer("two").await,
        world.consumer("w").await,
    );
    one.subscribe(wish("one", "x").group("g")).await.unwrap();
    two.subscribe(wish("two", "x").group("g")).await.unwrap();
    watcher.subscribe(wish("w", "x")).await.unwrap();
    let producer = world.producer("p");
    for n in 0..4 {
        producer
            .publish(message("p", "x", &n.to_string()))
            .await
            .unwrap();
    }
    assert_eq!((one.bodies().len(), two.bodies().len()), (2, 2));
    assert_eq!(watcher.bodies().len(), 4);
}

#[tokio::test]
async fn alternating_events_are_shared_by_both_members() {
    let world = world().await;
    let (one, two) = (world.consumer("one").await, world.consumer("two").await);
    for (client, name) in [(&one, "one"), (&two, "two")] {
        for event in ["a", "b"] {
            client
                .subscribe(wish(name, event).group("g"))
                .await
                .unwrap();
        }
    }
    let producer = world.producer("p");
    for n in 0..8 {
        let event = if n % 2 == 0 { "a" } else { "b" };
        producer.publish(message("p", event, event)).await.unwrap();
    }
    for client in [&one, &two] {
        let bodies = client.bodies();
        assert!(
            bodies.contains(&"a".to_owned()) && bodies.contains(&"b".to_owned()),
            "{bodies:?}"
        );
    }
}

#[tokio::test]
async fn a_group_that_matches_by_several_keys_takes_a_message_once() {
    let world = world().await;
    let (exact, pattern) = (world.consumer("e").await, world.consumer("t").await);
    pattern
        .subscribe(wish("t", "topic:#").group("g"))
        .await
        .unwrap();
    exact.subscribe(wish("e", "p:x").group("g")).await.unwrap();
    let producer = world.producer("p");
    for _ in 0..4 {
        assert_eq!(
            producer
                .publish(message("p", "x", "1"))
                .await
                .unwrap()
                .delivered,
            1
        );
    }
    assert_eq!((exact.bodies().len(), pattern.bodies().len()), (4, 0));
    exact.leave(Leave::Closed);
    producer.publish(message("p", "x", "2")).await.unwrap();
    assert_eq!(pattern.bodies(), ["2"]);
}

#[tokio::test]
async fn a_durable_group_that_matches_by_several_keys_stores_a_message_once() {
    let world = world().await;
    let group = world.consumer("m").await;
    for key in ["topic:#", "p:x"] {
        group
            .subscribe(wish("m", key).group("g").durable())
            .await
            .unwrap();
    }
    // Makes the log of the second key take what the group has by the first.
    let other = world.consumer("o").await;
    let mut request = wish("o", "topic:#").durable();
    request.consumer_id = Some(ConsumerId::parse("other").unwrap());
    other.subscribe(request).await.unwrap();
    let producer = world.producer("p");
    for (n, event) in ["x", "y", "x", "x", "y"].iter().enumerate() {
        let published = producer
            .publish(message("p", event, &n.to_string()))
            .await
            .unwrap();
        assert_eq!(published.queued, 2, "the group's and the other's");
    }
    other.wait_for(5).await;
    group.wait_for(5).await;
    breathe().await;
    assert_eq!(other.bodies(), ["0", "1", "2", "3", "4"]);
    let of = |key: &str| {
        let lines = group.lines();
        let lines = lines.iter().filter(|line| line.starts_with(key));
        let bodies = lines.filter_map(|line| line.split(' ').nth(2).map(str::to_owned));
        bodies.collect::<Vec<_>>()
    };
    assert_eq!(of("CONSUME-p-x "), ["0", "2", "3"]);
    assert_eq!(group.bodies().len(), 5, "{:?}", group.lines());
    // Nothing is left behind for the group's next member either.
    world.broker.confirmed(&group.member, u64::MAX);
    breathe().await;
    group.leave(Leave::Closed);
    let back = world.consumer("n").await;
    let subscribed = back
        .subscribe(wish("n", "topic:#").group("g").durable())
        .await
        .unwrap();
    assert_eq!(subscribed.queued, 0);
}

#[tokio::test]
async fn a_message_that_an_online_member_takes_is_not_stored_for_the_groups_later_keys() {
    let world = world().await;
    let online = world.consumer("m").await;
    online.subscribe(wish("m", "p:x").group("g")).await.unwrap();
    let stored = world.consumer("s").await;
    stored
        .subscribe(wish("s", "topic:#").group("g").durable())
        .await
        .unwrap();
    stored.leave(Leave::Closed);
    let other = world.consumer("o").await;
    let request = wish("o", "topic:#").durable();
    other.subscribe(request).await.unwrap();
    let producer = world.producer("p");
    let published = producer.publish(message("p", "x", "1")).await.unwrap();
    assert_eq!((published.queued, published.delivered), (1, 1));
    assert_eq!(online.bodies(), ["1"]);
    let published = producer.publish(message("p", "y", "2")).await.unwrap();
    assert_eq!(published.queued, 2);
}

#[tokio::test]
async fn a_durable_groups_backlog_goes_to_whoever_returns_first() {
    let world = world().await;
    for name in ["one", "two"] {
        let client = world.consumer(name).await;
        client
            .subscribe(wish(name, "x").group("g").durable())
            .await
            .unwrap();
        client.leave(Leave::Closed);
    }
    let producer = world.producer("p");
    for n in 0..3 {
        let published = producer
            .publish(message("p", "x", &n.to_string()))
            .await
            .unwrap();
        assert_eq!(published.queued, 1);
    }
    let two = world.consumer("two").await;
    two.subscribe(wish("two", "x").group("g").durable())
        .await
        .unwrap();
    two.wait_for(3).await;
    assert_eq!(two.bodies(), ["0", "1", "2"]);
}

#[tokio::test]
async fn a_guaranteed_message_waits_in_the_groups_queue() {
    let world = world().await;
    let one = world.consumer("one").await;
    one.subscribe(wish("one", "x").group("g")).await.unwrap();
    one.leave(Leave::Closed);
    let producer = world.producer("p");
    assert_eq!(
        producer
            .publish(message("p", "x", "lost"))
            .await
            .unwrap()
            .queued,
        0
    );
    assert_eq!(
        producer
            .publish(guaranteed("p", "x", "kept"))
            .await
            .unwrap()
            .queued,
        1
    );
    let two = world.consumer("two").await;
    two.subscribe(wish("two", "x").group("g")).await.unwrap();
    two.wait_for(1).await;
    assert_eq!(two.bodies(), ["kept"]);
}

#[tokio::test]
async fn what_a_lost_member_held_goes_to_the_others_at_once() {
    let world = world().await;
    let (one, two) = (world.consumer("one").await, world.consumer("two").await);
    for (client, name) in [(&one, "one"), (&two, "two")] {
        let mut request = wish(name, "x").group("g").durable().ack();
        request.options.ack_timeout = Duration::from_secs(600);
        client.subscribe(request).await.unwrap();
    }
    let producer = world.producer("p");
    for n in 0..10 {
        producer
            .publish(message("p", "x", &n.to_string()))
            .await
            .unwrap();
    }
    breathe().await;
    let held = one.bodies().len();
    assert!(held > 0);
    one.leave(Leave::Failed);
    world.pass(Duration::from_secs(6)).await;
    two.wait_for(10).await;
    let repeats = two
        .lines()
        .iter()
        .filter(|line| line.ends_with("x2"))
        .count();
    assert_eq!(repeats, held);
}

#[tokio::test]
async fn a_retry_policy_that_differs_from_the_first_is_refused() {
    let world = world().await;
    let policy = |attempts| RetryPolicy::new(Some(attempts), None, Backoff::Fixed, None).unwrap();
    let request = |name: &str, attempts| {
        let mut request = wish(name, "x").group("g").durable().ack();
        request.options.retry = policy(attempts);
        request.options.retry_given = true;
        request
    };
    let (one, two) = (world.consumer("one").await, world.consumer("two").await);
    one.subscribe(request("one", 5)).await.unwrap();
    let error = two.subscribe(request("two", 4)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadCommand);
    two.subscribe(request("two", 5)).await.unwrap();
    // Saying nothing is taking the group's.
    let three = world.consumer("three").await;
    three
        .subscribe(wish("three", "x").group("g").durable().ack())
        .await
        .unwrap();
}

#[tokio::test]
async fn two_names_with_one_consumer_id_share_its_queue() {
    let world = world().await;
    let mut clients = Vec::new();
    for name in ["one", "two"] {
        let client = world.consumer(name).await;
        let mut request = wish(name, "x").durable();
        request.consumer_id = Some(ConsumerId::parse("shared").unwrap());
        client.subscribe(request).await.unwrap();
        clients.push(client);
    }
    let producer = world.producer("p");
    for n in 0..6 {
        let published = producer
            .publish(message("p", "x", &n.to_string()))
            .await
            .unwrap();
        assert_eq!(published.queued, 1);
    }
    breathe().await;
    let all: usize = clients.iter().map(|client| client.bodies().len()).sum();
    assert_eq!(all, 6);
}
