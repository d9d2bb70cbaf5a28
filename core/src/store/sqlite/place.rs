//! A place where there is no database yet: what was made there in vain can be taken away again.
//!
//! Used by an import that is refused. Knows the files that go with a database, not what is in them.

use std::fs;
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};

use super::lock::{take_database, take_file};
use super::open::{beside, one_name};

/// What stands beside a database, the last of it taken away last.
const BESIDE: &[&str] = &["-wal", "-shm", ".ballast", "", ".lock"];

/// The place of a database that is not there.
#[derive(Debug)]
pub(crate) struct NewPlace {
    database: PathBuf,
    /// Those of its files that are not there either.
    absent: Vec<PathBuf>,
}

impl NewPlace {
    /// `None` if something is there: that is nobody's to take away.
    pub(crate) fn of(database: &Path) -> Option<Self> {
        let database = one_name(database.to_owned());
        let files = BESIDE.iter().map(|suffix| beside(&database, suffix));
        let absent: Vec<PathBuf> = files.filter(|file| !file.exists()).collect();
        (!database.exists()).then_some(Self { database, absent })
    }

    /// Takes away what has come since, unless somebody uses it.
    pub(crate) fn clear(self) {
        if !self.database.exists() {
            return;
        }
        let (Ok(_file), Ok(_database)) = (take_file(&self.database), take_database(&self.database))
        else {
            return;
        };
        for file in &self.absent {
            if let Err(error) = fs::remove_file(file)
                && error.kind() != IoKind::NotFound
            {
                tracing::warn!(%error, file = %file.display(), "a file of a refused import stays");
            }
        }
    }
}
