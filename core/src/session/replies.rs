//! What a session answers to its own client, gathered while one read is worked through.
//!
//! A read may hold hundreds of PRODUCEs or ACKs; their answers leave as one piece. Answers that come
//! later, from the store, leave at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::auth::Denied;
use crate::protocol::inbound::{Answer, Refused};
use crate::protocol::outbound;
use crate::transport::Link;
use crate::{Error, ErrorKind};

/// Orders of one session that may be under way.
const MOST_ORDERS: u8 = 16;

/// Gathers frames between [`Replies::hold`] and [`Replies::release`]. Any thread may push.
pub(super) struct Replies {
    link: Link,
    held: Mutex<Held>,
    is_closed: AtomicBool,
    /// Orders under way.
    orders: AtomicU8,
    /// The connection is to be closed when they are answered.
    is_ending: AtomicBool,
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
            is_closed: AtomicBool::new(false),
            orders: AtomicU8::new(0),
            is_ending: AtomicBool::new(false),
        })
    }

    /// Whether one more order may be under way.
    pub(super) fn begin_order(&self) -> bool {
        let more = |orders| (orders < MOST_ORDERS).then_some(orders + 1);
        let orders = &self.orders;
        orders
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    /// It has been answered.
    pub(super) fn end_order(&self) {
        let was_last = self.orders.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && self.is_ending.load(Ordering::SeqCst) {
            self.close();
        }
    }

    /// Closes the connection, but not before what it has ordered is answered: an order may be what ends
    /// its own session. What the client still says is not heard.
    pub(super) fn close_when_answered(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        if self.orders.load(Ordering::SeqCst) == 0 {
            self.link.close();
        } else {
            self.is_closed.store(true, Ordering::Relaxed);
        }
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

    /// Closes the connection after what was pushed so far: the client is to hear why. What it still
    /// says is not heard.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.send(&mut self.held.lock());
        self.link.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// A verb failed further down: the reply if one is awaited, else ERROR.
    pub(super) fn fail(&self, error: &Error, reply: Option<u64>) {
        self.push(|out| match reply {
            Some(id) => outbound::reply_error(out, id, error),
            None => outbound::error(out, error),
        });
    }

    /// Not let in, or may not do this: `AUTH_FAIL`, and the reply if one is awaited.
    pub(super) fn deny(&self, denied: &Denied, reply: Option<u64>) {
        let retry_after = denied.retry_after.map(|wait| wait.as_secs().max(1));
        self.push(|out| outbound::auth_fail_until(out, reply, &denied.error, retry_after));
        if denied.closes {
            self.close();
        }
    }

    /// A verb that was refused at the door.
    pub(super) fn refuse(&self, refused: &Refused, reply: Option<u64>) {
        match refused.answer {
            Answer::Close => {
                tracing::debug!(socket = self.link.socket_id(), "{}", refused.error);
                self.close();
            }
            Answer::Ignore if reply.is_none() => tracing::debug!("ignored: {}", refused.error),
            _ => self.push(|out| outbound::refused(out, reply, refused)),
        }
    }

    /// A frame or a message of `size` bytes where `limit` are allowed (P21).
    pub(super) fn refuse_size(&self, what: &str, size: u64, limit: u64, reply: Option<u64>) {
        let error = Error::new(
            ErrorKind::PayloadTooLarge,
            format!("a {what} of {size} bytes is over the limit of {limit} bytes"),
        );
        self.push(|out| outbound::too_large(out, reply, &error, size, limit));
    }

    /// Under the lock, so that two threads cannot swap what they send.
    fn send(&self, held: &mut Held) {
        if !held.frames.is_empty() {
            self.link
                .reply(Bytes::from(std::mem::take(&mut held.frames)));
        }
    }
}
