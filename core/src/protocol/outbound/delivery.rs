//! Deliveries: a message under the event of one subscription key.
//!
//! Everything that is the same for all messages of a key is made once ([`DeliveryHead`]); per
//! message its parts are copied behind it, and the body is never looked into (P20). A frame without
//! a message id is the same for every receiver of the key and may be shared.

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::model::{Key, Message};
use crate::protocol::inbound::Produce;
use crate::protocol::{chunk, json, names};
use crate::wire::frame;

/// What is delivered, borrowed from a kept [`Message`] or from the PRODUCE as it came.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The event in the producer's case.
    pub event: &'a str,
    /// The producer.
    pub from: &'a str,
    /// JSON text of the body, if there is one.
    pub body: Option<&'a [u8]>,
    /// JSON text, passed through.
    pub enc: Option<&'a [u8]>,
    /// JSON text, passed through.
    pub to: Option<&'a [u8]>,
    /// JSON text, passed through.
    pub content_type: Option<&'a [u8]>,
    /// JSON text of an object of strings.
    pub headers: Option<&'a [u8]>,
    /// Binary attachments in the order of their placeholders.
    pub attachments: &'a [Bytes],
}

impl<'a> From<&'a Message> for Content<'a> {
    fn from(message: &'a Message) -> Self {
        let extras = message.extras.as_deref();
        Self {
            event: &message.event,
            from: &message.from,
            body: message.body.as_deref(),
            enc: extras.and_then(|extras| extras.enc.as_deref()),
            to: extras.and_then(|extras| extras.to.as_deref()),
            content_type: extras.and_then(|extras| extras.content_type.as_deref()),
            headers: extras.and_then(|extras| extras.headers.as_deref()),
            attachments: message.attachments(),
        }
    }
}

impl<'a> Content<'a> {
    /// A message that is delivered at once and not kept. `from` is the producer after all rules of
    /// the session.
    pub fn of_produce(produce: &'a Produce<'_>, from: &'a str) -> Self {
        Self {
            event: &produce.event,
            from,
            body: produce.message.map(str::as_bytes),
            enc: produce.enc.map(str::as_bytes),
            to: produce.to.map(str::as_bytes),
            content_type: produce.content_type.map(str::as_bytes),
            headers: produce.headers.map(str::as_bytes),
            attachments: produce.attachments,
        }
    }

    fn raws(&self) -> [(&'static [u8], Option<&'a [u8]>); 3] {
        [
            (b",\"enc\":", self.enc),
            (b",\"to\":", self.to),
            (b",\"content_type\":", self.content_type),
        ]
    }

    /// The size of its JSON text if no name needs an escape.
    fn text_size(&self) -> usize {
        const FIXED: usize = br#"{"event":"","from":""}"#.len();
        let raws = self
            .raws()
            .into_iter()
            .chain([(BODY, self.body), (HEADERS, self.headers)]);
        let raws = raws.filter_map(|(name, raw)| raw.map(|raw| name.len() + raw.len()));
        FIXED + self.event.len() + self.from.len() + raws.sum::<usize>()
    }
}

const BODY: &[u8] = b",\"message\":";
const HEADERS: &[u8] = b",\"headers\":";
/// What escapes may add to the two names at most: six bytes for one.
const ESCAPES: usize = 5;

/// What is said about this delivery of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp<'a> {
    /// Nothing: no ack is awaited, and it is the first.
    Plain,
    /// No ack is awaited, and it may have arrived before (P3).
    Redelivered,
    /// An ack is awaited.
    Tracked {
        /// The id to settle, opaque.
        msg_id: &'a str,
        /// Times sent, from 1.
        attempt: u32,
    },
}

impl Stamp<'_> {
    fn size(&self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Redelivered => br#","redelivered":true"#.len(),
            Self::Tracked { msg_id, attempt } => {
                let digits = attempt.checked_ilog10().unwrap_or(0) as usize + 1;
                br#","msgId":"","msg_id":"","delivery_attempt":"#.len() + 2 * msg_id.len() + digits
            }
        }
    }
}

/// What all deliveries of one key begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryHead {
    event: Box<str>,
    /// `42["CONSUME-…",`
    prefix: Box<[u8]>,
}

impl DeliveryHead {
    /// For any event, such as that of a broadcast ([`names::broadcast`]).
    pub fn new(event: &str) -> Self {
        let mut prefix = b"42[".to_vec();
        json::put_string(&mut prefix, event);
        prefix.push(b',');
        Self {
            event: event.into(),
            prefix: prefix.into(),
        }
    }

    /// For the subscriptions of a key.
    pub fn of_key(key: &Key) -> Self {
        Self::new(&names::consume(&key.wire_name()))
    }

    /// The event it is delivered under.
    pub fn event(&self) -> &str {
        &self.event
    }

    /// Appends the frame or frames of one delivery and returns how many chunks they are: 0 if it
    /// went whole. Text of more than `threshold` UTF-16 units goes in chunks; a message with
    /// attachments goes as one binary event whatever its size. `now` names the transfer.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        content: &Content<'_>,
        stamp: Stamp<'_>,
        threshold: usize,
        now: impl FnOnce() -> Timestamp,
    ) -> usize {
        if !content.attachments.is_empty() {
            self.write_binary(out, content, stamp);
            return 0;
        }
        let size = content.text_size() + stamp.size();
        if size + ESCAPES * (content.event.len() + content.from.len()) <= threshold {
            let expected = self.prefix.len() + size + 1;
            frame::text_with(out, expected, |out| {
                out.extend_from_slice(&self.prefix);
                put_object(out, content, stamp);
                out.push(b']');
            });
            return 0;
        }
        let mut text = Vec::with_capacity(size);
        put_object(&mut text, content, stamp);
        if chunk::is_large(&text, threshold) {
            return self.write_chunks(out, &text, threshold, now());
        }
        frame::text_with(out, self.prefix.len() + text.len() + 1, |out| {
            out.extend_from_slice(&self.prefix);
            out.extend_from_slice(&text);
            out.push(b']');
        });
        0
    }

    fn write_binary(&self, out: &mut Vec<u8>, content: &Content<'_>, stamp: Stamp<'_>) {
        let expected = self.prefix.len() + content.text_size() + stamp.size() + 3;
        frame::text_with(out, expected, |out| {
            out.extend_from_slice(b"45");
            json::put_number(out, content.attachments.len() as u64);
            out.push(b'-');
            // The prefix is that of a plain event, `42[…`.
            out.extend_from_slice(&self.prefix[2..]);
            put_object(out, content, stamp);
            out.push(b']');
        });
        for attachment in content.attachments {
            frame::binary(attachment, out);
        }
    }

    fn write_chunks(
        &self,
        out: &mut Vec<u8>,
        text: &[u8],
        threshold: usize,
        now: Timestamp,
    ) -> usize {
        let id = chunk::transfer_id(now);
        let pieces: Vec<&[u8]> = chunk::split(text, threshold).collect();
        for (index, piece) in pieces.iter().enumerate() {
            frame::text_with(out, piece.len() + piece.len() / 8 + 128, |out| {
                out.extend_from_slice(b"42[\"");
                out.extend_from_slice(names::CONSUME_CHUNK.as_bytes());
                out.extend_from_slice(b"\",{\"transferId\":\"");
                out.extend_from_slice(id.as_bytes());
                out.extend_from_slice(b"\",\"index\":");
                json::put_number(out, index as u64);
                out.extend_from_slice(b",\"total\":");
                json::put_number(out, pieces.len() as u64);
                out.extend_from_slice(b",\"data\":\"");
                json::put_escaped(out, piece);
                out.extend_from_slice(b"\",\"event\":");
                json::put_string(out, &self.event);
                out.extend_from_slice(b"}]");
            });
        }
        pieces.len()
    }
}

/// The delivery object: event, message, from, then what few messages have.
fn put_object(out: &mut Vec<u8>, content: &Content<'_>, stamp: Stamp<'_>) {
    out.extend_from_slice(b"{\"event\":");
    json::put_string(out, content.event);
    if let Some(body) = content.body {
        out.extend_from_slice(BODY);
        out.extend_from_slice(body);
    }
    out.extend_from_slice(b",\"from\":");
    json::put_string(out, content.from);
    for (name, raw) in content.raws() {
        put_raw(out, name, raw);
    }
    match stamp {
        Stamp::Plain => {}
        Stamp::Redelivered => out.extend_from_slice(b",\"redelivered\":true"),
        Stamp::Tracked { msg_id, attempt } => {
            out.extend_from_slice(b",\"msgId\":");
            json::put_string(out, msg_id);
            out.extend_from_slice(b",\"msg_id\":");
            json::put_string(out, msg_id);
            out.extend_from_slice(b",\"delivery_attempt\":");
            json::put_number(out, u64::from(attempt));
        }
    }
    put_raw(out, HEADERS, content.headers);
    out.push(b'}');
}

fn put_raw(out: &mut Vec<u8>, name: &[u8], raw: Option<&[u8]>) {
    if let Some(raw) = raw {
        out.extend_from_slice(name);
        out.extend_from_slice(raw);
    }
}
