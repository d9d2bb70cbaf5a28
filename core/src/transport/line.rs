//! What waits to be written to one connection, the beat of the peer, and the ping that is out.
//!
//! Plain state under one lock; knows no socket and wakes nobody. [`super::conn`] decides what to do
//! with the answers.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::socket::Socket;

/// A reader that takes less than this in `stuck_timeout` while frames wait counts as stuck.
const CRAWL: usize = 64 << 10;

/// Pieces handed to one write.
const PIECES: usize = 64;

/// The line of frames to one connection. Slots are there only while something waits.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub queue: VecDeque<Bytes>,
    /// Bytes not yet written, those being written included.
    pub bytes: usize,
    /// Bytes ever pushed: the position of the end of the line.
    pub pushed: u64,
    /// Whether the thread's list of dirty connections has this one.
    pub listed: bool,
    /// Something was refused: the handler wants to hear of room.
    pub refused: bool,
    /// The socket took no more; the connection's task waits for it.
    pub blocked: bool,
    /// Nothing may be pushed any more.
    pub closed: bool,
    /// When the measuring of the reader's speed began, and what it has taken since.
    since: Duration,
    taken: usize,
}

impl Line {
    /// Appends; the position after it.
    pub(super) fn push(&mut self, frames: Bytes, now: Duration) -> u64 {
        if self.bytes == 0 {
            (self.since, self.taken) = (now, 0);
        }
        self.bytes += frames.len();
        self.pushed += frames.len() as u64;
        self.queue.push_back(frames);
        self.pushed
    }

    /// Replaces the piece at `place`, which must not have been written yet.
    pub(super) fn replace(&mut self, place: usize, frames: Bytes) {
        if let Some(piece) = self.queue.get_mut(place) {
            self.bytes = self.bytes - piece.len() + frames.len();
            self.pushed = self.pushed - piece.len() as u64 + frames.len() as u64;
            *piece = frames;
        }
    }

    /// Notes that `bytes` have been written.
    pub(super) fn took(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.taken += bytes;
    }

    /// Puts back what a write has left over. The slots of a line that has run dry are freed.
    pub(super) fn put_back(&mut self, mut left: VecDeque<Bytes>) {
        if !left.is_empty() {
            left.append(&mut self.queue);
            self.queue = left;
        }
    }

    /// Whether the reader has been (nearly) standing still for `timeout`.
    pub(super) fn is_stuck(&mut self, now: Duration, timeout: Duration) -> bool {
        if self.bytes == 0 || self.taken >= CRAWL {
            (self.since, self.taken) = (now, 0);
        }
        now.saturating_sub(self.since) >= timeout
    }
}

/// Writes as much of `batch` as the socket takes: bytes taken, and the error that ended it.
/// `WouldBlock` means that the socket is full.
pub(super) fn write_out(
    socket: &dyn Socket,
    batch: &mut VecDeque<Bytes>,
) -> (usize, io::Result<()>) {
    let mut sum = 0;
    while !batch.is_empty() {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let count = batch.len().min(PIECES);
        for (slot, piece) in pieces.iter_mut().zip(batch.iter()) {
            *slot = IoSlice::new(piece);
        }
        match socket.try_write_vectored(&pieces[..count]) {
            Ok(0) => return (sum, Err(io::ErrorKind::WriteZero.into())),
            Ok(taken) => {
                sum += taken;
                advance(batch, taken);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (sum, Err(error)),
        }
    }
    // What a socket has taken to make something of it is to leave too.
    (sum, socket.try_flush())
}

fn advance(batch: &mut VecDeque<Bytes>, mut taken: usize) {
    while let Some(first) = batch.front_mut() {
        if first.len() > taken {
            first.advance(taken);
            return;
        }
        taken -= first.len();
        batch.pop_front();
    }
}

/// The peer's sign of life. Time stands still while we do not read (P24).
#[derive(Debug, Default)]
pub(super) struct Pulse {
    last: Duration,
    holds: u32,
    held_since: Duration,
}

impl Pulse {
    /// A byte has arrived.
    pub(super) fn beat(&mut self, now: Duration) {
        self.last = now;
        self.held_since = now;
    }

    /// One more reason not to read.
    pub(super) fn hold(&mut self, now: Duration) {
        if self.holds == 0 {
            self.held_since = now;
        }
        self.holds += 1;
    }

    /// One reason less; true when none is left.
    pub(super) fn release(&mut self, now: Duration) -> bool {
        if self.holds == 1 {
            self.last += now.saturating_sub(self.held_since);
        }
        self.holds = self.holds.saturating_sub(1);
        self.holds == 0
    }

    /// Whether there is a reason not to read.
    pub(super) fn is_held(&self) -> bool {
        self.holds > 0
    }

    /// Time since the last byte, without the time in which we did not read.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        let until = if self.is_held() { self.held_since } else { now };
        until.saturating_sub(self.last)
    }
}

/// Pings to the peer: at most one is out (P6).
#[derive(Debug, Default)]
pub(super) struct Ping {
    /// Whether heartbeats are sent: from the first namespace on.
    pub started: bool,
    /// The position that the pong will confirm.
    pub out: Option<u64>,
    /// A confirmation was asked for while one was out.
    pub again: bool,
    /// When the next heartbeat is due.
    pub due: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn silence_does_not_grow_while_we_do_not_read() {
        let mut pulse = Pulse::default();
        pulse.beat(secs(10));
        pulse.hold(secs(13));
        pulse.hold(secs(14));
        assert_eq!(pulse.silence(secs(100)), secs(3));
        assert!(!pulse.release(secs(50)));
        assert_eq!(pulse.silence(secs(100)), secs(3));
        assert!(pulse.release(secs(100)));
        assert_eq!(pulse.silence(secs(102)), secs(5));
    }

    #[test]
    fn a_crawling_reader_is_stuck_and_a_slow_one_is_not() {
        let mut line = Line::default();
        line.push(vec![0; 1 << 20].into(), secs(0));
        assert!(!line.is_stuck(secs(29), secs(30)));
        line.took(CRAWL);
        assert!(!line.is_stuck(secs(31), secs(30)));
        line.took(100);
        assert!(line.is_stuck(secs(61), secs(30)));
    }

    #[test]
    fn a_dry_line_is_never_stuck_and_starts_anew() {
        let mut line = Line::default();
        assert!(!line.is_stuck(secs(1000), secs(30)));
        line.push(vec![0; 10].into(), secs(1000));
        assert!(!line.is_stuck(secs(1001), secs(30)));
        assert!(line.is_stuck(secs(1030), secs(30)));
    }
}
