//! What all lanes of a store share: the connection, the clock, ids, counters, how it goes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::sync::watch;

use crate::clock::{Clock, Elapsed, Timestamp};
use crate::{Error, ErrorKind, Result};

use super::super::types::{Bounds, Holding, StoreCounters};
use super::answers;
use super::link::{Link, Links};
use super::options::RedisOptions;
use super::trouble;

/// Ids taken from Redis in one go.
const IDS: u64 = 1000;
/// What waits in all lines in sum is at most so much.
const MAX_CALLS: u64 = 100_000;
const MAX_BYTES: u64 = 512 << 20;
/// What still waits when the store is closed gets so long.
pub(super) const CLOSING: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Hub {
    pub(super) options: RedisOptions,
    pub(super) bounds: Bounds,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) links: Links,
    /// This store among all that ever wrote there.
    pub(super) writer: String,
    pub(super) counters: Mutex<StoreCounters>,
    pub(super) state: Mutex<Going>,
    is_closed: AtomicBool,
    /// After this time a closing store waits no more.
    close_by: Mutex<Option<Elapsed>>,
    ids: Mutex<Range<u64>>,
    calls: AtomicU64,
    bytes: AtomicU64,
    /// Lanes at work.
    pub(super) busy: watch::Sender<usize>,
    /// Changes are noted for a copy.
    pub(super) is_told: AtomicBool,
    /// Changes under way that take several calls.
    steps: AtomicU64,
}

/// Counts a change of several calls as under way until it is dropped.
pub(super) struct Step(Arc<Hub>);

impl Drop for Step {
    fn drop(&mut self) {
        self.0.steps.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How it goes.
#[derive(Debug, Default, Clone)]
pub(super) struct Going {
    pub(super) is_away: bool,
    /// It takes no more messages.
    pub(super) is_full: bool,
    pub(super) last_error: Option<(Timestamp, Arc<str>)>,
    pub(super) warnings: Vec<String>,
    /// Commands sent again.
    pub(super) repeats: u64,
    /// What was counted last, and when that may be done again.
    pub(super) holding: Option<Holding>,
    pub(super) count_at: Elapsed,
}

impl Hub {
    pub(super) fn new(
        options: RedisOptions,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Ok(Self {
            links: Links::new(&options)?,
            options,
            bounds,
            clock,
            writer: format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)),
            counters: Mutex::default(),
            state: Mutex::default(),
            is_closed: AtomicBool::new(false),
            close_by: Mutex::new(None),
            ids: Mutex::new(0..0),
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            busy: watch::Sender::new(0),
            is_told: AtomicBool::new(false),
            steps: AtomicU64::new(0),
        })
    }

    /// The name of a key that belongs to no realm.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.options.prefix)
    }

    // --- What waits ---

    /// Takes place for a call of so many bytes.
    pub(super) fn admit(&self, bytes: usize) -> Result<()> {
        if self.is_closed() {
            return Err(closed());
        }
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let waiting = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if calls >= MAX_CALLS || waiting >= MAX_BYTES {
            self.release(bytes);
            let message = "too much is waiting for Redis already";
            return Err(Error::new(ErrorKind::StoreUnavailable, message));
        }
        Ok(())
    }

    /// Gives the place back.
    pub(super) fn release(&self, bytes: usize) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// How many calls wait.
    pub(super) fn waiting(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    // --- Closing ---

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Takes no more calls; what waits has `within` left.
    pub(super) fn close(&self, within: Duration) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            *self.close_by.lock() = Some(self.clock.elapsed() + within);
        }
    }

    /// Ends when no lane is at work any more, or after `within`.
    pub(super) async fn idle(&self, within: Duration) {
        let mut busy = self.busy.subscribe();
        let until = self.clock.sleep_until(self.clock.elapsed() + within);
        tokio::select! {
            // The sender lives here.
            _ = busy.wait_for(|busy| *busy == 0) => {}
            () = until => {}
        }
    }

    /// The earlier end of a deadline while the store is closing.
    pub(super) fn cap(&self, deadline: Elapsed) -> Elapsed {
        self.close_by.lock().map_or(deadline, |by| by.min(deadline))
    }

    pub(super) fn step(self: &Arc<Self>) -> Step {
        self.steps.fetch_add(1, Ordering::AcqRel);
        Step(self.clone())
    }

    pub(super) fn is_stepping(&self) -> bool {
        self.steps.load(Ordering::Acquire) > 0
    }

    // --- Ids ---

    /// Ids up to it may have been taken.
    pub(super) async fn last_id(&self) -> Result<u64> {
        let (_, mut link) = self.links.get().await?;
        let mut get = redis::cmd("GET");
        get.arg(self.key("ids"));
        let last = link.one(&get).await;
        let last = last.map_err(|error| trouble::said(&error))?;
        Ok(answers::number(&last).unwrap_or(0))
    }

    /// Ids up to `last` are never given again.
    pub(super) async fn raise_ids(&self, last: u64) -> Result<()> {
        const RAISE: &str = "local last = tonumber(redis.call('GET', KEYS[1]) or '0')
if last < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
return 1";
        *self.ids.lock() = 0..0;
        let (_, mut link) = self.links.get().await?;
        let mut raise = redis::cmd("EVAL");
        raise.arg(RAISE).arg(1).arg(self.key("ids")).arg(last);
        let raised = link.one(&raise).await;
        raised.map(|_| ()).map_err(|error| trouble::said(&error))
    }

    /// So many ids that nobody else gets; `None` if [`Hub::stock`] has to be called first.
    pub(super) fn take_ids(&self, count: u64) -> Option<u64> {
        let mut ids = self.ids.lock();
        let first = ids.start;
        (ids.end - ids.start >= count).then(|| {
            ids.start += count;
            first
        })
    }

    /// Gets new ids if there are few.
    pub(super) async fn stock(&self, link: &mut Link) -> Result<()> {
        if self.ids.lock().clone().count() >= 16 {
            return Ok(());
        }
        let mut cmd = redis::cmd("INCRBY");
        cmd.arg(self.key("ids")).arg(IDS);
        let last = link
            .one(&cmd)
            .await
            .map_err(|error| trouble::said(&error))?;
        let Value::Int(last) = last else {
            return Err(trouble::unavailable("the counter of ids is no number"));
        };
        let end = u64::try_from(last).unwrap_or(0).saturating_add(1);
        *self.ids.lock() = end.saturating_sub(IDS)..end;
        Ok(())
    }

    // --- How it goes ---

    /// Redis could not be asked, or refused.
    pub(super) fn trouble(&self, error: &Error) {
        let mut state = self.state.lock();
        let is_full = error.kind() == ErrorKind::StoreFull;
        let is_on = match is_full {
            true => &mut state.is_full,
            false => &mut state.is_away,
        };
        if !std::mem::replace(is_on, true) {
            tracing::warn!(%error, url = %self.options.shown(), "the store has trouble");
        }
        state.last_error = Some((self.clock.now(), error.message().into()));
    }

    /// Redis has done something; whether that took room.
    pub(super) fn fine(&self, took_room: bool) {
        let mut state = self.state.lock();
        let was_full = took_room && std::mem::take(&mut state.is_full);
        if std::mem::take(&mut state.is_away) || was_full {
            tracing::info!(url = %self.options.shown(), "the store is back");
        }
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut StoreCounters)) {
        count(&mut self.counters.lock());
    }
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the store is closed")
}
