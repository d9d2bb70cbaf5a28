//! The store in Redis against real servers: what becomes of calls when servers and links fail.

mod claims;
pub mod cluster;
#[cfg(unix)]
mod crash;
mod relay;
mod rig;
mod same;
pub mod server;
mod storm;
mod troubles;
mod two;
