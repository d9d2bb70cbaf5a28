//! The rates of one session. Made only where there is a rate; called for each PRODUCE and chunk.

use super::bucket::{Bucket, Rate, Short};
use super::{Caps, Exceeded};
use crate::clock::Elapsed;

/// What one session has left of its rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionLimits {
    messages: Option<(Rate, Bucket)>,
    bytes: Option<(Rate, Bucket)>,
}

impl SessionLimits {
    /// Full buckets for the rates of `caps`; `None`: there are none.
    pub fn new(caps: &Caps, now: Elapsed) -> Option<Self> {
        let full = |rate: Rate| (rate, Bucket::full(rate, now));
        let limits = Self {
            messages: caps.messages().map(full),
            bytes: caps.bytes().map(full),
        };
        (limits.messages.is_some() || limits.bytes.is_some()).then_some(limits)
    }

    /// The same for changed rates: what was used up stays used up.
    #[must_use]
    pub fn renewed(self, caps: &Caps, now: Elapsed) -> Option<Self> {
        let mut renewed = Self::new(caps, now)?;
        for (new, old) in [
            (&mut renewed.messages, self.messages),
            (&mut renewed.bytes, self.bytes),
        ] {
            if let (Some((_, bucket)), Some((_, used))) = (new, old) {
                *bucket = used;
            }
        }
        Some(renewed)
    }

    /// One message of `bytes`; it takes its tokens, or none of them.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn message(&mut self, bytes: usize, now: Elapsed) -> Result<(), Exceeded> {
        let cost = bytes.max(1) as f64;
        if let Some((rate, bucket)) = &mut self.bytes {
            bucket
                .check(*rate, cost, now)
                .map_err(|short| exceeded(short, "bytes_per_second"))?;
        }
        if let Some((rate, bucket)) = &mut self.messages {
            bucket
                .check(*rate, 1.0, now)
                .map_err(|short| exceeded(short, "messages_per_second"))?;
            bucket.take(1.0);
        }
        if let Some((_, bucket)) = &mut self.bytes {
            bucket.take(cost);
        }
        Ok(())
    }
}

fn exceeded(short: Short, reason: &'static str) -> Exceeded {
    match short {
        Short::Never => Exceeded {
            reason: "message_too_large",
            retry_after: None,
        },
        Short::After(seconds) => Exceeded {
            reason,
            retry_after: Some(seconds),
        },
    }
}
