//! Who may come in, and what they may do, over real sockets (admin.md §2; P30).

mod belongings;
mod door;
mod ends;
mod roads;
mod waiting;

use std::sync::Arc;

use restante::auth::{Auth, AuthSettings};
use restante::clock::TestClock;
use restante::store::{Bounds, MemoryStore};
use serde_json::{Value, json};

use crate::harness::{Client, House, On};

/// A server with authentication on, and what it asks.
pub struct Guarded {
    pub house: House,
    pub auth: Arc<Auth>,
}

/// Realms of every kind, and a token of every role in each: `<realm>-<role>`, `*-admin`.
fn settings() -> Value {
    let mut tokens = vec![json!({ "token": "*-admin", "realm": "*", "role": "admin" })];
    for realm in ["default", "open", "keyed", "closed", "other"] {
        for role in ["producer", "consumer", "both", "manager"] {
            let token = format!("{realm}-{role}");
            tokens.push(json!({ "token": token, "realm": realm, "role": role }));
        }
    }
    tokens.push(
        json!({ "token": "narrow", "realm": "closed", "role": "both", "client_id": "narrow",
        "allow": { "produce": ["a/#"], "consume": ["a/#"] }, "names": ["n*"] }),
    );
    // The same client's, not narrowed.
    tokens
        .push(json!({ "token": "wide", "realm": "closed", "role": "both", "client_id": "narrow" }));
    tokens.push(json!({ "token": "sealed", "realm": "sealed", "role": "both" }));
    json!({
        "enabled": true,
        "auto_admin_token": false,
        "tokens": tokens,
        "realms": {
            "default": {},
            "open": { "required": false },
            "keyed": { "key": "the key of the realm" },
            "closed": {},
            "other": {},
            "sealed": { "e2ee": "required" },
        },
    })
}

impl Guarded {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings.
    pub async fn with(change: impl FnOnce(&mut Value)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        let settings = AuthSettings::parse(&settings).unwrap();
        let clock = TestClock::new();
        let opening = Auth::open_with(
            Arc::new(MemoryStore::new(Bounds::default())),
            settings,
            clock.clone(),
            Arc::new(|_| None),
        );
        let auth = opening.await.unwrap();
        let asked = auth.clone();
        let starting = House::start_at(clock, On::Memory, Bounds::default(), |config| {
            config.authority = Some(asked);
        });
        Self {
            house: starting.await,
            auth,
        }
    }

    /// Connected, nothing shown.
    pub async fn stranger(&self) -> Client {
        Client::connect(self.house.addr(), "stranger").await
    }

    /// In by a token, and named as it.
    pub async fn client(&self, token: &str) -> Client {
        self.named(token, token).await
    }

    /// In by a token, under a name for both roles.
    pub async fn named(&self, token: &str, name: &str) -> Client {
        let mut client = Client::connect(self.house.addr(), name).await;
        let answer = client
            .call("AUTHENTICATION", &json!({ "token": token }))
            .await;
        assert_eq!(answer["ok"], true, "{token}: {answer}");
        let hello = json!({ "name": name, "id": name });
        for verb in ["CONSUMER", "PRODUCER"] {
            client.call(verb, &hello).await;
        }
        while client.has("AUTH_FAIL") {
            client.event("AUTH_FAIL").await;
        }
        client
    }
}

/// What AUTHENTICATION with this is answered: the realm and role, or the code.
async fn shown(client: &mut Client, payload: &Value) -> Value {
    let answer = client.call("AUTHENTICATION", payload).await;
    match answer["ok"].as_bool() {
        Some(true) => json!([answer["realm"], answer["role"]]),
        _ => answer["code"].clone(),
    }
}

/// An object with more members.
fn with(object: &Value, fields: Value) -> Value {
    let mut object = object.clone();
    object
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    object
}
