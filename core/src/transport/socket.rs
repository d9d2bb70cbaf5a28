//! What the transport needs of a byte stream, so that TLS can stand in for TCP.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};

use tokio::net::TcpStream;

/// A byte stream whose reads and writes never wait.
pub(super) trait Socket: Send + Sync + 'static {
    /// Reads what is there; `WouldBlock` if nothing is, 0 at the end.
    fn try_read(&self, into: &mut [u8]) -> io::Result<usize>;
    /// Writes what the system takes; `WouldBlock` if it takes nothing.
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Writes what was taken and is not with the system yet; `WouldBlock` if it takes no more.
    fn try_flush(&self) -> io::Result<()> {
        Ok(())
    }
    /// Ready when a read may succeed.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ready when a write may succeed.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Tells the peer that nothing more will be written.
    fn finish(&self);
    /// Whether the peer's system has acknowledged everything written; `None` if unknown.
    fn acknowledged(&self) -> Option<bool>;
}

impl Socket for TcpStream {
    fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        let read = TcpStream::try_read(self, into)?;
        // A short read has emptied the socket: say so, and save the read that would find it empty.
        // Sound with edge-triggered epoll only: what arrives from now on is a new edge.
        #[cfg(target_os = "linux")]
        if read > 0 && read < into.len() {
            let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.try_io(tokio::io::Interest::READABLE, empty);
        }
        Ok(read)
    }

    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        TcpStream::try_write_vectored(self, pieces)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_ready(cx)
    }

    fn finish(&self) {
        // Fails only if the peer is gone, which the reader finds out.
        let _ = socket2::SockRef::from(self).shutdown(Shutdown::Write);
    }

    fn acknowledged(&self) -> Option<bool> {
        unacknowledged(self.local_addr().ok()?, self.peer_addr().ok()?).map(|bytes| bytes == 0)
    }
}

/// Waits until a read may succeed.
pub(super) async fn readable(socket: &dyn Socket) -> io::Result<()> {
    poll_fn(|cx| socket.poll_readable(cx)).await
}

/// Bytes written and not yet acknowledged, from the system's table of connections. Reading it costs
/// with the number of connections: meant for a rare probe (P22), not for a hot path.
#[cfg(target_os = "linux")]
fn unacknowledged(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let table = match local {
        SocketAddr::V4(_) => "/proc/net/tcp",
        SocketAddr::V6(_) => "/proc/net/tcp6",
    };
    find_queue(&std::fs::read_to_string(table).ok()?, local, remote)
}

#[cfg(not(target_os = "linux"))]
fn unacknowledged(_local: SocketAddr, _remote: SocketAddr) -> Option<u64> {
    None
}

#[cfg(any(target_os = "linux", test))]
fn find_queue(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let (local, remote) = (as_listed(local), as_listed(remote));
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        if fields.next()? != local || fields.next()? != remote {
            return None;
        }
        let queues = fields.nth(1)?;
        u64::from_str_radix(queues.split_once(':')?.0, 16).ok()
    })
}

/// An address as the table writes it: words of the address in the machine's order, in hex.
#[cfg(any(target_os = "linux", test))]
fn as_listed(address: SocketAddr) -> String {
    let bytes = match address {
        SocketAddr::V4(v4) => v4.ip().octets().to_vec(),
        SocketAddr::V6(v6) => v6.ip().octets().to_vec(),
    };
    let words: String = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| format!("{:08X}", u32::from_ne_bytes(*word)))
        .collect();
    format!("{words}:{:04X}", address.port())
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    #[test]
    fn the_send_queue_is_found_in_the_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 0100007F:43C8 0100007F:D431 01 0000002A:00000000 00:00000000 0 0 1 1\n";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(find_queue(table, at(17352), at(54321)), Some(42));
        assert_eq!(find_queue(table, at(17352), at(54322)), None);
        let six = as_listed("[::ffff:127.0.0.1]:80".parse().unwrap());
        assert_eq!(six, "0000000000000000FFFF00000100007F:0050");
    }
}
