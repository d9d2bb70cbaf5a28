//! The pause before the next try to connect: doubled each time, with jitter, and kept long for a
//! server that accepts and then kicks (P31).
//!
//! Knows no clock and no socket. Called by the connection's task.

use std::time::Duration;

use super::options::Reconnect;

/// No pause is longer, whatever the options say.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Counts tries.
#[derive(Debug)]
pub(super) struct Backoff {
    reconnect: Reconnect,
    tries: u32,
}

impl Backoff {
    pub(super) fn new(reconnect: Reconnect) -> Self {
        Self {
            reconnect,
            tries: 0,
        }
    }

    /// The pause after a link that was up for `lasted` (zero: it never came up). Between half the
    /// doubled pause and all of it, so that clients of one server do not come back together.
    pub(super) fn next(&mut self, lasted: Duration) -> Duration {
        if lasted >= self.reconnect.stable {
            self.tries = 0;
        }
        let factor = 1u32 << self.tries.min(20);
        self.tries = self.tries.saturating_add(1);
        let pause = self.reconnect.min.saturating_mul(factor);
        let pause = pause
            .min(self.reconnect.max.max(self.reconnect.min))
            .min(DAY);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries_in(seconds: u64, lasted: Duration) -> usize {
        let mut backoff = Backoff::new(Reconnect::default());
        let mut left = Duration::from_secs(seconds);
        let mut tries = 0;
        while let Some(rest) = left.checked_sub(lasted + backoff.next(lasted)) {
            left = rest;
            tries += 1;
        }
        tries
    }

    #[test]
    fn a_server_that_accepts_and_kicks_sees_fewer_than_twelve_tries_in_thirty_seconds() {
        for _ in 0..100 {
            assert!(tries_in(30, Duration::from_millis(100)) < 12);
        }
    }

    #[test]
    fn pauses_double_with_jitter_up_to_the_longest() {
        let mut backoff = Backoff::new(Reconnect::default());
        for doubled in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            let pause = backoff.next(Duration::ZERO);
            let doubled = Duration::from_millis(doubled);
            assert!(pause <= doubled && pause >= doubled / 2, "{pause:?}");
        }
    }

    #[test]
    fn a_stable_link_starts_over() {
        let mut backoff = Backoff::new(Reconnect::default());
        for _ in 0..9 {
            backoff.next(Duration::ZERO);
        }
        let pause = backoff.next(Duration::from_secs(5));
        assert!(pause <= Duration::from_millis(100));
    }

    #[test]
    fn no_number_of_tries_overflows() {
        let mut backoff = Backoff::new(Reconnect {
            min: Duration::MAX / 2,
            max: Duration::MAX / 2,
            stable: Duration::MAX,
        });
        for _ in 0..40 {
            backoff.next(Duration::ZERO);
        }
    }
}
