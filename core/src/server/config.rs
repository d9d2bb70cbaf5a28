//! Every setting of a server with its default. Knows no file format and no command line:
//! `options` reads JSON into this, the binary reads flags into this.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::settings::Source;
use crate::auth::{Auth, AuthSettings, Validator};
use crate::broker::BrokerConfig;
use crate::clock::{Clock, SystemClock};
use crate::limits::Limits;
use crate::model::SubscriptionDefaults;
#[cfg(feature = "redis")]
use crate::store::RedisOptions;
#[cfg(feature = "sqlite")]
use crate::store::SqliteOptions;
use crate::store::{Bounds, Store};
use crate::tls::{Pem, ServerTls};
use crate::{Result, transport};

/// The port of the existing clients.
pub const DEFAULT_PORT: u16 = 17352;

/// How a server is to run; the default is what `new Server()` starts.
#[non_exhaustive]
#[derive(Clone)]
pub struct ServerConfig {
    /// Address or name to listen on; `None`: all interfaces, IPv6 and IPv4.
    pub host: Option<String>,
    /// TCP port, 17352 by default; 0 picks a free one.
    pub port: u16,
    /// Sockets, heartbeat and sizes.
    pub transport: transport::Config,
    /// Routing, delivery and their time limits.
    pub broker: BrokerConfig,
    /// What the store may hold.
    pub bounds: Bounds,
    /// What a SUBSCRIBE gets that does not say.
    pub defaults: SubscriptionDefaults,
    /// A delivery whose JSON text has more UTF-16 units than this goes out in chunks; 262,144.
    pub delivery_chunk_threshold: usize,
    /// `from` must be a producer registered on the connection; `None`: if authentication is on.
    pub strict_from: Option<bool>,
    /// Whether `ANONYMOUS…` names may register; true.
    pub allow_anonymous: bool,
    /// When offline names leave the live tables (wire §10.3).
    pub idle_eviction: IdleEviction,
    /// Where messages wait, within [`ServerConfig::bounds`]; memory.
    pub storage: Storage,
    /// A store made elsewhere; then `storage` says nothing.
    pub store: Option<Arc<dyn Store>>,
    /// Where `restante.state.json` is, which says what store was set while the server ran and beats
    /// `storage` and `store` (P28); the working directory.
    pub data_dir: PathBuf,
    /// What to secure connections by; none.
    pub tls: Option<TlsFiles>,
    /// How much is too much; see [`Limits::caps`].
    pub limits: Arc<Limits>,
    /// Who may do what; nobody is asked.
    pub auth: AuthSettings,
    /// Who says who may do what, made elsewhere; then `auth` says nothing.
    pub authority: Option<Arc<Auth>>,
    /// A database of its own for realms and tokens; with the messages, or beside the settings file.
    pub auth_store: Option<PathBuf>,
    /// Who answers for tokens in the embedding program, and then nobody else does.
    pub validator: Option<Arc<dyn Validator>>,
    /// Folders besides `data_dir` in which a command may name files (decided 8).
    pub storage_paths: Vec<PathBuf>,
    /// Where time comes from; the machine's clock by default.
    pub clock: Arc<dyn Clock>,
    /// `storage_options.force`, for a change of stores.
    pub(super) force_storage: bool,
    /// `storage_options.default_ttl`, if it was said.
    pub(super) default_ttl_given: Option<Duration>,
    /// What it was read from; `None`: made in a program.
    pub(super) source: Option<Source>,
}

/// Where messages wait (P1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Storage {
    /// In memory: they survive reconnects. The default of the library.
    #[default]
    Memory,
    /// In a SQLite file: they survive the process. The default of the command.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteOptions),
    /// In Redis: as far as Redis's own settings go. Its `timeout` is the broker's `store_timeout`.
    #[cfg(feature = "redis")]
    Redis(RedisOptions),
}

impl Storage {
    /// Its name in options.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => "sqlite",
            #[cfg(feature = "redis")]
            Self::Redis(_) => "redis",
        }
    }
}

/// A certificate with its chain, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then those that signed it.
    pub cert: Pem,
    /// Its private key.
    pub key: Pem,
}

impl ServerConfig {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// See [`ServerTls::new`].
    pub(super) fn load_tls(&self) -> Result<Option<Arc<ServerTls>>> {
        let Some(TlsFiles { cert, key }) = &self.tls else {
            return Ok(None);
        };
        Ok(Some(Arc::new(ServerTls::new(cert, key)?)))
    }

    /// Whether the settings file, and not the program, says which store there is.
    pub fn is_store_of_settings(&self) -> bool {
        let said = self.source.as_ref().and_then(Source::storage);
        said.is_some_and(|said| !said.is_null())
    }

    /// The settings file, if there is one.
    pub(super) fn settings_file(&self) -> Option<&std::path::Path> {
        self.source.as_ref().and_then(Source::file)
    }

    /// Looks at what is read only when the server starts: certificate and key.
    ///
    /// # Errors
    /// `config`, naming the option.
    pub fn check(&self) -> Result<()> {
        self.load_tls().map(drop)
    }
}

/// Idle eviction: trims live tables only, never what is remembered (P4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleEviction {
    /// On by default.
    pub enabled: bool,
    /// How long a name has been offline; 5 min.
    pub ttl: Duration,
    /// How often to look; 1 min.
    pub interval: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: None,
            port: DEFAULT_PORT,
            transport: transport::Config::default(),
            broker: BrokerConfig::default(),
            bounds: Bounds::default(),
            defaults: SubscriptionDefaults::default(),
            delivery_chunk_threshold: 262_144,
            strict_from: None,
            allow_anonymous: true,
            idle_eviction: IdleEviction {
                enabled: true,
                ttl: Duration::from_secs(300),
                interval: Duration::from_secs(60),
            },
            storage: Storage::Memory,
            store: None,
            validator: None,
            data_dir: PathBuf::new(),
            tls: None,
            limits: Arc::default(),
            auth: AuthSettings::default(),
            authority: None,
            auth_store: None,
            storage_paths: Vec::new(),
            clock: Arc::new(SystemClock::new()),
            force_storage: false,
            default_ttl_given: None,
            source: None,
        }
    }
}

impl std::fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
