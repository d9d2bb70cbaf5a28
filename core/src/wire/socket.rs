//! Socket.IO 5 packets: `<type>[<attachments>-][<namespace>,][<id>][JSON]`.
//!
//! Parsing borrows and checks the outside only: the JSON text is handed on as it is. Encoding
//! writes the Engine.IO `4` too, as a text or as a whole websocket frame.

use bytes::BufMut;

use super::{Malformed, frame};

/// More attachments than any packet may announce.
pub const MAX_ATTACHMENTS: u32 = 4096;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `0`: join a namespace, or the answer to that.
    Connect,
    /// `1`: leave a namespace.
    Disconnect,
    /// `2`
    Event,
    /// `3`: the reply to an event that carried an id.
    Ack,
    /// `4`: a refused CONNECT.
    ConnectError,
    /// `5`: an event with this many attachments behind it.
    BinaryEvent(u32),
    /// `6`: a reply with this many attachments behind it.
    BinaryAck(u32),
}

/// A packet as it came, borrowing its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What it is.
    pub kind: Kind,
    /// The namespace, `/` if none is written.
    pub namespace: &'a str,
    /// The acknowledgement id.
    pub id: Option<u64>,
    /// The JSON text, not checked beyond its first character; may be empty.
    pub json: &'a str,
}

impl<'a> Packet<'a> {
    /// Reads a packet from the text behind Engine.IO's `4`.
    ///
    /// # Errors
    /// [`Malformed`] for an unknown type, an id or count that is not a number in range, and a
    /// payload that cannot be what the type demands.
    #[inline]
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        let digit = *text
            .as_bytes()
            .first()
            .ok_or(Malformed("empty Socket.IO packet"))?;
        // The digits are ASCII, so cutting behind them stays on a character boundary.
        let mut rest = text.get(1..).ok_or(Malformed("not a Socket.IO packet"))?;
        let kind = match digit {
            b'0' => Kind::Connect,
            b'1' => Kind::Disconnect,
            b'2' => Kind::Event,
            b'3' => Kind::Ack,
            b'4' => Kind::ConnectError,
            b'5' => Kind::BinaryEvent(attachments(&mut rest)?),
            b'6' => Kind::BinaryAck(attachments(&mut rest)?),
            _ => return Err(Malformed("unknown Socket.IO packet type")),
        };
        let mut namespace = "/";
        if rest.starts_with('/') {
            (namespace, rest) = match memchr::memchr(b',', rest.as_bytes()) {
                Some(comma) => (&rest[..comma], &rest[comma + 1..]),
                None => (rest, ""),
            };
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let mut id = None;
        if digits > 0 {
            id = Some(rest[..digits].parse().map_err(|_| Malformed("bad id"))?);
            rest = &rest[digits..];
        }
        let packet = Self {
            kind,
            namespace,
            id,
            json: rest,
        };
        packet
            .fits()
            .then_some(packet)
            .ok_or(Malformed("payload does not fit the packet type"))
    }

    fn fits(&self) -> bool {
        let first = self.json.as_bytes().first();
        match self.kind {
            Kind::Connect => self.id.is_none() && matches!(first, None | Some(b'{')),
            Kind::Disconnect => self.id.is_none() && first.is_none(),
            Kind::Event | Kind::BinaryEvent(_) => first == Some(&b'['),
            Kind::Ack | Kind::BinaryAck(_) => self.id.is_some() && first == Some(&b'['),
            Kind::ConnectError => matches!(first, Some(b'{' | b'"')),
        }
    }
}

fn attachments(rest: &mut &str) -> Result<u32, Malformed> {
    let bad = Malformed("bad attachment count");
    let (count, behind) = rest.split_once('-').ok_or(bad)?;
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad);
    }
    let count = count.parse().map_err(|_| bad)?;
    *rest = behind;
    (count <= MAX_ATTACHMENTS).then_some(count).ok_or(bad)
}

/// The part of a packet in front of its JSON, to be written.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// What it is.
    pub kind: Kind,
    /// The namespace; `/` is not written.
    pub namespace: &'a str,
    /// The acknowledgement id.
    pub id: Option<u64>,
}

impl Head<'_> {
    /// The head of an event in the namespace `/`: `42`.
    pub const EVENT: Head<'static> = Head {
        kind: Kind::Event,
        namespace: "/",
        id: None,
    };

    /// Bytes that [`Head::write`] will append.
    pub fn size(&self) -> usize {
        let count = match self.kind {
            Kind::BinaryEvent(count) | Kind::BinaryAck(count) => digits(count.into()) + 1,
            _ => 0,
        };
        let namespace = match self.namespace {
            "/" => 0,
            other => other.len() + 1,
        };
        2 + count + namespace + self.id.map_or(0, digits)
    }

    /// Appends the head, Engine.IO's `4` included.
    pub fn write(&self, out: &mut impl BufMut) {
        let (digit, count) = match self.kind {
            Kind::Connect => (b'0', None),
            Kind::Disconnect => (b'1', None),
            Kind::Event => (b'2', None),
            Kind::Ack => (b'3', None),
            Kind::ConnectError => (b'4', None),
            Kind::BinaryEvent(count) => (b'5', Some(count)),
            Kind::BinaryAck(count) => (b'6', Some(count)),
        };
        out.put_slice(&[b'4', digit]);
        if let Some(count) = count {
            put_number(count.into(), out);
            out.put_u8(b'-');
        }
        if self.namespace != "/" {
            out.put_slice(self.namespace.as_bytes());
            out.put_u8(b',');
        }
        if let Some(id) = self.id {
            put_number(id, out);
        }
    }
}

/// Appends a packet as one whole server frame; the JSON text is `parts` joined.
pub fn put_frame(head: &Head<'_>, parts: &[&[u8]], out: &mut impl BufMut) {
    let json: usize = parts.iter().map(|part| part.len()).sum();
    frame::text_header(head.size() + json, out);
    head.write(out);
    for part in parts {
        out.put_slice(part);
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn put_number(number: u64, out: &mut impl BufMut) {
    let mut text = [0; 20];
    let mut at = text.len();
    let mut left = number;
    loop {
        at -= 1;
        text[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.put_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> (Kind, &str, Option<u64>, &str) {
        let packet = Packet::parse(text).unwrap();
        (packet.kind, packet.namespace, packet.id, packet.json)
    }

    #[test]
    fn every_shape_of_the_protocol_is_read() {
        assert_eq!(parsed("0"), (Kind::Connect, "/", None, ""));
        assert_eq!(parsed("0{}"), (Kind::Connect, "/", None, "{}"));
        assert_eq!(parsed("0/a,{}"), (Kind::Connect, "/a", None, "{}"));
        assert_eq!(parsed("0/a"), (Kind::Connect, "/a", None, ""));
        assert_eq!(parsed("1/a,"), (Kind::Disconnect, "/a", None, ""));
        assert_eq!(parsed(r#"2["x"]"#), (Kind::Event, "/", None, r#"["x"]"#));
        assert_eq!(parsed("212[]"), (Kind::Event, "/", Some(12), "[]"));
        assert_eq!(parsed("3/b,7[]"), (Kind::Ack, "/b", Some(7), "[]"));
        assert_eq!(
            parsed("52-/a,9[]"),
            (Kind::BinaryEvent(2), "/a", Some(9), "[]")
        );
        assert_eq!(parsed("61-9[]"), (Kind::BinaryAck(1), "/", Some(9), "[]"));
    }

    #[test]
    fn what_the_type_does_not_allow_is_refused() {
        for bad in [
            "",
            "abc",
            "7",
            "é",
            "2",
            "2{}",
            "2abc[]",
            "3[]",
            "5[]",
            "5-[]",
            "5+1-[]",
            "599999999999-[]",
            "54097-[]",
            "1[]",
            "07",
            "299999999999999999999999[]",
            "4",
        ] {
            assert!(Packet::parse(bad).is_err(), "{bad}");
        }
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::Event),
            Just(Kind::Ack),
            (0..=MAX_ATTACHMENTS).prop_map(Kind::BinaryEvent),
            (0..=MAX_ATTACHMENTS).prop_map(Kind::BinaryAck),
        ]
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = Packet::parse(&text);
        }

        #[test]
        fn what_is_written_is_read_again(kind in kinds(), id: u64, namespace in "/[a-z]{0,9}") {
            let head = Head { kind, namespace: &namespace, id: Some(id) };
            let mut out = Vec::new();
            put_frame(&head, &[b"[\"a\"", b",1]"], &mut out);
            let (_, text) = frame::walk(&out).next().unwrap();
            let text = std::str::from_utf8(text).unwrap();
            prop_assert_eq!(head.size() + 7, text.len());
            let expected = Packet { kind, namespace: &namespace, id: Some(id), json: "[\"a\",1]" };
            prop_assert_eq!(Packet::parse(text.strip_prefix('4').unwrap()), Ok(expected));
        }
    }
}
