//! Answers: errors, settlements, logins, and replies to packets that asked for one.
//!
//! The one place where an [`Error`] becomes a frame: `error` is its stable name, `code` its number
//! (P34).

use crate::clock::Timestamp;
use crate::model::instant;
use crate::protocol::inbound::{Answer, Refused};
use crate::protocol::names;
use crate::{Error, ErrorKind};

use super::object::{Object, event, event_text, reply, reply_text};

/// The three verbs that settle or prolong a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// ACK.
    Ack,
    /// NACK.
    Nack,
    /// WORKING.
    Working,
}

impl Settle {
    fn ok(self) -> &'static str {
        match self {
            Self::Ack => names::ACK_OK,
            Self::Nack => names::NACK_OK,
            Self::Working => names::WORKING_OK,
        }
    }

    fn fail(self) -> &'static str {
        match self {
            Self::Ack => names::ACK_FAIL,
            Self::Nack => names::NACK_FAIL,
            Self::Working => names::WORKING_FAIL,
        }
    }
}

fn put_error(object: &mut Object<'_>, error: &Error, code: i32) {
    object
        .signed("code", code)
        .text("error", error.code())
        .text("message", error.message());
    if let Some(cause) = error.cause() {
        object.text("cause", cause);
    }
}

/// An event, and the same object as a reply if one was asked for.
fn both(out: &mut Vec<u8>, id: Option<u64>, name: &str, members: &dyn Fn(&mut Object<'_>)) {
    event(out, name, members);
    if let Some(id) = id {
        reply(out, id, members);
    }
}

/// `ERROR {message, code, error}`.
pub fn error(out: &mut Vec<u8>, error: &Error) {
    event(out, names::ERROR, &|object| {
        object
            .text("message", error.message())
            .signed("code", error.kind().number())
            .text("error", error.code());
        if let Some(cause) = error.cause() {
            object.text("cause", cause);
        }
    });
}

/// The reply `{ok:false, code, error, message}`.
pub fn reply_error(out: &mut Vec<u8>, id: u64, error: &Error) {
    reply(out, id, &|object| {
        object.flag("ok", false);
        put_error(object, error, error.kind().number());
    });
}

/// The answer to a verb that was refused at the door. Nothing for [`Answer::Close`] (the session
/// ends) nor for [`Answer::Ignore`] unless a reply is awaited.
pub fn refused(out: &mut Vec<u8>, id: Option<u64>, refused: &Refused) {
    match (refused.answer, id) {
        (Answer::Close, _) | (Answer::Ignore, None) => {}
        (Answer::Error, None) => error(out, &refused.error),
        (Answer::BareError, None) => event_text(out, names::ERROR, refused.error.message()),
        (Answer::Ignore | Answer::Error | Answer::BareError, Some(id)) => {
            reply_error(out, id, &refused.error);
        }
        (Answer::AckFail, id) => settle_fail(out, id, Settle::Ack, None, &refused.error),
        (Answer::NackFail, id) => settle_fail(out, id, Settle::Nack, None, &refused.error),
        (Answer::WorkingFail, id) => settle_fail(out, id, Settle::Working, None, &refused.error),
        (Answer::AuthFail, id) => auth_fail(out, id, &refused.error),
    }
}

/// `ACK_OK`, `NACK_OK` or `WORKING_OK {ok, msgId}`; `duplicate`: it was settled before (P9).
pub fn settle_ok(out: &mut Vec<u8>, id: Option<u64>, verb: Settle, msg_id: &str, duplicate: bool) {
    both(out, id, verb.ok(), &|object| {
        object.flag("ok", true).text("msgId", msg_id);
        if duplicate {
            object.flag("duplicate", true);
        }
    });
}

/// `ACK_FAIL`, `NACK_FAIL` or `WORKING_FAIL {ok:false, code, error, message}`, with the `msgId` if
/// there was one.
pub fn settle_fail(
    out: &mut Vec<u8>,
    id: Option<u64>,
    verb: Settle,
    msg_id: Option<&str>,
    error: &Error,
) {
    both(out, id, verb.fail(), &|object| {
        object.flag("ok", false);
        put_error(object, error, status(error.kind()));
        if let Some(msg_id) = msg_id {
            object.text("msgId", msg_id);
        }
    });
}

/// In a `…_FAIL` the code is always an HTTP status.
fn status(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::StoreUnavailable | ErrorKind::StoreTimeout => 503,
        kind if kind.number() < 0 => 400,
        kind => kind.number(),
    }
}

/// `ACK_OK {ok, msgIds, duplicate?, failed?}` for a batch: `settled` are those settled now or
/// before, `duplicates` those of them settled before, `failed` the others with their reasons.
pub fn ack_many<T: AsRef<str>>(
    out: &mut Vec<u8>,
    id: Option<u64>,
    settled: &[T],
    duplicates: &[T],
    failed: &[(T, Error)],
) {
    both(out, id, names::ACK_OK, &|object| {
        object.flag("ok", true).texts("msgIds", settled);
        if !duplicates.is_empty() {
            object.texts("duplicate", duplicates);
        }
        if !failed.is_empty() {
            object.objects("failed", failed, |object, (msg_id, error)| {
                object.text("msgId", msg_id.as_ref());
                put_error(object, error, status(error.kind()));
            });
        }
    });
}

/// `AUTH_OK {realm, role}`; a reply says `ok: true` too.
pub fn auth_ok(out: &mut Vec<u8>, id: Option<u64>, realm: &str, role: &str) {
    login(out, id, names::AUTH_OK, true, &|object| {
        object.text("realm", realm).text("role", role);
    });
}

/// `AUTH_FAIL {code, error, message}`; a reply says `ok: false` too.
pub fn auth_fail(out: &mut Vec<u8>, id: Option<u64>, error: &Error) {
    auth_fail_until(out, id, error, None);
}

/// The same with `retry_after` in seconds: when to try again.
pub fn auth_fail_until(
    out: &mut Vec<u8>,
    id: Option<u64>,
    error: &Error,
    retry_after: Option<u64>,
) {
    login(out, id, names::AUTH_FAIL, false, &|object| {
        put_error(object, error, status(error.kind()));
        if let Some(seconds) = retry_after {
            object.number("retry_after", seconds);
        }
    });
}

/// Existing clients know these events without `ok`.
fn login(
    out: &mut Vec<u8>,
    id: Option<u64>,
    name: &str,
    ok: bool,
    members: &dyn Fn(&mut Object<'_>),
) {
    event(out, name, members);
    if let Some(id) = id {
        reply(out, id, &|object| {
            object.flag("ok", ok);
            members(object);
        });
    }
}

fn put_limit(object: &mut Object<'_>, reason: &str, retry_after: Option<u64>) {
    let kind = ErrorKind::RateLimited;
    let message = match retry_after {
        Some(_) => "too much in too short a time",
        None => "this is more than is ever let through at once",
    };
    object
        .signed("code", kind.number())
        .text("error", kind.code())
        .text("message", message)
        .text("reason", reason);
    if let Some(seconds) = retry_after {
        object.number("retry_after", seconds);
    }
}

/// `RATE_LIMITED {code:429, error, message, reason, retry_after}`, the last in seconds; without it
/// there is no use in trying again.
pub fn rate_limited(out: &mut Vec<u8>, reason: &str, retry_after: Option<u64>) {
    event(out, names::RATE_LIMITED, &|object| {
        put_limit(object, reason, retry_after);
    });
}

/// The same as the reply `{ok:false, …}`.
pub fn reply_rate_limited(out: &mut Vec<u8>, id: u64, reason: &str, retry_after: Option<u64>) {
    reply(out, id, &|object| {
        object.flag("ok", false);
        put_limit(object, reason, retry_after);
    });
}

/// The same as an `ERROR`, for a refused message that nobody waits for an answer to.
pub fn error_rate_limited(out: &mut Vec<u8>, reason: &str, retry_after: Option<u64>) {
    event(out, names::ERROR, &|object| {
        put_limit(object, reason, retry_after);
    });
}

/// The reply `{ok:false, …}` or the `ERROR` for what is over the limit, with `limit` and `size` in
/// bytes (P21).
pub fn too_large(out: &mut Vec<u8>, id: Option<u64>, error: &Error, size: u64, limit: u64) {
    let members = |object: &mut Object<'_>| {
        put_error(object, error, error.kind().number());
        object.number("limit", limit).number("size", size);
    };
    match id {
        Some(id) => reply(out, id, &|object| {
            object.flag("ok", false);
            members(object);
        }),
        None => event(out, names::ERROR, &members),
    }
}

/// `GAP {keys, dropped}`: plain messages of these keys were dropped for a slow reader (P23).
pub fn gap<T: AsRef<str>>(out: &mut Vec<u8>, keys: &[T], dropped: u64) {
    event(out, names::GAP, &|object| {
        object.texts("keys", keys).number("dropped", dropped);
    });
}

/// What became of a message (P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Produced<'a> {
    /// The message's id.
    pub id: &'a str,
    /// Stored copies.
    pub queued: u64,
    /// Live copies.
    pub delivered: u64,
    /// Queues that were full.
    pub refused: u64,
    /// It was here before (P16).
    pub duplicate: bool,
    /// It is held until due (P17).
    pub delayed: bool,
}

/// The reply to a PRODUCE.
pub fn produced(out: &mut Vec<u8>, id: u64, produced: &Produced<'_>) {
    reply(out, id, &|object| {
        object
            .flag("ok", true)
            .text("id", produced.id)
            .number("queued", produced.queued)
            .number("delivered", produced.delivered)
            .number("refused", produced.refused)
            .flag("duplicate", produced.duplicate)
            .flag("delayed", produced.delayed);
    });
}

/// The reply to a SUBSCRIBE: `key` is its wire name.
pub fn subscribed(out: &mut Vec<u8>, id: u64, key: &str, queued: u64) {
    reply(out, id, &|object| {
        object
            .flag("ok", true)
            .text("key", key)
            .text("consume_event", &names::consume(key))
            .number("queued", queued);
    });
}

/// The reply to an UNSUBSCRIBE: subscriptions removed, messages left in their queues (P5).
pub fn unsubscribed(out: &mut Vec<u8>, id: u64, removed: u64, left: u64) {
    reply(out, id, &|object| {
        object
            .flag("ok", true)
            .number("removed", removed)
            .number("left", left);
    });
}

/// The reply to a PING: a JSON *string* that holds the members sent, `pong` and `timestamp`.
/// `object` is the JSON text of the object that was sent, if it was one.
pub fn pong(out: &mut Vec<u8>, id: u64, object: Option<&str>, now: Timestamp) {
    let sent = object
        .and_then(|object| object.trim().strip_prefix('{')?.strip_suffix('}'))
        .map_or("", str::trim);
    let comma = if sent.is_empty() { "" } else { "," };
    let time = instant::format(now);
    let text = format!("{{{sent}{comma}\"pong\":\"PONG\",\"timestamp\":\"{time}\"}}");
    reply_text(out, id, &text);
}
