//! The broker's [`Outbox`] over a transport [`Link`], and the session's own answers beside it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::broker::Outbox;
use crate::transport::Link;

use super::replies::Replies;

/// A session's line as the broker sees it.
pub(super) struct LinkOutbox(Link, Arc<Replies>);

impl LinkOutbox {
    pub(super) fn new(link: Link, replies: Arc<Replies>) -> Self {
        Self(link, replies)
    }
}

impl Outbox for LinkOutbox {
    fn offer(&self, frames: Bytes) -> Option<u64> {
        self.0.offer(frames)
    }

    fn notice(&self, frames: Bytes) {
        self.0.reply(frames);
    }

    fn room(&self) -> usize {
        self.0.room()
    }

    fn confirm(&self) {
        self.0.confirm();
    }

    fn close(&self) {
        self.1.close_when_answered();
    }

    fn probe(&self) {
        self.0.probe();
    }

    fn silence(&self) -> Duration {
        self.0.silence()
    }

    fn acknowledged(&self) -> Option<bool> {
        self.0.acknowledged()
    }

    fn is_polling(&self) -> bool {
        self.0.is_polling()
    }

    fn pause(&self) {
        self.0.pause_reading();
    }

    fn resume(&self) {
        self.0.resume_reading();
    }
}
