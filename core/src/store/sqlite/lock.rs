//! One broker at a time on a database: SQLite's own locks would let several in.
//!
//! The lock is on a file beside the database, which says who holds it, and on Linux on the database
//! itself too, so that it holds when the file beside is deleted. (Elsewhere such a lock may be in the
//! way of SQLite's.) The file also remembers that there was a database: an empty one in its place is
//! not taken for a new one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::{Error, ErrorKind, Result};

use super::super::documents::private;
use super::open::{beside, damaged, identity, refused};

/// The second line of a lock file beside what has been a database.
const MARK: &str = "has opened the database";
/// The third line while a log of the database goes with it: from its opening to its closing.
const OPEN: &str = "and has not closed it";
/// The third line once that log was found gone, until the database is opened in spite of it: who only
/// looks leaves a new, empty log there.
const LOST: &str = "and has lost its log";

/// Held while the store is open; the system takes it back whatever ends the process.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    is_marked: bool,
    /// The database has a log, without which it must not be found the next time.
    has_log: bool,
    /// Whoever had it open was killed, and the log is gone.
    pub(super) has_lost_log: bool,
    /// There was a database, and it is gone.
    pub(super) is_new_again: bool,
    /// Closed after SQLite's: who closes a file gives up all locks of its process on it, SQLite's too.
    _database: File,
}

impl Lock {
    /// Takes the lock; where there is no database an empty file is one then.
    ///
    /// # Errors
    /// `store_locked` if another broker has it, `config` if a file cannot be opened,
    /// `store_corrupt` if the database is empty and was not.
    pub(super) fn take(database: &Path) -> Result<Self> {
        let (file, said) = take_file(database)?;
        let is_marked = said.lines().nth(1) == Some(MARK);
        let state = said.lines().nth(2);
        let has_log = state == Some(OPEN);
        let log = beside(database, "-wal");
        let is_there = database.exists();
        check_empty(database, is_marked)?;
        let mut lock = Self {
            file,
            is_marked,
            has_log,
            has_lost_log: is_there && (state == Some(LOST) || has_log && !log.exists()),
            is_new_again: is_marked && !is_there,
            _database: take_database(database)?,
        };
        lock.write();
        Ok(lock)
    }

    /// Remembers that the database has been opened.
    pub(super) fn mark(&mut self, database: &Path) {
        let has_log = beside(database, "-wal").exists();
        let is_known = self.is_marked && self.has_log == has_log && !self.has_lost_log;
        (self.is_marked, self.has_log, self.has_lost_log) = (true, has_log, false);
        if !is_known {
            self.write();
        }
    }

    /// Remembers that the database has been closed: all of its log is in it.
    pub(super) fn closed(&mut self) {
        self.has_log = false;
        self.write();
    }

    /// Makes the lock file again if it was deleted.
    ///
    /// # Errors
    /// Another broker has it by now, and the database with it.
    pub(super) fn renew(&mut self, database: &Path) -> Result<()> {
        let held = self.file.metadata().ok().map(|held| identity(&held));
        let found = fs::metadata(beside(database, ".lock")).ok();
        if found.map(|found| identity(&found)) == held {
            return Ok(());
        }
        match take_file(database) {
            Ok((file, _)) => {
                tracing::warn!(database = %database.display(), "the lock file is made again");
                self.file = file;
                self.write();
                Ok(())
            }
            // The lock on the database turns away whoever has the file.
            Err(_) if cfg!(target_os = "linux") => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self) {
        let mark = if self.is_marked { MARK } else { "" };
        let state = match (self.has_lost_log, self.has_log) {
            (true, _) => LOST,
            (false, true) => OPEN,
            (false, false) => "",
        };
        let text = format!("{}\n{mark}\n{state}", std::process::id());
        let file = &mut self.file;
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()));
        if let Err(error) = written {
            // The lock holds all the same; a full disk must not keep the store shut.
            tracing::debug!(%error, "the lock file does not say who holds it");
        }
    }
}

/// The lock file, locked, and what it said.
pub(super) fn take_file(database: &Path) -> Result<(File, String)> {
    let path = beside(database, ".lock");
    let cannot = |error: std::io::Error| {
        let path = path.display();
        let why = format!("its lock file {path} cannot be opened ({error})");
        refused(ErrorKind::Config, database, why)
    };
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    let mut file = opened.map_err(cannot)?;
    let locked = file.try_lock();
    let mut said = String::new();
    // Without what it says the lock holds, and a refusal stands.
    let _ = file.read_to_string(&mut said);
    match locked {
        Ok(()) => Ok((file, said)),
        Err(TryLockError::WouldBlock) => {
            let holder = said.lines().next().unwrap_or_default();
            Err(used(database, format!("the process {holder} uses it")))
        }
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}

fn used(database: &Path, why: impl std::fmt::Display) -> Error {
    refused(ErrorKind::StoreLocked, database, why)
}

/// The database itself, locked where that is in nobody's way.
pub(super) fn take_database(path: &Path) -> Result<File> {
    // A new one is its owner's alone: keys that sign may come to be in it.
    let opened = private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    let file = opened.map_err(|error| refused(ErrorKind::Config, path, error))?;
    if cfg!(target_os = "linux")
        && let Err(TryLockError::WouldBlock) = file.try_lock()
    {
        // Closed it would take SQLite's locks along if its user is in this process.
        std::mem::forget(file);
        return Err(used(
            path,
            "another broker uses it; its lock file was removed",
        ));
    }
    Ok(file)
}

/// Refuses an empty file in the place of what was a database (P27).
fn check_empty(path: &Path, was_database: bool) -> Result<()> {
    let bytes = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
    let size = bytes(path);
    if size.is_some_and(|bytes| bytes > 0) {
        return Ok(());
    }
    let log = beside(path, "-wal");
    if bytes(&log).is_some_and(|bytes| bytes > 0) {
        let why = format!(
            "it is empty or gone, and its log {} is not; bring it back, or delete the log too to \
             begin anew",
            log.display()
        );
        return Err(refused(ErrorKind::StoreCorrupt, path, why));
    }
    if size.is_some() && was_database {
        let how = "it is empty and was not; delete it to begin anew";
        return Err(damaged(path, how));
    }
    Ok(())
}
