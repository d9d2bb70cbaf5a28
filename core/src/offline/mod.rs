//! What is done to a store that no broker serves: what it holds, whether it is whole, its content as
//! lines of text and back, and messages of tyo-mq taken in.
//!
//! The command and the addon say what to do as a [`Job`]; results go to one line of output, how far it
//! has come to another. A store in use is refused by its own lock. Knows no command line.

mod check;
mod export;
mod import;
mod stats;
mod tyo_mq;

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::clock::{Clock, SystemClock};
use crate::server::{ServerConfig, Storage};
#[cfg(feature = "sqlite")]
use crate::store::NewPlace;
use crate::store::{Purpose, SharedStore};
use crate::{Error, ErrorKind, Result};

/// What to do with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Task {
    /// Tell what it holds.
    Stats,
    /// Look for damage.
    Check,
    /// Write everything it holds as lines of JSON.
    Export,
    /// Take in such lines, or with [`Job::from`] what tyo-mq has left.
    Import,
}

/// A whole order, as the command line says it.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Job {
    /// What to do.
    pub task: Task,
    /// Which store, in the words of the server's options: `storage`, `storage_options`.
    #[serde(default)]
    pub options: Map<String, Value>,
    /// Results as JSON rather than for people.
    #[serde(default)]
    pub json: bool,
    /// Where [`Task::Import`] takes from: `tyo-mq-sqlite` or `tyo-mq-redis`; the input's lines.
    #[serde(default)]
    pub from: Option<String>,
    /// The file or address of that.
    #[serde(default)]
    pub source: Option<String>,
    /// What the names of its keys begin with; `tyo-mq:queue`.
    #[serde(default)]
    pub tyo_prefix: Option<String>,
    /// Rows of tyo-mq that cannot be read are named and left out, rather than the end of it.
    #[serde(default)]
    pub skip_unreadable: bool,
}

/// Where lines come from and go to.
pub struct Streams<'a> {
    /// What is imported.
    pub input: &'a mut dyn BufRead,
    /// Results.
    pub output: &'a mut dyn Write,
    /// How far it has come, and what else a person should know.
    pub notes: &'a mut dyn FnMut(&str),
}

impl std::fmt::Debug for Streams<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl Streams<'_> {
    fn note(&mut self, text: impl AsRef<str>) {
        (self.notes)(text.as_ref());
    }

    fn line(&mut self, text: impl std::fmt::Display) -> Result<()> {
        writeln!(self.output, "{text}").map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("the output cannot be written: {error}"),
    )
}

fn config(message: impl Into<Box<str>>) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// Does it; whether the store is whole, which only [`Task::Check`] may deny.
///
/// # Errors
/// `config` for a store that is not there, holds something already, or cannot be; `store_locked` if a
/// broker uses it; `store_corrupt`, with the line, for what cannot be imported, and what the store
/// says. An import that fails leaves the store empty, and no file that was not there before.
pub async fn run(job: &Job, streams: &mut Streams<'_>) -> Result<bool> {
    let options = Value::Object(job.options.clone()).to_string();
    let (config, warnings) = ServerConfig::from_options(&options)?;
    for warning in warnings {
        streams.note(warning);
    }
    let is_whole = match job.task {
        Task::Check => check::check(&config, job.json, streams).await?,
        Task::Stats | Task::Export => {
            let store = open(&config).await?;
            let done = match job.task {
                Task::Stats => stats::tell(&store, &config, job.json, streams).await,
                _ => export::export(&store, streams).await,
            };
            store.close().await?;
            done.map(|()| true)?
        }
        Task::Import => {
            let source = source(job)?;
            #[cfg(feature = "sqlite")]
            let place = place(&config.storage);
            let taken = import(&config, source, streams).await;
            #[cfg(feature = "sqlite")]
            if let (Err(_), Some(place)) = (&taken, place) {
                place.clear();
            }
            import::report(&taken?, job.json, streams)?;
            true
        }
    };
    streams.output.flush().map_err(|error| unwritten(&error))?;
    Ok(is_whole)
}

fn source(job: &Job) -> Result<import::Source> {
    let named = |what: &str| {
        let source = job.source.clone();
        source.ok_or_else(|| config(format!("importing from {what} needs its place")))
    };
    Ok(match job.from.as_deref() {
        None => import::Source::Lines,
        #[cfg(feature = "sqlite")]
        Some("tyo-mq-sqlite") => import::Source::TyoMqSqlite {
            path: PathBuf::from(named("a file of tyo-mq")?),
            skips: job.skip_unreadable,
        },
        #[cfg(feature = "redis")]
        Some("tyo-mq-redis") => import::Source::TyoMqRedis {
            url: named("Redis")?,
            prefix: job
                .tyo_prefix
                .clone()
                .unwrap_or_else(|| tyo_mq::PREFIX.to_owned()),
            skips: job.skip_unreadable,
        },
        Some(other) => {
            let why =
                format!("import from {other:?}: there are \"tyo-mq-sqlite\" and \"tyo-mq-redis\"");
            return Err(config(why));
        }
    })
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Refuses what has nothing in it while nobody serves it.
fn check_outlives(storage: &Storage) -> Result<()> {
    let is_volatile = match storage {
        #[cfg(feature = "sqlite")]
        Storage::Sqlite(options) => options.path.is_none(),
        #[cfg(feature = "redis")]
        Storage::Redis(_) => false,
        _ => true,
    };
    match is_volatile {
        true => Err(config(
            "what is in memory ends with its broker; name a file of \"sqlite\", or \"redis\"",
        )),
        false => Ok(()),
    }
}

/// A store that is there.
async fn open(config: &ServerConfig) -> Result<SharedStore> {
    check_outlives(&config.storage)?;
    #[cfg(feature = "sqlite")]
    if let Storage::Sqlite(options) = &config.storage
        && let Some(path) = options.path.as_deref().filter(|path| !path.exists())
    {
        return Err(self::config(format!(
            "there is no database {}",
            path.display()
        )));
    }
    let bounds = config.bounds.clone();
    let timeout = config.broker.store_timeout;
    let clock = clock();
    let opening = config.storage.open(Purpose::Lead, bounds, timeout, &clock);
    opening.await
}

async fn open_target(config: &ServerConfig) -> Result<SharedStore> {
    check_outlives(&config.storage)?;
    let bounds = config.bounds.clone();
    let (timeout, clock) = (config.broker.store_timeout, clock());
    let opening = config
        .storage
        .open(Purpose::TakeCopy, bounds, timeout, &clock);
    opening.await
}

async fn import(
    config: &ServerConfig,
    source: import::Source,
    streams: &mut Streams<'_>,
) -> Result<import::Taken> {
    let store = open_target(config).await?;
    let taken = import::import(&store, replaces(&config.storage), source, streams).await;
    store.close().await?;
    taken
}

/// Where a database is about to be made, so that a refused import can leave nothing there.
#[cfg(feature = "sqlite")]
fn place(storage: &Storage) -> Option<NewPlace> {
    match storage {
        Storage::Sqlite(options) => NewPlace::of(options.path.as_deref()?),
        _ => None,
    }
}

/// Whether what has moved to another store may be emptied.
fn replaces(storage: &Storage) -> bool {
    match storage {
        #[cfg(feature = "sqlite")]
        Storage::Sqlite(options) => options.force,
        _ => false,
    }
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;
