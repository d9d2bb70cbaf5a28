//! What operators are told, as JSON: one shape each for realms, queues and dead letters, whichever
//! door it leaves by. Bodies are never re-serialised (P20). Knows no command.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::broker::{QueueStats, RealmStats};
use crate::model::RealmId;
use crate::store::{DeadLetter, QueueKind};

/// Live numbers of a realm.
pub fn of_realm(stats: &RealmStats) -> Value {
    json!({
        "producers": { "total": stats.producers, "online": stats.producers_online },
        "consumers": { "total": stats.consumers, "online": stats.consumers_online },
        "subscriptions": stats.subscriptions,
        "queues": stats.queues,
        "sessions": stats.sessions,
    })
}

/// One remembered queue.
pub fn of_queue(realm: &RealmId, queue: &QueueStats) -> Value {
    json!({
        "realm": realm.to_string(),
        "queue": queue.queue.0.to_string(),
        "key": queue.key.wire_name(),
        "name": &*queue.name,
        "kind": kind(queue.is_group),
        "durable": queue.is_durable,
        "waiting": queue.waiting,
        "in_flight": queue.in_flight,
        "oldest": queue.oldest.map(|age| age.as_secs_f64()),
        "sessions": queue.sessions,
    })
}

/// One dead letter, with the message as its consumer got it. Bodies are never re-serialised (P20).
#[derive(Serialize)]
pub struct Letter<'a> {
    id: String,
    realm: &'a str,
    event: String,
    consumer: &'a str,
    kind: &'static str,
    message: Envelope<'a>,
    producer: &'a str,
    created_at: u64,
    expires_at: Option<u64>,
    reason: &'a str,
    first_error: Option<&'a str>,
    last_error: Option<&'a str>,
    attempts: u32,
    rounds: u32,
    dead_lettered_at: u64,
}

#[derive(Serialize)]
struct Envelope<'a> {
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a RawValue>,
    from: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    enc: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a RawValue>,
}

impl<'a> From<&'a DeadLetter> for Letter<'a> {
    fn from(letter: &'a DeadLetter) -> Self {
        let message = &*letter.message;
        let extras = message.extras.as_deref();
        Self {
            id: letter.id.to_string(),
            realm: letter.realm.as_str(),
            event: letter.key.wire_name(),
            consumer: &letter.name,
            kind: kind(letter.kind == QueueKind::Group),
            message: Envelope {
                event: &message.event,
                message: text(message.body.as_ref()),
                from: &message.from,
                enc: text(extras.and_then(|extras| extras.enc.as_ref())),
                to: text(extras.and_then(|extras| extras.to.as_ref())),
                content_type: text(extras.and_then(|extras| extras.content_type.as_ref())),
                headers: text(extras.and_then(|extras| extras.headers.as_ref())),
            },
            producer: &message.from,
            created_at: message.produced.0,
            expires_at: message.expires.map(|at| at.0),
            reason: &letter.reason,
            first_error: letter.first_error.as_deref(),
            last_error: letter.last_error.as_deref(),
            attempts: letter.attempts,
            rounds: letter.rounds,
            dead_lettered_at: letter.dead_at.0,
        }
    }
}

fn kind(is_group: bool) -> &'static str {
    if is_group { "group" } else { "consumer" }
}

/// JSON text as it is stored.
fn text(bytes: Option<&Bytes>) -> Option<&RawValue> {
    serde_json::from_slice(bytes?).ok()
}
