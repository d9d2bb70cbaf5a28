//! Restante, a message broker: *a message waits until its subscriber comes back*.
//!
//! The map of the rooms, upper ones import lower ones only:
//!
//! ```text
//!  offline  operator             a store that nobody serves; orders to a broker that runs
//!  server                        assembly: config → store, broker, listener
//!  session                       one connected client: verbs → broker
//!  admin                         management commands
//!  broker  auth  transport  client  routing and delivery; who may what; sockets; the Rust client
//!  protocol  store  limits       our verbs ⇄ Socket.IO events; where messages wait
//!  model  wire  tls  error  clock  metrics  env_file
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
pub mod auth;
#[cfg(feature = "server")]
pub mod broker;
#[cfg(feature = "client")]
pub mod client;
pub mod clock;
#[cfg(feature = "server")]
pub mod env_file;
mod error;
#[cfg(feature = "server")]
pub mod limits;
pub mod metrics;
pub mod model;
#[cfg(feature = "server")]
pub mod offline;
#[cfg(feature = "operator")]
pub mod operator;
pub mod protocol;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
mod session;
#[cfg(feature = "server")]
pub mod store;
pub mod tls;
#[cfg(feature = "server")]
pub mod transport;
pub mod wire;

pub use error::{Error, ErrorKind, Result};
