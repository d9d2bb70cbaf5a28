//! How often and when a failed delivery is tried again (P10, P14).
//!
//! Knows no clock: it turns a count of failures into a wait.

use std::time::Duration;

use crate::{Error, ErrorKind, Result};

const MAX_ATTEMPTS: u32 = 1000;
const DEFAULT_CAP: Duration = Duration::from_secs(3600);

/// How the wait grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backoff {
    /// Always `delay`.
    #[default]
    Fixed,
    /// `delay`, twice that, four times that …
    Exponential,
}

/// Most attempts, and the wait between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    max_attempts: u32,
    delay: Duration,
    backoff: Backoff,
    max_delay: Duration,
}

impl Default for RetryPolicy {
    /// Three attempts, 5 s apart.
    fn default() -> Self {
        Self {
            max_attempts: 3,
            delay: Duration::from_secs(5),
            backoff: Backoff::Fixed,
            max_delay: DEFAULT_CAP,
        }
    }
}

impl RetryPolicy {
    /// A policy; what is `None` has its default: 3 attempts, 5 s, `max_delay` of 1 h or `delay`
    /// if that is larger.
    ///
    /// # Errors
    /// [`ErrorKind::BadCommand`] if `max_attempts` is not 1–1000.
    pub fn new(
        max_attempts: Option<u32>,
        delay: Option<Duration>,
        backoff: Backoff,
        max_delay: Option<Duration>,
    ) -> Result<Self> {
        let default = Self::default();
        let max_attempts = max_attempts.unwrap_or(default.max_attempts);
        if !(1..=MAX_ATTEMPTS).contains(&max_attempts) {
            return Err(Error::new(
                ErrorKind::BadCommand,
                format!("retry.max_attempts must be 1 to {MAX_ATTEMPTS}"),
            ));
        }
        let delay = delay.unwrap_or(default.delay);
        Ok(Self {
            max_attempts,
            delay,
            backoff,
            max_delay: max_delay.unwrap_or(DEFAULT_CAP.max(delay)),
        })
    }

    /// After this many failures an entry is a dead letter; 1–1000.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// The wait after the first failure.
    pub fn first_delay(&self) -> Duration {
        self.delay
    }

    /// How the wait grows.
    pub fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// The wait never grows beyond this.
    pub fn max_delay(&self) -> Duration {
        self.max_delay
    }

    /// The wait after `failures` failures (counted from 1); saturates at [`Self::max_delay`].
    pub fn delay(&self, failures: u32) -> Duration {
        let delay = match self.backoff {
            Backoff::Fixed => self.delay,
            Backoff::Exponential => {
                // 2^127 nanoseconds are beyond any cap a Duration can hold.
                let factor = 1u128 << failures.saturating_sub(1).min(126);
                let nanos = self.delay.as_nanos().saturating_mul(factor);
                Duration::from_nanos_u128(nanos.min(Duration::MAX.as_nanos()))
            }
        };
        delay.min(self.max_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exponential(delay: u64, max: Option<u64>) -> RetryPolicy {
        let max = max.map(Duration::from_secs);
        let delay = Some(Duration::from_secs(delay));
        RetryPolicy::new(Some(1000), delay, Backoff::Exponential, max).unwrap()
    }

    #[test]
    fn exponential_waits_double_up_to_the_cap() {
        let policy = exponential(2, None);
        let waits: Vec<u64> = (1..=4).map(|n| policy.delay(n).as_secs()).collect();
        assert_eq!(waits, [2, 4, 8, 16]);
        assert_eq!(policy.delay(20).as_secs(), 3600);
        assert_eq!(policy.delay(u32::MAX).as_secs(), 3600);
        assert_eq!(policy.delay(0).as_secs(), 2);
    }

    #[test]
    fn a_delay_above_an_hour_raises_the_default_cap_only() {
        assert_eq!(exponential(7200, None).delay(3).as_secs(), 7200);
        assert_eq!(exponential(7200, Some(60)).delay(3).as_secs(), 60);
        assert_eq!(
            exponential(u64::MAX, Some(u64::MAX)).delay(900).as_secs(),
            u64::MAX
        );
    }

    #[test]
    fn attempts_outside_one_to_a_thousand_are_refused() {
        for attempts in [0, 1001] {
            let error = RetryPolicy::new(Some(attempts), None, Backoff::Fixed, None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadCommand);
        }
        let default = RetryPolicy::new(None, None, Backoff::Fixed, None).unwrap();
        assert_eq!(default, RetryPolicy::default());
    }
}
