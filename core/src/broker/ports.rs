//! What the broker needs from the rooms above it, as small traits that they implement.
//!
//! Knows no packet, no frame format and no socket: bytes are opaque here. The session room
//! implements [`Outbox`] over a connection and [`Encode`] over the protocol; whoever checks rights
//! implements [`Rights`] and [`Filter`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::Error;
use crate::model::{Key, Message, RealmId};

/// A session of this broker; never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A bounded line of bytes to one session. Every method may be called from any thread and never waits.
pub trait Outbox: Send + Sync + 'static {
    /// Appends ready bytes unless the line is full (P23). The position after them, for
    /// [`super::Broker::confirmed`]; `None`: full, and [`super::Broker::writable`] will be called.
    fn offer(&self, frames: Bytes) -> Option<u64>;
    /// Like [`Outbox::offer`] but never refuses: answers to what this session sent, and small notices.
    fn notice(&self, frames: Bytes);
    /// Bytes that [`Outbox::offer`] would take now.
    fn room(&self) -> usize;
    /// Asks for [`super::Broker::confirmed`] for everything offered so far (P6).
    fn confirm(&self);
    /// Closes the session after the line has been written.
    fn close(&self);
    /// Asks the peer for a sign of life (P22).
    fn probe(&self);
    /// Time since the last byte from the peer.
    fn silence(&self) -> Duration;
    /// Whether the peer's system has acknowledged everything written; `None`: nobody can tell.
    fn acknowledged(&self) -> Option<bool>;
    /// Whether the peer is on long polling now.
    fn is_polling(&self) -> bool;
    /// Stops reading from the peer until [`Outbox::resume`]: what it produced waits on the store (P24).
    /// Calls nest by count.
    fn pause(&self);
    /// Undoes one [`Outbox::pause`].
    fn resume(&self);
}

/// Turns what the broker has to say into bytes for outboxes.
pub trait Encode: Send + Sync + 'static {
    /// What is constant for the deliveries of a key; kept as long as the key is listened to.
    fn head(&self, key: &Key) -> Arc<dyn Head>;
    /// Appends the frames of a realm broadcast for members without a matching subscription:
    /// the delivery event is `CONSUME-<event>` in the producer's own case (decided 3).
    fn broadcast(&self, what: &Content<'_>, out: &mut Vec<u8>);
    /// The frames of a notice.
    fn notice(&self, notice: &Notice<'_>) -> Bytes;
}

/// The deliveries of one key as frames. All receivers of the key share the bytes.
pub trait Head: Send + Sync + 'static {
    /// Appends the frames of one delivery to `out` (chunked when large).
    fn plain(&self, what: &Content<'_>, out: &mut Vec<u8>);
    /// The same with an id that awaits an ACK; `attempt` counts from 1.
    fn tracked(&self, what: &Content<'_>, msg_id: &str, attempt: u32, out: &mut Vec<u8>);
    /// A repeat without an id: `redelivered: true` (P3).
    fn repeated(&self, what: &Content<'_>, out: &mut Vec<u8>);
}

/// A message's content borrowed: from the producer's frame or from a stored message.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The event in the producer's case.
    pub event: &'a str,
    /// The producer's name.
    pub from: &'a str,
    /// JSON text, with placeholders for the attachments; `None`: the producer sent none.
    pub body: Option<&'a str>,
    /// Binary parts in the order of their placeholders.
    pub attachments: &'a [Bytes],
    /// Opaque JSON text, passed through.
    pub enc: Option<&'a str>,
    /// Opaque JSON text, passed through; does not restrict delivery.
    pub to: Option<&'a str>,
    /// JSON text of a string; only for messages published over HTTP.
    pub content_type: Option<&'a str>,
    /// JSON text of an object of strings.
    pub headers: Option<&'a str>,
}

impl<'a> Content<'a> {
    /// The content of a stored message. Its texts were checked as UTF-8 when they came in; one that
    /// is not (a damaged store passes no checksum) is left out.
    pub fn of(message: &'a Message) -> Self {
        fn text(bytes: Option<&Bytes>) -> Option<&str> {
            std::str::from_utf8(bytes?).ok()
        }
        let extras = message.extras.as_deref();
        Self {
            event: &message.event,
            from: &message.from,
            body: text(message.body.as_ref()),
            attachments: message.attachments(),
            enc: text(extras.and_then(|extras| extras.enc.as_ref())),
            to: text(extras.and_then(|extras| extras.to.as_ref())),
            content_type: text(extras.and_then(|extras| extras.content_type.as_ref())),
            headers: text(extras.and_then(|extras| extras.headers.as_ref())),
        }
    }
}

/// What the broker tells a session of its own accord.
#[derive(Debug)]
pub enum Notice<'a> {
    /// `SUBSCRIBE-TO-<producer_id>` to a producer.
    Subscribed {
        /// The producer's id.
        producer_id: &'a str,
        /// Who subscribed.
        subscriber: Subscriber<'a>,
    },
    /// `UNSUBSCRIBE-<producer_id>` and `UNSUBSCRIBE-<event>-<producer_id>` to a producer, in one go.
    Unsubscribed {
        /// The producer's id.
        producer_id: &'a str,
        /// The event or pattern as subscribed.
        event: &'a str,
        /// Whose subscription ended; its `events` hold the ended one.
        subscriber: Subscriber<'a>,
    },
    /// `CONNECT-<producer_id>` to a producer: a consumer that had subscribed is back.
    ConsumerOnline {
        /// The producer's id.
        producer_id: &'a str,
        /// The consumer's socket.
        socket: &'a str,
        /// The consumer's meta id.
        id: &'a str,
        /// The consumer's name.
        consumer: &'a str,
    },
    /// `DISCONNECT-<producer_id>` to a producer.
    ConsumerOffline {
        /// The producer's id.
        producer_id: &'a str,
        /// The socket the consumer had.
        socket: &'a str,
        /// The consumer's meta id.
        id: &'a str,
        /// The consumer's name.
        consumer: &'a str,
    },
    /// `CONNECT-<consumer_id>` and `<producer>-ONLINE` to a consumer, in one go.
    ProducerOnline {
        /// The consumer's meta id.
        consumer_id: &'a str,
        /// The producer's socket.
        socket: &'a str,
        /// The producer's id.
        id: &'a str,
        /// The producer's name.
        producer: &'a str,
    },
    /// `DISCONNECT-<consumer_id>` to a consumer.
    ProducerOffline {
        /// The consumer's meta id.
        consumer_id: &'a str,
        /// The socket the producer had.
        socket: &'a str,
        /// The producer's id.
        id: &'a str,
        /// The producer's name.
        producer: &'a str,
    },
    /// `ERROR` with the bare string of a producer takeover (wire §2.4).
    ProducerReplaced,
    /// `ERROR {message, code, error}`.
    Failed(&'a Error),
    /// `AUTH_FAIL {code, error, message}`: the session has lost its right to be there.
    Denied(&'a Error),
    /// `GAP {keys, dropped}`: plain messages were dropped because the line was full (P23).
    Gap {
        /// The keys concerned, as on the wire; at most 64.
        keys: &'a [Arc<Key>],
        /// Messages dropped since the last such notice.
        dropped: u64,
    },
}

/// A consumer as producers hear of it.
#[derive(Debug, Clone, Copy)]
pub struct Subscriber<'a> {
    /// The consumer's name.
    pub name: &'a str,
    /// Its meta id.
    pub id: &'a str,
    /// Its socket; `None`: away.
    pub socket: Option<&'a str>,
    /// The keys it listens to that concern this producer.
    pub events: &'a [Arc<Key>],
    /// Whether it is connected; `None`: not seen since the start.
    pub online: Option<bool>,
}

/// The line of nobody: takes everything, says nothing.
pub(super) struct Nobody;

impl Outbox for Nobody {
    fn offer(&self, _: Bytes) -> Option<u64> {
        Some(0)
    }
    fn notice(&self, _: Bytes) {}
    fn room(&self) -> usize {
        usize::MAX
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

/// What the broker asks about rights by itself, where no door is in between (P30). The answers must
/// come from memory.
pub trait Rights: Send + Sync + 'static {
    /// Whether what `owner` (of a credential; `None`: nobody had logged in) published earlier may go
    /// out under this event now that its delay is over (P17).
    fn may_still_publish(&self, realm: &RealmId, owner: Option<&str>, event: &str) -> bool;

    /// Whether consumers and producers may go without a name there (wire §2.3).
    fn allows_anonymous(&self, realm: &RealmId) -> bool {
        *realm == RealmId::default()
    }
}

/// Says yes to everything: authentication is off.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

impl Rights for AllowAll {
    fn may_still_publish(&self, _: &RealmId, _: Option<&str>, _: &str) -> bool {
        true
    }
}

/// What a session may receive; carried by its wildcard subscriptions (P30).
pub trait Filter: Send + Sync + 'static {
    /// Whether this concrete event, in any case, may reach it.
    fn may_see(&self, event: &str) -> bool;
}
