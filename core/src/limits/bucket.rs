//! A token bucket: a rate and a burst. Knows no clock and no message.

use std::time::Duration;

use crate::clock::Elapsed;

/// How much a second, and how much at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Tokens that come in a second.
    pub per_second: f64,
    /// Tokens that a full bucket holds.
    pub burst: f64,
}

/// Why there was not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// It is more than a full bucket holds.
    Never,
    /// There is enough after this many seconds, at least 1.
    After(u64),
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    level: f64,
    last: Elapsed,
}

impl Bucket {
    /// A full one.
    pub fn full(rate: Rate, now: Elapsed) -> Self {
        Self {
            level: rate.burst,
            last: now,
        }
    }

    /// Whether `cost` could be taken now.
    ///
    /// # Errors
    /// [`Short`].
    pub fn check(&mut self, rate: Rate, cost: f64, now: Elapsed) -> Result<(), Short> {
        self.fill(rate, now);
        if cost <= self.level {
            return Ok(());
        }
        if cost > rate.burst {
            return Err(Short::Never);
        }
        let seconds = ((cost - self.level) / rate.per_second).ceil();
        // Saturates.
        Err(Short::After((seconds as u64).max(1)))
    }

    /// Takes what [`Bucket::check`] has allowed.
    pub fn take(&mut self, cost: f64) {
        self.level -= cost;
    }

    /// Whether it is as full as it gets: keeping it says nothing.
    pub fn is_full(&self, rate: Rate, now: Elapsed) -> bool {
        self.level + gained(rate, now.saturating_sub(self.last)) >= rate.burst
    }

    fn fill(&mut self, rate: Rate, now: Elapsed) {
        if now > self.last {
            self.level += gained(rate, now - self.last);
            self.last = now;
        }
        // A burst that was lowered counts at once.
        self.level = self.level.min(rate.burst);
    }
}

fn gained(rate: Rate, time: Duration) -> f64 {
    time.as_secs_f64() * rate.per_second
}
