//! Where a connection puts what it receives: the port to JavaScript and to the Rust streams.
//!
//! Knows no socket. Implemented above, called on the connection's task.

use bytes::Bytes;

use crate::Error;

/// Receives everything that comes in, on the connection's task: nothing here may block, and nothing
/// may call back into `close` and wait for it.
pub trait Sink: Send + Sync + 'static {
    /// A delivery of subscription `subscription`, whole.
    fn delivery(&self, subscription: u32, delivery: Delivery<'_>);

    /// All deliveries and events of one read are handed over: ring the doorbell once.
    fn batch_end(&self);

    /// Anything else.
    fn event(&self, event: ClientEvent<'_>);

    /// Whether there is room for more. After false the socket is not read until
    /// [`Connection::resume`](super::Connection::resume); the link is kept alive meanwhile.
    fn wants_more(&self) -> bool {
        true
    }
}

/// One delivery. Borrowed: copy what outlives the call.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// The whole delivery object as JSON text, checked: `event`, `message`, `from` and so on.
    pub payload: &'a str,
    /// The binary parts that `{"_placeholder":true,"num":i}` in it stand for.
    pub attachments: &'a [Bytes],
    /// Must be acked under this id.
    pub msg_id: Option<&'a str>,
    /// Times sent, from 1; with `msg_id` only.
    pub attempt: Option<u32>,
}

/// What a connection tells besides deliveries.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum ClientEvent<'a> {
    /// Connected, logged in; registrations and subscriptions are on their way.
    Connected {
        /// The new Socket.IO id.
        socket_id: &'a str,
        /// Not a reconnect.
        first: bool,
        /// Payload of AUTH_OK as JSON text, if there was a login.
        auth: Option<&'a str>,
    },
    /// The link is gone. Comes back by itself unless [`ClientEvent::Down`] follows.
    Disconnected {
        /// Why, for people.
        reason: &'a str,
    },
    /// There is no connection and tries go on: told once until there is one again, at the third
    /// failure before the first connection, and when a server that was reached said no
    /// (`rate_limited`).
    Waiting {
        /// Why the latest try failed.
        error: &'a Error,
    },
    /// ERROR from the server, an object or a bare string.
    ServerError {
        /// JSON text.
        payload: &'a str,
    },
    /// A guaranteed message without confirm was refused, expired, or given up.
    ProduceFailed {
        /// Why.
        error: &'a Error,
    },
    /// Any other event: `SUBSCRIBE-TO-…`, `CONNECT-…`, `ACK_FAIL`, `AUTH_FAIL`, `RATE_LIMITED` …
    Named {
        /// The event's name.
        name: &'a str,
        /// Its first argument as JSON text; `null` if there was none.
        payload: &'a str,
        /// Binary parts.
        attachments: &'a [Bytes],
    },
    /// `CONSUME-<Event>` that belongs to no subscription: a realm broadcast.
    Broadcast {
        /// The event's name, `CONSUME-` included.
        name: &'a str,
        /// Like a subscription's.
        delivery: Delivery<'a>,
    },
    /// Plain messages may have been missed: dropped by the server, or while there was no link.
    Gap {
        /// Keys as on the wire.
        keys: &'a [String],
        /// How many, if known.
        dropped: Option<u64>,
    },
    /// Another session registered our producer name; this one goes on.
    Takeover,
    /// Less than the low-water mark waits again.
    Drain,
    /// It stays down, and why: `duplicate_consumer`, `anonymous_refused`, `unauthenticated`,
    /// `bad_name`, `rate_limited`, `timeout`, `unsupported`, `config`. Only
    /// [`ClientEvent::Closed`] follows.
    Down {
        /// Why.
        error: &'a Error,
    },
    /// The end, after a close as after [`ClientEvent::Down`]. Nothing follows.
    Closed,
}
