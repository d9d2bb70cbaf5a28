//! A message: what a producer said. It never changes.
//!
//! The body and the pass-through members are kept as the JSON text they came as and are never
//! re-serialised (P20). [`Message::encode`] is the form of stores: compact, versioned, with a
//! checksum (P7). Knows neither store nor wire.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::{Error, ErrorKind, Result};

use super::checksum::checksum;

/// The number of a message in its store; unique there, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MessageId(pub u64);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What few messages have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extras {
    /// `enc`: an encryption envelope, opaque. JSON text.
    pub enc: Option<Bytes>,
    /// `to`: passed through, does not restrict delivery. JSON text.
    pub to: Option<Bytes>,
    /// `content_type` of messages published over HTTP. JSON text.
    pub content_type: Option<Bytes>,
    /// `headers`: an object of strings. JSON text.
    pub headers: Option<Bytes>,
    /// Binary attachments in the order of their placeholders.
    pub attachments: Vec<Bytes>,
}

impl Extras {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.texts().iter().all(|text| text.is_none()) && self.attachments.is_empty()
    }

    fn texts(&self) -> [&Option<Bytes>; 4] {
        [&self.enc, &self.to, &self.content_type, &self.headers]
    }
}

/// What a producer said, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its number in the store; 0 before it has one.
    pub id: MessageId,
    /// The event in the producer's case.
    pub event: Arc<str>,
    /// The producer.
    pub from: Arc<str>,
    /// The JSON text of `message`, with placeholders where attachments go; `None` if there was no
    /// `message`.
    pub body: Option<Bytes>,
    /// What few messages have; `None` rather than empty.
    pub extras: Option<Box<Extras>>,
    /// When it was accepted.
    pub produced: Timestamp,
    /// From when on it is not delivered any more (P15); `None` only where nothing expires.
    pub expires: Option<Timestamp>,
    /// Durable for every remembered matching subscription.
    pub guaranteed: bool,
    /// The ordering key (P8).
    pub key: Option<Arc<str>>,
}

const VERSION: u8 = 1;
const CHECKSUM: usize = 8;
const NO_TEXT: u64 = 0;

const GUARANTEED: u8 = 1;
const EXPIRES: u8 = 1 << 1;
const KEY: u8 = 1 << 2;
const BODY: u8 = 1 << 3;
const EXTRAS: u8 = 1 << 4;
const FLAGS: u8 = GUARANTEED | EXPIRES | KEY | BODY | EXTRAS;

impl Message {
    /// Binary attachments in the order of their placeholders.
    pub fn attachments(&self) -> &[Bytes] {
        self.extras
            .as_ref()
            .map_or(&[], |extras| &extras.attachments)
    }

    /// Bytes of all it holds: names, body, pass-through members and attachments.
    pub fn size(&self) -> usize {
        let extras = self.extras.as_ref().map_or(0, |extras| {
            let texts = extras.texts().into_iter().flatten();
            texts.chain(&extras.attachments).map(Bytes::len).sum()
        });
        self.event.len()
            + self.from.len()
            + self.key.as_ref().map_or(0, |key| key.len())
            + self.body.as_ref().map_or(0, Bytes::len)
            + extras
    }

    /// Whether it must not be delivered any more at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Appends the stored form, see [`Message::decode`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(self.size() + 64);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(VERSION);
        out.push(
            flag(self.guaranteed, GUARANTEED)
                | flag(self.expires.is_some(), EXPIRES)
                | flag(self.key.is_some(), KEY)
                | flag(self.body.is_some(), BODY)
                | flag(self.extras.is_some(), EXTRAS),
        );
        put_number(out, self.id.0);
        put_number(out, self.produced.0);
        if let Some(expires) = self.expires {
            put_number(out, expires.0);
        }
        put_bytes(out, self.event.as_bytes());
        put_bytes(out, self.from.as_bytes());
        if let Some(key) = &self.key {
            put_bytes(out, key.as_bytes());
        }
        if let Some(body) = &self.body {
            put_bytes(out, body);
        }
        if let Some(extras) = &self.extras {
            for text in extras.texts() {
                // A JSON text is never empty, so the length 0 is free to mean "none".
                put_bytes(out, text.as_deref().unwrap_or_default());
            }
            put_number(out, extras.attachments.len() as u64);
            for attachment in &extras.attachments {
                put_bytes(out, attachment);
            }
        }
        let sum = checksum(&out[start..]);
        out.extend_from_slice(&sum.to_le_bytes());
    }

    /// Reads what [`Message::encode`] wrote; body and attachments share the memory of `stored`.
    ///
    /// # Errors
    /// [`ErrorKind::StoreCorrupt`] for damaged bytes and unknown versions (P7).
    pub fn decode(stored: Bytes) -> Result<Self> {
        let corrupt = |what: &str| {
            Error::new(
                ErrorKind::StoreCorrupt,
                format!("a stored message {what}; it is set aside"),
            )
        };
        let Some((content, sum)) = stored.split_last_chunk::<CHECKSUM>() else {
            return Err(corrupt("is cut short"));
        };
        if checksum(content) != u64::from_le_bytes(*sum) {
            return Err(corrupt("does not fit its checksum"));
        }
        if content.first() != Some(&VERSION) {
            return Err(corrupt("has an unknown version"));
        }
        let mut reader = Reader(stored.slice(1..content.len()));
        match reader.message() {
            Some(message) if reader.0.is_empty() => Ok(message),
            _ => Err(corrupt("cannot be read")),
        }
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

struct Reader(Bytes);

impl Reader {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.0.first()?;
        let _ = self.0.split_to(1);
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits.leading_zeros() < shift {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    fn text(&mut self) -> Option<Arc<str>> {
        self.bytes()
            .and_then(|bytes| std::str::from_utf8(&bytes).ok().map(Arc::from))
    }

    fn optional(&mut self) -> Option<Option<Bytes>> {
        self.bytes()
            .map(|bytes| (bytes.len() as u64 != NO_TEXT).then_some(bytes))
    }

    fn message(&mut self) -> Option<Message> {
        let flags = self.byte()?;
        if flags & !FLAGS != 0 {
            return None;
        }
        let has = |flag: u8| flags & flag != 0;
        Some(Message {
            guaranteed: has(GUARANTEED),
            id: MessageId(self.number()?),
            produced: Timestamp(self.number()?),
            expires: match has(EXPIRES) {
                true => Some(Timestamp(self.number()?)),
                false => None,
            },
            event: self.text()?,
            from: self.text()?,
            key: match has(KEY) {
                true => Some(self.text()?),
                false => None,
            },
            body: match has(BODY) {
                true => Some(self.bytes()?),
                false => None,
            },
            extras: match has(EXTRAS) {
                true => Some(Box::new(self.extras()?)),
                false => None,
            },
        })
    }

    fn extras(&mut self) -> Option<Extras> {
        let mut extras = Extras {
            enc: self.optional()?,
            to: self.optional()?,
            content_type: self.optional()?,
            headers: self.optional()?,
            attachments: Vec::new(),
        };
        for _ in 0..self.number()? {
            extras.attachments.push(self.bytes()?);
        }
        Some(extras)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_message() -> impl Strategy<Value = Message> {
        let bytes = || prop::collection::vec(any::<u8>(), 1..40).prop_map(Bytes::from);
        let text = || prop::option::of(bytes());
        let attachments = prop::collection::vec(bytes(), 0..4);
        let extras = (text(), text(), text(), text(), attachments).prop_map(
            |(enc, to, content_type, headers, attachments)| {
                Box::new(Extras {
                    enc,
                    to,
                    content_type,
                    headers,
                    attachments,
                })
            },
        );
        let head = (
            any::<u64>(),
            ".{1,20}",
            ".{1,20}",
            any::<u64>(),
            any::<bool>(),
        );
        let tail = (
            prop::option::of(any::<u64>()),
            prop::option::of(".{0,9}"),
            text(),
            prop::option::of(extras),
        );
        (head, tail).prop_map(
            |((id, event, from, produced, guaranteed), (expires, key, body, extras))| Message {
                id: MessageId(id),
                event: event.into(),
                from: from.into(),
                body,
                extras,
                produced: Timestamp(produced),
                expires: expires.map(Timestamp),
                guaranteed,
                key: key.map(Arc::from),
            },
        )
    }

    fn encoded(message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn a_message_survives_the_store(message in any_message()) {
            prop_assert_eq!(Message::decode(encoded(&message).into()).unwrap(), message);
        }

        #[test]
        fn one_damaged_byte_is_always_seen(
            message in any_message(), at in any::<prop::sample::Index>(), bits in 1u8..,
        ) {
            let mut stored = encoded(&message);
            let at = at.index(stored.len());
            stored[at] ^= bits;
            let error = Message::decode(stored.into()).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::StoreCorrupt);
        }

        #[test]
        fn a_cut_message_is_refused(message in any_message(), at in any::<prop::sample::Index>()) {
            let mut stored = encoded(&message);
            stored.truncate(at.index(stored.len()));
            prop_assert!(Message::decode(stored.into()).is_err());
        }

        #[test]
        fn no_bytes_with_a_good_checksum_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            bytes.insert(0, VERSION);
            let sum = checksum(&bytes);
            bytes.extend_from_slice(&sum.to_le_bytes());
            let _ = Message::decode(bytes.into());
        }
    }

    #[test]
    fn lone_surrogates_and_numbers_stay_as_they_were_written() {
        let body = r#"{"s":"\ud83d","n":129.0,"big":12345678901234567890123}"#;
        let message = Message {
            id: MessageId(7),
            event: "Paid".into(),
            from: "orders".into(),
            body: Some(Bytes::from_static(body.as_bytes())),
            extras: None,
            produced: Timestamp(1),
            expires: None,
            guaranteed: false,
            key: None,
        };
        let back = Message::decode(encoded(&message).into()).unwrap();
        assert_eq!(back.body.unwrap(), body);
        assert_eq!(message.size(), 4 + 6 + body.len());
    }
}
