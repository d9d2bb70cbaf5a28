//! What a server says, read without building a tree.
//!
//! Borrowed texts in, borrowed texts out; every payload is checked to be JSON, so that what is
//! handed on can be joined with others. Knows no state. Called by the link.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::request::{Confirmed, Subscribed, Unsubscribed};
use crate::{Error, ErrorKind, Result};

/// A text or number, as text; of anything else nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        Ok(Self(match raw.as_bytes().first() {
            Some(b'"') => text(raw),
            Some(b'-' | b'0'..=b'9') => Some(Cow::Borrowed(raw)),
            _ => None,
        }))
    }
}

/// A JSON string; none if it holds lone surrogates or is no string.
pub(super) fn text(raw: &str) -> Option<Cow<'_, str>> {
    match raw.strip_prefix('"')?.strip_suffix('"') {
        Some(plain) if !plain.contains('\\') => Some(Cow::Borrowed(plain)),
        _ => serde_json::from_str(raw).ok().map(Cow::Owned),
    }
}

/// The members of a delivery that the client itself needs; of duplicates the last wins (P20).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Envelope<'a> {
    pub(super) msg_id: Option<Cow<'a, str>>,
    pub(super) attempt: Option<u32>,
    pub(super) from: Option<Cow<'a, str>>,
    pub(super) event: Option<Cow<'a, str>>,
}

impl<'a> Envelope<'a> {
    /// Reads a whole delivery object and checks all of it; none if it is anything else.
    pub(super) fn parse(payload: &'a str) -> Option<Self> {
        serde_json::from_str(payload).ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a delivery object")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut envelope = Envelope::default();
        let mut attempt = Text(None);
        while let Some(Name(name)) = map.next_key()? {
            match &*name {
                "msgId" | "msg_id" => envelope.msg_id = map.next_value::<Text<'_>>()?.0,
                "delivery_attempt" => attempt = map.next_value()?,
                "from" => envelope.from = map.next_value::<Text<'_>>()?.0,
                "event" => envelope.event = map.next_value::<Text<'_>>()?.0,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        envelope.attempt = attempt.0.and_then(|attempt| attempt.parse().ok());
        Ok(envelope)
    }
}

/// A member's name, borrowed if it can be.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> std::result::Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> std::result::Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

/// Splits an event's `["name",args…]` into the name and the text of the arguments, unchecked.
pub(super) fn split(json: &str) -> Option<(Cow<'_, str>, &str)> {
    let inside = json.strip_prefix('[')?.strip_suffix(']')?;
    let rest = inside.strip_prefix('"')?;
    let end = memchr::memchr2(b'"', b'\\', rest.as_bytes())?;
    let (name, args) = if rest.as_bytes()[end] == b'"' {
        (Cow::Borrowed(&rest[..end]), &rest[end + 1..])
    } else {
        let (raw, args) = first(inside)?;
        (text(raw)?, args)
    };
    match args.strip_prefix(',') {
        Some(args) => Some((name, args)),
        None => args.is_empty().then_some((name, "")),
    }
}

/// The first JSON value of a text, checked, and what follows it.
pub(super) fn first(args: &str) -> Option<(&str, &str)> {
    let mut values = serde_json::Deserializer::from_str(args).into_iter::<&RawValue>();
    let value = values.next()?.ok()?;
    Some((value.get(), &args[values.byte_offset()..]))
}

/// Numbers of the open packet.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Open {
    /// Milliseconds.
    pub(super) ping_interval: u64,
    /// Milliseconds.
    pub(super) ping_timeout: u64,
}

/// CONNECT's answer.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Joined {
    /// The Socket.IO id.
    pub(super) sid: String,
}

/// GAP.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Gap {
    #[serde(default)]
    pub(super) keys: Vec<String>,
    #[serde(default)]
    pub(super) dropped: Option<u64>,
}

/// What AUTH_FAIL, ERROR and refusing replies have in common.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    #[serde(deserialize_with = "owned")]
    message: Option<String>,
    #[serde(deserialize_with = "owned")]
    error: Option<String>,
    #[serde(deserialize_with = "owned")]
    code: Option<String>,
    #[serde(deserialize_with = "owned")]
    cause: Option<String>,
    #[serde(deserialize_with = "owned")]
    reason: Option<String>,
    #[serde(deserialize_with = "owned")]
    retry_after: Option<String>,
}

fn owned<'de, D: Deserializer<'de>>(de: D) -> std::result::Result<Option<String>, D::Error> {
    Ok(Text::deserialize(de)?.0.map(Cow::into_owned))
}

/// The error that a payload of AUTH_FAIL, ERROR or a refusing reply tells; `otherwise` if it names
/// none that we know.
pub(super) fn refusal(payload: &str, otherwise: ErrorKind) -> Error {
    if let Some(bare) = text(payload) {
        return Error::new(otherwise, &*bare);
    }
    let refusal: Refusal = serde_json::from_str(payload).unwrap_or_default();
    let by_code = |kind: &&ErrorKind| refusal.error.as_deref() == Some(kind.code());
    let by_number = |kind: &&ErrorKind| {
        refusal.code.as_deref().and_then(|code| code.parse().ok()) == Some(kind.number())
    };
    let kinds = ErrorKind::ALL.iter();
    let kind = kinds
        .clone()
        .find(by_code)
        .or(kinds.clone().find(by_number));
    let message = refusal.message.or(refusal.error);
    let error = Error::new(
        kind.copied().unwrap_or(otherwise),
        message.unwrap_or_else(|| payload.to_owned()),
    );
    let error = match refusal.cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    };
    match refusal.retry_after.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => error.retried_after(seconds),
        None => error,
    }
}

/// Limits whose RATE_LIMITED ends the session that hears it.
const AT_THE_DOOR: [&str; 2] = ["max_connections_per_ip", "connections_per_minute_per_ip"];

/// The error of a RATE_LIMITED that turns the whole session away; none of one that goes on.
pub(super) fn turned_away(payload: &str) -> Option<Error> {
    let refusal: Refusal = serde_json::from_str(payload).ok()?;
    let reason = refusal.reason?;
    AT_THE_DOOR.contains(&&*reason).then(|| {
        let text = format!("the server takes no more connections of this address now: {reason}");
        let error = Error::new(ErrorKind::RateLimited, text);
        match refusal.retry_after.and_then(|seconds| seconds.parse().ok()) {
            Some(seconds) => error.retried_after(seconds),
            None => error,
        }
    })
}

/// What the replies of ours hold, all verbs together.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Reply {
    ok: bool,
    #[serde(deserialize_with = "owned")]
    id: Option<String>,
    queued: u64,
    delivered: u64,
    refused: u64,
    duplicate: bool,
    delayed: bool,
    key: String,
    consume_event: String,
    removed: u64,
    left: u64,
}

/// The first value of a reply's `[…]`, or the refusal in it.
fn reply(json: &str) -> Result<Reply> {
    let payload = json
        .strip_prefix('[')
        .and_then(first)
        .map(|(first, _)| first);
    let payload = payload.unwrap_or("null");
    match serde_json::from_str(payload) {
        Ok(Reply { ok: false, .. }) => Err(refusal(payload, ErrorKind::Internal)),
        Ok(reply) => Ok(reply),
        Err(error) => Err(Error::new(
            ErrorKind::BadFrame,
            format!("the server's answer makes no sense: {error}"),
        )),
    }
}

/// The answer to a CONSUMER or PRODUCER.
pub(super) fn registered(json: &str) -> Result<()> {
    reply(json).map(drop)
}

/// The answer to a PRODUCE.
pub(super) fn confirmed(json: &str) -> Result<Confirmed> {
    reply(json).map(|reply| Confirmed {
        id: reply.id,
        queued: reply.queued,
        delivered: reply.delivered,
        refused: reply.refused,
        duplicate: reply.duplicate,
        delayed: reply.delayed,
    })
}

/// The answer to a SUBSCRIBE.
pub(super) fn subscribed(json: &str) -> Result<Subscribed> {
    reply(json).map(|reply| Subscribed {
        key: reply.key,
        consume_event: reply.consume_event,
        queued: reply.queued,
    })
}

/// The answer to an UNSUBSCRIBE.
pub(super) fn unsubscribed(json: &str) -> Result<Unsubscribed> {
    reply(json).map(|reply| Unsubscribed {
        removed: reply.removed,
        left: reply.left,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_read_in_one_pass_and_the_last_duplicate_wins() {
        let payload = r#"{"event":"a","message":{"msgId":"no"},"from":"p\u0041","msgId":"x","msgId":"y","delivery_attempt":2}"#;
        let envelope = Envelope::parse(payload).unwrap();
        assert_eq!(envelope.msg_id.as_deref(), Some("y"));
        assert_eq!(envelope.attempt, Some(2));
        assert_eq!(envelope.from.as_deref(), Some("pA"));
        assert!(matches!(envelope.msg_id, Some(Cow::Borrowed(_))));
    }

    #[test]
    fn a_delivery_that_is_no_json_object_is_not_handed_on() {
        for bad in [
            "",
            "1",
            "[]",
            "{",
            r#"{"a":}"#,
            r#"{"a":1}x"#,
            "{\"a\":\"\n\"}",
        ] {
            assert_eq!(Envelope::parse(bad), None, "{bad}");
        }
        // Lone surrogates travel as they are.
        assert!(Envelope::parse(r#"{"message":"\ud83d"}"#).is_some());
    }

    #[test]
    fn events_split_into_name_and_arguments() {
        assert_eq!(
            split(r#"["A",{"a":[1]}]"#),
            Some(("A".into(), r#"{"a":[1]}"#))
        );
        assert_eq!(split(r#"["A"]"#), Some(("A".into(), "")));
        assert_eq!(split(r#"["a\"b",1,2]"#), Some(("a\"b".into(), "1,2")));
        for bad in ["", "[]", "{}", "[1]", r#"["A"1]"#, r#"["A]"#] {
            assert_eq!(split(bad), None, "{bad}");
        }
        assert_eq!(first(r#"{"a":1},2"#), Some((r#"{"a":1}"#, ",2")));
    }

    #[test]
    fn replies_are_results() {
        let taken = r#"[{"ok":true,"id":7,"queued":2,"delivered":1,"duplicate":true}]"#;
        let confirmed = confirmed(taken).unwrap();
        assert_eq!(confirmed.id.as_deref(), Some("7"));
        assert_eq!((confirmed.queued, confirmed.duplicate), (2, true));
        let limited = r#"[{"ok":false,"code":429,"error":"rate_limited","retry_after":3}]"#;
        let error = super::confirmed(limited).unwrap_err();
        assert_eq!(
            (error.kind(), error.retry_after()),
            (ErrorKind::RateLimited, Some(3))
        );
        let refused = r#"[{"ok":false,"code":-8,"error":"store_full","message":"no room"}]"#;
        let error = subscribed(refused).unwrap_err();
        assert_eq!((error.code(), error.message()), ("store_full", "no room"));
        assert!(unsubscribed("[]").is_err());
        assert!(unsubscribed(r#"["text"]"#).is_err());
    }

    #[test]
    fn refusals_are_objects_or_bare_strings() {
        let of = |payload| refusal(payload, ErrorKind::Internal);
        assert_eq!(
            of(r#"{"code":-3,"message":"duplicate"}"#).kind(),
            ErrorKind::DuplicateConsumer
        );
        assert_eq!(of(r#"{"code":"-3"}"#).kind(), ErrorKind::DuplicateConsumer);
        assert_eq!(of(r#""free text""#).message(), "free text");
        assert_eq!(of("17").kind(), ErrorKind::Internal);
        assert_eq!(of("null").message(), "null");
    }
}
