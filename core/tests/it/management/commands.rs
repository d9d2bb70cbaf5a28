//! Every command does what it says, and is refused as it should be (scenario 28), as tables that are
//! gone through in order: the next row sees what the one before has done.

use serde_json::{Value, json};

use super::Managed;
use crate::harness::On;

/// What an order is answered.
enum Wanted {
    /// Done; what stands at these places of the answer, `null`: nothing.
    Done(Value),
    /// Refused.
    Refused(u16, &'static str),
}
use Wanted::{Done, Refused};

type Row = (Value, Wanted);

const BAD: Wanted = Refused(400, "bad_command");
const NO_REALM: Wanted = Refused(404, "realm_unknown");
const NO_TOKEN: Wanted = Refused(404, "token_unknown");

fn row(mut body: Value, command: &str, wanted: Wanted) -> Row {
    body["command"] = json!(command);
    (body, wanted)
}

async fn go_through(managed: &Managed, rows: Vec<Row>) {
    for (body, wanted) in rows {
        let answer = managed.ticking(managed.order(body.clone())).await;
        match wanted {
            Done(places) => {
                assert_eq!(answer["ok"], true, "{body}: {answer}");
                for (place, value) in places.as_object().unwrap() {
                    let found = answer.pointer(place).unwrap_or(&Value::Null);
                    assert_eq!(found, value, "{body}, {place}: {answer}");
                }
            }
            Refused(code, error) => {
                let is = (&answer["ok"], &answer["code"], &answer["error"]);
                let wanted = (&json!(false), &json!(code), &json!(error));
                assert_eq!(is, wanted, "{body}: {answer}");
            }
        }
    }
}

fn making_realms() -> Vec<Row> {
    let add = |body| row(body, "add_realm", BAD);
    let done = |body, places| row(body, "add_realm", Done(places));
    vec![
        done(
            json!({ "realm": "one" }),
            json!({
                "/settings/realms/one/required": true,
                "/settings/realms/one/key_configured": false,
                "/settings/realms/one/ephemeral": null,
                "/settings/enabled": true,
            }),
        ),
        done(
            json!({ "realm": "two", "required": false, "manager_key": "signs for realm two", "key": "key of two",
                "require_acceptance": false, "e2ee": "opportunistic", "allow_anonymous": true }),
            json!({
                "/settings/realms/two/required": false,
                "/settings/realms/two/manager_key_configured": true,
                "/settings/realms/two/key_configured": true,
                "/settings/realms/two/require_acceptance": false,
                "/settings/realms/two/allow_anonymous": true,
                "/settings/realms/two/e2ee": "opportunistic",
            }),
        ),
        done(
            json!({ "realm": "e2ee", "e2ee": "whatever" }),
            json!({
            "/settings/realms/e2ee/e2ee": null }),
        ),
        done(
            json!({ "realm": "short", "ttl": "2h" }),
            json!({
            "/settings/realms/short/ephemeral": true }),
        ),
        done(
            json!({ "realm": "brief", "temporary": 1 }),
            json!({
            "/settings/realms/brief/ephemeral": true }),
        ),
        row(
            json!({ "realm": "one" }),
            "add_realm",
            Refused(409, "realm_exists"),
        ),
        add(json!({})),
        add(json!({ "realm": "" })),
        add(json!({ "realm": 7 })),
        add(json!({ "realm": "x", "ttl": 0 })),
        add(json!({ "realm": "x", "ttl": "soon" })),
        add(json!({ "realm": "*" })),
        add(json!({ "realm": "default", "ttl": 60 })),
        row(
            json!({ "realm": " x" }),
            "add_realm",
            Refused(400, "bad_name"),
        ),
        row(
            json!({ "realm": "a\nb" }),
            "add_realm",
            Refused(400, "bad_name"),
        ),
    ]
}

/// The command, a body that is good, what is seen of it then, bodies that are not.
type Change = (&'static str, Value, Value, Vec<Value>);

fn changes() -> Vec<Change> {
    vec![
        (
            "set_realm_auth",
            json!({ "required": false }),
            json!({ "required": false }),
            vec![json!({}), json!({ "required": 1 })],
        ),
        (
            "set_realm_manager_key",
            json!({ "manager_key": "sixteen letters!" }),
            json!({ "manager_key_configured": true }),
            vec![json!({ "manager_key": 1 })],
        ),
        (
            "set_realm_manager_key",
            json!({}),
            json!({ "manager_key_configured": false }),
            vec![],
        ),
        (
            "set_realm_jwt_key",
            json!({ "jwt_key": "sixteen letters!" }),
            json!({ "jwt_key_configured": true }),
            vec![json!({ "jwt_key": [] })],
        ),
        (
            "set_realm_key",
            json!({ "presharedKey": "8 letter", "require_key": false }),
            json!({ "key_configured": true, "require_key": false }),
            vec![json!({ "key": {} })],
        ),
        (
            "set_realm_key",
            json!({ "key": null }),
            json!({ "key_configured": false }),
            vec![],
        ),
        (
            "set_realm_acceptance",
            json!({ "required": false }),
            json!({ "require_acceptance": false }),
            vec![json!({})],
        ),
        (
            "set_realm_anonymous",
            json!({ "allow_anonymous": true }),
            json!({ "allow_anonymous": true }),
            vec![json!({})],
        ),
        (
            "set_realm_e2ee",
            json!({ "policy": "required" }),
            json!({ "e2ee": "required" }),
            vec![json!({}), json!({ "e2ee": "maybe" })],
        ),
        (
            "set_realm_e2ee",
            json!({ "e2ee": "off" }),
            json!({ "e2ee": null }),
            vec![],
        ),
        (
            "set_realm_lifetime",
            json!({}),
            json!({ "ephemeral": true }),
            vec![json!({ "ttl": -1 }), json!({ "ttl": "1 fortnight" })],
        ),
        (
            "set_realm_lifetime",
            json!({ "ephemeral": false }),
            json!({ "ephemeral": null, "expires_at": null }),
            vec![],
        ),
    ]
}

fn changing_realms() -> Vec<Row> {
    let mut rows = Vec::new();
    let of = |realm: &str, body: &Value| {
        let mut body = body.clone();
        body["realm"] = json!(realm);
        body
    };
    for (command, good, seen, bad) in changes() {
        let seen = seen.as_object().unwrap().iter();
        let seen =
            seen.map(|(name, value)| (format!("/settings/realms/one/{name}"), value.clone()));
        rows.push(row(of("one", &good), command, Done(seen.collect())));
        rows.push(row(of("nowhere", &good), command, NO_REALM));
        rows.push(row(of("*", &good), command, BAD));
        rows.push(row(good, command, BAD));
        rows.extend(bad.iter().map(|bad| row(of("one", bad), command, BAD)));
    }
    let lifetime = json!({ "realm": "default" });
    rows.push(row(lifetime, "set_realm_lifetime", BAD));
    let made = json!({ "realm": "made", "required": true, "create": true });
    let seen = json!({ "/settings/realms/made/required": true });
    rows.push(row(made, "set_realm_auth", Done(seen)));
    rows
}

fn ending_realms() -> Vec<Row> {
    let rename = |from: &str, to: &str, wanted| {
        row(json!({ "from": from, "to": to }), "rename_realm", wanted)
    };
    vec![
        rename(
            "one",
            "uno",
            Done(json!({
                "/settings/realms/one": null,
                "/settings/realms/uno/required": false,
                "/disconnected_sockets": 0,
            })),
        ),
        rename("one", "due", NO_REALM),
        rename("uno", "two", Refused(409, "realm_exists")),
        rename("uno", "uno", Refused(409, "realm_exists")),
        rename("uno", "*", BAD),
        rename("uno", "default", BAD),
        rename("*", "due", BAD),
        rename("default", "due", BAD),
        rename("uno", "", BAD),
        row(json!({ "to": "x" }), "rename_realm", BAD),
        row(
            json!({ "realm": "uno" }),
            "remove_realm",
            Done(json!({
                "/settings/realms/uno": null,
                "/removed_tokens": 0,
                "/disconnected_sockets": 0,
            })),
        ),
        row(json!({ "realm": "uno" }), "remove_realm", NO_REALM),
        row(json!({ "realm": "*" }), "remove_realm", BAD),
        row(json!({ "realm": "default" }), "remove_realm", BAD),
        row(json!({}), "remove_realm", BAD),
    ]
}

#[tokio::test]
async fn commands_about_realms_do_what_they_say_and_are_refused_otherwise() {
    let managed = Managed::start(On::Memory).await;
    for rows in [making_realms(), changing_realms(), ending_realms()] {
        go_through(&managed, rows).await;
    }
    managed.house.close().await;
}

fn tokens() -> Vec<Row> {
    let add = |body, wanted| row(body, "add_token", wanted);
    let given = "a token that somebody chose";
    let text = restante::auth::TokenHash::of(given).to_string();
    vec![
        add(
            json!({ "realm": "acme", "role": "consumer", "token": given, "client_id": "c" }),
            Done(json!({ "/token": null, "/token_hash": text })),
        ),
        add(
            json!({ "realm": "acme", "token": given }),
            Refused(409, "token_exists"),
        ),
        add(json!({ "realm": "acme", "token": "short" }), BAD),
        add(json!({ "realm": "acme", "role": "king" }), BAD),
        add(json!({ "realm": "acme", "role": "admin" }), BAD),
        add(json!({ "realm": "*", "role": "both" }), BAD),
        add(json!({ "role": "both" }), BAD),
        row(
            json!({ "token": "nobody has this one" }),
            "revoke_token",
            NO_TOKEN,
        ),
        row(json!({ "token_hash": "ab" }), "revoke_token", BAD),
        row(json!({ "realm": "acme" }), "revoke_token", BAD),
        row(json!({}), "revoke_token", BAD),
        row(
            json!({ "realm": "acme", "client_id": "d" }),
            "revoke_token",
            NO_TOKEN,
        ),
        row(
            json!({ "realm": "acme", "client_id": "c" }),
            "revoke_token",
            Done(json!({
                "/revoked/0/token_hash": text,
                "/revoked/0/role": "consumer",
                "/revoked/1": null,
                "/disconnected_sockets": 0,
            })),
        ),
        row(json!({ "token_hash": text }), "revoke_token", NO_TOKEN),
    ]
}

fn provisioning() -> Vec<Row> {
    let token = "a token that makes realms";
    let hash = restante::auth::TokenHash::of(token).to_string();
    let add = |body, wanted| row(body, "add_management_token", wanted);
    let good = json!({ "token": token, "realm_prefix": "org:", "max_ttl": "1h" });
    vec![
        add(
            good.clone(),
            Done(json!({
                "/settings/management_tokens/0/realm_prefix": "org:",
                "/settings/management_tokens/0/token_hash": hash,
                "/settings/management_tokens/0/max_ttl": 3600.0,
            })),
        ),
        add(good, Refused(409, "token_exists")),
        add(json!({ "token": "another that makes realms" }), BAD),
        add(json!({ "realm_prefix": "org:" }), BAD),
        add(json!({ "token": "short", "realm_prefix": "org:" }), BAD),
        row(
            json!({ "token_hash": hash }),
            "revoke_management_token",
            Done(json!({
            "/settings/management_tokens/0": null })),
        ),
        row(
            json!({ "token_hash": hash }),
            "revoke_management_token",
            NO_TOKEN,
        ),
        row(json!({}), "revoke_management_token", BAD),
    ]
}

fn validators() -> Vec<Row> {
    let set = |body, wanted| row(body, "set_external_auth", wanted);
    let url = "http://127.0.0.1:9/ask";
    vec![
        set(
            json!({ "auth_url": url, "auth_secret": "s" }),
            Done(json!({
            "/settings/auth_url": url, "/settings/auth_secret": "<configured>" })),
        ),
        set(
            json!({ "auth_url": "" }),
            Done(json!({ "/settings/auth_url": null })),
        ),
        set(
            json!({ "auth_url": url, "realm": "acme", "auth_secret": "s" }),
            Done(json!({
            "/settings/realms/acme/auth_url": url,
            "/settings/realms/acme/auth_secret_configured": true })),
        ),
        set(
            json!({ "realm": "acme" }),
            Done(json!({
            "/settings/realms/acme/auth_url": null,
            "/settings/realms/acme/auth_secret_configured": false })),
        ),
        set(
            json!({ "auth_url": url, "realm_prefix": "org:" }),
            Done(json!({
            "/settings/external_validators/0/realm_prefix": "org:",
            "/settings/external_validators/0/auth_url": url,
            "/settings/external_validators/0/auth_secret_configured": false })),
        ),
        set(
            json!({ "realm_prefix": "org:" }),
            Done(json!({
            "/settings/external_validators/0": null })),
        ),
        set(json!({ "auth_url": "no address" }), BAD),
        set(json!({ "auth_url": "ftp://127.0.0.1/" }), BAD),
        set(
            json!({ "auth_url": url, "realm": "acme", "realm_prefix": "a" }),
            BAD,
        ),
        set(json!({ "auth_url": url, "realm": "nowhere" }), NO_REALM),
    ]
}

fn the_rest() -> Vec<Row> {
    let no_letter = || Refused(404, "dead_letter_unknown");
    let no_session = || Refused(404, "session_unknown");
    let done = || Done(json!({}));
    vec![
        row(
            json!({}),
            "get",
            Done(json!({ "/settings/enabled": true, "/settings/namespaces": {} })),
        ),
        row(json!({}), "stats", Done(json!({ "/settings": null }))),
        row(json!({}), "reload_settings", Refused(400, "config")),
        row(json!({}), "set_global_auth", BAD),
        row(json!({ "enabled": "yes" }), "set_global_auth", BAD),
        row(
            json!({ "enabled": false }),
            "set_global_auth",
            Done(json!({
            "/settings/enabled": false, "/disconnected_sockets": 0 })),
        ),
        row(
            json!({ "enabled": true }),
            "set_global_auth",
            Done(json!({
            "/settings/enabled": true })),
        ),
        row(json!({}), "set_persistence", BAD),
        row(
            json!({ "storage": "sqlite", "options": 1 }),
            "set_persistence",
            BAD,
        ),
        row(
            json!({}),
            "authorization_list",
            Done(json!({ "/requests": [], "/cursor": null })),
        ),
        row(json!({ "status": "lost" }), "authorization_list", BAD),
        row(json!({ "limit": 0 }), "authorization_list", BAD),
        row(json!({ "limit": 1001 }), "authorization_list", BAD),
        row(
            json!({ "realm": "acme" }),
            "list_sessions",
            Done(json!({
            "/realm": "acme", "/sessions": [] })),
        ),
        row(json!({}), "disconnect", BAD),
        row(json!({ "socket_id": "x" }), "disconnect", no_session()),
        row(json!({ "client_id": "x" }), "disconnect", no_session()),
        row(json!({ "realm": "acme" }), "disconnect", no_session()),
        row(
            json!({}),
            "dlq_list",
            Done(json!({ "/realm": null, "/entries": [] })),
        ),
        row(json!({ "cursor": "x" }), "dlq_list", BAD),
        row(json!({ "limit": "all" }), "dlq_list", BAD),
        row(json!({}), "dlq_replay", BAD),
        row(json!({ "id": "x" }), "dlq_replay", no_letter()),
        row(json!({}), "dlq_discard", BAD),
        row(json!({ "msgId": "x" }), "dlq_discard", no_letter()),
        row(json!({}), "dlq_purge", BAD),
        row(
            json!({ "realm": "acme" }),
            "dlq_purge",
            Done(json!({ "/purged": 0 })),
        ),
        row(json!({}), "queue_stats", Done(json!({ "/queues": [] }))),
        row(json!({ "realm": "acme" }), "queue_release", BAD),
        row(
            json!({ "realm": "acme", "queue": "7" }),
            "queue_release",
            Refused(404, "delivery_unknown"),
        ),
        row(json!({}), "get_realm", BAD),
        row(json!({}), "dlq_paint", BAD),
        row(json!({}), "queue_paint", BAD),
        row(json!({}), "GET", BAD),
        row(json!({}), "", BAD),
        row(json!({ "nonsense": [1, { "deep": null }] }), "get", done()),
    ]
}

#[tokio::test]
async fn commands_about_tokens_and_validators_do_what_they_say_and_are_refused_otherwise() {
    let managed = Managed::start(On::Memory).await;
    for rows in [tokens(), provisioning(), validators()] {
        go_through(&managed, rows).await;
    }
    managed.house.close().await;
}

#[tokio::test]
async fn all_other_commands_do_what_they_say_and_are_refused_otherwise() {
    let managed = Managed::start(On::Memory).await;
    go_through(&managed, the_rest()).await;
    managed.house.close().await;
}
