//! Engine.IO 4 text packets: one digit, then text.
//!
//! Knows neither Socket.IO nor sockets. Binary packets have no digit and never come here.

use super::Malformed;

/// An Engine.IO packet as it stands in a text frame, borrowing its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// `0{…}`: the server opens the session.
    Open(&'a str),
    /// `1`: goodbye.
    Close,
    /// `2`, or `2probe` on a websocket that wants to take over from polling.
    Ping(&'a str),
    /// `3`, or `3probe`.
    Pong(&'a str),
    /// `4…`: a message for the layer above.
    Message(&'a str),
    /// `5`: the websocket takes over.
    Upgrade,
    /// `6`: nothing; ends a hanging poll.
    Noop,
}

impl<'a> Packet<'a> {
    /// Reads one packet.
    ///
    /// # Errors
    /// [`Malformed`] if the first byte is not one of the seven digits.
    #[inline]
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        let rest = text.get(1..).unwrap_or_default();
        match text.as_bytes().first() {
            Some(b'4') => Ok(Self::Message(rest)),
            Some(b'3') => Ok(Self::Pong(rest)),
            Some(b'2') => Ok(Self::Ping(rest)),
            Some(b'0') => Ok(Self::Open(rest)),
            Some(b'1') => Ok(Self::Close),
            Some(b'5') => Ok(Self::Upgrade),
            Some(b'6') => Ok(Self::Noop),
            _ => Err(Malformed("not an Engine.IO packet")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digit_decides_and_the_rest_is_kept() {
        assert_eq!(Packet::parse("42[]"), Ok(Packet::Message("2[]")));
        assert_eq!(Packet::parse("2probe"), Ok(Packet::Ping("probe")));
        assert_eq!(Packet::parse("3"), Ok(Packet::Pong("")));
        assert_eq!(Packet::parse("1"), Ok(Packet::Close));
        for bad in ["", "7", "abc", "é", " 4"] {
            assert!(Packet::parse(bad).is_err(), "{bad}");
        }
    }
}
