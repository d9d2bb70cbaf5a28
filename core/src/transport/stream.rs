//! A connection that HTTP gives away: plain, or under TLS. Knows no frame; `socket` reads and writes it.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::socket::Socket;
use crate::clock::Clock;
use crate::tls::{Pipe, ServerTls};

/// How long a client may take for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Does the handshake.
pub(super) async fn secure(
    stream: TcpStream,
    tls: Arc<ServerTls>,
    clock: &Arc<dyn Clock>,
) -> io::Result<TlsStream<TcpStream>> {
    let late = clock.sleep_until(clock.elapsed() + HANDSHAKE);
    // Boxed: it is over soon, and its room would stay with the connection.
    let shaking = Box::pin(TlsAcceptor::from(tls.rustls().clone()).accept(stream));
    tokio::select! {
        shaken = shaking => shaken,
        () = late => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// See the module.
pub(super) enum Stream {
    Plain(TcpStream),
    Secure(TcpStream, Box<Pipe>),
}

/// Makes the socket again on the thread that calls it.
type Attach = Box<dyn FnOnce() -> io::Result<Arc<dyn Socket>> + Send>;

impl Stream {
    /// What HTTP was served on, and what was read of it beyond the request.
    pub(super) fn of(upgraded: Upgraded) -> Option<(Self, Vec<u8>)> {
        let upgraded = match upgraded.downcast::<TokioIo<TcpStream>>() {
            Ok(parts) => {
                let stream = Self::Plain(parts.io.into_inner());
                return Some((stream, parts.read_buf.to_vec()));
            }
            Err(upgraded) => upgraded,
        };
        let parts = upgraded.downcast::<TokioIo<TlsStream<TcpStream>>>().ok()?;
        let (tcp, session) = parts.io.into_inner().into_inner();
        let stream = Self::Secure(tcp, Box::new(Pipe::new(session.into())));
        Some((stream, parts.read_buf.to_vec()))
    }

    /// As a socket of this thread.
    pub(super) fn into_socket(self) -> Arc<dyn Socket> {
        match self {
            Self::Plain(tcp) => Arc::new(tcp),
            Self::Secure(tcp, pipe) => Arc::new(SecureSocket {
                tcp,
                pipe: Mutex::new(pipe),
            }),
        }
    }

    /// Takes it off this thread.
    pub(super) fn detach(self) -> io::Result<Attach> {
        let (tcp, pipe) = match self {
            Self::Plain(tcp) => (tcp, None),
            Self::Secure(tcp, pipe) => (tcp, Some(pipe)),
        };
        let tcp = tcp.into_std()?;
        Ok(Box::new(move || {
            let tcp = TcpStream::from_std(tcp)?;
            let stream = match pipe {
                None => Self::Plain(tcp),
                Some(pipe) => Self::Secure(tcp, pipe),
            };
            Ok(stream.into_socket())
        }))
    }
}

/// A socket under TLS. Read and written by the thread that owns it; the lock is never waited for long.
struct SecureSocket {
    tcp: TcpStream,
    pipe: Mutex<Box<Pipe>>,
}

/// The system's side of it.
struct Tcp<'a>(&'a TcpStream);

impl Read for Tcp<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Socket::try_read(self.0, into)
    }
}

impl Write for Tcp<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        TcpStream::try_write_vectored(self.0, pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for SecureSocket {
    fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.pipe.lock().read(&mut Tcp(&self.tcp), into)
    }

    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.pipe.lock().write(&mut Tcp(&self.tcp), pieces)
    }

    fn try_flush(&self) -> io::Result<()> {
        self.pipe.lock().flush(&mut Tcp(&self.tcp))
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.pipe.lock().has_more() {
            true => Poll::Ready(Ok(())),
            false => self.tcp.poll_read_ready(cx),
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_write_ready(cx)
    }

    fn finish(&self) {
        self.pipe.lock().finish(&mut Tcp(&self.tcp));
        Socket::finish(&self.tcp);
    }

    fn acknowledged(&self) -> Option<bool> {
        self.tcp.acknowledged()
    }
}
