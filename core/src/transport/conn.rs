//! One connection as every thread may see it: its line, its pulse, its ping and its signals.
//!
//! The task that owns the connection sleeps until a signal or the socket wakes it; everybody else
//! only changes this state and signals. Knows frames as bytes, no packets.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use super::caller::Caller;
use super::engine::Stop;
use super::line::{Line, Ping, Pulse, write_out};
use super::socket::Socket;
use super::thread::Thread;

/// Look at the line, the holds and the permits again.
pub(super) const LOOK: u32 = 1;
/// The line that had refused something has room.
pub(super) const WRITABLE: u32 = 1 << 1;
/// Look at the heartbeat.
pub(super) const TICK: u32 = 1 << 2;
/// Tell the handler the time.
pub(super) const HANDLER_TICK: u32 = 1 << 3;
/// Somebody wants the connection closed.
pub(super) const CLOSE: u32 = 1 << 4;
/// Writing failed: the peer is gone.
pub(super) const BROKEN: u32 = 1 << 5;
/// Somebody wants the handler called on its own thread.
pub(super) const CALL: u32 = 1 << 6;

/// The text frame `2`.
const PING: Bytes = Bytes::from_static(b"\x81\x012");

/// See the module.
pub(super) struct Conn {
    pub id: u64,
    pub caller: Caller,
    pub thread: Arc<Thread>,
    state: Mutex<State>,
    signals: AtomicU32,
    task: AtomicWaker,
    /// Whether the peer has shown a credential: larger permits and reads.
    trusted: AtomicBool,
    /// The largest frame that is read.
    frame_limit: AtomicUsize,
}

#[derive(Default)]
struct State {
    line: Line,
    pulse: Pulse,
    ping: Ping,
    /// Reading is held because the line is over its bound.
    over: bool,
    /// Absent while the connection is on long polling, and after its end.
    socket: Option<Arc<dyn Socket>>,
    /// Polling: the position handed to the poll that is not confirmed yet, and whether anybody
    /// wants to know.
    polled: u64,
    confirmed: u64,
    wants_confirm: bool,
}

impl Conn {
    pub(super) fn new(
        id: u64,
        caller: Caller,
        thread: Arc<Thread>,
        socket: Option<Arc<dyn Socket>>,
    ) -> Arc<Self> {
        let mut state = State {
            socket,
            ..State::default()
        };
        state.pulse.beat(thread.now());
        let frame_limit = thread.shared.config.max_frame_bytes();
        Arc::new(Self {
            id,
            caller,
            thread,
            state: Mutex::new(state),
            signals: AtomicU32::new(0),
            task: AtomicWaker::new(),
            trusted: AtomicBool::new(false),
            frame_limit: AtomicUsize::new(frame_limit),
        })
    }

    pub(super) fn signal(&self, signals: u32) {
        self.signals.fetch_or(signals, Ordering::Release);
        self.task.wake();
    }

    /// The signals since the last call, or later.
    pub(super) fn poll_signals(&self, cx: &mut Context<'_>) -> Poll<u32> {
        self.task.register(cx.waker());
        match self.take_signals() {
            0 => Poll::Pending,
            signals => Poll::Ready(signals),
        }
    }

    /// The signals since the last call.
    pub(super) fn take_signals(&self) -> u32 {
        self.signals.swap(0, Ordering::Acquire)
    }

    /// Appends if it fits; see [`super::Link::offer`].
    pub(super) fn offer(self: &Arc<Self>, frames: Bytes) -> Option<u64> {
        let bound = self.thread.shared.config.max_outbound_bytes;
        let mut state = self.state.lock();
        let line = &mut state.line;
        if line.closed {
            return None;
        }
        let shared = &self.thread.shared;
        let is_crowded = shared.outbound.load(Ordering::Relaxed) + frames.len()
            > shared.config.max_outbound_total;
        if line.bytes > 0 && (line.bytes + frames.len() > bound || is_crowded) {
            line.refused = true;
            return None;
        }
        Some(self.append(&mut state, frames))
    }

    /// Appends always, unless the connection is closing; see [`super::Link::reply`].
    pub(super) fn push(self: &Arc<Self>, frames: Bytes) -> u64 {
        let mut state = self.state.lock();
        if state.line.closed {
            return state.line.pushed;
        }
        self.append(&mut state, frames)
    }

    /// Appends what ends the connection; nothing can be pushed after it.
    pub(super) fn push_last(self: &Arc<Self>, frames: Bytes) {
        let mut state = self.state.lock();
        state.line.closed = true;
        self.append(&mut state, frames);
    }

    /// Appends what [`Conn::replace`] may yet take back; its place in the line.
    pub(super) fn push_replaceable(self: &Arc<Self>, frames: Bytes) -> usize {
        let mut state = self.state.lock();
        let place = state.line.queue.len();
        self.append(&mut state, frames);
        place
    }

    /// Replaces a piece. Only for the owner, before its task has given way: nothing of it is
    /// written until then.
    pub(super) fn replace(&self, place: usize, frames: Bytes) {
        let mut state = self.state.lock();
        let before = state.line.bytes;
        state.line.replace(place, frames);
        let outbound = &self.thread.shared.outbound;
        outbound.fetch_add(state.line.bytes, Ordering::Relaxed);
        outbound.fetch_sub(before, Ordering::Relaxed);
    }

    fn append(self: &Arc<Self>, state: &mut State, frames: Bytes) -> u64 {
        if frames.is_empty() {
            return state.line.pushed;
        }
        self.thread
            .shared
            .outbound
            .fetch_add(frames.len(), Ordering::Relaxed);
        let position = state.line.push(frames, self.thread.coarse_now());
        if !state.over && state.line.bytes > self.thread.shared.config.max_outbound_bytes {
            state.over = true;
            state.pulse.hold(self.thread.now());
        }
        if !state.line.listed && !state.line.blocked {
            state.line.listed = true;
            self.thread.list(self.clone());
        }
        position
    }

    /// Writes what waits. Called on the owner's thread only.
    pub(super) fn flush(&self) {
        let (socket, mut batch) = {
            let mut state = self.state.lock();
            state.line.listed = false;
            let Some(socket) = state.socket.clone() else {
                drop(state);
                return self.signal(LOOK);
            };
            (socket, std::mem::take(&mut state.line.queue))
        };
        // Not under the lock: another thread that pushes must not wait for the system call.
        let (taken, outcome) = write_out(&*socket, &mut batch);
        let mut state = self.state.lock();
        state.line.put_back(batch);
        state.line.blocked = outcome.is_err();
        let mut signals = self.took(&mut state, taken);
        drop(state);
        if let Err(error) = outcome {
            signals |= match error.kind() {
                std::io::ErrorKind::WouldBlock => LOOK,
                _ => BROKEN,
            };
        }
        if signals != 0 {
            self.signal(signals);
        }
    }

    /// Counts bytes as gone from the line; the signals that follow from it.
    fn took(&self, state: &mut State, taken: usize) -> u32 {
        let bound = self.thread.shared.config.max_outbound_bytes;
        state.line.took(taken);
        self.thread
            .shared
            .outbound
            .fetch_sub(taken, Ordering::Relaxed);
        let mut signals = 0;
        if state.over && state.line.bytes <= bound {
            state.over = false;
            state.pulse.release(self.thread.now());
            signals |= LOOK;
        }
        if state.line.refused && state.line.bytes <= bound / 2 {
            state.line.refused = false;
            signals |= WRITABLE;
        }
        signals
    }

    /// Polling: takes whole frames for one poll, about `limit` bytes; empty if none wait.
    pub(super) fn take_frames(&self, limit: usize) -> Vec<Bytes> {
        let mut state = self.state.lock();
        let (mut frames, mut sum) = (Vec::new(), 0);
        while let Some(mut piece) = state.line.queue.pop_front() {
            let whole = crate::wire::frame::take_whole(&piece, limit.saturating_sub(sum));
            if whole == 0 || (sum > 0 && sum + whole > limit) {
                state.line.queue.push_front(piece);
                break;
            }
            let rest = piece.split_off(whole);
            if !rest.is_empty() {
                state.line.queue.push_front(rest);
            }
            sum += whole;
            frames.push(piece);
        }
        state.polled = state.line.pushed - (state.line.bytes - sum) as u64;
        let signals = self.took(&mut state, sum);
        drop(state);
        if signals != 0 {
            self.signal(signals);
        }
        frames
    }

    /// Polling: the next GET has come, so what the last one got is confirmed.
    pub(super) fn polled(&self) -> Option<u64> {
        let mut state = self.state.lock();
        state.confirmed = state.polled;
        self.poll_confirmation(&mut state)
    }

    /// Polling: the position to report if somebody has asked and nothing newer was pushed.
    pub(super) fn unreported(&self) -> Option<u64> {
        let mut state = self.state.lock();
        (state.confirmed == state.line.pushed)
            .then(|| self.poll_confirmation(&mut state))
            .flatten()
    }

    fn poll_confirmation(&self, state: &mut State) -> Option<u64> {
        if !state.wants_confirm {
            return None;
        }
        state.wants_confirm = state.confirmed < state.line.pushed;
        Some(state.confirmed)
    }

    /// Asks for a confirmation of everything pushed so far (P6).
    pub(super) fn confirm(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.socket.is_none() {
            state.wants_confirm = true;
            drop(state);
            self.signal(LOOK);
        } else if state.ping.out.is_some() {
            state.ping.again = true;
        } else {
            self.ping(&mut state);
        }
    }

    /// Writes a ping unless one is out.
    pub(super) fn probe(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.ping.out.is_none() {
            self.ping(&mut state);
        }
    }

    fn ping(self: &Arc<Self>, state: &mut State) {
        if !state.line.closed {
            state.ping.out = Some(state.line.pushed);
            self.append(state, PING);
        }
    }

    /// A pong has come: the position it confirms, unless it is a stray one.
    pub(super) fn pong(self: &Arc<Self>) -> Option<u64> {
        let mut state = self.state.lock();
        let position = state.ping.out.take()?;
        state.ping.due = self.thread.now() + self.thread.shared.config.ping_interval;
        if std::mem::take(&mut state.ping.again) {
            self.ping(&mut state);
        }
        Some(position)
    }

    /// Starts the heartbeat, once.
    pub(super) fn start_heartbeat(&self) {
        let mut state = self.state.lock();
        if !state.ping.started {
            state.ping.started = true;
            state.ping.due = self.thread.now() + self.thread.shared.config.ping_interval;
        }
    }

    /// Looks whether the peer still lives and reads, and writes a heartbeat that is due.
    pub(super) fn check(self: &Arc<Self>) -> Result<(), Stop> {
        let config = &self.thread.shared.config;
        let now = self.thread.now();
        let mut state = self.state.lock();
        if state.pulse.silence(now) >= config.ping_interval + config.ping_timeout {
            return Err(Stop::Silent);
        }
        if state.line.is_stuck(now, config.stuck_timeout) {
            return Err(Stop::Cut("the reader took nothing for too long"));
        }
        let ping = &mut state.ping;
        if ping.started && ping.out.is_none() && now >= ping.due {
            ping.due = now + config.ping_interval;
            self.ping(&mut state);
        }
        Ok(())
    }

    /// Bytes have arrived.
    pub(super) fn beat(&self, now: Duration) {
        self.state.lock().pulse.beat(now);
    }

    pub(super) fn silence(&self) -> Duration {
        let now = self.thread.now();
        self.state.lock().pulse.silence(now)
    }

    /// One more reason not to read.
    pub(super) fn hold(&self) {
        let now = self.thread.now();
        self.state.lock().pulse.hold(now);
    }

    /// One reason less.
    pub(super) fn release(&self) {
        let now = self.thread.now();
        if self.state.lock().pulse.release(now) {
            self.signal(LOOK);
        }
    }

    /// Whether to read now, and whether the socket must be waited for to write on.
    pub(super) fn wants(&self) -> (bool, bool) {
        let state = self.state.lock();
        (!state.pulse.is_held(), state.line.blocked)
    }

    pub(super) fn is_held(&self) -> bool {
        self.state.lock().pulse.is_held()
    }

    /// Bytes an [`Conn::offer`] would take.
    pub(super) fn room(&self) -> usize {
        let state = self.state.lock();
        let bound = self.thread.shared.config.max_outbound_bytes;
        match state.line.closed {
            true => 0,
            false => bound.saturating_sub(state.line.bytes),
        }
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().line.bytes
    }

    /// Closes the line to further frames and asks the owner to end the connection.
    pub(super) fn close(&self) {
        self.state.lock().line.closed = true;
        self.signal(CLOSE);
    }

    /// A websocket takes over from polling: what waits goes there from now on.
    pub(super) fn install(self: &Arc<Self>, socket: Arc<dyn Socket>) {
        let mut state = self.state.lock();
        state.socket = Some(socket);
        let asked = std::mem::take(&mut state.wants_confirm);
        if !state.line.queue.is_empty() && !state.line.listed {
            state.line.listed = true;
            self.thread.list(self.clone());
        }
        drop(state);
        if asked {
            self.confirm();
        }
    }

    /// The end: lets the socket and all that waits go, whoever still holds this.
    pub(super) fn bury(&self) {
        let mut state = self.state.lock();
        state.line.closed = true;
        let bytes = std::mem::take(&mut state.line.bytes);
        self.thread
            .shared
            .outbound
            .fetch_sub(bytes, Ordering::Relaxed);
        let waiting = std::mem::take(&mut state.line.queue);
        let socket = state.socket.take();
        drop(state);
        drop((waiting, socket));
    }

    pub(super) fn socket(&self) -> Option<Arc<dyn Socket>> {
        self.state.lock().socket.clone()
    }

    pub(super) fn is_trusted(&self) -> bool {
        self.trusted.load(Ordering::Relaxed)
    }

    pub(super) fn set_trusted(&self, trusted: bool) {
        self.trusted.store(trusted, Ordering::Relaxed);
    }

    /// Frames and bodies up to this many bytes are read.
    pub(super) fn frame_limit(&self) -> usize {
        self.frame_limit.load(Ordering::Relaxed)
    }

    pub(super) fn limit_frames(&self, most: Option<usize>) {
        let all = self.thread.shared.config.max_frame_bytes();
        let limit = most.map_or(all, |most| most.min(all));
        self.frame_limit.store(limit, Ordering::Relaxed);
    }

    /// Whom permits are charged to.
    pub(super) fn charged(&self) -> Option<IpAddr> {
        (!self.is_trusted()).then(|| self.caller.remote.ip())
    }
}

/// A permit that comes back wakes the connection that waits for it.
impl Wake for Conn {
    fn wake(self: Arc<Self>) {
        self.signal(LOOK);
    }
}
