//! Behaviour of the library from outside; one binary, so that it links once.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod auth;
mod cases;
mod client;
#[cfg(unix)]
mod command;
mod errors;
mod harness;
mod ids;
mod layers;
#[cfg(unix)]
mod limits;
mod management;
mod offline;
mod redis;
#[cfg(unix)]
mod settings;
#[cfg(unix)]
mod sqlite;
mod stores;
#[cfg(unix)]
mod tls;
mod transport;
mod wire;
