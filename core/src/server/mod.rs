//! Assembly: settings → store, broker, listening port. The only room that knows all the others.
//!
//! [`Server::start`] is what the binary, the addon and tests call. The server owns its threads: one
//! for the broker's own tasks, and the transport's I/O threads; none of them is the caller's.

mod config;
#[cfg(all(feature = "sqlite", feature = "redis"))]
mod fallback;
mod housekeeping;
#[cfg(all(feature = "sqlite", feature = "redis"))]
mod mirror;
mod options;
mod persistence;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::broker::{Broker, BrokerConfig};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::protocol::outbound;
use crate::session::{Frames, Links, SessionConfig, Sessions};
use crate::store::{Bounds, Durability, Purpose, SharedStore, Store as _, StoreHealth, SwapStore};
use crate::transport::{self, Transport};
use crate::{Error, ErrorKind, Result};

pub use config::{DEFAULT_PORT, IdleEviction, ServerConfig, Storage};
use housekeeping::Housekeeping;
use persistence::{Applied, OnFallback, StateFile};
pub use persistence::{Persisted, Persistence, STATE_FILE};

/// A running broker with its port. Dropped without [`Server::close`] it stops its threads at once.
///
/// ```no_run
/// # async fn run() -> restante::Result<()> {
/// use restante::server::{Server, ServerConfig};
///
/// let mut config = ServerConfig::default();
/// config.port = 0;
/// let server = Server::start(config).await?;
/// println!("listening on {}", server.local_addr());
/// server.close(std::time::Duration::from_secs(10)).await?;
/// # Ok(()) }
/// ```
pub struct Server {
    broker: Arc<Broker>,
    store: Arc<SwapStore>,
    /// The store in force; `None`: one made elsewhere.
    storage: Arc<parking_lot::Mutex<Option<Storage>>>,
    fallback: OnFallback,
    state: StateFile,
    warnings: Vec<String>,
    bounds: Bounds,
    store_timeout: Duration,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    links: Arc<Links>,
    transport: Transport,
    housekeeping: Housekeeping,
    closed: Mutex<Option<Result<()>>>,
}

impl Server {
    /// Opens the store, loads what is remembered, then opens the port (P4).
    ///
    /// # Errors
    /// `config` for a port that is in use or a host nobody knows; what the store says, see
    /// [`SqliteStore::open`](crate::store::SqliteStore::open).
    pub async fn start(mut config: ServerConfig) -> Result<Self> {
        let state = StateFile::of(&config);
        let Applied {
            purpose,
            left,
            warning,
        } = state.apply(&mut config)?;
        let warnings = warning.into_iter().collect();
        let clock = config.clock.clone();
        let metrics = Arc::new(Metrics::default());
        let frames = Frames::new(config.delivery_chunk_threshold, clock.clone());
        let opened = Opened::open(&config, purpose).await?;
        let store = Arc::new(SwapStore::new(opened.store.clone(), clock.clone()));
        let broker_config = broker_config(&config);
        let broker = Broker::new(
            broker_config,
            store.clone(),
            clock.clone(),
            frames.clone(),
            metrics.clone(),
        );
        let housekeeping = Housekeeping::start()?;
        let opening = broker.clone();
        let (place, noting) = (config.storage.place(), clock.clone());
        housekeeping
            .run(async move {
                if let Some(left) = left {
                    left.note_moved(place, noting).await;
                }
                opening.open().await
            })
            .await?;
        let (transport, links) = match Self::listen(&config, &broker, &clock) {
            Ok(listening) => listening,
            Err(error) => {
                let closing = broker.clone();
                let close = async move { closing.close(Duration::from_secs(1)).await };
                if let Err(second) = housekeeping.run(close).await {
                    tracing::warn!("closing the store: {second}");
                }
                return Err(error);
            }
        };
        let (storage, fallback) = opened.watch(&housekeeping, &broker, &store, &clock);
        Ok(Self {
            broker,
            store,
            storage,
            fallback,
            state,
            warnings,
            bounds: config.bounds,
            store_timeout: config.broker.store_timeout,
            clock,
            metrics,
            links,
            transport,
            housekeeping,
            closed: Mutex::new(None),
        })
    }

    fn listen(
        config: &ServerConfig,
        broker: &Arc<Broker>,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Transport, Arc<Links>)> {
        let listener = transport::bind(config.host.as_deref(), config.port)?;
        let sessions = Sessions::new(
            broker.clone(),
            clock.clone(),
            SessionConfig {
                defaults: config.defaults,
                allow_anonymous: config.allow_anonymous,
                strict_from: config.strict_from,
                max_message_bytes: config.transport.max_message_bytes,
            },
        );
        let links = sessions.links().clone();
        let services: Vec<(String, Arc<dyn transport::Service>)> = vec![("/".to_owned(), sessions)];
        let transport = Transport::start(
            listener,
            config.transport.clone(),
            services,
            transport::refuse_all(),
            clock.clone(),
        )?;
        Ok((transport, links))
    }

    /// Where it listens; the port that was picked if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.transport.local_addr()
    }

    /// The broker, for what has no wire: dead letters, queues, sweeps.
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// What was counted since the start.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Connections and bytes under way.
    pub fn connections(&self) -> transport::Stats {
        self.transport.stats()
    }

    /// How the store is doing (P27).
    pub fn store_health(&self) -> StoreHealth {
        let mut health = self.store.health();
        self.fallback.show(&mut health);
        health
    }

    /// How long ago the oldest message that waits was produced, as far as they have been counted.
    pub fn oldest_waiting(&self) -> Option<Duration> {
        let oldest = self.store.health().holding?.oldest?;
        Some(self.clock.now().since(oldest))
    }

    /// What an operator should know of how it started, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The name of the store in force, and what its yes survives (P1).
    pub fn storage(&self) -> (&'static str, Durability) {
        let storage = self.storage.lock();
        let name = storage.as_ref().map_or("custom", Storage::name);
        (name, self.store.durability())
    }

    /// Lets another store take the place of the one in force, with everything that waits, while
    /// work goes on (P28). It is remembered in `restante.state.json` and beats what is configured
    /// at the next start. The old store is closed and marked as moved.
    ///
    /// # Errors
    /// `config` for memory in the place of a durable store, or a store that holds something, without
    /// `force`; what opening the new store says; `store_unavailable` if a change is under way
    /// already; `store_locked` if other brokers use the store in force. Nothing has changed then.
    pub async fn set_persistence(&self, wish: Persistence) -> Result<Persisted> {
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
            let commit = move || state.write(&wish, &left);
            store.swap_to(new, force, &place, commit).await
        });
        let copied = swapped.await?;
        let before = self.storage.lock().replace(storage);
        #[cfg(all(feature = "sqlite", feature = "redis"))]
        if before.is_none_or(|before| before.fallback().is_none()) {
            // Else it goes on by itself.
            keep_mirror(&self.housekeeping, &self.broker, &self.storage, &self.clock);
        }
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

    /// Writes a copy of the store as of one moment to a new file, while work goes on.
    ///
    /// # Errors
    /// `store_unsupported` if the store is no file; `config` if the path exists or cannot be
    /// written.
    pub async fn backup(&self, path: impl Into<PathBuf>) -> Result<()> {
        self.store.backup(path.into()).await
    }

    /// Sends an event to the session with this socket id, or to all: beside the broker, to whatever
    /// the clients listen for. A session whose line is full, or with `volatile` one for which
    /// anything waits, does not get it (P23). How many do.
    ///
    /// # Errors
    /// `bad_command` for an event name that is empty or longer than 1,024 bytes, and for a payload
    /// that is no JSON.
    pub fn emit(&self, to: Option<&str>, emit: &Emit<'_>) -> Result<usize> {
        let bad = |text: &str| Error::new(ErrorKind::BadCommand, text);
        if !(1..=MAX_EVENT).contains(&emit.event.len()) {
            return Err(bad("an event's name has 1 to 1024 bytes"));
        }
        if serde_json::from_str::<serde::de::IgnoredAny>(emit.payload).is_err() {
            return Err(bad("the payload is no JSON"));
        }
        let mut frames = Vec::new();
        outbound::raw_event(&mut frames, emit.event, emit.payload, emit.attachments);
        Ok(self.links.offer(to, &Bytes::from(frames), emit.volatile))
    }

    /// Stops: refuses new work, gives what was sent a moment to arrive, closes every connection and
    /// the store, frees port and threads (P32). Any time, repeatedly; later calls wait for the first.
    ///
    /// # Errors
    /// `timeout` if that took longer than `timeout`; everything is closed all the same.
    pub async fn close(&self, timeout: Duration) -> Result<()> {
        let mut closed = self.closed.lock().await;
        if let Some(outcome) = &*closed {
            return outcome.clone();
        }
        let outcome = self.shut_down(timeout).await;
        *closed = Some(outcome.clone());
        outcome
    }

    async fn shut_down(&self, timeout: Duration) -> Result<()> {
        let broker = self.broker.clone();
        let outcome = self
            .housekeeping
            .run(async move { broker.close(timeout).await })
            .await;
        #[cfg(all(feature = "sqlite", feature = "redis"))]
        {
            let (broker, storage) = (self.broker.clone(), self.storage.clone());
            let noting = async move { mirror::finish(&broker, &storage).await };
            let _ = self.housekeeping.run(noting).await;
        }
        self.transport.close(timeout.min(CLOSE_LINES)).await;
        self.housekeeping.stop();
        outcome
    }
}

/// A store as it was opened.
struct Opened {
    store: SharedStore,
    storage: Option<Storage>,
    #[cfg(all(feature = "sqlite", feature = "redis"))]
    fallback: Option<fallback::Fallback>,
}

impl Opened {
    async fn open(config: &ServerConfig, purpose: Purpose) -> Result<Self> {
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
    fn watch(
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

/// An event that [`Server::emit`] sends.
#[derive(Debug, Clone, Copy)]
pub struct Emit<'a> {
    /// Its name, 1 to 1,024 bytes.
    pub event: &'a str,
    /// JSON text, with placeholders for the attachments.
    pub payload: &'a str,
    /// Binary parts in the order of their placeholders.
    pub attachments: &'a [Bytes],
    /// Only to who has nothing waiting.
    pub volatile: bool,
}

const MAX_EVENT: usize = 1_024;

/// The broker's settings, with those that stand elsewhere in the server's.
fn broker_config(config: &ServerConfig) -> BrokerConfig {
    let mut broker = config.broker.clone();
    broker.ping_interval = config.transport.ping_interval;
    let idle = config.idle_eviction;
    broker.idle_ttl = if idle.enabled {
        idle.ttl
    } else {
        Duration::MAX
    };
    broker.sweep_interval = broker.sweep_interval.min(idle.interval).max(SHORTEST_SWEEP);
    broker
}

/// However short an interval is asked for.
const SHORTEST_SWEEP: Duration = Duration::from_millis(10);

/// How long lines may take to empty once the broker is closed.
const CLOSE_LINES: Duration = Duration::from_secs(5);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("local_addr", &self.local_addr())
            .finish_non_exhaustive()
    }
}
