//! The write connection as the rows see it: calls that never fail, bodies and how often they are
//! referred to, and what is to be deleted bit by bit.
//!
//! The first failure is kept and every later call answers as if there was nothing; the writer asks
//! for it after each command, takes the whole batch back and reads the state anew. So the rules of
//! the state stand without a single error path. Lives on the writer's thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Params, Row};

use crate::model::Message;

use super::super::state::Kept;
use super::super::types::Seq;

/// Entries deleted in one go; the rest is deleted later.
const BITE: usize = 1024;

/// A number as SQLite has them; beyond that there is nothing to tell apart.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that was written by [`int`].
pub(super) fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Entries of a log after one up to another, and where their bytes count.
#[derive(Debug)]
struct Trash {
    log: i64,
    after: i64,
    upto: i64,
    kept: Kept,
}

/// The write connection.
#[derive(Debug)]
pub(super) struct Db {
    conn: Connection,
    failed: RefCell<Option<rusqlite::Error>>,
    next_body: Cell<i64>,
    /// The body written last: a message that goes into several logs is written once.
    last_body: RefCell<Option<(Arc<Message>, i64)>>,
    /// Whether any body may be referred to more than once.
    is_shared: Cell<bool>,
    buffer: RefCell<Vec<u8>>,
    /// Entries that nobody needs and that are still there.
    trash: RefCell<VecDeque<Trash>>,
    /// Nothing is deleted at present, only noted.
    is_deferring: Cell<bool>,
}

impl Db {
    pub(super) fn new(conn: Connection) -> rusqlite::Result<Self> {
        let next = "SELECT coalesce(max(mid), 0) + 1 FROM body";
        let next_body = conn.query_row(next, [], |row| row.get(0))?;
        let shared = "SELECT EXISTS(SELECT 1 FROM refs)";
        let is_shared = conn.query_row(shared, [], |row| row.get(0))?;
        Ok(Self {
            conn,
            failed: RefCell::default(),
            next_body: Cell::new(next_body),
            last_body: RefCell::default(),
            is_shared: Cell::new(is_shared),
            buffer: RefCell::default(),
            trash: RefCell::default(),
            is_deferring: Cell::new(false),
        })
    }

    pub(super) fn conn(&self) -> &Connection {
        &self.conn
    }

    pub(super) fn into_conn(self) -> Connection {
        self.conn
    }

    /// What went wrong first since the last call.
    pub(super) fn take_failure(&self) -> Option<rusqlite::Error> {
        self.failed.borrow_mut().take()
    }

    /// Runs `ask`; `None` if it fails, or something failed before.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        if self.failed.borrow().is_some() {
            return None;
        }
        match ask(&self.conn) {
            Ok(answer) => Some(answer),
            Err(error) => {
                *self.failed.borrow_mut() = Some(error);
                None
            }
        }
    }

    /// Runs one statement; how many rows it changed.
    pub(super) fn run(&self, sql: &str, params: impl Params) -> usize {
        let changed = self.ask(|conn| conn.prepare_cached(sql)?.execute(params));
        changed.unwrap_or(0)
    }

    /// The first row of an answer.
    pub(super) fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Option<T> {
        let row = self.ask(|conn| {
            let mut statement = conn.prepare_cached(sql)?;
            statement.query_row(params, read).optional()
        });
        row.flatten()
    }

    /// All rows of an answer that is known to be short.
    pub(super) fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Vec<T> {
        let rows = self.ask(|conn| {
            let mut statement = conn.prepare_cached(sql)?;
            let rows = statement.query_map(params, read)?;
            rows.collect()
        });
        rows.unwrap_or_default()
    }

    // --- Bodies ---

    /// Writes a message, or refers to it once more if it was the last one written; its number.
    pub(super) fn put_body(&self, message: &Arc<Message>) -> i64 {
        let last = self.last_body.borrow();
        if let Some((written, mid)) = &*last
            && Arc::ptr_eq(written, message)
        {
            let mid = *mid;
            drop(last);
            self.retain(mid);
            return mid;
        }
        drop(last);
        let mid = self.next_body.get();
        self.next_body.set(mid + 1);
        let mut buffer = self.buffer.borrow_mut();
        buffer.clear();
        message.encode(&mut buffer);
        self.run("INSERT INTO body VALUES (?1, ?2)", (mid, &buffer[..]));
        if buffer.capacity() > 1 << 20 {
            *buffer = Vec::new();
        }
        *self.last_body.borrow_mut() = Some((Arc::clone(message), mid));
        mid
    }

    /// Nothing is written once any more: a batch has ended.
    pub(super) fn forget_last(&self) {
        self.last_body.borrow_mut().take();
    }

    /// One more reference.
    pub(super) fn retain(&self, mid: i64) {
        self.is_shared.set(true);
        self.run(
            "INSERT INTO refs VALUES (?1, 2) ON CONFLICT DO UPDATE SET n = n + 1",
            [mid],
        );
    }

    /// One reference less; the last one takes the body along.
    pub(super) fn release(&self, mid: i64) {
        if self.is_shared.get() {
            let less = "UPDATE refs SET n = n - 1 WHERE mid = ?1 RETURNING n";
            match self.row(less, [mid], |row| row.get::<_, i64>(0)) {
                Some(1) => {
                    self.run("DELETE FROM refs WHERE mid = ?1", [mid]);
                    return;
                }
                Some(_) => return,
                None => {}
            }
        }
        self.drop_bodies(mid, mid);
    }

    fn drop_bodies(&self, first: i64, last: i64) {
        self.forget_last();
        self.run(
            "DELETE FROM body WHERE mid BETWEEN ?1 AND ?2",
            (first, last),
        );
    }

    /// One reference less to each of these.
    pub(super) fn release_all(&self, mids: &[i64]) {
        if self.is_shared.get() {
            return mids.iter().for_each(|mid| self.release(*mid));
        }
        for run in mids.chunk_by(|a, b| a + 1 == *b) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                self.drop_bodies(*first, *last);
            }
        }
    }

    /// Notes whether any body is referred to more than once, which costs less than asking for each.
    pub(super) fn look_for_shared(&self) {
        if self.is_shared.get() {
            let any = "SELECT EXISTS(SELECT 1 FROM refs)";
            let any = self.row(any, [], |row| row.get(0));
            self.is_shared.set(any.unwrap_or(true));
        }
    }

    // --- What nobody needs ---

    /// Deletes the entries of a log after `after` up to `upto`: some now, the others bit by bit.
    /// They count in `kept` until then.
    pub(super) fn discard(&self, log: i64, after: Seq, upto: Seq, kept: &Kept) {
        let trash = Trash {
            log,
            after: int(after),
            upto: int(upto),
            kept: kept.clone(),
        };
        let left = match self.is_deferring.get() {
            true => Some(trash),
            false => self.discard_some(trash),
        };
        self.trash.borrow_mut().extend(left);
    }

    /// Whether to delete nothing now.
    pub(super) fn defer(&self, is_deferring: bool) {
        self.is_deferring.set(is_deferring);
    }

    /// What is left of it.
    fn discard_some(&self, trash: Trash) -> Option<Trash> {
        let Trash {
            log, after, upto, ..
        } = trash;
        let find = "SELECT seq, mid, size FROM entry WHERE log = ?1 AND seq > ?2 AND seq <= ?3 \
                    ORDER BY seq LIMIT ?4";
        let params = (log, after, upto, BITE as i64);
        let rows: Vec<(i64, i64, i64)> = self.rows(find, params, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        });
        let (last, ..) = *rows.last()?;
        self.run(
            "DELETE FROM entry WHERE log = ?1 AND seq > ?2 AND seq <= ?3",
            (log, after, last),
        );
        let mids: Vec<i64> = rows.iter().map(|(_, mid, _)| *mid).collect();
        self.release_all(&mids);
        let freed = rows.iter().map(|(.., size)| uint(*size)).sum();
        trash.kept.sub(freed);
        let is_left = rows.len() == BITE && last < upto;
        is_left.then_some(Trash {
            after: last,
            ..trash
        })
    }

    /// Deletes some of what was left for later; whether there is more.
    pub(super) fn empty_trash(&self) -> bool {
        let Some(trash) = self.trash.borrow_mut().pop_front() else {
            return false;
        };
        if let Some(left) = self.discard_some(trash) {
            self.trash.borrow_mut().push_front(left);
        }
        self.has_trash()
    }

    /// Bytes of what is left to be deleted of logs that are gone, and counts there.
    pub(super) fn trash_of(&self, kept: &Kept) -> u64 {
        let sum = "SELECT coalesce(sum(size), 0) FROM entry WHERE log = ?1 AND seq > ?2 \
                   AND seq <= ?3 AND log NOT IN (SELECT id FROM log)";
        let trash = self.trash.borrow();
        let trash = trash.iter().filter(|trash| trash.kept.is(kept));
        let bytes = trash.filter_map(
            |Trash {
                 log, after, upto, ..
             }| { self.row(sum, (log, after, upto), |row| row.get(0)) },
        );
        bytes.map(uint).sum()
    }

    /// Nothing is left to be deleted: everything is.
    pub(super) fn forget_trash(&self) {
        self.trash.borrow_mut().clear();
        self.forget_last();
    }

    pub(super) fn has_trash(&self) -> bool {
        !self.trash.borrow().is_empty()
    }
}
