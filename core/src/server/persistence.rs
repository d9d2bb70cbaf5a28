//! Where messages wait, changed while the server runs, and remembered for the next start (P28).
//!
//! What was chosen last stands in `restante.state.json` in the data directory, in the words of the
//! server's options. It is written when the copy is whole and before it leads, so that after a crash
//! at any moment exactly one store leads. Knows how stores are opened, not how they are copied.

use std::fs::{self, File};
use std::io::{ErrorKind as IoKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::store::{Bounds, Copied, Durability, MemoryStore, Purpose, SharedStore, StoreHealth};
#[cfg(feature = "redis")]
use crate::store::{RedisOptions, RedisStore};
#[cfg(feature = "sqlite")]
use crate::store::{SqliteOptions, SqliteStore, Synchronous};
use crate::{Error, ErrorKind, Result};

use super::config::{ServerConfig, Storage};
use super::settings::Source;

/// The name of the state file in the data directory.
pub const STATE_FILE: &str = "restante.state.json";

/// Whether the server is on its fallback.
#[derive(Debug, Clone, Default)]
pub(super) struct OnFallback(Arc<AtomicBool>);

impl OnFallback {
    #[cfg(all(feature = "sqlite", feature = "redis"))]
    pub(super) fn set(&self, is_on: bool) {
        self.0.store(is_on, Ordering::Release);
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// What health says beside what the store does.
    pub(super) fn show(&self, health: &mut StoreHealth) {
        if self.is_on() {
            health.is_degraded = true;
            health.warnings.push(
                "Redis was away at the start: messages wait in the fallback file until it is back"
                    .to_owned(),
            );
            health.figures.push(("fallback", 1));
        }
    }
}

/// Where messages are to wait from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persistence {
    /// The new store.
    pub storage: Storage,
    /// What a message lives that does not say, from now on; `None`: as before.
    pub default_ttl: Option<Duration>,
    /// Memory may take the place of a durable store, and a database is emptied first whose
    /// messages have moved away. No.
    pub force: bool,
}

/// What [`Server::set_persistence`](super::Server::set_persistence) has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persisted {
    /// The new store's name in options.
    pub storage: &'static str,
    /// What its yes survives.
    pub durability: Durability,
    /// What was copied, and how long calls were held back for the last of it.
    pub copied: Copied,
}

impl Storage {
    /// Its file, if it has one.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Memory => None,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(options) => options.path.as_deref().map(absolute),
            #[cfg(feature = "redis")]
            Self::Redis(_) => None,
        }
    }

    /// The files that it names.
    pub(super) fn files_mut(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Self::Memory => Vec::new(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(options) => options.path.iter_mut().collect(),
            #[cfg(feature = "redis")]
            Self::Redis(options) => [
                &mut options.fallback,
                &mut options.tls_ca,
                &mut options.tls_cert,
                &mut options.tls_key,
            ]
            .into_iter()
            .flatten()
            .collect(),
        }
    }

    /// The file that stands in for it, if it has one.
    #[cfg(all(feature = "sqlite", feature = "redis"))]
    pub(super) fn fallback(&self) -> Option<PathBuf> {
        match self {
            Self::Redis(options) => options.fallback.clone(),
            _ => None,
        }
    }

    /// In words.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(options) => match &options.path {
                Some(path) => format!("sqlite {}", absolute(path).display()),
                None => "sqlite in memory".to_owned(),
            },
            #[cfg(feature = "redis")]
            Self::Redis(options) => format!("redis {} ({})", options.shown(), options.prefix),
        }
    }

    /// In words, with what its yes depends on.
    pub(super) fn told(&self) -> String {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(options) if options.synchronous == Synchronous::Normal => {
                format!("{} (synchronous: normal)", self.place())
            }
            _ => self.place(),
        }
    }

    /// In the words of the server's options.
    fn to_options(&self) -> Value {
        let mut options = Map::new();
        #[cfg(feature = "sqlite")]
        if let Self::Sqlite(sqlite) = self {
            let SqliteOptions {
                path,
                synchronous,
                busy_timeout,
                ..
            } = sqlite;
            let path = path.as_deref().map(absolute);
            let name = path
                .as_ref()
                .map_or(":memory:".into(), |path| path.to_string_lossy());
            options.insert("filename".to_owned(), name.into());
            let synchronous = match synchronous {
                Synchronous::Full => "full",
                Synchronous::Normal => "normal",
            };
            options.insert("synchronous".to_owned(), synchronous.into());
            let busy = u64::try_from(busy_timeout.as_millis()).unwrap_or(u64::MAX);
            options.insert("busy_timeout".to_owned(), busy.into());
        }
        #[cfg(feature = "redis")]
        if let Self::Redis(redis) = self {
            redis_members(redis, &mut options);
        }
        json!({ "storage": self.name(), "storage_options": Value::Object(options) })
    }

    /// The same without any password (AF20).
    pub(super) fn shown_options(&self) -> Value {
        let mut options = self.to_options();
        #[cfg(feature = "redis")]
        if let Self::Redis(redis) = self {
            options["storage_options"]["url"] = redis.shown().into();
        }
        options
    }

    /// Whether another process can find it.
    fn has_address(&self) -> bool {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(options) => options.client.is_none(),
            _ => true,
        }
    }

    /// Whether both are the same keys of the same Redis, as far as options tell.
    pub(super) fn is_same_redis(&self, other: &Self) -> bool {
        match (self, other) {
            #[cfg(feature = "redis")]
            (Self::Redis(a), Self::Redis(b)) => {
                (&a.url, &a.prefix, &a.client) == (&b.url, &b.prefix, &b.client)
            }
            _ => false,
        }
    }

    /// Says there that everything has moved to `place`, if whoever moved it ended before that.
    pub(super) async fn note_moved(self, place: String, clock: Arc<dyn Clock>) {
        let noted: Result<()> = match self {
            Self::Memory => Ok(()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(options) => match options.path {
                Some(path) => SqliteStore::note_moved(&path, &place),
                None => Ok(()),
            },
            #[cfg(feature = "redis")]
            Self::Redis(options) => RedisStore::note_moved(options, clock.clone(), &place).await,
        };
        let _ = clock;
        if let Err(error) = noted {
            tracing::warn!(%error, "the old store does not know that its messages have moved");
        }
    }

    /// As a store for this purpose.
    pub(crate) async fn open(
        &self,
        purpose: Purpose,
        bounds: Bounds,
        timeout: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Result<SharedStore> {
        let _ = (clock, timeout, purpose);
        Ok(match self {
            Self::Memory => Arc::new(MemoryStore::new(bounds)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(options) => {
                let options = options.clone();
                Arc::new(SqliteStore::open_for(purpose, options, bounds, clock.clone()).await?)
            }
            #[cfg(feature = "redis")]
            Self::Redis(options) => {
                let mut options = options.clone();
                options.timeout = timeout;
                Arc::new(RedisStore::open_for(purpose, options, bounds, clock.clone()).await?)
            }
        })
    }
}

/// Seen from the working directory, which an empty path means.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl Persistence {
    /// In the words of the server's options, with the store that was left, and what the settings file
    /// said of the store meanwhile; paths are absolute, for the next start may be elsewhere.
    fn to_options(&self, left: &Storage, file: Option<Value>) -> String {
        let mut state = self.storage.to_options();
        if let (Some(ttl), Some(options)) =
            (self.default_ttl, state["storage_options"].as_object_mut())
        {
            options.insert("default_ttl".to_owned(), ttl.as_secs_f64().into());
        }
        if left.place() != Storage::Memory.place() && left.has_address() {
            state["moved_from"] = left.to_options();
        }
        if let Some(file) = file {
            state["settings_file"] = file;
        }
        format!("{state:#}\n")
    }

    /// Refuses what loses durability without being told to.
    pub(super) fn check(&self, old: Durability, new: Durability) -> Result<()> {
        if old > Durability::Memory && new == Durability::Memory && !self.force {
            let why = "memory would take the place of a durable store: what waits would not \
                       survive a restart any more; say `force: true` if that is meant";
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(())
    }
}

#[cfg(feature = "redis")]
fn redis_members(redis: &RedisOptions, options: &mut Map<String, Value>) {
    let texts = [("url", Some(&redis.url)), ("prefix", Some(&redis.prefix))];
    for (name, text) in texts
        .into_iter()
        .chain([("sentinel", redis.sentinel.as_ref())])
    {
        options.extend(text.map(|text| (name.to_owned(), text.as_str().into())));
    }
    for (name, flag) in [("cluster", redis.cluster), ("strict", redis.strict)] {
        options.insert(name.to_owned(), flag.into());
    }
    let files = [
        ("tls_ca", &redis.tls_ca),
        ("tls_cert", &redis.tls_cert),
        ("tls_key", &redis.tls_key),
    ];
    for (name, path) in files {
        let path = path.as_deref().map(absolute);
        options.extend(path.map(|path| (name.to_owned(), path.to_string_lossy().into())));
    }
    let lease = format!("{}ms", redis.lease.as_millis());
    options.insert("lease".to_owned(), lease.into());
    if let Some(path) = redis.fallback.as_deref().map(absolute) {
        options.insert("fallback".to_owned(), "sqlite".into());
        let name = path.to_string_lossy();
        options.insert("fallback_filename".to_owned(), name.into());
        let probe = u64::try_from(redis.probe_timeout.as_millis()).unwrap_or(u64::MAX);
        options.insert("probe_timeout".to_owned(), probe.into());
    }
}

/// What the state file has done to what is configured.
pub(super) struct Applied {
    /// What the store is opened for.
    pub(super) purpose: Purpose,
    /// The store that was left for it.
    pub(super) left: Option<Storage>,
    /// What to say of that.
    pub(super) warning: Option<String>,
}

/// What the state file says.
struct State {
    wish: Persistence,
    left: Option<Storage>,
    /// What the settings file said of the store when this was written; `None`: there was none.
    file: Option<Value>,
}

/// The state file.
#[derive(Debug, Clone)]
pub(super) struct StateFile(PathBuf);

impl StateFile {
    pub(super) fn of(config: &ServerConfig) -> Self {
        Self(absolute(&config.data_dir.join(STATE_FILE)))
    }

    fn failed(&self, what: &str, error: impl std::fmt::Display) -> Error {
        let path = self.0.display();
        Error::new(ErrorKind::Config, format!("{path} {what}: {error}"))
    }

    /// What was chosen last, if anything was.
    ///
    /// # Errors
    /// `config` for a file that cannot be read, or that names a database that is not there.
    fn read(&self) -> Result<Option<State>> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == IoKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("cannot be read", error)),
        };
        let (wish, _) = Persistence::from_options(&text)
            .map_err(|error| self.failed("cannot be read", error))?;
        let state: Value = serde_json::from_str(&text).unwrap_or_default();
        let left = state.get("moved_from").map(Value::to_string);
        let left = left.and_then(|left| Persistence::from_options(&left).ok());
        Ok(Some(State {
            wish,
            left: left.map(|(left, _)| left.storage),
            file: state.get("settings_file").cloned(),
        }))
    }

    fn check_path(&self, wish: &Persistence) -> Result<()> {
        if let Some(path) = wish.storage.path().filter(|path| !path.exists()) {
            let why = format!(
                "{} is not there; bring it back, or delete the state file to start with what is \
                 configured",
                path.display()
            );
            return Err(self.failed("names a database", why));
        }
        Ok(())
    }

    /// Remembers a choice: either all of it is on the disk then, or nothing has changed.
    pub(super) fn write(
        &self,
        wish: &Persistence,
        left: &Storage,
        file: Option<Value>,
    ) -> Result<()> {
        let text = wish.to_options(left, file);
        let mut part = self.0.clone().into_os_string();
        part.push(".part");
        let written = (|| {
            let mut making = File::options();
            making.write(true).create(true).truncate(true);
            // The address of a Redis may hold a password.
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut making, 0o600);
            let mut file = making.open(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, &self.0)?;
            Ok(())
        })();
        // The name is on the disk only with its directory; it holds in any case.
        #[cfg(unix)]
        if let (Ok(()), Some(folder)) = (&written, self.0.parent())
            && let Err(error) = File::open(folder).and_then(|folder| folder.sync_all())
        {
            tracing::warn!(%error, "a power cut may undo the change of the store");
        }
        written.map_err(|error: std::io::Error| self.failed("cannot be written", error))
    }

    /// The settings file names another store than when this one was chosen: the later word counts.
    fn overruled(&self, chosen: &Storage, configured: &Storage) -> Option<String> {
        let (chosen, configured) = (chosen.told(), configured.told());
        if chosen == configured {
            return None;
        }
        let warning = format!(
            "the store is {configured}, as the settings file says since it was edited, and not \
             {chosen}, as {} says: what waits there stays there",
            self.0.display()
        );
        tracing::warn!("{warning}");
        Some(warning)
    }

    /// Lets what was chosen last stand in the place of what is configured, unless the settings file
    /// was edited since.
    pub(super) fn apply(&self, config: &mut ServerConfig) -> Result<Applied> {
        let as_configured = |warning| Applied {
            purpose: Purpose::Lead,
            left: None,
            warning,
        };
        let Some(State { wish, left, file }) = self.read()? else {
            return Ok(as_configured(None));
        };
        let now = config.source.as_ref().and_then(Source::storage);
        if let (Some(then), Some(now)) = (&file, &now)
            && then != now
            && !now.is_null()
        {
            let warning = self.overruled(&wish.storage, &config.storage);
            return Ok(as_configured(warning));
        }
        self.check_path(&wish)?;
        let configured = match &config.store {
            Some(_) => "a store of its own".to_owned(),
            None => config.storage.told(),
        };
        let told = wish.storage.told();
        let warning = (configured != told).then(|| {
            format!(
                "the store is {told}, as set while the server ran, and not {configured}, as \
                 configured; {} says so",
                self.0.display()
            )
        });
        if let Some(warning) = &warning {
            tracing::warn!("{warning}");
        }
        config.storage = wish.storage;
        config.store = None;
        if let Some(ttl) = wish.default_ttl {
            config.broker.default_ttl = ttl;
        }
        Ok(Applied {
            purpose: Purpose::Chosen,
            left,
            warning,
        })
    }
}
