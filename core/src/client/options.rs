//! What a connection is told when it is opened: where, as whom, and how patient to be.
//!
//! Plain values with defaults; reads no environment and checks nothing but what `Connection::open`
//! asks it to. Called by whoever opens a connection.

use std::time::Duration;

use crate::tls::Pem;

/// Everything that can be said about a connection. All fields have defaults.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Host name or address. Default `localhost`.
    pub host: String,
    /// TCP port. Default 17352.
    pub port: u16,
    /// `http` or `ws`; `https` or `wss` for TLS. Default `http`.
    pub protocol: String,
    /// Whose signature a server's certificate must have, under TLS. Default: the authorities of the
    /// web.
    pub ca: Option<Pem>,
    /// HTTP path of the server. Default `/socket.io/`.
    pub path: String,
    /// Log in with this before anything else is sent. Default none.
    pub auth: Option<Auth>,
    /// How long [`ready`](super::Connection::ready) waits for the first connection; then the
    /// connection stays down. Default none: for ever.
    pub connect_timeout: Option<Duration>,
    /// The first link is the only one: when it fails or ends, the connection stays down. Default false.
    pub once: bool,
    /// Pauses between tries.
    pub reconnect: Reconnect,
    /// What confirmed and guaranteed messages do while there is no connection (P31).
    pub offline: Offline,
    /// Names this client over reconnects (P16, P22). Default: minted.
    pub instance: Option<String>,
    /// Ask the server to tell about plain messages that it dropped (P23). Default true.
    pub gap: bool,
    /// Largest message in bytes, attachments included, both ways. Default 50 MiB (P21).
    pub max_message_bytes: usize,
    /// Bounds of what waits to be sent.
    pub outbound: Outbound,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            host: "localhost".into(),
            port: 17352,
            protocol: "http".into(),
            ca: None,
            path: "/socket.io/".into(),
            auth: None,
            connect_timeout: None,
            once: false,
            reconnect: Reconnect::default(),
            offline: Offline::default(),
            instance: None,
            gap: true,
            max_message_bytes: 50 << 20,
            outbound: Outbound::default(),
        }
    }
}

/// What goes into AUTHENTICATION. Without a token, realm, role or key nothing is sent.
#[derive(Clone)]
pub struct Auth {
    /// A stored token or JWT.
    pub token: Option<String>,
    /// The desired realm.
    pub realm: Option<String>,
    /// `consumer`, `producer`, `both` …
    pub role: Option<String>,
    /// The realm's pre-shared key.
    pub key: Option<String>,
    /// How long to wait for the answer. Default 5 s.
    pub timeout: Duration,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            token: None,
            realm: None,
            role: None,
            key: None,
            timeout: Duration::from_secs(5),
        }
    }
}

impl Auth {
    /// Whether there is anything to say.
    pub(super) fn is_given(&self) -> bool {
        self.token.is_some() || self.realm.is_some() || self.role.is_some() || self.key.is_some()
    }
}

/// Credentials stay out of logs.
impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth")
            .field("realm", &self.realm)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// Pauses between tries to connect: doubled each time, with jitter (P31).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconnect {
    /// The first pause. Default 100 ms.
    pub min: Duration,
    /// The longest pause. Default 10 s.
    pub max: Duration,
    /// A connection that lasted this long lets the pauses start over. Default 5 s.
    pub stable: Duration,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self {
            min: Duration::from_millis(100),
            max: Duration::from_secs(10),
            stable: Duration::from_secs(5),
        }
    }
}

/// What confirmed and guaranteed messages do while there is no connection (P31).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offline {
    /// Wait, or be refused. Default [`OfflinePolicy::Queue`].
    pub policy: OfflinePolicy,
    /// Most messages that wait; more are refused `queue_full`. Default 1,000.
    pub max_messages: usize,
    /// Most bytes that wait (or one message). Default 16 MiB.
    pub max_bytes: usize,
}

impl Default for Offline {
    fn default() -> Self {
        Self {
            policy: OfflinePolicy::Queue,
            max_messages: 1000,
            max_bytes: 16 << 20,
        }
    }
}

/// See [`Offline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfflinePolicy {
    /// They wait for the connection, their `ttl` or their timeout.
    Queue,
    /// They are refused `disconnected` at once.
    Reject,
}

/// Bounds of what waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outbound {
    /// From here on `produce` answers false. Default 1 MiB.
    pub high_water: usize,
    /// Below this [`ClientEvent::Drain`](super::ClientEvent::Drain) is told. Default 256 KiB.
    pub low_water: usize,
    /// Beyond this (or one message) `produce` refuses `queue_full`. Default 16 MiB.
    pub hard_limit: usize,
}

impl Default for Outbound {
    fn default() -> Self {
        Self {
            high_water: 1 << 20,
            low_water: 256 << 10,
            hard_limit: 16 << 20,
        }
    }
}

/// Under which names a connection registers, again after each reconnect. Both may be given.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Registers a consumer.
    pub consumer: Option<ConsumerIdentity>,
    /// Registers a producer.
    pub producer: Option<ProducerIdentity>,
}

/// CONSUMER.
#[derive(Debug, Clone)]
pub struct ConsumerIdentity {
    /// The consumer's name.
    pub name: String,
    /// Its meta id, used in awareness events. Default: the consumer id.
    pub id: Option<String>,
    /// Its durable identity. Default: the name.
    pub consumer_id: Option<String>,
}

/// PRODUCER.
#[derive(Debug, Clone)]
pub struct ProducerIdentity {
    /// The producer's name, `from` of what it produces.
    pub name: String,
    /// `ttl` of messages that say none (P15).
    pub default_ttl: Option<Duration>,
}
