//! Asking to be let in, and being let in (scenarios 22–27).

use restante::auth::{Action, TokenHash};
use serde_json::{Value, json};

use super::{ACME_KEY, ADMIN, Managed, assert_refused, shown};
use crate::harness::{Client, On, on_each_store};

const TOKEN: &str = "a token that a client has made of 32 characters and more";

fn wish(realm: &str) -> Value {
    json!({ "realm": realm, "role": "consumer", "client_id": "robot", "client_name": "Robot" })
}

fn with_token(realm: &str, token: &str) -> Value {
    let mut wish = wish(realm);
    wish["client_token"] = json!(token);
    wish
}

async fn request(client: &mut Client, wish: &Value) -> Value {
    let answer = client.call("AUTHORIZATION_REQUEST", wish).await;
    assert_eq!(
        (&answer["ok"], &answer["status"]),
        (&json!(true), &json!("pending")),
        "{answer}"
    );
    let event = client.event("AUTHORIZATION_REQUEST_OK").await;
    assert_eq!(event.as_ref(), Some(&answer), "the event says the same");
    answer["request_id"].clone()
}

async fn decide(managed: &Managed, secret: &str, body: Value) -> Value {
    managed.ask(Action::Decide, secret, body).await
}

async fn is_approved_and_its_token_works(on: On) {
    let managed = Managed::start(on).await;
    let mut client = managed.stranger().await;
    let mut wish = with_token("acme", TOKEN);
    wish["challenge_response"] = json!({ "answer": [1, 2.5, "x"] });
    let id = request(&mut client, &wish).await;
    for _ in 0..2 {
        // Looking takes nothing away.
        let next = managed.ask(Action::Next, ADMIN, json!({})).await;
        let shown = &next["request"];
        assert_eq!(
            (&shown["request_id"], &shown["status"]),
            (&id, &json!("pending"))
        );
        assert_eq!(shown["client_token_hash"], TokenHash::of(TOKEN).to_string());
        assert_eq!(shown["challenge_response"], wish["challenge_response"]);
        assert_eq!(
            (&shown["role"], &shown["client_id"]),
            (&json!("consumer"), &json!("robot"))
        );
        assert!(!next.to_string().contains(TOKEN));
    }
    let early = shown(&mut managed.stranger().await, TOKEN).await;
    assert_eq!(early, 401);
    let decision = json!({ "request_id": id, "approved": true, "role": "both" });
    let decided = decide(&managed, ADMIN, decision.clone()).await;
    assert_eq!(decided["request"]["status"], "approved", "{decided}");
    let told = client
        .event("AUTHORIZATION_APPROVED")
        .await
        .expect("a decision");
    assert_eq!(
        told,
        json!({ "request_id": id, "realm": "acme", "role": "both" })
    );
    assert_eq!(shown(&mut client, TOKEN).await, "acme");
    let none = managed.ask(Action::Next, ADMIN, json!({})).await;
    assert_eq!(
        (&none["ok"], &none["request"]),
        (&json!(true), &Value::Null)
    );
    assert_refused(
        &decide(&managed, ADMIN, decision).await,
        404,
        "request_unknown",
    );
    let view = managed.order(json!({ "command": "get" })).await.to_string();
    assert!(view.contains(&TokenHash::of(TOKEN).to_string()) && !view.contains(TOKEN));
    managed.house.close().await;
}

async fn is_given_a_token_that_is_told_to_the_requester_alone(on: On) {
    let managed = Managed::start(on).await;
    let mut client = managed.stranger().await;
    let id = request(&mut client, &wish("acme")).await;
    let decided = decide(
        &managed,
        ACME_KEY,
        json!({ "request_id": id, "approved": true }),
    )
    .await;
    let told = client
        .event("AUTHORIZATION_APPROVED")
        .await
        .expect("a decision");
    let token = told["client_token"].as_str().expect("a token").to_owned();
    assert!(!decided.to_string().contains(&token));
    assert_eq!(
        decided["request"]["client_token_hash"],
        TokenHash::of(&token).to_string()
    );
    assert_eq!(shown(&mut managed.stranger().await, &token).await, "acme");
    managed.house.close().await;
}

async fn is_rejected_with_a_reason(on: On) {
    let managed = Managed::start(on).await;
    let mut client = managed.stranger().await;
    for reason in [json!("no room"), Value::Null] {
        let id = request(&mut client, &with_token("acme", TOKEN)).await;
        let decision = json!({ "request_id": id, "approved": false, "reason": reason });
        let decided = decide(&managed, ADMIN, decision.clone()).await;
        assert_eq!(decided["request"]["status"], "rejected", "{decided}");
        assert_eq!(decided["request"]["decision_reason"], reason);
        let told = client
            .event("AUTHORIZATION_REJECTED")
            .await
            .expect("a decision");
        assert_eq!(told, json!({ "request_id": id, "reason": reason }));
        assert_refused(
            &decide(&managed, ADMIN, decision.clone()).await,
            404,
            "request_unknown",
        );
        // Who holds a realm's key does not learn which requests there were.
        let by_key = decide(&managed, ACME_KEY, decision).await;
        assert_refused(&by_key, 401, "proof_rejected");
    }
    assert_eq!(shown(&mut client, TOKEN).await, 401);
    managed.house.close().await;
}

on_each_store!(
    is_approved_and_its_token_works,
    is_given_a_token_that_is_told_to_the_requester_alone,
    is_rejected_with_a_reason,
);

#[tokio::test]
async fn another_session_with_the_same_client_id_displaces_nobody() {
    let managed = Managed::start(On::Memory).await;
    let (mut first, mut second) = (managed.stranger().await, managed.stranger().await);
    let one = request(&mut first, &with_token("acme", TOKEN)).await;
    let two = request(&mut second, &wish("acme")).await;
    assert_ne!(one, two);
    let again = request(&mut second, &wish("acme")).await;
    let list = async |status: &str| {
        let order = json!({ "command": "authorization_list", "status": status });
        let listed = managed.order(order).await;
        let requests = listed["requests"].as_array().unwrap().clone();
        requests
            .into_iter()
            .map(|one| one["request_id"].clone())
            .collect::<Vec<_>>()
    };
    let mut pending = list("pending").await;
    pending.sort_by_key(Value::to_string);
    let mut wanted = vec![one, again];
    wanted.sort_by_key(Value::to_string);
    assert_eq!(pending, wanted);
    assert_eq!(list("superseded").await, [two]);
    managed.house.close().await;
}

#[tokio::test]
async fn roles_that_may_not_be_granted_are_refused() {
    let managed = Managed::start(On::Memory).await;
    let mut client = managed.stranger().await;
    let id = request(&mut client, &wish("acme")).await;
    for (secret, role) in [
        (ADMIN, "foo"),
        (ADMIN, "admin"),
        (ACME_KEY, "foo"),
        (ACME_KEY, "admin"),
    ] {
        let body = json!({ "request_id": id, "approved": true, "role": role });
        let answer = decide(&managed, secret, body).await;
        let is_refused = [400, 403].contains(&answer["code"].as_u64().unwrap_or(0));
        // An order that cannot be read is no order of a realm.
        let is_unread = secret == ACME_KEY && role == "foo" && answer["code"] == 401;
        assert!(is_refused || is_unread, "{role}: {answer}");
    }
    let mut super_admin = wish("*");
    super_admin["role"] = json!("admin");
    let id = request(&mut client, &super_admin).await;
    let unsaid = decide(
        &managed,
        ADMIN,
        json!({ "request_id": id, "approved": true }),
    )
    .await;
    assert_refused(&unsaid, 400, "bad_command");
    let said = json!({ "request_id": id, "approved": true, "role": "admin" });
    assert_eq!(
        decide(&managed, ADMIN, said).await["request"]["role"],
        "admin"
    );
    managed.house.close().await;
}

#[tokio::test]
async fn what_is_no_request_is_refused_in_both_ways() {
    let managed = Managed::start(On::Memory).await;
    let mut client = managed.stranger().await;
    let long = "n".repeat(256);
    let taken = with_token("acme", "a token that is there already, long enough");
    let add = json!({ "command": "add_token", "realm": "acme",
        "token": taken["client_token"] });
    assert_eq!(managed.order(add).await["ok"], true);
    let change = |name: &str, value: Value| {
        let mut wish = with_token("acme", TOKEN);
        wish[name] = value;
        wish
    };
    for (wish, code) in [
        (json!(null), 400),
        (json!("text"), 400),
        (json!({}), 400),
        (change("realm", json!(1)), 400),
        (change("realm", json!(" x")), 400),
        (change("client_id", Value::Null), 400),
        (change("client_id", json!(long)), 400),
        (change("client_name", json!(7)), 400),
        (change("client_token", json!("x")), 400),
        (change("client_token", json!("x".repeat(513))), 400),
        (change("client_token", json!(7)), 400),
        (change("challenge_response", json!("c".repeat(5_000))), 400),
        (taken, 409),
    ] {
        let answer = client.call("AUTHORIZATION_REQUEST", &wish).await;
        assert_eq!(
            (&answer["ok"], &answer["code"]),
            (&json!(false), &json!(code)),
            "{wish}: {answer}"
        );
        assert_eq!(
            client.event("AUTHORIZATION_REQUEST_FAIL").await,
            Some(answer)
        );
    }
    // As a text, as existing clients may send it.
    let text = json!(with_token("acme", TOKEN).to_string());
    let answer = client.call("AUTHORIZATION_REQUEST", &text).await;
    assert_eq!(answer["ok"], true, "{answer}");
    managed.house.close().await;
}

#[tokio::test]
async fn of_one_address_twenty_requests_wait_and_no_more() {
    let managed = Managed::start(On::Memory).await;
    for n in 0..21 {
        let mut client = managed.stranger().await;
        let mut wish = wish("acme");
        wish["client_id"] = json!(format!("robot {n}"));
        let answer = client.call("AUTHORIZATION_REQUEST", &wish).await;
        if n < 20 {
            assert_eq!(answer["ok"], true, "{answer}");
        } else {
            assert_refused(&answer, 429, "rate_limited");
        }
    }
    managed.house.close().await;
}

#[tokio::test]
async fn nobody_guesses_tokens_by_asking_to_be_let_in() {
    let managed = Managed::start(On::Memory).await;
    let mut client = managed.stranger().await;
    let mut guesses = 0;
    let refused = loop {
        let token = if guesses % 2 == 0 {
            ADMIN.to_owned()
        } else {
            format!("{guesses} is a guess that nobody has as a token")
        };
        let answer = client
            .call("AUTHORIZATION_REQUEST", &with_token("acme", &token))
            .await;
        if answer["code"] == 429 {
            break answer;
        }
        guesses += 1;
        assert!(guesses <= 31, "{answer}");
    };
    assert!(refused["retry_after"].is_u64(), "{refused}");
    client.ended().await;
    // It is the count of wrong credentials: of this address none is looked at any more.
    assert_eq!(shown(&mut managed.stranger().await, "wrong").await, 429);
    managed.house.close().await;
}
