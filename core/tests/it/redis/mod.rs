//! The store in Redis against real servers: what becomes of calls when servers and links fail.

mod claims;
pub mod cluster;
#[cfg(unix)]
mod crash;
mod documents;
#[cfg(unix)]
mod fallback;
mod merge;
mod relay;
mod rig;
mod same;
mod sentinel;
pub mod server;
mod storm;
#[cfg(unix)]
mod swap;
mod tls;
mod troubles;
mod two;
