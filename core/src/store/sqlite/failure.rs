//! What SQLite says, in our words (P27, P34).

use rusqlite::ffi::ErrorCode;

use crate::{Error, ErrorKind};

/// What a failure means for whoever asked.
pub(super) fn kind(error: &rusqlite::Error) -> ErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => ErrorKind::StoreFull,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => ErrorKind::StoreCorrupt,
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed,
        ) => ErrorKind::StoreUnavailable,
        _ => ErrorKind::Internal,
    }
}

/// A failure while doing `what`.
pub(super) fn of(error: &rusqlite::Error, what: &str) -> Error {
    let advice = match kind(error) {
        ErrorKind::StoreFull => "; make room on its disk, then it goes on by itself",
        ErrorKind::StoreCorrupt => "; bring back a backup",
        _ => "",
    };
    Error::new(kind(error), format!("{what} failed: {error}{advice}"))
}
