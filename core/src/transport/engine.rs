//! The Engine.IO session: packets, heartbeat and end, the same on websocket and on polling.
//!
//! Knows no namespaces: what is above it implements [`EngineHandler`] (Socket.IO does, and the echo
//! example). The tasks in `websocket` and `polling` own a [`Session`] and feed it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::caller::Caller;
use super::conn::{BROKEN, CALL, CLOSE, Conn, HANDLER_TICK, TICK, WRITABLE};
use super::permits::Permit;
use super::polling::Named;
use super::reader::Sink;
use super::socket::Socket;
use super::thread::{Registration, Thread};
use super::{Ending, Link};
use crate::wire::engine::Packet;
use crate::wire::frame;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What is spoken on top of Engine.IO: one for all connections.
pub trait EngineService: Send + Sync + 'static {
    /// A session has been opened; its open packet is in the line already.
    fn open(&self, link: Link) -> Box<dyn EngineHandler>;
}

/// One Engine.IO session as the layer above sees it. Called on the connection's own thread. A panic
/// inside ends this connection only.
pub trait EngineHandler: Send {
    /// A text message, without its `4`.
    ///
    /// # Errors
    /// A [`Violation`] closes the connection.
    fn text(&mut self, text: &str) -> Result<(), Violation>;
    /// A binary message.
    ///
    /// # Errors
    /// A [`Violation`] closes the connection.
    fn binary(&mut self, bytes: &[u8]) -> Result<(), Violation>;
    /// Bytes held for a message of several parts that is not complete yet; they count as under way
    /// into the process (P25).
    fn held(&self) -> usize {
        0
    }
    /// All packets of one read have been handed over.
    fn read_done(&mut self) {}
    /// See [`super::Handler::confirmed`].
    fn confirmed(&mut self, _position: u64) {}
    /// See [`super::Handler::writable`].
    fn writable(&mut self) {}
    /// A frame above the limit was read and thrown away (P21).
    fn oversize(&mut self, _binary: bool, _size: u64, _limit: u64) {}
    /// The clock tick, about four times a second or less.
    ///
    /// # Errors
    /// A [`Violation`] closes the connection.
    fn tick(&mut self) -> Result<(), Violation> {
        Ok(())
    }
    /// [`Link::call`] was called since.
    fn called(&mut self) {}
    /// The server closes: the last frames to the peer, if there is something to say.
    fn goodbye(&mut self) -> Bytes {
        Bytes::new()
    }
    /// The session has ended; nothing is called after this.
    fn closed(&mut self, _ending: Ending) {}
}

/// The peer has broken the protocol: the connection is closed, the text goes to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation(pub &'static str);

/// Why a connection stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The peer sent a websocket close; the answer is in the line.
    PeerClosed,
    /// The peer sent Engine.IO `1`.
    Goodbye,
    /// The peer broke a protocol; the websocket close code and the reason.
    Violation(u16, &'static str),
    /// The socket ended.
    Broken,
    /// No byte for too long.
    Silent,
    /// [`Link::close`].
    Asked,
    /// Ended without ceremony, for this reason.
    Cut(&'static str),
}

impl Stop {
    fn ending(self) -> Ending {
        match self {
            Self::PeerClosed | Self::Goodbye => Ending::Closed,
            Self::Broken => Ending::Broken,
            Self::Silent => Ending::Silent,
            Self::Violation(..) | Self::Asked | Self::Cut(_) => Ending::Ours,
        }
    }
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(1002, violation.0)
    }
}

/// A connection and what handles it. Ends the handler when dropped, if nobody did before.
pub(super) struct Session {
    pub conn: Arc<Conn>,
    handler: Option<Box<dyn EngineHandler>>,
    /// The name in the table of polling sessions, for one that began there.
    named: Option<Named>,
    _registration: Registration,
}

impl Session {
    /// Opens a session; its open packet goes down the line of a websocket. `None` if there is no
    /// room for it.
    pub(super) fn open(
        thread: &Arc<Thread>,
        caller: Caller,
        sid: &str,
        socket: Option<Arc<dyn Socket>>,
    ) -> Option<Self> {
        let shared = &thread.shared;
        let on_websocket = socket.is_some();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let conn = Conn::new(id, caller, thread.clone(), socket);
        let registration = thread.register(&conn)?;
        if on_websocket {
            let mut open = Vec::new();
            frame::text(&[shared.open_packet(sid, false).as_bytes()], &mut open);
            conn.push(open.into());
        }
        let link = Link::new(conn.clone(), sid);
        let opened = catch_unwind(AssertUnwindSafe(|| shared.service.open(link)));
        let Ok(handler) = opened else {
            tracing::error!("a service panicked; connection refused");
            return None;
        };
        if shared.pings_at_once {
            conn.start_heartbeat();
        }
        Some(Self {
            conn,
            handler: Some(handler),
            named: None,
            _registration: registration,
        })
    }

    /// Keeps the session's name in the table of polling sessions as long as the session lives.
    pub(super) fn name(&mut self, named: Named) {
        self.named = Some(named);
    }

    fn with(&mut self, call: impl FnOnce(&mut dyn EngineHandler)) {
        if let Some(handler) = &mut self.handler {
            call(&mut **handler);
        }
    }

    /// A step of this connection has panicked: logs it and says how to end.
    pub(super) fn panicked(&self) -> Stop {
        tracing::error!(
            connection = self.conn.id,
            "a handler panicked; connection closed"
        );
        Stop::Violation(1011, "internal error")
    }

    pub(super) fn read_done(&mut self) {
        self.with(|handler| handler.read_done());
    }

    pub(super) fn confirmed(&mut self, position: u64) {
        self.with(|handler| handler.confirmed(position));
    }

    /// Acts on signals.
    pub(super) fn on_signals(&mut self, signals: u32) -> Result<(), Stop> {
        if signals & BROKEN != 0 {
            return Err(Stop::Broken);
        }
        if signals & CLOSE != 0 {
            return Err(Stop::Asked);
        }
        if signals & WRITABLE != 0 {
            self.with(|handler| handler.writable());
        }
        if signals & CALL != 0 {
            self.with(|handler| handler.called());
        }
        if signals & HANDLER_TICK != 0
            && let Some(handler) = &mut self.handler
        {
            handler.tick()?;
        }
        if signals & TICK != 0 {
            self.conn.check()?;
        }
        Ok(())
    }

    /// Ends the handler; afterwards the line holds what the peer is still to hear.
    pub(super) fn end(&mut self, stop: Stop) {
        let Some(mut handler) = self.handler.take() else {
            return;
        };
        match stop {
            Stop::Violation(code, reason) => {
                tracing::debug!(
                    connection = self.conn.id,
                    code,
                    reason,
                    "protocol violation"
                );
            }
            Stop::Cut(reason) => {
                tracing::info!(connection = self.conn.id, reason, "connection cut");
            }
            _ => {}
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let last = match stop {
                Stop::Asked => handler.goodbye(),
                _ => Bytes::new(),
            };
            self.conn.push_last(last);
            handler.closed(stop.ending());
        }));
        if outcome.is_err() {
            tracing::error!(connection = self.conn.id, "a handler panicked at the end");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end(Stop::Asked);
        self.conn.bury();
        self.named = None;
    }
}

impl Sink for Session {
    #[inline]
    fn text(&mut self, text: &str) -> Result<(), Stop> {
        let Some(handler) = &mut self.handler else {
            return Ok(());
        };
        match Packet::parse(text) {
            Ok(Packet::Message(message)) => Ok(handler.text(message)?),
            Ok(Packet::Pong(_)) => {
                if let Some(position) = self.conn.pong() {
                    handler.confirmed(position);
                }
                Ok(())
            }
            Ok(Packet::Close) => Err(Stop::Goodbye),
            Ok(Packet::Ping(_)) => Err(Violation("a ping from the client").into()),
            // Left over from an upgrade, or meaningless: harmless.
            Ok(Packet::Open(_) | Packet::Upgrade | Packet::Noop) => Ok(()),
            Err(malformed) => Err(Violation(malformed.0).into()),
        }
    }

    fn binary(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        match &mut self.handler {
            Some(handler) => Ok(handler.binary(bytes)?),
            None => Ok(()),
        }
    }

    fn reply(&mut self, frame: Bytes) {
        self.conn.push(frame);
    }

    fn oversize(&mut self, binary: bool, size: u64) {
        let limit = self.conn.frame_limit() as u64;
        self.with(|handler| handler.oversize(binary, size, limit));
    }

    fn most(&self) -> usize {
        self.conn.frame_limit()
    }

    fn held(&self) -> usize {
        self.handler.as_ref().map_or(0, |handler| handler.held())
    }

    fn may_hold(&mut self, permit: &mut Option<Permit>, bytes: usize) -> bool {
        if let Some(permit) = permit {
            return permit.grow(bytes);
        }
        let permits = &self.conn.thread.shared.permits;
        *permit = permits.try_take(self.conn.charged(), bytes);
        permit.is_some()
    }
}
