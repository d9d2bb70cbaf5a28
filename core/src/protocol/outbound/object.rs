//! Socket.IO packets in websocket frames, and JSON objects member by member.
//!
//! Knows no verb.

use bytes::Bytes;

use crate::protocol::json;
use crate::wire::frame;

/// Most small packets are shorter than this; longer ones cost a move.
const SMALL: usize = 125;

/// Writes the members of a JSON object, in the order of the calls.
pub(super) struct Object<'b> {
    out: &'b mut Vec<u8>,
    is_empty: bool,
}

impl Object<'_> {
    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    pub(super) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        json::put_string(self.name(name), value);
        self
    }

    /// `null` if there is none.
    pub(super) fn text_or_null(&mut self, name: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(name, value),
            None => self.raw(name, "null"),
        }
    }

    pub(super) fn number(&mut self, name: &str, value: u64) -> &mut Self {
        json::put_number(self.name(name), value);
        self
    }

    pub(super) fn signed(&mut self, name: &str, value: i32) -> &mut Self {
        let out = self.name(name);
        if value < 0 {
            out.push(b'-');
        }
        json::put_number(out, u64::from(value.unsigned_abs()));
        self
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.raw(name, if value { "true" } else { "false" })
    }

    pub(super) fn raw(&mut self, name: &str, json: &str) -> &mut Self {
        self.name(name).extend_from_slice(json.as_bytes());
        self
    }

    pub(super) fn texts<T: AsRef<str>>(&mut self, name: &str, values: &[T]) -> &mut Self {
        self.list(name, values, |out, value| {
            json::put_string(out, value.as_ref())
        })
    }

    pub(super) fn objects<T>(
        &mut self,
        name: &str,
        values: &[T],
        members: impl Fn(&mut Object<'_>, &T),
    ) -> &mut Self {
        self.list(name, values, |out, value| {
            object(out, &|object| members(object, value));
        })
    }

    fn list<T>(&mut self, name: &str, values: &[T], put: impl Fn(&mut Vec<u8>, &T)) -> &mut Self {
        let out = self.name(name);
        out.push(b'[');
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            put(out, value);
        }
        out.push(b']');
        self
    }
}

fn object(out: &mut Vec<u8>, members: &dyn Fn(&mut Object<'_>)) {
    out.push(b'{');
    members(&mut Object {
        out: &mut *out,
        is_empty: true,
    });
    out.push(b'}');
}

fn begin_event(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b"42");
    begin_args(out, name);
}

fn begin_args(out: &mut Vec<u8>, name: &str) {
    out.push(b'[');
    json::put_string(out, name);
    out.push(b',');
}

fn begin_reply(out: &mut Vec<u8>, id: u64) {
    out.extend_from_slice(b"43");
    json::put_number(out, id);
    out.push(b'[');
}

/// Appends an event whose argument is an object.
pub(super) fn event(out: &mut Vec<u8>, name: &str, members: &dyn Fn(&mut Object<'_>)) {
    frame::text_with(out, SMALL, |out| {
        begin_event(out, name);
        object(out, members);
        out.push(b']');
    });
}

/// Appends a reply whose argument is an object.
pub(super) fn reply(out: &mut Vec<u8>, id: u64, members: &dyn Fn(&mut Object<'_>)) {
    frame::text_with(out, SMALL, |out| {
        begin_reply(out, id);
        object(out, members);
        out.push(b']');
    });
}

/// Appends an event whose argument is a string, such as the ERROR that tells of a takeover.
pub fn event_text(out: &mut Vec<u8>, name: &str, text: &str) {
    frame::text_with(out, SMALL, |out| {
        begin_event(out, name);
        json::put_string(out, text);
        out.push(b']');
    });
}

/// Appends a reply whose argument is a string.
pub(super) fn reply_text(out: &mut Vec<u8>, id: u64, text: &str) {
    frame::text_with(out, text.len() + 32, |out| {
        begin_reply(out, id);
        json::put_string(out, text);
        out.push(b']');
    });
}

/// Appends an event whose argument is `json`, which must be JSON text, with placeholders for the
/// attachments: for verbs of other parts.
pub fn raw_event(out: &mut Vec<u8>, name: &str, json: &str, attachments: &[Bytes]) {
    frame::text_with(out, json.len() + 32, |out| {
        match attachments.len() {
            0 => begin_event(out, name),
            count => {
                out.extend_from_slice(b"45");
                json::put_number(out, count as u64);
                out.push(b'-');
                begin_args(out, name);
            }
        }
        out.extend_from_slice(json.as_bytes());
        out.push(b']');
    });
    for attachment in attachments {
        frame::binary(attachment, out);
    }
}

/// Appends a reply whose argument is `json`, which must be JSON text.
pub fn raw_reply(out: &mut Vec<u8>, id: u64, json: &str) {
    frame::text_with(out, json.len() + 32, |out| {
        begin_reply(out, id);
        out.extend_from_slice(json.as_bytes());
        out.push(b']');
    });
}
