//! The command with a SQLite store, from outside: killed, full, and what it does to the disk.

mod crash;
mod full;
mod load;
mod process;
mod swap;
#[cfg(target_os = "linux")]
mod sync;
