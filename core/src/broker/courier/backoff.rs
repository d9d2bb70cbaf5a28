//! How long a courier waits before it tries a store call again.

use std::time::Duration;

use crate::clock::Elapsed;

/// Waits between tries of a store call that fails.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Backoff {
    wait: Duration,
    /// Not before then.
    pub(super) until: Option<Elapsed>,
}

impl Backoff {
    /// It failed: wait 100 ms, then twice that, up to 5 s.
    pub(super) fn failed(&mut self, now: Elapsed) {
        self.wait = (self.wait * 2).clamp(Duration::from_millis(100), Duration::from_secs(5));
        self.until = Some(now + self.wait);
    }

    /// It worked.
    pub(super) fn worked(&mut self) {
        *self = Self::default();
    }

    /// Whether a call may be made.
    pub(super) fn is_over(&self, now: Elapsed) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}
