//! The store in Redis against real servers: what becomes of calls when servers and links fail.

pub mod cluster;
#[cfg(unix)]
mod crash;
#[cfg(unix)]
mod fallback;
mod merge;
mod relay;
mod rig;
mod same;
pub mod server;
#[cfg(unix)]
mod swap;
mod troubles;
