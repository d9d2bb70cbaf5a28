//! How a subscription wants its messages.
//!
//! Does not know to what it listens (that is a [`super::Key`]) nor who is behind it.

use std::time::Duration;

use super::names::GroupName;
use super::retry::RetryPolicy;

/// The longest `ack_timeout` there is (P14).
pub const MAX_ACK_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// What the server's settings say for subscriptions that do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionDefaults {
    /// Time to answer a delivery; 30 s.
    pub ack_timeout: Duration,
    /// Most unsettled messages of a subscription in one session; 1,024 (P12).
    pub prefetch: u32,
}

impl Default for SubscriptionDefaults {
    fn default() -> Self {
        Self {
            ack_timeout: Duration::from_secs(30),
            prefetch: 1024,
        }
    }
}

/// The options of a subscription, defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// Messages wait while the consumer is away (P4).
    pub durable: bool,
    /// Deliveries are settled by an ACK rather than by receipt (P6, P9).
    pub ack: bool,
    /// Time to answer a delivery; above zero and at most [`MAX_ACK_TIMEOUT`].
    pub ack_timeout: Duration,
    /// What follows a failure.
    pub retry: RetryPolicy,
    /// Whether the client named a retry policy: in a group a differing one is refused (P18).
    pub retry_given: bool,
    /// Most unsettled messages in one session; at least 1 (P12).
    pub prefetch: u32,
    /// The group whose members share the messages, if any.
    pub group: Option<GroupName>,
}

impl SubscriptionOptions {
    /// A plain subscription with the server's defaults.
    pub fn new(defaults: &SubscriptionDefaults) -> Self {
        Self {
            durable: false,
            ack: false,
            ack_timeout: defaults.ack_timeout,
            retry: RetryPolicy::default(),
            retry_given: false,
            prefetch: defaults.prefetch,
            group: None,
        }
    }
}

impl Default for SubscriptionOptions {
    fn default() -> Self {
        Self::new(&SubscriptionDefaults::default())
    }
}
