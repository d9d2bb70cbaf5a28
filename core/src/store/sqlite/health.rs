//! How the store is doing, as the writer sees it and anybody may read it (P27).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Timestamp;
use crate::{Error, ErrorKind};

use super::super::types::{Holding, StoreCounters, StoreHealth};
use super::open::beside;

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
    is_lost: bool,
}

/// What the writer and the callers share.
pub(super) struct Shared {
    pub(super) counters: Mutex<StoreCounters>,
    pub(super) ended: watch::Sender<bool>,
    path: Option<PathBuf>,
    /// Which file was opened.
    identity: Mutex<Option<(u64, u64)>>,
    file: AtomicU64,
    log: AtomicU64,
    pub(super) holding: Mutex<Holding>,
    state: Mutex<State>,
}

/// Which file stands there, where the system can tell.
fn identity(path: &Path) -> Option<(u64, u64)> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    }
    #[cfg(not(unix))]
    {
        fs::metadata(path).ok().map(|_| (0, 0))
    }
}

impl Shared {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self {
            counters: Mutex::default(),
            ended: watch::Sender::new(false),
            path,
            identity: Mutex::default(),
            file: AtomicU64::new(0),
            log: AtomicU64::new(0),
            holding: Mutex::default(),
            state: Mutex::default(),
        }
    }

    pub(super) fn opened(&self, warnings: Vec<String>) {
        self.state.lock().warnings = warnings;
        *self.identity.lock() = self.path.as_deref().and_then(identity);
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
        let is_lost = self.state.lock().is_lost;
        is_lost.then(|| {
            Error::new(
                ErrorKind::StoreUnavailable,
                "the database file was removed or replaced while in use; what is written would be \
                 lost, so nothing is confirmed until the broker is started again",
            )
        })
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.log.load(Ordering::Relaxed)
    }

    /// Measures the files, and whether the database is still the one that was opened.
    pub(super) fn look(&self, now: Timestamp) {
        let Some(path) = &self.path else {
            return;
        };
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        self.file.store(size(path), Ordering::Relaxed);
        self.log
            .store(size(&beside(path, "-wal")), Ordering::Relaxed);
        let mut state = self.state.lock();
        let is_lost = identity(path) != *self.identity.lock();
        if is_lost && !state.is_lost {
            let path = path.display();
            tracing::error!("the database {path} was removed or replaced while in use");
            let what = "the database file was removed or replaced while in use";
            state.last_error = Some((now, what.into()));
        }
        state.is_lost = is_lost;
    }

    pub(super) fn health(&self) -> StoreHealth {
        let state = self.state.lock();
        let mut warnings = state.warnings.clone();
        let log = self.log_bytes();
        if log > LONG_LOG {
            warnings.push(format!("the log of the database has grown to {log} bytes"));
        }
        let mut figures = Vec::new();
        if self.path.is_some() {
            figures.push(("file_bytes", self.file.load(Ordering::Relaxed)));
            figures.push(("wal_bytes", log));
        }
        StoreHealth {
            holding: Some(*self.holding.lock()),
            is_degraded: state.trouble.is_some() || state.is_corrupt || state.is_lost,
            last_error: state.last_error.clone(),
            warnings,
            figures,
        }
    }
}
