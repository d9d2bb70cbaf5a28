//! For tests: a session's line and encoder that do nothing; the bench looks at effects instead.

use std::time::Duration;

use bytes::Bytes;

use super::super::ports::{Content, Head, Outbox};

/// A link that nothing is sent over: the bench looks at the effects.
pub(super) struct NoLink;

impl Outbox for NoLink {
    fn offer(&self, _: Bytes) -> Option<u64> {
        None
    }
    fn notice(&self, _: Bytes) {}
    fn room(&self) -> usize {
        0
    }
    fn confirm(&self) {}
    fn close(&self) {}
    fn probe(&self) {}
    fn silence(&self) -> Duration {
        Duration::ZERO
    }
    fn acknowledged(&self) -> Option<bool> {
        None
    }
    fn is_polling(&self) -> bool {
        false
    }
    fn pause(&self) {}
    fn resume(&self) {}
}

impl Head for NoLink {
    fn plain(&self, _: &Content<'_>, _: &mut Vec<u8>) {}
    fn tracked(&self, _: &Content<'_>, _: &str, _: u32, _: &mut Vec<u8>) {}
    fn repeated(&self, _: &Content<'_>, _: &mut Vec<u8>) {}
}
