//! A websocket that wants to take over a polling session: `2probe`, `3probe`, `5`.
//!
//! Nothing of the session goes through it before the `5`; what comes behind the `5` in the same
//! read is the session's already, in order. Owned by the task in [`super::polling`].

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::engine::{Session, Stop};
use super::permits::Permit;
use super::reader::{Reader, Sink};
use super::socket::Socket;
use super::thread::Seat;
use super::websocket::with_scratch;
use crate::wire::engine::Packet;
use crate::wire::frame;

/// Larger reads are not needed for a probe.
const READ: usize = 16 << 10;

/// A websocket that came in for a polling session, perhaps on another thread.
pub(super) struct Offer {
    /// Attaches the socket to the thread that calls it.
    pub attach: Box<dyn FnOnce() -> io::Result<Arc<dyn Socket>> + Send>,
    /// Bytes that came with the HTTP request.
    pub early: Vec<u8>,
    pub seat: Arc<Seat>,
}

/// See the module.
pub(super) struct Probe {
    pub socket: Arc<dyn Socket>,
    pub reader: Reader,
    pub seat: Arc<Seat>,
    /// When it has taken too long.
    pub deadline: Duration,
    answered: bool,
}

/// How far a probe has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    TakenOver,
    Failed,
}

impl Probe {
    /// Attaches the socket to this thread; the bytes that came with the request are to be fed.
    pub(super) fn start(
        offer: Offer,
        deadline: Duration,
        limit: usize,
    ) -> io::Result<(Self, Vec<u8>)> {
        let probe = Self {
            socket: (offer.attach)()?,
            reader: Reader::new(limit),
            seat: offer.seat,
            deadline,
            answered: false,
        };
        Ok((probe, offer.early))
    }

    /// Whether `3probe` has been sent: polls end at once from now on.
    pub(super) fn is_answered(&self) -> bool {
        self.answered
    }

    /// Reads what is there.
    pub(super) fn read(&mut self, session: &mut Session) -> Result<Progress, Stop> {
        with_scratch(session.conn.thread.shared.config.read_size, |scratch| {
            let size = scratch.len().min(READ);
            match self.socket.try_read(&mut scratch[..size]) {
                Ok(0) => Ok(Progress::Failed),
                Ok(count) => self.feed(&mut scratch[..count], session),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Progress::Waiting),
                Err(_) => Ok(Progress::Failed),
            }
        })
    }

    /// Takes bytes; an error ends the session, not only the probe.
    pub(super) fn feed(
        &mut self,
        bytes: &mut [u8],
        session: &mut Session,
    ) -> Result<Progress, Stop> {
        let mut sink = ProbeSink {
            session,
            answered: self.answered,
            taken_over: false,
            replies: Vec::new(),
        };
        let outcome = self.reader.feed(bytes, &mut sink);
        let ProbeSink {
            answered,
            taken_over,
            replies,
            ..
        } = sink;
        self.answered = answered;
        // A few bytes into an empty socket: what does not fit means a dead peer.
        let written = replies.is_empty()
            || self
                .socket
                .try_write_vectored(&[IoSlice::new(&replies)])
                .is_ok_and(|written| written == replies.len());
        if taken_over {
            session.conn.beat(session.conn.thread.now());
            session.read_done();
            outcome?;
            return Ok(Progress::TakenOver);
        }
        match outcome {
            Ok(()) if written && !self.reader.is_starving() => Ok(Progress::Waiting),
            _ => Ok(Progress::Failed),
        }
    }
}

struct ProbeSink<'a> {
    session: &'a mut Session,
    answered: bool,
    taken_over: bool,
    replies: Vec<u8>,
}

impl Sink for ProbeSink<'_> {
    fn text(&mut self, text: &str) -> Result<(), Stop> {
        if self.taken_over {
            return self.session.text(text);
        }
        match Packet::parse(text) {
            Ok(Packet::Ping("probe")) => {
                self.answered = true;
                frame::text(&[b"3probe"], &mut self.replies);
                Ok(())
            }
            Ok(Packet::Upgrade) if self.answered => {
                self.taken_over = true;
                Ok(())
            }
            _ => Err(Stop::Cut("not an upgrade")),
        }
    }

    fn binary(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        match self.taken_over {
            true => self.session.binary(bytes),
            false => Err(Stop::Cut("not an upgrade")),
        }
    }

    fn reply(&mut self, frame: Bytes) {
        self.replies.extend_from_slice(&frame);
    }

    fn oversize(&mut self, binary: bool, size: u64) {
        if self.taken_over {
            self.session.oversize(binary, size);
        }
    }

    fn most(&self) -> usize {
        self.session.most()
    }

    fn held(&self) -> usize {
        match self.taken_over {
            true => self.session.held(),
            false => 0,
        }
    }

    fn may_hold(&mut self, permit: &mut Option<Permit>, bytes: usize) -> bool {
        self.taken_over && self.session.may_hold(permit, bytes)
    }
}
