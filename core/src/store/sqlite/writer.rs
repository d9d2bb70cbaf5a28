//! The one thread that writes: batches of commands, each batch one transaction.
//!
//! Nobody is answered before the commit of the batch has returned. What fails takes the whole
//! batch back: the state is read anew from the database, so memory never says more than the disk,
//! and the commands are done again one by one, so that only those fail that fail (P27). A commit
//! that may or may not have happened is never done again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::Connection;

use crate::clock::Clock;
use crate::{Error, ErrorKind, Result};

use super::super::Purpose;
use super::super::types::{Bounds, StoreCounters};
use super::ballast::Ballast;
use super::core::Core;
use super::failure;
use super::health::Shared;
use super::line::{Line, Nature, Patience, Task};
use super::lock::Lock;
use super::open;
use super::options::SqliteOptions;

/// Moves what the log holds into the database; answers whether somebody was in the way.
const EMPTY_LOG: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

const LOST_LOG: &str = "whoever had the database open last was killed, and its log (-wal) is gone: if \
                        somebody deleted it, what was confirmed last is lost; bring it back before \
                        anything is written";

type Batch = Vec<Box<dyn Task>>;

/// How far a batch came.
enum Outcome {
    Committed,
    /// It never began.
    Refused(Error),
    /// It was taken back.
    Undone(Error),
    /// It may or may not be there.
    Unknown(Error),
}

/// The writing side of a store.
pub(super) struct Writer {
    line: Arc<Line>,
    shared: Arc<Shared>,
    options: SqliteOptions,
    purpose: Purpose,
    bounds: Bounds,
    clock: Arc<dyn Clock>,
    ballast: Option<Ballast>,
    /// `None`: it could not be read after a failure; upkeep tries again.
    core: Option<Core>,
    counters: StoreCounters,
    /// New messages are refused until there is room again.
    is_full: bool,
    /// Rows changed up to the last upkeep: while there are new ones, the log is left to itself.
    changes: u64,
    // Last, so that it is let go when everything else is.
    lock: Option<Lock>,
}

impl Writer {
    /// Opens the database and reads what is there.
    ///
    /// # Errors
    /// Why it cannot be used; nothing was changed then.
    pub(super) fn open(
        (options, purpose): (SqliteOptions, Purpose),
        bounds: Bounds,
        clock: Arc<dyn Clock>,
        line: Arc<Line>,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let path = options.path.clone();
        if let Some(path) = &path {
            open::check_place(path)?;
        }
        let mut lock = path.as_deref().map(Lock::take).transpose()?;
        let mut warnings = Vec::new();
        let conn = open::open(&options, purpose, &clock, &mut warnings)?;
        let core = Core::load(conn, bounds.clone())?;
        shared.opened(warnings);
        if let Some(lock) = &mut lock {
            if lock.is_new_again {
                shared.warn("the database that was here before is gone; this one is new");
            }
            if lock.has_lost_log {
                shared.warn(LOST_LOG);
            }
            if let Some(path) = &path {
                lock.mark(path);
            }
        }
        let mut ballast = path.as_deref().map(Ballast::of);
        if let Some(ballast) = &mut ballast
            && !ballast.take_in()
        {
            shared.warn("there is no room for the ballast file beside the database");
        }
        let writer = Self {
            line,
            shared,
            options,
            purpose,
            bounds,
            clock,
            ballast,
            core: Some(core),
            counters: StoreCounters::default(),
            is_full: false,
            changes: 0,
            lock,
        };
        writer.shared.measure();
        Ok(writer)
    }

    /// Works until the line is closed and empty.
    pub(super) fn run(mut self) {
        self.tell_holding();
        let mut patience = Patience::default();
        while let Some(batch) = self.line.take(&mut patience) {
            self.do_batch(batch);
            while self.line.is_empty() && self.has_trash() && self.do_trash() {}
        }
        if let Some(core) = self.core.take()
            && let Some(conn) = core.into_conn()
        {
            let moved = conn.query_row(EMPTY_LOG, [], |_| Ok(()));
            match moved.and_then(|()| conn.close().map_err(|(_, error)| error)) {
                Ok(()) => self.lock.iter_mut().for_each(Lock::closed),
                Err(error) => tracing::warn!(%error, "closing the database"),
            }
        }
    }

    fn tell_holding(&self) {
        if let Some(core) = &self.core {
            *self.shared.holding.lock() = core.state.holding();
        }
    }

    fn has_trash(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.db.has_trash())
    }

    /// Deletes some of what nobody needs, while nobody waits.
    fn do_trash(&mut self) -> bool {
        let outcome = self.transact(true, |core| {
            core.db.empty_trash();
            Ok(())
        });
        match outcome {
            Outcome::Committed => true,
            Outcome::Refused(_) => false,
            Outcome::Undone(error) | Outcome::Unknown(error) => {
                self.fail(&error);
                self.reload(true);
                false
            }
        }
    }

    fn do_batch(&mut self, batch: Batch) {
        let has_upkeep = batch.iter().any(|task| task.nature() == Nature::Upkeep);
        if has_upkeep {
            self.look_after();
        }
        let mut batch = self.turn_away(batch);
        if batch.is_empty() {
            return;
        }
        match self.attempt(&mut batch) {
            Outcome::Committed => answer(batch, None),
            Outcome::Refused(error) => {
                self.fail(&error);
                let batch = batch.into_iter();
                let (reads, writes): (Batch, Batch) =
                    batch.partition(|task| task.nature() == Nature::Read);
                answer(writes, Some(&error));
                // Whoever holds the database keeps nobody from reading.
                self.one_by_one(reads);
            }
            Outcome::Unknown(error) => {
                self.fail(&error);
                self.reload(true);
                let unknown = Error::new(
                    ErrorKind::StoreTimeout,
                    format!("it may or may not be stored: {error}"),
                );
                answer(batch, Some(&unknown));
            }
            Outcome::Undone(error) => {
                self.fail(&error);
                self.reload(false);
                if error.kind() == ErrorKind::StoreFull {
                    self.fill();
                } else if batch.len() == 1 {
                    return answer(batch, Some(&error));
                }
                self.one_by_one(batch);
            }
        }
    }

    /// Does commands that were taken back, or have not begun, each for itself.
    fn one_by_one(&mut self, batch: Batch) {
        for task in batch {
            let mut alone = self.turn_away(vec![task]);
            if alone.is_empty() {
                continue;
            }
            match self.attempt(&mut alone) {
                Outcome::Committed => answer(alone, None),
                Outcome::Refused(error) => answer(alone, Some(&error)),
                Outcome::Undone(error) | Outcome::Unknown(error) => {
                    self.fail(&error);
                    self.reload(false);
                    answer(alone, Some(&error));
                }
            }
        }
    }

    /// Answers those that need not be tried; the others.
    fn turn_away(&self, batch: Batch) -> Batch {
        let broken = match &self.core {
            None => Some(self.shared.trouble()),
            Some(_) => None,
        };
        let lost = self.shared.lost();
        if broken.is_none() && lost.is_none() && !self.is_full {
            return batch;
        }
        let full = Error::new(
            ErrorKind::StoreFull,
            "the disk of the store is full; new messages are taken again when there is room",
        );
        let mut left = Vec::new();
        for task in batch {
            let reason = match task.nature() {
                _ if broken.is_some() => broken.as_ref(),
                Nature::Grow if self.is_full => Some(&full),
                Nature::Grow | Nature::Write => lost.as_ref(),
                Nature::Read | Nature::Upkeep => None,
            };
            match reason {
                Some(_) => task.answer(reason),
                None => left.push(task),
            }
        }
        left
    }

    fn attempt(&mut self, batch: &mut Batch) -> Outcome {
        let has = |wanted| batch.iter().any(|task| task.nature() == wanted);
        let (has_grown, has_written) = (has(Nature::Grow), has(Nature::Write));
        let only_reads = batch.iter().all(|task| task.nature() == Nature::Read);
        let (shared, now) = (Arc::clone(&self.shared), self.clock.now());
        let outcome = self.transact(!only_reads, |core| {
            for task in batch.iter_mut() {
                task.run(core);
                core.check()?;
            }
            match has_grown || has_written {
                true => shared.look(now),
                false => Ok(()),
            }
        });
        if matches!(outcome, Outcome::Committed) && !only_reads {
            // Before anybody is answered.
            if let Err(error) = self.keep_log() {
                return Outcome::Refused(error);
            }
            self.shared.is_well(has_grown);
            if batch.iter().any(|task| task.nature() == Nature::Upkeep) {
                self.tell_holding();
            }
        }
        outcome
    }

    /// Sees to it that what was written is where the next start finds it.
    ///
    /// # Errors
    /// It is not, so nothing of it may be confirmed.
    fn keep_log(&mut self) -> Result<()> {
        match self.shared.has_its_log() {
            true => Ok(()),
            false => self.rescue(),
        }
    }

    /// The log was taken away: moves what is in it into the database, and begins a new one.
    fn rescue(&mut self) -> Result<()> {
        let why = "the log of the database was removed or replaced while in use";
        let gone = Error::new(ErrorKind::StoreUnavailable, why);
        self.fail(&gone);
        let Some(core) = &self.core else {
            return Err(gone);
        };
        match core.db.conn().query_row(EMPTY_LOG, [], |row| row.get(0)) {
            Ok(false) => {}
            // Somebody reads from it; the next batch or the next second tries again.
            Ok(true) => return Err(gone),
            Err(error) => return Err(failure::of(&error, "saving what the log holds")),
        }
        self.reload(true);
        if self.core.is_none() {
            return Err(self.shared.trouble());
        }
        tracing::warn!("everything the log held is in the database, which has a new one");
        Ok(())
    }

    /// Runs `work` in one transaction.
    fn transact(&mut self, writes: bool, work: impl FnOnce(&mut Core) -> Result<()>) -> Outcome {
        let Some(core) = &mut self.core else {
            return Outcome::Refused(self.shared.trouble());
        };
        let begin = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        let begun = core.db.conn().prepare_cached(begin);
        if let Err(error) = begun.and_then(|mut begin| begin.execute([])) {
            return Outcome::Refused(failure::of(&error, "beginning to write"));
        }
        core.state.counters = self.counters;
        let worked = catch_unwind(AssertUnwindSafe(|| {
            work(core)?;
            core.flush();
            core.check()
        }));
        let panicked = |_| {
            let why = "a command of the store panicked";
            Err(Error::new(ErrorKind::Internal, why))
        };
        if let Err(error) = worked.unwrap_or_else(panicked) {
            return Outcome::Undone(error);
        }
        let committed = core.db.conn().prepare_cached("COMMIT");
        if let Err(error) = committed.and_then(|mut commit| commit.execute([])) {
            let error = failure::of(&error, "committing");
            return match error.kind() {
                ErrorKind::StoreFull => Outcome::Undone(error),
                _ => Outcome::Unknown(error),
            };
        }
        self.counters = core.state.counters;
        *self.shared.counters.lock() = self.counters;
        Outcome::Committed
    }

    /// Takes back what is open and reads the state as the database has it; with `anew` on a new
    /// connection.
    fn reload(&mut self, anew: bool) {
        // What is in memory only goes with its connection.
        let anew = anew && self.options.path.is_some();
        let conn = self.core.take().and_then(Core::into_conn);
        let conn = conn.filter(|conn| {
            let rolled_back = conn.is_autocommit() || conn.execute_batch("ROLLBACK").is_ok();
            rolled_back && !anew
        });
        let conn = match conn {
            Some(conn) => Ok(conn),
            None => self.reopen(),
        };
        match conn.and_then(|conn| Core::load(conn, self.bounds.clone())) {
            Ok(core) => self.core = Some(core),
            Err(error) => self.fail(&error),
        }
    }

    fn reopen(&self) -> Result<Connection> {
        // In its place there would be an empty one.
        self.shared.look(self.clock.now())?;
        let conn = open::open(&self.options, self.purpose, &self.clock, &mut Vec::new())?;
        self.shared.reopened();
        Ok(conn)
    }

    fn fail(&self, error: &Error) {
        tracing::error!(%error, "the store is in trouble");
        self.shared.failed(self.clock.now(), error);
    }

    fn fill(&mut self) {
        self.is_full = true;
        if let Some(ballast) = &mut self.ballast {
            ballast.throw_out();
        }
    }

    /// What upkeep is for besides its command: an end of trouble, the file, the log.
    fn look_after(&mut self) {
        if self.core.is_none() && self.options.path.is_some() {
            self.reload(true);
        }
        if self.is_full {
            self.is_full = self.ballast.as_mut().is_some_and(|file| !file.take_in());
        }
        if self.shared.look(self.clock.now()).is_ok()
            && let Err(error) = self.keep_log()
        {
            tracing::debug!(%error, "the next second looks again");
        }
        if let (Some(lock), Some(path)) = (&mut self.lock, &self.options.path)
            && lock.renew(path).is_err()
        {
            let why = "the lock file was removed, and another broker has the database";
            self.shared.lose(self.clock.now(), why);
        }
        self.shared.measure();
        let Some(core) = &self.core else {
            return;
        };
        let changes = core.db.conn().total_changes();
        let is_idle = std::mem::replace(&mut self.changes, changes) == changes;
        if is_idle
            && self.shared.log_bytes() > 0
            && let Err(error) = core.db.conn().query_row(EMPTY_LOG, [], |_| Ok(()))
        {
            tracing::debug!(%error, "the log of the database stays as it is");
        }
    }
}

fn answer(batch: Batch, failure: Option<&Error>) {
    for task in batch {
        task.answer(failure);
    }
}
