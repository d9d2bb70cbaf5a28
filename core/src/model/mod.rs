//! The nouns: names, keys, topics, durations, retry policies, subscriptions, messages.
//!
//! No I/O, no async; knows no wire and no store. Every room above speaks in these words.

mod checksum;
mod duration;
pub(crate) mod instant;
mod key;
mod message;
mod names;
mod retry;
mod subscription;
mod topic;

pub use checksum::checksum;
pub use duration::{duration_from_number, duration_from_text};
pub use key::{Key, Spelling};
pub use message::{Extras, Message, MessageId};
pub use names::{
    ALL_PRODUCERS, ANONYMOUS, ConsumerId, ConsumerName, EventName, GroupName, ProducerName,
    RealmId, SYSTEM, fold, is_anonymous,
};
pub use retry::{Backoff, RetryPolicy};
pub use subscription::{MAX_ACK_TIMEOUT, SubscriptionDefaults, SubscriptionOptions};
pub use topic::TopicPattern;
