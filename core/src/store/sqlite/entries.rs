//! The entries of one log as rows, in the order of the log.
//!
//! An entry that expires no earlier than all before it is in line and found by going through the
//! log; the others are late ones, found by an index that has few rows. So an append touches no
//! index. Each row has the totals up to it, so what is pushed writes nothing else of its log.

use std::rc::Rc;
use std::sync::Arc;

use rusqlite::Row;

use crate::clock::Timestamp;
use crate::model::Message;

use super::super::state::{Entries, Held, Kept, Totals};
use super::super::types::Seq;
use super::db::{Db, int, uint};
use super::telling;

/// A message without its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(super) mid: i64,
    pub(super) size: u64,
    pub(super) produced: Timestamp,
    pub(super) expires: Option<Timestamp>,
    pub(super) is_guaranteed: bool,
}

impl Stored {
    /// From the columns `mid, size, produced, expires, is_guaranteed`, the first of them at `at`.
    pub(super) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        let expires: Option<i64> = row.get(at + 3)?;
        Ok(Self {
            mid: row.get(at)?,
            size: uint(row.get(at + 1)?),
            produced: Timestamp(uint(row.get(at + 2)?)),
            expires: expires.map(|expires| Timestamp(uint(expires))),
            is_guaranteed: row.get(at + 4)?,
        })
    }

    pub(super) fn of(mid: i64, message: &Message) -> Self {
        Self {
            mid,
            size: message.size() as u64,
            produced: message.produced,
            expires: message.expires,
            is_guaranteed: message.guaranteed,
        }
    }
}

impl Held for Stored {
    fn size(&self) -> u64 {
        self.size
    }

    fn produced(&self) -> Timestamp {
        self.produced
    }

    fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    fn is_guaranteed(&self) -> bool {
        self.is_guaranteed
    }

    fn expiring(self, expires: Option<Timestamp>) -> Self {
        Self { expires, ..self }
    }
}

/// An expiry as a column.
pub(super) fn expiry(expires: Option<Timestamp>) -> Option<i64> {
    expires.map(|expires| int(expires.0))
}

/// The entries of one log.
#[derive(Debug)]
pub(crate) struct EntryRows {
    db: Rc<Db>,
    kept: Kept,
    log: i64,
    /// The latest expiry so far.
    pub(super) line_expires: Option<Timestamp>,
    /// Up to it no entry in line is left that can expire.
    line_swept: Seq,
    last: Seq,
    /// No late entry expires before; `None`: there is none.
    late_from: Option<Timestamp>,
    /// The totals that the last row has: while that row is there, the log's own need not be written.
    last_row: Option<Totals>,
}

impl EntryRows {
    /// Those that are there already, behind `front` and up to `last`.
    pub(super) fn new(
        (db, kept): (Rc<Db>, Kept),
        log: u64,
        (front, last): (Seq, Seq),
        line_expires: Option<Timestamp>,
    ) -> Self {
        Self {
            db,
            kept,
            log: int(log),
            line_expires,
            line_swept: front,
            last,
            late_from: (last > 0).then_some(Timestamp(0)),
            last_row: None,
        }
    }

    /// Rows up to there are about to go.
    fn delete_up_to(&mut self, seq: Seq) {
        self.last_row.take_if(|last| last.seq <= seq);
    }

    /// Whether a row of these says where the log ends, so that the log's own row need not.
    pub(super) fn tell(&self, head: Totals) -> bool {
        self.last_row == Some(head)
    }

    /// Where the rows behind `head` lead: the totals of the last of them, and the latest expiry of
    /// those in line.
    pub(super) fn end_behind(db: &Db, log: u64, head: Seq) -> Option<(Totals, Option<Timestamp>)> {
        let last = "SELECT seq, size, is_guaranteed, guaranteed, bytes, guaranteed_bytes \
                    FROM entry WHERE log = ?1 AND seq > ?2 ORDER BY seq DESC LIMIT 1";
        let in_line = "SELECT seq, expires FROM entry WHERE log = ?1 AND seq > ?2 \
                       AND NOT is_late AND expires IS NOT NULL ORDER BY seq DESC LIMIT 1";
        let params = (int(log), int(head));
        let (_, end) = db.row(last, params, totals)?;
        let in_line = db.row(in_line, params, found);
        Some((end, in_line.map(|(_, expires)| expires)))
    }

    fn next_in_line(&mut self) -> Option<(Seq, Timestamp)> {
        let next = "SELECT seq, expires FROM entry WHERE log = ?1 AND seq > ?2 \
                    AND NOT is_late AND expires IS NOT NULL ORDER BY seq LIMIT 1";
        let params = (self.log, int(self.line_swept));
        let found = self.db.row(next, params, found);
        self.line_swept = match found {
            Some((seq, _)) => seq.saturating_sub(1),
            None => self.last,
        };
        found
    }

    fn next_late(&mut self) -> Option<(Seq, Timestamp)> {
        self.late_from?;
        let next = "SELECT seq, expires FROM entry WHERE log = ?1 AND is_late \
                    ORDER BY expires LIMIT 1";
        let found = self.db.row(next, [self.log], found);
        self.late_from = found.map(|(_, expires)| expires);
        found
    }
}

fn found(row: &Row<'_>) -> rusqlite::Result<(Seq, Timestamp)> {
    Ok((uint(row.get(0)?), Timestamp(uint(row.get(1)?))))
}

pub(super) fn totals(row: &Row<'_>) -> rusqlite::Result<(Totals, Totals)> {
    let seq = uint(row.get(0)?);
    let size = uint(row.get(1)?);
    let is_guaranteed: bool = row.get(2)?;
    let upto = Totals {
        seq,
        guaranteed: uint(row.get(3)?),
        bytes: uint(row.get(4)?),
        guaranteed_bytes: uint(row.get(5)?),
    };
    let counts = u64::from(is_guaranteed);
    let before = Totals {
        seq: seq.saturating_sub(1),
        guaranteed: upto.guaranteed.saturating_sub(counts),
        bytes: upto.bytes.saturating_sub(size),
        guaranteed_bytes: upto.guaranteed_bytes.saturating_sub(size * counts),
    };
    Ok((before, upto))
}

impl Entries for EntryRows {
    type Held = Stored;

    fn push(&mut self, message: &Arc<Message>, _before: Totals, totals: Totals, is_first: bool) {
        if is_first {
            self.line_expires = None;
        }
        let is_late = match message.expires {
            Some(expires) if self.line_expires.is_none_or(|latest| expires >= latest) => {
                self.line_expires = Some(expires);
                false
            }
            Some(expires) => {
                let earliest = self.late_from.into_iter().chain([expires]).min();
                self.late_from = earliest;
                true
            }
            None => false,
        };
        self.last = totals.seq;
        self.last_row = Some(totals);
        let stored = Stored::of(self.db.put_body(message), message);
        self.kept.add(stored.size);
        self.db.run(
            "INSERT INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            (
                self.log,
                int(totals.seq),
                stored.mid,
                int(stored.size),
                int(stored.produced.0),
                expiry(stored.expires),
                stored.is_guaranteed,
                is_late,
                int(totals.guaranteed),
                int(totals.bytes),
                int(totals.guaranteed_bytes),
            ),
        );
    }

    fn get(&self, seq: Seq) -> Option<Stored> {
        let get = "SELECT mid, size, produced, expires, is_guaranteed FROM entry \
                   WHERE log = ?1 AND seq = ?2";
        let params = (self.log, int(seq));
        self.db.row(get, params, |row| Stored::read(row, 0))
    }

    fn totals_at(&self, seq: Seq) -> Option<Totals> {
        let next = "SELECT seq, size, is_guaranteed, guaranteed, bytes, guaranteed_bytes \
                    FROM entry WHERE log = ?1 AND seq >= ?2 ORDER BY seq LIMIT 1";
        let (before, upto) = self.db.row(next, (self.log, int(seq)), totals)?;
        Some(if upto.seq == seq { upto } else { before })
    }

    fn seq_of_guaranteed(&self, number: u64) -> Option<Seq> {
        let next = "SELECT seq, guaranteed FROM entry \
                    WHERE log = ?1 AND guaranteed >= ?2 AND is_guaranteed \
                    ORDER BY guaranteed LIMIT 1";
        let params = (self.log, int(number));
        let (seq, at): (i64, i64) = self
            .db
            .row(next, params, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let is_it = uint(at) == number;
        Some(uint(if is_it { seq } else { seq - 1 }))
    }

    fn trim_front(&mut self, front: Seq, floor: Seq) {
        self.line_swept = self.line_swept.max(floor);
        self.delete_up_to(floor);
        self.db.discard(self.log, front, floor, &self.kept);
    }

    fn clear_between(&mut self, after: Seq, upto: Seq) {
        self.delete_up_to(upto);
        self.db.discard(self.log, after, upto, &self.kept);
    }

    fn take_expired(&mut self, now: Timestamp) -> Option<(Seq, Option<u64>)> {
        let is_expired = |(_, expires): &(Seq, Timestamp)| *expires <= now;
        let may_be_late = self.late_from.is_some_and(|from| from <= now);
        let late = match may_be_late {
            true => self.next_late().filter(is_expired),
            false => None,
        };
        let (seq, _) = match late {
            Some(late) => late,
            None => self.next_in_line().filter(is_expired)?,
        };
        self.delete_up_to(seq);
        let take = "DELETE FROM entry WHERE log = ?1 AND seq = ?2 \
                    RETURNING mid, is_guaranteed, guaranteed, size";
        let (mid, is_guaranteed, number, size): (i64, bool, i64, i64) =
            self.db.row(take, (self.log, int(seq)), |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
        self.db.release(mid);
        self.kept.sub(uint(size));
        Some((seq, is_guaranteed.then_some(uint(number))))
    }

    fn after(&self, after: Seq, most: (usize, usize)) -> Vec<(Totals, Option<Arc<Message>>)> {
        telling::entries(&self.db, self.log, after, most)
    }

    fn next_expiry(&mut self) -> Option<Timestamp> {
        let late = self.next_late();
        let next = late.into_iter().chain(self.next_in_line());
        next.map(|(_, expires)| expires).min()
    }
}
