//! The form of a message that custom stores keep as a text: JSON, the body as it came, a checksum
//! at the end. Knows no store.

use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::model::{Extras, Message, MessageId, checksum};
use crate::store::types::{LogId, Seq};
use crate::{Error, ErrorKind, Result};

const SUM: &str = ",\"sum\":\"";
/// `SUM`, sixteen digits, `"}`.
const TAIL: usize = SUM.len() + 18;

#[derive(Deserialize)]
struct Raw<'a> {
    id: u64,
    log: u64,
    seq: u64,
    event: Arc<str>,
    from: Arc<str>,
    produced: u64,
    expires: Option<u64>,
    #[serde(default)]
    guaranteed: bool,
    key: Option<Arc<str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    message: Option<&'a RawValue>,
    #[serde(default)]
    attachments: Vec<String>,
    #[serde(borrow, default, deserialize_with = "present")]
    enc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    to: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    content_type: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    headers: Option<&'a RawValue>,
}

/// A `null` that is there is not a member that is missing.
fn present<'de, D: Deserializer<'de>>(
    de: D,
) -> std::result::Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(de).map(Some)
}

/// Writing to a vector does not fail, and texts always serialise.
fn put(out: &mut Vec<u8>, name: &str, value: &impl serde::Serialize) {
    let _ = write!(out, ",\"{name}\":");
    let _ = serde_json::to_writer(out, value);
}

fn put_text(out: &mut Vec<u8>, name: &str, text: Option<&Bytes>) {
    if let Some(text) = text {
        let _ = write!(out, ",\"{name}\":");
        out.extend_from_slice(text);
    }
}

pub(super) fn write(message: &Message, (log, seq): (LogId, Seq)) -> String {
    let mut out = Vec::with_capacity(message.size() * 4 / 3 + 256);
    let _ = write!(
        out,
        "{{\"id\":{},\"log\":{},\"seq\":{seq},\"produced\":{}",
        message.id, log.0, message.produced.0
    );
    if let Some(expires) = message.expires {
        put(&mut out, "expires", &expires.0);
    }
    if message.guaranteed {
        put(&mut out, "guaranteed", &true);
    }
    if let Some(key) = &message.key {
        put(&mut out, "key", &&**key);
    }
    put(&mut out, "event", &&*message.event);
    put(&mut out, "from", &&*message.from);
    put_text(&mut out, "message", message.body.as_ref());
    if let Some(extras) = &message.extras {
        put_text(&mut out, "enc", extras.enc.as_ref());
        put_text(&mut out, "to", extras.to.as_ref());
        put_text(&mut out, "content_type", extras.content_type.as_ref());
        put_text(&mut out, "headers", extras.headers.as_ref());
        if !extras.attachments.is_empty() {
            let texts = extras.attachments.iter().map(|part| BASE64.encode(part));
            put(&mut out, "attachments", &texts.collect::<Vec<_>>());
        }
    }
    let sum = checksum(&out);
    let _ = write!(out, "{SUM}{sum:016x}\"}}");
    // All of it is UTF-8: texts are, and JSON texts were checked when they came in.
    String::from_utf8(out).unwrap_or_else(|error| error.to_string())
}

pub(super) fn read(text: &str) -> Result<(Message, (LogId, Seq))> {
    let corrupt = |what: &str| {
        let text = format!("a stored row {what}; it is set aside");
        Error::new(ErrorKind::StoreCorrupt, text)
    };
    let bytes = text.as_bytes();
    let content = bytes.len().checked_sub(TAIL).map(|at| bytes.split_at(at));
    let (content, tail) = content.ok_or_else(|| corrupt("is cut short"))?;
    if tail != format!("{SUM}{:016x}\"}}", checksum(content)).as_bytes() {
        return Err(corrupt("does not fit its checksum"));
    }
    let raw: Raw<'_> = serde_json::from_str(text).map_err(|_| corrupt("cannot be read"))?;
    let json = |value: Option<&RawValue>| {
        value.map(|value| Bytes::copy_from_slice(value.get().as_bytes()))
    };
    let attachments = raw.attachments.iter();
    let attachments: std::result::Result<Vec<Bytes>, _> = attachments
        .map(|part| BASE64.decode(part).map(Bytes::from))
        .collect();
    let extras = Extras {
        enc: json(raw.enc),
        to: json(raw.to),
        content_type: json(raw.content_type),
        headers: json(raw.headers),
        attachments: attachments.map_err(|_| corrupt("has damaged attachments"))?,
    };
    let message = Message {
        id: MessageId(raw.id),
        event: raw.event,
        from: raw.from,
        body: json(raw.message),
        extras: (!extras.is_empty()).then(|| Box::new(extras)),
        produced: Timestamp(raw.produced),
        expires: raw.expires.map(Timestamp),
        guaranteed: raw.guaranteed,
        key: raw.key,
    };
    Ok((message, (LogId(raw.log), raw.seq)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message {
            id: MessageId(7),
            event: "Ördér".into(),
            from: "a\"b".into(),
            body: Some(Bytes::from_static(
                br#"{"b":1.50,"a":"\ud800","n":{"_placeholder":true,"num":0}}"#,
            )),
            extras: Some(Box::new(Extras {
                headers: Some(Bytes::from_static(br#"{"x":"y"}"#)),
                attachments: vec![Bytes::from_static(&[0, 255, 7])],
                ..Extras::default()
            })),
            produced: Timestamp(5),
            expires: Some(Timestamp(9)),
            guaranteed: true,
            key: Some("k".into()),
        }
    }

    #[test]
    fn a_message_comes_back_as_it_was_written() {
        let bare = Message {
            body: None,
            extras: None,
            expires: None,
            key: None,
            guaranteed: false,
            ..message()
        };
        for message in [message(), bare] {
            let text = write(&message, (LogId(3), 4));
            assert_eq!(read(&text).unwrap(), (message, (LogId(3), 4)));
        }
    }

    #[test]
    fn a_null_body_is_not_a_missing_one() {
        let message = Message {
            body: Some(Bytes::from_static(b"null")),
            ..message()
        };
        let (back, _) = read(&write(&message, (LogId(1), 1))).unwrap();
        assert_eq!(back.body, message.body);
    }

    #[test]
    fn damage_is_seen_wherever_it_is() {
        let text = write(&message(), (LogId(3), 4));
        for at in 0..text.len() {
            if !text.is_char_boundary(at) || !text.is_char_boundary(at + 1) {
                continue;
            }
            let other = if &text[at..=at] == "1" { "2" } else { "1" };
            let damaged = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            let error = read(&damaged).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreCorrupt, "at {at}");
        }
        for cut in 0..text.len() {
            if text.is_char_boundary(cut) {
                assert!(read(&text[..cut]).is_err());
            }
        }
    }
}
