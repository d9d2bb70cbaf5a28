//! How the store is doing, as the writer sees it and anybody may read it (P27).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Timestamp;
use crate::{Error, ErrorKind, Result};

use super::super::types::{Holding, StoreCounters, StoreHealth};
use super::open::{beside, identity};

const REMOVED: &str = "the database file was removed or replaced while in use";
/// A log of the database beyond this says that somebody reads for too long.
const LONG_LOG: u64 = 256 << 20;

#[derive(Default)]
struct State {
    last_error: Option<(Timestamp, Arc<str>)>,
    warnings: Vec<String>,
    /// What goes on; ends when it goes well again.
    trouble: Option<Error>,
    /// Ends with the process only.
    is_corrupt: bool,
    /// Why nothing may be confirmed: the database is not where it was.
    lost: Option<&'static str>,
}

/// Which files stand in their places, see [`identity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Files {
    database: Option<(u64, u64)>,
    /// Its log and what goes with that.
    log: [Option<(u64, u64)>; 2],
}

/// What the writer and the callers share.
pub(super) struct Shared {
    pub(super) counters: Mutex<StoreCounters>,
    pub(super) ended: watch::Sender<bool>,
    /// The database, its log, and what goes with that.
    paths: Option<[PathBuf; 3]>,
    /// Those that were opened.
    opened: Mutex<Files>,
    file: AtomicU64,
    log: AtomicU64,
    pub(super) holding: Mutex<Holding>,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self {
            counters: Mutex::default(),
            ended: watch::Sender::new(false),
            paths: path.map(|path| {
                let (log, index) = (beside(&path, "-wal"), beside(&path, "-shm"));
                [path, log, index]
            }),
            opened: Mutex::default(),
            file: AtomicU64::new(0),
            log: AtomicU64::new(0),
            holding: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// A database was opened.
    pub(super) fn opened(&self, warnings: Vec<String>) {
        self.state.lock().warnings = warnings;
        *self.opened.lock() = self.files();
    }

    /// The same database was opened once more, with a log of its own.
    pub(super) fn reopened(&self) {
        self.opened.lock().log = self.files().log;
    }

    fn files(&self) -> Files {
        Files {
            database: self.found(0),
            log: [self.found(1), self.found(2)],
        }
    }

    fn found(&self, which: usize) -> Option<(u64, u64)> {
        let found = fs::metadata(self.paths.as_ref()?.get(which)?).ok()?;
        Some(identity(&found))
    }

    /// Looks whether the database is still the one that was opened.
    ///
    /// # Errors
    /// Why nothing may be confirmed.
    pub(super) fn look(&self, now: Timestamp) -> Result<()> {
        if self.found(0) != self.opened.lock().database {
            self.lose(now, REMOVED);
        } else {
            self.state.lock().lost.take_if(|why| *why == REMOVED);
        }
        self.lost().map_or(Ok(()), Err)
    }

    /// Looks whether its log is: else what is written is in no file that another start would find.
    pub(super) fn has_its_log(&self) -> bool {
        [self.found(1), self.found(2)] == self.opened.lock().log
    }

    /// Nothing may be confirmed from now on.
    pub(super) fn lose(&self, now: Timestamp, why: &'static str) {
        let mut state = self.state.lock();
        if state.lost.replace(why).is_none() {
            tracing::error!("{why}");
            state.last_error = Some((now, why.into()));
        }
    }

    pub(super) fn warn(&self, warning: &str) {
        tracing::warn!("{warning}");
        self.state.lock().warnings.push(warning.to_owned());
    }

    pub(super) fn failed(&self, now: Timestamp, error: &Error) {
        let mut state = self.state.lock();
        state.last_error = Some((now, error.message().into()));
        state.is_corrupt |= error.kind() == ErrorKind::StoreCorrupt;
        state.trouble = Some(error.clone());
    }

    /// Something was written. A full disk is over only when it took new messages.
    pub(super) fn is_well(&self, has_grown: bool) {
        let mut state = self.state.lock();
        let full = |error: &Error| error.kind() == ErrorKind::StoreFull;
        if has_grown || !state.trouble.as_ref().is_some_and(full) {
            state.trouble = None;
        }
    }

    /// Why commands cannot be done.
    pub(super) fn trouble(&self) -> Error {
        let trouble = self.state.lock().trouble.clone();
        trouble.unwrap_or_else(|| Error::new(ErrorKind::StoreUnavailable, "the store is not open"))
    }

    /// Why nothing may be confirmed any more.
    pub(super) fn lost(&self) -> Option<Error> {
        let lost = self.state.lock().lost?;
        let what = format!(
            "{lost}; what is written would be lost, so nothing is confirmed until the broker is \
             started again"
        );
        Some(Error::new(ErrorKind::StoreUnavailable, what))
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.log.load(Ordering::Relaxed)
    }

    /// Measures the files.
    pub(super) fn measure(&self) {
        if let Some([database, log, _]) = &self.paths {
            let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
            self.file.store(size(database), Ordering::Relaxed);
            self.log.store(size(log), Ordering::Relaxed);
        }
    }

    pub(super) fn health(&self) -> StoreHealth {
        let state = self.state.lock();
        let mut warnings = state.warnings.clone();
        let log = self.log_bytes();
        if log > LONG_LOG {
            warnings.push(format!("the log of the database has grown to {log} bytes"));
        }
        let mut figures = Vec::new();
        if self.paths.is_some() {
            figures.push(("file_bytes", self.file.load(Ordering::Relaxed)));
            figures.push(("wal_bytes", log));
        }
        StoreHealth {
            holding: Some(*self.holding.lock()),
            is_degraded: state.trouble.is_some() || state.is_corrupt || state.lost.is_some(),
            last_error: state.last_error.clone(),
            warnings,
            figures,
        }
    }
}
