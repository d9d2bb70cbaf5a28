//! No answer tells a secret (scenario 29, AF20), and none goes in clear over a network (AF59).

use std::net::{IpAddr, UdpSocket};

use restante::auth::{Action, AuthSettings, TokenHash};
use restante::clock::Clock as _;
use restante::store::Bounds;
use serde_json::{Value, json};

use super::{ADMIN, Managed, assert_refused, signed};
use crate::harness::{Client, House, On};

/// Every kind of secret there is, each with a text that is nowhere else.
const SECRETS: [&str; 12] = [
    "secret-of-the-manager",
    "secret-of-jwt-of-realm",
    "secret-of-the-realm",
    "secret-of-its-validator",
    "secret-of-all-jwt",
    "secret-of-all-validators",
    "secret-of-some-validators",
    "secret-that-makes-realms",
    "secret-of-a-monitor",
    "secret-of-a-client",
    "secret-in-an-address",
    "secret-in-a-query",
];

fn configure(settings: &mut Value) {
    let tokens = settings["tokens"].as_array_mut().unwrap();
    tokens.push(json!({ "token": SECRETS[9], "realm": "acme", "role": "both" }));
    settings["realms"]["acme"] = json!({
        "manager_key": SECRETS[0],
        "jwt_key": SECRETS[1],
        "key": SECRETS[2],
        "auth_url": "https://auth.example/acme",
        "auth_secret": SECRETS[3],
    });
    settings["jwt_secret"] = json!(SECRETS[4]);
    settings["auth_url"] = json!(format!("https://auth.example/ask?key={}", SECRETS[11]));
    settings["auth_secret"] = json!(SECRETS[5]);
    settings["external_validators"] = json!([{
        "realm_prefix": "org:",
        "auth_url": "https://auth.example/org",
        "auth_secret": SECRETS[6],
    }]);
    settings["management_tokens"] = json!([{ "token": SECRETS[7], "realm_prefix": "org:" }]);
    settings["monitor_tokens"] = json!([SECRETS[8]]);
}

fn assert_tells_none(answer: &Value) {
    let text = answer.to_string();
    for secret in SECRETS.iter().chain(&[ADMIN]) {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[tokio::test]
async fn no_answer_tells_a_secret() {
    let managed = Managed::with(On::Memory, configure).await;
    for body in [
        json!({ "command": "get" }),
        json!({ "command": "stats" }),
        json!({ "command": "list_sessions" }),
        json!({ "command": "set_realm_auth", "realm": "acme", "required": true }),
        json!({ "command": "add_realm", "realm": "new", "key": SECRETS[2] }),
        json!({ "command": "revoke_token", "token": SECRETS[9] }),
    ] {
        let answer = managed.order(body.clone()).await;
        assert_eq!(answer["ok"], true, "{body}: {answer}");
        assert_tells_none(&answer);
    }
    let view = managed.order(json!({ "command": "get" })).await;
    let hash = TokenHash::of(ADMIN).to_string();
    assert!(view["settings"]["tokens"].to_string().contains(&hash));
    let scoped = json!({ "command": "set_realm_acceptance", "realm": "acme", "required": true });
    let answer = managed.order_by(SECRETS[0], scoped).await;
    assert_eq!(answer["ok"], true, "{answer}");
    assert_tells_none(&answer);
    managed.house.close().await;
}

#[tokio::test]
async fn what_is_refused_is_not_repeated() {
    let managed = Managed::with(On::Memory, configure).await;
    for body in [
        json!({ "command": "add_token", "realm": "acme", "token": SECRETS[9] }),
        json!({ "command": "add_token", "realm": "acme", "role": "admin", "token": SECRETS[2] }),
        json!({ "command": "add_realm", "realm": "acme", "key": SECRETS[2] }),
        json!({ "command": "revoke_token", "token": SECRETS[2] }),
        json!({ "command": "set_external_auth",
            "auth_url": format!("https://user:{}@auth.example/", SECRETS[10]) }),
        json!({ "command": "set_persistence", "storage": "redis",
            "url": format!("redis://:{}@nowhere.invalid:x", SECRETS[10]) }),
    ] {
        let answer = managed.order(body.clone()).await;
        assert_eq!(answer["ok"], false, "{body}: {answer}");
        assert_tells_none(&answer);
    }
    managed.house.close().await;
}

/// An address of this machine that is not loopback, if it has one.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: it only asks which way that would go.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// Orders over a link that others can listen to, where the machine has one; the rule itself is tested
/// beside it.
#[tokio::test]
async fn orders_that_bear_secrets_are_refused_over_a_plain_network() {
    let Some(address) = outer_address() else {
        return;
    };
    for allowed in [false, true] {
        let mut settings = super::settings();
        settings["allow_insecure_management"] = json!(allowed);
        let settings = AuthSettings::parse(&settings).unwrap();
        let house = House::start(On::Memory, Bounds::default(), |config| {
            config.host = Some(address.to_string());
            config.auth = settings;
        });
        let house = house.await;
        let mut client = Client::connect(house.addr(), "far").await;
        for (body, bears_secret) in [
            (json!({ "command": "get" }), false),
            (json!({ "command": "add_realm", "realm": "x" }), false),
            (
                json!({ "command": "add_realm", "realm": "y", "key": "key of it" }),
                true,
            ),
            (json!({ "command": "add_token", "realm": "x" }), true),
            (
                json!({ "command": "set_realm_key", "realm": "x", "key": "key of it" }),
                true,
            ),
        ] {
            let order = signed(Action::Command, ADMIN, house.clock.now(), &body);
            let answer = client.call(Action::Command.as_str(), &order).await;
            if bears_secret && !allowed {
                assert_refused(&answer, 403, "forbidden");
            } else {
                assert_eq!(answer["ok"], true, "{body}: {answer}");
            }
        }
        house.close().await;
    }
}
