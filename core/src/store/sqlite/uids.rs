//! Users' own ids of one realm as rows (P16). Times are those of the messages.

use std::rc::Rc;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::MessageId;

use super::super::state::Uids;
use super::super::types::Bounds;
use super::db::{Db, int, uint};
use super::keep::{id_bits, id_of};

/// Most that go in one call: whoever comes next goes on.
const BITE: usize = 256;

/// The ids of one realm.
#[derive(Debug)]
pub(crate) struct UidRows {
    db: Rc<Db>,
    realm: i64,
    len: u64,
    /// None is older; `None`: nobody has looked.
    oldest: Option<Timestamp>,
}

impl UidRows {
    pub(super) fn new(db: Rc<Db>, realm: u64, len: u64) -> Self {
        Self {
            db,
            realm: int(realm),
            len,
            oldest: None,
        }
    }

    /// Drops the oldest if it is too old, or there are too many.
    fn end_one(&mut self, now: Timestamp, bounds: &Bounds) -> bool {
        let is_over = self.len > bounds.dedupe_max as u64;
        let is_old = |at: Timestamp| now.since(at) >= bounds.dedupe_window;
        if self.len == 0 || (!is_over && self.oldest.is_some_and(|at| !is_old(at))) {
            return false;
        }
        let oldest = "SELECT uid, at FROM uid WHERE realm = ?1 ORDER BY n LIMIT 1";
        let found: Option<(Arc<str>, i64)> = self
            .db
            .row(oldest, [self.realm], |row| Ok((row.get(0)?, row.get(1)?)));
        let Some((uid, at)) = found else {
            return false;
        };
        let at = Timestamp(uint(at));
        self.oldest = Some(at);
        if !is_over && !is_old(at) {
            return false;
        }
        let drop = "DELETE FROM uid WHERE realm = ?1 AND uid = ?2";
        self.len -= self.db.run(drop, (self.realm, uid)) as u64;
        self.oldest = None;
        true
    }
}

impl Uids for UidRows {
    fn find(&self, uid: &Arc<str>) -> Option<(MessageId, Timestamp)> {
        if self.len == 0 {
            return None;
        }
        let find = "SELECT message, at FROM uid WHERE realm = ?1 AND uid = ?2";
        self.db.row(find, (self.realm, uid), |row| {
            Ok((id_of(row.get(0)?), Timestamp(uint(row.get(1)?))))
        })
    }

    fn set(&mut self, uid: Arc<str>, id: MessageId, now: Timestamp) {
        let drop = "DELETE FROM uid WHERE realm = ?1 AND uid = ?2";
        let known = match self.len {
            0 => 0,
            _ => self.db.run(drop, (self.realm, &uid)),
        };
        let put = "INSERT INTO uid VALUES (?1, ?2, ?3, ?4, \
                   (SELECT coalesce(max(n), 0) + 1 FROM uid WHERE realm = ?1))";
        self.db.run(put, (self.realm, uid, id_bits(id), int(now.0)));
        self.len = self.len + 1 - known as u64;
        if known > 0 {
            self.oldest = None;
        }
    }

    fn end(&mut self, now: Timestamp, bounds: &Bounds) {
        for _ in 0..BITE {
            if !self.end_one(now, bounds) {
                return;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn after(
        &self,
        after: u64,
        most: usize,
    ) -> (Vec<(Arc<str>, MessageId, Timestamp)>, Option<u64>) {
        let next = "SELECT n, uid, message, at FROM uid WHERE realm = ?1 AND n > ?2 \
                    ORDER BY n LIMIT ?3";
        let params = (self.realm, int(after), int(most as u64));
        let rows = self.db.rows(next, params, |row| {
            let told = (
                row.get(1)?,
                id_of(row.get(2)?),
                Timestamp(uint(row.get(3)?)),
            );
            Ok((uint(row.get(0)?), told))
        });
        let last = rows.last().map(|(n, _)| *n);
        (rows.into_iter().map(|(_, row)| row).collect(), last)
    }
}
