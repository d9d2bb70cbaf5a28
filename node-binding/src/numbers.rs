//! What a change of stores or a reading of the settings has done, as JSON. Called by `server`.

use restante::server::{Persisted, Reloaded};
use serde_json::{Value, json};

/// What a reading of the settings file has done.
pub(crate) fn of_reload(reloaded: &Reloaded) -> Value {
    json!({
        "changed": reloaded.changed,
        "needs_restart": reloaded.needs_restart,
        "warnings": reloaded.warnings,
    })
}

/// What a change of stores has done.
pub(crate) fn of_change(done: &Persisted) -> Value {
    json!({
        "storage": done.storage,
        "level": done.durability.as_str(),
        "migrated": {
            "messages": done.copied.messages,
            "dlq": done.copied.dead_letters,
            "subscriptions": done.copied.queues,
        },
        "paused_ms": done.copied.pause.as_secs_f64() * 1000.0,
    })
}
