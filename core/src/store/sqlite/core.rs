//! What commands work on: the state with its tables, and reading for one queue at a time.
//!
//! A failure of the database is with the connection, not in the answers; the writer looks there
//! after every command.

use std::rc::Rc;

use rusqlite::Connection;

use crate::Result;
use crate::clock::Timestamp;
use crate::model::RealmId;

use super::super::state::{Change, State};
use super::super::types::{
    Bounds, DeadLetter, DeadLetterId, Delayed, Due, Entry, Maintained, Page, PageLimit, QueueId,
    Seq, Settled,
};
use super::books::{self, Written};
use super::db::Db;
use super::keep::{Tables, id_of};
use super::read::{self, View};

/// Damaged bodies kept to be looked at.
const DAMAGED: i64 = 1000;
/// Pages given back to the system in one go, when a quarter of at least so many are free.
const VACUUM: i64 = 256;

/// The state of a store, with its tables.
pub(super) struct Core {
    pub(super) state: State<Tables>,
    pub(super) db: Rc<Db>,
    pub(super) written: Written,
    /// A copy of another store is coming in.
    pub(super) is_importing: bool,
}

impl Core {
    /// Everything as it is in the database.
    pub(super) fn load(conn: Connection, bounds: Bounds) -> Result<Self> {
        let db = Db::new(conn).map_err(|error| super::failure::of(&error, "reading"))?;
        let db = Rc::new(db);
        let (state, written) = books::load(Rc::clone(&db), bounds)?;
        Ok(Self {
            state,
            db,
            written,
            is_importing: false,
        })
    }

    /// What went wrong with the database since the last look.
    pub(super) fn check(&self) -> Result<()> {
        let failure = self.db.take_failure();
        failure.map_or(Ok(()), |error| Err(super::failure::of(&error, "writing")))
    }

    /// Writes down what the state holds itself.
    pub(super) fn flush(&mut self) {
        books::flush(&mut self.state, &mut self.written);
        self.db.forget_last();
    }

    /// The connection alone, for whoever begins anew.
    pub(super) fn into_conn(self) -> Option<Connection> {
        drop(self.state);
        Rc::try_unwrap(self.db).ok().map(Db::into_conn)
    }

    pub(super) fn page(
        &mut self,
        queue: QueueId,
        after: Seq,
        limit: PageLimit,
        now: Timestamp,
    ) -> Result<Page> {
        let db = Rc::clone(&self.db);
        self.state.change(queue, |change| {
            let view = View::of(change.queue, change.log, after);
            let found = db.ask(|conn| read::page(conn, view, limit, Some(now)));
            let Some(found) = found else {
                return nothing(after);
            };
            let mut page = found.page;
            for seq in found.expired {
                let settled = change.queue.settle_waiting(seq, change.log);
                page.expired += u64::from(settled == Settled::Now);
            }
            change.counters.expired += page.expired;
            for (seq, mid) in found.damaged {
                change.queue.settle_waiting(seq, change.log);
                set_aside(&db, change, seq, mid);
            }
            page
        })
    }

    pub(super) fn due(&mut self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Result<Due> {
        let db = Rc::clone(&self.db);
        self.state.change(queue, |change| {
            let found = match change.queue.exceptions {
                0 => None,
                _ => db.ask(|conn| read::due(conn, queue, limit, now)),
            };
            let Some(found) = found else {
                return Due {
                    entries: Vec::new(),
                    next: None,
                    expired: 0,
                };
            };
            let mut due = found.due;
            for seq in found.expired {
                due.expired += u64::from(change.end_exception(seq));
            }
            change.counters.expired += due.expired;
            for (seq, mid) in found.damaged {
                set_aside(&db, change, seq, mid);
                change.end_exception(seq);
            }
            due
        })
    }

    pub(super) fn browse(
        &mut self,
        queue: QueueId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Entry>> {
        let db = Rc::clone(&self.db);
        self.state.change_any(queue, |change| {
            let view = View::of(change.queue, change.log, after);
            let entries = db.ask(|conn| read::browse(conn, queue, view, limit));
            entries.unwrap_or_default()
        })
    }

    pub(super) fn dead_letters(
        &self,
        name: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Vec<DeadLetter> {
        let realm = self.state.realms.get(name).filter(|realm| realm.dead > 0);
        let letters = realm.and_then(|realm| {
            let realm = (realm.id, name);
            self.db
                .ask(|conn| read::dead_letters(conn, realm, after, limit))
        });
        letters.unwrap_or_default()
    }

    pub(super) fn delayed(
        &mut self,
        limit: usize,
        now: Timestamp,
    ) -> (Vec<Delayed>, Option<Timestamp>) {
        let found = self.db.ask(|conn| read::delayed(conn, limit, now));
        let (due, next, damaged) = found.unwrap_or_default();
        for (message, mid) in damaged {
            keep_damaged(&self.db, mid);
            tracing::error!(body = mid, "a delayed message is damaged and set aside");
            self.state.counters.damaged += 1;
            self.state.drop_delayed(id_of(message));
        }
        (due, next)
    }

    /// One bite of upkeep.
    pub(super) fn maintain(&mut self, budget: usize, now: Timestamp) -> Maintained {
        let mut done = self.state.maintain(budget, now);
        self.db.look_for_shared();
        let has_trash = self.db.empty_trash();
        let has_room = !has_trash && self.give_back();
        done.more |= has_trash || has_room;
        done
    }

    /// Gives free pages back to the system; whether there are more.
    fn give_back(&self) -> bool {
        let count = |sql: &str| self.db.row(sql, [], |row| row.get::<_, i64>(0));
        let free = count("PRAGMA freelist_count").unwrap_or(0);
        let all = count("PRAGMA page_count").unwrap_or(0);
        if free < VACUUM || free < all / 4 {
            return false;
        }
        self.db.ask(|conn| {
            let mut statement =
                conn.prepare_cached(&format!("PRAGMA incremental_vacuum({VACUUM})"))?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        });
        true
    }
}

fn nothing(after: Seq) -> Page {
    Page {
        entries: Vec::new(),
        next: after,
        expired: 0,
        end: false,
    }
}

/// Says that an entry is damaged, and keeps what is left of its body (P7).
fn set_aside(db: &Db, change: &mut Change<'_, Tables>, seq: Seq, mid: i64) {
    keep_damaged(db, mid);
    change.counters.damaged += 1;
    tracing::error!(
        realm = change.log.realm.as_str(),
        key = %change.log.key.wire_name(),
        name = &*change.queue.name,
        queue = change.queue.id.0,
        seq,
        body = mid,
        "a stored message is damaged and set aside; the queue goes on"
    );
}

pub(super) fn keep_damaged(db: &Db, mid: i64) {
    db.run(
        "INSERT OR IGNORE INTO damaged SELECT mid, data FROM body WHERE mid = ?1 \
         AND (SELECT count(*) FROM damaged) < ?2",
        (mid, DAMAGED),
    );
}
