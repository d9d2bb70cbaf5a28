//! The transport over real sockets, with raw frames: no client library smooths anything over.

pub mod harness;
mod heartbeat;
mod hostile;
mod limits;
mod polling;
mod websocket;
