//! Reading a queue from its tables: pages, due exceptions, a look, dead letters, delayed messages.
//!
//! Each function runs on any connection, for what a [`View`] says of the queue, and ends its
//! statements before it answers. What it finds expired or damaged it only reports: settling is the
//! writer's. It jumps over what is settled, so a page costs what it holds.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, Row, Statement};

use crate::clock::Timestamp;
use crate::model::{Message, RealmId};

use super::super::state::{Entries, LOOKS, Log, Queue, Room, waiting_entry};
use super::super::types::{
    DeadLetter, DeadLetterId, Delayed, Due, Entry, Page, PageLimit, QueueId, Seq,
};
use super::db::{int, uint};
use super::entries::{Stored, expiry};
use super::keep::{exception, letter};

/// Runs of settled entries that a view knows at most; a page that meets their end stops there.
const RUNS: usize = 4096;
/// A run of settled entries that is longer is jumped over, a shorter one is read over.
const JUMP: u64 = 64;

/// What reading a queue takes to know of it.
#[derive(Debug)]
pub(super) struct View {
    log: i64,
    after: Seq,
    head: Seq,
    sent: Seq,
    /// Up to here numbers are seqs.
    owned: Seq,
    /// The number of the guaranteed entry with the number `n` behind that is `n + owned - base`.
    base: u64,
    low: u64,
    end: u64,
    is_durable: bool,
    done: VecDeque<(u64, u64)>,
    /// Whether there is more after `end`.
    is_cut: bool,
}

impl View {
    /// Of a queue that is within a change, from `after` on.
    pub(super) fn of<E: Entries>(queue: &Queue, log: &Log<E>, after: Seq) -> Self {
        let from = queue.reading_from(after, log).max(queue.low);
        let mut done: VecDeque<_> = queue.done.from(from).take(RUNS + 1).collect();
        let mut end = queue.end(log);
        let is_cut = done.len() > RUNS;
        if is_cut && let Some((first, _)) = done.pop_back() {
            end = first - 1;
        }
        let is_durable = queue.settings.durable;
        Self {
            log: int(queue.log.0),
            after,
            head: log.head().seq,
            sent: queue.sent,
            owned: if is_durable { u64::MAX } else { queue.owned },
            base: queue.owned_guaranteed,
            low: from,
            end,
            is_durable,
            done,
            is_cut,
        }
    }

    /// The last number of the run of settled ones that holds `number`. Asked for in ascending
    /// order.
    fn done_end(&mut self, number: u64) -> Option<u64> {
        while let Some(&(first, last)) = self.done.front() {
            if last >= number {
                return (first <= number).then_some(last);
            }
            self.done.pop_front();
        }
        None
    }
}

/// What a page found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) page: Page,
    /// Expired entries, to be settled and counted.
    pub(super) expired: Vec<Seq>,
    /// Entries whose body is damaged, to be set aside.
    pub(super) damaged: Vec<(Seq, i64)>,
}

/// The message of a row whose body is in the column `at`; `None` if it is damaged or gone.
pub(super) fn message(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Message>> {
    let Some(body) = row.get_ref(at)?.as_blob_or_null().unwrap_or_default() else {
        return Ok(None);
    };
    Ok(Message::decode(Bytes::copy_from_slice(body)).ok())
}

/// The message with the expiry that holds for the row.
pub(super) fn dated(mut message: Message, held: &Stored) -> Arc<Message> {
    if expiry(message.expires) != expiry(held.expires) {
        message.expires = held.expires;
    }
    Arc::new(message)
}

enum Stop {
    /// Nothing is left.
    End,
    /// The limit cut it.
    Cut,
    /// Everything up to this number is settled.
    Jump(u64),
}

struct Reader<'a> {
    view: &'a mut View,
    found: Found,
    room: Room,
    looks: usize,
    looked: Seq,
    /// When to find out what has expired.
    now: Option<Timestamp>,
}

impl Reader<'_> {
    /// Reads rows `at, seq, size, expires, mid, body`; an entry's number is `at - base`.
    fn stretch(
        &mut self,
        statement: &mut Statement<'_>,
        from: u64,
        upto: u64,
        number: impl Fn(u64) -> u64,
    ) -> rusqlite::Result<Stop> {
        let mut rows = statement.query((self.view.log, int(from), int(upto)))?;
        while let Some(row) = rows.next()? {
            let number = number(uint(row.get(0)?));
            let seq = uint(row.get(1)?);
            if let Some(last) = self.view.done_end(number) {
                if last - number > JUMP {
                    return Ok(Stop::Jump(last));
                }
                continue;
            }
            if !self.take(row, seq)? {
                return Ok(Stop::Cut);
            }
            self.looked = seq;
        }
        Ok(Stop::End)
    }

    /// Takes one waiting entry; whether there was room.
    fn take(&mut self, row: &Row<'_>, seq: Seq) -> rusqlite::Result<bool> {
        let size = usize::try_from(uint(row.get(2)?)).unwrap_or(usize::MAX);
        let expires: Option<i64> = row.get(3)?;
        let expires = expires.map(|expires| Timestamp(uint(expires)));
        let is_expired = expires.is_some_and(|at| self.now.is_some_and(|now| at <= now));
        if self.looks == 0 || (!is_expired && !self.room.take(size)) {
            return Ok(false);
        }
        self.looks -= 1;
        if is_expired {
            self.found.expired.push(seq);
            return Ok(true);
        }
        match message(row, 5)? {
            Some(message) => {
                let entry = waiting_entry(self.view.sent, seq, Arc::new(message));
                self.found.page.entries.push(entry);
            }
            None => self.found.damaged.push((seq, row.get(4)?)),
        }
        Ok(true)
    }

    /// Whether it came to the end.
    fn run(&mut self, conn: &Connection) -> rusqlite::Result<bool> {
        let owned = self.view.owned.min(self.view.end);
        let mut from = self.view.low;
        if from < owned {
            let mut statement = conn.prepare_cached(
                "SELECT e.seq, e.seq, e.size, e.expires, e.mid, b.data \
                 FROM entry e LEFT JOIN body b ON b.mid = e.mid \
                 WHERE e.log = ?1 AND e.seq > ?2 AND e.seq <= ?3 ORDER BY e.seq",
            )?;
            while from < owned {
                match self.stretch(&mut statement, from, owned, |seq| seq)? {
                    Stop::End => break,
                    Stop::Cut => return Ok(false),
                    Stop::Jump(last) => from = last,
                }
            }
        }
        if self.view.is_durable || self.view.end <= self.view.owned {
            return Ok(true);
        }
        let (owned, base) = (self.view.owned, self.view.base);
        let mut from = self.view.low.max(owned);
        let mut statement = conn.prepare_cached(
            "SELECT e.guaranteed, e.seq, e.size, e.expires, e.mid, b.data \
             FROM entry e LEFT JOIN body b ON b.mid = e.mid \
             WHERE e.log = ?1 AND e.guaranteed > ?2 AND e.guaranteed <= ?3 AND e.is_guaranteed \
             ORDER BY e.guaranteed",
        )?;
        let upto = self.view.end - owned + base;
        loop {
            let stop = self.stretch(&mut statement, from - owned + base, upto, |at| {
                at - base + owned
            })?;
            match stop {
                Stop::End => return Ok(true),
                Stop::Cut => return Ok(false),
                Stop::Jump(last) => from = last,
            }
        }
    }
}

/// Entries after the view's place; with `now`, what has expired is told apart.
pub(super) fn page(
    conn: &Connection,
    mut view: View,
    limit: PageLimit,
    now: Option<Timestamp>,
) -> rusqlite::Result<Found> {
    let (after, head) = (view.after, view.head);
    let mut reader = Reader {
        view: &mut view,
        found: Found {
            page: Page {
                entries: Vec::new(),
                next: head,
                expired: 0,
                end: true,
            },
            expired: Vec::new(),
            damaged: Vec::new(),
        },
        room: Room::new(limit),
        looks: limit.entries.max(1).saturating_mul(LOOKS),
        looked: after,
        now,
    };
    let is_through = reader.run(conn)?;
    let (mut found, looked) = (reader.found, reader.looked);
    if !is_through || view.is_cut {
        found.page.next = looked;
        found.page.end = false;
    }
    Ok(found)
}

/// What a look at due exceptions found.
#[derive(Debug)]
pub(super) struct FoundDue {
    pub(super) due: Due,
    pub(super) expired: Vec<Seq>,
    pub(super) damaged: Vec<(Seq, i64)>,
}

const EXCEPTIONS: &str = "SELECT x.seq, x.rounds, x.attempts, x.failures, x.returns, x.due, \
     x.first_error, x.last_error, x.suspect, \
     x.mid, x.size, x.produced, x.expires, x.is_guaranteed, b.data \
     FROM exception x LEFT JOIN body b ON b.mid = x.mid WHERE x.queue = ?1";

fn exception_entry(row: &Row<'_>) -> rusqlite::Result<(Stored, Option<Entry>, Seq)> {
    let held = Stored::read(row, 9)?;
    let (_, state) = exception(row, 0)?;
    let seq = state.seq;
    let entry = message(row, 14)?.map(|message| Entry {
        seq,
        message: dated(message, &held),
        attempts: state.attempts,
        failures: state.failures,
        returns: state.returns,
        due: Some(state.due),
        first_error: state.first_error,
        last_error: state.last_error,
        suspect: state.suspect,
    });
    Ok((held, entry, seq))
}

/// Exceptions due at `now`.
pub(super) fn due(
    conn: &Connection,
    queue: QueueId,
    limit: PageLimit,
    now: Timestamp,
) -> rusqlite::Result<FoundDue> {
    let mut found = FoundDue {
        due: Due {
            entries: Vec::new(),
            next: None,
            expired: 0,
        },
        expired: Vec::new(),
        damaged: Vec::new(),
    };
    let mut room = Room::new(limit);
    let mut looks = limit.entries.max(1).saturating_mul(LOOKS);
    let sql = format!("{EXCEPTIONS} ORDER BY x.due, x.seq");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query([int(queue.0)])?;
    while let Some(row) = rows.next()? {
        let at = Timestamp(uint(row.get(5)?));
        let expires: Option<i64> = row.get(12)?;
        let is_due = at <= now && looks > 0;
        looks = looks.saturating_sub(1);
        if is_due && expires.is_some_and(|expires| uint(expires) <= now.0) {
            found.expired.push(uint(row.get(0)?));
            continue;
        }
        let size = usize::try_from(uint(row.get(10)?)).unwrap_or(usize::MAX);
        if !is_due || !room.take(size) {
            found.due.next = Some(at);
            break;
        }
        match exception_entry(row)? {
            (_, Some(entry), _) => found.due.entries.push(entry),
            (held, None, seq) => found.damaged.push((seq, held.mid)),
        }
    }
    Ok(found)
}

/// Unsettled entries by seq, exceptions among them; damaged ones are left out.
pub(super) fn browse(
    conn: &Connection,
    queue: QueueId,
    view: View,
    limit: PageLimit,
) -> rusqlite::Result<Vec<Entry>> {
    let after = view.after;
    let waiting = page(conn, view, limit, None)?.page;
    let (is_cut, mut waiting) = (!waiting.end, waiting.entries.into_iter().peekable());
    let sql = format!("{EXCEPTIONS} AND x.seq > ?2 ORDER BY x.seq");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query((int(queue.0), int(after)))?;
    let mut next_row = || -> rusqlite::Result<Option<Entry>> {
        while let Some(row) = rows.next()? {
            if let (_, Some(entry), _) = exception_entry(row)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    };
    let mut room = Room::new(limit);
    let mut entries = Vec::new();
    let mut row = next_row()?;
    loop {
        // Behind a page that the limit cut there are entries that it did not see.
        if is_cut && waiting.peek().is_none() {
            return Ok(entries);
        }
        let is_row_first = match (&row, waiting.peek()) {
            (Some(row), Some(entry)) => row.seq < entry.seq,
            (row, _) => row.is_some(),
        };
        let next = match is_row_first {
            true => std::mem::replace(&mut row, next_row()?),
            false => waiting.next(),
        };
        match next {
            Some(entry) if room.take(entry.message.size()) => entries.push(entry),
            _ => return Ok(entries),
        }
    }
}

/// Dead letters of a realm by id. One whose body is damaged comes without it.
pub(super) fn dead_letters(
    conn: &Connection,
    (realm, name): (u64, &RealmId),
    after: Option<DeadLetterId>,
    limit: usize,
) -> rusqlite::Result<Vec<DeadLetter>> {
    let mut statement = conn.prepare_cached(
        "SELECT d.queue, d.seq, d.mid, d.size, d.produced, d.expires, d.is_guaranteed, d.key, \
         d.kind, d.name, d.attempts, d.rounds, d.reason, d.first_error, d.last_error, d.dead_at, \
         b.data FROM dead d LEFT JOIN body b ON b.mid = d.mid \
         WHERE d.realm = ?1 AND (d.queue, d.seq) > (?2, ?3) ORDER BY d.queue, d.seq LIMIT ?4",
    )?;
    let (queue, seq) = after.map_or((-1, -1), |after| (int(after.queue.0), int(after.seq)));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query((int(realm), queue, seq, limit))?;
    let mut letters = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(letter) = letter(row)? else {
            continue;
        };
        let message = message(row, 16)?.unwrap_or_else(|| damaged(&letter.held));
        letters.push(DeadLetter {
            id: letter.id,
            realm: name.clone(),
            key: letter.key,
            kind: letter.kind,
            name: letter.name,
            message: dated(message, &letter.held),
            attempts: letter.attempts,
            rounds: letter.rounds,
            reason: letter.reason,
            first_error: letter.first_error,
            last_error: letter.last_error,
            dead_at: letter.dead_at,
        });
    }
    Ok(letters)
}

/// What is known of a message whose stored bytes are damaged.
fn damaged(held: &Stored) -> Message {
    Message {
        id: crate::model::MessageId::default(),
        event: "".into(),
        from: "".into(),
        body: None,
        extras: None,
        produced: held.produced,
        expires: held.expires,
        guaranteed: held.is_guaranteed,
        key: None,
    }
}

/// What is due of the delayed messages, when the next one is, and the damaged ones.
pub(super) type FoundDelayed = (Vec<Delayed>, Option<Timestamp>, Vec<(i64, i64)>);

/// Delayed messages due at `now`.
pub(super) fn delayed(
    conn: &Connection,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<FoundDelayed> {
    let mut statement = conn.prepare_cached(
        "SELECT d.due, d.message, d.mid, d.owner, r.name, b.data FROM delayed d \
         JOIN realm r ON r.id = d.realm LEFT JOIN body b ON b.mid = d.mid \
         ORDER BY d.due, d.n LIMIT ?1",
    )?;
    let most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let mut rows = statement.query([most])?;
    let (mut due, mut next, mut damaged) = (Vec::new(), None, Vec::new());
    while let Some(row) = rows.next()? {
        let at = Timestamp(uint(row.get(0)?));
        if at > now || due.len() == limit {
            next = Some(at);
            break;
        }
        let realm: String = row.get(4)?;
        match (message(row, 5)?, RealmId::parse(&realm)) {
            (Some(message), Ok(realm)) => due.push(Delayed {
                realm,
                message: Arc::new(message),
                due: at,
                owner: row.get(3)?,
            }),
            _ => damaged.push((row.get(1)?, row.get(2)?)),
        }
    }
    Ok((due, next, damaged))
}
