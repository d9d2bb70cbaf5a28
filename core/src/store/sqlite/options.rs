//! Where a SQLite store is and how it writes.

use std::path::PathBuf;
use std::time::Duration;

/// How sure a write is before it is confirmed (P1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// On the disk: it survives power loss. The default.
    #[default]
    Full,
    /// With the system: it survives the process being killed.
    Normal,
}

/// Settings of a [`SqliteStore`](super::SqliteStore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The database file, made if it is not there; `None`: in memory. `restante.sqlite`.
    pub path: Option<PathBuf>,
    /// How sure a write is before it is confirmed. On the disk.
    pub synchronous: Synchronous,
    /// How long to wait for another process that holds the database. 2 s.
    pub busy_timeout: Duration,
    /// Opens it although its messages have moved to another store, or it holds a copy that did
    /// not come to its end (P28). No.
    pub force: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            path: Some("restante.sqlite".into()),
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(2),
            force: false,
        }
    }
}
