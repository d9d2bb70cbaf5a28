//! Realms end, by order and by themselves, and get other names (scenarios 32–34).

use std::time::Duration;

use serde_json::{Value, json};

use super::{ACME_KEY, Managed, assert_refused, bury, durable, shown};
use crate::harness::{Client, House, On, on_each_store};

async fn realms_in_stats(managed: &Managed) -> Vec<String> {
    let stats = managed.order(json!({ "command": "stats" })).await;
    let realms = stats["stats"]["realms"].as_object().unwrap();
    realms.keys().cloned().collect()
}

/// What is stored of `acme`.
async fn stored(managed: &Managed) -> u64 {
    let realm = restante::model::RealmId::parse("acme").unwrap();
    let store = managed.house.server.broker().store();
    let queues = store.queues().await.unwrap();
    let queues = queues.iter().filter(|record| record.spec.realm == realm);
    let depth = store.realm_depth(&realm).await.unwrap();
    depth.count + queues.count() as u64
}

/// A JWT of role `both` in a realm, without an end.
fn jwt(realm: &str, secret: &str) -> String {
    use base64::Engine as _;
    use hmac::{KeyInit as _, Mac as _};
    let text = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let claims = json!({ "realm": realm, "role": "both" }).to_string();
    let head = text(br#"{"alg":"HS256"}"#);
    let signed = format!("{head}.{}", text(claims.as_bytes()));
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    format!("{signed}.{}", text(&mac.finalize().into_bytes()))
}

#[tokio::test]
async fn a_removed_or_renamed_realm_is_gone_for_jwts_that_name_it_until_it_is_made_anew() {
    let secret = "signs JWTs of every realm";
    let managed = Managed::with(On::Memory, |settings| {
        settings["jwt_secret"] = json!(secret);
    })
    .await;
    let mut client = managed.client(&jwt("acme", secret), "c").await;
    let renamed = managed.client(&jwt("beta", secret), "c").await;
    let implied = managed
        .client(&jwt("nowhere configured", secret), "c")
        .await;
    let order = json!({ "command": "remove_realm", "realm": "acme" });
    assert_eq!(managed.order(order).await["disconnected_sockets"], 1);
    let told = client.event("AUTH_FAIL").await.expect("why it ends");
    assert_eq!(told["code"], 401, "{told}");
    client.ended().await;
    let order = json!({ "command": "rename_realm", "from": "beta", "to": "gamma" });
    let answer = managed.ticking(managed.order(order)).await;
    assert_eq!(answer["ok"], true, "{answer}");
    for realm in ["acme", "beta"] {
        let mut again = managed.stranger().await;
        assert_eq!(shown(&mut again, &jwt(realm, secret)).await, 401, "{realm}");
    }
    let realms = realms_in_stats(&managed).await;
    assert!(
        !realms
            .iter()
            .any(|realm| realm == "acme" || realm == "beta")
    );
    let add = json!({ "command": "add_realm", "realm": "acme" });
    assert_eq!(managed.order(add).await["ok"], true);
    let mut again = managed.stranger().await;
    assert_eq!(shown(&mut again, &jwt("acme", secret)).await, "acme");
    renamed.ended().await;
    implied.leave().await;
    managed.house.close().await;
}

/// A client of `acme` with a message waiting in `e` and a dead letter of `d`.
async fn filled(managed: &Managed) -> Client {
    let mut client = managed.client("acme-token", "c").await;
    managed.ticking(bury(&mut client, "d", json!("dead"))).await;
    client.subscribe(durable("e")).await;
    let answer = client.produce("e", json!("waits"), json!({})).await;
    assert_eq!(answer["queued"], 1, "{answer}");
    client
}

async fn leaves_nothing_behind_when_it_is_removed(on: On) {
    let managed = Managed::start(on).await;
    let client = filled(&managed).await;
    let mut other = managed.client("beta-token", "c").await;
    let ask = json!({ "realm": "acme", "client_id": "x", "client_name": "x" });
    managed
        .stranger()
        .await
        .call("AUTHORIZATION_REQUEST", &ask)
        .await;
    let order = json!({ "command": "remove_realm", "realm": "acme" });
    let answer = managed.order(order.clone()).await;
    let counts = (&answer["removed_tokens"], &answer["disconnected_sockets"]);
    assert_eq!(counts, (&json!(1), &json!(1)), "{answer}");
    client.ended().await;
    other.sync().await;
    assert_eq!(
        shown(&mut managed.stranger().await, "acme-token").await,
        401
    );
    let letters = managed.order(json!({ "command": "dlq_list" })).await;
    assert_eq!(letters["entries"], json!([]));
    let requests = managed
        .order(json!({ "command": "authorization_list" }))
        .await;
    assert_eq!(requests["requests"], json!([]));
    assert!(!realms_in_stats(&managed).await.contains(&"acme".to_owned()));
    assert_eq!(stored(&managed).await, 0);
    assert_refused(&managed.order(order).await, 404, "realm_unknown");
    // One of the same name is another realm.
    let add = json!({ "command": "add_realm", "realm": "acme" });
    assert_eq!(managed.order(add).await["ok"], true);
    let token = json!({ "command": "add_token", "realm": "acme", "client_id": "acme-client" });
    let token = managed.order(token).await["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut again = managed.client(&token, "c").await;
    again.subscribe(durable("e")).await;
    assert_eq!(again.rest().await, 0);
    managed.house.close().await;
}

async fn carries_what_waits_to_its_new_name(on: On) {
    let managed = Managed::start(on).await;
    let client = filled(&managed).await;
    let mut asking = managed.stranger().await;
    let ask = json!({ "realm": "acme", "client_id": "x", "client_name": "x" });
    let id = asking.call("AUTHORIZATION_REQUEST", &ask).await["request_id"].clone();
    let order = json!({ "command": "rename_realm", "from": "acme", "to": "acme:new" });
    let answer = managed.ticking(managed.order(order)).await;
    assert_eq!(
        (&answer["ok"], &answer["disconnected_sockets"]),
        (&json!(true), &json!(1)),
        "{answer}"
    );
    client.ended().await;
    let letters = managed
        .order(json!({ "command": "dlq_list", "realm": "acme:new" }))
        .await;
    assert_eq!(
        letters["entries"][0]["message"]["message"], "dead",
        "{letters}"
    );
    let mut again = managed.stranger().await;
    assert_eq!(shown(&mut again, "acme-token").await, "acme:new");
    again.name = "c".to_owned();
    again
        .call("CONSUMER", &json!({ "name": "c", "id": "c" }))
        .await;
    again.subscribe(durable("e")).await;
    let waiting = managed.ticking(again.messages(1)).await;
    assert_eq!(waiting, [json!("waits")]);
    assert!(!realms_in_stats(&managed).await.contains(&"acme".to_owned()));
    // Its manager goes on, with the requests that wait there.
    let list = json!({ "command": "authorization_list", "realm": "acme:new" });
    let listed = managed.order_by(ACME_KEY, list).await;
    assert_eq!(listed["requests"][0]["request_id"], id, "{listed}");
    let action = restante::auth::Action::Decide;
    let decide = json!({ "request_id": id, "approved": true });
    let decided = managed.ask(action, ACME_KEY, decide).await;
    assert_eq!(decided["ok"], true, "{decided}");
    let told = asking
        .event("AUTHORIZATION_APPROVED")
        .await
        .expect("a decision");
    assert_eq!(told["realm"], "acme:new");
    managed.house.close().await;
}

on_each_store!(
    leaves_nothing_behind_when_it_is_removed,
    carries_what_waits_to_its_new_name,
);

#[tokio::test]
async fn nobody_is_let_in_nor_heard_once_a_realm_has_ended_and_soon_nothing_is_left() {
    let managed = Managed::start(On::Memory).await;
    let add = json!({ "command": "set_realm_lifetime", "realm": "acme", "ttl": 60 });
    let answer = managed.order(add).await;
    let end = answer.pointer("/settings/realms/acme/expires_at");
    let end = end.and_then(Value::as_u64).expect("an end");
    assert_eq!(end, managed.now().0 + 60_000, "{answer}");
    let mut monitor = managed.client(super::ADMIN, "monitor").await;
    let all = json!({ "event": "late", "producer": "TYO-MQ-ALL" });
    monitor.subscribe(all).await;
    let mut client = filled(&managed).await;
    let left = end - managed.now().0;
    let clock = &managed.house.clock;
    clock.advance(Duration::from_millis(left - 1));
    assert_eq!(
        shown(&mut managed.stranger().await, "acme-token").await,
        "acme"
    );
    client.send("late", json!("heard"), json!({})).await;
    assert_eq!(monitor.messages(1).await, [json!("heard")]);
    clock.advance(Duration::from_millis(1));
    assert_eq!(
        shown(&mut managed.stranger().await, "acme-token").await,
        401
    );
    client.send("late", json!("not heard"), json!({})).await;
    // All of it within two seconds.
    clock.advance(Duration::from_secs(2));
    client.ended().await;
    assert_eq!(monitor.rest().await, 0);
    let broker = managed.house.server.broker().clone();
    let is_gone = |house: &House| {
        let stats = broker.stats();
        let is_live = stats.iter().any(|(realm, _)| realm.as_str() == "acme");
        !is_live && house.server.auth().view()["realms"]["acme"].is_null()
    };
    managed.house.until("it is disposed of", is_gone).await;
    assert_eq!(stored(&managed).await, 0);
    let view = managed.order(json!({ "command": "get" })).await;
    assert!(!view["settings"]["tokens"].to_string().contains("acme"));
    managed.house.close().await;
}

#[tokio::test]
async fn a_name_can_be_used_again_once_its_realm_is_disposed_of() {
    let managed = Managed::start(On::Memory).await;
    let add = json!({ "command": "add_realm", "realm": "brief", "ttl": 5 });
    assert_eq!(managed.order(add.clone()).await["ok"], true);
    managed.house.clock.advance(Duration::from_secs(5));
    let again = async {
        while managed.order(add.clone()).await["ok"] != true {
            managed.house.clock.advance(Duration::from_millis(500));
        }
    };
    let patience = crate::transport::harness::PATIENCE;
    tokio::time::timeout(patience, again)
        .await
        .expect("the name is free again");
    managed.house.close().await;
}

#[tokio::test]
async fn a_rename_that_is_refused_leaves_the_sessions_of_both_realms() {
    let token = json!({ "token": "ghost-token", "realm": "ghost", "client_id": "g" });
    let with_ghost = |settings: &mut Value| settings["tokens"].as_array_mut().unwrap().push(token);
    let managed = Managed::with(On::Memory, with_ghost).await;
    let mut inside = managed.client("acme-token", "c").await;
    let mut ghost = managed.client("ghost-token", "c").await;
    ghost.subscribe(durable("e")).await;
    let order = json!({ "command": "rename_realm", "from": "acme", "to": "ghost" });
    assert_refused(&managed.order(order).await, 400, "bad_name");
    inside.sync().await;
    ghost.sync().await;
    let mut again = managed.stranger().await;
    assert_eq!(shown(&mut again, "acme-token").await, "acme");
    managed.house.close().await;
}
