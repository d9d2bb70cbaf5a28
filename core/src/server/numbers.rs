//! What a server says of itself: live numbers, counters, how its store is doing. Called by whoever asks
//! for statistics; knows no door.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use serde_json::{Value, json};

use super::reload::Reloader;
use super::stores::Stores;
use crate::admin::of_realm;
use crate::metrics::{Family, Metrics};
use crate::transport::{self, Transport};

/// Where the numbers are.
#[derive(Clone)]
pub(super) struct Numbers {
    stores: Arc<Stores>,
    settings: Arc<Reloader>,
    metrics: Arc<Metrics>,
    /// Once there is a port.
    transport: Arc<OnceLock<Weak<Transport>>>,
}

impl Numbers {
    pub(super) fn new(stores: Arc<Stores>, settings: Arc<Reloader>, metrics: Arc<Metrics>) -> Self {
        Self {
            stores,
            settings,
            metrics,
            transport: Arc::default(),
        }
    }

    /// From now on its connections are counted.
    pub(super) fn count(&self, transport: &Arc<Transport>) {
        // There is one.
        let _ = self.transport.set(Arc::downgrade(transport));
    }

    fn connections(&self) -> transport::Stats {
        let transport = self.transport.get().and_then(Weak::upgrade);
        transport
            .map(|transport| transport.stats())
            .unwrap_or_default()
    }

    /// Live numbers and counters.
    pub(super) fn tell(&self) -> Value {
        let realms = self.stores.broker.stats();
        let realms = realms
            .iter()
            .map(|(realm, stats)| (realm.to_string(), of_realm(stats)));
        let connections = self.connections();
        let families = self.metrics.families();
        let counters = families
            .into_iter()
            .map(|family: &Family| (family.name, family.total()));
        json!({
            "realms": realms.collect::<BTreeMap<String, Value>>(),
            "connections_current": connections.sessions,
            "connections_total": connections.sessions_total,
            "inflight_bytes": connections.inflight_bytes,
            "counters": counters.collect::<BTreeMap<&str, u64>>(),
            "store": self.store(),
            "settings_error": self.settings.error().map(|error| error.message().to_owned()),
        })
    }

    /// What the store survives, what it cannot hold, and how it is doing.
    fn store(&self) -> Value {
        let health = self.stores.health();
        let (storage, durability) = self.stores.in_force();
        let store = self.stores.broker.store();
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
            "oldest": self.stores.oldest_waiting().map(|age| age.as_secs_f64()),
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
}
