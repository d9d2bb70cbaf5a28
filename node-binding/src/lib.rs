//! The addon: converts between JavaScript and the core, and calls. It holds no rule of the broker:
//! what a client or a server does lives in the crate `restante`, what JavaScript sees in `index.js`.
//!
//! ```text
//!  client   a connection as free functions
//!  options  what those functions are given, read and checked
//!  server   a broker as free functions; numbers: what it tells
//!  offline  the command's work on a store that no broker serves, and its orders to one that runs
//!  port     Rust → JS: an inbox per endpoint, a doorbell, `drain`
//!  store    a store written in JavaScript; validator: a function that says whose token it is
//!  runtime  the one thread that the addon's clients live on
//!  error    our stable codes on JavaScript errors
//! ```
#![allow(
    clippy::missing_errors_doc,
    reason = "the exports are private to lib/*.js; index.d.ts tells users what fails how"
)]

pub mod client;
pub mod error;
pub mod log;
mod numbers;
pub mod offline;
pub mod options;
pub mod port;
pub mod redis;
mod runtime;
pub mod server;
pub mod store;
pub mod validator;

use napi_derive::napi;

/// The version this addon was built from; `lib/native.js` compares it with `package.json`.
#[napi(catch_unwind)]
pub fn native_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Panics, so that a test can see a panic arrive as an ordinary error.
#[napi(catch_unwind)]
#[allow(clippy::panic, reason = "the test of catch_unwind")]
pub fn panic_for_test() {
    panic!("asked to")
}
