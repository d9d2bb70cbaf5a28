//! The command with a SQLite store, from outside: killed, full, robbed of files, and what it does to the disk.

pub mod crash;
mod files;
mod full;
pub mod load;
pub mod process;
pub mod swap;
#[cfg(target_os = "linux")]
mod sync;
