//! Answers to orders, as JSON text. Those to a realm's own manager say nothing of other realms
//! (admin.md §4.1).

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Admin;
use crate::auth::Authority;
use crate::model::RealmId;
use crate::store::Copied;
use crate::{Error, ErrorKind, Result};

/// What an order has done besides changing what the view shows.
#[derive(Debug, Default)]
pub(super) struct Done(Map<String, Value>);

impl Done {
    /// Adds a member.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Sessions that were ended by it.
    pub(super) fn sessions(self, count: usize) -> Self {
        self.with("disconnected_sockets", count)
    }

    /// What has moved to another store (wire §6.9).
    pub(super) fn migrated(self, copied: Copied) -> Self {
        let moved = json!({
            "messages": copied.messages,
            "dlq": copied.dead_letters,
            "subscriptions": copied.queues,
        });
        self.with("migrated", moved)
    }
}

/// `{ok: true, …}`.
pub(super) fn ok(members: impl Into<Map<String, Value>>) -> String {
    let mut reply = Map::new();
    reply.insert("ok".to_owned(), true.into());
    reply.extend(members.into());
    Value::Object(reply).to_string()
}

/// One member.
pub(super) fn one(name: &str, value: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value.into())])
}

/// `{ok: true}` and what serialises as an object, whose raw texts stay as they are.
pub(super) fn ok_raw(members: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(members);
    let text = text.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    let rest = text.strip_prefix('{').unwrap_or("}");
    let comma = if rest == "}" { "" } else { "," };
    Ok(format!("{{\"ok\":true{comma}{rest}"))
}

impl Admin {
    /// The management view, or of a realm what its own manager may see, with what was done.
    pub(super) fn shown(&self, to: &Authority, done: Done) -> String {
        let mut reply = Map::new();
        match to {
            Authority::Global => {
                reply.insert("settings".to_owned(), self.view());
            }
            Authority::Realm(realm) => {
                reply.insert("realm".to_owned(), realm.as_str().into());
                reply.insert("settings".to_owned(), self.auth.realm_view(realm));
            }
        }
        reply.extend(done.0);
        ok(reply)
    }

    fn view(&self) -> Value {
        let mut view = self.auth.view();
        if let Some(members) = view.as_object_mut() {
            members.extend(self.host.view());
        }
        view
    }
}

/// A realm as it is named in answers; `null`: all of them.
pub(super) fn named(realm: Option<&RealmId>) -> Value {
    realm.map_or(Value::Null, |realm| json!(realm.as_str()))
}
