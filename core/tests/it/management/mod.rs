//! Management over real sockets: signed orders, authorization requests, and what follows from them
//! (admin.md §3, §4; P28, P30, P37).

mod commands;
mod fallback;
mod letters;
#[cfg(unix)]
mod persistence;
mod proofs;
mod realms;
mod requests;
mod scoped;
mod secrets;
mod sessions;
mod starting;
mod switching;
mod tokens;
mod two;
mod waiting;

use std::time::Duration;

use restante::auth::{Action, AuthSettings, new_nonce, sign};
use restante::clock::{Clock as _, Timestamp};
use restante::store::Bounds;
use serde_json::{Value, json};

use crate::harness::{Client, House, On, ticking};

/// What the administrator signs with.
pub const ADMIN: &str = "what the administrator signs with";
/// What the manager of realm `acme` signs with.
pub const ACME_KEY: &str = "what the manager of acme signs with";
/// What the manager of realm `beta` signs with.
pub const BETA_KEY: &str = "what the manager of beta signs with";

/// Two realms with managers, and a token of role `both` in each realm: `<realm>-token`.
pub fn settings() -> Value {
    let mut tokens = vec![json!({ "token": ADMIN, "realm": "*", "role": "admin" })];
    for realm in ["default", "acme", "beta"] {
        let (token, client) = (format!("{realm}-token"), format!("{realm}-client"));
        tokens.push(json!({ "token": token, "realm": realm, "role": "both", "client_id": client }));
    }
    json!({
        "enabled": true,
        "auto_admin_token": false,
        "tokens": tokens,
        "realms": {
            "default": {},
            "acme": { "manager_key": ACME_KEY },
            "beta": { "manager_key": BETA_KEY },
        },
    })
}

/// The payload of a signed verb.
pub fn signed(action: Action, secret: &str, now: Timestamp, body: &Value) -> Value {
    let nonce = new_nonce().unwrap();
    let proof = sign(action, &body.to_string(), secret, now, &nonce).unwrap();
    json!({ "body": body, "proof": proof })
}

/// A server with authentication on and an administrator.
pub struct Managed {
    pub house: House,
}

impl Managed {
    pub async fn start(on: On) -> Self {
        Self::with(on, |_| {}).await
    }

    /// With other settings.
    pub async fn with(on: On, change: impl FnOnce(&mut Value)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        let settings = AuthSettings::parse(&settings).unwrap();
        let starting = House::start(on, Bounds::default(), |config| config.auth = settings);
        Self {
            house: starting.await,
        }
    }

    /// Connected, nothing shown.
    pub async fn stranger(&self) -> Client {
        Client::connect(self.house.addr(), "stranger").await
    }

    /// In by a token, under a name for both roles.
    pub async fn client(&self, token: &str, name: &str) -> Client {
        let mut client = Client::connect(self.house.addr(), name).await;
        let token = json!({ "token": token });
        let answer = client.call("AUTHENTICATION", &token).await;
        assert_eq!(answer["ok"], true, "{answer}");
        for verb in ["CONSUMER", "PRODUCER"] {
            let hello = json!({ "name": name, "id": name });
            client.call(verb, &hello).await;
        }
        client
    }

    fn now(&self) -> Timestamp {
        self.house.clock.now()
    }

    /// The administrator orders something; the answer.
    pub async fn order(&self, body: Value) -> Value {
        self.order_by(ADMIN, body).await
    }

    /// Somebody orders something, over a connection of its own.
    pub async fn order_by(&self, secret: &str, body: Value) -> Value {
        self.ask(Action::Command, secret, body).await
    }

    /// A signed verb, over a connection of its own.
    pub async fn ask(&self, action: Action, secret: &str, body: Value) -> Value {
        let mut stranger = self.stranger().await;
        let payload = signed(action, secret, self.now(), &body);
        let answer = stranger.call(action.as_str(), &payload).await;
        stranger.leave().await;
        answer
    }

    /// Lets the clock run as long as something takes.
    pub async fn ticking<T>(&self, what: impl Future<Output = T>) -> T {
        ticking(&self.house.clock, Duration::from_millis(25), what).await
    }
}

/// What AUTHENTICATION with a token is answered: the realm, or the code.
pub async fn shown(client: &mut Client, token: &str) -> Value {
    let answer = client
        .call("AUTHENTICATION", &json!({ "token": token }))
        .await;
    match answer["ok"].as_bool() {
        Some(true) => answer["realm"].clone(),
        _ => answer["code"].clone(),
    }
}

/// What `answer` must be: refused with a code and a name.
pub fn assert_refused(answer: &Value, code: u16, error: &str) {
    let is = (&answer["ok"], &answer["code"], &answer["error"]);
    assert_eq!(is, (&json!(false), &json!(code), &json!(error)), "{answer}");
}

/// A durable subscription with acknowledgements to all of an event.
pub fn durable(event: &str) -> Value {
    json!({ "event": event, "producer": "TYO-MQ-ALL", "durable": true, "ack": true })
}

/// Subscribes, nacks what comes until it is a dead letter.
pub async fn bury(client: &mut Client, event: &str, message: Value) {
    let mut wish = durable(event);
    wish["retry"] = json!({ "max_attempts": 1 });
    client.subscribe(wish).await;
    let answer = client.produce(event, message, json!({})).await;
    assert_eq!(answer["queued"], 1, "{answer}");
    let delivery = client.delivery().await;
    let answer = client.settle("NACK", &delivery, json!({})).await;
    assert_eq!(answer["ok"], true, "{answer}");
}
