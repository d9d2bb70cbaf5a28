//! Who gets in (admin.md §12, scenarios 1–12, 15, 17).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::jwt::tests::{hs256, sign};
use super::super::testing::{Shelf, attempt, code, enter, environment, nothing, open, settings};
use super::super::*;
use crate::ErrorKind;
use crate::clock::TestClock;

async fn room(value: Value) -> Arc<Auth> {
    open(&Shelf::new(), &TestClock::new(), value).await
}

fn realm(name: &str) -> RealmId {
    RealmId::parse(name).unwrap()
}

#[tokio::test]
async fn while_authentication_is_off_everybody_is_in_with_whatever_was_sent() {
    for auth in [
        Auth::off(),
        room(json!({"tokens": [{"token": "t", "realm": "a"}]})).await,
    ] {
        for value in [
            json!({}),
            json!({"token": "rubbish", "realm": "x\n"}),
            json!({"role": "manager"}),
        ] {
            for _ in 0..40 {
                let principal = enter(&auth, &attempt(&value)).await.unwrap();
                assert_eq!(*principal, Principal::everybody());
            }
        }
        assert!(auth.check(&Principal::everybody()).is_ok());
        assert!(auth.may_still_publish(&realm("a"), None, "x"));
    }
}

/// Table 2.7: realm's configuration, then the answer to consumer, producer and both, without a key and with it;
/// where keyless consumers may be everywhere.
const TABLE: &[(&str, [i32; 3], [i32; 3])] = &[
    ("null", [0, 403, 403], [0, 403, 403]),
    (r#"{"required":true}"#, [0, 403, 403], [0, 403, 403]),
    (r#"{"key":"K"}"#, [401, 403, 401], [0, 403, 403]),
    (
        r#"{"key":"K","require_key":false}"#,
        [0, 403, 403],
        [0, 403, 403],
    ),
    (r#"{"require_acceptance":false}"#, [0, 0, 0], [0, 0, 0]),
    (
        r#"{"key":"K","require_acceptance":false}"#,
        [401, 0, 401],
        [0, 0, 0],
    ),
    (r#"{"required":false}"#, [0, 0, 0], [0, 0, 0]),
    // What follows from the rules beside the table.
    (r#"{"require_key":true}"#, [401, 403, 401], [401, 403, 401]),
    (r#"{"required":false,"key":"K"}"#, [0, 0, 0], [0, 0, 0]),
    (
        r#"{"required":true,"require_acceptance":true}"#,
        [0, 403, 403],
        [0, 403, 403],
    ),
];

#[tokio::test]
async fn without_a_token_a_realm_is_entered_as_the_table_says() {
    for (config, without, with) in TABLE {
        let config: Value = serde_json::from_str(config).unwrap();
        for (policy, name) in [
            ("allow", "acme"),
            ("allow", "default"),
            ("default-realm", "acme"),
            ("default-realm", "default"),
            ("deny", "acme"),
            ("deny", "default"),
        ] {
            let mut value = json!({"enabled": true, "keyless_consumers": policy, "realms": {}});
            if !config.is_null() {
                value["realms"][name] = config.clone();
            }
            let auth = room(value).await;
            let is_keyless_in =
                policy == "allow" || (policy == "default-realm" && name == "default");
            let is_open = config["required"] == false;
            for (keys, key) in [(without, None), (with, Some("K"))] {
                for (wanted, role) in keys.iter().zip(["consumer", "producer", "both"]) {
                    let mut sent = json!({"realm": name, "role": role});
                    if let Some(key) = key {
                        sent["key"] = key.into();
                    }
                    // A consumer who shows no right key is keyless.
                    let shows = key.is_some() && config["key"] == "K";
                    let is_keyless = role != "producer" && !shows && !is_open;
                    let wanted = if *wanted == 0 && is_keyless && !is_keyless_in {
                        401
                    } else {
                        *wanted
                    };
                    assert_eq!(code(&auth, &sent).await, wanted, "{config} {policy} {sent}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_a_right_one_makes_the_realm_the_owner() {
    let auth = room(json!({"enabled": true, "realms": {"acme": {"key": "K"}}})).await;
    assert_eq!(
        code(
            &auth,
            &json!({"realm": "acme", "role": "consumer", "key": "k"})
        )
        .await,
        401
    );
    let sent = json!({"realm": "acme", "role": "consumer", "key": "K"});
    let principal = enter(&auth, &attempt(&sent)).await.unwrap();
    assert_eq!(principal.owner.as_deref(), Some("realm:acme"));
    assert_eq!(
        (principal.role, principal.realm.as_str()),
        (Role::Consumer, "acme")
    );
}

#[tokio::test]
async fn what_is_sent_without_a_token_is_answered_with_these_codes() {
    let auth =
        room(json!({"enabled": true, "realms": {"open": {"required": false}, "acme": {}}})).await;
    for (sent, wanted) in [
        (json!({}), 401),
        (json!({"token": ""}), 401),
        (json!({"token": "unknown"}), 401),
        (json!({"role": "manager"}), 401),
        (json!({"realm": "open", "role": "manager"}), 401),
        (json!({"realm": "acme"}), 401),
        (json!({"realm": "open"}), 0),
        (json!({"realm": "open", "role": "root"}), 0),
        (json!({"realm": "*", "role": "consumer"}), 403),
        (json!({"realm": "*", "role": "admin", "key": "x"}), 403),
        (json!({"realm": "a\nb", "role": "consumer"}), -1),
        (json!({"realm": "..", "role": "consumer"}), -1),
    ] {
        assert_eq!(code(&auth, &sent).await, wanted, "{sent}");
    }
    let sent = json!({"realm": "open", "role": "consumer"});
    let principal = enter(&auth, &attempt(&sent)).await.unwrap();
    assert_eq!(principal.role, Role::Consumer);
    assert!(!principal.may_produce("x"));
}

/// Role × what a verb needs (§2.6).
#[test]
fn a_role_covers_what_the_matrix_says() {
    use Need::{Any, Consume, Produce};
    for (role, covered) in [
        (Role::Producer, vec![Produce, Any]),
        (Role::Consumer, vec![Consume, Any]),
        (Role::Both, vec![Produce, Consume, Any]),
        (Role::Manager, vec![Produce, Consume, Any]),
        (Role::Admin, vec![Produce, Consume, Any]),
    ] {
        for need in [Produce, Consume, Any] {
            assert_eq!(
                role.covers(need),
                covered.contains(&need),
                "{role:?} {need:?}"
            );
        }
        assert_eq!(Role::parse(role.as_str()), Some(role));
    }
}

#[tokio::test]
async fn a_token_gives_its_own_realm_and_role_and_no_other_realm() {
    let auth = room(json!({"enabled": true, "tokens": [
        {"token": "acme-token", "realm": "acme", "role": "producer", "client_id": "c1",
            "allow": {"produce": ["orders/#"]}, "names": ["shop-*"]},
        {"token": "plain"},
        {"token": "root", "realm": "*", "role": "admin"},
    ]}))
    .await;
    let sent = json!({"token": "acme-token", "role": "consumer", "realm": "acme"});
    let principal = enter(&auth, &attempt(&sent)).await.unwrap();
    assert_eq!(
        (principal.realm.as_str(), principal.role),
        ("acme", Role::Producer)
    );
    assert_eq!(principal.owner.as_deref(), Some("client:c1"));
    assert!(principal.may_produce("Orders/New") && !principal.may_produce("x"));
    assert!(!principal.may_consume("orders/new"));
    assert!(principal.allow.may_take("shop-1") && !principal.allow.may_take("x"));
    assert_eq!(
        code(&auth, &json!({"token": "acme-token", "realm": "other"})).await,
        403
    );
    let plain = enter(&auth, &attempt(&json!({"token": "plain"})))
        .await
        .unwrap();
    assert_eq!((plain.realm.as_str(), plain.role), ("default", Role::Both));
    let owner = format!("token:{}", TokenHash::of("plain"));
    assert_eq!(plain.owner.as_deref(), Some(&*owner));
    let root = enter(&auth, &attempt(&json!({"token": "root", "realm": "acme"})))
        .await
        .unwrap();
    assert_eq!((root.realm.as_str(), root.role), ("*", Role::Admin));
}

#[tokio::test]
async fn the_administrators_secret_lets_into_every_realm_and_is_kept_nowhere() {
    let shelf = Shelf::new();
    let value = settings(&json!({"enabled": true}));
    let open = Auth::open_with(
        shelf.clone(),
        value,
        TestClock::new(),
        environment(Some("s3cret-of-admin")),
    );
    let auth = open.await.unwrap();
    let principal = enter(&auth, &attempt(&json!({"token": "s3cret-of-admin"})))
        .await
        .unwrap();
    assert_eq!(
        (principal.realm.as_str(), principal.role),
        ("*", Role::Admin)
    );
    assert_eq!(principal.owner.as_deref(), Some("realm:*"));
    assert_eq!(auth.admin_secrets().len(), 1);
    assert!(!shelf.texts().contains("s3cret-of-admin"));
    assert!(!format!("{auth:?}{principal:?}{}", auth.view()).contains("s3cret-of-admin"));
}

#[tokio::test]
async fn jwts_are_taken_by_their_realms_key_then_by_the_global_one() {
    let auth = room(json!({"enabled": true, "jwt_secret": "global", "realms": {
        "acme": {"manager_key": "manager"},
        "apart": {"manager_key": "manager", "jwt_key": "jwt"},
    }}))
    .await;
    let now = 1_767_225_600; // the test clock's
    let token =
        |realm: &str, role: &str, key: &str| hs256(&json!({"realm": realm, "role": role}), key);
    let with = |members: Value| {
        let mut claims = json!({"realm": "acme", "role": "both"});
        for (name, value) in members.as_object().unwrap() {
            claims[name] = value.clone();
        }
        hs256(&claims, "manager")
    };
    let claims = r#"{"realm":"acme","role":"both"}"#;
    for (token, wanted) in [
        (token("acme", "producer", "manager"), 0),
        (token("acme", "producer", "global"), 0),
        (token("acme", "producer", "jwt"), 401),
        (token("apart", "both", "jwt"), 0),
        (token("apart", "both", "manager"), 401),
        (token("elsewhere", "consumer", "global"), 0),
        (token("elsewhere", "consumer", "manager"), 401),
        (token("acme", "admin", "global"), 401),
        (token("*", "admin", "global"), 401),
        (token("*", "both", "global"), 401),
        (token("acme", "root", "global"), 401),
        (with(json!({"exp": now + 1})), 0),
        (with(json!({"exp": now})), 401),
        (with(json!({"exp": (now + 1).to_string()})), 401),
        (with(json!({"nbf": now + 30})), 0),
        (with(json!({"nbf": now + 31})), 401),
        (with(json!({"sub": ["x"]})), 401),
        (with(json!({"fill": "x".repeat(9000)})), 401),
        (hs256(&json!({"role": "both"}), "global"), 401),
        (sign(r#"{"alg":"none"}"#, claims, "manager"), 401),
        (sign(r#"{"alg":"hs256"}"#, claims, "manager"), 401),
        (sign(r#"{"alg":"RS256"}"#, claims, "manager"), 401),
    ] {
        assert_eq!(
            code(&auth, &json!({"token": token})).await,
            wanted,
            "{token}"
        );
    }
    let subject = hs256(
        &json!({"realm": "acme", "role": "both", "sub": "u1", "exp": now + 5}),
        "manager",
    );
    let principal = enter(&auth, &attempt(&json!({"token": subject})))
        .await
        .unwrap();
    assert_eq!(principal.owner.as_deref(), Some("sub:u1"));
    assert_eq!(principal.expires.map(|end| end.0), Some((now + 5) * 1000));
    let other = token("acme", "both", "manager");
    assert_eq!(
        code(&auth, &json!({"token": other, "realm": "apart"})).await,
        403
    );
}

#[tokio::test]
async fn a_jwt_lets_an_administrator_in_only_where_that_is_allowed() {
    let auth =
        room(json!({"enabled": true, "jwt_secret": "g", "allow_superadmin_jwt": true})).await;
    for (realm, role, wanted) in [("*", "admin", 0), ("*", "both", 401), ("a", "admin", 401)] {
        let token = hs256(&json!({"realm": realm, "role": role}), "g");
        assert_eq!(
            code(&auth, &json!({"token": token})).await,
            wanted,
            "{realm} {role}"
        );
    }
}

#[tokio::test]
async fn whoever_shows_nothing_is_let_into_default_as_far_as_a_verb_needs() {
    // Realm `default`, policy, then what is answered to produce, consume and any.
    for (config, policy, produce, consume, any) in [
        (json!({}), "default-realm", None, Some(Role::Consumer), None),
        (json!({}), "deny", None, None, None),
        (
            json!({"required": false}),
            "deny",
            Some(Role::Both),
            Some(Role::Both),
            Some(Role::Both),
        ),
        (json!({"key": "k"}), "allow", None, None, None),
        (
            json!({"require_acceptance": false}),
            "deny",
            Some(Role::Producer),
            None,
            None,
        ),
    ] {
        let value =
            json!({"enabled": true, "keyless_consumers": policy, "realms": {"default": config}});
        let auth = room(value).await;
        for (need, wanted) in [
            (Need::Produce, produce),
            (Need::Consume, consume),
            (Need::Any, any),
        ] {
            let admitted = auth.admit(need);
            assert_eq!(
                admitted.as_ref().ok().map(|one| one.role),
                wanted,
                "{config} {policy} {need:?}"
            );
            match admitted {
                Ok(one) => assert!(one.owner.is_none() && one.realm == RealmId::default()),
                Err(denied) => assert_eq!(denied.error.kind(), ErrorKind::Unauthenticated),
            }
        }
    }
}

#[tokio::test]
async fn a_guesser_is_stopped_by_session_and_by_address_and_nobody_else_is() {
    let clock = TestClock::new();
    let auth = open(
        &Shelf::new(),
        &clock,
        json!({"enabled": true, "tokens": [{"token": "good"}]}),
    )
    .await;
    let guess = |failures| Attempt {
        token: Some("bad".into()),
        failures,
        ..nothing()
    };
    for failures in 0..10 {
        let denied = enter(&auth, &guess(failures)).await.unwrap_err();
        assert!(!denied.closes && denied.error.kind() == ErrorKind::Unauthenticated);
    }
    let denied = enter(&auth, &guess(10)).await.unwrap_err();
    assert!(denied.closes && denied.error.kind() == ErrorKind::RateLimited);
    assert!(denied.retry_after.is_some());
    for _ in 0..20 {
        enter(&auth, &guess(0)).await.unwrap_err();
    }
    let good = |address: [u8; 4]| Attempt {
        token: Some("good".into()),
        address: address.into(),
        ..nothing()
    };
    let denied = enter(&auth, &good([127, 0, 0, 1])).await.unwrap_err();
    assert_eq!(denied.error.kind(), ErrorKind::RateLimited);
    assert!(enter(&auth, &good([127, 0, 0, 2])).await.is_ok());
    clock.advance(Duration::from_secs(60));
    assert!(enter(&auth, &good([127, 0, 0, 1])).await.is_ok());
    assert_eq!(auth.attempts().counters(), (30, 2));
}

#[tokio::test]
async fn nameless_clients_and_plain_bodies_are_taken_as_the_realm_says() {
    let auth = room(json!({"enabled": true, "realms": {
        "yes": {"allow_anonymous": true}, "sealed": {"e2ee": "required"}, "may": {"e2ee": "opportunistic"}}})).await;
    for (name, anonymous, e2ee) in [
        ("default", true, false),
        ("acme", false, false),
        ("yes", true, false),
        ("sealed", false, true),
        ("may", false, false),
    ] {
        assert_eq!(auth.allows_anonymous(&realm(name)), anonymous, "{name}");
        assert_eq!(auth.needs_e2ee(&realm(name)), e2ee, "{name}");
    }
    auth.set_realm_e2ee(realm("sealed"), E2ee::Off, false)
        .await
        .unwrap();
    assert!(!auth.needs_e2ee(&realm("sealed")));
}
