//! What callers of the broker's verbs hand in and get back. Typed and checked: the room above has
//! parsed names, durations and keys. Knows no wire.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Broker;
use super::member::Member;
use super::ports::{AllowAll, Content, Notice, Rights};
use crate::clock::Timestamp;
use crate::model::{
    ConsumerId, ConsumerName, Key, MessageId, ProducerName, RealmId, SubscriptionOptions,
};
use crate::store::QueueId;
use crate::{Error, Result};

/// Bounds and times of the broker. Every field has the default of the promises.
#[derive(Clone)]
pub struct BrokerConfig {
    /// A store that has not answered by then makes PRODUCEs fail (P24); 5 s.
    pub store_timeout: Duration,
    /// PRODUCEs of one session that may wait on the store; 1,024.
    pub staging_messages: usize,
    /// Bytes of bodies of one session that may wait on the store; 1 MiB.
    pub staging_bytes: usize,
    /// When a message says nothing else: how long it lives (P15); 24 h.
    pub default_ttl: Duration,
    /// Bytes of unsettled messages a session may hold of one subscription (P12); 8 MiB.
    pub prefetch_bytes: usize,
    /// Settle deliveries without ack on write instead of on the pong (`durable_confirm: 'flush'`, P6).
    pub confirm_on_flush: bool,
    /// How long a remembered durable subscription lives without an attach (P4); 30 d.
    pub durable_subscription_ttl: Duration,
    /// The same for plain named ones; 24 h.
    pub guaranteed_subscription_ttl: Duration,
    /// Plain named subscriptions remembered per realm; 10,000.
    pub guaranteed_subscriptions: usize,
    /// How long an offline name stays in the live tables (wire §10.3); 5 min.
    pub idle_ttl: Duration,
    /// Time between two looks for what age ends: idle names, subscriptions, the store's upkeep; 30 s.
    pub sweep_interval: Duration,
    /// First look at a silent holder of a consumer name (P22); 1 s.
    pub duplicate_probe: Duration,
    /// Last look at it; 5 s.
    pub duplicate_wait: Duration,
    /// The transport's ping interval: a holder silent for longer is presumed dead at the first look; 25 s.
    pub ping_interval: Duration,
    /// Keys that one message may match; 10,000.
    pub max_matches: usize,
    /// Distinct names that a realm keeps in its live tables, live and offline; 1,000,000.
    pub max_names: usize,
    /// What is asked where no door is in between: delays, anonymous names (P30).
    pub rights: Arc<dyn Rights>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            store_timeout: Duration::from_secs(5),
            staging_messages: 1_024,
            staging_bytes: 1 << 20,
            default_ttl: Duration::from_secs(86_400),
            prefetch_bytes: 8 << 20,
            confirm_on_flush: false,
            durable_subscription_ttl: Duration::from_secs(30 * 86_400),
            guaranteed_subscription_ttl: Duration::from_secs(86_400),
            guaranteed_subscriptions: 10_000,
            idle_ttl: Duration::from_secs(300),
            sweep_interval: Duration::from_secs(30),
            duplicate_probe: Duration::from_secs(1),
            duplicate_wait: Duration::from_secs(5),
            ping_interval: Duration::from_secs(25),
            max_matches: 10_000,
            max_names: 1_000_000,
            rights: Arc::new(AllowAll),
        }
    }
}

impl std::fmt::Debug for BrokerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrokerConfig").finish_non_exhaustive()
    }
}

/// CONSUMER: a session takes a consumer name.
#[derive(Debug, Clone)]
pub struct ConsumerHello {
    /// The name; one live session holds it (P22).
    pub name: ConsumerName,
    /// Meta id for awareness; `None`: the socket id.
    pub id: Option<Arc<str>>,
    /// Which client object this is, across its reconnects (P22).
    pub instance: Option<Arc<str>>,
    /// Wants to be told of dropped messages (P23).
    pub gap: bool,
}

/// PRODUCER: a session takes a producer name.
#[derive(Debug, Clone)]
pub struct ProducerHello {
    /// The name; it goes to the newest (P22).
    pub name: ProducerName,
    /// The producer's id for awareness; `None`: the socket id.
    pub id: Option<Arc<str>>,
    /// For messages of this producer that carry no ttl (P15); `None` keeps what was.
    pub default_ttl: Option<Duration>,
    /// Which client object this is: its own older connection gets no takeover notice.
    pub instance: Option<Arc<str>>,
}

/// SUBSCRIBE.
#[derive(Debug, Clone)]
pub struct SubscribeRequest {
    /// What to listen to.
    pub key: Arc<Key>,
    /// On whose behalf; a name this session holds, see [`super::Broker::subscriber`].
    pub consumer: ConsumerName,
    /// Meta id if SUBSCRIBE has to register the name; `None`: the socket id.
    pub id: Option<Arc<str>>,
    /// Queue identity; `None`: the consumer's name.
    pub consumer_id: Option<ConsumerId>,
    /// Durable, ack, retry, group, window.
    pub options: SubscriptionOptions,
}

/// The answer to SUBSCRIBE; key and delivery event follow from [`Subscribed::key`].
#[derive(Debug, Clone)]
pub struct Subscribed {
    /// What is listened to.
    pub key: Arc<Key>,
    /// Messages that waited at the time.
    pub queued: u64,
    /// `durable` was asked for by an anonymous consumer and lasts for the session only (P4).
    pub session_only: bool,
}

/// UNSUBSCRIBE.
#[derive(Debug, Clone)]
pub struct UnsubscribeRequest {
    /// Which key.
    pub what: Unsubscribe,
    /// Whose; `None`: all names that this session holds. Another session's name: forbidden.
    pub consumer: Option<ConsumerName>,
    /// Whose queue; `None`: whichever. With one, a subscription by another id goes on.
    pub consumer_id: Option<ConsumerId>,
    /// Drop the backlog too.
    pub purge: bool,
    /// Only stop listening: the subscription stays, as if the session had ended (P5).
    pub detach: bool,
}

/// How UNSUBSCRIBE names a key.
#[derive(Debug, Clone)]
pub enum Unsubscribe {
    /// The key itself.
    Key(Arc<Key>),
    /// The wire's text of a key, such as `orders-paid`: every own key with that text.
    Text(Arc<str>),
}

/// The answer to UNSUBSCRIBE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unsubscribed {
    /// Subscriptions ended.
    pub removed: u32,
    /// Messages left behind for a later subscription of the same identity (P5).
    pub left: u64,
}

/// PRODUCE, borrowed from the producer's frame.
#[derive(Debug, Clone, Copy)]
pub struct PublishRequest<'a> {
    /// What the consumers will see.
    pub content: Content<'a>,
    /// The producer's id if PRODUCE has to register the name (wire §2.5).
    pub producer_id: Option<&'a str>,
    /// `ttl`, else `lifespan`; `None`: the producer's default. Zero: only to those online (P15).
    pub ttl: Option<Duration>,
    /// Durable for every remembered matching subscription.
    pub guaranteed: bool,
    /// To everybody instead of to the matching subscriptions.
    pub broadcast: Option<Broadcast<'a>>,
    /// The user's own id (P16).
    pub uid: Option<&'a str>,
    /// Client instance and number (P16).
    pub instance_seq: Option<(&'a str, u64)>,
    /// At most one unsettled message per ordering key is out (P8).
    pub ordering_key: Option<&'a str>,
    /// Hold until then (P17); a past time is now.
    pub due: Option<Timestamp>,
}

/// Whom a broadcast reaches (wire §8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broadcast<'a> {
    /// Every connected member of the realm, the sender too.
    Realm,
    /// Every connected member of the group, once.
    Group(&'a str),
}

/// The answer to PRODUCE, after every stored copy is committed (P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// The message's id; of the first copy when it is a duplicate.
    pub id: MessageId,
    /// Queues that stored it.
    pub queued: u32,
    /// Live copies.
    pub delivered: u32,
    /// Queues that were full.
    pub refused: u32,
    /// Known already: nothing was done.
    pub duplicate: bool,
    /// Held until due.
    pub delayed: bool,
}

/// Called once with the outcome of a PRODUCE; possibly on another thread.
pub type Reply = Box<dyn FnOnce(Result<Published>) + Send>;

/// What a consumer says about a delivery.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// Done.
    Ack,
    /// Failed: again after `delay` (`None`: the retry policy's), or never again.
    Nack {
        /// Wait before the next attempt.
        delay: Option<Duration>,
        /// `false`: a dead letter now.
        requeue: bool,
        /// For people.
        reason: Option<Arc<str>>,
    },
    /// Still at it: the ack timeout starts anew (P13).
    Working,
}

/// Called once with the outcome of a [`Verdict`]: whether the delivery was settled already.
/// Errors: `delivery_unknown` (404), `forbidden` (403), `stale_ack` (409), `store_unavailable` (503:
/// kept, and written later).
pub type Settled = Box<dyn FnOnce(Result<bool>) + Send>;

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It said goodbye: gives back what it held, without a failure.
    Closed,
    /// Its socket ended without a goodbye: what it held in ack mode has failed once (P10).
    Failed,
    /// Heartbeat loss, takeover, cut or our own stop: gives back, counted as a return.
    Returned,
}

/// What a queue is doing, for `getStats({queues: true})`.
#[derive(Debug, Clone)]
pub struct QueueStats {
    /// Its id.
    pub queue: QueueId,
    /// What it listens to.
    pub key: Arc<Key>,
    /// Consumer id or group.
    pub name: Arc<str>,
    /// Whether it is a group's.
    pub is_group: bool,
    /// Whether it takes every message, not only guaranteed ones.
    pub is_durable: bool,
    /// Unsettled messages, those in flight included.
    pub waiting: u64,
    /// Sent and unsettled.
    pub in_flight: u64,
    /// Age of the oldest unsettled message.
    pub oldest: Option<Duration>,
    /// Sessions attached now.
    pub sessions: u32,
}

/// Live numbers of one realm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RealmStats {
    /// Producer names known.
    pub producers: usize,
    /// Of those, connected.
    pub producers_online: usize,
    /// Consumer names known.
    pub consumers: usize,
    /// Of those, connected.
    pub consumers_online: usize,
    /// Keys listened to.
    pub subscriptions: usize,
    /// Remembered queues.
    pub queues: usize,
    /// Sessions in the realm.
    pub sessions: usize,
}

/// A connected session, for operators.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// Its name in awareness, and on the wire.
    pub socket_id: Arc<str>,
    /// Its realm.
    pub realm: RealmId,
    /// Its role's name.
    pub role: &'static str,
    /// Its credential's owner (P30).
    pub owner: Option<Arc<str>>,
    /// Consumer names it holds.
    pub consumers: Vec<ConsumerName>,
    /// Producer names it holds.
    pub producers: Vec<ProducerName>,
    /// Where it comes from.
    pub remote: Option<SocketAddr>,
    /// Since when it is there.
    pub since: Timestamp,
}

/// What went with a realm, see [`super::Broker::remove_realm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Sessions closed.
    pub sessions: usize,
    /// Messages dropped: waiting, dead and delayed ones.
    pub messages: u64,
}

/// Tells a producer no: by its reply, else by an ERROR (wire §6.10-13).
pub(super) fn refuse(broker: &Broker, member: &Member, reply: Option<Reply>, error: Error) {
    broker.metrics().refused.counter(&[error.code()]).add(1);
    match reply {
        Some(reply) => reply(Err(error)),
        None => {
            let notice = broker.encode().notice(&Notice::Failed(&error));
            member.outbox().notice(notice);
        }
    }
}
