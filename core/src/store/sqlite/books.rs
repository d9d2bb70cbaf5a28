//! What a state holds itself, as rows: read once when the store opens, written with every batch.
//!
//! Only what has changed since it was written last is written, so reading a queue costs no write.
//! Settled runs go run by run, numbers of queues and logs as one row each. Loading writes nothing,
//! so a store whose disk is full opens.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rusqlite::Row;

use crate::clock::Timestamp;
use crate::model::{Key, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::state::{Entries as _, Kept, Queue, Realm, Runs, Shut, State, Totals};
use super::super::types::{Bounds, LogId, QueueId, QueueSpec, Seq};
use super::codec;
use super::db::{Db, int, uint};
use super::entries::{EntryRows, expiry};
use super::failure;
use super::keep::Tables;
use super::uids::UidRows;

/// Kinds of runs: settled by a queue; gone from a log, by seq and by number among the guaranteed.
const DONE: i64 = 0;
const GONE: i64 = 1;
const GONE_GUARANTEED: i64 = 2;

type QueueNumbers = ([i64; 10], Option<(i64, i64)>);
type LogNumbers = ([i64; 4], Option<i64>);

/// What was written last.
#[derive(Debug, Default)]
pub(super) struct Written {
    queues: HashMap<QueueId, QueueNumbers>,
    logs: HashMap<LogId, LogNumbers>,
    last_id: u64,
}

fn queue_numbers(queue: &Queue) -> QueueNumbers {
    let numbers = [
        queue.seen.0,
        queue.sent,
        u64::from(queue.is_left),
        queue.exceptions,
        queue.exception_bytes,
        queue.joined,
        queue.owned,
        queue.owned_guaranteed,
        queue.low,
        queue.gone,
    ];
    let shut = queue.shut.map(|shut| (int(shut.number), int(shut.seq)));
    (numbers.map(int), shut)
}

fn log_numbers(head: Totals, line_expires: Option<i64>) -> LogNumbers {
    let numbers = [head.seq, head.guaranteed, head.bytes, head.guaranteed_bytes];
    (numbers.map(int), line_expires)
}

// --- Writing ---

/// Writes down what has changed; failures are with the connection.
pub(super) fn flush(state: &mut State<Tables>, written: &mut Written) {
    let db = Rc::clone(&state.keep.db);
    for id in state.keep.queues.drain() {
        match state.queues.get_mut(&id) {
            Some(queue) => flush_queue(&db, queue, written),
            None => {
                written.queues.remove(&id);
            }
        }
    }
    for id in state.keep.logs.drain() {
        let Some(log) = state.logs.get_mut(&id) else {
            written.logs.remove(&id);
            continue;
        };
        let numbers = log_numbers(log.head(), expiry(log.entries.line_expires));
        // Rows tell only what lies behind what is written of their log.
        let told_from = written.logs.get(&id).map_or(0, |([seq, ..], _)| *seq);
        let is_told = log.entries.tell(log.head()) && told_from < numbers.0[0];
        if !is_told && written.logs.insert(id, numbers) != Some(numbers) {
            let ([seq, guaranteed, bytes, guaranteed_bytes], line_expires) = numbers;
            db.run(
                "UPDATE log SET head = ?2, guaranteed = ?3, bytes = ?4, guaranteed_bytes = ?5, \
                 line_expires = ?6 WHERE id = ?1",
                (
                    int(id.0),
                    seq,
                    guaranteed,
                    bytes,
                    guaranteed_bytes,
                    line_expires,
                ),
            );
        }
        flush_runs(&db, id.0, GONE, &mut log.gone);
        flush_runs(&db, id.0, GONE_GUARANTEED, &mut log.gone_guaranteed);
    }
    let mut bytes = Vec::new();
    for name in state.keep.marks.drain() {
        let Some(realm) = state.realms.get_mut(&name) else {
            continue;
        };
        let id = int(realm.id);
        for (instance, mark) in realm.marks.take_touched() {
            let Some(mark) = mark else {
                let drop = "DELETE FROM mark WHERE realm = ?1 AND instance = ?2";
                db.run(drop, (id, instance));
                continue;
            };
            codec::mark_bytes(mark, &mut bytes);
            db.run(
                "INSERT INTO mark VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE \
                 SET used = ?3, data = ?4",
                (id, instance, int(mark.used.0), &bytes[..]),
            );
        }
    }
    if state.last_id != written.last_id {
        written.last_id = state.last_id;
        let put = "INSERT INTO meta VALUES ('last_id', ?1) ON CONFLICT DO UPDATE SET v = ?1";
        db.run(put, [int(state.last_id)]);
    }
}

fn flush_queue(db: &Db, queue: &mut Queue, written: &mut Written) {
    let numbers = queue_numbers(queue);
    if written.queues.insert(queue.id, numbers) != Some(numbers) {
        let (n, shut) = numbers;
        let (shut_number, shut_seq) = shut.unzip();
        db.run(
            "UPDATE queue SET seen = ?2, sent = ?3, is_left = ?4, exceptions = ?5, \
             exception_bytes = ?6, joined = ?7, owned = ?8, owned_guaranteed = ?9, low = ?10, \
             gone = ?11, shut_number = ?12, shut_seq = ?13 WHERE id = ?1",
            (
                int(queue.id.0),
                n[0],
                n[1],
                n[2],
                n[3],
                n[4],
                n[5],
                n[6],
                n[7],
                n[8],
                n[9],
                shut_number,
                shut_seq,
            ),
        );
    }
    flush_runs(db, queue.id.0, DONE, &mut queue.done);
}

fn flush_runs(db: &Db, owner: u64, kind: i64, runs: &mut Runs) {
    for (first, last) in runs.take_touched() {
        match last {
            Some(last) => db.run(
                "INSERT INTO run VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET last = ?4",
                (int(owner), kind, int(first), int(last)),
            ),
            None => db.run(
                "DELETE FROM run WHERE owner = ?1 AND kind = ?2 AND first = ?3",
                (int(owner), kind, int(first)),
            ),
        };
    }
}

// --- Reading ---

struct Loading {
    state: State<Tables>,
    written: Written,
    names: HashMap<u64, RealmId>,
    runs: HashMap<u64, Vec<(i64, u64, u64)>>,
}

/// Everything as it is in the tables.
///
/// # Errors
/// What the database says; `store_corrupt` for rows that none of us wrote.
pub(super) fn load(db: Rc<Db>, bounds: Bounds) -> Result<(State<Tables>, Written)> {
    let state = State::new(bounds, Tables::new(Rc::clone(&db)));
    let mut loading = Loading {
        state,
        written: Written::default(),
        names: HashMap::new(),
        runs: HashMap::new(),
    };
    db.defer(true);
    let loaded = loading.load(&db);
    db.defer(false);
    if let Some(error) = db.take_failure() {
        return Err(failure::of(&error, "reading the database"));
    }
    loaded.ok_or_else(|| {
        Error::new(
            ErrorKind::StoreCorrupt,
            "the database has rows that this version cannot read",
        )
    })?;
    Ok((loading.state, loading.written))
}

fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get(at).map(uint)
}

impl Loading {
    fn load(&mut self, db: &Rc<Db>) -> Option<()> {
        let last_id = "SELECT v FROM meta WHERE k = 'last_id'";
        let last_id = db.row(last_id, [], |row| number(row, 0));
        self.state.last_id = last_id.unwrap_or(0);
        self.written.last_id = self.state.last_id;
        self.realms(db)?;
        self.marks(db)?;
        let runs = "SELECT owner, kind, first, last FROM run";
        let runs = db.rows(runs, [], |row| {
            let run = (row.get(1)?, number(row, 2)?, number(row, 3)?);
            Ok((number(row, 0)?, run))
        });
        for (owner, run) in runs {
            self.runs.entry(owner).or_default().push(run);
        }
        self.logs(db)?;
        self.queues(db)?;
        self.trim(db);
        Some(())
    }

    fn realms(&mut self, db: &Rc<Db>) -> Option<()> {
        let realms = "SELECT id, name, (SELECT count(*) FROM uid WHERE realm = id), \
                      (SELECT count(*) FROM delayed WHERE realm = id), \
                      (SELECT count(*) FROM dead WHERE realm = id) FROM realm";
        let rows = db.rows(realms, [], |row| {
            let counts = [number(row, 2)?, number(row, 3)?, number(row, 4)?];
            Ok((number(row, 0)?, row.get::<_, String>(1)?, counts))
        });
        for (id, name, [uids, delayed, dead]) in rows {
            let name = RealmId::parse(&name).ok()?;
            let uids = UidRows::new(Rc::clone(db), id, uids);
            let max = self.state.bounds.quota(&name).queue;
            let mut realm = Realm::new(id, uids, max, true);
            // That is a look at every entry.
            realm.is_weighed = false;
            realm.delayed = delayed;
            realm.dead = usize::try_from(dead).ok()?;
            self.names.insert(id, name.clone());
            self.state.realms.insert(name, realm);
        }
        Some(())
    }

    fn marks(&mut self, db: &Db) -> Option<()> {
        let marks = "SELECT realm, instance, used, data FROM mark ORDER BY used";
        let marks = db.rows(marks, [], |row| {
            let mark = codec::mark(row.get_ref(3)?.as_blob()?, Timestamp(number(row, 2)?));
            Ok((number(row, 0)?, row.get::<_, Arc<str>>(1)?, mark))
        });
        for (realm, instance, mark) in marks {
            let realm = self.state.realms.get_mut(self.names.get(&realm)?)?;
            realm.marks.restore(instance, mark?);
        }
        Some(())
    }

    fn restore(&self, owner: u64, kind: i64, into: &mut Runs) {
        for (of, first, last) in self.runs.get(&owner).into_iter().flatten() {
            if *of == kind {
                into.restore(*first, *last);
            }
        }
    }

    fn logs(&mut self, db: &Rc<Db>) -> Option<()> {
        let logs = "SELECT id, realm, key, head, guaranteed, bytes, guaranteed_bytes, \
                    line_expires, (SELECT min(seq) FROM entry WHERE log = id) FROM log";
        let rows = db.rows(logs, [], |row| {
            let written = Totals {
                seq: number(row, 3)?,
                guaranteed: number(row, 4)?,
                bytes: number(row, 5)?,
                guaranteed_bytes: number(row, 6)?,
            };
            let line_expires: Option<i64> = row.get(7)?;
            let first: Option<i64> = row.get(8)?;
            let ids = (number(row, 0)?, number(row, 1)?);
            let texts: String = row.get(2)?;
            Ok((ids, texts, (written, line_expires), first))
        });
        for ((id, realm), key, (written, line_expires), first) in rows {
            let name = self.names.get(&realm)?.clone();
            let key = Key::decode(&key)?;
            // What was pushed since that was written stands in its own rows.
            let end = EntryRows::end_behind(db, id, written.seq);
            let (head, latest) = end.unwrap_or((written, None));
            let front = first.map_or(head.seq, |first| uint(first).saturating_sub(1));
            let numbers = log_numbers(written, line_expires);
            let latest = latest.or(line_expires.map(|at| Timestamp(uint(at))));
            let realm = self.state.realms.get_mut(&name)?;
            let rows = (Rc::clone(db), realm.kept.clone());
            let entries = EntryRows::new(rows, id, (front, head.seq), latest);
            let log_id = LogId(id);
            realm.logs.insert(key.clone(), log_id);
            let mut log = State::<Tables>::log_of((name, realm), key, entries, (head, front));
            self.restore(id, GONE, &mut log.gone);
            self.restore(id, GONE_GUARANTEED, &mut log.gone_guaranteed);
            self.written.logs.insert(log_id, numbers);
            self.state.logs.insert(log_id, Box::new(log));
        }
        Some(())
    }

    fn queues(&mut self, db: &Db) -> Option<()> {
        let queues = "SELECT id, log, kind, name, settings, seen, sent, is_left, exceptions, \
                      exception_bytes, joined, owned, owned_guaranteed, low, gone, shut_number, \
                      shut_seq FROM queue";
        let rows = db.rows(queues, [], |row| {
            let mut numbers = [0; 10];
            for (at, into) in numbers.iter_mut().enumerate() {
                *into = number(row, 5 + at)?;
            }
            let shut: Option<i64> = row.get(15)?;
            let shut = match shut {
                Some(last) => Some((uint(last), number(row, 16)?)),
                None => None,
            };
            let texts: (Arc<str>, String) = (row.get(3)?, row.get(4)?);
            let ids = (number(row, 0)?, number(row, 1)?, row.get(2)?);
            Ok((ids, texts, numbers, shut))
        });
        for ((id, log, kind), (name, settings), numbers, shut) in rows {
            self.queue(
                (QueueId(id), LogId(log), kind),
                (name, settings),
                numbers,
                shut,
            )?;
        }
        Some(())
    }

    fn queue(
        &mut self,
        (id, log_id, kind): (QueueId, LogId, i64),
        (name, settings): (Arc<str>, String),
        [
            seen,
            sent,
            is_left,
            exceptions,
            exception_bytes,
            joined,
            owned,
            owned_guaranteed,
            low,
            gone,
        ]: [u64; 10],
        shut: Option<(u64, Seq)>,
    ) -> Option<()> {
        let log = self.state.logs.get(&log_id)?;
        let spec = QueueSpec {
            realm: log.realm.clone(),
            key: log.key.clone(),
            kind: codec::kind(kind)?,
            name,
            settings: codec::settings(&settings)?,
        };
        let named = (log_id, spec.kind, Arc::clone(&spec.name));
        let mut queue = Queue::new(id, log_id, spec, log.head(), true);
        queue.seen = Timestamp(seen);
        queue.sent = sent;
        queue.is_left = is_left != 0;
        queue.exceptions = exceptions;
        queue.weigh_exceptions(log, |_| exception_bytes);
        queue.joined = joined;
        (queue.owned, queue.owned_guaranteed) = (owned, owned_guaranteed);
        (queue.low, queue.gone) = (low, gone);
        queue.shut = shut.map(|(number, seq)| Shut { number, seq });
        self.restore(id.0, DONE, &mut queue.done);
        self.written.queues.insert(id, queue_numbers(&queue));
        let overflow = self.state.bounds.overflow;
        let log = self.state.logs.get_mut(&log_id)?;
        log.queues += 1;
        queue.begin(log, overflow);
        queue.end_change(log, overflow);
        let depth = queue.depth(log);
        let realm = self.state.realms.get_mut(&log.realm)?;
        realm.queued += depth;
        realm.queues.insert(named, id);
        self.state.keep.queues.insert(id);
        self.state.queues.insert(id, Box::new(queue));
        Some(())
    }

    /// Notes what nobody needs, and when logs are to be visited.
    fn trim(&mut self, db: &Db) {
        for (id, log) in &mut self.state.logs {
            log.trim();
            log.wake = log.entries.next_expiry();
            if let Some(wake) = log.wake {
                self.state.wakes.insert((wake, *id));
            }
        }
        let mut last = -1;
        let next = "SELECT log FROM entry WHERE log > ?1 ORDER BY log LIMIT 1";
        while let Some(log) = db.row(next, [last], |row| row.get::<_, i64>(0)) {
            if !self.state.logs.contains_key(&LogId(uint(log))) {
                db.discard(log, 0, u64::MAX, &Kept::default());
            }
            last = log;
        }
    }
}
