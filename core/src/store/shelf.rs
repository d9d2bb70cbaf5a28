//! A small custom store in memory with habits and troubles on demand: for tests of what
//! [`Leasing`](super::Leasing) makes of it.
//!
//! It keeps rows as a user's database would: by place, in the order they came.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

use super::pending::Pending;
use super::simple::{DeadRow, Methods, NewRow, Place, Row, RowId, RowPage, SimpleStore};
use crate::clock::Timestamp;

/// How a shelf behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "habits are told apart")]
pub struct Habits {
    /// `dequeue` takes the rows out.
    pub destructive: bool,
    /// `dequeue` heeds `limit` and `after`.
    pub pages: bool,
    /// Rows keep what they were stored with.
    pub keeps_raw: bool,
    /// All optional methods are there.
    pub full: bool,
}

#[derive(Debug, Default)]
struct Inner {
    rows: VecDeque<(RowId, NewRow)>,
    dead: Vec<(RowId, NewRow, Arc<str>)>,
    last: i64,
    calls: u64,
    fail_every: u64,
    enqueues: u64,
    refuse: Option<Error>,
    log: Vec<String>,
}

/// The store.
#[derive(Clone)]
pub struct Shelf {
    habits: Habits,
    inner: Arc<Mutex<Inner>>,
    stalled: Arc<watch::Sender<bool>>,
}

impl Shelf {
    /// An empty one.
    pub fn new(habits: Habits) -> Self {
        Self {
            habits,
            inner: Arc::default(),
            stalled: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Holds the answers of calls from now on until [`Shelf::release`]; the calls happen.
    pub fn stall(&self) {
        self.stalled.send_replace(true);
    }

    /// Gives held answers out.
    pub fn release(&self) {
        self.stalled.send_replace(false);
    }

    /// Refuses every call from now on; `None`: no more.
    pub fn refuse(&self, error: Option<Error>) {
        self.inner.lock().refuse = error;
    }

    /// Refuses every so many-th `enqueue`; 0: none.
    pub fn fail_every(&self, every: u64) {
        self.inner.lock().fail_every = every;
    }

    /// Rows that are there.
    pub fn rows(&self) -> usize {
        self.inner.lock().rows.len()
    }

    /// Dead letters that are there.
    pub fn dead(&self) -> usize {
        self.inner.lock().dead.len()
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.inner.lock().calls
    }

    /// The names of calls so far.
    pub fn log(&self) -> Vec<String> {
        self.inner.lock().log.clone()
    }

    fn call<T: Send + 'static>(
        &self,
        name: &str,
        call: impl FnOnce(&mut Inner) -> Result<T>,
    ) -> Pending<T> {
        let answer = {
            let mut inner = self.inner.lock();
            inner.calls += 1;
            inner.log.push(name.to_owned());
            match inner.refuse.clone() {
                Some(error) => Err(error),
                None => call(&mut inner),
            }
        };
        let mut stalled = self.stalled.subscribe();
        if !*stalled.borrow() {
            return Pending::ready(answer);
        }
        Pending::waiting(async move {
            // A sender that is gone can hold nothing back.
            let _ = stalled.wait_for(|stalled| !stalled).await;
            answer
        })
    }

    fn row(&self, id: &RowId, row: &NewRow) -> Row {
        let mut stored = row.stored(id.clone());
        match self.habits.keeps_raw {
            true => Row::from_raw(id.clone(), &row.raw()).unwrap_or(stored),
            false => {
                stored.entry = None;
                stored
            }
        }
    }
}

impl Inner {
    fn put(&mut self, row: NewRow) -> Result<RowId> {
        self.enqueues += 1;
        if self.fail_every > 0 && self.enqueues.is_multiple_of(self.fail_every) {
            let text = "the shelf is shaky";
            return Err(Error::new(ErrorKind::StoreUnavailable, text));
        }
        self.last += 1;
        let id = RowId::from(self.last);
        self.rows.push_back((id.clone(), row));
        Ok(id)
    }
}

impl SimpleStore for Shelf {
    fn enqueue(&self, row: NewRow) -> Pending<RowId> {
        self.call("enqueue", |inner| inner.put(row))
    }

    fn dequeue(&self, place: &Place, page: RowPage) -> Pending<Vec<Row>> {
        self.call("dequeue", |inner| {
            let own = inner.rows.iter().filter(|(_, row)| *row.place == *place);
            let mut rows: Vec<Row> = own.map(|(id, row)| self.row(id, row)).collect();
            if self.habits.pages {
                if let Some(RowId::Number(after)) = page.after {
                    rows.retain(|row| matches!(row.id, RowId::Number(id) if id > after));
                }
                rows.truncate(page.limit.unwrap_or(usize::MAX));
            }
            if self.habits.destructive {
                inner
                    .rows
                    .retain(|(id, _)| rows.iter().all(|row| row.id != *id));
            }
            Ok(rows)
        })
    }

    fn ack(&self, id: RowId) -> Pending<()> {
        self.call("ack", |inner| {
            inner.rows.retain(|(other, _)| *other != id);
            Ok(())
        })
    }

    fn methods(&self) -> Methods {
        let full = self.habits.full;
        Methods {
            pages: self.habits.pages,
            enqueue_many: full,
            ack_many: full,
            dead_letter: full,
            list_dlq: full,
            discard_dlq: full,
            count_queued: full,
            purge_realm: full,
            import: full,
        }
    }

    fn enqueue_many(&self, rows: Vec<NewRow>) -> Pending<Vec<RowId>> {
        self.call("enqueue_many", |inner| {
            rows.into_iter().map(|row| inner.put(row)).collect()
        })
    }

    fn ack_many(&self, ids: Vec<RowId>) -> Pending<()> {
        self.call("ack_many", |inner| {
            inner.rows.retain(|(other, _)| !ids.contains(other));
            Ok(())
        })
    }

    fn dead_letter(&self, id: RowId, reason: Arc<str>) -> Pending<()> {
        self.call("dead_letter", |inner| {
            if let Some(at) = inner.rows.iter().position(|(other, _)| *other == id)
                && let Some((id, row)) = inner.rows.remove(at)
            {
                inner.dead.push((id, row, reason));
            }
            Ok(())
        })
    }

    fn list_dlq(&self, realm: Option<&RealmId>) -> Pending<Vec<DeadRow>> {
        let realm = realm.map(|realm| realm.as_str().to_owned());
        self.call("list_dlq", |inner| {
            let dead = inner.dead.iter();
            let dead = dead.filter(|(_, row, _)| {
                realm
                    .as_ref()
                    .is_none_or(|realm| *row.place.realm == **realm)
            });
            Ok(dead
                .map(|(id, row, reason)| DeadRow {
                    place: Place::clone(&row.place),
                    row: self.row(id, row),
                    reason: Arc::clone(reason),
                    dead_at: Timestamp(1),
                })
                .collect())
        })
    }

    fn discard_dlq(&self, id: RowId, _: &RealmId) -> Pending<()> {
        self.call("discard_dlq", |inner| {
            inner.dead.retain(|(other, _, _)| *other != id);
            Ok(())
        })
    }

    fn count_queued(&self, realm: &RealmId) -> Pending<u64> {
        let realm = realm.as_str().to_owned();
        self.call("count_queued", |inner| {
            Ok(inner
                .rows
                .iter()
                .filter(|(_, row)| *row.place.realm == *realm)
                .count() as u64)
        })
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<()> {
        let realm = realm.as_str().to_owned();
        self.call("purge_realm", |inner| {
            inner.rows.retain(|(_, row)| *row.place.realm != *realm);
            inner.dead.retain(|(_, row, _)| *row.place.realm != *realm);
            Ok(())
        })
    }

    fn import(&self, place: &Place, rows: Vec<Row>) -> Pending<()> {
        let place = Arc::new(place.clone());
        self.call("import", |inner| {
            for row in rows.into_iter().rev() {
                let new = NewRow {
                    place: Arc::clone(&place),
                    id: "back".into(),
                    ttl: None,
                    entry: row.entry.unwrap_or((super::types::LogId(0), 0)),
                    message: row.message,
                };
                inner.rows.push_front((row.id, new));
            }
            Ok(())
        })
    }
}
