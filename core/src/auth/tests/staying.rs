//! Who stays, and what may still go out (admin.md §12, scenarios 13, 33, 35; F08; P30).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::jwt::tests::hs256;
use super::super::testing::{Shelf, attempt, enter, open, settings};
use super::super::*;
use crate::ErrorKind;
use crate::clock::TestClock;

struct Room {
    auth: Arc<Auth>,
    clock: Arc<TestClock>,
}

async fn room(value: Value) -> Room {
    let clock = TestClock::new();
    let auth = open(&Shelf::new(), &clock, value).await;
    Room { auth, clock }
}

impl Room {
    async fn enter(&self, value: Value) -> Arc<Principal> {
        enter(&self.auth, &attempt(&value)).await.unwrap()
    }

    fn stays(&self, principal: &Principal) -> bool {
        match self.auth.check(principal) {
            Ok(()) => true,
            Err(denied) => {
                assert!(denied.closes && denied.error.kind() == ErrorKind::Unauthenticated);
                false
            }
        }
    }
}

fn realm(name: &str) -> RealmId {
    RealmId::parse(name).unwrap()
}

#[tokio::test]
async fn sessions_end_when_what_let_them_in_does_and_not_before() {
    let room = room(
        json!({"enabled": true, "jwt_secret": "g", "keyless_consumers": "allow",
        "tokens": [{"token": "t", "realm": "acme"}, {"token": "other", "realm": "acme"}],
        "realms": {"acme": {"manager_key": "m", "key": "k"}, "open": {"required": false}}}),
    )
    .await;
    let auth = &room.auth;
    let token = room.enter(json!({"token": "t"})).await;
    let other = room.enter(json!({"token": "other"})).await;
    let key = room
        .enter(json!({"realm": "acme", "role": "consumer", "key": "k"}))
        .await;
    let own = room
        .enter(json!({"token": hs256(&json!({"realm": "acme", "role": "both"}), "m")}))
        .await;
    let global = room
        .enter(json!({"token": hs256(&json!({"realm": "acme", "role": "both"}), "g")}))
        .await;
    let open = room.enter(json!({"realm": "open"})).await;
    let keyless = auth.admit(Need::Consume).unwrap();
    let all = [&token, &other, &key, &own, &global, &open, &keyless];
    assert!(all.iter().all(|one| room.stays(one)));
    let mut changes = auth.changes();
    changes.mark_unchanged();

    let revoked = auth
        .revoke_token(TokenChoice::Hash(TokenHash::of("t")), false)
        .await
        .unwrap();
    assert_eq!(revoked.len(), 1);
    assert!(changes.has_changed().unwrap());
    assert!(!room.stays(&token) && room.stays(&other));

    auth.set_realm_key(
        realm("acme"),
        Some(Secret::parse("another key").unwrap()),
        None,
    )
    .await
    .unwrap();
    assert!(!room.stays(&key) && room.stays(&own));

    auth.set_realm_manager_key(realm("acme"), None)
        .await
        .unwrap();
    assert!(!room.stays(&own) && room.stays(&global));

    auth.set_realm_auth(realm("open"), true, false)
        .await
        .unwrap();
    assert!(!room.stays(&open));

    auth.set_realm_key(
        RealmId::default(),
        Some(Secret::parse("key of default").unwrap()),
        None,
    )
    .await
    .unwrap();
    assert!(!room.stays(&keyless));

    auth.close_realm(realm("acme")).await.unwrap();
    assert!(!room.stays(&global) && !room.stays(&other));
}

#[tokio::test]
async fn whoever_came_in_while_nobody_was_asked_stays_only_where_nobody_is_asked() {
    let room = room(json!({"realms": {"default": {"required": false}}})).await;
    let everybody = room.enter(json!({})).await;
    room.auth.set_global_auth(true).await.unwrap();
    assert!(room.auth.is_enabled() && room.stays(&everybody));
    room.auth
        .set_realm_auth(RealmId::default(), true, false)
        .await
        .unwrap();
    assert!(!room.stays(&everybody));
    room.auth.set_global_auth(false).await.unwrap();
    assert!(room.stays(&everybody));
}

#[tokio::test]
async fn a_session_ends_with_its_jwt_unless_that_is_waived() {
    for (enforce, stays) in [(true, false), (false, true)] {
        let room =
            room(json!({"enabled": true, "jwt_secret": "g", "enforce_expiry": enforce})).await;
        let token = hs256(
            &json!({"realm": "a", "role": "both", "exp": 1_767_225_605}),
            "g",
        );
        let principal = room.enter(json!({"token": token})).await;
        room.clock.advance(Duration::from_millis(4999));
        assert!(room.stays(&principal));
        room.clock.advance(Duration::from_millis(1));
        assert_eq!(room.stays(&principal), stays);
    }
}

#[tokio::test]
async fn another_global_secret_or_administrators_secret_ends_the_sessions_of_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    append_env_file(&path, ADMIN_TOKEN, "old-secret").unwrap();
    let file =
        |secret: &str| json!({"enabled": true, "jwt_secret": secret, "env_file": path.to_str()});
    let room = room(file("g")).await;
    let jwt = room
        .enter(json!({"token": hs256(&json!({"realm": "a", "role": "both"}), "g")}))
        .await;
    let admin = room.enter(json!({"token": "old-secret"})).await;
    room.auth.reload(settings(&file("g"))).await.unwrap();
    assert!(room.stays(&jwt) && room.stays(&admin));
    append_env_file(&path, ADMIN_TOKEN, "new-secret").unwrap();
    room.auth.reload(settings(&file("g2"))).await.unwrap();
    assert!(!room.stays(&jwt) && !room.stays(&admin));
    assert!(
        enter(&room.auth, &attempt(&json!({"token": "old-secret"})))
            .await
            .is_err()
    );
    assert!(
        enter(&room.auth, &attempt(&json!({"token": "new-secret"})))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_token_that_the_file_narrows_ends_its_sessions() {
    let file = |role: &str| json!({"enabled": true, "tokens": [{"token": "t", "role": role}]});
    let room = room(file("both")).await;
    let principal = room.enter(json!({"token": "t"})).await;
    room.auth.reload(settings(&file("consumer"))).await.unwrap();
    assert!(!room.stays(&principal));
    assert_eq!(room.enter(json!({"token": "t"})).await.role, Role::Consumer);
}

#[tokio::test]
async fn an_ephemeral_realm_is_gone_at_its_end_at_once() {
    let room = room(
        json!({"enabled": true, "tokens": [{"token": "t", "realm": "acme"}],
        "realms": {"acme": {"ttl": "10s", "manager_key": "m"}}}),
    )
    .await;
    let principal = room.enter(json!({"token": "t"})).await;
    room.clock.advance(Duration::from_millis(9999));
    assert!(room.stays(&principal) && room.auth.ended_realms().is_empty());
    room.clock.advance(Duration::from_millis(1));
    assert!(!room.stays(&principal));
    assert_eq!(room.auth.ended_realms(), [realm("acme")]);
    let jwt = hs256(&json!({"realm": "acme", "role": "both"}), "m");
    for sent in [
        json!({"token": "t"}),
        json!({"token": jwt}),
        json!({"realm": "acme", "role": "consumer"}),
    ] {
        assert!(enter(&room.auth, &attempt(&sent)).await.is_err(), "{sent}");
    }
    assert_eq!(room.auth.manager_key(&realm("acme")), None);
    assert!(
        !room
            .auth
            .may_still_publish(&realm("acme"), Some("realm:acme"), "x")
    );
}

#[tokio::test]
async fn whoever_waits_is_told_of_realms_that_end() {
    let room = room(json!({"enabled": true, "realms": {"a": {"ttl": "90s"}}})).await;
    let auth = room.auth.clone();
    let waiting = tokio::spawn(async move { auth.next_ended().await });
    // The waiter sleeps by the clock: it is moved on until the waiter has seen it.
    while !waiting.is_finished() {
        room.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.unwrap(), [realm("a")]);
    let removed = room.auth.remove_realm(realm("a")).await;
    assert_eq!(removed, Ok(Vec::new()));
    assert!(room.auth.ended_realms().is_empty());
}

#[tokio::test]
async fn what_was_published_earlier_goes_out_only_while_its_owner_may_still_publish_it() {
    let room = room(json!({"enabled": true,
        "tokens": [
            {"token": "t", "realm": "acme", "client_id": "c", "allow": {"produce": ["a/#"]}},
            {"token": "u", "realm": "acme", "role": "consumer", "client_id": "d"},
            {"token": "v", "realm": "acme"}],
        "realms": {"acme": {"manager_key": "m"}, "open": {"required": false},
            "waived": {"require_acceptance": false}}}))
    .await;
    let auth = &room.auth;
    let hash = format!("token:{}", TokenHash::of("v"));
    for (name, owner, event, wanted) in [
        ("acme", Some("client:c"), "a/b", true),
        ("acme", Some("client:c"), "b", false),
        ("acme", Some("client:d"), "a/b", false),
        ("acme", Some("client:x"), "a/b", false),
        ("other", Some("client:c"), "a/b", false),
        ("acme", Some(&*hash), "b", true),
        ("other", Some(&*hash), "b", false),
        ("acme", Some("token:zz"), "b", false),
        ("acme", Some("sub:s"), "b", true),
        ("other", Some("sub:s"), "b", false),
        ("acme", Some("nonsense"), "b", false),
        ("acme", None, "b", false),
        ("open", None, "b", true),
        ("waived", None, "b", true),
    ] {
        let may = auth.may_still_publish(&realm(name), owner, event);
        assert_eq!(may, wanted, "{name} {owner:?} {event}");
    }
    auth.revoke_token(
        TokenChoice::Client {
            realm: realm("acme"),
            client_id: "c".into(),
        },
        false,
    )
    .await
    .unwrap();
    assert!(!auth.may_still_publish(&realm("acme"), Some("client:c"), "a/b"));
    auth.set_realm_manager_key(realm("acme"), None)
        .await
        .unwrap();
    assert!(!auth.may_still_publish(&realm("acme"), Some("sub:s"), "b"));
}
