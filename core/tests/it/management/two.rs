//! Two brokers on one Redis: what is ordered at one holds at the other (scenario 55; P29, P30).

use restante::auth::{Action, AuthSettings, TokenHash};
use restante::clock::{Clock as _, SystemClock};
use restante::server::{Server, ServerConfig, Storage};
use restante::store::RedisOptions;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ADMIN, assert_refused, shown, signed};
use crate::harness::{Client, until};
use crate::redis::server::shared;
use crate::transport::harness::PATIENCE;

const COMMAND: &str = "AUTH_MANAGEMENT_COMMAND";

async fn broker(options: &RedisOptions) -> Server {
    let mut config = ServerConfig::default();
    config.host = Some("127.0.0.1".to_owned());
    config.port = 0;
    config.data_dir = std::env::temp_dir().join("restante-two-managed-without-a-state");
    config.storage = Storage::Redis(options.clone());
    config.auth = AuthSettings::parse(&super::settings()).unwrap();
    Server::start(config).await.unwrap()
}

async fn two() -> (Server, Server) {
    let options = shared().options();
    (broker(&options).await, broker(&options).await)
}

async fn client(at: &Server, token: &str) -> Client {
    let mut client = Client::connect(at.local_addr(), "c").await;
    let answer = client
        .call("AUTHENTICATION", &json!({ "token": token }))
        .await;
    assert_eq!(answer["ok"], true, "{answer}");
    client
}

fn payload(action: Action, body: &Value) -> Value {
    signed(action, ADMIN, SystemClock::new().now(), body)
}

async fn ask(at: &Server, action: Action, body: Value) -> Value {
    let mut client = Client::connect(at.local_addr(), "operator").await;
    let answer = client.call(action.as_str(), &payload(action, &body)).await;
    client.leave().await;
    answer
}

async fn order(at: &Server, body: Value) -> Value {
    let answer = ask(at, Action::Command, body).await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer
}

/// Waits until a broker lets a token in, or answers otherwise.
async fn until_shown(at: &Server, token: &str, wanted: Value) {
    let is_so = async || {
        let mut client = Client::connect(at.local_addr(), "c").await;
        shown(&mut client, token).await == wanted
    };
    until("it gets round", is_so).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_revoked_at_one_broker_ends_the_session_at_the_other() {
    let (a, b) = two().await;
    let gone = client(&b, "acme-token").await;
    let mut other = client(&b, "beta-token").await;
    let hash = TokenHash::of("acme-token").to_string();
    order(&a, json!({ "command": "revoke_token", "token_hash": hash })).await;
    timeout(PATIENCE, gone.ended()).await.expect("it ends");
    other.sync().await;
    until_shown(&b, "acme-token", json!(401)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn realms_and_tokens_made_at_one_broker_are_known_to_the_other() {
    let (a, b) = two().await;
    order(&a, json!({ "command": "add_realm", "realm": "new" })).await;
    let add =
        json!({ "command": "add_token", "realm": "new", "token": "a token of the new realm" });
    order(&b, add).await;
    until_shown(&a, "a token of the new realm", json!("new")).await;
    let inside = client(&b, "a token of the new realm").await;
    order(&a, json!({ "command": "remove_realm", "realm": "new" })).await;
    timeout(PATIENCE, inside.ended()).await.expect("it ends");
    until_shown(&b, "a token of the new realm", json!(401)).await;
    // The realm is closed first and gone a moment later.
    let tell_the_same = async || {
        let get = json!({ "command": "get" });
        let both = [order(&a, get.clone()).await, order(&b, get).await];
        ["realms", "tokens"]
            .iter()
            .all(|name| both[0]["settings"][name] == both[1]["settings"][name])
    };
    until("both tell the same", tell_the_same).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_at_both_brokers_at_once_all_hold() {
    let (a, b) = two().await;
    let add = async |at: &Server, name: &str| {
        for n in 0..10 {
            order(
                at,
                json!({ "command": "add_realm", "realm": format!("{name}{n}") }),
            )
            .await;
        }
    };
    tokio::join!(add(&a, "a"), add(&b, "b"));
    let are_known = async || {
        let view = order(&a, json!({ "command": "get" })).await;
        view["settings"]["realms"].as_object().unwrap().len() == 23
    };
    until("all are known", are_known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_counts_once_at_both_together() {
    let (a, b) = two().await;
    let order = payload(Action::Command, &json!({ "command": "get" }));
    let mut first = Client::connect(a.local_addr(), "x").await;
    assert_eq!(first.call(COMMAND, &order).await["ok"], true);
    let mut second = Client::connect(b.local_addr(), "x").await;
    assert_refused(&second.call(COMMAND, &order).await, 401, "proof_rejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_at_one_broker_is_decided_at_the_other_and_told_where_it_came_from() {
    let (a, b) = two().await;
    for is_minted in [false, true] {
        let mut asking = Client::connect(a.local_addr(), "x").await;
        let mut wish = json!({ "realm": "acme", "client_id": "x", "client_name": "x" });
        let token = format!("a token of a requester, {}", "x".repeat(20));
        if !is_minted {
            wish["client_token"] = json!(token);
        }
        let id = asking.call("AUTHORIZATION_REQUEST", &wish).await["request_id"].clone();
        let is_seen =
            async || ask(&b, Action::Next, json!({})).await["request"]["request_id"] == id;
        until("the other sees it", is_seen).await;
        let decision = json!({ "request_id": id, "approved": true });
        let decided = ask(&b, Action::Decide, decision.clone()).await;
        assert_eq!(decided["ok"], true, "{decided}");
        let told = timeout(PATIENCE, asking.event("AUTHORIZATION_APPROVED")).await;
        let told = told.expect("in time").expect("a decision");
        assert_eq!(told["request_id"], id);
        let token = match is_minted {
            true => told["client_token"]
                .as_str()
                .expect("the minted token")
                .to_owned(),
            false => token,
        };
        until_shown(&a, &token, json!("acme")).await;
        let again = ask(&a, Action::Decide, decision).await;
        assert_refused(&again, 404, "request_unknown");
    }
}

/// A client that is let in and registered; nobody is let in while a realm is renamed.
async fn registered(at: &Server, token: &str, verb: &str, name: &str) -> Client {
    let mut there = None;
    let is_in = async || {
        let mut client = Client::connect(at.local_addr(), name).await;
        let answer = client
            .call("AUTHENTICATION", &json!({ "token": token }))
            .await;
        if answer["ok"] != true {
            assert_eq!(answer["code"], 409, "{answer}");
            return false;
        }
        let answer = client.call(verb, &json!({ "name": name })).await;
        assert_eq!(answer["ok"], true, "{answer}");
        there = Some(client);
        true
    };
    until("it is let in", is_in).await;
    there.expect("a client")
}

async fn queued(at: &Server, token: &str, message: Value) -> Value {
    let mut client = registered(at, token, "PRODUCER", "p").await;
    let answer = client.produce("e", message, json!({})).await;
    client.leave().await;
    answer["queued"].clone()
}

async fn add(at: &Server, realm: &str, token: &str) {
    order(at, json!({ "command": "add_realm", "realm": realm })).await;
    order(
        at,
        json!({ "command": "add_token", "realm": realm, "token": token }),
    )
    .await;
}

const OLD: &str = "a token of the realm with the old name";
const NEW: &str = "a token of a new realm of the old name";

async fn follows_a_rename_at_the_other_broker(is_there: bool) {
    let (a, b) = two().await;
    add(&a, "old", OLD).await;
    until_shown(&b, OLD, json!("old")).await;
    let consumer = async |at, token| registered(at, token, "CONSUMER", "c").await;
    let mut inside = consumer(&b, OLD).await;
    inside.subscribe(super::durable("e")).await;
    let inside = match is_there {
        true => Some(inside),
        false => {
            inside.leave().await;
            None
        }
    };
    assert_eq!(queued(&a, OLD, json!(0)).await, 1);
    let rename = json!({ "command": "rename_realm", "from": "old", "to": "new" });
    order(&a, rename).await;
    if let Some(inside) = inside {
        timeout(PATIENCE, inside.ended()).await.expect("it ends");
    }
    for (n, at) in [&b, &a, &b, &a].into_iter().enumerate() {
        assert_eq!(queued(at, OLD, json!(n + 1)).await, 1, "{n}");
    }
    // Another realm may have the old name, at both: nothing of it gets into the renamed one.
    add(&a, "old", NEW).await;
    until_shown(&b, NEW, json!("old")).await;
    for at in [&b, &a] {
        assert_eq!(queued(at, NEW, json!("of the new one")).await, 0);
    }
    let mut other = consumer(&b, NEW).await;
    other.subscribe(super::durable("e")).await;
    assert_eq!(queued(&a, NEW, json!("own")).await, 1);
    assert_eq!(other.messages(1).await, [json!("own")]);
    let mut back = consumer(&b, OLD).await;
    back.subscribe(super::durable("e")).await;
    let (mut all, mut first) = (Vec::new(), Vec::new());
    while all.len() < 5 {
        let delivery = back.delivery().await;
        back.ack(&delivery).await;
        let message = delivery["message"].as_u64().unwrap();
        all.push(message);
        if delivery["delivery_attempt"] == 1 {
            first.push(message);
        }
    }
    // What was under way at the rename may come again behind others.
    assert!(first.is_sorted(), "{first:?}");
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    assert_eq!(back.rest().await, 0);
    back.leave().await;
    let mut back = consumer(&a, OLD).await;
    back.subscribe(super::durable("e")).await;
    assert_eq!(back.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_realm_that_is_renamed_at_one_broker_keeps_what_waits_for_the_other_s_consumers() {
    follows_a_rename_at_the_other_broker(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_realm_that_is_renamed_at_one_broker_while_the_other_serves_it_keeps_what_waits() {
    follows_a_rename_at_the_other_broker(true).await;
}
