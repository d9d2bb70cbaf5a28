//! The client: one socket, restored by itself (P31).
//!
//! [`Connection`] speaks the wire to a server of ours or to a tyo-mq one and hands what comes in to
//! a [`Sink`]; [`Client`] puts futures and streams over it. Knows no broker and no JavaScript.
//! Called by the Node addon and by Rust users.
//!
//! ```text
//!  factory, producer, consumer    futures and streams for Rust users
//!  connection                     the handle: sync calls
//!  shared, state                  what handle and task share; one short lock
//!  run, outage, link, socket      the task: connect, serve, pause, again
//!  produces, subscriptions        what is kept and sent again
//!  verbs, frames, inbound         frames out, texts in
//! ```

mod answer;
mod backoff;
mod connection;
mod consumer;
mod factory;
mod frames;
mod inbound;
mod link;
mod options;
mod outage;
mod producer;
mod produces;
mod request;
mod run;
mod shared;
mod sink;
mod socket;
mod state;
mod subscriptions;
mod verbs;
mod wire;

pub use answer::{Answer, Settle};
pub use connection::Connection;
pub use consumer::{Consumer, Message, Messages};
pub use factory::{Client, ClientBuilder};
pub use options::{
    Auth, ConnectOptions, ConsumerIdentity, Identity, Offline, OfflinePolicy, Outbound,
    ProducerIdentity, Reconnect,
};
pub use producer::Producer;
pub use request::{
    Broadcast, Confirm, Confirmed, DEFAULT_TIMEOUT, Nack, Produce, Subscribe, Subscribed,
    Unsubscribed,
};
pub use sink::{ClientEvent, Delivery, Sink};

#[cfg(test)]
mod tests;
