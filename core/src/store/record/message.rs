//! A message within a record as JSON: texts as texts, attachments in base64, and the checksum of its
//! stored form, so that what was altered on the way is seen (P7, P20).
//!
//! A message that holds anything but UTF-8 is its stored form in base64.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::clock::Timestamp;
use crate::model::{Extras, Message, MessageId};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enc: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    produced: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    guaranteed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// The checksum that ends a stored form, in hexadecimal.
fn checksum(encoded: &[u8]) -> String {
    let last = encoded.last_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_le_bytes(last))
}

/// `None` if it holds what is no text.
fn told(message: &Message) -> Option<Told<'_>> {
    let text = |bytes: Option<&'_ Bytes>| match bytes {
        None => Some(None),
        Some(bytes) => simdutf8::basic::from_utf8(bytes)
            .ok()
            .map(|text| Some(text.to_owned())),
    };
    let text = |bytes| text(bytes).map(|text| text.map(Cow::Owned));
    let extras = message.extras.as_deref();
    let extra =
        |of: fn(&Extras) -> &Option<Bytes>| text(extras.and_then(|extras| of(extras).as_ref()));
    Some(Told {
        stored: None,
        id: Some(message.id.0),
        event: Some((&*message.event).into()),
        from: Some((&*message.from).into()),
        body: text(message.body.as_ref())?,
        enc: extra(|extras| &extras.enc)?,
        to: extra(|extras| &extras.to)?,
        content_type: extra(|extras| &extras.content_type)?,
        headers: extra(|extras| &extras.headers)?,
        attachments: message
            .attachments()
            .iter()
            .map(|part| BASE64.encode(part))
            .collect(),
        produced: Some(message.produced.0),
        expires: message.expires.map(|at| at.0),
        guaranteed: message.guaranteed,
        key: message.key.as_deref().map(Cow::Borrowed),
        checksum: Some(checksum(&encoded(message))),
    })
}

pub(super) fn serialize<S: Serializer>(message: &Arc<Message>, to: S) -> Result<S::Ok, S::Error> {
    let told = told(message).unwrap_or_else(|| Told {
        stored: Some(BASE64.encode(encoded(message))),
        ..Told::default()
    });
    told.serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Message>, D::Error> {
    let told = Told::deserialize(from)?;
    let binary = |text: &str| {
        BASE64
            .decode(text)
            .map(Bytes::from)
            .map_err(D::Error::custom)
    };
    if let Some(stored) = &told.stored {
        let message = Message::decode(binary(stored)?).map_err(D::Error::custom)?;
        return Ok(Arc::new(message));
    }
    let missing = |name: &'static str| D::Error::missing_field(name);
    let bytes = |text: Option<Cow<'_, str>>| text.map(|text| Bytes::from(text.into_owned()));
    let attachments = told.attachments.iter().map(|part| binary(part));
    let extras = Extras {
        enc: bytes(told.enc),
        to: bytes(told.to),
        content_type: bytes(told.content_type),
        headers: bytes(told.headers),
        attachments: attachments.collect::<Result<_, _>>()?,
    };
    let message = Message {
        id: MessageId(told.id.ok_or_else(|| missing("id"))?),
        event: told.event.ok_or_else(|| missing("event"))?.into(),
        from: told.from.ok_or_else(|| missing("from"))?.into(),
        body: bytes(told.body),
        extras: (!extras.is_empty()).then(|| Box::new(extras)),
        produced: Timestamp(told.produced.ok_or_else(|| missing("produced"))?),
        expires: told.expires.map(Timestamp),
        guaranteed: told.guaranteed,
        key: told.key.map(Arc::from),
    };
    let is_altered = told
        .checksum
        .is_some_and(|told| told != checksum(&encoded(&message)));
    if is_altered {
        return Err(D::Error::custom("a message does not fit its checksum"));
    }
    Ok(Arc::new(message))
}

#[cfg(test)]
mod tests {
    use super::super::{DelayedRecord, Record};
    use super::*;

    fn record(body: &'static [u8]) -> Record {
        let message = Message {
            id: MessageId(u64::MAX),
            event: "Paid".into(),
            from: "orders".into(),
            body: Some(Bytes::from_static(body)),
            extras: Some(Box::new(Extras {
                headers: Some(Bytes::from_static(b"{\"a\": \"b\"}")),
                attachments: vec![Bytes::from_static(&[0, 1, 255]), Bytes::new()],
                ..Extras::default()
            })),
            produced: Timestamp(1),
            expires: Some(Timestamp(2)),
            guaranteed: true,
            key: Some("k".into()),
        };
        Record::Delayed(DelayedRecord {
            realm: 1,
            due: 3,
            owner: None,
            message: Arc::new(message),
        })
    }

    #[test]
    fn a_message_is_readable_and_comes_back_byte_for_byte() {
        let record = record(br#"{"s":"\ud83d","n":129.0, "big":12345678901234567890123}"#);
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains(r#"\"n\":129.0, "#), "{text}");
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }

    #[test]
    fn what_is_no_text_comes_back_too() {
        let record = record(b"\"\xff\"");
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }

    #[test]
    fn an_altered_message_is_refused() {
        let text = serde_json::to_string(&record(b"129")).unwrap();
        let altered = text.replace("129", "128");
        let error = serde_json::from_str::<Record>(&altered).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{error}");
    }
}
