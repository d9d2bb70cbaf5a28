//! A websocket without its socket: bytes in, messages out, frames to be written beside.
//!
//! tungstenite does the handshake, reads frames and answers control frames, over buffers; the
//! frames of the client are appended beside it. Knows no Socket.IO. Called by the link.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tokio_tungstenite::tungstenite::client::client_with_config;
use tokio_tungstenite::tungstenite::handshake::client::ClientHandshake;
use tokio_tungstenite::tungstenite::handshake::{HandshakeError, MidHandshake};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message, Utf8Bytes, WebSocket};

use crate::{Error, ErrorKind, Result};

/// Both directions of a socket, as buffers.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// What was read; up to `taken` it has been used.
    input: Vec<u8>,
    taken: usize,
    /// Whole frames to be written.
    pub(super) output: Vec<u8>,
}

impl Pipe {
    /// The buffer to read into, behind what has not been used yet.
    fn input(&mut self) -> &mut Vec<u8> {
        self.input.drain(..self.taken);
        self.taken = 0;
        &mut self.input
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = &self.input[self.taken..];
        if left.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A handshake that waits for more bytes.
pub(super) struct Opening(Box<MidHandshake<ClientHandshake<Pipe>>>);

/// How far a handshake is.
pub(super) enum Opened {
    /// Write what is there to write, read more.
    More(Opening),
    /// Done.
    Open(Box<Socket>),
}

impl Opening {
    /// Starts a handshake for `url`.
    ///
    /// # Errors
    /// `config` for a url that is none.
    pub(super) fn start(url: &str, max_message_bytes: usize) -> Result<Opened> {
        let mut config = WebSocketConfig::default();
        config.read_buffer_size = READ;
        config.write_buffer_size = 0;
        config.max_message_size = Some(max_message_bytes);
        config.max_frame_size = Some(max_message_bytes);
        Self::step(client_with_config(url, Pipe::default(), Some(config)))
    }

    /// Goes on with what was read.
    ///
    /// # Errors
    /// `disconnected` for an answer that is no websocket.
    pub(super) fn advance(self) -> Result<Opened> {
        Self::step(self.0.handshake())
    }

    fn step<R>(
        result: Result<(WebSocket<Pipe>, R), HandshakeError<ClientHandshake<Pipe>>>,
    ) -> Result<Opened> {
        match result {
            Ok((socket, _)) => Ok(Opened::Open(Box::new(Socket(socket)))),
            Err(HandshakeError::Interrupted(mid)) => Ok(Opened::More(Self(Box::new(mid)))),
            Err(HandshakeError::Failure(error @ WsError::Url(_))) => {
                Err(Error::new(ErrorKind::Config, error.to_string()))
            }
            Err(HandshakeError::Failure(error)) => Err(gone(format!(
                "the server does not answer as a websocket: {error}"
            ))),
        }
    }

    /// Whether what was read is an alert of TLS: the port does not speak in the clear.
    pub(super) fn is_answered_in_tls(&mut self) -> bool {
        self.input().starts_with(&[0x15, 0x03])
    }

    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.0.get_mut().get_mut().output
    }

    pub(super) fn input(&mut self) -> &mut Vec<u8> {
        self.0.get_mut().get_mut().input()
    }
}

/// What came in.
pub(super) enum Incoming {
    Text(Utf8Bytes),
    Binary(Bytes),
}

/// An open websocket.
pub(super) struct Socket(WebSocket<Pipe>);

/// Bytes of one read.
pub(super) const READ: usize = 64 << 10;

impl Socket {
    /// The next message of what was read; none if more has to be read.
    ///
    /// # Errors
    /// `disconnected` with the reason: closed, broken, too large.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>> {
        loop {
            return match self.0.read() {
                Ok(Message::Text(text)) => Ok(Some(Incoming::Text(text))),
                Ok(Message::Binary(bytes)) => Ok(Some(Incoming::Binary(bytes))),
                Ok(Message::Close(_)) => Err(gone("the server closed the websocket")),
                Ok(_) => continue,
                Err(WsError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(gone(error.to_string())),
            };
        }
    }

    /// Says goodbye on the websocket's level.
    pub(super) fn close(&mut self) {
        // Into a buffer; it can only be closed already.
        let _ = self.0.close(None);
        let _ = self.0.flush();
    }

    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.0.get_mut().output
    }

    pub(super) fn input(&mut self) -> &mut Vec<u8> {
        self.0.get_mut().input()
    }
}

/// The link is gone, and why.
pub(super) fn gone(why: impl Into<Box<str>>) -> Error {
    Error::new(ErrorKind::Disconnected, why)
}
