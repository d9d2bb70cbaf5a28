//! Engine.IO 4, Socket.IO 5 and websocket framing as bytes: parse and encode, nothing else.
//!
//! Knows no socket, no clock and no broker verb. The transport and the client call it; the room
//! above the transport uses it to build frames that many connections share.

pub mod attachment;
pub mod engine;
pub mod frame;
pub mod handshake;
pub mod payload;
pub mod socket;

/// Bytes that are not Engine.IO 4 / Socket.IO 5; says what was wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

impl From<Malformed> for crate::Error {
    fn from(malformed: Malformed) -> Self {
        Self::new(crate::ErrorKind::BadFrame, malformed.0)
    }
}
