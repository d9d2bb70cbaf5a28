//! What a client is told: whole websocket frames, appended to a buffer of the caller's.
//!
//! Every function appends one or more complete frames, each a Socket.IO packet of the namespace
//! `/`; the buffer goes to the line as it is. Does not know to whom. Called by `session`, and by
//! whoever builds deliveries.

mod awareness;
mod delivery;
mod object;
mod replies;

pub use awareness::{
    Subscriber, consumer_connected, consumer_disconnected, producer_connected,
    producer_disconnected, producer_online, subscribe_to, unsubscribed_from,
};
pub use delivery::{Content, DeliveryHead, Stamp};
pub use object::{event_text, raw_event, raw_reply};
pub use replies::{
    Produced, Settle, ack_many, auth_fail, auth_fail_until, auth_ok, error, error_rate_limited,
    gap, pong, produced, rate_limited, refused, reply_error, reply_rate_limited, settle_fail,
    settle_ok, subscribed, too_large, unsubscribed,
};

#[cfg(test)]
mod tests;
