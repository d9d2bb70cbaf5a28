//! Behaviour of the library from outside; one binary, so that it links once.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod cases;
mod client;
mod errors;
mod harness;
mod layers;
mod offline;
mod redis;
#[cfg(unix)]
mod settings;
#[cfg(unix)]
mod sqlite;
mod stores;
mod transport;
mod wire;
