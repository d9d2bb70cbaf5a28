//! What management asks of the assembly: numbers, the store, the settings file, who is connected.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Weak};

use serde_json::{Map, Value};

use super::config::Storage;
use super::numbers::Numbers;
use super::persistence::{Persistence, absolute};
use super::reload::Reloader;
use super::stores::Stores;
use crate::admin::{Host, RollCall};
use crate::broker::Answer;
use crate::session::Sessions;
use crate::store::Copied;
use crate::{Error, ErrorKind, Result};

/// See the module.
pub(super) struct ServerHost {
    pub(super) numbers: Numbers,
    pub(super) stores: Arc<Stores>,
    pub(super) settings: Arc<Reloader>,
    pub(super) sessions: Weak<Sessions>,
    /// Folders in which a command may put a database (decided 8).
    pub(super) folders: Vec<PathBuf>,
}

impl Host for ServerHost {
    fn stats(&self) -> Value {
        self.numbers.tell()
    }

    fn view(&self) -> Map<String, Value> {
        let storage = self.stores.storage.lock();
        let persistence = storage.as_ref().map(Storage::shown_options);
        let error = self.settings.error();
        let mut view = Map::new();
        view.insert("persistence".to_owned(), persistence.into());
        view.insert("namespaces".to_owned(), Map::new().into());
        let error = error.map(|error| error.message().to_owned());
        view.insert("settings_error".to_owned(), error.into());
        view
    }

    fn set_persistence(&self, options: Map<String, Value>) -> Answer<Copied> {
        let (wish, warnings) = match self.wish(options) {
            Ok(wish) => wish,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        for warning in warnings {
            tracing::warn!("set_persistence: {warning}");
        }
        let (stores, written) = (self.stores.clone(), self.settings.written());
        Box::pin(async move {
            let done = stores.change(wish, written).await?;
            Ok(done.copied)
        })
    }

    fn reload_settings(&self) -> Answer<()> {
        let settings = self.settings.clone();
        Box::pin(async move { settings.reload().await.map(drop) })
    }

    fn roll_call(&self) -> RollCall {
        match self.sessions.upgrade() {
            Some(sessions) => sessions.roll_call(),
            None => Box::new(|| 0),
        }
    }
}

impl ServerHost {
    fn wish(&self, options: Map<String, Value>) -> Result<(Persistence, Vec<String>)> {
        let (mut wish, warnings) = Persistence::from_options(&Value::Object(options).to_string())?;
        self.place(&mut wish.storage);
        if let Some(path) = wish.storage.path() {
            self.check_place(&path)?;
        }
        Ok((wish, warnings))
    }

    /// What a command names without its folder is in `data_dir`, the first of ours (decided 8).
    fn place(&self, storage: &mut Storage) {
        #[cfg(feature = "sqlite")]
        if let Storage::Sqlite(options) = storage
            && let (Some(path), Some(folder)) = (&mut options.path, self.folders.first())
        {
            *path = folder.join(&*path);
        }
        let _ = storage;
    }

    /// A command may not write anywhere.
    fn check_place(&self, path: &Path) -> Result<()> {
        let path = plain(&absolute(path));
        if self.folders.iter().any(|folder| path.starts_with(folder)) {
            return Ok(());
        }
        let text = "a command may put a database into data_dir or one of storage_paths only";
        Err(Error::new(ErrorKind::Config, text))
    }
}

/// The folders in which a command may put a database.
pub(super) fn folders(data_dir: &Path, storage_paths: &[PathBuf]) -> Vec<PathBuf> {
    let all = std::iter::once(data_dir).chain(storage_paths.iter().map(PathBuf::as_path));
    all.map(|folder| plain(&absolute(folder))).collect()
}

/// A path without `.` and `..`; what is there of it, without links.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    let mut missing = Vec::new();
    let mut there = plain.as_path();
    loop {
        if let Ok(real) = there.canonicalize() {
            return missing
                .iter()
                .rev()
                .fold(real, |path, name| path.join(name));
        }
        let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
            return plain;
        };
        missing.push(name.to_owned());
        there = parent;
    }
}
