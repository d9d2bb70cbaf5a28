//! A database as the target of a copy, and as what a copy has left behind (P28).
//!
//! Two marks in `meta` say so: `copying` until a copy leads (1: it was cut, 2: it is whole), `moved`
//! when everything has gone to another store. With either a database is not opened to lead, unless
//! forced; a whole copy is, if it was chosen.

use std::path::Path;
use std::rc::Rc;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::{Error, ErrorKind, Result};

use super::super::record::Record;
use super::super::state::State;
use super::super::{Purpose, not_empty};
use super::books::Written;
use super::core::Core;
use super::keep::Tables;
use super::lock::Lock;
use super::open::{refused, says};

const EMPTY: &str = "DELETE FROM realm; DELETE FROM log; DELETE FROM queue; DELETE FROM run; \
    DELETE FROM body; DELETE FROM refs; DELETE FROM damaged; DELETE FROM entry; \
    DELETE FROM exception; DELETE FROM dead; DELETE FROM delayed; DELETE FROM mark; \
    DELETE FROM uid; DELETE FROM document; DELETE FROM meta;";

/// What `copying` says of a copy that has come to its end.
const WHOLE: &str = "2";

fn text(conn: &Connection, mark: &str) -> rusqlite::Result<Option<String>> {
    let read = "SELECT CAST(v AS TEXT) FROM meta WHERE k = ?1";
    conn.query_row(read, [mark], |row| row.get(0)).optional()
}

/// Refuses a database that must not lead; it has its tables.
pub(super) fn check_leads(conn: &Connection, path: &Path, purpose: Purpose) -> Result<()> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let read = || -> rusqlite::Result<(Option<String>, bool)> {
        let copying = text(conn, "copying")?;
        let is_cut = match copying.as_deref() {
            None => false,
            Some(WHOLE) => purpose != Purpose::Chosen,
            Some(_) => purpose == Purpose::Chosen || number("SELECT count(*) FROM realm")? > 0,
        };
        Ok((text(conn, "moved")?, is_cut))
    };
    let (moved, is_cut) = read().map_err(|error| says(path, &error))?;
    if let Some(to) = moved {
        let why = format!(
            "its messages have moved to {to}; open that one, or this one with `force` to go back \
             to what it held then"
        );
        return Err(refused(ErrorKind::Config, path, why));
    }
    if is_cut {
        let why = "it holds a copy that never led; use another file, or `force`";
        return Err(refused(ErrorKind::Config, path, why));
    }
    Ok(())
}

/// Notes in a database that nobody has open where its messages have moved to; one that is not there
/// is fine.
pub(super) fn note_moved(path: &Path, to: &str) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let _lock = Lock::take(path)?;
    let note = || -> rusqlite::Result<()> {
        let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        if text(&conn, "moved")?.is_none() {
            conn.execute("INSERT INTO meta VALUES ('moved', ?1)", [to])?;
        }
        Ok(())
    };
    note().map_err(|error| says(path, &error))
}

/// Whether a database that nobody has open is marked as moved.
pub(super) fn has_moved(path: &Path) -> Result<bool> {
    if !path.exists() {
        return Ok(false);
    }
    let _lock = Lock::take(path)?;
    let read = || -> rusqlite::Result<bool> {
        let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'";
        let has_tables = conn.query_row(tables, [], |row| row.get::<_, i64>(0))? > 0;
        Ok(has_tables && text(&conn, "moved")?.is_some())
    };
    read().map_err(|error| says(path, &error))
}

/// Ends a whole copy: it leads from now on.
pub(super) fn lead(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute("DELETE FROM meta WHERE k = 'copying'", [])?;
    Ok(())
}

/// Takes the marks away: it leads from now on.
pub(super) fn clear_marks(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute("DELETE FROM meta WHERE k IN ('copying', 'moved')", [])?;
    Ok(())
}

/// Drops what a copy has left that did not come to its end.
pub(super) fn drop_cut_copy(conn: &Connection) -> rusqlite::Result<()> {
    if text(conn, "copying")?.is_some() {
        conn.execute_batch(EMPTY)?;
        conn.execute("INSERT INTO meta VALUES ('copying', 1)", [])?;
    }
    Ok(())
}

fn not_begun() -> Error {
    Error::new(
        ErrorKind::StoreUnavailable,
        "the copy was interrupted; begin it again",
    )
}

impl Core {
    /// Empties the database for a copy.
    pub(super) fn begin_import(&mut self, replace: bool) -> Result<()> {
        let marks = |conn: &Connection| Ok((text(conn, "copying")?, text(conn, "moved")?));
        let Some((copying, moved)) = self.db.ask(marks) else {
            return Err(not_begun());
        };
        if copying.is_none() && !self.state.is_empty() {
            match moved {
                Some(_) if replace => {}
                Some(to) => {
                    let why = format!(
                        "what the new store holds has moved to {to}; with `force` it is emptied"
                    );
                    return Err(Error::new(ErrorKind::Config, why));
                }
                None => return Err(not_empty()),
            }
        }
        self.db.forget_trash();
        self.db.ask(|conn| {
            conn.execute_batch(EMPTY)?;
            conn.execute("INSERT INTO meta VALUES ('copying', 1)", [])
        });
        let bounds = self.state.bounds.clone();
        self.state = State::new(bounds, Tables::new(Rc::clone(&self.db)));
        self.written = Written::default();
        self.is_importing = true;
        Ok(())
    }

    pub(super) fn import(&mut self, records: &[Record]) -> Result<()> {
        if !self.is_importing {
            return Err(not_begun());
        }
        records
            .iter()
            .try_for_each(|record| self.state.import(record))
    }

    pub(super) fn end_import(&mut self) -> Result<()> {
        if !self.is_importing {
            return Err(not_begun());
        }
        self.state.finish_import()?;
        self.db.run("UPDATE meta SET v = 2 WHERE k = 'copying'", []);
        self.is_importing = false;
        Ok(())
    }

    pub(super) fn lead(&self) {
        self.db.ask(lead);
    }

    pub(super) fn moved(&self, to: &str) {
        let put = "INSERT INTO meta VALUES ('moved', ?1) ON CONFLICT DO UPDATE SET v = ?1";
        self.db.run(put, [to]);
    }
}
