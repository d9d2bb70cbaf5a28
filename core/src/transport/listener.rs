//! The listening port, the I/O threads and their end.
//!
//! One accept loop deals TCP connections in turn to the threads; HTTP is served there until a
//! websocket takes its socket back. The `server` room owns the [`Transport`] and closes it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{Notify, watch};

use super::Service;
use super::caller::Caller;
use super::config::{Config, SharedDoors, SharedTls};
use super::engine::EngineService;
use super::http::{self, Fallback};
use super::permits::Permits;
use super::socketio::SocketIo;
use super::stream;
use super::thread::{Seat, Shared, Thread};
use crate::clock::Clock;
use crate::{Error, ErrorKind, Result};

const BACKLOG: i32 = 1024;
/// How long a client may take for the head of a request, and an idle HTTP connection may stay.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Room for the head of a request, and for a piece of a body.
const HTTP_BUFFER: usize = 64 << 10;
/// How long the accept loop rests when the system is out of file descriptors.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Opens the listening port: on `host`, or on all interfaces, IPv6 and IPv4 alike.
///
/// # Errors
/// `config`: the name is unknown, the port is in use, or the system refuses it.
pub fn bind(host: Option<&str>, port: u16) -> Result<TcpListener> {
    let addresses: Vec<SocketAddr> = match host {
        None => vec![
            (Ipv6Addr::UNSPECIFIED, port).into(),
            (Ipv4Addr::UNSPECIFIED, port).into(),
        ],
        Some(host) => (host.trim_matches(['[', ']']), port)
            .to_socket_addrs()
            .map_err(|error| refused(&format!("cannot resolve host {host}: {error}")))?
            .collect(),
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            // A taken port is the answer, not a reason to listen on half of the interfaces.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(refused(&format!(
                    "port {port} is in use: another server runs there, or choose another port"
                )));
            }
            Err(error) => last = error,
        }
    }
    let at = host.map_or(String::new(), |host| format!("host {host}, "));
    Err(refused(&format!(
        "cannot listen on {at}port {port}: {last}"
    )))
}

fn refused(text: &str) -> Error {
    Error::new(ErrorKind::Config, text)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A running transport. Dropping it stops the threads without waiting for them.
pub struct Transport {
    shared: Arc<Shared>,
    threads: Vec<Arc<Thread>>,
    joins: Mutex<Vec<JoinHandle<()>>>,
    local_addr: SocketAddr,
    stop: watch::Sender<bool>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("local_addr", &self.local_addr)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Numbers for people and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Sessions open now.
    pub sessions: usize,
    /// Sessions opened since the start.
    pub sessions_total: u64,
    /// TCP connections now, HTTP included.
    pub sockets: usize,
    /// Bytes under way into the process in large frames and transfers.
    pub inflight_bytes: usize,
    /// Bytes that wait to be written, of all connections.
    pub outbound_bytes: usize,
}

impl Transport {
    /// Starts the I/O threads and serves Socket.IO 5 on `listener`: one service per namespace.
    ///
    /// # Errors
    /// `internal` if the system gives no threads or refuses the listener.
    pub fn start(
        listener: TcpListener,
        config: Config,
        services: Vec<(String, Arc<dyn Service>)>,
        fallback: Fallback,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let socket_io = SocketIo::new(services, config.connect_timeout, config.max_frame_bytes());
        let shared = Self::share(config, Arc::new(socket_io), false, fallback, clock);
        Self::run(listener, shared)
    }

    /// Serves Engine.IO 4 alone: heartbeats start with the session.
    ///
    /// # Errors
    /// As [`Transport::start`].
    pub fn start_engine(
        listener: TcpListener,
        config: Config,
        service: Arc<dyn EngineService>,
        fallback: Fallback,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::run(
            listener,
            Self::share(config, service, true, fallback, clock),
        )
    }

    fn share(
        config: Config,
        service: Arc<dyn EngineService>,
        pings_at_once: bool,
        fallback: Fallback,
        clock: Arc<dyn Clock>,
    ) -> Arc<Shared> {
        let permits = Permits::new(config.max_inflight_bytes, config.max_inflight_per_address);
        Arc::new(Shared {
            doors: config.doors.clone(),
            tls: config.tls.clone(),
            config,
            service,
            pings_at_once,
            fallback,
            permits,
            clock,
            polled: Mutex::default(),
            outbound: AtomicUsize::new(0),
            seats: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            closing: watch::Sender::new(false),
            ended: Notify::new(),
        })
    }

    fn run(listener: TcpListener, shared: Arc<Shared>) -> Result<Self> {
        let fault = |error: io::Error| {
            Error::new(
                ErrorKind::Internal,
                format!("cannot start the transport: {error}"),
            )
        };
        listener.set_nonblocking(true).map_err(fault)?;
        let mut this = Self {
            local_addr: listener.local_addr().map_err(fault)?,
            threads: Vec::new(),
            joins: Mutex::default(),
            stop: watch::Sender::new(false),
            shared,
        };
        for index in 0..this.shared.config.threads.max(1) {
            this.add_thread(index).map_err(fault)?;
        }
        let accepting = {
            let _entered = this.threads[0].runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(fault)?
        };
        let threads = this.threads.clone();
        this.threads[0].runtime.spawn(accept(accepting, threads));
        Ok(this)
    }

    fn add_thread(&mut self, index: usize) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = Thread::new(index, self.shared.clone(), runtime.handle().clone());
        self.threads.push(thread.clone());
        let mut stop = self.stop.subscribe();
        let name = format!("restante-io-{index}");
        let join = std::thread::Builder::new().name(name).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    // An error means that the handle is gone: stop as well.
                    _ = stop.wait_for(|stop| *stop) => {}
                    () = thread.flush() => {}
                    () = thread.tick() => {}
                }
            });
            // Ends what was still open, which may have had a last word.
            drop(runtime);
            thread.end();
        })?;
        self.joins.lock().push(join);
        Ok(())
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Connections now and so far.
    pub fn stats(&self) -> Stats {
        Stats {
            sessions: self.shared.sessions.load(Ordering::Relaxed),
            sessions_total: self.shared.opened.load(Ordering::Relaxed),
            sockets: self.shared.seats.load(Ordering::Relaxed),
            inflight_bytes: self.shared.permits.taken(),
            outbound_bytes: self.shared.outbound.load(Ordering::Relaxed),
        }
    }

    /// The runtimes of the I/O threads, for tasks that belong beside their connections.
    pub fn runtimes(&self) -> impl Iterator<Item = &tokio::runtime::Handle> {
        self.threads.iter().map(|thread| &thread.runtime)
    }

    /// Who may come in from now on: to be changed at any time.
    pub fn doors(&self) -> &SharedDoors {
        &self.shared.doors
    }

    /// What new connections are secured by: to be changed at any time.
    pub fn tls(&self) -> &SharedTls {
        &self.shared.tls
    }

    /// The pool of permits for large frames and transfers.
    pub fn permits(&self) -> &Permits {
        &self.shared.permits
    }

    /// Frees the port, closes every connection as by [`super::Link::close`], waits for them at most
    /// `deadline`, then ends and joins the threads. May be called again. Not from an I/O thread.
    pub async fn close(&self, deadline: Duration) {
        self.shared.closing.send_replace(true);
        let clock = &self.shared.clock;
        let deadline = clock.sleep_until(clock.elapsed() + deadline);
        tokio::select! {
            () = self.emptied() => {}
            () = deadline => {}
        }
        self.stop.send_replace(true);
        let joins = std::mem::take(&mut *self.joins.lock());
        // Waiting for threads blocks: not on the caller's runtime.
        let joined = tokio::task::spawn_blocking(move || {
            for join in joins {
                if join.join().is_err() {
                    tracing::error!("an I/O thread had panicked");
                }
            }
        });
        // Fails only if the caller's runtime is ending, and then nobody waits for us.
        let _ = joined.await;
    }

    /// Ends when every session and TCP connection has.
    async fn emptied(&self) {
        loop {
            let ended = self.shared.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            // Again at each turn: one may have come in meanwhile.
            for thread in &self.threads {
                thread.close_all();
            }
            let Stats {
                sessions, sockets, ..
            } = self.stats();
            if sessions == 0 && sockets == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.shared.closing.send_replace(true);
        self.stop.send_replace(true);
    }
}

/// Deals connections in turn to the threads until the transport closes.
async fn accept(listener: tokio::net::TcpListener, threads: Vec<Arc<Thread>>) {
    let shared = threads[0].shared.clone();
    let mut closing = shared.closing.subscribe();
    for thread in threads.iter().cycle() {
        let accepted = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, remote)) => {
                // An IPv4 client of a dual-stack socket is known by its IPv4 address.
                let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
                deal(thread, stream, remote);
            }
            Err(error) => {
                // Out of descriptors, or the client left before it was accepted.
                tracing::warn!(%error, "cannot accept a connection");
                shared
                    .clock
                    .sleep_until(shared.clock.elapsed() + EXHAUSTED)
                    .await;
            }
        }
    }
}

fn deal(thread: &Arc<Thread>, stream: TcpStream, remote: SocketAddr) {
    let Some(seat) = Seat::take(&thread.shared) else {
        tracing::warn!(%remote, "max_connections reached; connection refused");
        return;
    };
    if thread.index == 0 {
        tokio::spawn(serve(thread.clone(), stream, remote, seat));
    } else if let Ok(stream) = stream.into_std() {
        let here = thread.clone();
        thread.runtime.spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                serve(here, stream, remote, seat).await;
            }
        });
    }
}

/// HTTP on one connection, until it ends or becomes a websocket.
async fn serve(thread: Arc<Thread>, stream: TcpStream, remote: SocketAddr, seat: Arc<Seat>) {
    // Without it a lone small frame may wait for the peer's delayed acknowledgement; a socket that
    // refuses it works all the same.
    let _ = stream.set_nodelay(true);
    let Some(tls) = thread.shared.tls.load_full() else {
        let caller = Caller {
            remote,
            is_secure: false,
            is_local: remote.ip().is_loopback(),
        };
        return serve_http(thread, stream, caller, seat).await;
    };
    let mut closing = thread.shared.closing.subscribe();
    let shaken = tokio::select! {
        _ = closing.wait_for(|closing| *closing) => return,
        shaken = stream::secure(stream, tls, &thread.shared.clock) => shaken,
    };
    match shaken {
        Ok(stream) => {
            let caller = Caller {
                remote,
                is_secure: true,
                is_local: remote.ip().is_loopback(),
            };
            // Larger than a plain one: not every connection has room for it.
            Box::pin(serve_http(thread, stream, caller, seat)).await;
        }
        Err(error) => tracing::debug!(%remote, %error, "no TLS"),
    }
}

async fn serve_http<S>(thread: Arc<Thread>, stream: S, caller: Caller, seat: Arc<Seat>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut closing = thread.shared.closing.subscribe();
    let service = service_fn(move |request| {
        let (thread, seat) = (thread.clone(), seat.clone());
        async move { Ok::<_, Infallible>(http::answer(thread, caller, seat, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HTTP_BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        // Errors are the client's: a bad request has been answered, a reset is its own business.
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
