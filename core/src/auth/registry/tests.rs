//! Commands and reloads: what changes, what lasts, what is shown (admin.md §12, scenarios 29–30, 32–35, 39).

mod file;
mod lasting;
mod realms;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::testing::{Shelf, attempt, code, enter, environment, open, settings};
use super::super::*;
use super::*;
use crate::clock::TestClock;

struct Room {
    auth: Arc<Auth>,
    shelf: Arc<Shelf>,
    clock: Arc<TestClock>,
}

impl Room {
    async fn new(value: Value) -> Self {
        let (shelf, clock) = (Shelf::new(), TestClock::new());
        let auth = open(&shelf, &clock, value).await;
        Self { auth, shelf, clock }
    }

    /// The process ended and started again.
    async fn again(&self, value: Value) -> Self {
        let auth = open(&self.shelf, &self.clock, value).await;
        Self {
            auth,
            shelf: self.shelf.clone(),
            clock: self.clock.clone(),
        }
    }
}

fn realm(name: &str) -> RealmId {
    RealmId::parse(name).unwrap()
}

fn secret(text: &str) -> Secret {
    Secret::parse(text).unwrap()
}

fn token(name: &str, role: Role, client: Option<&str>, text: TokenText) -> NewToken {
    NewToken {
        realm: realm(name),
        role,
        client_id: client.map(Arc::from),
        client_name: None,
        approved_at: None,
        allow: Allow::default(),
        text,
    }
}

fn on() -> Value {
    json!({"enabled": true})
}
