//! Bytes of both dialects: websocket frames, Socket.IO events, NATS commands, and the message that
//! all of them carry. Knows no socket.

/// What the server under test speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    SocketIo,
    Nats,
}

/// Where the digits of a message start, counted from its opening brace.
pub const STAMP_AT: usize = 7;
pub const STAMP_DIGITS: usize = 20;
pub const SEQUENCE_AT: usize = 36;
pub const SEQUENCE_DIGITS: usize = 10;
/// Digits of an acknowledgement id in [`confirmed`].
pub const REPLY_DIGITS: usize = 9;

/// A JSON message of `bytes` bytes with room for a timestamp and a sequence number.
pub fn message(bytes: usize) -> Vec<u8> {
    let mut text = br#"{"ts":"00000000000000000000","seq":"0000000000","pad":""#.to_vec();
    text.resize(text.len().max(bytes.saturating_sub(2)), b'x');
    text.extend_from_slice(b"\"}");
    text
}

/// Appends a masked text frame. The mask is zero: valid, and free for the generator.
pub fn text_frame(payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x81);
    match payload.len() {
        short @ 0..126 => out.push(0x80 | short as u8),
        middle @ 126..65536 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

/// Length of the payload and of the header of the server frame that `bytes` begin with.
pub fn frame_lengths(bytes: &[u8]) -> Option<(usize, usize)> {
    match bytes.get(1)? & 127 {
        126 => Some((
            u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]) as usize,
            4,
        )),
        127 => Some((
            u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize,
            10,
        )),
        short => Some((short as usize, 2)),
    }
}

/// A publish command ready to be sent again and again: only its digits change.
pub struct Template {
    pub bytes: Vec<u8>,
    /// Offset of the JSON message.
    pub message: usize,
    /// Offset of the acknowledgement id, in [`confirmed`] of Socket.IO only.
    pub reply: Option<usize>,
}

/// A plain publish of `message` under `event`, from producer `p1`.
pub fn publish(dialect: Dialect, event: &str, message: &[u8]) -> Template {
    let mut bytes = vec![];
    match dialect {
        Dialect::SocketIo => text_frame(&produce("", event, message, ""), &mut bytes),
        Dialect::Nats => {
            bytes.extend_from_slice(format!("PUB {event} {}\r\n", message.len()).as_bytes());
            bytes.extend_from_slice(message);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    template(bytes, message)
}

/// A guaranteed publish that asks for a reply: a Socket.IO acknowledgement, or one of JetStream on
/// the subject `acks`.
pub fn confirmed(dialect: Dialect, event: &str, message: &[u8]) -> Template {
    let mut bytes = vec![];
    match dialect {
        Dialect::SocketIo => text_frame(
            &produce("000000000", event, message, r#","guaranteed":true"#),
            &mut bytes,
        ),
        Dialect::Nats => {
            bytes.extend_from_slice(format!("PUB {event} acks {}\r\n", message.len()).as_bytes());
            bytes.extend_from_slice(message);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    template(bytes, message)
}

fn produce(reply: &str, event: &str, message: &[u8], more: &str) -> Vec<u8> {
    let mut text = format!(r#"42{reply}["PRODUCE",{{"event":"{event}","message":"#).into_bytes();
    text.extend_from_slice(message);
    text.extend_from_slice(format!(r#","from":"p1"{more}}}]"#).as_bytes());
    text
}

fn template(bytes: Vec<u8>, message: &[u8]) -> Template {
    let at = |needle: &[u8]| memchr::memmem::find(&bytes, needle);
    let (message, reply) = (
        at(message).unwrap_or(0),
        at(b"42000000000[").map(|at| at + 2),
    );
    Template {
        bytes,
        message,
        reply,
    }
}

/// Writes `number` in decimal over all of `digits`.
pub fn put_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Reads decimal digits.
pub fn take_digits(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |sum, digit| {
        sum * 10 + u64::from(digit.wrapping_sub(b'0'))
    })
}
