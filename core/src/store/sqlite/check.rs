//! Looking through a database that nobody has open: its pages, every body, and whether the rows fit
//! together. Changes nothing, not even the log of the last writer.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row};

use crate::model::{Key, Message, RealmId};
use crate::{Error, ErrorKind, Result};

use super::codec;
use super::lock::Lock;
use super::open::{check_content, check_name, check_place, one_name, refused, says};
use super::options::SqliteOptions;

/// Findings of one kind that are told.
const MOST: i64 = 1_000;
/// Bodies between two words of how far it has come.
const WORDS: u64 = 100_000;

/// What does not fit together: what to say, and who it is said of, as text.
const REFERENCES: &[(&str, &str)] = &[
    (
        "an entry has no message",
        "SELECT 'log ' || log || ', entry ' || seq FROM entry \
         WHERE mid NOT IN (SELECT mid FROM body) AND log IN (SELECT id FROM log)",
    ),
    (
        "an exception has no message",
        "SELECT 'queue ' || queue || ', entry ' || seq FROM exception \
         WHERE mid NOT IN (SELECT mid FROM body)",
    ),
    (
        "a dead letter has no message",
        "SELECT queue || '-' || seq FROM dead WHERE mid NOT IN (SELECT mid FROM body)",
    ),
    (
        "a delayed message has no body",
        "SELECT 'message ' || message FROM delayed WHERE mid NOT IN (SELECT mid FROM body)",
    ),
    (
        "a body is referred to another number of times than is noted",
        "WITH used(mid) AS ( \
           SELECT mid FROM entry UNION ALL SELECT mid FROM exception \
           UNION ALL SELECT mid FROM dead UNION ALL SELECT mid FROM delayed), \
         counted(mid, n) AS (SELECT mid, count(*) FROM used GROUP BY mid) \
         SELECT 'body ' || body.mid FROM body LEFT JOIN refs USING (mid) LEFT JOIN counted USING (mid) \
         WHERE coalesce(refs.n, 1) IS NOT counted.n",
    ),
    (
        "a log has no realm",
        "SELECT 'log ' || id FROM log WHERE realm NOT IN (SELECT id FROM realm)",
    ),
    (
        "a queue has no log",
        "SELECT 'queue ' || id FROM queue WHERE log NOT IN (SELECT id FROM log)",
    ),
    (
        "an exception has no queue",
        "SELECT 'queue ' || queue || ', entry ' || seq FROM exception \
         WHERE queue NOT IN (SELECT id FROM queue)",
    ),
    (
        "a queue has another number of exceptions than is noted",
        "SELECT 'queue ' || id FROM queue WHERE exceptions IS NOT \
         (SELECT count(*) FROM exception WHERE exception.queue = queue.id)",
    ),
    (
        "a dead letter has no realm",
        "SELECT queue || '-' || seq FROM dead WHERE realm NOT IN (SELECT id FROM realm)",
    ),
    (
        "a delayed message has no realm",
        "SELECT 'message ' || message FROM delayed WHERE realm NOT IN (SELECT id FROM realm)",
    ),
];

/// Pages that are none: SQLite's own look ends at the first of them without a word where it is.
const NO_PAGES: &str = "SELECT s.type || ' ' || s.name || ', page ' || pageno || ': it is no page' \
     FROM dbstat d JOIN sqlite_schema s ON s.name = d.name WHERE pagetype = 'corrupted' LIMIT 1000";

/// Who refers to a body.
const HOLDERS: &[&str] = &[
    "SELECT 'realm ' || r.name || ', log ' || e.log || ', entry ' || e.seq FROM entry e \
     JOIN log l ON l.id = e.log JOIN realm r ON r.id = l.realm WHERE e.mid = ?1",
    "SELECT 'queue ' || q.name || ', entry ' || x.seq FROM exception x \
     JOIN queue q ON q.id = x.queue WHERE x.mid = ?1",
    "SELECT 'dead letter ' || queue || '-' || seq FROM dead WHERE mid = ?1",
    "SELECT 'delayed message ' || message FROM delayed WHERE mid = ?1",
];

/// Tells each damage to `found`, how far it has come to `notes`; how many bodies there are.
///
/// # Errors
/// Why it cannot be looked at; damage is none.
pub(super) fn check(
    options: &SqliteOptions,
    notes: &mut dyn FnMut(&str),
    found: &mut dyn FnMut(String),
) -> Result<u64> {
    let path = options.path.clone().unwrap_or_default();
    check_name(&path).map_err(|why| refused(ErrorKind::Config, &path, why))?;
    let path = one_name(path);
    check_place(&path)?;
    if !path.exists() {
        return Err(refused(ErrorKind::Config, &path, "it is not there"));
    }
    let _lock = Lock::take(&path)?;
    let conn = connect(&path, options).map_err(|error| says(&path, &error))?;
    match check_content(&conn, &path) {
        Ok(true) => {}
        Ok(false) => return Ok(0),
        Err(error) if error.kind() == ErrorKind::StoreCorrupt => {
            found(error.message().to_owned());
            return Ok(0);
        }
        Err(error) => return Err(error),
    }
    // What one look stumbles over need not stop the others.
    notes("looking through the pages");
    if let Err(error) = pages(&conn, found) {
        found(format!(
            "the pages cannot be looked through to their end: {error}"
        ));
    }
    match rows(&conn, NO_PAGES, |row| row.get::<_, String>(0)) {
        Ok(pages) => pages.into_iter().for_each(&mut *found),
        Err(error) => found(format!("where damaged pages are cannot be told: {error}")),
    }
    let (mut count, mut last) = (0, 0);
    if let Err(error) = bodies(&conn, notes, found, (&mut count, &mut last)) {
        found(format!(
            "table body cannot be read behind body {last}: {error}"
        ));
    }
    notes("looking at what refers to what");
    for (what, sql) in REFERENCES {
        let sql = format!("{sql} LIMIT {MOST}");
        match rows(&conn, &sql, |row| row.get::<_, String>(0)) {
            Ok(who) => who.iter().for_each(|who| found(format!("{what}: {who}"))),
            Err(error) => found(format!("whether {what} cannot be told: {error}")),
        }
    }
    words(&conn, found).unwrap_or_else(|error| {
        found(format!("table realm, log or queue cannot be read: {error}"));
    });
    Ok(count)
}

fn connect(path: &Path, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.busy_timeout(options.busy_timeout)?;
    conn.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY;")?;
    Ok(conn)
}

fn rows<T>(
    conn: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    conn.prepare(sql)?.query_map([], read)?.collect()
}

/// What SQLite finds in the pages, told as it comes: the damage that it tells of may be its end.
fn pages(conn: &Connection, found: &mut dyn FnMut(String)) -> rusqlite::Result<()> {
    let trees = trees(conn).unwrap_or_default();
    let mut statement = conn.prepare("PRAGMA quick_check(1000)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let said: String = row.get(0)?;
        let lines = said.lines().filter(|line| !line.starts_with("***"));
        lines
            .filter(|line| *line != "ok")
            .for_each(|line| found(of_page(line, &trees)));
    }
    Ok(())
}

/// Tables and indices by the page they begin at, as SQLite speaks of them.
fn trees(conn: &Connection) -> rusqlite::Result<HashMap<u64, String>> {
    let all = "SELECT rootpage, type || ' ' || name FROM sqlite_schema WHERE rootpage > 0";
    let all = rows(conn, all, |row| {
        Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?))
    })?;
    Ok(all.into_iter().collect())
}

/// What SQLite says of a page, with the table or index in the place of its first page's number:
/// `Tree 5 page 9 cell 0: …` is `table body, page 9 cell 0: …`.
fn of_page(line: &str, trees: &HashMap<u64, String>) -> String {
    let told = || {
        let (number, rest) = line.strip_prefix("Tree ")?.split_once([' ', ':'])?;
        let tree = trees.get(&number.parse().ok()?)?;
        Some(format!("{tree}, {}", rest.trim_start()))
    };
    told().unwrap_or_else(|| line.to_owned())
}

/// Every body against its checksum: how many there are, and the last one that was read.
fn bodies(
    conn: &Connection,
    notes: &mut dyn FnMut(&str),
    found: &mut dyn FnMut(String),
    (count, last): (&mut u64, &mut i64),
) -> rusqlite::Result<()> {
    let mut statement = conn.prepare("SELECT mid, data FROM body ORDER BY mid")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let mid: i64 = row.get(0)?;
        let read = row.get_ref(1)?.as_bytes().unwrap_or_default().to_vec();
        (*count, *last) = (*count + 1, mid);
        if let Err(error) = Message::decode(read.into()) {
            let who = holders(conn, mid)?;
            let why = error.message().trim_end_matches("; it is set aside");
            found(format!("body {mid} ({who}): {why}"));
        }
        if count.is_multiple_of(WORDS) {
            notes(&format!("{count} messages read"));
        }
    }
    Ok(())
}

fn holders(conn: &Connection, mid: i64) -> rusqlite::Result<String> {
    for sql in HOLDERS {
        let who = conn.query_row(sql, [mid], |row| row.get(0)).optional()?;
        if let Some(who) = who {
            return Ok(who);
        }
    }
    Ok("nobody refers to it".to_owned())
}

/// Names, keys and settings that a broker could not read.
fn words(conn: &Connection, found: &mut dyn FnMut(String)) -> rusqlite::Result<()> {
    let texts = |sql: &str| rows(conn, sql, |row| Ok((row.get(0)?, row.get(1)?)));
    let realms: Vec<(i64, String)> = texts("SELECT id, name FROM realm")?;
    for (id, name) in realms {
        if RealmId::parse(&name).is_err() {
            found(format!("realm {id} has a name that is none"));
        }
    }
    let logs: Vec<(i64, String)> = texts("SELECT id, key FROM log")?;
    for (id, key) in logs {
        if Key::decode(&key).is_none() {
            found(format!("log {id} has a key that is none"));
        }
    }
    let queues: Vec<(i64, String)> = texts("SELECT id, settings FROM queue")?;
    for (id, settings) in queues {
        if codec::settings(&settings).is_none() {
            found(format!("queue {id} has settings that cannot be read"));
        }
    }
    Ok(())
}

impl super::SqliteStore {
    /// Looks through a database that nobody has open, without changing it: pages, the checksum of
    /// every message, and what refers to what. Tells each damage to `found` and how far it has come
    /// to `notes`; how many messages there are.
    ///
    /// # Errors
    /// `store_locked` if a broker uses it; `config` if it is not there or another program's;
    /// `store_unsupported` for a newer version.
    pub fn check(
        options: &SqliteOptions,
        notes: &mut dyn FnMut(&str),
        found: &mut dyn FnMut(String),
    ) -> Result<u64, Error> {
        check(options, notes, found)
    }
}
