//! Proofs on the wire (scenarios 18–21): what they are made of is tested where they are checked.

use std::time::Duration;

use restante::auth::{Action, new_nonce, sign};
use restante::clock::{Clock as _, Timestamp};
use serde_json::{Value, json};

use super::{ADMIN, Managed, assert_refused, signed};
use crate::harness::{Client, On};

const COMMAND: &str = "AUTH_MANAGEMENT_COMMAND";

fn get() -> Value {
    json!({ "command": "get" })
}

#[tokio::test]
async fn one_changed_part_of_an_order_and_it_is_refused() {
    let managed = Managed::start(On::Memory).await;
    let mut client = managed.stranger().await;
    let now = managed.now();
    let changes: &[(&str, Value)] = &[
        ("/proof/timestamp", json!(now.0 + 1)),
        ("/proof/nonce", json!("0123456789abcdef0123456789abcdef")),
        ("/proof/signature", json!("0".repeat(64))),
        ("/proof/signature", json!("")),
        ("/proof/nonce", json!(["0123456789abcdef0123456789abcdef"])),
        ("/proof/nonce", json!(7)),
        ("/proof/nonce", json!({})),
        ("/proof/nonce", json!("")),
        ("/proof/nonce", json!("n".repeat(60 << 10))),
        ("/proof", Value::Null),
        ("/proof", json!([])),
        ("/body/command", json!("stats")),
        ("/body", json!({ "command": "get", "more": 1 })),
    ];
    for (place, value) in changes {
        let mut order = signed(Action::Command, ADMIN, now, &get());
        *order.pointer_mut(place).unwrap() = value.clone();
        let answer = client.call(COMMAND, &order).await;
        assert_refused(&answer, 401, "proof_rejected");
    }
    for payload in [
        json!(null),
        json!("text"),
        json!([]),
        json!({}),
        json!({ "body": get() }),
    ] {
        assert_refused(&client.call(COMMAND, &payload).await, 401, "proof_rejected");
    }
    let mut order = signed(Action::Command, ADMIN, now, &get());
    order["proof"]["nonce"] = json!("n".repeat(100 << 10));
    let answer = client.call(COMMAND, &order).await;
    assert_refused(&answer, 413, "payload_too_large");
    // What is larger still is not read from a stranger.
    order["proof"]["nonce"] = json!("n".repeat(1 << 20));
    client.say(COMMAND, &order).await;
    assert_eq!(client.event("AUTH_MANAGEMENT_RESULT").await, None);
    let order = signed(Action::Command, ADMIN, now, &get());
    let mut next = managed.stranger().await;
    assert_eq!(next.call(COMMAND, &order).await["ok"], true);
    managed.house.close().await;
}

#[tokio::test]
async fn an_order_for_another_verb_or_by_another_secret_is_refused() {
    let managed = Managed::start(On::Memory).await;
    let mut client = managed.stranger().await;
    let now = managed.now();
    let next = signed(Action::Next, ADMIN, now, &get());
    assert_refused(&client.call(COMMAND, &next).await, 401, "proof_rejected");
    for secret in ["acme-token", "somebody else's"] {
        let order = signed(Action::Command, secret, now, &get());
        assert_refused(&client.call(COMMAND, &order).await, 401, "proof_rejected");
    }
    managed.house.close().await;
}

#[tokio::test]
async fn a_proof_holds_for_five_minutes_either_way() {
    let managed = Managed::start(On::Memory).await;
    managed.house.clock.advance(Duration::from_secs(3_600));
    let now = managed.now();
    let mut client = managed.stranger().await;
    for (at, is_good) in [
        (now.0 - 299_000, true),
        (now.0 - 301_000, false),
        (now.0 + 299_000, true),
        (now.0 + 301_000, false),
    ] {
        let order = signed(Action::Command, ADMIN, Timestamp(at), &get());
        assert_eq!(client.call(COMMAND, &order).await["ok"], is_good, "{at}");
    }
    managed.house.close().await;
}

#[tokio::test]
async fn the_same_proof_counts_once_whoever_brings_it() {
    let managed = Managed::start(On::Memory).await;
    let order = signed(Action::Command, ADMIN, managed.now(), &get());
    let mut client = managed.stranger().await;
    assert_eq!(client.call(COMMAND, &order).await["ok"], true);
    assert_refused(&client.call(COMMAND, &order).await, 401, "proof_rejected");
    let mut other = managed.stranger().await;
    assert_refused(&other.call(COMMAND, &order).await, 401, "proof_rejected");
    managed.house.close().await;
}

#[tokio::test]
async fn an_order_that_nobody_knows_leaves_its_proof_unused() {
    let managed = Managed::start(On::Memory).await;
    let (now, nonce) = (managed.now(), new_nonce().unwrap());
    let mut client = managed.stranger().await;
    for (body, is_good) in [(json!({ "command": "gett" }), false), (get(), true)] {
        let proof = sign(Action::Command, &body.to_string(), ADMIN, now, &nonce).unwrap();
        let order = json!({ "body": body, "proof": proof });
        assert_eq!(client.call(COMMAND, &order).await["ok"], is_good);
    }
    managed.house.close().await;
}

#[tokio::test]
async fn whoever_cannot_sign_does_not_learn_which_commands_there_are() {
    let managed = Managed::start(On::Memory).await;
    for command in ["get", "no_such_command"] {
        let answer = managed
            .order_by("somebody else's", json!({ "command": command }))
            .await;
        assert_refused(&answer, 401, "proof_rejected");
    }
    managed.house.close().await;
}

#[tokio::test]
async fn many_bad_proofs_are_answered_429_with_how_long_to_wait() {
    let managed = Managed::start(On::Memory).await;
    let mut refused = None;
    for _ in 0..8 {
        let mut client = managed.stranger().await;
        for _ in 0..9 {
            let order = signed(Action::Command, "somebody else's", managed.now(), &get());
            client.say(COMMAND, &order).await;
            let Some(answer) = client.event("AUTH_MANAGEMENT_FAIL").await else {
                break;
            };
            if answer["code"] == 429 {
                refused = Some(answer);
                break;
            }
            assert_refused(&answer, 401, "proof_rejected");
        }
        if refused.is_some() {
            break;
        }
    }
    assert!(refused.expect("429")["retry_after"].as_u64() >= Some(1));
    managed.house.close().await;
}

#[tokio::test]
async fn without_a_reply_the_answer_is_an_event_of_its_kind() {
    let managed = Managed::start(On::Memory).await;
    let mut client = managed.stranger().await;
    let said = async |client: &mut Client, action: Action, secret, body: Value, event| {
        let order = signed(action, secret, managed.house.clock.now(), &body);
        client.say(action.as_str(), &order).await;
        client.event(event).await.expect(event)
    };
    let wrong = "somebody else's";
    let (none, bad) = (json!({}), json!({ "command": "add_realm" }));
    let decide = json!({ "request_id": "x", "approved": true });
    let (command, next) = (Action::Command, Action::Next);
    let cases = [
        (command, ADMIN, get(), "AUTH_MANAGEMENT_RESULT", 200),
        (command, ADMIN, bad, "AUTH_MANAGEMENT_FAIL", 400),
        (command, wrong, get(), "AUTH_MANAGEMENT_FAIL", 401),
        (next, ADMIN, none.clone(), "AUTHORIZATION_NEXT_RESULT", 200),
        (next, wrong, none, "AUTHORIZATION_FAIL", 401),
        (Action::Decide, ADMIN, decide, "AUTHORIZATION_FAIL", 404),
    ];
    for (action, secret, body, event, code) in cases {
        let answer = said(&mut client, action, secret, body.clone(), event).await;
        assert_eq!(answer["ok"], code == 200, "{body}: {answer}");
        assert!(code == 200 || answer["code"] == code, "{body}: {answer}");
    }
    managed.house.close().await;
}

#[tokio::test]
async fn orders_are_taken_with_authentication_off_too() {
    let managed = Managed::with(On::Memory, |settings| settings["enabled"] = json!(false)).await;
    assert_eq!(managed.order(get()).await["settings"]["enabled"], false);
    managed.house.close().await;
}
