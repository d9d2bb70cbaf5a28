//! One TLS connection after its handshake, over any socket that says `WouldBlock` instead of waiting.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use tokio_rustls::rustls::Connection;

/// Cipher text that may wait for the socket.
const WAITING: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub struct Pipe {
    session: Connection,
    /// The last read has filled what it was given, so there may be more that the socket knows
    /// nothing of.
    has_more: bool,
}

impl Pipe {
    /// A session whose handshake is done.
    pub fn new(mut session: Connection) -> Self {
        session.set_buffer_limit(Some(WAITING));
        Self {
            session,
            // Whoever did the handshake may have read beyond it.
            has_more: true,
        }
    }

    /// Whether a read may succeed though the socket has nothing.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether cipher text waits for the socket.
    pub fn wants_write(&self) -> bool {
        self.session.wants_write()
    }

    /// Reads as much plain text as there is; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` if there is none now; what the socket says; `InvalidData` for what is no TLS.
    pub fn read(&mut self, socket: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
        self.has_more = false;
        let mut filled = 0;
        loop {
            let ended = match self.session.reader().read(&mut into[filled..]) {
                Ok(0) => true,
                Ok(count) => {
                    filled += count;
                    if filled == into.len() {
                        self.has_more = true;
                        return Ok(filled);
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                // The peer hung up without a word: to HTTP and websockets that is an end too.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => true,
                Err(error) => return Err(error),
            };
            if ended {
                return Ok(filled);
            }
            match self.session.read_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock && filled > 0 => {
                    return Ok(filled);
                }
                Err(error) => return Err(error),
            }
            if let Err(error) = self.session.process_new_packets() {
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    /// Takes what there is room for; `WouldBlock` while cipher text waits.
    ///
    /// # Errors
    /// What the socket says.
    pub fn write(&mut self, socket: &mut impl Write, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(socket)?;
        let taken = self.session.writer().write_vectored(pieces)?;
        match self.flush(socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes the cipher text that waits.
    ///
    /// # Errors
    /// `WouldBlock` if the socket does not take all of it; what else it says.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that nothing more will be written, as far as the socket takes it.
    pub fn finish(&mut self, socket: &mut impl Write) {
        self.session.send_close_notify();
        // Fails only if the peer does not read, and then it is gone for all we know.
        let _ = self.flush(socket);
    }
}
