//! Which store, and what it is to be like. Knows no store from within.

#[cfg(feature = "redis")]
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::super::config::Storage;
use super::Options;
#[cfg(feature = "redis")]
use crate::store::RedisOptions;
#[cfg(feature = "sqlite")]
use crate::store::{SqliteOptions, Synchronous};
use crate::{Error, ErrorKind, Result};

/// Where messages wait while Redis is away at the start, if nothing else is said.
#[cfg(feature = "redis")]
const FALLBACK_FILE: &str = "restante.fallback.sqlite";

/// A store that was asked for.
pub(super) struct Chosen {
    pub(super) storage: Storage,
    /// What a message lives in it that does not say.
    pub(super) default_ttl: Option<Duration>,
    /// It may take the place of a durable one, or of one that was left.
    pub(super) force: bool,
}

impl Options {
    /// Which store.
    pub(super) fn storage(&mut self) -> Result<Chosen> {
        let mut storage = match self.get(&["storage", "store"]) {
            None | Some(Value::Bool(true)) => Storage::Memory,
            Some(Value::String(name)) if name.eq_ignore_ascii_case("memory") => Storage::Memory,
            #[cfg(feature = "sqlite")]
            Some(Value::String(name)) if name.eq_ignore_ascii_case("sqlite") => {
                Storage::Sqlite(SqliteOptions::default())
            }
            #[cfg(feature = "redis")]
            Some(Value::String(name)) if name.eq_ignore_ascii_case("redis") => {
                Storage::Redis(RedisOptions::default())
            }
            Some(other) => {
                let message =
                    format!("storage {other}: there are \"memory\", \"sqlite\" and \"redis\"");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        };
        let Some(mut inner) = self.object(&["storage_options"])? else {
            return Ok(Chosen {
                storage,
                default_ttl: None,
                force: false,
            });
        };
        let mut ttl = Duration::ZERO;
        inner.duration(&["default_ttl"], &mut ttl)?;
        let has_ttl = inner.get(&["default_ttl"]).is_some();
        #[cfg(feature = "sqlite")]
        if let Storage::Sqlite(options) = &mut storage {
            inner.sqlite(options)?;
        }
        #[cfg(feature = "redis")]
        if let Storage::Redis(options) = &mut storage {
            inner.redis(options)?;
        }
        let mut force = false;
        inner.flag(&["force"], &mut force)?;
        self.absorb(inner);
        Ok(Chosen {
            storage,
            default_ttl: has_ttl.then_some(ttl),
            force,
        })
    }

    #[cfg(feature = "sqlite")]
    fn sqlite(&mut self, options: &mut SqliteOptions) -> Result<()> {
        match self.text(&["filename"])? {
            None => {}
            Some(name) if name.is_empty() => return Err(self.wrong("filename", "a path")),
            Some(name) if name == ":memory:" => options.path = None,
            Some(name) => options.path = Some(name.into()),
        }
        match self.text(&["synchronous"])?.as_deref() {
            None | Some("full") => {}
            Some("normal") => options.synchronous = Synchronous::Normal,
            Some(_) => return Err(self.wrong("synchronous", "\"full\" or \"normal\"")),
        }
        self.flag(&["force"], &mut options.force)?;
        self.millis(&["busy_timeout"], &mut options.busy_timeout)
    }

    #[cfg(feature = "redis")]
    fn redis(&mut self, options: &mut RedisOptions) -> Result<()> {
        match self.get(&["url"]) {
            None => {}
            Some(Value::String(url)) => options.url = url,
            Some(Value::Array(list)) => {
                let urls: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                options.url = urls.join(",");
            }
            Some(_) => return Err(self.wrong("url", "an address or a list of them")),
        }
        if let Some(prefix) = self.text(&["prefix"])? {
            options.prefix = prefix;
        }
        options.sentinel = self.text(&["sentinel"])?;
        for (name, path) in [
            ("tls_ca", &mut options.tls_ca),
            ("tls_cert", &mut options.tls_cert),
            ("tls_key", &mut options.tls_key),
        ] {
            *path = self.text(&[name])?.map(Into::into);
        }
        self.flag(&["cluster"], &mut options.cluster)?;
        self.flag(&["strict"], &mut options.strict)?;
        self.duration(&["lease"], &mut options.lease)?;
        self.flag(&["force"], &mut options.force)?;
        self.millis(&["probe_timeout"], &mut options.probe_timeout)?;
        let file = self.text(&["fallback_filename", "fallback_path"])?;
        options.fallback = match self.get(&["fallback"]) {
            None | Some(Value::Bool(false)) => None,
            Some(Value::String(name)) if name.eq_ignore_ascii_case("sqlite") => {
                Some(file.unwrap_or_else(|| FALLBACK_FILE.to_owned()).into())
            }
            Some(other) => {
                let message = format!("storage_options.fallback {other}: there is \"sqlite\"");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        };
        if options.fallback.as_deref() == Some(Path::new("")) {
            return Err(self.wrong("fallback_filename", "a path"));
        }
        options.check()
    }
}
