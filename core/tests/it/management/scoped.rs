//! What the holder of a realm's own key may order, and what it is shown (scenario 30; M06).

use restante::auth::Action;
use serde_json::{Value, json};

use super::{ACME_KEY, BETA_KEY, Managed, assert_refused, bury};
use crate::harness::On;

/// What a realm's key may order, with the realm left out.
fn own() -> Vec<Value> {
    vec![
        json!({ "command": "set_realm_key", "key": "key of it" }),
        json!({ "command": "set_realm_acceptance", "required": true }),
        json!({ "command": "set_realm_e2ee", "e2ee": "opportunistic" }),
        json!({ "command": "set_realm_lifetime", "ttl": "1h" }),
    ]
}

/// What it may look at or drop of its realm.
fn looking() -> Vec<Value> {
    vec![
        json!({ "command": "dlq_list" }),
        json!({ "command": "dlq_purge" }),
        json!({ "command": "authorization_list" }),
    ]
}

fn of(realm: &str, mut body: Value) -> Value {
    body["realm"] = json!(realm);
    body
}

#[tokio::test]
async fn a_realms_key_orders_its_own_four_commands_and_sees_its_realm_alone() {
    let managed = Managed::start(On::Memory).await;
    for body in own() {
        let body = of("acme", body);
        let answer = managed.order_by(ACME_KEY, body.clone()).await;
        assert_eq!(answer["ok"], true, "{body}: {answer}");
        assert_eq!(answer["realm"], "acme");
        let settings = answer["settings"].as_object().unwrap();
        assert_eq!(settings.keys().collect::<Vec<_>>(), ["realms"], "{answer}");
        let realms = answer["settings"]["realms"].as_object().unwrap();
        assert_eq!(realms.keys().collect::<Vec<_>>(), ["acme"], "{answer}");
        assert!(!answer.to_string().contains("beta"));
    }
    for body in looking() {
        let body = of("acme", body);
        let answer = managed.order_by(ACME_KEY, body.clone()).await;
        assert_eq!(answer["ok"], true, "{body}: {answer}");
    }
    managed.house.close().await;
}

#[tokio::test]
async fn a_realms_key_orders_nothing_elsewhere_and_nothing_else() {
    let managed = Managed::with(On::Memory, |settings| {
        settings["realms"]["default"]["manager_key"] = json!("the key of default");
    })
    .await;
    let mut refused: Vec<(&str, Value)> = Vec::new();
    for body in own().into_iter().chain(looking()) {
        refused.push((ACME_KEY, of("beta", body.clone())));
        refused.push((BETA_KEY, of("acme", body.clone())));
        refused.push(("the key of default", of("default", body.clone())));
        refused.push((ACME_KEY, of("*", body.clone())));
    }
    for body in [
        json!({ "command": "get" }),
        json!({ "command": "stats" }),
        json!({ "command": "dlq_list" }),
        json!({ "command": "authorization_list" }),
        json!({ "command": "dlq_discard", "id": "1-1-1" }),
        json!({ "command": "set_realm_auth", "realm": "acme", "required": false }),
        json!({ "command": "set_realm_manager_key", "realm": "acme", "manager_key": "x" }),
        json!({ "command": "set_realm_acceptance", "realm": "acme", "required": true,
            "create": true }),
        json!({ "command": "remove_realm", "realm": "acme" }),
        json!({ "command": "rename_realm", "from": "acme", "to": "x" }),
        json!({ "command": "add_token", "realm": "acme" }),
        json!({ "command": "revoke_token", "realm": "acme", "client_id": "acme-client" }),
        json!({ "command": "list_sessions", "realm": "acme" }),
        json!({ "command": "disconnect", "realm": "acme" }),
        json!({ "command": "queue_stats", "realm": "acme" }),
        json!({ "command": "add_realm", "realm": "acme" }),
    ] {
        refused.push((ACME_KEY, body));
    }
    for (secret, body) in refused {
        // Failures of an address are counted: time passes.
        managed
            .house
            .clock
            .advance(std::time::Duration::from_secs(10));
        let answer = managed.order_by(secret, body.clone()).await;
        assert_eq!(
            (&answer["ok"], &answer["code"]),
            (&json!(false), &json!(401)),
            "{body}: {answer}"
        );
    }
    managed.house.close().await;
}

#[tokio::test]
async fn a_lifetime_that_a_realms_key_chooses_is_bounded_by_who_may_make_such_realms() {
    let managed = Managed::with(On::Memory, |settings| {
        settings["realms"]["org:a"] = json!({ "manager_key": ACME_KEY });
        settings["management_tokens"] = json!([
            { "token": "makes realms for an hour", "realm_prefix": "org:", "max_ttl": "1h" },
            { "token": "makes brief realms alone", "realm_prefix": "org:", "ephemeral_only": true },
        ]);
    })
    .await;
    let now = managed.now().0;
    let hour = 3_600_000;
    for (wish, by_key, by_admin) in [
        (
            json!({ "ttl": "10m" }),
            now + hour / 6,
            Some(now + hour / 6),
        ),
        (json!({ "ttl": "5h" }), now + hour, Some(now + 5 * hour)),
        (json!({}), now + hour, Some(now + 24 * hour)),
        (json!({ "ephemeral": false }), now + hour, None),
    ] {
        let mut body = of("org:a", wish);
        body["command"] = json!("set_realm_lifetime");
        let place = "/settings/realms/org:a/expires_at";
        let own = managed.order_by(ACME_KEY, body.clone()).await;
        assert_eq!(own.pointer(place), Some(&json!(by_key)), "{body}: {own}");
        let admins = managed.order(body.clone()).await;
        let end = admins.pointer(place).and_then(Value::as_u64);
        assert_eq!(end, by_admin, "{body}: {admins}");
    }
    managed.house.close().await;
}

#[tokio::test]
async fn a_realms_key_settles_its_own_dead_letters_and_requests_and_no_others() {
    let managed = Managed::start(On::Memory).await;
    for realm in ["acme", "beta"] {
        let mut client = managed.client(&format!("{realm}-token"), "c").await;
        managed.ticking(bury(&mut client, "e", json!(realm))).await;
        let ask = json!({ "realm": realm, "client_id": "x", "client_name": "x" });
        client.call("AUTHORIZATION_REQUEST", &ask).await;
    }
    let list = of("acme", json!({ "command": "dlq_list" }));
    let listed = managed.order_by(ACME_KEY, list).await;
    assert_eq!(listed["entries"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["entries"][0]["message"]["message"], "acme");
    let id = listed["entries"][0]["id"].clone();
    let discard = json!({ "command": "dlq_discard", "id": id, "realm": "acme" });
    assert_eq!(managed.order_by(ACME_KEY, discard).await["ok"], true);
    let all = managed.order(json!({ "command": "dlq_list" })).await;
    assert_eq!(all["entries"].as_array().unwrap().len(), 1);
    let unfiltered = managed.ask(Action::Next, ACME_KEY, json!({})).await;
    assert_refused(&unfiltered, 401, "proof_rejected");
    let foreign = managed
        .ask(Action::Next, ACME_KEY, json!({ "realm": "beta" }))
        .await;
    assert_refused(&foreign, 401, "proof_rejected");
    let next = managed
        .ask(Action::Next, ACME_KEY, json!({ "realm": "acme" }))
        .await;
    assert_eq!(next["request"]["realm"], "acme", "{next}");
    let of_beta = managed
        .ask(Action::Next, BETA_KEY, json!({ "realm": "beta" }))
        .await;
    let id = of_beta["request"]["request_id"].clone();
    let decide = json!({ "request_id": id, "approved": true });
    let refused = managed.ask(Action::Decide, ACME_KEY, decide.clone()).await;
    assert_refused(&refused, 401, "proof_rejected");
    assert_eq!(
        managed.ask(Action::Decide, BETA_KEY, decide).await["ok"],
        true
    );
    managed.house.close().await;
}

#[tokio::test]
async fn who_may_sign_an_order_is_told_what_is_wrong_with_it_and_strangers_are_not() {
    let managed = Managed::start(On::Memory).await;
    let malformed = [
        json!({ "command": "set_realm_lifetime", "realm": "acme", "ttl": "soon" }),
        json!({ "command": "set_realm_e2ee", "realm": "acme", "e2ee": "maybe" }),
        json!({ "command": "set_realm_acceptance", "realm": "acme" }),
        json!({ "command": "set_realm_key", "realm": "acme", "key": 5 }),
        json!({ "command": "dlq_list", "realm": "acme", "limit": 5000 }),
        json!({ "command": "set_realm_livetime", "realm": "acme" }),
    ];
    // As many as would lock the address out.
    for body in malformed.iter().cycle().take(36) {
        let answer = managed.order_by(ACME_KEY, body.clone()).await;
        assert_refused(&answer, 400, "bad_command");
    }
    let unknown = json!({ "command": "dlq_discard", "realm": "acme", "msg_id": "nonsense" });
    let answer = managed.order_by(ACME_KEY, unknown).await;
    assert_refused(&answer, 404, "dead_letter_unknown");
    for body in malformed {
        for secret in [BETA_KEY, "whatever a stranger has"] {
            let answer = managed.order_by(secret, body.clone()).await;
            assert_refused(&answer, 401, "proof_rejected");
        }
    }
    managed.house.close().await;
}

#[tokio::test]
async fn who_may_decide_is_told_what_is_wrong_with_a_decision_and_strangers_are_not() {
    let managed = Managed::start(On::Memory).await;
    let mut asking = managed.stranger().await;
    let ask = json!({ "realm": "acme", "client_id": "x", "client_name": "x" });
    let id = asking.call("AUTHORIZATION_REQUEST", &ask).await["request_id"].clone();
    let body = json!({ "request_id": id, "approved": "perhaps" });
    for (secret, code, error) in [
        (ACME_KEY, 400, "bad_command"),
        (BETA_KEY, 401, "proof_rejected"),
    ] {
        let answer = managed.ask(Action::Decide, secret, body.clone()).await;
        assert_refused(&answer, code, error);
    }
    managed.house.close().await;
}
