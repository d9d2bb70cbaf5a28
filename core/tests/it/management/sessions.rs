//! Who is connected, whom a command ends, and who hears of it (F08).

use serde_json::json;

use super::{Managed, assert_refused, shown};
use crate::harness::On;

#[tokio::test]
async fn a_minted_token_is_told_once_and_lets_its_client_in() {
    let managed = Managed::start(On::Memory).await;
    let body = json!({ "command": "add_token", "realm": "acme", "role": "producer" });
    let answer = managed.order(body).await;
    let token = answer["token"].as_str().expect("a token").to_owned();
    let mut client = managed.stranger().await;
    assert_eq!(shown(&mut client, &token).await, "acme");
    let view = managed.order(json!({ "command": "get" })).await.to_string();
    assert!(!view.contains(&token));
    assert!(view.contains(answer["token_hash"].as_str().unwrap()));
    managed.house.close().await;
}

#[tokio::test]
async fn sessions_are_listed_and_ended_by_socket_by_client_and_by_realm() {
    let managed = Managed::start(On::Memory).await;
    let list = json!({ "command": "list_sessions", "realm": "acme" });
    for by in ["socket_id", "client_id", "realm"] {
        let client = managed.client("acme-token", "a").await;
        let mut other = managed.client("beta-token", "b").await;
        let listed = managed.order(list.clone()).await;
        let one = &listed["sessions"][0];
        assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(one["socket_id"], client.socket_id.as_str());
        assert_eq!(
            (&one["realm"], &one["role"]),
            (&json!("acme"), &json!("both"))
        );
        assert_eq!(
            (&one["consumers"], &one["producers"]),
            (&json!(["a"]), &json!(["a"]))
        );
        let which = match by {
            "socket_id" => client.socket_id.clone(),
            "client_id" => "acme-client".to_owned(),
            _ => "acme".to_owned(),
        };
        let answer = managed
            .order(json!({ "command": "disconnect", by: which }))
            .await;
        assert_eq!(answer["disconnected_sockets"], 1, "{by}: {answer}");
        client.ended().await;
        other.sync().await;
        other.leave().await;
    }
    managed.house.close().await;
}

#[tokio::test]
async fn switching_authentication_on_ends_who_was_never_asked_and_counts_them() {
    let managed = Managed::with(On::Memory, |settings| settings["enabled"] = json!(false)).await;
    let client = managed.house.consumer("c").await;
    let order = json!({ "command": "set_global_auth", "enabled": true });
    let answer = managed.order(order).await;
    // Whoever ordered it was not asked either, and hears the answer before it goes.
    assert_eq!(answer["disconnected_sockets"], 2, "{answer}");
    client.ended().await;
    let mut next = managed.stranger().await;
    assert_eq!(shown(&mut next, "nothing").await, 401);
    managed.house.close().await;
}

#[tokio::test]
async fn a_changed_realm_key_ends_its_sessions_and_says_how_many() {
    let managed = Managed::with(On::Memory, |settings| {
        settings["realms"]["acme"]["key"] = json!("the key of acme");
    })
    .await;
    let mut client = managed.stranger().await;
    let key = json!({ "realm": "acme", "role": "consumer", "key": "the key of acme" });
    assert_eq!(client.call("AUTHENTICATION", &key).await["ok"], true);
    let mut other = managed.client("acme-token", "a").await;
    let order =
        json!({ "command": "set_realm_key", "realm": "acme", "key": "another key of acme" });
    let answer = managed.order(order).await;
    assert_eq!(answer["disconnected_sockets"], 1, "{answer}");
    client.ended().await;
    other.sync().await;
    managed.house.close().await;
}

#[tokio::test]
async fn a_released_queue_belongs_to_whoever_attaches_next() {
    let managed = Managed::start(On::Memory).await;
    let other = json!({ "command": "add_token", "realm": "acme", "client_id": "other" });
    let other = managed.order(other).await["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut first = managed.client("acme-token", "q").await;
    first.subscribe(super::durable("e")).await;
    first.leave().await;
    let mut second = managed.client(&other, "q").await;
    let mut wish = super::durable("e");
    (wish["consumer"], wish["consumer_id"]) = (json!("q"), json!("q"));
    let refused = second.call("SUBSCRIBE", &wish).await;
    assert_refused(&refused, 403, "consumer_id_taken");
    let stats = managed
        .order(json!({ "command": "queue_stats", "realm": "acme" }))
        .await;
    let queue = stats["queues"][0]["queue"].clone();
    let order = json!({ "command": "queue_release", "realm": "acme", "queue": queue });
    assert_eq!(managed.order(order).await["ok"], true, "{stats}");
    assert_eq!(second.call("SUBSCRIBE", &wish).await["ok"], true);
    managed.house.close().await;
}

#[tokio::test]
async fn a_client_is_ended_in_the_realm_that_is_named_only() {
    let managed = Managed::with(On::Memory, |settings| {
        let token = json!({ "token": "acme-client in beta", "realm": "beta", "role": "both",
            "client_id": "acme-client" });
        settings["tokens"].as_array_mut().unwrap().push(token);
    })
    .await;
    let here = managed.client("acme-token", "a").await;
    let mut there = managed.client("acme-client in beta", "a").await;
    let by_client = json!({ "command": "disconnect", "client_id": "acme-client", "realm": "acme" });
    let answer = managed.order(by_client.clone()).await;
    assert_eq!(answer["disconnected_sockets"], 1, "{answer}");
    here.ended().await;
    there.sync().await;
    let by_socket =
        json!({ "command": "disconnect", "socket_id": there.socket_id, "realm": "acme" });
    for order in [by_client, by_socket] {
        assert_refused(&managed.order(order).await, 404, "session_unknown");
    }
    there.sync().await;
    let anywhere = json!({ "command": "disconnect", "client_id": "acme-client" });
    let answer = managed.order(anywhere).await;
    assert_eq!(answer["disconnected_sockets"], 1, "{answer}");
    there.ended().await;
    managed.house.close().await;
}

#[tokio::test]
async fn whoever_listens_as_owner_is_told_when_its_queue_is_released_and_listens_no_more() {
    let managed = Managed::start(On::Memory).await;
    let other = json!({ "command": "add_token", "realm": "acme", "client_id": "other" });
    let other = managed.order(other).await["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut first = managed.client("acme-token", "q").await;
    first.subscribe(super::durable("e")).await;
    let stats = managed
        .order(json!({ "command": "queue_stats", "realm": "acme" }))
        .await;
    let queue = stats["queues"][0]["queue"].clone();
    let order = json!({ "command": "queue_release", "realm": "acme", "queue": queue });
    assert_eq!(managed.order(order).await["ok"], true, "{stats}");
    let told = first.event("ERROR").await.expect("a word");
    assert_eq!(told["error"], "consumer_id_taken", "{told}");
    let mut second = managed.client(&other, "q2").await;
    let mut wish = super::durable("e");
    (wish["consumer"], wish["consumer_id"]) = (json!("q2"), json!("q"));
    assert_eq!(second.call("SUBSCRIBE", &wish).await["ok"], true);
    (wish["consumer"], wish["consumer_id"]) = (json!("q"), json!("q"));
    assert_refused(
        &first.call("SUBSCRIBE", &wish).await,
        403,
        "consumer_id_taken",
    );
    managed.house.close().await;
}
