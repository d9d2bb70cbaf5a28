//! Opening a database: what may stand there, its settings, its version.
//!
//! A start that is refused has changed nothing (P27): everything is looked at before anything is
//! written, and nothing is ever put in the place of a file that is there.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::clock::Clock;
use crate::{Error, ErrorKind, Result};

use super::super::Purpose;
use super::copies;
use super::failure;
use super::options::{SqliteOptions, Synchronous};

/// `RSTT`: marks a database as ours.
const APPLICATION: i64 = 0x5253_5454;
/// What leads from each version to the next.
const MIGRATIONS: &[&str] = &[include_str!("schema.sql"), include_str!("documents.sql")];
/// How long the database is looked through for damage before the port opens.
const CHECK: Duration = Duration::from_secs(2);

/// The path of a file beside the database.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The one name of a file that may have several: locks and logs go by it.
pub(super) fn one_name(path: PathBuf) -> PathBuf {
    let resolved = fs::canonicalize(&path).ok();
    let resolved = resolved.or_else(|| {
        // It is not there yet; its directory may be.
        let folder = path.parent()?;
        let here = Path::new(".");
        let folder = if folder.as_os_str().is_empty() {
            here
        } else {
            folder
        };
        Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
    });
    resolved.unwrap_or(path)
}

pub(super) fn refused(kind: ErrorKind, path: &Path, why: impl std::fmt::Display) -> Error {
    let path = path.display();
    Error::new(kind, format!("the database {path} cannot be used: {why}"))
}

/// Which file this is, where the system can tell.
pub(super) fn identity(found: &Metadata) -> (u64, u64) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        (found.dev(), found.ino())
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        (0, 0)
    }
}

/// Refuses what is no name of a file, in words.
pub(super) fn check_name(path: &Path) -> Result<(), &'static str> {
    let name = path.as_os_str().as_encoded_bytes();
    if name.is_empty() {
        Err("its name is empty")
    } else if name.contains(&0) {
        Err("its name holds a NUL")
    } else if name
        .get(..5)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"file:"))
    {
        Err("its name must be a path, not an address")
    } else {
        Ok(())
    }
}

/// Looks at the place before anything is made or opened there.
///
/// # Errors
/// `config` for a directory, a missing directory, a file that is read-only.
pub(super) fn check_place(path: &Path) -> Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder
        && !folder.is_dir()
    {
        let why = format!("the directory {} does not exist", folder.display());
        return Err(refused(ErrorKind::Config, path, why));
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(refused(ErrorKind::Config, path, "it is a directory")),
        Ok(found) if found.permissions().readonly() => {
            Err(refused(ErrorKind::Config, path, "it is read-only"))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(ErrorKind::Config, path, error)),
    }
}

/// A connection with the settings that every one of ours has.
pub(super) fn connect(options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = match &options.path {
        Some(path) => Connection::open_with_flags(path, flags)?,
        None => Connection::open_in_memory()?,
    };
    conn.busy_timeout(options.busy_timeout)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

/// Whether the file is ours, empty, or nothing for us; changes nothing. Answers whether it has our tables.
pub(super) fn check_content(conn: &Connection, path: &Path) -> Result<bool> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let asked = || -> rusqlite::Result<(i64, i64, i64)> {
        Ok((
            number("SELECT count(*) FROM sqlite_schema")?,
            number("PRAGMA application_id")?,
            number("PRAGMA user_version")?,
        ))
    };
    let (tables, application, version) = asked().map_err(|error| says(path, &error))?;
    if application != APPLICATION && (application != 0 || tables > 0) {
        let why = "it is the database of another program";
        return Err(refused(ErrorKind::Config, path, why));
    }
    let newest = MIGRATIONS.len() as i64;
    if version > newest {
        let why = format!(
            "its version is {version} and this broker knows versions up to {newest}; \
             use the broker that wrote it, or a newer one"
        );
        return Err(refused(ErrorKind::StoreUnsupported, path, why));
    }
    Ok(version > 0)
}

/// A refusal for what SQLite says.
pub(super) fn says(path: &Path, error: &rusqlite::Error) -> Error {
    match failure::kind(error) {
        ErrorKind::Internal => refused(ErrorKind::StoreUnavailable, path, error),
        ErrorKind::StoreCorrupt => damaged(path, error),
        kind => refused(kind, path, error),
    }
}

pub(super) fn damaged(path: &Path, how: impl std::fmt::Display) -> Error {
    let why = format!("it is damaged, or no database ({how}); bring back a backup");
    refused(ErrorKind::StoreCorrupt, path, why)
}

/// Opens the database of these options for writing.
///
/// # Errors
/// Why it cannot be used, with its path.
pub(super) fn open(
    options: &SqliteOptions,
    purpose: Purpose,
    clock: &Arc<dyn Clock>,
    warnings: &mut Vec<String>,
) -> Result<Connection> {
    let place = options.path.clone().unwrap_or_else(|| ":memory:".into());
    let why = |error: rusqlite::Error| says(&place, &error);
    let has_log = beside(&place, "-wal").exists();
    let mut conn = connect(options).map_err(why)?;
    // A refused start must not even move the log of the last one into the file.
    let keep_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    conn.set_db_config(keep_log, has_log).map_err(why)?;
    let has_tables = check_content(&conn, &place)?;
    if has_tables && purpose != Purpose::TakeCopy && !options.force {
        copies::check_leads(&conn, &place, purpose)?;
    }
    look_for_damage(&mut conn, &place, clock, warnings)?;
    settle_in(&conn, options).map_err(why)?;
    migrate(&mut conn).map_err(why)?;
    match purpose {
        Purpose::Lead | Purpose::Chosen if options.force => {
            copies::clear_marks(&conn).map_err(why)?;
        }
        Purpose::Chosen => copies::lead(&conn).map_err(why)?,
        Purpose::Lead => {}
        Purpose::TakeCopy => copies::drop_cut_copy(&conn).map_err(why)?,
    }
    match probe(&conn) {
        // Full is no reason to refuse: what waits can be delivered, and that makes room.
        Err(error) if failure::kind(&error) == ErrorKind::StoreFull => {}
        probed => probed.map_err(why)?,
    }
    conn.set_db_config(keep_log, false).map_err(why)?;
    Ok(conn)
}

/// Every setting of a writing connection. The first ones take hold before there is a table.
fn settle_in(conn: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    conn.execute_batch("PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL;")?;
    if options.path.is_some() {
        let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            tracing::warn!(
                mode,
                "the database has no write-ahead log; it is slower without"
            );
        }
    }
    let synchronous = match options.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    conn.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 2000; \
         PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -16384; \
         PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;"
    ))?;
    let application = "PRAGMA application_id";
    if conn.query_row(application, [], |row| row.get::<_, i64>(0))? != APPLICATION {
        conn.execute_batch(&format!("PRAGMA application_id = {APPLICATION}"))?;
    }
    Ok(())
}

/// Brings the tables to the newest version, each step in one transaction with its number: a crash
/// leaves a whole version.
fn migrate(conn: &mut Connection) -> rusqlite::Result<()> {
    let version = "PRAGMA user_version";
    let version: i64 = conn.query_row(version, [], |row| row.get(0))?;
    let done = usize::try_from(version).unwrap_or(0);
    for (at, step) in MIGRATIONS.iter().enumerate().skip(done) {
        let step_to = at + 1;
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(step)?;
        transaction.execute_batch(&format!("PRAGMA user_version = {step_to}"))?;
        transaction.commit()?;
    }
    Ok(())
}

/// Writes, reads and deletes a row.
pub(super) fn probe(conn: &Connection) -> rusqlite::Result<()> {
    let put = "INSERT INTO meta VALUES ('probe', 1) ON CONFLICT DO UPDATE SET v = v + 1";
    conn.execute(put, [])?;
    conn.query_row("SELECT v FROM meta WHERE k = 'probe'", [], |_| Ok(()))?;
    conn.execute("DELETE FROM meta WHERE k = 'probe'", [])?;
    Ok(())
}

/// A quick check of every page that fits into its time.
fn look_for_damage(
    conn: &mut Connection,
    path: &Path,
    clock: &Arc<dyn Clock>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let (ticking, end) = (Arc::clone(clock), clock.elapsed() + CHECK);
    let is_over = move || ticking.elapsed() >= end;
    conn.progress_handler(10_000, Some(is_over))
        .map_err(|error| says(path, &error))?;
    let checked = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    conn.progress_handler(0, None::<fn() -> bool>)
        .map_err(|error| says(path, &error))?;
    let interrupted = Some(rusqlite::ffi::ErrorCode::OperationInterrupted);
    match checked {
        Ok(found) if found == "ok" => Ok(()),
        Ok(found) => Err(damaged(path, found)),
        Err(error) if error.sqlite_error_code() == interrupted => {
            let path = path.display();
            warnings.push(format!(
                "{path} is too large to be checked for damage in 2 s; `PRAGMA quick_check` does it all"
            ));
            Ok(())
        }
        Err(error) => Err(says(path, &error)),
    }
}
