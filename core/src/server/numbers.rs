//! What a server says of itself: live numbers, counters, how its store is doing. Called by whoever asks
//! for statistics; knows no door.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Server;
use crate::admin::of_realm;
use crate::metrics::Family;

/// Live numbers and counters.
pub(super) fn of_server(server: &Server) -> Value {
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
        "level": durability.as_str(),
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
