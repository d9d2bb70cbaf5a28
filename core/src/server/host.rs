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
    pub(super) folders: Folders,
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
        for path in wish.storage.files_mut() {
            *path = self.folders.place(path)?;
        }
        Ok((wish, warnings))
    }
}

/// Where a command may name files (decided 8).
pub(super) struct Folders {
    /// What a command names without its folder is here.
    first: PathBuf,
    all: Vec<PathBuf>,
}

impl Folders {
    pub(super) fn of(data_dir: &Path, storage_paths: &[PathBuf]) -> Self {
        let all = std::iter::once(data_dir).chain(storage_paths.iter().map(PathBuf::as_path));
        Self {
            first: absolute(data_dir),
            // What has no root is in no place that could be compared.
            all: all
                .filter_map(|folder| plain(&absolute(folder)))
                .filter(|folder| folder.is_absolute())
                .collect(),
        }
    }

    /// The path to open for one that a command names.
    fn place(&self, named: &Path) -> Result<PathBuf> {
        let path = self.first.join(named);
        let is_ours = |path: &PathBuf| self.all.iter().any(|folder| path.starts_with(folder));
        let Some(real) = plain(&path).filter(is_ours) else {
            let text = "a command may name files in data_dir or one of storage_paths only";
            return Err(Error::new(ErrorKind::Config, text));
        };
        // Behind a link the system understands `..` in another way than was looked at.
        let goes_up = path.components().any(|part| part == Component::ParentDir);
        Ok(if goes_up { real } else { path })
    }
}

/// A path without `.` and `..`; what is there of it, without links. `None`: a link in it leads to what
/// is not there, so that nobody knows where it leads once it is.
fn plain(path: &Path) -> Option<PathBuf> {
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
            let names = missing.iter().rev();
            return Some(names.fold(real, |path, name| path.join(name)));
        }
        if there.is_symlink() {
            return None;
        }
        let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
            return Some(plain);
        };
        missing.push(name.to_owned());
        there = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_placed(folders: &Folders, named: &str) -> bool {
        folders.place(Path::new(named)).is_ok()
    }

    #[test]
    fn without_a_data_dir_a_command_names_files_in_the_working_directory_only() {
        let here = std::env::current_dir().unwrap();
        for data_dir in ["", ".", "./"] {
            let folders = Folders::of(Path::new(data_dir), &[]);
            let placed = folders.place(Path::new("queue.sqlite")).unwrap();
            assert_eq!(plain(&placed), plain(&here.join("queue.sqlite")));
            for named in ["/etc/x.sqlite", "../x.sqlite", "a/../../x.sqlite", "/"] {
                assert!(!is_placed(&folders, named), "{data_dir:?} {named}");
            }
            let inside = here.join("new/queue.sqlite");
            assert!(is_placed(&folders, &inside.to_string_lossy()));
        }
    }

    #[test]
    fn a_command_names_files_in_the_storage_paths_too() {
        let (data, more) = (
            tempfile::TempDir::new().unwrap(),
            tempfile::TempDir::new().unwrap(),
        );
        let folders = Folders::of(data.path(), &[more.path().to_owned()]);
        for folder in [&data, &more] {
            let named = folder.path().join("queue.sqlite");
            assert_eq!(folders.place(&named).unwrap(), named);
        }
        assert!(!is_placed(&folders, &format!("{}x", data.path().display())));
    }

    #[cfg(unix)]
    #[test]
    fn no_link_leads_a_command_out_of_its_folders() {
        let (data, outside) = (
            tempfile::TempDir::new().unwrap(),
            tempfile::TempDir::new().unwrap(),
        );
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, data.path().join(name)).unwrap();
        };
        link(outside.path(), "there");
        link(&outside.path().join("not-yet.sqlite"), "later.sqlite");
        let folders = Folders::of(data.path(), &[]);
        for named in ["there/x.sqlite", "later.sqlite", "later.sqlite/x"] {
            assert!(!is_placed(&folders, named), "{named}");
        }
        // The system would open a file beside the folder that the link leads to.
        let placed = folders.place(Path::new("there/../x.sqlite")).unwrap();
        assert_eq!(placed, data.path().canonicalize().unwrap().join("x.sqlite"));
    }
}
