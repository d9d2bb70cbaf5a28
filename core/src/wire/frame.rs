//! Websocket framing: build server frames, read frame headers, walk our own frames.
//!
//! A server frame is unmasked, so the same bytes serve every receiver: they are built once, several
//! in one buffer, and shared. Knows no packets; fragments and control frames are not its business.

use bytes::BufMut;

/// The longest header a frame of the server can have.
pub const MAX_HEADER: usize = 10;

const FIN: u8 = 0x80;

/// What a frame carries, as far as a fast path cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// The next piece of a fragmented message.
    Continue,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Binary,
    /// Close, ping or pong.
    Control,
    /// Not defined by RFC 6455.
    Reserved,
}

/// A frame header that has arrived whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whether this is the last frame of its message.
    pub fin: bool,
    /// Whether any of the three reserved bits is set.
    pub reserved_bits: bool,
    /// What it carries.
    pub opcode: Opcode,
    /// The key of a masked frame.
    pub mask: Option<[u8; 4]>,
    /// Bytes of this header.
    pub len: usize,
    /// Bytes of payload behind it, as claimed.
    pub payload: u64,
}

impl Header {
    /// Reads the header at the start of `bytes`; `Err(n)` if at least `n` bytes are needed.
    ///
    /// # Errors
    /// The number of bytes from the start of the frame without which it cannot be read.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, usize> {
        let [first, second, rest @ ..] = bytes else {
            return Err(2);
        };
        let wide = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let masked = second & 0x80 != 0;
        let len = 2 + wide + if masked { 4 } else { 0 };
        if bytes.len() < len {
            return Err(len);
        }
        let payload = match wide {
            0 => u64::from(second & 0x7f),
            _ => rest[..wide]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        let mask = masked.then(|| {
            let key = &rest[wide..wide + 4];
            [key[0], key[1], key[2], key[3]]
        });
        Ok(Self {
            fin: first & FIN != 0,
            reserved_bits: first & 0x70 != 0,
            opcode: match first & 0x0f {
                0 => Opcode::Continue,
                1 => Opcode::Text,
                2 => Opcode::Binary,
                8..=10 => Opcode::Control,
                _ => Opcode::Reserved,
            },
            mask,
            len,
            payload,
        })
    }
}

/// Removes (or puts on) a mask in place.
#[inline]
pub fn unmask(payload: &mut [u8], key: [u8; 4]) {
    let wide = u64::from_ne_bytes([
        key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3],
    ]);
    let (words, tail) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

/// Appends the header of a whole text frame of `len` bytes.
#[inline]
pub fn text_header(len: usize, out: &mut impl BufMut) {
    header(0x1, len, out);
}

/// Appends the header of a whole binary frame of `len` bytes.
#[inline]
pub fn binary_header(len: usize, out: &mut impl BufMut) {
    header(0x2, len, out);
}

/// Appends one whole text frame made of `parts`.
pub fn text(parts: &[&[u8]], out: &mut impl BufMut) {
    text_header(parts.iter().map(|part| part.len()).sum(), out);
    for part in parts {
        out.put_slice(part);
    }
}

/// Appends one whole text frame whose payload `write` appends. `expected` is a guess of its size;
/// one that needs another size of header costs a move of the payload.
pub fn text_with<T>(
    out: &mut Vec<u8>,
    expected: usize,
    write: impl FnOnce(&mut Vec<u8>) -> T,
) -> T {
    out.reserve(expected + MAX_HEADER);
    let start = out.len();
    text_header(expected, out);
    let guessed = out.len() - start;
    let result = write(out);
    let mut header = [0; MAX_HEADER];
    let mut rest = &mut header[..];
    text_header(out.len() - start - guessed, &mut rest);
    let size = MAX_HEADER - rest.len();
    if size == guessed {
        out[start..start + size].copy_from_slice(&header[..size]);
    } else {
        out.splice(start..start + guessed, header[..size].iter().copied());
    }
    result
}

/// Appends one whole binary frame.
pub fn binary(payload: &[u8], out: &mut impl BufMut) {
    binary_header(payload.len(), out);
    out.put_slice(payload);
}

/// Appends a close frame; `reason` is cut to what a control frame may hold.
pub fn close(code: u16, reason: &str, out: &mut impl BufMut) {
    let reason = &reason[..reason.floor_char_boundary(123)];
    header(0x8, 2 + reason.len(), out);
    out.put_u16(code);
    out.put_slice(reason.as_bytes());
}

#[inline]
fn header(opcode: u8, len: usize, out: &mut impl BufMut) {
    out.put_u8(FIN | opcode);
    if len < 126 {
        out.put_u8(len as u8);
    } else if let Ok(len) = u16::try_from(len) {
        out.put_u8(126);
        out.put_u16(len);
    } else {
        out.put_u8(127);
        out.put_u64(len as u64);
    }
}

/// Walks whole, unmasked frames that this module built: opcode and payload of each.
///
/// Ends early at bytes that are no such frame.
pub fn walk(mut frames: &[u8]) -> impl Iterator<Item = (Opcode, &[u8])> {
    std::iter::from_fn(move || {
        let header = Header::parse(frames).ok()?;
        let end = usize::try_from(header.payload)
            .ok()?
            .checked_add(header.len)?;
        let payload = frames.get(header.len..end)?;
        frames = &frames[end..];
        Some((header.opcode, payload))
    })
}

/// The length of the longest run of whole frames at the start of `frames` that is at most `limit`
/// bytes long, but at least one frame.
pub fn take_whole(frames: &[u8], limit: usize) -> usize {
    let mut end: usize = 0;
    while let Ok(header) = Header::parse(&frames[end..]) {
        let next = usize::try_from(header.payload)
            .ok()
            .and_then(|payload| end.checked_add(header.len)?.checked_add(payload));
        match next {
            Some(next) if next <= frames.len() && (end == 0 || next <= limit) => end = next,
            _ => break,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_take_their_shortest_form() {
        for (len, header) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            let mut out = Vec::new();
            text(&[&vec![b'x'; len]], &mut out);
            assert_eq!(out.len(), len + header);
            let parsed = Header::parse(&out).unwrap();
            assert_eq!((parsed.len, parsed.payload), (header, len as u64));
            assert_eq!(take_whole(&out, 1), out.len());
        }
    }

    #[test]
    fn the_header_fits_the_payload_whatever_was_guessed() {
        for (length, start) in [
            (5, vec![0x81, 5]),
            (126, vec![0x81, 126, 0, 126]),
            (0xffff, vec![0x81, 126, 0xff, 0xff]),
            (0x1_0000, vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            for guess in [0, 125, 126, 0xffff, 0x1_0000] {
                let mut out = b"before".to_vec();
                text_with(&mut out, guess, |out| out.resize(out.len() + length, b'x'));
                assert_eq!(out[6..6 + start.len()], start, "{length} {guess}");
                assert_eq!(out.len(), 6 + start.len() + length);
                assert!(out[6 + start.len()..].iter().all(|byte| *byte == b'x'));
            }
        }
    }

    #[test]
    fn a_close_reason_is_cut_between_characters() {
        let mut out = Vec::new();
        close(1002, &"é".repeat(100), &mut out);
        assert_eq!(out[1], 2 + 122);
        assert_eq!(&out[2..4], &1002u16.to_be_bytes());
    }

    #[test]
    fn frames_are_taken_whole_up_to_a_limit() {
        let mut out = Vec::new();
        for text_of in ["one", "two", "three"] {
            text(&[text_of.as_bytes()], &mut out);
        }
        assert_eq!(take_whole(&out, 11), 10);
        assert_eq!(take_whole(&out, 0), 5);
        let texts: Vec<_> = walk(&out).map(|(_, text)| text).collect();
        assert_eq!(texts, [&b"one"[..], b"two", b"three"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_panic(bytes: Vec<u8>, limit: usize) {
            prop_assert!(take_whole(&bytes, limit) <= bytes.len());
            prop_assert!(walk(&bytes).count() <= bytes.len());
        }

        #[test]
        fn masking_twice_changes_nothing(bytes: Vec<u8>, key: [u8; 4]) {
            let mut twice = bytes.clone();
            unmask(&mut twice, key);
            for (at, byte) in twice.iter().enumerate() {
                prop_assert_eq!(*byte, bytes[at] ^ key[at % 4]);
            }
            unmask(&mut twice, key);
            prop_assert_eq!(twice, bytes);
        }
    }
}
