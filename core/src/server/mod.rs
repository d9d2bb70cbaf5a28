//! Assembly: settings → store, broker, listening port. The only room that knows all the others.
//!
//! [`Server::start`] is what the binary, the addon and tests call. The server owns its threads: one
//! for the broker's own tasks, and the transport's I/O threads; none of them is the caller's.

mod assemble;
mod config;
#[cfg(all(feature = "sqlite", feature = "redis"))]
mod fallback;
mod host;
mod housekeeping;
#[cfg(all(feature = "sqlite", feature = "redis"))]
mod mirror;
mod numbers;
mod options;
mod persistence;
mod reload;
mod rights;
mod security;
mod settings;
mod stores;
mod watch;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::auth::Auth;
use crate::broker::Broker;
use crate::limits::{Cap, Caps};
use crate::metrics::Metrics;
use crate::protocol::outbound;
use crate::session::{Links, Rules, SessionConfig, Sessions};
use crate::store::{Durability, Quota, RealmBounds, Store as _, StoreHealth};
use crate::transport::{self, Transport};
use crate::{Error, ErrorKind, Result};

use assemble::Base;
pub use config::{DEFAULT_PORT, IdleEviction, ServerConfig, Storage, TlsFiles};
use housekeeping::Owned;
use numbers::Numbers;
use persistence::{Applied, StateFile};
pub use persistence::{Persisted, Persistence, STATE_FILE};
pub use reload::Reloaded;
use reload::{Hot, Reloader};
use security::Kept;
pub use settings::{Settings, parse_env_file, parse_switch, quote_env_value, switch};
use stores::Stores;

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
    stores: Arc<Stores>,
    settings: Arc<Reloader>,
    warnings: Vec<String>,
    metrics: Arc<Metrics>,
    links: Arc<Links>,
    transport: Arc<Transport>,
    numbers: Numbers,
    auth: Arc<Auth>,
    /// Where realms and tokens are kept.
    kept: Kept,
    housekeeping: Owned,
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
        // Before anything is opened: a wrong file stops the start (P33).
        config.check()?;
        let mut warnings = Vec::new();
        let Applied {
            purpose,
            left,
            warning,
        } = state.apply(&mut config)?;
        warnings.extend(warning);
        apply_realm_bounds(&config, &config.bounds.realms);
        let base = Base::open(&config, state, purpose, left).await?;
        let auth = base.security.auth.clone();
        let (broker, stores) = (base.stores.broker.clone(), base.stores.clone());
        let housekeeping = Owned(stores.housekeeping.clone());
        let metrics = base.metrics.clone();
        let rules = Rules::new(session_config(&config));
        let (asked, clock) = (auth.clone(), config.clock.clone());
        let sessions = Sessions::new(broker.clone(), asked, clock, rules.clone(), &metrics);
        let links = sessions.links().clone();
        let hot = Hot::new(&config, rules, &base.security)?;
        let settings = Reloader::start(stores.clone(), hot.clone(), &metrics, &mut config);
        let (numbers, kept) = base.manage(&config, &settings, &sessions).await?;
        housekeeping.spawn(sessions.watch());
        let transport = match listen(&config, sessions, hot) {
            Ok(transport) => Arc::new(transport),
            Err(error) => {
                settings.stop();
                let closing = broker.clone();
                let close = async move { closing.close(Duration::from_secs(1)).await };
                if let Err(second) = housekeeping.run(close).await {
                    tracing::warn!("closing the store: {second}");
                }
                return Err(error);
            }
        };
        numbers.count(&transport);
        let local = transport.local_addr();
        if !auth.is_enabled() && !local.ip().is_loopback() {
            let warning = open_to_all(local);
            tracing::warn!("{warning}");
            warnings.push(warning);
        }
        Ok(Self {
            broker,
            stores,
            settings,
            warnings,
            metrics,
            links,
            transport,
            numbers,
            auth,
            kept,
            housekeeping,
            closed: Mutex::new(None),
        })
    }

    /// Who may do what; realms and tokens can be changed here.
    pub fn auth(&self) -> &Arc<Auth> {
        &self.auth
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

    /// Live numbers, counters and how the store is doing, as `getStats()` tells them.
    pub fn stats(&self) -> serde_json::Value {
        self.numbers.tell()
    }

    /// How the store is doing (P27).
    pub fn store_health(&self) -> StoreHealth {
        self.stores.health()
    }

    /// How long ago the oldest message that waits was produced, as far as they have been counted.
    pub fn oldest_waiting(&self) -> Option<Duration> {
        self.stores.oldest_waiting()
    }

    /// What an operator should know of how it started, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The name of the store in force, and what its yes survives (P1).
    pub fn storage(&self) -> (&'static str, Durability) {
        self.stores.in_force()
    }

    /// Lets another store take the place of the one in force, with everything that waits, while
    /// work goes on (P28). It is remembered in `restante.state.json` and beats what is configured
    /// at the next start. The old store is closed and marked as moved.
    ///
    /// # Errors
    /// `config` for memory in the place of a durable store, or a store that holds something, without
    /// `force`; what opening the new store says; `swap_in_progress` if a change is under way
    /// already, which goes on; `store_locked` if other brokers use the store in force. Nothing has
    /// changed then.
    pub async fn set_persistence(&self, wish: Persistence) -> Result<Persisted> {
        self.stores.change(wish, self.settings.written()).await
    }

    /// Reads the settings file again and lets what has changed count, all of it or nothing (P33). What
    /// cannot change while the server runs is named in the answer.
    ///
    /// # Errors
    /// `config` if there is no settings file, or by the path of a wrong value; what a change of the
    /// store says. Everything is as before then.
    pub async fn reload_settings(&self) -> Result<Reloaded> {
        self.settings.reload().await
    }

    /// Lets another settings file take the place of the one before, or of none, as
    /// [`Server::reload_settings`] does.
    ///
    /// # Errors
    /// As [`Server::reload_settings`]; the file before stays the one then.
    pub async fn load_settings(&self, path: impl AsRef<Path>) -> Result<Reloaded> {
        self.settings.load(path.as_ref()).await
    }

    /// What the last reading of the settings file has failed by; `None` once one has succeeded.
    pub fn settings_error(&self) -> Option<Error> {
        self.settings.error()
    }

    /// Writes a copy of the store as of one moment to a new file, while work goes on.
    ///
    /// # Errors
    /// `store_unsupported` if the store is no file; `config` if the path exists or cannot be
    /// written.
    pub async fn backup(&self, path: impl Into<PathBuf>) -> Result<()> {
        self.stores.store.backup(path.into()).await
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
        self.settings.stop();
        let broker = self.broker.clone();
        let outcome = self
            .housekeeping
            .run(async move { broker.close(timeout).await })
            .await;
        #[cfg(all(feature = "sqlite", feature = "redis"))]
        {
            let (broker, storage) = (self.broker.clone(), self.stores.storage.clone());
            let noting = async move { mirror::finish(&broker, &storage).await };
            let _ = self.housekeeping.run(noting).await;
        }
        self.transport.close(timeout.min(CLOSE_LINES)).await;
        let kept = self.kept.close().await;
        self.housekeeping.stop();
        outcome.and(kept)
    }
}

/// What to say of a port that others reach while nobody has to log in.
fn open_to_all(local: SocketAddr) -> String {
    let reach = match local.ip().is_unspecified() {
        true => "on all interfaces".to_owned(),
        false => format!("on {}", local.ip()),
    };
    format!(
        "anybody who reaches port {} may produce and consume: the broker listens {reach} and asks \
         nobody who they are; with host 127.0.0.1 only this machine reaches it",
        local.port()
    )
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

fn listen(config: &ServerConfig, sessions: Arc<Sessions>, hot: Hot) -> Result<Transport> {
    let listener = transport::bind(config.host.as_deref(), config.port)?;
    let services: Vec<(String, Arc<dyn transport::Service>)> = vec![("/".to_owned(), sessions)];
    let mut wanted = config.transport.clone();
    (wanted.doors, wanted.tls) = (hot.doors, hot.tls);
    let fallback = transport::refuse_all();
    Transport::start(listener, wanted, services, fallback, config.clock.clone())
}

/// What may wait in realms: in each by its own limits, else by those of all, else as options say.
fn apply_realm_bounds(config: &ServerConfig, realms: &RealmBounds) {
    let (limits, otherwise) = (&config.limits, config.bounds.base());
    if !limits.enabled {
        return realms.set(otherwise, HashMap::new());
    }
    let base = quota(&limits.base, otherwise);
    let own = limits.realms.iter();
    let own = own.map(|(realm, caps)| (realm.clone(), quota(caps, base)));
    realms.set(base, own.filter(|(_, own)| *own != base).collect());
}

/// What these limits say of what may wait; what they leave open is as otherwise.
fn quota(caps: &Caps, otherwise: Quota) -> Quota {
    let most = |cap: Option<Cap>, otherwise| cap.map_or(otherwise, Cap::most);
    Quota {
        queue: most(caps.max_queued, otherwise.queue),
        queued: most(caps.max_queued_per_realm, otherwise.queued),
        bytes: most(caps.max_queued_bytes_per_realm, otherwise.bytes),
    }
}

/// What sessions go by.
fn session_config(config: &ServerConfig) -> SessionConfig {
    SessionConfig {
        defaults: config.defaults,
        allow_anonymous: config.allow_anonymous,
        strict_from: config.strict_from,
        max_message_bytes: config.transport.max_message_bytes,
        limits: config.limits.clone(),
    }
}

/// Who may come in.
fn doors(config: &ServerConfig) -> transport::Doors {
    transport::Doors {
        trust_proxy: config.limits.trust_proxy.clone(),
        ..(**config.transport.doors.load()).clone()
    }
}

/// How long lines may take to empty once the broker is closed.
const CLOSE_LINES: Duration = Duration::from_secs(5);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("local_addr", &self.local_addr())
            .finish_non_exhaustive()
    }
}
