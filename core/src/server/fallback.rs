//! What a server does whose Redis is away when it starts: it begins on a SQLite file, says so all the
//! time, and brings everything back to Redis when that is there again (P29).
//!
//! The file counts as brought back once it is marked as moved; until then every start begins with it,
//! so nothing waits in two places unseen. Knows how stores are opened, not how they are merged.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::broker::Broker;
use crate::clock::Clock;
use crate::store::fallback::{FIRST_NUMBER, Merging, begin_numbers, recall_mirror};
use crate::store::{
    Bounds, Purpose, RedisOptions, SharedStore, SqliteOptions, SqliteStore, SwapStore,
};
use crate::{Error, ErrorKind, Result};

use super::config::{ServerConfig, Storage};
use super::mirror;
use super::persistence::OnFallback;

/// Between two looks whether Redis is back.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Rows left below which sessions are closed for the last of it.
const LITTLE: u64 = 1_000;

/// What it takes to come back from a fallback.
pub(super) struct Fallback {
    redis: RedisOptions,
    bounds: Bounds,
    clock: Arc<dyn Clock>,
    purpose: Purpose,
    is_on: OnFallback,
}

fn is_away(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StoreUnavailable | ErrorKind::StoreTimeout
    )
}

fn file(path: &Path) -> SqliteOptions {
    SqliteOptions {
        path: Some(path.to_owned()),
        ..SqliteOptions::default()
    }
}

/// Opens Redis, with what a fallback has kept for it, or the fallback.
///
/// # Errors
/// What the stores say; a Redis that is there and is not to be used is no reason for a fallback.
pub(super) async fn open(
    config: &ServerConfig,
    redis: &RedisOptions,
    path: &Path,
    purpose: Purpose,
) -> Result<(SharedStore, Option<Fallback>)> {
    let mut redis = redis.clone();
    redis.timeout = config.broker.store_timeout;
    let fallback = Fallback {
        redis,
        bounds: config.bounds.clone(),
        clock: config.clock.clone(),
        purpose,
        is_on: OnFallback::default(),
    };
    match fallback.redis().await {
        Ok(store) => {
            fallback.bring_back_at_rest(path, &store).await?;
            Ok((store, None))
        }
        Err(error) if is_away(&error) => {
            tracing::error!(
                %error,
                "Redis is away: messages wait in the fallback file {} until it is back",
                path.display()
            );
            let store = fallback.begin(path).await?;
            fallback.is_on.set(true);
            Ok((store, Some(fallback)))
        }
        Err(error) => Err(error),
    }
}

impl Fallback {
    pub(super) fn flag(&self) -> OnFallback {
        self.is_on.clone()
    }

    /// Where it waits meanwhile.
    pub(super) fn storage(path: &Path) -> Storage {
        Storage::Sqlite(file(path))
    }

    async fn redis(&self) -> Result<SharedStore> {
        let probe = self.redis.probe_timeout;
        let storage = Storage::Redis(self.redis.clone());
        let timeout = self.redis.timeout;
        let opening = storage.open(self.purpose, self.bounds.clone(), timeout, &self.clock);
        match tokio::time::timeout(probe, opening).await {
            Ok(opened) => opened,
            Err(_) => {
                let why = format!("Redis did not answer in {probe:?}");
                Err(Error::new(ErrorKind::StoreTimeout, why))
            }
        }
    }

    async fn file(&self, purpose: Purpose, path: &Path) -> Result<SharedStore> {
        let (bounds, clock) = (self.bounds.clone(), self.clock.clone());
        let opened = SqliteStore::open_for(purpose, file(path), bounds, clock).await;
        Ok(Arc::new(opened?))
    }

    /// The file as the store in force: what it holds was not brought back yet, or it is emptied.
    async fn begin(&self, path: &Path) -> Result<SharedStore> {
        let is_done = SqliteStore::has_moved(path)?;
        let purpose = if is_done {
            Purpose::TakeCopy
        } else {
            Purpose::Lead
        };
        let store = self.file(purpose, path).await?;
        begin_numbers(&*store, is_done).await?;
        recall_mirror(path, &*store).await?;
        Ok(store)
    }

    /// Brings back what a server has left that ended before it could.
    async fn bring_back_at_rest(&self, path: &Path, redis: &SharedStore) -> Result<()> {
        if !path.exists() || SqliteStore::has_moved(path)? {
            return Ok(());
        }
        let store = self.file(Purpose::Lead, path).await?;
        let mut merging = Merging::begin(store.clone(), redis.clone()).await?;
        while merging.page().await? > 0 {}
        let merged = merging.finish(self.clock.now()).await?;
        store.moved(&self.place()).await?;
        store.close().await?;
        if merged != Default::default() {
            tracing::warn!(
                messages = merged.messages,
                dead_letters = merged.dead_letters,
                "what waited in the fallback file {} was brought back to Redis",
                path.display()
            );
        }
        Ok(())
    }

    fn place(&self) -> String {
        Storage::Redis(self.redis.clone()).place()
    }

    /// Looks for Redis until it is back, and has it lead. Ends with the broker.
    pub(super) async fn watch(
        self,
        broker: Weak<Broker>,
        store: Arc<SwapStore>,
        storage: Arc<parking_lot::Mutex<Option<Storage>>>,
    ) {
        let mut pause = SHORTEST;
        loop {
            self.clock.sleep_until(self.clock.elapsed() + pause).await;
            pause = (pause * 2).min(LONGEST);
            let Ok(redis) = self.redis().await else {
                if broker.strong_count() == 0 {
                    return;
                }
                continue;
            };
            let Some(broker) = broker.upgrade() else {
                return;
            };
            match Box::pin(self.come_back(&broker, &store, &redis)).await {
                Ok(()) => {
                    *storage.lock() = Some(Storage::Redis(self.redis));
                    self.is_on.set(false);
                    let broker = Arc::downgrade(&broker);
                    return mirror::keep(broker, storage, self.clock).await;
                }
                Err(error) => {
                    tracing::error!(%error, "the fallback could not be brought back to Redis; trying again");
                    let _ = redis.close().await;
                }
            }
        }
    }

    async fn come_back(
        &self,
        broker: &Arc<Broker>,
        store: &Arc<SwapStore>,
        redis: &SharedStore,
    ) -> Result<()> {
        let old = store.current();
        let mut merging = Merging::begin(old.clone(), redis.clone()).await?;
        while merging.page().await? >= LITTLE {}
        let began = self.clock.elapsed();
        let change = async {
            let last = async {
                while merging.page().await? > 0 {}
                let merged = merging.finish(self.clock.now()).await?;
                let queues = redis.queues().await?;
                // From here on Redis leads, whatever ends this.
                old.moved(&self.place()).await?;
                Ok((merged, queues))
            };
            store.replace(redis.clone(), FIRST_NUMBER, last).await
        };
        let merged = Box::pin(broker.begin_anew(change)).await?;
        tracing::warn!(
            messages = merged.messages,
            dead_letters = merged.dead_letters,
            pause = ?self.clock.elapsed().saturating_sub(began),
            "Redis is back and holds what waited in the fallback file"
        );
        Ok(())
    }
}
