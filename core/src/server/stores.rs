//! The store in force, and how another one takes its place (P28).
//!
//! Opens it for a start and changes it while the server runs; `persistence` knows what is remembered
//! of that, `store/swap` how it is done. Called by the server and by `reload`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::config::{ServerConfig, Storage};
#[cfg(all(feature = "sqlite", feature = "redis"))]
use super::fallback;
use super::housekeeping::Housekeeping;
#[cfg(all(feature = "sqlite", feature = "redis"))]
use super::mirror;
use super::persistence::{OnFallback, Persisted, Persistence, StateFile};
use crate::broker::Broker;
use crate::clock::Clock;
use crate::store::{Bounds, Durability, Purpose, SharedStore, Store as _, StoreHealth, SwapStore};
use crate::{Error, ErrorKind, Result};

/// See the module.
pub(super) struct Stores {
    pub(super) broker: Arc<Broker>,
    pub(super) store: Arc<SwapStore>,
    /// The store in force; `None`: one made elsewhere.
    pub(super) storage: Arc<parking_lot::Mutex<Option<Storage>>>,
    pub(super) fallback: OnFallback,
    pub(super) state: StateFile,
    pub(super) bounds: Bounds,
    pub(super) store_timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) housekeeping: Arc<Housekeeping>,
}

impl Stores {
    /// How the store is doing (P27).
    pub(super) fn health(&self) -> StoreHealth {
        let mut health = self.store.health();
        self.fallback.show(&mut health);
        health
    }

    /// How long ago the oldest message that waits was produced, as far as they have been counted.
    pub(super) fn oldest_waiting(&self) -> Option<Duration> {
        let oldest = self.store.health().holding?.oldest?;
        Some(self.clock.now().since(oldest))
    }

    /// The name of the store in force, and what its yes survives (P1).
    pub(super) fn in_force(&self) -> (&'static str, Durability) {
        let storage = self.storage.lock();
        let name = storage.as_ref().map_or("custom", Storage::name);
        (name, self.store.durability())
    }

    /// See [`super::Server::set_persistence`]. `file` is what the settings file says of the store
    /// now: it counts again once it says something else.
    pub(super) async fn change(&self, wish: Persistence, file: Option<Value>) -> Result<Persisted> {
        let changing = self.store.change()?;
        if self.store.others() > 0 {
            let text = "other brokers use the store; stop them before it is changed";
            return Err(Error::new(ErrorKind::StoreLocked, text));
        }
        if self.fallback.is_on() {
            let why = "the server is on its fallback until Redis is back; change the store then";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let left = self.storage.lock().clone().unwrap_or_default();
        if wish.storage.is_same_redis(&left) {
            let why = format!("messages wait in {} already", left.place());
            return Err(Error::new(ErrorKind::StoreLocked, why));
        }
        let bounds = self.bounds.clone();
        let opening = wish
            .storage
            .open(Purpose::TakeCopy, bounds, self.store_timeout, &self.clock);
        let new = opening.await?;
        let durability = new.durability();
        if let Err(error) = wish.check(self.store.durability(), durability) {
            let _ = new.close().await;
            return Err(error);
        }
        let (store, state) = (self.store.clone(), self.state.clone());
        let place = wish.storage.place();
        let (name, storage) = (wish.storage.name(), wish.storage.clone());
        let (force, default_ttl) = (wish.force, wish.default_ttl);
        // There, so that it comes to its end whoever asked.
        let swapped = self.housekeeping.run(async move {
            let commit = move || state.write(&wish, &left, file);
            store.swap_to(changing, new, force, &place, commit).await
        });
        let copied = swapped.await?;
        let before = self.storage.lock().replace(storage);
        #[cfg(all(feature = "sqlite", feature = "redis"))]
        if before.is_none_or(|before| before.fallback().is_none()) {
            // Else it goes on by itself.
            keep_mirror(&self.housekeeping, &self.broker, &self.storage, &self.clock);
        }
        #[cfg(not(all(feature = "sqlite", feature = "redis")))]
        drop(before);
        self.broker.set_number();
        if let Some(ttl) = default_ttl {
            self.broker.set_default_ttl(ttl);
        }
        tracing::info!(
            storage = name,
            messages = copied.messages,
            pause = ?copied.pause,
            "the store has been changed"
        );
        Ok(Persisted {
            storage: name,
            durability,
            copied,
        })
    }
}

/// A store as it was opened.
pub(super) struct Opened {
    pub(super) store: SharedStore,
    storage: Option<Storage>,
    #[cfg(all(feature = "sqlite", feature = "redis"))]
    fallback: Option<fallback::Fallback>,
}

impl Opened {
    pub(super) async fn open(config: &ServerConfig, purpose: Purpose) -> Result<Self> {
        if let Some(store) = &config.store {
            return Ok(Self::of(store.clone(), None));
        }
        #[cfg(all(feature = "sqlite", feature = "redis"))]
        if let Storage::Redis(redis) = &config.storage
            && let Some(path) = &redis.fallback
        {
            let (store, fallback) = fallback::open(config, redis, path, purpose).await?;
            let storage = match &fallback {
                Some(_) => fallback::Fallback::storage(path),
                None => config.storage.clone(),
            };
            return Ok(Self {
                fallback,
                ..Self::of(store, Some(storage))
            });
        }
        let bounds = config.bounds.clone();
        let timeout = config.broker.store_timeout;
        let opening = config.storage.open(purpose, bounds, timeout, &config.clock);
        Ok(Self::of(opening.await?, Some(config.storage.clone())))
    }

    /// Where messages wait, from when on a fallback comes back by itself.
    pub(super) fn watch(
        self,
        housekeeping: &Housekeeping,
        broker: &Arc<Broker>,
        store: &Arc<SwapStore>,
        clock: &Arc<dyn Clock>,
    ) -> (Arc<parking_lot::Mutex<Option<Storage>>>, OnFallback) {
        let storage = Arc::new(parking_lot::Mutex::new(self.storage));
        #[cfg(all(feature = "sqlite", feature = "redis"))]
        if let Some(fallback) = self.fallback {
            let flag = fallback.flag();
            let broker = Arc::downgrade(broker);
            housekeeping.spawn(fallback.watch(broker, store.clone(), storage.clone()));
            return (storage, flag);
        }
        let _ = store;
        keep_mirror(housekeeping, broker, &storage, clock);
        (storage, OnFallback::default())
    }

    fn of(store: SharedStore, storage: Option<Storage>) -> Self {
        Self {
            store,
            storage,
            #[cfg(all(feature = "sqlite", feature = "redis"))]
            fallback: None,
        }
    }
}

/// Notes beside a fallback what Redis remembers, from now on, if messages wait in one that has any.
fn keep_mirror(
    housekeeping: &Housekeeping,
    broker: &Arc<Broker>,
    storage: &Arc<parking_lot::Mutex<Option<Storage>>>,
    clock: &Arc<dyn Clock>,
) {
    #[cfg(all(feature = "sqlite", feature = "redis"))]
    if mirror::wanted(storage).is_some() {
        let (broker, storage) = (Arc::downgrade(broker), storage.clone());
        housekeeping.spawn(mirror::keep(broker, storage, clock.clone()));
    }
    let _ = (housekeeping, broker, storage, clock);
}
