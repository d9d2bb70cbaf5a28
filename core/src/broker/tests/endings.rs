//! How shared and ended subscriptions end, and what is said of their deliveries then (P5, P9).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::*;
use crate::model::*;
use crate::store::{Bounds, Store};

fn unsubscribe(what: &str, purge: bool) -> UnsubscribeRequest {
    UnsubscribeRequest {
        what: Unsubscribe::Key(key(what)),
        consumer: None,
        consumer_id: None,
        purge,
        detach: false,
    }
}

#[tokio::test]
async fn what_an_ended_subscription_left_is_settled_by_its_owner_alone() {
    let world = world().await;
    let producer = world.producer("p");
    let consumer = world.consumer("c").await;
    let request = wish("c", "x").durable().ack();
    consumer.subscribe(request.clone()).await.unwrap();
    for body in ["1", "2", "3", "4"] {
        producer.publish(message("p", "x", body)).await.unwrap();
    }
    let lines = consumer.wait_for(4).await;
    let ids: Vec<String> = lines.iter().map(|line| id_of(line)).collect();
    let end = unsubscribe("x", false);
    let broker = &world.broker;
    // The first one is on its way to the store when the subscription ends.
    let (tell, first) = tokio::sync::oneshot::channel();
    let told = Box::new(move |result| tell.send(result).unwrap());
    broker.settle(&consumer.member, &ids[0], None, Verdict::Ack, told);
    let ended = broker.unsubscribe(&consumer.member, end).await.unwrap();
    assert_eq!(ended.removed, 1);
    assert_eq!(first.await.unwrap(), Ok(false));
    assert_eq!(consumer.settle(&ids[1], Verdict::Ack).await, Ok(false));
    assert_eq!(consumer.settle(&ids[1], Verdict::Ack).await, Ok(true));
    let stranger = world.consumer("other").await;
    let error = stranger.settle(&ids[2], Verdict::Ack).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    let foreign = world.join_in(&RealmId::parse("other").unwrap());
    let error = foreign.settle(&ids[2], Verdict::Ack).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeliveryUnknown);
    consumer.leave(Leave::Failed);
    let back = world.consumer("c").await;
    assert_eq!(back.settle(&ids[2], Verdict::Working).await, Ok(true));
    let never = Verdict::Nack {
        delay: None,
        requeue: false,
        reason: Some("bad".into()),
    };
    assert_eq!(back.settle(&ids[2], never).await, Ok(false));
    let dead = broker.dead_letters(&RealmId::default(), None, 10).await;
    assert_eq!(dead.unwrap().len(), 1);
    assert_eq!(back.subscribe(request).await.unwrap().queued, 1);
    back.wait_for(1).await;
    assert_eq!(
        (back.bodies(), id_of(&back.lines()[0])),
        (vec!["4".to_owned()], ids[3].clone())
    );
}

#[tokio::test]
async fn two_names_of_one_session_settle_each_its_own_copy() {
    let world = world().await;
    let session = world.join();
    for name in ["one", "two"] {
        let request = wish(name, "x").durable().ack();
        session.subscribe(request).await.unwrap();
    }
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    let lines = session.wait_for(2).await;
    let (one, two) = (id_of(&lines[0]), id_of(&lines[1]));
    assert_ne!(one, two);
    for id in [&one, &two] {
        assert_eq!(session.settle(id, Verdict::Ack).await, Ok(false));
        assert_eq!(session.settle(id, Verdict::Ack).await, Ok(true));
    }
    for stats in world.broker.queue_stats(&RealmId::default()).await.unwrap() {
        assert_eq!((stats.waiting, stats.in_flight), (0, 0), "{}", stats.name);
    }
}

#[tokio::test]
async fn a_subscription_that_ends_before_the_store_has_opened_it_is_not_remembered() {
    for is_kept in [false, true] {
        let world = world().await;
        let consumer = world.consumer("c").await;
        let request = || wish("c", "x").durable();
        let broker = &world.broker;
        world.store.shut();
        let opening = tokio::spawn(broker.subscribe(&consumer.member, request()));
        let end = unsubscribe("x", false);
        let ended = broker.unsubscribe(&consumer.member, end).await.unwrap();
        assert_eq!(ended.removed, 1);
        if is_kept {
            tokio::spawn(broker.subscribe(&consumer.member, request()));
        }
        world.store.reopen();
        opening.await.unwrap().unwrap();
        breathe().await;
        let producer = world.producer("p");
        let published = producer.publish(message("p", "x", "1")).await.unwrap();
        assert_eq!(published.queued, u32::from(is_kept));
        assert_eq!(world.broker.stats()[1].1.queues, usize::from(is_kept));
    }
}

fn shared(name: &str, is_group: bool) -> SubscribeRequest {
    let mut request = wish(name, "x");
    if is_group {
        return request.group("g");
    }
    request.consumer_id = Some(ConsumerId::parse("id").unwrap());
    request
}

#[tokio::test]
async fn a_plain_subscription_that_joins_a_durable_queue_leaves_it_durable() {
    for is_group in [false, true] {
        let world = world().await;
        let (one, two) = (world.consumer("one").await, world.consumer("two").await);
        one.subscribe(shared("one", is_group).durable())
            .await
            .unwrap();
        two.subscribe(shared("two", is_group)).await.unwrap();
        let producer = world.producer("p");
        for body in ["1", "2"] {
            let published = producer.publish(message("p", "x", body)).await.unwrap();
            assert_eq!((published.queued, published.delivered), (1, 0));
        }
        breathe().await;
        assert_eq!(one.bodies().len() + two.bodies().len(), 2);
        let end = unsubscribe("x", false);
        let ended = world.broker.unsubscribe(&two.member, end).await.unwrap();
        assert_eq!(ended.removed, 1);
        one.leave(Leave::Closed);
        let published = producer.publish(message("p", "x", "3")).await.unwrap();
        assert_eq!(published.queued, 1, "the other's subscription goes on");
    }
}

#[tokio::test]
async fn who_shares_a_queue_that_becomes_durable_gets_everything_from_it_once() {
    let world = world().await;
    let (one, two) = (world.consumer("one").await, world.consumer("two").await);
    one.subscribe(shared("one", false)).await.unwrap();
    two.subscribe(shared("two", false).durable()).await.unwrap();
    let producer = world.producer("p");
    for body in ["1", "2", "3"] {
        let published = producer.publish(message("p", "x", body)).await.unwrap();
        assert_eq!((published.queued, published.delivered), (1, 0));
    }
    breathe().await;
    let mut bodies = [one.bodies(), two.bodies()].concat();
    bodies.sort_unstable();
    assert_eq!(bodies, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_producer_hears_of_a_consumer_until_its_last_key_ends() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    for what in ["p:a", "p:b", "p:a", "a"] {
        consumer.subscribe(wish("c", what)).await.unwrap();
    }
    let mut heard = Vec::new();
    for what in ["p:a", "p:b", "a"] {
        let end = unsubscribe(what, false);
        let ended = world.broker.unsubscribe(&consumer.member, end).await;
        assert_eq!(ended.unwrap().removed, 1);
        heard.push(world.producer("p").lines());
    }
    let list = |keys: &str| vec![format!("SUBSCRIBE-TO-id-p c [{keys}] Some(true)")];
    assert_eq!(
        heard,
        [list("p-b,tyo-mq-all-a"), list("tyo-mq-all-a"), vec![]]
    );
}

#[tokio::test]
async fn a_producer_hears_of_a_consumers_keys_the_newest_last_whichever_have_ended() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    for what in ["p:a", "p:b", "p:c", "p:d"] {
        consumer.subscribe(wish("c", what)).await.unwrap();
    }
    let end = unsubscribe("p:a", false);
    world
        .broker
        .unsubscribe(&consumer.member, end)
        .await
        .unwrap();
    consumer.subscribe(wish("c", "p:b")).await.unwrap();
    let heard = world.producer("p").lines();
    assert_eq!(heard, ["SUBSCRIBE-TO-id-p c [p-c,p-d,p-b] Some(true)"]);
}

/// Ends a durable subscription while the store refuses to forget it.
async fn refused_end(world: &World, consumer: &Client, purge: bool) {
    world.store.is_broken.store(true, Ordering::SeqCst);
    let end = unsubscribe("x", purge);
    let ended = world.broker.unsubscribe(&consumer.member, end).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    world.store.is_broken.store(false, Ordering::SeqCst);
}

async fn remembered(world: &World) -> usize {
    world.store.queues().await.unwrap().len()
}

#[tokio::test]
async fn what_the_store_refuses_to_forget_it_forgets_as_soon_as_it_can() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    refused_end(&world, &consumer, true).await;
    assert_eq!(remembered(&world).await, 1);
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(remembered(&world).await, 0);
}

#[tokio::test]
async fn who_subscribes_again_after_a_refused_end_keeps_the_new_subscription() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x").durable()).await.unwrap();
    consumer.leave(Leave::Closed);
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    let consumer = world.consumer("c").await;
    refused_end(&world, &consumer, true).await;
    let again = consumer.subscribe(wish("c", "x").durable()).await;
    assert_eq!(
        again.unwrap().queued,
        0,
        "what was there went with the old one"
    );
    world.pass(Duration::from_secs(3)).await;
    let published = producer.publish(message("p", "x", "2")).await.unwrap();
    assert_eq!((published.queued, remembered(&world).await), (1, 1));
}

/// Another broker over what the first one has stored.
async fn restarted(world: World) -> World {
    let store = world.store.again();
    drop(world);
    over(|_| {}, store).await
}

async fn end(world: &World, client: &Client, request: UnsubscribeRequest) -> Unsubscribed {
    let ended = world.broker.unsubscribe(&client.member, request).await;
    ended.unwrap()
}

#[tokio::test]
async fn a_shared_queue_ends_with_the_last_name_that_subscribed_also_after_a_restart_or_long_away()
{
    for is_group in [false, true] {
        for restarts in [false, true] {
            let mut world = world().await;
            for name in ["one", "two"] {
                let client = world.consumer(name).await;
                let request = shared(name, is_group).durable();
                client.subscribe(request).await.unwrap();
                client.leave(Leave::Closed);
            }
            match restarts {
                true => world = restarted(world).await,
                false => world.pass(Duration::from_secs(3_600)).await,
            }
            let mut request = unsubscribe("x", true);
            request.consumer_id = shared("one", false).consumer_id.filter(|_| !is_group);
            let one = world.consumer("one").await;
            one.subscribe(shared("one", is_group)).await.unwrap();
            end(&world, &one, request.clone()).await;
            let published = world.producer("p").publish(message("p", "x", "1")).await;
            assert_eq!(
                published.unwrap().queued,
                1,
                "the other one has not unsubscribed"
            );
            // The store hears within a second that one name is gone.
            world.pass(Duration::from_secs(3)).await;
            if restarts {
                world = restarted(world).await;
            }
            let two = world.consumer("two").await;
            two.subscribe(shared("two", is_group)).await.unwrap();
            end(&world, &two, request).await;
            assert_eq!(remembered(&world).await, 0, "{is_group} {restarts}");
        }
    }
}

#[tokio::test]
async fn after_a_restart_a_name_comes_back_to_the_queue_it_subscribed_by_last() {
    let world = world().await;
    let with = |id: Option<&str>| {
        let mut request = wish("c", "x").durable();
        request.consumer_id = id.map(|id| ConsumerId::parse(id).unwrap());
        request
    };
    // The one that is opened last is not the one that is used last.
    for id in [Some("other"), None, Some("other")] {
        let consumer = world.consumer("c").await;
        consumer.subscribe(with(id)).await.unwrap();
        world.pass(Duration::from_millis(100)).await;
        consumer.leave(Leave::Closed);
    }
    let world = restarted(world).await;
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    let consumer = world.consumer("c").await;
    let ended = end(&world, &consumer, unsubscribe("x", false)).await;
    assert_eq!((ended.removed, ended.left), (1, 1));
    let queues = world.store.queues().await.unwrap();
    let names: Vec<&str> = queues.iter().map(|queue| &*queue.spec.name).collect();
    assert_eq!(names, ["c"], "the other queue waits for its own end");
}

#[tokio::test]
async fn subscriptions_past_the_bound_leave_nothing_behind_when_they_end() {
    let world = world_with(
        |config| config.guaranteed_subscriptions = 3,
        Bounds::default(),
    )
    .await;
    let consumer = world.consumer("c").await;
    for n in 0..500 {
        let request = wish("c", &format!("x{n}"));
        consumer.subscribe(request).await.unwrap();
    }
    for n in 0..500 {
        let end = unsubscribe(&format!("x{n}"), false);
        let ended = world.broker.unsubscribe(&consumer.member, end);
        assert_eq!(ended.await.unwrap().removed, 1);
    }
    let state = consumer.member.realm_state().state.lock();
    assert!(state.renamed.is_empty() && state.users.is_empty() && state.slots.is_empty());
    let kept = &state.consumers[&ConsumerName::parse("c").unwrap()].subscriptions;
    assert!(kept.is_empty() && kept.capacity() < 200);
}
