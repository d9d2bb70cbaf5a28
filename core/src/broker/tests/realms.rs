//! The end of realms, their change of names, and the sessions in them (admin.md §1.6, §1.7).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::harness::*;
use crate::ErrorKind;
use crate::broker::*;
use crate::clock::Timestamp;
use crate::model::*;

fn realm(name: &str) -> RealmId {
    RealmId::parse(name).unwrap()
}

/// A consumer that has a durable subscription to `x` in a realm.
async fn durable(world: &World, name: &str) -> Client {
    let client = world.join_in(&realm(name));
    client.consumer("c").await.unwrap();
    client.subscribe(wish("c", "x").durable()).await.unwrap();
    client
}

/// A message that is held for a minute.
fn later() -> PublishRequest<'static> {
    PublishRequest {
        due: Some(Timestamp(1_767_225_600_000 + 60_000)),
        ..message("p", "x", "later")
    }
}

#[tokio::test]
async fn a_removed_realm_is_gone_with_all_it_had() {
    let world = world().await;
    let consumer = durable(&world, "acme").await;
    let other = durable(&world, "other").await;
    let producer = world.join_in(&realm("acme"));
    producer.publish(later()).await.unwrap();
    consumer.leave(Leave::Closed);
    producer.publish(message("p", "x", "1")).await.unwrap();
    let removed = world.broker.remove_realm(&realm("acme")).await.unwrap();
    assert_eq!((removed.sessions, removed.messages), (1, 2));
    assert!(producer.line.is_closed.load(Ordering::SeqCst));
    // What it had read already, and its own end, bring nothing back.
    let told = producer.publish(later()).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Disconnected);
    producer.leave(Leave::Failed);
    let names = world.broker.stats().into_iter().map(|(name, _)| name);
    let names: Vec<String> = names.map(|name| name.as_str().to_owned()).collect();
    assert!(!names.contains(&"acme".to_owned()), "{names:?}");
    world.pass(Duration::from_secs(61)).await;
    assert!(world.broker.sessions_of(Some(&realm("acme"))).is_empty());
    assert!(!other.member.has_left());
}

#[tokio::test]
async fn a_realm_that_is_made_again_is_a_new_one() {
    let world = world().await;
    let before = durable(&world, "acme").await;
    let producer = world.join_in(&realm("acme"));
    producer.publish(later()).await.unwrap();
    before.publish(message("p", "x", "old")).await.unwrap();
    before.wait_for(1).await;
    world.pass(Duration::from_secs(61)).await;
    assert_eq!(before.wait_for(2).await.len(), 2);
    world.broker.remove_realm(&realm("acme")).await.unwrap();
    let again = durable(&world, "acme").await;
    let producer = world.join_in(&realm("acme"));
    let due = Timestamp(1_767_225_600_000 + 120_000);
    let request = PublishRequest {
        due: Some(due),
        ..message("p", "x", "new")
    };
    assert!(producer.publish(request).await.unwrap().delayed);
    world.pass(Duration::from_secs(61)).await;
    again.wait_for(1).await;
    assert_eq!(again.bodies(), ["new"]);
}

#[tokio::test]
async fn a_renamed_realm_keeps_what_waits_and_its_sessions_come_in_anew() {
    let world = world().await;
    let consumer = durable(&world, "old").await;
    consumer.leave(Leave::Closed);
    let producer = world.join_in(&realm("old"));
    producer.publish(message("p", "x", "1")).await.unwrap();
    producer.publish(later()).await.unwrap();
    let (old, new) = (realm("old"), realm("new"));
    let closed = settled(&world, world.broker.rename_realm(&old, &new)).await;
    assert_eq!(closed.unwrap(), 1);
    assert!(producer.line.is_closed.load(Ordering::SeqCst));
    let again = durable(&world, "new").await;
    again.wait_for(1).await;
    world.pass(Duration::from_secs(61)).await;
    again.wait_for(2).await;
    assert_eq!(again.bodies(), ["1", "later"]);
    assert!(world.broker.sessions_of(Some(&old)).is_empty());
    let stats = world.broker.stats();
    assert!(stats.iter().all(|(name, _)| *name != old));
}

/// Awaits what waits on the clock.
async fn settled<T: Send + 'static>(world: &World, answer: Answer<T>) -> crate::Result<T> {
    let answer = tokio::spawn(answer);
    while !answer.is_finished() {
        world.clock.advance(Duration::from_millis(100));
        breathe().await;
    }
    answer.await.unwrap()
}

#[tokio::test]
async fn a_name_that_is_taken_or_fixed_is_refused_and_all_is_as_before() {
    let world = world().await;
    let consumer = durable(&world, "old").await;
    consumer.leave(Leave::Closed);
    durable(&world, "taken").await.leave(Leave::Closed);
    let producer = world.join_in(&realm("old"));
    producer.publish(message("p", "x", "1")).await.unwrap();
    let taken = world.broker.check_rename(&realm("taken")).await;
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::BadName);
    world.broker.check_rename(&realm("free")).await.unwrap();
    for (from, to) in [
        ("old", "*"),
        ("old", "default"),
        ("*", "new"),
        ("default", "new"),
        ("old", "taken"),
    ] {
        let renaming = world.broker.rename_realm(&realm(from), &realm(to));
        let error = settled(&world, renaming).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadName, "{from} {to}");
    }
    for fixed in ["*", "default"] {
        let removed = world.broker.remove_realm(&realm(fixed)).await;
        assert_eq!(removed.unwrap_err().kind(), ErrorKind::BadName);
    }
    let again = durable(&world, "old").await;
    again.wait_for(1).await;
    assert_eq!(again.bodies(), ["1"]);
}

#[tokio::test]
async fn nobody_joins_a_realm_that_is_being_removed() {
    let world = world().await;
    durable(&world, "acme").await.leave(Leave::Closed);
    world.store.shut();
    let removing = tokio::spawn(world.broker.remove_realm(&realm("acme")));
    breathe().await;
    let line = Arc::new(Line::default());
    let joined = world
        .broker
        .join(&realm("acme"), "s", line, Pass::default());
    assert_eq!(joined.unwrap_err().kind(), ErrorKind::Conflict);
    world.store.reopen();
    removing.await.unwrap().unwrap();
    world.join_in(&realm("acme"));
}

#[tokio::test]
async fn a_delayed_message_that_is_due_while_its_realm_is_renamed_comes_afterwards() {
    let world = world().await;
    let (old, new) = (realm("old"), realm("new"));
    durable(&world, "old").await.leave(Leave::Closed);
    world.join_in(&old).publish(later()).await.unwrap();
    let held = world.broker.hold_realms([old.clone(), new.clone()]);
    let line = Arc::new(Line::default());
    let joined = world.broker.join(&new, "s", line, Pass::default());
    assert_eq!(joined.unwrap_err().kind(), ErrorKind::Conflict);
    world.pass(Duration::from_secs(61)).await;
    drop(held);
    world.pass(Duration::from_secs(2)).await;
    let back = durable(&world, "old").await;
    back.wait_for(1).await;
    assert_eq!(back.bodies(), ["later"]);
}

#[tokio::test]
async fn a_realm_without_anything_is_forgotten() {
    let world = world().await;
    for number in 0..100 {
        let client = world.join_in(&realm(&format!("realm-{number}")));
        client.consumer("c").await.unwrap();
        client.leave(Leave::Closed);
    }
    world.clock.advance(Duration::from_secs(3600));
    world.broker.sweep_idle();
    let names = world.broker.stats();
    assert!(names.len() <= 2, "{}", names.len());
}

#[tokio::test]
async fn sessions_are_listed_and_ended_by_their_socket() {
    let world = world().await;
    let pass = Pass {
        owner: Some("client:a".into()),
        role: "consumer",
        ..Pass::default()
    };
    let first = world.join_with(&realm("acme"), pass);
    first.consumer("c").await.unwrap();
    let second = world.join_in(&realm("acme"));
    second.producer("p");
    world.join();
    let listed = world.broker.sessions_of(Some(&realm("acme")));
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].role, "consumer");
    assert_eq!(listed[0].owner.as_deref(), Some("client:a"));
    assert_eq!(listed[0].consumers[0].as_str(), "c");
    assert_eq!(listed[1].producers[0].as_str(), "p");
    assert_eq!(world.broker.sessions_of(None).len(), 3);
    assert!(world.broker.disconnect("socket", None));
    assert!(!world.broker.disconnect("no such socket", None));
    assert_eq!(world.broker.sessions_of(None).len(), 2);
}
