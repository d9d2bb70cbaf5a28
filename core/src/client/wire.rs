//! The socket of a link, plain or under TLS: read and written when it is ready, never waited for.
//!
//! Knows no websocket. Called by the link.

use std::io::{self, ErrorKind as IoKind, IoSlice, Read, Write};
use std::sync::Arc;

use tokio::io::{AsyncWriteExt, Interest, Ready};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::options::ConnectOptions;
use super::socket::{READ, gone};
use crate::tls::{ClientTls, Pipe};
use crate::{Error, ErrorKind, Result};

/// See the module.
pub(super) enum Wire {
    Plain(TcpStream),
    Secure(Box<Secure>),
}

pub(super) struct Secure {
    tcp: TcpStream,
    pipe: Pipe,
}

struct Tcp<'a>(&'a TcpStream);

impl Read for Tcp<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Tcp<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire {
    /// Connects, and does the handshake if `is_secure`.
    ///
    /// # Errors
    /// `disconnected`; `config` for a host or a `ca` that will never do, and at the first connection
    /// for a server that nobody vouches for.
    pub(super) async fn connect(
        options: &ConnectOptions,
        is_secure: bool,
        is_first: bool,
    ) -> Result<Self> {
        let broken = |error: io::Error| gone(error.to_string());
        let host = options.host.trim_matches(['[', ']']);
        let tls = match is_secure {
            true => Some((
                ClientTls::new(options.ca.as_ref())?,
                ClientTls::server_name(host)?,
            )),
            false => None,
        };
        let tcp = TcpStream::connect((host, options.port)).await;
        let tcp = tcp.map_err(broken)?;
        tcp.set_nodelay(true).map_err(broken)?;
        let Some((tls, name)) = tls else {
            return Ok(Self::Plain(tcp));
        };
        let connector = TlsConnector::from(Arc::clone(tls.rustls()));
        let shaken = connector.connect(name, tcp).await;
        let shaken = shaken.map_err(|error| {
            let why = crate::tls::in_words(&error);
            match is_first && error.kind() == IoKind::InvalidData {
                true => Error::new(ErrorKind::Config, why),
                false => gone(why),
            }
        })?;
        let (tcp, session) = shaken.into_inner();
        let pipe = Pipe::new(session.into());
        Ok(Self::Secure(Box::new(Secure { tcp, pipe })))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Secure(secure) => &secure.tcp,
        }
    }

    /// Whether something waits to be written though all was taken.
    pub(super) fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Secure(secure) => secure.pipe.wants_write(),
        }
    }

    /// Waits until one of these may succeed.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        if let Self::Secure(secure) = self
            && interest.is_readable()
            && secure.pipe.has_more()
        {
            return Ok(Ready::READABLE);
        }
        self.tcp().ready(interest).await
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Secure(secure) => {
                let Secure { tcp, pipe } = &mut **secure;
                pipe.write(&mut Tcp(tcp), &[IoSlice::new(bytes)])
            }
        }
    }

    /// Writes what was taken, as far as the system takes it.
    pub(super) fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Secure(secure) => {
                let Secure { tcp, pipe } = &mut **secure;
                match pipe.flush(&mut Tcp(tcp)) {
                    Err(error) if error.kind() == IoKind::WouldBlock => Ok(()),
                    other => other,
                }
            }
        }
    }

    /// Reads behind what is there already; 0 at the end.
    pub(super) fn try_read_buf(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => {
                into.reserve(READ);
                tcp.try_read_buf(into)
            }
            Self::Secure(secure) => {
                let Secure { tcp, pipe } = &mut **secure;
                let before = into.len();
                into.resize(before + READ, 0);
                let read = pipe.read(&mut Tcp(tcp), &mut into[before..]);
                into.truncate(before + *read.as_ref().unwrap_or(&0));
                read
            }
        }
    }

    /// Writes all of it, and waits as long as that takes.
    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() || self.wants_write() {
            let written = match bytes.is_empty() {
                true => self.try_flush().map(|()| 0),
                false => self.try_write(bytes),
            };
            match written {
                Ok(0) if bytes.is_empty() && !self.wants_write() => break,
                Ok(count) if count > 0 => {
                    bytes = &bytes[count..];
                    continue;
                }
                Ok(_) => {}
                Err(error) if error.kind() == IoKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            self.tcp().writable().await?;
        }
        Ok(())
    }

    /// Says that nothing more will be written.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.shutdown().await,
            Self::Secure(secure) => {
                let Secure { tcp, pipe } = &mut **secure;
                pipe.finish(&mut Tcp(tcp));
                tcp.shutdown().await
            }
        }
    }
}
