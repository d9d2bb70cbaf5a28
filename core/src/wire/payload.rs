//! Long-polling bodies of Engine.IO 4: packets joined by the byte 0x1E, binary as `b` + base64.
//!
//! Outgoing packets come as the same websocket frames that a websocket would get.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Malformed;
use super::frame::{self, Opcode};

const SEPARATOR: u8 = 0x1e;

/// One packet of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An Engine.IO text packet.
    Text(&'a str),
    /// A binary message.
    Binary(Vec<u8>),
}

/// The packets of a body, in order.
///
/// # Errors
/// An item is [`Malformed`] if it starts with `b` and is not base64.
pub fn decode(body: &str) -> impl Iterator<Item = Result<Item<'_>, Malformed>> {
    body.split(char::from(SEPARATOR))
        .map(|packet| match packet.strip_prefix('b') {
            Some(coded) => STANDARD
                .decode(coded)
                .map(Item::Binary)
                .map_err(|_| Malformed("not base64")),
            None => Ok(Item::Text(packet)),
        })
}

/// Appends the packets in `frames` (whole server frames) to a body.
pub fn encode(frames: &[u8], body: &mut Vec<u8>) {
    for (opcode, payload) in frame::walk(frames) {
        if !body.is_empty() {
            body.push(SEPARATOR);
        }
        if opcode == Opcode::Binary {
            body.push(b'b');
            body.extend_from_slice(STANDARD.encode(payload).as_bytes());
        } else {
            body.extend_from_slice(payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_and_binary_stand_side_by_side() {
        let items: Vec<_> = decode("4hello\x1ebAQIDBA==\x1e3")
            .map(Result::unwrap)
            .collect();
        let expected = [
            Item::Text("4hello"),
            Item::Binary(vec![1, 2, 3, 4]),
            Item::Text("3"),
        ];
        assert_eq!(items, expected);
        assert_eq!(decode("b?").next(), Some(Err(Malformed("not base64"))));
    }

    #[test]
    fn frames_become_a_body() {
        let mut frames = Vec::new();
        frame::text(&[b"4hello"], &mut frames);
        frame::binary(&[1, 2, 3, 4], &mut frames);
        let mut body = Vec::new();
        encode(&frames, &mut body);
        assert_eq!(body, b"4hello\x1ebAQIDBA==");
    }

    proptest! {
        #[test]
        fn a_body_of_any_text_is_read_without_panic(body: String) {
            prop_assert!(decode(&body).count() <= body.len() + 1);
        }

        #[test]
        fn binary_comes_back_as_it_went(bytes: Vec<u8>) {
            let mut frames = Vec::new();
            frame::binary(&bytes, &mut frames);
            let mut body = Vec::new();
            encode(&frames, &mut body);
            let text = String::from_utf8(body).unwrap();
            prop_assert_eq!(decode(&text).next(), Some(Ok(Item::Binary(bytes))));
        }
    }
}
