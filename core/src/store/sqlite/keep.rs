//! The rows of a state as tables: exceptions, dead letters, delayed messages, realms, logs, queues.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use rusqlite::Row as SqlRow;

use crate::clock::Timestamp;
use crate::model::{Key, Message, MessageId, RealmId};

use super::super::state::{Changes, Keep, Kept, Letter, Row, Touched};
use super::super::types::{DeadLetterId, Delayed, Exception, LogId, QueueId, QueueSpec, Seq};
use super::codec;
use super::db::{Db, int, uint};
use super::documents::DocumentRows;
use super::entries::{EntryRows, Stored, expiry};
use super::telling;
use super::uids::UidRows;

/// The tables, and what of the state is not written down yet.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) db: Rc<Db>,
    pub(super) queues: HashSet<QueueId>,
    pub(super) logs: HashSet<LogId>,
    pub(super) marks: HashSet<RealmId>,
    documents: DocumentRows,
    changes: Option<Box<Changes>>,
}

impl Tables {
    pub(super) fn new(db: Rc<Db>) -> Self {
        let documents = DocumentRows::new(Rc::clone(&db));
        Self {
            db,
            documents,
            queues: HashSet::new(),
            logs: HashSet::new(),
            marks: HashSet::new(),
            changes: None,
        }
    }
}

/// Message ids have all 64 bits; nobody orders by them here.
pub(super) fn id_bits(id: MessageId) -> i64 {
    id.0.cast_signed()
}

pub(super) fn id_of(bits: i64) -> MessageId {
    MessageId(bits.cast_unsigned())
}

/// The columns of an exception but its message, the first of them at `at`.
pub(super) fn exception(row: &SqlRow<'_>, at: usize) -> rusqlite::Result<(u32, Exception)> {
    let text = |at: usize| -> rusqlite::Result<Option<Arc<str>>> { row.get(at) };
    let state = Exception {
        seq: uint(row.get(at)?),
        attempts: row.get(at + 2)?,
        failures: row.get(at + 3)?,
        returns: row.get(at + 4)?,
        due: Timestamp(uint(row.get(at + 5)?)),
        first_error: text(at + 6)?,
        last_error: text(at + 7)?,
        suspect: row.get(at + 8)?,
    };
    Ok((row.get(at + 1)?, state))
}

/// A letter, from the columns of `dead` but its realm; `None` if none of us wrote it.
pub(super) fn letter(row: &SqlRow<'_>) -> rusqlite::Result<Option<Letter<Stored>>> {
    let key: String = row.get(7)?;
    let kind: i64 = row.get(8)?;
    let (Some(key), Some(kind)) = (Key::decode(&key), codec::kind(kind)) else {
        return Ok(None);
    };
    Ok(Some(Letter {
        id: DeadLetterId {
            queue: QueueId(uint(row.get(0)?)),
            seq: uint(row.get(1)?),
        },
        held: Stored::read(row, 2)?,
        key,
        kind,
        name: row.get(9)?,
        attempts: row.get(10)?,
        rounds: row.get(11)?,
        reason: row.get(12)?,
        first_error: row.get(13)?,
        last_error: row.get(14)?,
        dead_at: Timestamp(uint(row.get(15)?)),
    }))
}

fn letter_key(realm: u64, id: DeadLetterId) -> (i64, i64, i64) {
    (int(realm), int(id.queue.0), int(id.seq))
}

impl Keep for Tables {
    type Held = Stored;
    type Entries = EntryRows;
    type Uids = UidRows;
    type Documents = DocumentRows;
    const IS_WRITTEN: bool = true;

    fn entries(&mut self, log: LogId, realm: u64, key: &Key, kept: &Kept) -> EntryRows {
        self.db.run(
            "INSERT INTO log VALUES (?1, ?2, ?3, 0, 0, 0, 0, NULL)",
            (int(log.0), int(realm), key.encode()),
        );
        EntryRows::new((Rc::clone(&self.db), kept.clone()), log.0, (0, 0), None)
    }

    fn uids(&mut self, realm: u64, name: &RealmId) -> UidRows {
        self.db.run(
            "INSERT INTO realm VALUES (?1, ?2)",
            (int(realm), name.as_str()),
        );
        UidRows::new(Rc::clone(&self.db), realm, 0)
    }

    fn documents(&self) -> &DocumentRows {
        &self.documents
    }

    fn documents_mut(&mut self) -> &mut DocumentRows {
        &mut self.documents
    }

    fn changes(&mut self) -> &mut Option<Box<Changes>> {
        &mut self.changes
    }

    fn adopt(&mut self, message: &Arc<Message>) -> Stored {
        Stored::of(self.db.put_body(message), message)
    }

    fn exceptions_after(
        &self,
        queue: QueueId,
        after: Seq,
        most: usize,
    ) -> Vec<(Seq, Option<Row<Arc<Message>>>)> {
        telling::exceptions(&self.db, queue, after, most)
    }

    fn letters_after(
        &self,
        realm: u64,
        after: Option<DeadLetterId>,
        most: usize,
    ) -> Vec<Letter<Arc<Message>>> {
        telling::letters(&self.db, realm, after, most)
    }

    fn delayed_of(&self, id: MessageId) -> Option<Delayed> {
        telling::delayed(&self.db, id)
    }

    fn delayed_after(
        &self,
        after: Option<(u64, u64)>,
        most: usize,
    ) -> (Vec<Delayed>, Option<(u64, u64)>) {
        telling::delayed_after(&self.db, after, most)
    }

    fn retain(&mut self, held: &Stored) {
        self.db.retain(held.mid);
    }

    fn release(&mut self, held: Stored) {
        self.db.release(held.mid);
    }

    fn insert_exception(&mut self, queue: QueueId, _log: LogId, row: Row<Stored>) {
        let (held, state) = (row.held, row.state);
        self.db.run(
            "INSERT INTO exception VALUES \
             (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            rusqlite::params![
                int(queue.0),
                int(state.seq),
                held.mid,
                int(held.size),
                int(held.produced.0),
                expiry(held.expires),
                held.is_guaranteed,
                row.rounds,
                state.attempts,
                state.failures,
                state.returns,
                int(state.due.0),
                state.first_error,
                state.last_error,
                state.suspect,
            ],
        );
    }

    fn take_exception(&mut self, queue: QueueId, seq: Seq) -> Option<Row<Stored>> {
        let take = "DELETE FROM exception WHERE queue = ?1 AND seq = ?2 RETURNING \
                    mid, size, produced, expires, is_guaranteed, seq, rounds, attempts, \
                    failures, returns, due, first_error, last_error, suspect";
        self.db.row(take, (int(queue.0), int(seq)), |row| {
            let (rounds, state) = exception(row, 5)?;
            Ok(Row {
                held: Stored::read(row, 0)?,
                rounds,
                state,
            })
        })
    }

    fn change_exception(&mut self, queue: QueueId, state: &Exception) -> bool {
        let changed = self.db.run(
            "UPDATE exception SET attempts = ?3, failures = ?4, returns = ?5, due = ?6, \
             first_error = ?7, last_error = ?8, suspect = ?9 WHERE queue = ?1 AND seq = ?2",
            rusqlite::params![
                int(queue.0),
                int(state.seq),
                state.attempts,
                state.failures,
                state.returns,
                int(state.due.0),
                state.first_error,
                state.last_error,
                state.suspect,
            ],
        );
        changed > 0
    }

    fn first_exception(&self, queue: QueueId) -> Option<Stored> {
        let first = "SELECT mid, size, produced, expires, is_guaranteed FROM exception \
                     WHERE queue = ?1 ORDER BY seq LIMIT 1";
        self.db
            .row(first, [int(queue.0)], |row| Stored::read(row, 0))
    }

    fn drop_exceptions(&mut self, queue: QueueId) {
        let drop = "DELETE FROM exception WHERE queue = ?1 RETURNING mid";
        let mids: Vec<i64> = self.db.rows(drop, [int(queue.0)], |row| row.get(0));
        self.db.release_all(&mids);
    }

    fn expired_exception(&self, now: Timestamp) -> Option<(QueueId, Seq)> {
        let first = "SELECT queue, seq FROM exception WHERE expires <= ?1 \
                     ORDER BY expires LIMIT 1";
        self.db.row(first, [int(now.0)], |row| {
            Ok((QueueId(uint(row.get(0)?)), uint(row.get(1)?)))
        })
    }

    fn bury(&mut self, realm: u64, letter: Letter<Stored>) -> bool {
        let older = self.take_letter(realm, letter.id);
        let is_new = older.is_none();
        if let Some(older) = older {
            self.db.release(older.held.mid);
        }
        let held = letter.held;
        self.db.run(
            "INSERT INTO dead VALUES \
             (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            rusqlite::params![
                int(realm),
                int(letter.id.queue.0),
                int(letter.id.seq),
                held.mid,
                int(held.size),
                int(held.produced.0),
                expiry(held.expires),
                held.is_guaranteed,
                letter.key.encode(),
                codec::kind_number(letter.kind),
                letter.name,
                letter.attempts,
                letter.rounds,
                letter.reason,
                letter.first_error,
                letter.last_error,
                int(letter.dead_at.0),
            ],
        );
        is_new
    }

    fn has_letter(&self, realm: u64, id: DeadLetterId) -> bool {
        let has = "SELECT 1 FROM dead WHERE realm = ?1 AND queue = ?2 AND seq = ?3";
        let has = self.db.row(has, letter_key(realm, id), |_| Ok(()));
        has.is_some()
    }

    fn take_letter(&mut self, realm: u64, id: DeadLetterId) -> Option<Letter<Stored>> {
        let take = "DELETE FROM dead WHERE realm = ?1 AND queue = ?2 AND seq = ?3 RETURNING \
                    queue, seq, mid, size, produced, expires, is_guaranteed, key, kind, name, \
                    attempts, rounds, reason, first_error, last_error, dead_at";
        self.db.row(take, letter_key(realm, id), letter).flatten()
    }

    fn end_letters(&mut self, realm: u64, most: usize, before: Timestamp) -> Vec<DeadLetterId> {
        let find = "SELECT queue, seq, mid FROM dead WHERE realm = ?1 AND dead_at <= ?2 \
                    ORDER BY dead_at, queue, seq LIMIT ?3";
        let params = (int(realm), int(before.0), int(most as u64));
        let ended: Vec<(i64, i64, i64)> = self.db.rows(find, params, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        });
        for (queue, seq, mid) in &ended {
            self.db.run(
                "DELETE FROM dead WHERE realm = ?1 AND queue = ?2 AND seq = ?3",
                (int(realm), queue, seq),
            );
            self.db.release(*mid);
        }
        let id = |(queue, seq, _): (i64, i64, i64)| DeadLetterId {
            queue: QueueId(uint(queue)),
            seq: uint(seq),
        };
        ended.into_iter().map(id).collect()
    }

    fn hold(&mut self, realm: u64, row: Delayed) {
        self.drop_delayed(row.message.id);
        let mid = self.db.put_body(&row.message);
        self.db.run(
            "INSERT INTO delayed VALUES (NULL, ?1, ?2, ?3, ?4, ?5)",
            (
                int(realm),
                id_bits(row.message.id),
                int(row.due.0),
                mid,
                row.owner,
            ),
        );
    }

    fn holds(&self, id: MessageId) -> bool {
        let has = "SELECT 1 FROM delayed WHERE message = ?1";
        self.db.row(has, [id_bits(id)], |_| Ok(())).is_some()
    }

    fn drop_delayed(&mut self, id: MessageId) -> Option<RealmId> {
        let take = "DELETE FROM delayed WHERE message = ?1 RETURNING mid, \
                    (SELECT name FROM realm WHERE id = realm)";
        let (mid, realm): (i64, Option<String>) = self
            .db
            .row(take, [id_bits(id)], |row| Ok((row.get(0)?, row.get(1)?)))?;
        self.db.release(mid);
        RealmId::parse(&realm?).ok()
    }

    fn realm_gone(&mut self, realm: u64, _name: &RealmId) {
        let realm = int(realm);
        for drop in [
            "DELETE FROM dead WHERE realm = ?1 RETURNING mid",
            "DELETE FROM delayed WHERE realm = ?1 RETURNING mid",
        ] {
            let mids: Vec<i64> = self.db.rows(drop, [realm], |row| row.get(0));
            self.db.release_all(&mids);
        }
        self.db.run("DELETE FROM uid WHERE realm = ?1", [realm]);
        self.db.run("DELETE FROM mark WHERE realm = ?1", [realm]);
        self.db.run("DELETE FROM realm WHERE id = ?1", [realm]);
    }

    fn realm_renamed(&mut self, realm: u64, from: &RealmId, to: &RealmId) {
        self.db.run(
            "UPDATE realm SET name = ?2 WHERE id = ?1",
            (int(realm), to.as_str()),
        );
        if self.marks.remove(from) {
            self.marks.insert(to.clone());
        }
    }

    fn weigh(&self, realm: u64, kept: &Kept) -> u64 {
        let sum = "SELECT coalesce(sum(size), 0) FROM entry \
                   WHERE log IN (SELECT id FROM log WHERE realm = ?1)";
        let there = self.db.row(sum, [int(realm)], |row| row.get(0));
        there.map_or(0, uint) + self.db.trash_of(kept)
    }

    fn log_gone(&mut self, log: LogId, kept: &Kept) {
        let id = int(log.0);
        self.db.discard(id, 0, u64::MAX, kept);
        self.db.run("DELETE FROM run WHERE owner = ?1", [id]);
        self.db.run("DELETE FROM log WHERE id = ?1", [id]);
    }

    fn queue_made(&mut self, queue: QueueId, log: LogId, spec: &QueueSpec) {
        self.db.run(
            "INSERT INTO queue (id, log, kind, name, settings) VALUES (?1, ?2, ?3, ?4, ?5)",
            (
                int(queue.0),
                int(log.0),
                codec::kind_number(spec.kind),
                &*spec.name,
                codec::settings_text(&spec.settings),
            ),
        );
    }

    fn queue_set(&mut self, queue: QueueId, spec: &QueueSpec) {
        self.db.run(
            "UPDATE queue SET settings = ?2 WHERE id = ?1",
            (int(queue.0), codec::settings_text(&spec.settings)),
        );
    }

    fn queue_gone(&mut self, queue: QueueId) {
        let id = int(queue.0);
        self.db.run("DELETE FROM run WHERE owner = ?1", [id]);
        self.db.run("DELETE FROM queue WHERE id = ?1", [id]);
    }

    fn note_queue(&mut self, queue: QueueId) {
        self.queues.insert(queue);
        self.note(|| Touched::Queue(queue));
    }

    fn note_log(&mut self, log: LogId) {
        self.logs.insert(log);
        self.note(|| Touched::Log(log));
    }

    fn note_marks(&mut self, realm: &RealmId) {
        if !self.marks.contains(realm) {
            self.marks.insert(realm.clone());
        }
    }
}
