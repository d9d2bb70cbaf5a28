//! What a server stands on, put together in its order: store, who may do what, broker; then management
//! over them. Called by the server's start, which opens the doors.

use std::sync::Arc;
use std::time::Duration;

use super::Storage;
use super::config::ServerConfig;
use super::host::{self, ServerHost};
use super::housekeeping::Housekeeping;
use super::numbers::Numbers;
use super::persistence::StateFile;
use super::reload::Reloader;
use super::rights::AuthRights;
use super::security::{Kept, Security};
use super::stores::{Opened, Stores};
use crate::Result;
use crate::auth::Auth;
use crate::broker::{Broker, BrokerConfig};
use crate::metrics::Metrics;
use crate::session::{Frames, Sessions};
use crate::store::{Purpose, SwapStore};

/// However short an interval is asked for.
const SHORTEST_SWEEP: Duration = Duration::from_millis(10);

/// See the module.
pub(super) struct Base {
    pub(super) stores: Arc<Stores>,
    pub(super) security: Security,
    pub(super) metrics: Arc<Metrics>,
}

impl Base {
    /// Opens the store and loads what is remembered (P4). `left` is the store before, which is to know
    /// that it is.
    ///
    /// # Errors
    /// What the stores say.
    pub(super) async fn open(
        config: &ServerConfig,
        state: StateFile,
        purpose: Purpose,
        left: Option<Storage>,
    ) -> Result<Self> {
        let metrics = Arc::new(Metrics::default());
        let opened = Opened::open(config, purpose).await?;
        let store = Arc::new(SwapStore::new(opened.store.clone(), config.clock.clone()));
        let housekeeping = Arc::new(Housekeeping::start()?);
        let security = Security::open(config, &store).await?;
        let broker = new_broker(config, &store, &security.auth, &metrics);
        let opening = broker.clone();
        let (place, noting) = (config.storage.place(), config.clock.clone());
        housekeeping
            .run(async move {
                if let Some(left) = left {
                    left.note_moved(place, noting).await;
                }
                opening.open().await
            })
            .await?;
        let (storage, fallback) = opened.watch(&housekeeping, &broker, &store, &config.clock);
        let stores = Arc::new(Stores {
            broker,
            store,
            storage,
            fallback,
            state,
            bounds: config.bounds.clone(),
            store_timeout: config.broker.store_timeout,
            clock: config.clock.clone(),
            housekeeping,
        });
        Ok(Self {
            stores,
            security,
            metrics,
        })
    }

    /// Lets orders in, and follows what ends by itself.
    ///
    /// # Errors
    /// What the store says of realms that have ended meanwhile.
    pub(super) async fn manage(
        self,
        config: &ServerConfig,
        settings: &Arc<Reloader>,
        sessions: &Arc<Sessions>,
    ) -> Result<(Numbers, Kept)> {
        let Self {
            stores,
            security,
            metrics,
        } = self;
        let numbers = Numbers::new(stores.clone(), settings.clone(), metrics);
        let host = Arc::new(ServerHost {
            numbers: numbers.clone(),
            stores: stores.clone(),
            settings: settings.clone(),
            sessions: Arc::downgrade(sessions),
            folders: host::Folders::of(&config.data_dir, &config.storage_paths),
        });
        let housekeeping = stores.housekeeping.clone();
        let (tasks, sessions) = (housekeeping.clone(), sessions.clone());
        let managed = housekeeping.run(async move {
            let spawn = |task| tasks.spawn(task);
            let Stores { broker, store, .. } = &*stores;
            security.manage(broker, store, &sessions, host, spawn).await
        });
        Ok((numbers, managed.await?))
    }
}

fn new_broker(
    config: &ServerConfig,
    store: &Arc<SwapStore>,
    auth: &Arc<Auth>,
    metrics: &Arc<Metrics>,
) -> Arc<Broker> {
    let clock = config.clock.clone();
    let frames = Frames::new(config.delivery_chunk_threshold, clock.clone());
    let wanted = broker_config(config, auth);
    Broker::new(wanted, store.clone(), clock, frames, metrics.clone())
}

/// The broker's settings, with those that stand elsewhere in the server's.
fn broker_config(config: &ServerConfig, auth: &Arc<Auth>) -> BrokerConfig {
    let mut broker = config.broker.clone();
    broker.ping_interval = config.transport.ping_interval;
    broker.rights = Arc::new(AuthRights(auth.clone()));
    let idle = config.idle_eviction;
    broker.idle_ttl = if idle.enabled {
        idle.ttl
    } else {
        Duration::MAX
    };
    broker.sweep_interval = broker.sweep_interval.min(idle.interval).max(SHORTEST_SWEEP);
    broker
}
