//! The store in a SQLite file: what it confirmed survives the process being killed, and power loss
//! (P1).
//!
//! Calls take their places in one line; one thread does them in batches, each one transaction, and
//! answers after its commit. So commit order is call order, a read sees every write that was called
//! before it, and a disk that syncs a thousand times a second still takes tens of thousands of
//! messages. Entries, bodies, exceptions and dead letters are rows; in memory there is a little per
//! queue and log, nothing per message. Knows nothing of the broker.
//!
//! Reading has no connection of its own. What a queue has settled is known on the one thread only,
//! so a page would wait in the line for that all the same, and what it would save is small: beside
//! 256 appends of 128 B under way, four backlogs read without a pause, 90,000 entries a second, took
//! the appends from 30,000 to 22,000 a second (two busy cores; `cargo bench --bench store`).

mod backup;
mod ballast;
mod books;
mod check;
mod codec;
mod copies;
mod core;
mod db;
mod documents;
mod entries;
mod failure;
mod health;
mod keep;
mod line;
mod lock;
mod open;
mod options;
mod place;
mod read;
mod telling;
#[cfg(test)]
mod tests;
mod uids;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock::{Clock, Timestamp};
use crate::model::{MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::record::{ExportCursor, Exported, Record};
use super::types::{
    Append, Appended, Bounds, DeadLetter, DeadLetterId, Delayed, Depth, Due, Durability, Entry,
    Maintained, Page, PageLimit, QueueChange, QueueId, QueueRecord, QueueSpec, Seq, Settled,
    StoreCounters, StoreHealth,
};
use super::{Pending, Purpose, Store};
use health::Shared;
use line::{Line, Nature};
use writer::Writer;

pub use options::{SqliteOptions, Synchronous};
pub(crate) use place::NewPlace;

/// Rows that one bite of upkeep looks at; between bites others have their turn.
const BITE: usize = 1000;

/// A [`Store`] in a SQLite file.
///
/// Dropped without [`close`](Store::close) it still does what was called, and frees the file a
/// moment later.
pub struct SqliteStore {
    line: Arc<Line>,
    shared: Arc<Shared>,
    options: SqliteOptions,
}

fn no_thread(error: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("no thread for the store: {error}"),
    )
}

impl SqliteStore {
    /// Opens a database, making it if it is not there, and reads what queues it has.
    ///
    /// # Errors
    /// With the path and the reason, and without having changed anything: `store_locked` if another
    /// broker uses it; `config` for a place that cannot be written, or a database of another
    /// program; `store_corrupt` for what is damaged or no database; `store_unsupported` for a newer
    /// version.
    pub async fn open(
        options: SqliteOptions,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::open_for(Purpose::Lead, options, bounds, clock).await
    }

    /// Whether everything has moved from a database that nobody has open to another store (P28); one
    /// that is not there has nothing to move.
    ///
    /// # Errors
    /// `store_locked` if another broker uses it; what SQLite says.
    pub fn has_moved(path: &std::path::Path) -> Result<bool> {
        copies::has_moved(path)
    }

    /// Notes in a database that nobody has open where its messages have moved to (P28).
    ///
    /// # Errors
    /// `store_locked` if another broker uses it; what SQLite says.
    pub fn note_moved(path: &std::path::Path, to: &str) -> Result<()> {
        copies::note_moved(path, to)
    }

    /// The same for what it is to be used for.
    pub(crate) async fn open_for(
        purpose: Purpose,
        mut options: SqliteOptions,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        if let Some(path) = &options.path {
            let refused = |why| open::refused(ErrorKind::Config, path, why);
            open::check_name(path).map_err(refused)?;
        }
        options.path = options.path.map(open::one_name);
        let line = Arc::new(Line::default());
        let shared = Arc::new(Shared::new(options.path.clone()));
        let store = Self {
            line: Arc::clone(&line),
            shared: Arc::clone(&shared),
            options: options.clone(),
        };
        let (tell, told) = oneshot::channel();
        std::thread::Builder::new()
            .name("restante-store".to_owned())
            .spawn(move || {
                let opened =
                    Writer::open((options, purpose), bounds, clock, line, Arc::clone(&shared));
                let (writer, outcome) = match opened {
                    Ok(writer) => (Some(writer), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                // Nobody waits any more: then the line is closed too, and the writer ends at once.
                let _ = tell.send(outcome);
                if let Some(writer) = writer {
                    writer.run();
                }
                shared.ended.send_replace(true);
            })
            .map_err(no_thread)?;
        told.await.map_err(no_thread)??;
        Ok(store)
    }

    fn call<T: Send + 'static>(
        &self,
        nature: Nature,
        call: impl FnMut(&mut core::Core) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        self.line.call(nature, 0, call)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.line.close();
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn weight(batch: &[Append]) -> usize {
    batch.iter().map(|item| item.message.size()).sum()
}

impl Store for SqliteStore {
    fn durability(&self) -> Durability {
        match (&self.options.path, self.options.synchronous) {
            (None, _) => Durability::Memory,
            (_, Synchronous::Full) => Durability::Disk,
            (_, Synchronous::Normal) => Durability::Process,
        }
    }

    fn queues(&self) -> Pending<Vec<QueueRecord>> {
        self.call(Nature::Read, |core| Ok(core.state.records()))
    }

    fn open(&self, spec: QueueSpec, now: Timestamp) -> Pending<QueueRecord> {
        // Not as one that grows: who comes back while the disk is full is to drain it.
        self.call(Nature::Write, move |core| {
            core.state.open(spec.clone(), now)
        })
    }

    fn touch(&self, queue: QueueId, now: Timestamp) -> Pending<()> {
        self.call(Nature::Write, move |core| {
            core.state.change(queue, |change| change.queue.seen = now)
        })
    }

    fn forget(&self, queue: QueueId, purge: bool) -> Pending<u64> {
        self.call(Nature::Write, move |core| core.state.forget(queue, purge))
    }

    fn append(&self, batch: Vec<Append>) -> Pending<Vec<Result<Appended>>> {
        self.line.call(Nature::Grow, weight(&batch), move |core| {
            let state = &mut core.state;
            Ok(batch.iter().map(|item| state.append(item)).collect())
        })
    }

    fn page(&self, queue: QueueId, after: Seq, limit: PageLimit, now: Timestamp) -> Pending<Page> {
        self.call(Nature::Read, move |core| {
            core.page(queue, after, limit, now)
        })
    }

    fn due(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Due> {
        self.call(Nature::Read, move |core| core.due(queue, limit, now))
    }

    fn update(&self, queue: QueueId, change: QueueChange, now: Timestamp) -> Pending<()> {
        self.call(Nature::Write, move |core| {
            core.state.update(queue, &change, now)
        })
    }

    fn left_over(&self, queue: QueueId) -> Pending<Option<QueueRecord>> {
        self.call(Nature::Read, move |core| Ok(core.state.left_over(queue)))
    }

    fn settle(&self, queue: QueueId, seqs: Vec<Seq>) -> Pending<Vec<Settled>> {
        self.call(Nature::Write, move |core| core.state.settle(queue, &seqs))
    }

    fn depth(&self, queue: QueueId) -> Pending<Depth> {
        self.call(Nature::Read, move |core| core.state.depth(queue))
    }

    fn realms(&self) -> Pending<Vec<RealmId>> {
        self.call(Nature::Read, |core| Ok(core.state.realm_names()))
    }

    fn realm_depth(&self, realm: &RealmId) -> Pending<Depth> {
        let realm = realm.clone();
        self.call(Nature::Read, move |core| Ok(core.state.realm_depth(&realm)))
    }

    fn browse(&self, queue: QueueId, after: Seq, limit: PageLimit) -> Pending<Vec<Entry>> {
        self.call(Nature::Read, move |core| core.browse(queue, after, limit))
    }

    fn purge_queue(&self, queue: QueueId) -> Pending<u64> {
        self.call(Nature::Write, move |core| core.state.purge_queue(queue))
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<u64> {
        let realm = realm.clone();
        self.call(Nature::Write, move |core| {
            Ok(core.state.purge_realm(&realm))
        })
    }

    fn rename_realm(&self, from: &RealmId, to: &RealmId) -> Pending<()> {
        let (from, to) = (from.clone(), to.clone());
        self.call(Nature::Write, move |core| {
            core.state.rename_realm(&from, &to)
        })
    }

    fn delayed(&self, limit: usize, now: Timestamp) -> Pending<(Vec<Delayed>, Option<Timestamp>)> {
        self.call(Nature::Read, move |core| Ok(core.delayed(limit, now)))
    }

    fn drop_delayed(&self, ids: Vec<MessageId>) -> Pending<()> {
        self.call(Nature::Write, move |core| {
            ids.iter().for_each(|id| core.state.drop_delayed(*id));
            Ok(())
        })
    }

    fn dead_letters(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Pending<Vec<DeadLetter>> {
        let realm = realm.clone();
        self.call(Nature::Read, move |core| {
            Ok(core.dead_letters(&realm, after, limit))
        })
    }

    fn revive(&self, realm: &RealmId, id: DeadLetterId, now: Timestamp) -> Pending<QueueId> {
        let realm = realm.clone();
        self.call(Nature::Write, move |core| {
            core.state.revive(&realm, id, now)
        })
    }

    fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Pending<()> {
        let realm = realm.clone();
        self.call(Nature::Write, move |core| core.state.discard(&realm, id))
    }

    fn purge_dead_letters(&self, realm: &RealmId) -> Pending<u64> {
        let realm = realm.clone();
        self.call(Nature::Write, move |core| {
            Ok(core.state.purge_dead_letters(&realm))
        })
    }

    fn probe(&self) -> Pending<()> {
        self.call(Nature::Upkeep, |core| {
            core.db.ask(open::probe);
            Ok(())
        })
    }

    fn maintain(&self, budget: usize, now: Timestamp) -> Pending<Maintained> {
        let bite = move |line: &Line, budget: usize| {
            let bite = budget.clamp(1, BITE);
            line.call(Nature::Upkeep, 0, move |core| Ok(core.maintain(bite, now)))
        };
        let first = bite(&self.line, budget);
        let line = Arc::clone(&self.line);
        Pending::waiting(async move {
            let mut done = first.await?;
            let mut left = budget.saturating_sub(BITE);
            while done.more && left > 0 {
                let next = bite(&line, left).await?;
                left = left.saturating_sub(BITE);
                done.more = next.more;
                for (realm, expired) in next.expired {
                    *done.expired.entry(realm).or_default() += expired;
                }
            }
            Ok(done)
        })
    }

    fn counters(&self) -> StoreCounters {
        *self.shared.counters.lock()
    }

    fn health(&self) -> StoreHealth {
        self.shared.health()
    }

    fn backup(&self, path: PathBuf) -> Pending<()> {
        backup::begin(self, path)
    }

    fn export(&self, after: Option<ExportCursor>, limit: PageLimit) -> Pending<Exported> {
        self.call(Nature::Read, move |core| {
            core.state.export(after.as_ref(), limit)
        })
    }

    fn begin_import(&self, replace: bool) -> Pending<()> {
        self.call(Nature::Grow, move |core| core.begin_import(replace))
    }

    fn import(&self, records: Vec<Record>) -> Pending<()> {
        let weight = records.iter().map(Record::weight).sum();
        self.line
            .call(Nature::Grow, weight, move |core| core.import(&records))
    }

    fn end_import(&self) -> Pending<()> {
        self.call(Nature::Grow, |core| core.end_import())
    }

    fn lead(&self) -> Pending<()> {
        self.call(Nature::Upkeep, |core| {
            core.lead();
            Ok(())
        })
    }

    fn moved(&self, to: &str) -> Pending<()> {
        let to = to.to_owned();
        self.call(Nature::Write, move |core| {
            core.moved(&to);
            Ok(())
        })
    }

    fn close(&self) -> Pending<()> {
        self.line.close();
        let mut ended = self.shared.ended.subscribe();
        Pending::waiting(async move {
            // The sender lives as long as the store's thread or this call's store.
            let _ = ended.wait_for(|ended| *ended).await;
            Ok(())
        })
    }
}
