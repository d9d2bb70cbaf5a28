//! Sessions end with what let them in, and with their realm (scenarios 13, 32–35; F08).

use std::time::Duration;

use restante::auth::{NewToken, Role, Secret, TokenChoice, TokenHash, TokenText};
use restante::model::RealmId;
use serde_json::{Value, json};

use super::{Guarded, shown};
use crate::harness::{Client, ticking};

fn realm(name: &str) -> RealmId {
    RealmId::parse(name).unwrap()
}

/// Waits until the server ends the session; what it was told.
async fn told(mut client: Client) -> Value {
    let told = client.event("AUTH_FAIL").await;
    client.ended().await;
    told.expect("AUTH_FAIL before the end")
}

#[tokio::test]
async fn a_revoked_token_ends_its_sessions_and_no_others() {
    let guarded = Guarded::start().await;
    let revoked = guarded.client("closed-both").await;
    let mut other = guarded.client("closed-consumer").await;
    let hash = TokenHash::of("closed-both");
    let choice = TokenChoice::Hash(hash);
    guarded.auth.revoke_token(choice, false).await.unwrap();
    assert_eq!(told(revoked).await["code"], 401);
    other.sync().await;
    assert_eq!(guarded.house.server.broker().sessions_of(None).len(), 1);
    guarded.house.close().await;
}

#[tokio::test]
async fn what_was_sent_behind_a_revocation_reaches_nobody() {
    let guarded = Guarded::start().await;
    let mut consumer = guarded.named("closed-consumer", "c").await;
    consumer
        .subscribe(json!({ "event": "e", "producer": "TYO-MQ-ALL" }))
        .await;
    let mut revoked = guarded.client("closed-both").await;
    let hash = TokenHash::of("closed-both");
    let choice = TokenChoice::Hash(hash);
    guarded.auth.revoke_token(choice, false).await.unwrap();
    guarded
        .house
        .until("the session has ended", |house| {
            house.server.broker().sessions_of(None).len() == 1
        })
        .await;
    revoked.send("e", json!(1), json!({})).await;
    told(revoked).await;
    assert_eq!(consumer.rest().await, 0);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_changed_realm_key_ends_who_came_in_by_the_old_one() {
    let guarded = Guarded::start().await;
    let mut client = guarded.stranger().await;
    let key = json!({ "realm": "keyed", "role": "consumer", "key": "the key of the realm" });
    assert_eq!(shown(&mut client, &key).await, json!(["keyed", "consumer"]));
    let mut by_token = guarded.client("keyed-both").await;
    let new = Secret::parse("another key of the realm").unwrap();
    let changed = guarded
        .auth
        .set_realm_key(realm("keyed"), Some(new), None)
        .await;
    changed.unwrap();
    assert_eq!(told(client).await["code"], 401);
    by_token.sync().await;
    guarded.house.close().await;
}

#[tokio::test]
async fn sessions_of_a_time_without_authentication_end_when_it_begins() {
    let guarded = Guarded::with(|settings| settings["enabled"] = json!(false)).await;
    let mut client = guarded.stranger().await;
    assert_eq!(
        shown(&mut client, &json!({})).await,
        json!(["default", "both"])
    );
    client.call("PRODUCER", &json!({ "name": "p" })).await;
    assert_eq!(
        client.produce("e", json!(1), json!({ "from": "p" })).await["ok"],
        true
    );
    guarded.auth.set_global_auth(true).await.unwrap();
    assert_eq!(told(client).await["code"], 401);
    let mut next = guarded.stranger().await;
    assert_eq!(shown(&mut next, &json!({})).await, 401);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_session_ends_with_its_jwt() {
    let guarded = Guarded::with(|settings| {
        settings["jwt_secret"] = json!("a secret that signs json web tokens");
    })
    .await;
    use restante::clock::Clock;
    let now = guarded.house.clock.now().0 / 1000;
    let mut sessions = Vec::new();
    for (name, life) in [("short", 30), ("long", 3_600)] {
        let claims = json!({ "realm": "closed", "role": "both", "sub": name, "exp": now + life });
        let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
        let key = jsonwebtoken::EncodingKey::from_secret(b"a secret that signs json web tokens");
        let key = key.unwrap();
        let token = jsonwebtoken::encode(&header, &claims, &key).unwrap();
        let mut client = guarded.stranger().await;
        let said = shown(&mut client, &json!({ "token": token })).await;
        assert_eq!(said, json!(["closed", "both"]), "{name}");
        sessions.push(client);
    }
    let mut long = sessions.pop().unwrap();
    let mut short = sessions.pop().unwrap();
    short.sync().await;
    guarded.house.clock.advance(Duration::from_secs(31));
    assert_eq!(told(short).await["code"], 401);
    long.sync().await;
    guarded.house.close().await;
}

#[tokio::test]
async fn a_removed_realm_takes_its_sessions_with_it() {
    let guarded = Guarded::start().await;
    let mut client = guarded.named("closed-both", "c").await;
    client
        .subscribe(json!({ "event": "e", "producer": "c", "durable": true, "ack": true }))
        .await;
    client.produce("e", json!(1), json!({})).await;
    let mut other = guarded.named("other-both", "c").await;
    guarded.auth.remove_realm(realm("closed")).await.unwrap();
    let broker = guarded.house.server.broker();
    let removed = broker.remove_realm(&realm("closed")).await.unwrap();
    assert_eq!(removed.messages, 1);
    client.ended().await;
    other.sync().await;
    let names = broker.stats().into_iter().map(|(name, _)| name);
    let names: Vec<String> = names.map(|name| name.as_str().to_owned()).collect();
    assert!(!names.contains(&"closed".to_owned()), "{names:?}");
    let mut again = guarded.stranger().await;
    assert_eq!(
        shown(&mut again, &json!({ "token": "closed-both" })).await,
        401
    );
    guarded.house.close().await;
}

#[tokio::test]
async fn a_renamed_realm_is_entered_anew_and_has_what_waited() {
    let guarded = Guarded::start().await;
    let mut client = guarded.named("closed-both", "c").await;
    let wish = json!({ "event": "e", "producer": "c", "durable": true, "ack": true });
    client.subscribe(wish.clone()).await;
    client.produce("e", json!(1), json!({})).await;
    let (from, to) = (realm("closed"), realm("renamed"));
    guarded
        .auth
        .rename_realm(from.clone(), to.clone())
        .await
        .unwrap();
    let broker = guarded.house.server.broker().clone();
    let renaming = tokio::spawn(broker.rename_realm(&from, &to));
    let renamed = ticking(&guarded.house.clock, Duration::from_millis(50), renaming);
    renamed.await.unwrap().unwrap();
    client.ended().await;
    let mut again = guarded.stranger().await;
    let said = shown(&mut again, &json!({ "token": "closed-both" })).await;
    assert_eq!(said, json!(["renamed", "both"]));
    again.name = "c".to_owned();
    again.call("CONSUMER", &json!({ "name": "c" })).await;
    again.subscribe(wish).await;
    assert_eq!(again.messages(1).await, [json!(1)]);
    guarded.house.close().await;
}

#[tokio::test]
async fn an_operator_sees_the_sessions_and_ends_one() {
    let guarded = Guarded::start().await;
    let client = guarded.named("narrow", "n").await;
    let mut other = guarded.named("closed-consumer", "c").await;
    let broker = guarded.house.server.broker();
    let listed = broker.sessions_of(Some(&realm("closed")));
    assert_eq!(listed.len(), 2);
    let own = listed
        .iter()
        .find(|session| *session.socket_id == *client.socket_id)
        .unwrap();
    assert_eq!(
        (own.role, own.owner.as_deref()),
        ("both", Some("client:narrow"))
    );
    assert_eq!(own.consumers[0].as_str(), "n");
    assert!(own.remote.unwrap().ip().is_loopback());
    let why = restante::Error::new(restante::ErrorKind::Forbidden, "an operator said so");
    assert!(broker.disconnect(&client.socket_id, Some(&why)));
    assert_eq!(told(client).await["code"], 403);
    other.sync().await;
    guarded.house.close().await;
}

#[tokio::test]
async fn a_rotated_token_keeps_what_its_client_owns() {
    let guarded = Guarded::start().await;
    let mut client = guarded.named("narrow", "n").await;
    let wish = json!({ "event": "a/1", "producer": "p", "durable": true, "consumer": "n" });
    assert_eq!(client.call("SUBSCRIBE", &wish).await["ok"], true);
    client.leave().await;
    let new = NewToken {
        text: TokenText::Given(Secret::parse("the token that comes next, long enough").unwrap()),
        realm: realm("closed"),
        role: Role::Both,
        client_id: Some("narrow".into()),
        client_name: None,
        approved_at: None,
        allow: restante::auth::Allow::default(),
    };
    guarded.auth.add_token(new).await.unwrap();
    let mut next = guarded
        .named("the token that comes next, long enough", "n")
        .await;
    assert_eq!(next.call("SUBSCRIBE", &wish).await["ok"], true);
    guarded.house.close().await;
}
