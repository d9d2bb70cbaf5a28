//! Client frames: masked websocket frames with Socket.IO events in them, built in place.
//!
//! One buffer takes any number of frames and goes out in one write. Knows no verbs; called by
//! `verbs` and by the link.

use std::io::Write as _;

use bytes::Bytes;

use crate::wire::frame::unmask;

/// A text frame.
pub(super) const TEXT: u8 = 0x1;
/// A binary frame.
pub(super) const BINARY: u8 = 0x2;
/// A websocket pong.
pub(super) const PONG: u8 = 0xa;

/// A header, its mask key included, for a payload of `len` bytes.
fn header_len(len: usize) -> usize {
    match len {
        0..126 => 6,
        126..65_536 => 8,
        _ => 14,
    }
}

/// Appends one whole frame whose payload `build` appends; `likely` is its probable length, a wrong
/// guess costs one move.
pub(super) fn frame(
    out: &mut Vec<u8>,
    opcode: u8,
    likely: usize,
    build: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let gap = header_len(likely);
    out.resize(start + gap, 0);
    build(out);
    let len = out.len() - start - gap;
    let real = header_len(len);
    if real != gap {
        out.resize(start + len + gap.max(real), 0);
        out.copy_within(start + gap..start + gap + len, start + real);
        out.truncate(start + real + len);
    }
    let key = fastrand::u32(..).to_ne_bytes();
    let (header, payload) = out[start..].split_at_mut(real);
    header[0] = 0x80 | opcode;
    // The three lengths fit their fields by `header_len`.
    match real {
        6 => header[1] = 0x80 | len as u8,
        8 => {
            header[1] = 0x80 | 126;
            header[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            header[1] = 0x80 | 127;
            header[2..10].copy_from_slice(&(len as u64).to_be_bytes());
        }
    }
    header[real - 4..].copy_from_slice(&key);
    unmask(payload, key);
}

/// Appends a text frame that is already whole.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    frame(out, TEXT, text.len(), |out| {
        out.extend_from_slice(text.as_bytes());
    });
}

/// Appends an event with its attachments. `name` is JSON text, quotes included; `args` appends the
/// JSON text of the arguments, or nothing.
pub(super) fn event(
    out: &mut Vec<u8>,
    name: &str,
    reply: Option<u64>,
    attachments: &[Bytes],
    likely: usize,
    args: impl FnOnce(&mut Vec<u8>),
) {
    frame(out, TEXT, likely + name.len() + 16, |out| {
        match attachments.len() {
            0 => out.extend_from_slice(b"42"),
            count => put(out, format_args!("45{count}-")),
        }
        if let Some(id) = reply {
            put(out, format_args!("{id}"));
        }
        out.push(b'[');
        out.extend_from_slice(name.as_bytes());
        out.push(b',');
        let before = out.len();
        args(out);
        if out.len() == before {
            out.pop();
        }
        out.push(b']');
    });
    for attachment in attachments {
        frame(out, BINARY, attachment.len(), |out| {
            out.extend_from_slice(attachment);
        });
    }
}

/// Formats into a buffer, which cannot fail.
pub(super) fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// Appends a JSON string; writing into a buffer cannot fail.
pub(super) fn json_text(out: &mut Vec<u8>, text: &str) {
    let _ = serde_json::to_writer(out, text);
}

/// A JSON object being written.
pub(super) struct Object<'a>(&'a mut Vec<u8>);

impl<'a> Object<'a> {
    /// Opens it.
    pub(super) fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self(out)
    }

    /// Goes on with one that has members and is not closed.
    pub(super) fn resume(out: &'a mut Vec<u8>) -> Self {
        Self(out)
    }

    /// Starts a member; `name` needs no escapes. The caller appends the value.
    pub(super) fn member(&mut self, name: &str) -> &mut Vec<u8> {
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        self.0
    }

    /// A string member, if there is one.
    pub(super) fn text<'t>(&mut self, name: &str, value: impl Into<Option<&'t str>>) {
        if let Some(value) = value.into() {
            json_text(self.member(name), value);
        }
    }

    /// A member that is JSON text already, if there is one.
    pub(super) fn raw<'t>(&mut self, name: &str, value: impl Into<Option<&'t str>>) {
        if let Some(value) = value.into() {
            self.member(name).extend_from_slice(value.as_bytes());
        }
    }

    /// A number, if there is one.
    pub(super) fn number(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            put(self.member(name), format_args!("{value}"));
        }
    }

    /// A boolean.
    pub(super) fn flag(&mut self, name: &str, value: bool) {
        put(self.member(name), format_args!("{value}"));
    }

    /// A duration as a number of seconds (P14), if there is one; what is below a millisecond
    /// counts as one, so that it does not become "none".
    pub(super) fn seconds(&mut self, name: &str, value: Option<std::time::Duration>) {
        let Some(value) = value else { return };
        let millis = value.as_nanos().div_ceil(1_000_000);
        let out = self.member(name);
        put(out, format_args!("{}", millis / 1000));
        if millis % 1000 != 0 {
            put(out, format_args!(".{:03}", millis % 1000));
        }
    }

    /// Closes it.
    pub(super) fn close(self) {
        self.0.push(b'}');
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use crate::wire::frame::{Header, Opcode};

    use super::*;

    /// Every frame of a buffer, unmasked.
    pub(in crate::client) fn frames(mut bytes: &[u8]) -> Vec<(Opcode, Vec<u8>)> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let header = Header::parse(bytes).unwrap();
            assert!(header.fin && !header.reserved_bits);
            let end = header.len + usize::try_from(header.payload).unwrap();
            let mut payload = bytes[header.len..end].to_vec();
            unmask(&mut payload, header.mask.expect("clients mask"));
            frames.push((header.opcode, payload));
            bytes = &bytes[end..];
        }
        frames
    }

    /// The text frames of a buffer.
    pub(in crate::client) fn texts(bytes: &[u8]) -> Vec<String> {
        let texts = frames(bytes).into_iter();
        texts
            .filter(|(opcode, _)| *opcode == Opcode::Text)
            .map(|(_, payload)| String::from_utf8(payload).unwrap())
            .collect()
    }

    #[test]
    fn every_length_gets_the_shortest_header_whatever_was_guessed() {
        for len in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            for likely in [0, 126, 65_536] {
                let mut out = b"before".to_vec();
                let payload = vec![b'x'; len];
                frame(&mut out, TEXT, likely, |out| {
                    out.extend_from_slice(&payload);
                });
                assert_eq!(out.len(), 6 + header_len(len) + len);
                assert_eq!(frames(&out[6..]), [(Opcode::Text, payload)], "{len}");
            }
        }
    }

    #[test]
    fn attachments_follow_their_event_at_once() {
        let mut out = Vec::new();
        let attachments = [Bytes::from_static(b"\0\xff"), Bytes::new()];
        event(&mut out, "\"A\"", Some(7), &attachments, 0, |out| {
            out.extend_from_slice(b"1,2");
        });
        event(&mut out, "\"B\"", None, &[], 0, |_| {});
        let expected: [(Opcode, &[u8]); 4] = [
            (Opcode::Text, b"452-7[\"A\",1,2]"),
            (Opcode::Binary, b"\0\xff"),
            (Opcode::Binary, b""),
            (Opcode::Text, b"42[\"B\"]"),
        ];
        let frames = frames(&out);
        for (frame, expected) in frames.iter().zip(expected) {
            assert_eq!((frame.0, &frame.1[..]), expected);
        }
        assert_eq!(frames.len(), 4);
    }

    #[test]
    fn objects_hold_what_was_given_and_nothing_else() {
        let mut out = Vec::new();
        let mut object = Object::open(&mut out);
        object.text("a", None);
        object.text("b", "x\"\u{1F600}\n");
        object.seconds("c", Some(Duration::from_millis(1500)));
        object.seconds("d", Some(Duration::from_nanos(1)));
        object.seconds("e", Some(Duration::from_secs(3)));
        object.flag("f", true);
        object.close();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            r#"{"b":"x\"😀\n","c":1.500,"d":0.001,"e":3,"f":true}"#
        );
    }
}
