//! The task of a connection on a websocket: reads, acts on signals, ends.
//!
//! One poll function instead of several futures keeps an idle connection small. Writing is done by
//! the thread's flusher; this task finishes only what the socket did not take at once.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::conn::{BROKEN, Conn, LOOK, TICK};
use super::engine::{Session, Stop};
use super::reader::Reader;
use super::socket::{Socket, readable};
use super::thread::Seat;
use crate::wire::frame;

/// How long a connection that we close may take to hear it.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// Bytes of one read from a peer without credential.
const CAUTIOUS: usize = 64 << 10;

thread_local! {
    /// One buffer for all reads of a thread.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the thread's read buffer of `size` bytes.
pub(super) fn with_scratch<T>(size: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with(|cell| {
        let mut scratch = cell.take();
        scratch.resize(size, 0);
        let outcome = work(&mut scratch);
        cell.set(scratch);
        outcome
    })
}

/// What woke the task.
enum Woken {
    Signals(u32),
    Readable,
    Writable,
}

/// See the module.
pub(super) struct WebSocket {
    session: Session,
    socket: Arc<dyn Socket>,
    reader: Reader,
    /// When a frame that waits for a permit has waited long enough.
    starves_until: Option<Duration>,
    /// The last read filled its buffer, so that others get their turn before the next.
    greedy: bool,
    _seat: Arc<Seat>,
}

impl WebSocket {
    pub(super) fn new(
        session: Session,
        socket: Arc<dyn Socket>,
        reader: Reader,
        seat: Arc<Seat>,
    ) -> Box<Self> {
        Box::new(Self {
            session,
            socket,
            reader,
            starves_until: None,
            greedy: false,
            _seat: seat,
        })
    }

    /// Runs until the connection has ended. `early` has come with the HTTP request. Boxed, as its
    /// end is: a task keeps room for all it may ever hold, several times over.
    pub(super) async fn run(mut self: Box<Self>, mut early: Vec<u8>) {
        let mut outcome = self.step(|this| this.feed(&mut early));
        drop(early);
        while outcome.is_ok() {
            let woken = poll_fn(|cx| self.poll_woken(cx)).await;
            outcome = self.step(|this| this.act(woken));
        }
        if let Err(stop) = outcome {
            Box::pin(self.finish(stop)).await;
        }
    }

    /// One step; a panic of the handler in it is caught.
    fn step(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(self)))
            .unwrap_or_else(|_| Err(self.session.panicked()))
    }

    fn poll_woken(&mut self, cx: &mut Context<'_>) -> Poll<Woken> {
        if let Poll::Ready(signals) = self.session.conn.poll_signals(cx) {
            return Poll::Ready(Woken::Signals(signals));
        }
        let (reads, writes) = self.session.conn.wants();
        // An error shows again in the read or write that follows.
        if writes && self.socket.poll_writable(cx).is_ready() {
            return Poll::Ready(Woken::Writable);
        }
        if reads {
            if self.greedy {
                self.greedy = false;
                cx.waker().wake_by_ref();
            } else if self.socket.poll_readable(cx).is_ready() {
                return Poll::Ready(Woken::Readable);
            }
        }
        Poll::Pending
    }

    fn act(&mut self, woken: Woken) -> Result<(), Stop> {
        match woken {
            Woken::Readable => self.read(),
            Woken::Writable => {
                self.session.conn.flush();
                Ok(())
            }
            Woken::Signals(signals) => {
                match self.session.on_signals(signals) {
                    // The peer may have said goodbye before it went: that decides (P10).
                    Err(Stop::Broken) if !self.session.conn.is_held() => return self.read_to_end(),
                    outcome => outcome?,
                }
                if signals & (LOOK | TICK) != 0 && self.reader.is_starving() {
                    self.retry()?;
                }
                Ok(())
            }
        }
    }

    fn read(&mut self) -> Result<(), Stop> {
        let conn = &self.session.conn;
        let config = &conn.thread.shared.config;
        let size = match conn.is_trusted() {
            true => config.read_size,
            false => config.read_size.min(CAUTIOUS),
        };
        with_scratch(config.read_size, |scratch| {
            match self.socket.try_read(&mut scratch[..size]) {
                Ok(0) => Err(Stop::Broken),
                Ok(count) => {
                    self.greedy = count == size;
                    self.session.conn.beat(self.session.conn.thread.now());
                    self.feed(&mut scratch[..count])
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
                    _ => Err(Stop::Broken),
                },
            }
        })
    }

    fn read_to_end(&mut self) -> Result<(), Stop> {
        loop {
            self.greedy = false;
            self.read()?;
            if !self.greedy || self.reader.is_starving() {
                return Err(Stop::Broken);
            }
        }
    }

    fn feed(&mut self, bytes: &mut [u8]) -> Result<(), Stop> {
        let outcome = self.reader.feed(bytes, &mut self.session);
        self.session.read_done();
        outcome?;
        if self.reader.is_starving() && self.starves_until.is_none() {
            let conn = &self.session.conn;
            let shared = &conn.thread.shared;
            conn.hold();
            self.starves_until = Some(conn.thread.now() + shared.config.permit_timeout);
            self.retry()?;
        }
        Ok(())
    }

    /// Asks for the missing permit again.
    fn retry(&mut self) -> Result<(), Stop> {
        // First to the queue, then look: a permit that comes back in between is not missed.
        let conn = &self.session.conn;
        let waker = Waker::from(conn.clone());
        conn.thread.shared.permits.wake_on_return(&waker);
        let outcome = self.reader.retry(&mut self.session);
        self.session.read_done();
        outcome?;
        let conn = &self.session.conn;
        if !self.reader.is_starving() {
            self.starves_until = None;
            conn.release();
        } else if self
            .starves_until
            .is_some_and(|until| conn.thread.now() >= until)
        {
            return Err(Stop::Cut("no permit for a large frame in time"));
        }
        Ok(())
    }

    /// Ends the handler at once, then lets the peer hear what waits.
    async fn finish(mut self, stop: Stop) {
        self.session.end(stop);
        let (code, reason) = match stop {
            Stop::Broken | Stop::Silent | Stop::Cut(_) => return,
            Stop::PeerClosed => (None, ""),
            Stop::Goodbye | Stop::Asked => (Some(1000), ""),
            Stop::Violation(code, reason) => (Some(code), reason),
        };
        if let Some(code) = code {
            let mut close = Vec::new();
            frame::close(code, reason, &mut close);
            self.session.conn.push_last(Bytes::from(close));
        }
        let clock = self.session.conn.thread.shared.clock.clone();
        let deadline = clock.sleep_until(clock.elapsed() + LINGER);
        tokio::select! {
            () = linger(&self.session.conn, &*self.socket) => {}
            () = deadline => {}
        }
    }
}

/// Writes what waits, then waits for the peer's end: a socket closed over unread bytes would
/// be reset, and the peer might never see the last frames.
async fn linger(conn: &Conn, socket: &dyn Socket) {
    let is_out = || conn.waiting() == 0 && socket.try_flush().is_ok();
    while !is_out() {
        conn.flush();
        if !is_out() {
            let ready = poll_fn(|cx| socket.poll_writable(cx)).await;
            if ready.is_err() || conn.take_signals() & BROKEN != 0 {
                return;
            }
        }
    }
    socket.finish();
    loop {
        let size = conn.thread.shared.config.read_size;
        match with_scratch(size, |scratch| socket.try_read(scratch)) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if readable(socket).await.is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
