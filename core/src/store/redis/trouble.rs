//! What a refusal of Redis means: whether the call happened, whether it may be repeated.

use redis::{RedisError, ServerError, Value};

use crate::{Error, ErrorKind};

/// What became of one command.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It happened; the answer.
    Done(Value),
    /// It did not happen and will not.
    Refused(Error),
    /// It did not happen; the same again once the line is in order.
    Again(Error),
    /// The server does not know the script.
    Unloaded,
}

/// What Redis or the way to it said, for people.
pub(super) fn said(error: &RedisError) -> Error {
    unavailable(&error.to_string())
}

pub(super) fn unavailable(what: &str) -> Error {
    Error::new(ErrorKind::StoreUnavailable, format!("Redis: {what}"))
}

/// Judges the answer to one command.
pub(super) fn judge(value: Value) -> Verdict {
    match value {
        Value::ServerError(error) => refusal(&error),
        value => Verdict::Done(value),
    }
}

/// Refusals after which the same call may succeed, once the line is in order again.
const PASSING: &[&str] = &[
    "RESYNC",
    "READONLY",
    "LOADING",
    "BUSYLOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
    "BUSY",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
];

fn refusal(error: &ServerError) -> Verdict {
    let code = error.code().to_owned();
    let text = format!("{code} {}", error.details().unwrap_or_default());
    // Before version 7 a refusal inside of a script stands within its text.
    let is = |word: &str| code == word || text.contains(&format!("-{word} "));
    if is("NOSCRIPT") {
        Verdict::Unloaded
    } else if is("OOM") {
        let message = format!("Redis has no memory left: {text}");
        Verdict::Refused(Error::new(ErrorKind::StoreFull, message))
    } else if PASSING.iter().any(|word| is(word)) {
        Verdict::Again(unavailable(&text))
    } else {
        let message = format!("Redis could not run a script: {text}");
        Verdict::Refused(Error::new(ErrorKind::StoreCorrupt, message))
    }
}
