//! What a connection can be asked, and what comes back.
//!
//! Typed values only: options are parsed at the caller's door. Called by users of `Connection`.

use std::time::Duration;

use bytes::Bytes;

use super::answer::Settle;
use crate::model::RetryPolicy;

/// One subscription. The same key (event, producer, `all`, `topic`) replaces an older one.
#[derive(Debug, Clone)]
pub struct Subscribe {
    /// The event, or the pattern if `topic`. Ignored if `all`.
    pub event: String,
    /// Only from this producer. Default: any.
    pub producer: Option<String>,
    /// Every event of the producer (wire `scope: "all"`).
    pub all: bool,
    /// `event` is a pattern with `+` and `#`.
    pub topic: bool,
    /// The consumer it is for. Default: the connection's consumer, else its producer's name.
    pub consumer: Option<String>,
    /// Durable identity. Default: that of the connection's consumer.
    pub consumer_id: Option<String>,
    /// Queue while away.
    pub durable: bool,
    /// Deliveries are settled by `ack`.
    pub ack: bool,
    /// Told to the server for its records; who calls `ack` is the caller's affair.
    pub manual_ack: bool,
    /// How long one attempt may take; none: the server's default.
    pub ack_timeout: Option<Duration>,
    /// What happens after failures; none: the server's default.
    pub retry: Option<RetryPolicy>,
    /// Share with the other members of this group.
    pub group: Option<String>,
    /// Most unsettled messages at a time; none: the server's default (P12).
    pub prefetch: Option<u32>,
    /// Subscribe again after each reconnect. Default true.
    pub resubscribe: bool,
    /// How long to wait for the server's answer; the subscription stays in force. Default 10 s.
    pub timeout: Duration,
}

impl Subscribe {
    /// A plain subscription to `event` of any producer.
    pub fn to(event: impl Into<String>) -> Self {
        Self {
            event: event.into(),
            producer: None,
            all: false,
            topic: false,
            consumer: None,
            consumer_id: None,
            durable: false,
            ack: false,
            manual_ack: false,
            ack_timeout: None,
            retry: None,
            group: None,
            prefetch: None,
            resubscribe: true,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Everything that `producer` says.
    pub fn to_all_of(producer: impl Into<String>) -> Self {
        Self {
            all: true,
            ..Self::to("TM-ALL").from(producer)
        }
    }

    /// Every event that the topic pattern matches.
    pub fn to_topic(pattern: impl Into<String>) -> Self {
        Self {
            topic: true,
            ..Self::to(pattern)
        }
    }

    /// Only what `producer` says.
    #[must_use]
    pub fn from(mut self, producer: impl Into<String>) -> Self {
        self.producer = Some(producer.into());
        self
    }

    /// Messages wait while the consumer is away.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Deliveries are settled by `ack`, and come again if they are not.
    #[must_use]
    pub fn acked(mut self) -> Self {
        self.ack = true;
        self
    }

    /// Share with the other members of `group`: each message reaches one.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }
}

/// The default for every answer that is waited for (P2).
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// One message on its way out. Texts are borrowed: the frame is built during the call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Produce<'a> {
    /// The event.
    pub event: &'a str,
    /// JSON text, sent as it is, so it must be valid; none: no `message` at all. Where an
    /// attachment belongs it holds `{"_placeholder":true,"num":i}`.
    pub message: Option<&'a str>,
    /// Binary parts, by `num`.
    pub attachments: &'a [Bytes],
    /// The producer's name. Default: the connection's producer.
    pub from: Option<&'a str>,
    /// Passed through.
    pub to: Option<&'a str>,
    /// Passed through: JSON text.
    pub enc: Option<&'a str>,
    /// How long it may wait (P15); counts from this call, or from when it is due.
    pub ttl: Option<Duration>,
    /// The older spelling of `ttl`, which `ttl` beats.
    pub lifespan: Option<Duration>,
    /// Durable for every remembered matching subscription.
    pub guaranteed: bool,
    /// To all members instead of to subscribers.
    pub broadcast: Option<Broadcast<'a>>,
    /// The user's own id (P16).
    pub id: Option<&'a str>,
    /// JSON text of an object of strings.
    pub headers: Option<&'a str>,
    /// Ordering key (P8).
    pub key: Option<&'a str>,
    /// Hold it this long (P17); counts from this call.
    pub delay: Option<Duration>,
    /// Hold it until then (P17): JSON text, a number of milliseconds or an ISO date in quotes.
    pub deliver_at: Option<&'a str>,
}

/// To whom a broadcast goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broadcast<'a> {
    /// Every connected member of the realm.
    Realm,
    /// Every connected member of the group.
    Group(&'a str),
}

/// Asks for the server's answer to a produce.
#[derive(Debug)]
pub struct Confirm {
    /// How long to wait, from the call. Default [`DEFAULT_TIMEOUT`].
    pub timeout: Duration,
    /// Where the answer goes.
    pub settle: Settle<Confirmed>,
}

/// The server has every durable copy (P2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confirmed {
    /// The message's id, if the server gave one.
    pub id: Option<String>,
    /// Stored copies.
    pub queued: u64,
    /// Live copies.
    pub delivered: u64,
    /// Queues that refused.
    pub refused: u64,
    /// It had been taken before.
    pub duplicate: bool,
    /// It is held until due.
    pub delayed: bool,
}

/// The server knows the subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscribed {
    /// Its key on the wire.
    pub key: String,
    /// The event its deliveries come under.
    pub consume_event: String,
    /// Messages that waited for it.
    pub queued: u64,
}

/// The subscription is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unsubscribed {
    /// Subscriptions that were removed.
    pub removed: u64,
    /// Unsettled messages that stay, each until its TTL, for a later subscription (P5).
    pub left: u64,
}

/// How a delivery is given back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nack<'a> {
    /// Try again after this; none: as the retry policy says.
    pub delay: Option<Duration>,
    /// A dead letter at once instead of another attempt.
    pub bury: bool,
    /// Why.
    pub reason: Option<&'a str>,
}
