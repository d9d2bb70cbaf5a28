//! Time as an argument: the only place that reads a clock.
//!
//! The wall clock decides TTL, elapsed time decides waits (P15). Tests use [`TestClock`], which
//! moves only when told to.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Wall-clock time in milliseconds since 1970.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The time `after` this one; saturates.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// How long from `earlier` to this; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Elapsed time since some fixed moment of this process; never goes back.
pub type Elapsed = Duration;

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> Timestamp;
    /// Time elapsed since the clock was made.
    fn elapsed(&self) -> Elapsed;
    /// Ends when [`Clock::elapsed`] has reached `deadline`.
    fn sleep_until(&self, deadline: Elapsed) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose elapsed time starts at zero now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn elapsed(&self) -> Elapsed {
        self.start.elapsed()
    }

    fn sleep_until(&self, deadline: Elapsed) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self.start.checked_add(deadline) {
            Some(at) => Box::pin(tokio::time::sleep_until(at.into())),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// A clock for tests: starts at a fixed date and moves only by [`TestClock::advance`].
#[derive(Debug)]
pub struct TestClock {
    wall: Mutex<u64>,
    elapsed: watch::Sender<Duration>,
}

impl TestClock {
    /// A clock that stands still at 2026-01-01 00:00 UTC.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            wall: Mutex::new(1_767_225_600_000),
            elapsed: watch::Sender::new(Duration::ZERO),
        })
    }

    /// Moves wall clock and elapsed time on together and wakes sleepers.
    pub fn advance(&self, by: Duration) {
        let mut wall = self.wall.lock();
        *wall = wall.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX));
        self.elapsed.send_modify(|elapsed| *elapsed += by);
    }

    /// Sets the wall clock alone, as an operator or NTP would.
    pub fn set_wall(&self, to: Timestamp) {
        *self.wall.lock() = to.0;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(*self.wall.lock())
    }

    fn elapsed(&self) -> Elapsed {
        *self.elapsed.borrow()
    }

    fn sleep_until(&self, deadline: Elapsed) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut watch = self.elapsed.subscribe();
        Box::pin(async move {
            // The sender lives as long as the clock; if the clock is gone nobody can advance it.
            if watch
                .wait_for(|elapsed| *elapsed >= deadline)
                .await
                .is_err()
            {
                std::future::pending::<()>().await;
            }
        })
    }
}
