//! One link: a TCP socket from its connect to its loss, and all bytes on it.
//!
//! Writes what the state has gathered in large writes, reads in large reads, and rings the sink
//! once per read. What the packets mean is in `link/packets.rs`. Called by the task of the
//! connection.

mod packets;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Interest;

use super::answer::closed;
use super::frames;
use super::options::ConnectOptions;
use super::shared::Shared;
use super::sink::ClientEvent;
use super::socket::{Opened, Opening, Socket, gone};
use super::subscriptions::Names;
use super::wire::Wire;
use crate::clock::{Clock, Elapsed};
use crate::protocol::chunk::Assembler;
use crate::{Error, ErrorKind, Result};

/// How long connect and handshake may take together, and each step after them.
const STEP: Duration = Duration::from_secs(10);
/// What stands around a message in its frame.
const ENVELOPE: usize = 1 << 20;
/// A buffer above this is given back when it is empty.
const KEEP: usize = 1 << 20;
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Why a link ended.
pub(super) struct Lost {
    pub(super) error: Error,
    /// Trying again would change nothing.
    pub(super) for_good: bool,
    /// How long it had been up.
    pub(super) lasted: Duration,
}

impl Lost {
    /// It was never up.
    pub(super) fn before(error: Error) -> Self {
        Self {
            error,
            for_good: false,
            lasted: Duration::ZERO,
        }
    }
}

/// How far the session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for the open packet.
    Open,
    /// Waits for the answer to CONNECT.
    Join,
    /// Waits for AUTH_OK.
    Auth,
    /// Registered.
    Up,
}

pub(super) struct Link<'s> {
    shared: &'s Shared,
    stream: Wire,
    socket: Box<Socket>,
    is_first: bool,
    stage: Stage,
    /// When the stage has to be over.
    stage_end: Elapsed,
    up_since: Option<Elapsed>,
    socket_id: String,
    /// What is being written, and how much of it has been.
    out: Vec<u8>,
    written: usize,
    /// The server pings this often …
    interval: Duration,
    /// … and the link is dead after this much silence.
    silence: Duration,
    last_heard: Elapsed,
    /// The last byte of ours while we do not read.
    last_said: Elapsed,
    /// The sink was told something since its bell.
    was_told: bool,
    /// The error that ends the connection for good.
    down: Option<Error>,
    names: Arc<Names>,
    assembler: Assembler,
    partial: Option<packets::Partial>,
}

/// Whether the protocol is one under TLS.
fn is_secure(options: &ConnectOptions) -> Result<bool> {
    match &*options.protocol {
        "http" | "ws" => Ok(false),
        "https" | "wss" => Ok(true),
        other => Err(Error::new(
            ErrorKind::Config,
            format!("protocol {other:?} is not known, use http or https"),
        )),
    }
}

/// The address as the handshake says it.
fn url(options: &ConnectOptions) -> String {
    let host = match options.host.contains(':') {
        true => format!("[{}]", options.host.trim_matches(['[', ']'])),
        false => options.host.clone(),
    };
    let path = options.path.trim_start_matches('/');
    format!(
        "ws://{host}:{}/{path}?EIO=4&transport=websocket",
        options.port
    )
}

/// Connects and opens the websocket.
async fn connect(options: &ConnectOptions, is_first: bool) -> Result<(Wire, Box<Socket>)> {
    let broken = |error: io::Error| gone(error.to_string());
    let is_secure = is_secure(options)?;
    let url = url(options);
    let mut stream = Wire::connect(options, is_secure, is_first).await?;
    let limit = options.max_message_bytes.saturating_add(ENVELOPE);
    let mut opened = Opening::start(&url, limit)?;
    loop {
        let mut opening = match opened {
            Opened::Open(socket) => return Ok((stream, socket)),
            Opened::More(opening) => opening,
        };
        let request = std::mem::take(opening.output());
        stream.write_all(&request).await.map_err(broken)?;
        stream.ready(Interest::READABLE).await.map_err(broken)?;
        match stream.try_read_buf(opening.input()) {
            Ok(0) => return Err(gone("the server hung up")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(broken(error)),
        }
        if opening.is_answered_in_tls() {
            let ConnectOptions { host, port, .. } = options;
            let text = format!("{host}:{port} speaks TLS: use https://{host}:{port}");
            return Err(gone(text));
        }
        opened = opening.advance()?;
    }
}

impl<'s> Link<'s> {
    /// Connects, up to the open websocket.
    ///
    /// # Errors
    /// `disconnected`; `unsupported` and `config` for options that will never work.
    pub(super) async fn open(shared: &'s Shared, is_first: bool) -> Result<Self> {
        let options = &shared.fixed.options;
        let connected = tokio::time::timeout(STEP, connect(options, is_first)).await;
        let (stream, socket) =
            connected.unwrap_or_else(|_| Err(gone("the server does not answer")))?;
        let now = shared.clock.elapsed();
        Ok(Self {
            shared,
            stream,
            socket,
            is_first,
            stage: Stage::Open,
            stage_end: now.saturating_add(STEP),
            up_since: None,
            socket_id: String::new(),
            out: Vec::new(),
            written: 0,
            interval: Duration::from_secs(25),
            silence: Duration::from_secs(45),
            last_heard: now,
            last_said: now,
            was_told: false,
            down: None,
            names: Arc::default(),
            assembler: Assembler::new(options.max_message_bytes.saturating_add(ENVELOPE)),
            partial: None,
        })
    }

    /// Serves until the link is lost or the connection closes.
    pub(super) async fn serve(mut self) -> Lost {
        let error = match self.drive().await {
            Ok(()) => closed(),
            Err(error) => error,
        };
        let now = self.shared.clock.elapsed();
        Lost {
            for_good: self.down.is_some(),
            error: self.down.unwrap_or(error),
            lasted: self
                .up_since
                .map_or(Duration::ZERO, |up| now.saturating_sub(up)),
        }
    }

    async fn drive(&mut self) -> Result<()> {
        let shared = self.shared;
        let mut closing = shared.closing.subscribe();
        // The handshake's last read may have brought more.
        self.take_all()?;
        loop {
            self.refill();
            self.write()?;
            if self.written == self.out.len() && !self.out.is_empty() {
                // The line may hold more than one buffer took, and its drain is still to be told:
                // nobody else would wake us for that.
                shared.wake.notify_one();
            }
            self.ring();
            let until = *closing.borrow_and_update();
            if let Some(until) = until
                && self.may_leave(until)
            {
                return self.leave(until).await;
            }
            let may_read = self.stage != Stage::Up || shared.sink.wants_more();
            let interest = self.interest(may_read);
            let timer = self.timer(may_read, until);
            let ready = tokio::select! {
                ready = ready(&self.stream, interest) => Some(ready.map_err(|e| gone(e.to_string()))?),
                () = shared.wake.notified() => None,
                () = shared.clock.sleep_until(timer) => {
                    self.look_at_the_time(may_read)?;
                    None
                }
                _ = closing.changed() => None,
            };
            if may_read && ready.is_some_and(|ready| ready.is_readable()) {
                self.read()?;
                // Others on this thread want to run too.
                tokio::task::coop::consume_budget().await;
            }
        }
    }

    fn interest(&self, may_read: bool) -> Option<Interest> {
        // Also when all of it is written: only an empty refill shows that nothing came meanwhile.
        let must_write = !self.out.is_empty() || self.stream.wants_write();
        match (may_read, must_write) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        }
    }

    /// Fills an empty buffer with what there is to say.
    fn refill(&mut self) {
        if self.written < self.out.len() {
            return;
        }
        self.out.clear();
        self.written = 0;
        if self.out.capacity() > KEEP {
            self.out = Vec::new();
        }
        if self.stage == Stage::Up {
            let now = self.shared.clock.elapsed();
            let mut state = self.shared.state.lock();
            let (outcomes, is_drained) = state.take_line(&mut self.out, now, &self.shared.fixed);
            let is_idle = state.is_idle();
            drop(state);
            self.was_told |= self.shared.tell(outcomes);
            if is_drained {
                self.tell(ClientEvent::Drain);
            }
            if is_idle {
                self.shared.ring_idle();
            }
        }
        self.out.append(self.socket.output());
    }

    fn write(&mut self) -> Result<()> {
        self.stream
            .try_flush()
            .map_err(|error| gone(error.to_string()))?;
        while self.written < self.out.len() {
            match self.stream.try_write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(gone(error.to_string())),
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let input = self.socket.input();
        match self.stream.try_read_buf(input) {
            Ok(0) => return Err(gone("the server hung up")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(gone(error.to_string())),
        }
        self.last_heard = self.shared.clock.elapsed();
        self.take_all()
    }

    /// Takes every message that has been read.
    fn take_all(&mut self) -> Result<()> {
        self.names = self.shared.state.lock().names();
        while let Some(incoming) = self.socket.next()? {
            self.take(incoming)?;
        }
        Ok(())
    }

    fn tell(&mut self, event: ClientEvent<'_>) {
        self.shared.sink.event(event);
        self.was_told = true;
    }

    fn ring(&mut self) {
        if std::mem::take(&mut self.was_told) {
            self.shared.sink.batch_end();
        }
    }

    /// When to look at the time next.
    fn timer(&self, may_read: bool, closing: Option<Elapsed>) -> Elapsed {
        let own = match (self.stage, may_read) {
            (Stage::Up, true) => self.last_heard.saturating_add(self.silence),
            (Stage::Up, false) => self.last_said.saturating_add(self.interval),
            _ => self.stage_end,
        };
        closing.map_or(own, |closing| own.min(closing))
    }

    fn look_at_the_time(&mut self, may_read: bool) -> Result<()> {
        let now = self.shared.clock.elapsed();
        match (self.stage, may_read) {
            (Stage::Up, true) if self.last_heard.saturating_add(self.silence) <= now => {
                Err(gone("the server has fallen silent"))
            }
            (Stage::Up, false) if self.last_said.saturating_add(self.interval) <= now => {
                // While we do not read, its pings stay unanswered: any byte keeps us alive.
                frames::frame(self.socket.output(), frames::PONG, 0, |_| {});
                self.last_said = now;
                // Nor do we hear anything.
                self.last_heard = now;
                Ok(())
            }
            (Stage::Up, _) => Ok(()),
            (stage, _) if self.stage_end <= now => Err(self.too_late(stage)),
            _ => Ok(()),
        }
    }

    /// A login that is not answered fails the first connection for good, as the others do not.
    fn too_late(&mut self, stage: Stage) -> Error {
        if stage != Stage::Auth {
            return gone("the server does not answer");
        }
        let error = Error::new(ErrorKind::Timeout, "the server did not answer the login");
        self.down = self.is_first.then(|| error.clone());
        error
    }

    /// Whether a closing connection has nothing more to do, or no more time.
    fn may_leave(&self, until: Elapsed) -> bool {
        self.stage != Stage::Up
            || until <= self.shared.clock.elapsed()
            || (self.written == self.out.len() && self.shared.state.lock().is_done())
    }

    /// Says goodbye and waits for the other side to hang up, so that it reads all of it: an
    /// end without `41` counts as a failure of what we hold (P10).
    async fn leave(&mut self, until: Elapsed) -> Result<()> {
        if self.stage == Stage::Up {
            frames::text(self.socket.output(), "41");
        }
        self.socket.close();
        self.out.append(self.socket.output());
        let left = until.saturating_sub(self.shared.clock.elapsed());
        let left = left.clamp(GOODBYE / 10, GOODBYE);
        let goodbye = async {
            self.stream.write_all(&self.out[self.written..]).await?;
            self.stream.shutdown().await?;
            let mut rest = Vec::new();
            loop {
                self.stream.ready(Interest::READABLE).await?;
                rest.clear();
                match self.stream.try_read_buf(&mut rest) {
                    Ok(0) => return io::Result::Ok(()),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
        };
        // It is over either way.
        if let Ok(Err(error)) = tokio::time::timeout(left, goodbye).await {
            tracing::debug!(%error, "the goodbye was cut short");
        }
        Ok(())
    }
}

async fn ready(stream: &Wire, interest: Option<Interest>) -> io::Result<tokio::io::Ready> {
    match interest {
        Some(interest) => stream.ready(interest).await,
        None => std::future::pending().await,
    }
}
