//! Rows with their messages for a copy to another store. What is damaged is kept aside and said (P7).
//! Knows no state.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Message, MessageId, RealmId};

use super::super::state::{Letter, Row, Totals};
use super::super::types::{DeadLetterId, Delayed, QueueId, Seq};
use super::core::keep_damaged;
use super::db::{Db, int, uint};
use super::entries::{Stored, totals};
use super::keep::{exception, id_bits, letter};
use super::read::{dated, message};

fn damaged(db: &Db, what: &str, mid: i64) {
    keep_damaged(db, mid);
    tracing::error!(
        body = mid,
        "{what} is damaged and set aside; it is not copied"
    );
}

/// Entries of a log after a seq, at most so many, and so many bytes or one.
pub(super) fn entries(
    db: &Db,
    log: i64,
    after: Seq,
    (most, bytes): (usize, usize),
) -> Vec<(Totals, Option<Arc<Message>>)> {
    let found = db.ask(|conn| {
        let mut statement = conn.prepare_cached(
            "SELECT e.seq, e.size, e.is_guaranteed, e.guaranteed, e.bytes, e.guaranteed_bytes, \
             e.mid, b.data FROM entry e LEFT JOIN body b ON b.mid = e.mid \
             WHERE e.log = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3",
        )?;
        let mut rows = statement.query((log, int(after), int(most as u64)))?;
        let (mut found, mut left) = (Vec::new(), bytes);
        while let Some(row) = rows.next()? {
            let size = usize::try_from(uint(row.get(1)?)).unwrap_or(usize::MAX);
            if !found.is_empty() && left < size {
                break;
            }
            left = left.saturating_sub(size);
            let (_, upto) = totals(row)?;
            let mid: i64 = row.get(6)?;
            found.push((upto, mid, message(row, 7)?));
        }
        Ok(found)
    });
    let found = found.unwrap_or_default().into_iter();
    let told = found.map(|(upto, mid, message)| {
        if message.is_none() {
            damaged(db, "a stored message", mid);
        }
        (upto, message.map(Arc::new))
    });
    told.collect()
}

/// Exceptions of a queue after a seq.
pub(super) fn exceptions(
    db: &Db,
    queue: QueueId,
    after: Seq,
    most: usize,
) -> Vec<(Seq, Option<Row<Arc<Message>>>)> {
    let next = "SELECT x.seq, x.rounds, x.attempts, x.failures, x.returns, x.due, x.first_error, \
                x.last_error, x.suspect, x.mid, x.size, x.produced, x.expires, x.is_guaranteed, \
                b.data FROM exception x LEFT JOIN body b ON b.mid = x.mid \
                WHERE x.queue = ?1 AND x.seq > ?2 ORDER BY x.seq LIMIT ?3";
    let params = (int(queue.0), int(after), int(most as u64));
    let rows = db.rows(next, params, |row| {
        let held = Stored::read(row, 9)?;
        let (rounds, state) = exception(row, 0)?;
        Ok((held, rounds, state, message(row, 14)?))
    });
    let told = rows.into_iter().map(|(held, rounds, state, message)| {
        let seq = state.seq;
        if message.is_none() {
            damaged(db, "a stored message", held.mid);
        }
        let row = message.map(|message| Row {
            held: dated(message, &held),
            rounds,
            state,
        });
        (seq, row)
    });
    told.collect()
}

/// Dead letters of a realm after one.
pub(super) fn letters(
    db: &Db,
    realm: u64,
    after: Option<DeadLetterId>,
    most: usize,
) -> Vec<Letter<Arc<Message>>> {
    let next = "SELECT d.queue, d.seq, d.mid, d.size, d.produced, d.expires, d.is_guaranteed, \
                d.key, d.kind, d.name, d.attempts, d.rounds, d.reason, d.first_error, \
                d.last_error, d.dead_at, b.data FROM dead d LEFT JOIN body b ON b.mid = d.mid \
                WHERE d.realm = ?1 AND (d.queue, d.seq) > (?2, ?3) ORDER BY d.queue, d.seq \
                LIMIT ?4";
    let (queue, seq) = after.map_or((-1, -1), |after| (int(after.queue.0), int(after.seq)));
    let params = (int(realm), queue, seq, int(most as u64));
    let rows = db.rows(next, params, |row| Ok((letter(row)?, message(row, 16)?)));
    let told = rows.into_iter().filter_map(|(letter, message)| {
        let letter = letter?;
        let Some(message) = message else {
            damaged(db, "a dead letter", letter.held.mid);
            return None;
        };
        Some(Letter {
            held: dated(message, &letter.held),
            id: letter.id,
            key: letter.key,
            kind: letter.kind,
            name: letter.name,
            attempts: letter.attempts,
            rounds: letter.rounds,
            reason: letter.reason,
            first_error: letter.first_error,
            last_error: letter.last_error,
            dead_at: letter.dead_at,
        })
    });
    told.collect()
}

type DelayedRow = ((u64, u64), i64, Option<Delayed>);

fn delayed_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<DelayedRow> {
    let due = uint(row.get(0)?);
    let realm: String = row.get(4)?;
    let delayed = match (message(row, 5)?, RealmId::parse(&realm)) {
        (Some(message), Ok(realm)) => Some(Delayed {
            realm,
            message: Arc::new(message),
            due: Timestamp(due),
            owner: row.get(3)?,
        }),
        _ => None,
    };
    Ok(((due, uint(row.get(1)?)), row.get(2)?, delayed))
}

const DELAYED: &str = "SELECT d.due, d.n, d.mid, d.owner, r.name, b.data FROM delayed d \
                       JOIN realm r ON r.id = d.realm LEFT JOIN body b ON b.mid = d.mid";

/// One delayed message.
pub(super) fn delayed(db: &Db, id: MessageId) -> Option<Delayed> {
    let one = format!("{DELAYED} WHERE d.message = ?1");
    let (_, mid, row) = db.row(&one, [id_bits(id)], delayed_row)?;
    if row.is_none() {
        damaged(db, "a delayed message", mid);
    }
    row
}

/// Delayed messages behind a due time and place; those of the last one.
pub(super) fn delayed_after(
    db: &Db,
    after: Option<(u64, u64)>,
    most: usize,
) -> (Vec<Delayed>, Option<(u64, u64)>) {
    let next = format!("{DELAYED} WHERE (d.due, d.n) > (?1, ?2) ORDER BY d.due, d.n LIMIT ?3");
    let (due, place) = after.map_or((-1, -1), |(due, place)| (int(due), int(place)));
    let rows = db.rows(&next, (due, place, int(most as u64)), delayed_row);
    let last = rows.last().map(|(place, _, _)| *place);
    let told = rows.into_iter().filter_map(|(_, mid, row)| {
        if row.is_none() {
            damaged(db, "a delayed message", mid);
        }
        row
    });
    (told.collect(), last)
}
