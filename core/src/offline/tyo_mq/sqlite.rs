//! The rows of a database of tyo-mq: tables `messages` and `dlq`, in the order of their rowids.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};

use crate::{Error, ErrorKind, Result};

use super::super::{Streams, config};
use super::row::{Found, FoundDead};
use super::{Adoption, Intake};

const COLUMNS: &str = "id, realm, event, consumer, payload, producer, created_at, expires_at";

/// Takes everything in.
pub(in crate::offline) async fn from_sqlite(
    path: &Path,
    skips: bool,
    intake: &mut Intake<'_>,
    streams: &mut Streams<'_>,
) -> Result<()> {
    let says = |error: rusqlite::Error| {
        let path = path.display();
        Error::new(
            ErrorKind::StoreCorrupt,
            format!("the database {path} of tyo-mq cannot be read: {error}"),
        )
    };
    let conn = open(path, says)?;
    let mut adoption = Adoption::new(intake, skips);
    if has_table(&conn, "dlq").map_err(says)? {
        let sql = format!("SELECT {COLUMNS}, reason, dead_lettered_at FROM dlq ORDER BY rowid");
        let mut statement = conn.prepare(&sql).map_err(says)?;
        let mut rows = statement.query([]).map_err(says)?;
        while let Some(row) = rows.next().map_err(says)? {
            let dead = FoundDead {
                reason: text(row, 8).map_err(says)?.map(Into::into),
                at: text(row, 9).map_err(says)?.map(Into::into),
            };
            let mut found = found(row).map_err(says)?;
            found.dead = Some(dead);
            adoption.take(found, streams).await?;
        }
    }
    // Queue by queue, so that what waits for one consumer is one run.
    let sql = format!("SELECT {COLUMNS} FROM messages ORDER BY realm, event, consumer, rowid");
    let mut statement = conn.prepare(&sql).map_err(says)?;
    let mut rows = statement.query([]).map_err(says)?;
    while let Some(row) = rows.next().map_err(says)? {
        let found = found(row).map_err(says)?;
        adoption.take(found, streams).await?;
    }
    adoption.finish(streams).await
}

fn open(path: &Path, says: impl Fn(rusqlite::Error) -> Error) -> Result<Connection> {
    if !path.is_file() {
        return Err(config(format!("there is no file {}", path.display())));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(&says)?;
    conn.execute_batch("PRAGMA query_only = ON")
        .map_err(&says)?;
    if !has_table(&conn, "messages").map_err(says)? {
        let why = format!(
            "{} is no database of tyo-mq: it has no table messages",
            path.display()
        );
        return Err(config(why));
    }
    Ok(conn)
}

fn has_table(conn: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    conn.query_row(sql, [name], |row| row.get::<_, i64>(0))
        .map(|count| count > 0)
}

/// Whatever type it was stored as.
fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<String>> {
    use rusqlite::types::ValueRef;
    Ok(match row.get_ref(at)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    })
}

fn found(row: &Row<'_>) -> rusqlite::Result<Found<'static>> {
    let texts = |at| text(row, at);
    let must = |at| texts(at).map(|text| text.unwrap_or_default().into());
    let expires: Option<String> = texts(7)?;
    Ok(Found {
        id: must(0)?,
        realm: must(1)?,
        event: must(2)?,
        consumer: must(3)?,
        delivery: must(4)?,
        producer: texts(5)?.map(Into::into),
        created_at: texts(6)?.map(Into::into),
        expires_at: expires.and_then(|at| at.parse().ok()),
        dead: None,
    })
}
