//! What a session answers to its own client, gathered while one read is worked through.
//!
//! A read may hold hundreds of PRODUCEs or ACKs; their answers leave as one piece. Answers that come
//! later, from the store, leave at once.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::transport::Link;

/// Gathers frames between [`Replies::hold`] and [`Replies::release`]. Any thread may push.
pub(super) struct Replies {
    link: Link,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    frames: Vec<u8>,
    is_holding: bool,
}

impl Replies {
    pub(super) fn new(link: Link) -> Arc<Self> {
        Arc::new(Self {
            link,
            held: Mutex::default(),
        })
    }

    /// From now on frames are gathered.
    pub(super) fn hold(&self) {
        self.held.lock().is_holding = true;
    }

    /// Sends what was gathered.
    pub(super) fn release(&self) {
        let mut held = self.held.lock();
        held.is_holding = false;
        self.send(&mut held);
    }

    /// Lets `write` append whole frames.
    pub(super) fn push(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut held = self.held.lock();
        write(&mut held.frames);
        if !held.is_holding {
            self.send(&mut held);
        }
    }

    /// Closes the connection after what was pushed so far: the client is to hear why.
    pub(super) fn close(&self) {
        self.send(&mut self.held.lock());
        self.link.close();
    }

    /// Under the lock, so that two threads cannot swap what they send.
    fn send(&self, held: &mut Held) {
        if !held.frames.is_empty() {
            self.link
                .reply(Bytes::from(std::mem::take(&mut held.frames)));
        }
    }
}
