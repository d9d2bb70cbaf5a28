//! What belongs to whom, and what a session may see of it (P30; TC-M01, TC-M03, TC-M07).

use std::sync::Arc;
use std::time::Duration;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::*;
use crate::model::*;
use crate::store::QueueId;

/// Somebody with this owner; an empty one has shown nothing.
fn of(owner: &str) -> Pass {
    Pass {
        owner: (!owner.is_empty()).then(|| owner.into()),
        ..Pass::default()
    }
}

impl World {
    async fn consumer_of(&self, owner: &str, name: &str) -> Client {
        let client = self.join_with(&RealmId::default(), of(owner));
        client.consumer(name).await.unwrap();
        client
    }
}

/// Sees what begins with this.
struct Begins(&'static str);

impl Filter for Begins {
    fn may_see(&self, event: &str) -> bool {
        event.starts_with(self.0)
    }
}

/// Somebody who may see what begins with `a`.
fn narrow() -> Pass {
    Pass {
        filter: Some(Arc::new(Begins("a"))),
        ..of("alice")
    }
}

async fn refused(client: &Client, request: SubscribeRequest) -> ErrorKind {
    client.subscribe(request).await.unwrap_err().kind()
}

#[tokio::test]
async fn a_queue_belongs_to_the_owner_that_attached_it_first() {
    let world = world().await;
    let alice = world.consumer_of("alice", "c").await;
    alice.subscribe(wish("c", "x").durable()).await.unwrap();
    alice.leave(Leave::Closed);
    for other in ["", "bob"] {
        let thief = world.consumer_of(other, "c").await;
        let taken = refused(&thief, wish("c", "x").durable()).await;
        assert_eq!(taken, ErrorKind::ConsumerIdTaken);
        let taken = refused(&thief, wish("c", "x")).await;
        assert_eq!(taken, ErrorKind::ConsumerIdTaken);
        thief.leave(Leave::Closed);
    }
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    let again = world.consumer_of("alice", "c").await;
    again.subscribe(wish("c", "x").durable()).await.unwrap();
    assert_eq!(again.wait_for(1).await.len(), 1);
}

#[tokio::test]
async fn a_queue_that_is_being_opened_has_its_owner_already() {
    let world = world().await;
    let alice = world.consumer_of("alice", "c").await;
    let bob = world.consumer_of("bob", "d").await;
    let same_id = |name: &str| {
        let mut request = wish(name, "x").durable();
        request.consumer_id = Some(ConsumerId::parse("shared").unwrap());
        request
    };
    world.store.shut();
    let (broker, member) = (world.broker.clone(), alice.member.clone());
    let opening = tokio::spawn(broker.subscribe(&member, same_id("c")));
    breathe().await;
    assert_eq!(
        refused(&bob, same_id("d")).await,
        ErrorKind::ConsumerIdTaken
    );
    world.store.reopen();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_name_gives_nobody_what_its_last_holder_subscribed_to() {
    let world = world().await;
    let alice = world.consumer_of("alice", "c").await;
    alice.subscribe(wish("c", "x")).await.unwrap();
    alice.leave(Leave::Closed);
    let producer = world.producer("p");
    for (owner, sees) in [("", 0), ("bob", 0), ("alice", 1)] {
        let next = world.consumer_of(owner, "c").await;
        producer.publish(message("p", "x", "1")).await.unwrap();
        assert_eq!(next.bodies().len(), sees, "{owner:?}");
        next.leave(Leave::Closed);
    }
}

#[tokio::test]
async fn a_name_comes_back_to_what_its_new_holder_may_see() {
    let world = world().await;
    let wide = world.consumer_of("alice", "c").await;
    for key in ["a1", "b1", "*:#"] {
        wide.subscribe(wish("c", key)).await.unwrap();
    }
    wide.leave(Leave::Closed);
    let client = world.join_with(&RealmId::default(), narrow());
    client.consumer("c").await.unwrap();
    let producer = world.producer("p");
    producer.publish(message("p", "a1", "1")).await.unwrap();
    producer.publish(message("p", "b1", "2")).await.unwrap();
    assert_eq!(client.bodies(), ["1", "1"]);
}

#[tokio::test]
async fn what_belongs_to_another_owner_is_neither_settled_nor_ended() {
    let world = world().await;
    let alice = world.consumer_of("alice", "c").await;
    let request = wish("c", "x").durable().ack();
    alice.subscribe(request.clone()).await.unwrap();
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    let id = id_of(&alice.wait_for(1).await[0]);
    alice.leave(Leave::Closed);
    let what = UnsubscribeRequest {
        what: Unsubscribe::Key(request.key.clone()),
        consumer: None,
        consumer_id: None,
        purge: true,
        detach: false,
    };
    for other in ["", "bob"] {
        let thief = world.consumer_of(other, "c").await;
        let error = thief.settle(&id, Verdict::Ack).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        let ended = world.broker.unsubscribe(&thief.member, what.clone()).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Forbidden);
        thief.leave(Leave::Closed);
    }
    let again = world.consumer_of("alice", "c").await;
    assert!(!again.settle(&id, Verdict::Ack).await.unwrap());
    let ended = world.broker.unsubscribe(&again.member, what).await;
    assert_eq!(ended.unwrap().removed, 1);
}

#[tokio::test]
async fn what_an_owner_left_behind_is_not_left_to_others() {
    let world = world().await;
    let alice = world.consumer_of("alice", "c").await;
    let request = wish("c", "x").durable();
    alice.subscribe(request.clone()).await.unwrap();
    alice.leave(Leave::Closed);
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    let again = world.consumer_of("alice", "c").await;
    let what = UnsubscribeRequest {
        what: Unsubscribe::Key(request.key.clone()),
        consumer: None,
        consumer_id: None,
        purge: false,
        detach: false,
    };
    let ended = world.broker.unsubscribe(&again.member, what).await;
    assert_eq!(ended.unwrap().left, 1);
    again.leave(Leave::Closed);
    let bob = world.consumer_of("bob", "c").await;
    assert_eq!(refused(&bob, request).await, ErrorKind::ConsumerIdTaken);
}

#[tokio::test]
async fn who_may_not_have_what_was_left_does_not_keep_its_owner_from_it() {
    let world = world().await;
    let alice = world.consumer_of("alice", "c").await;
    let request = wish("c", "x").durable();
    alice.subscribe(request.clone()).await.unwrap();
    let what = UnsubscribeRequest {
        what: Unsubscribe::Key(request.key.clone()),
        consumer: None,
        consumer_id: None,
        purge: false,
        detach: true,
    };
    let detached = world.broker.unsubscribe(&alice.member, what.clone()).await;
    assert_eq!(detached.unwrap().removed, 1);
    let producer = world.producer("p");
    producer.publish(message("p", "x", "1")).await.unwrap();
    let what = UnsubscribeRequest {
        detach: false,
        ..what
    };
    let ended = world.broker.unsubscribe(&alice.member, what).await;
    assert_eq!(ended.unwrap().left, 1);
    alice.leave(Leave::Closed);
    let bob = world.consumer_of("bob", "c").await;
    bob.subscribe(wish("c", "x")).await.unwrap();
    producer.publish(message("p", "x", "2")).await.unwrap();
    assert_eq!(bob.bodies(), ["2"]);
    bob.leave(Leave::Closed);
    let again = world.consumer_of("alice", "c").await;
    again.subscribe(request).await.unwrap();
    again.wait_for(1).await;
    assert_eq!(again.bodies(), ["1"]);
}

#[tokio::test]
async fn a_group_is_its_owners_on_whatever_key_and_remembered_or_not() {
    let world = world().await;
    let alice = world.consumer_of("alice", "c").await;
    alice.subscribe(wish("c", "x").group("g")).await.unwrap();
    let nameless = world.consumer_of("alice", "ANONYMOUS-1").await;
    let anonymous = wish("ANONYMOUS-1", "x").group("h");
    nameless.subscribe(anonymous).await.unwrap();
    for other in ["", "bob"] {
        let name = format!("d{other}");
        let thief = world.consumer_of(other, &name).await;
        for (key, group) in [("x", "g"), ("y", "g"), ("y", "h")] {
            let taken = refused(&thief, wish(&name, key).group(group)).await;
            assert_eq!(taken, ErrorKind::ConsumerIdTaken, "{key} {group}");
        }
    }
    // Nothing remembers the nameless one's: it ends with its last member.
    nameless.leave(Leave::Closed);
    let bob = world.consumer_of("bob", "e").await;
    bob.subscribe(wish("e", "y").group("h")).await.unwrap();
    let second = world.consumer_of("alice", "f").await;
    second.subscribe(wish("f", "y").group("g")).await.unwrap();
}

#[tokio::test]
async fn what_nobody_owns_is_everybodys_until_a_credential_has_it_alone() {
    let world = world().await;
    let by_id = |name: &str| {
        let mut request = wish(name, "x").durable();
        request.consumer_id = Some(ConsumerId::parse("shared").unwrap());
        request
    };
    let keyless = world.consumer_of("", "k").await;
    keyless.subscribe(by_id("k")).await.unwrap();
    let alice = world.consumer_of("alice", "c").await;
    alice.subscribe(by_id("c")).await.unwrap();
    let bob = world.consumer_of("bob", "b").await;
    bob.subscribe(by_id("b")).await.unwrap();
    for client in [&keyless, &alice, &bob] {
        client.leave(Leave::Closed);
    }
    let alone = world.consumer_of("alice", "c").await;
    alone.subscribe(by_id("c")).await.unwrap();
    let late = world.consumer_of("", "k").await;
    assert_eq!(refused(&late, by_id("k")).await, ErrorKind::ConsumerIdTaken);
}

#[tokio::test]
async fn a_released_queue_goes_to_who_attaches_next() {
    let world = world().await;
    let realm = RealmId::default();
    let alice = world.consumer_of("alice", "c").await;
    alice
        .subscribe(wish("c", "x").durable().group("g"))
        .await
        .unwrap();
    alice.leave(Leave::Closed);
    let queues = world.broker.store().queues().await.unwrap();
    let queue = queues[0].queue;
    world.broker.release_queue(&realm, queue).await.unwrap();
    let bob = world.consumer_of("bob", "b").await;
    let request = wish("b", "x").durable().group("g");
    bob.subscribe(request.clone()).await.unwrap();
    bob.leave(Leave::Closed);
    let again = world.consumer_of("alice", "c").await;
    let taken = refused(&again, wish("c", "x").durable().group("g")).await;
    assert_eq!(taken, ErrorKind::ConsumerIdTaken);
    let unknown = world.broker.release_queue(&realm, QueueId(u64::MAX)).await;
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::DeliveryUnknown);
}

#[tokio::test]
async fn a_queue_released_under_its_owner_is_the_next_ones_alone() {
    let world = world().await;
    let realm = RealmId::default();
    for group in [false, true] {
        let id = if group { "g" } else { "k" };
        let by = |name: &str| {
            let mut request = wish(name, "x").durable().ack();
            if group {
                return request.group("g");
            }
            request.consumer_id = Some(ConsumerId::parse("k").unwrap());
            request
        };
        let alice = world.consumer_of("alice", &format!("{id}a")).await;
        alice.subscribe(by(&format!("{id}a"))).await.unwrap();
        let producer = world.producer("p");
        producer.publish(message("p", "x", "1")).await.unwrap();
        alice.wait_for(1).await;
        let queues = world.broker.store().queues().await.unwrap();
        let queue = queues.iter().find(|queue| *queue.spec.name == *id);
        let queue = queue.unwrap().queue;
        world.broker.release_queue(&realm, queue).await.unwrap();
        // It is still connected, but what it held is the next one's, and so is what comes.
        let bob = world.consumer_of("bob", &format!("{id}b")).await;
        bob.subscribe(by(&format!("{id}b"))).await.unwrap();
        assert_eq!(bob.wait_for(1).await.len(), 1);
        for other in ["", "carol"] {
            let name = format!("{id}c{other}");
            let thief = world.consumer_of(other, &name).await;
            assert_eq!(refused(&thief, by(&name)).await, ErrorKind::ConsumerIdTaken);
            if group {
                let elsewhere = wish(&name, "y").group("g");
                assert_eq!(refused(&thief, elsewhere).await, ErrorKind::ConsumerIdTaken);
            }
        }
        let again = refused(&alice, by(&format!("{id}a"))).await;
        assert_eq!(again, ErrorKind::ConsumerIdTaken);
        producer.publish(message("p", "x", "2")).await.unwrap();
        assert_eq!(alice.bodies().len(), 1);
        for client in [&alice, &bob] {
            client.leave(Leave::Closed);
        }
    }
}

#[tokio::test]
async fn only_the_same_credential_takes_a_name_over_at_once() {
    let world = world().await;
    let hello = || Client::hello("c", Some("instance"));
    let holder = world.join_with(&RealmId::default(), of("alice"));
    world
        .broker
        .consumer(&holder.member, hello())
        .await
        .unwrap();
    let thief = world.join_with(&RealmId::default(), of("bob"));
    let answer = tokio::spawn(world.broker.consumer(&thief.member, hello()));
    breathe().await;
    // A byte arrives: the holder lives.
    world.pass(Duration::from_millis(500)).await;
    let error = answer.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateConsumer);
    let same = world.join_with(&RealmId::default(), of("alice"));
    world.broker.consumer(&same.member, hello()).await.unwrap();
    assert!(holder.member.has_left());
}

/// Every road to a session that may see what begins with `a`: both messages are sent, one is seen.
#[tokio::test]
async fn a_narrow_session_sees_on_every_road_what_it_may() {
    let plain = |request: SubscribeRequest| request;
    type Change = fn(SubscribeRequest) -> SubscribeRequest;
    let roads: [(&str, Change); 6] = [
        ("plain", plain),
        ("acked", |request| request.ack()),
        ("durable", |request| request.durable()),
        ("durable, acked", |request| request.durable().ack()),
        ("group", |request| request.group("g")),
        ("durable group", |request| request.durable().group("g")),
    ];
    for (road, change) in roads {
        for key in ["*:#", "p:#", "topic:#"] {
            let world = world().await;
            let client = world.join_with(&RealmId::default(), narrow());
            client.consumer("c").await.unwrap();
            client.subscribe(change(wish("c", key))).await.unwrap();
            let producer = world.producer("p");
            for kind in [message, guaranteed] {
                producer.publish(kind("p", "b1", "hidden")).await.unwrap();
                producer.publish(kind("p", "a1", "seen")).await.unwrap();
            }
            let online = PublishRequest {
                ttl: Some(Duration::ZERO),
                ..message("p", "b1", "hidden")
            };
            producer.publish(online).await.unwrap();
            breathe().await;
            client.wait_for(2).await;
            breathe().await;
            assert_eq!(client.bodies(), ["seen", "seen"], "{road} by {key}");
        }
    }
}

#[tokio::test]
async fn what_was_stored_for_a_wider_credential_is_hidden_from_a_narrow_one() {
    let world = world().await;
    let wide = world.consumer_of("alice", "c").await;
    wide.subscribe(wish("c", "*:#").durable()).await.unwrap();
    wide.leave(Leave::Closed);
    let producer = world.producer("p");
    producer
        .publish(message("p", "b1", "hidden"))
        .await
        .unwrap();
    producer.publish(message("p", "a1", "seen")).await.unwrap();
    let client = world.join_with(&RealmId::default(), narrow());
    client.consumer("c").await.unwrap();
    client.subscribe(wish("c", "*:#").durable()).await.unwrap();
    client.wait_for(1).await;
    breathe().await;
    assert_eq!(client.bodies(), ["seen"]);
}

#[tokio::test]
async fn a_group_never_chooses_who_may_not_see_it() {
    let world = world().await;
    let client = world.join_with(&RealmId::default(), narrow());
    client.consumer("n").await.unwrap();
    client.subscribe(wish("n", "*:#").group("g")).await.unwrap();
    let wide = world.consumer_of("alice", "w").await;
    wide.subscribe(wish("w", "*:#").group("g")).await.unwrap();
    let producer = world.producer("p");
    for _ in 0..4 {
        producer.publish(message("p", "b1", "1")).await.unwrap();
    }
    assert_eq!((client.bodies().len(), wide.bodies().len()), (0, 4));
}

#[tokio::test]
async fn a_broadcast_reaches_only_who_may_see_its_event() {
    let world = world().await;
    let nobody = world.join_with(&RealmId::default(), narrow());
    nobody.consumer("n").await.unwrap();
    let member = world.join_with(&RealmId::default(), narrow());
    member.consumer("m").await.unwrap();
    member.subscribe(wish("m", "a1").group("g")).await.unwrap();
    let producer = world.join();
    for event in ["b1", "a2"] {
        for to in [Broadcast::Realm, Broadcast::Group("g")] {
            let request = PublishRequest {
                broadcast: Some(to),
                ..message("p", event, event)
            };
            producer.publish(request).await.unwrap();
        }
    }
    let lines = |client: &Client| client.lines().join(";");
    assert_eq!(lines(&nobody), "CONSUME-a2 a2");
    assert!(!lines(&member).contains("b1"), "{}", lines(&member));
    assert_eq!(member.lines().len(), 2);
}

#[tokio::test]
async fn an_exact_event_that_may_not_be_seen_is_not_subscribed_to() {
    let world = world().await;
    let client = world.join_with(&RealmId::default(), narrow());
    client.consumer("c").await.unwrap();
    for key in ["b1", "p:b1"] {
        for request in [wish("c", key), wish("c", key).durable()] {
            assert_eq!(refused(&client, request).await, ErrorKind::Forbidden);
        }
    }
    client.subscribe(wish("c", "a1").durable()).await.unwrap();
}

#[tokio::test]
async fn only_admins_join_the_realm_that_sees_all() {
    let world = world().await;
    let all = RealmId::parse("*").unwrap();
    let line = Arc::new(Line::default());
    let joined = world.broker.join(&all, "s", line, of("alice"));
    assert_eq!(joined.unwrap_err().kind(), ErrorKind::Forbidden);
    assert!(world.broker.sessions_of(Some(&all)).is_empty());
}

#[tokio::test]
async fn what_an_expelled_session_still_says_reaches_nobody() {
    let world = world().await;
    let consumer = world.consumer("c").await;
    consumer.subscribe(wish("c", "x")).await.unwrap();
    let producer = world.producer("p");
    let why = crate::Error::new(ErrorKind::Unauthenticated, "the token was revoked");
    world.broker.expel(&producer.member, Some(&why));
    let last = producer.lines().pop();
    assert_eq!(last.as_deref(), Some("AUTH_FAIL unauthenticated"));
    let told = producer.publish(message("p", "x", "1")).await;
    assert_eq!(told.unwrap_err().kind(), ErrorKind::Disconnected);
    assert!(consumer.bodies().is_empty());
}
