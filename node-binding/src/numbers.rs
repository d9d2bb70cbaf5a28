//! What operators are told, as JSON: statistics and dead letters. Called by `server`.

use std::collections::BTreeMap;

use bytes::Bytes;
use restante::broker::{QueueStats, RealmStats};
use restante::metrics::Family;
use restante::model::RealmId;
use restante::server::{Persisted, Reloaded, Server};
use restante::store::{DeadLetter, Durability, QueueKind};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Live numbers and counters.
pub(crate) fn of_server(server: &Server) -> Value {
    let realms: BTreeMap<String, Value> = server
        .broker()
        .stats()
        .iter()
        .map(|(realm, stats)| (realm.to_string(), of_realm(stats)))
        .collect();
    let connections = server.connections();
    let metrics = server.metrics().clone();
    let counters: BTreeMap<&str, u64> = metrics
        .families()
        .into_iter()
        .map(|family: &Family| (family.name, family.total()))
        .collect();
    json!({
        "realms": realms,
        "connections_current": connections.sessions,
        "connections_total": connections.sessions_total,
        "inflight_bytes": connections.inflight_bytes,
        "counters": counters,
        "store": of_store(server),
        "settings_error": server.settings_error().map(|error| error.message().to_owned()),
    })
}

/// What a reading of the settings file has done.
pub(crate) fn of_reload(reloaded: &Reloaded) -> Value {
    json!({
        "changed": reloaded.changed,
        "needs_restart": reloaded.needs_restart,
        "warnings": reloaded.warnings,
    })
}

/// What the store survives, what it cannot hold, and how it is doing.
fn of_store(server: &Server) -> Value {
    let health = server.store_health();
    let (storage, durability) = server.storage();
    let store = server.broker().store();
    let gaps = store.gaps().into_iter();
    let gaps: Vec<Value> = gaps
        .map(|gap| json!({ "promise": gap.promise, "what": gap.what }))
        .collect();
    let mut store = json!({
        "storage": storage,
        "level": level(durability),
        "failures": store.counters().failures,
        "gaps": gaps,
        "state": if health.is_degraded { "degraded" } else { "ok" },
        "degraded": health.is_degraded,
        "depth": health.holding.map(|holding| json!({
            "messages": holding.messages,
            "bytes": holding.bytes,
        })),
        "oldest": server.oldest_waiting().map(|age| age.as_secs_f64()),
        "delayed": health.holding.map(|holding| holding.delayed),
        "dead_letters": health.holding.map(|holding| holding.dead_letters),
        "last_error": health.last_error.map(|(at, message)| json!({
            "at": at.0,
            "message": &*message,
        })),
        "warnings": health.warnings,
    });
    for (name, figure) in health.figures {
        store[name] = figure.into();
    }
    store
}

/// What a yes of the store survives, in a word.
fn level(durability: Durability) -> &'static str {
    match durability {
        Durability::Disk => "disk",
        Durability::Process => "process",
        _ => "memory",
    }
}

/// What a change of stores has done.
pub(crate) fn of_change(done: &Persisted) -> Value {
    json!({
        "storage": done.storage,
        "level": level(done.durability),
        "migrated": {
            "messages": done.copied.messages,
            "dlq": done.copied.dead_letters,
            "subscriptions": done.copied.queues,
        },
        "paused_ms": done.copied.pause.as_secs_f64() * 1000.0,
    })
}

fn of_realm(stats: &RealmStats) -> Value {
    json!({
        "producers": { "total": stats.producers, "online": stats.producers_online },
        "consumers": { "total": stats.consumers, "online": stats.consumers_online },
        "subscriptions": stats.subscriptions,
        "queues": stats.queues,
        "sessions": stats.sessions,
    })
}

/// One remembered queue.
pub(crate) fn of_queue(realm: &RealmId, queue: &QueueStats) -> Value {
    json!({
        "realm": realm.to_string(),
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
pub(crate) struct Letter<'a> {
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
