//! An attempt that somebody outside decides: what comes behind it waits (scenario 10, F05).

use std::sync::Arc;
use std::time::Duration;

use restante::auth::{Answer, Claims, Validator};
use restante::clock::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Guarded;
use crate::harness::ticking;

/// Answers when it is told to: `slow` is a consumer of `closed`.
struct Slow(watch::Receiver<bool>);

impl Validator for Slow {
    fn validate(&self, token: &str, now: Timestamp) -> Answer {
        let mut open = self.0.clone();
        let claims = json!({ "realm": "closed", "role": "both" });
        let claims =
            (token == "slow").then(|| Claims::parse(claims.as_object().unwrap(), now).unwrap());
        Box::pin(async move {
            // The test has ended if nobody answers.
            let _ = open.wait_for(|open| *open).await;
            claims
        })
    }
}

async fn guarded() -> (Guarded, watch::Sender<bool>) {
    let guarded = Guarded::start().await;
    let (gate, open) = watch::channel(false);
    guarded.auth.set_validator(Some(Arc::new(Slow(open))));
    (guarded, gate)
}

fn frame(id: u64, verb: &str, payload: &Value) -> String {
    format!("42{id}{}", json!([verb, payload]))
}

#[tokio::test]
async fn what_comes_behind_an_attempt_waits_and_is_heard_in_the_realm_it_leads_to() {
    let (guarded, gate) = guarded().await;
    let mut client = guarded.stranger().await;
    client
        .raw(&frame(1, "AUTHENTICATION", &json!({ "token": "slow" })))
        .await;
    client
        .raw(&frame(2, "CONSUMER", &json!({ "name": "c" })))
        .await;
    let wish = json!({ "event": "e", "consumer": "c" });
    client.raw(&frame(3, "SUBSCRIBE", &wish)).await;
    let mut other = guarded.stranger().await;
    other
        .raw(&frame(1, "AUTHENTICATION", &json!({ "token": "wrong" })))
        .await;
    other
        .raw(&frame(2, "PRODUCER", &json!({ "name": "p" })))
        .await;
    assert!(guarded.house.server.broker().sessions_of(None).is_empty());
    gate.send_replace(true);
    assert_eq!(client.answer(1).await["realm"], "closed");
    assert_eq!(client.answer(2).await["ok"], true);
    assert_eq!(client.answer(3).await["ok"], true);
    assert_eq!(other.answer(1).await["code"], 401);
    assert_eq!(other.answer(2).await["code"], 401);
    let sessions = guarded.house.server.broker().sessions_of(None);
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].realm.as_str(), "closed");
    assert_eq!(sessions[0].consumers[0].as_str(), "c");
    guarded.house.close().await;
}

#[tokio::test]
async fn what_waits_is_bounded_in_number_and_bytes() {
    let (guarded, gate) = guarded().await;
    let token = json!({ "token": "slow" });
    let mut many = guarded.stranger().await;
    many.raw(&frame(1, "AUTHENTICATION", &token)).await;
    for id in 2..=66 {
        many.raw(&frame(id, "PING", &json!({}))).await;
    }
    assert_eq!(many.answer(66).await["code"], 401);
    let mut large = guarded.stranger().await;
    large.raw(&frame(1, "AUTHENTICATION", &token)).await;
    let text = "x".repeat(600 << 10);
    for id in 2..=3 {
        large
            .raw(&frame(id, "PING", &json!({ "text": text })))
            .await;
    }
    assert_eq!(large.answer(3).await["code"], 401);
    gate.send_replace(true);
    for id in 2..=65 {
        assert!(many.answer(id).await.is_string());
    }
    assert!(large.answer(2).await.is_string());
    guarded.house.close().await;
}

#[tokio::test]
async fn an_attempt_that_nobody_decides_fails_and_with_it_what_waited() {
    let (guarded, _gate) = guarded().await;
    let mut client = guarded.stranger().await;
    client
        .raw(&frame(1, "AUTHENTICATION", &json!({ "token": "slow" })))
        .await;
    client
        .raw(&frame(2, "PRODUCER", &json!({ "name": "p" })))
        .await;
    let told = ticking(
        &guarded.house.clock,
        Duration::from_millis(25),
        client.event("AUTH_FAIL"),
    );
    assert_eq!(told.await.unwrap()["code"], 401);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_is_asked_about_leaves_nothing() {
    let (guarded, gate) = guarded().await;
    let mut client = guarded.stranger().await;
    client
        .raw(&frame(1, "AUTHENTICATION", &json!({ "token": "slow" })))
        .await;
    client
        .raw(&frame(2, "CONSUMER", &json!({ "name": "c" })))
        .await;
    client.leave().await;
    gate.send_replace(true);
    let mut next = guarded.stranger().await;
    next.call("AUTHENTICATION", &json!({ "token": "slow" }))
        .await;
    assert_eq!(guarded.house.server.broker().sessions_of(None).len(), 1);
    guarded.house.close().await;
}
