//! The settings of the transport, already checked by whoever read them.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::limits::Proxies;
use crate::tls::ServerTls;

/// Settings of the transport; `Default` gives the documented defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// HTTP path of Engine.IO, with or without the final slash. Default `/socket.io/`.
    pub path: String,
    /// Who may come in; can be changed while the transport runs.
    pub doors: SharedDoors,
    /// TLS on every connection; none by default. Can be changed while the transport runs.
    pub tls: SharedTls,
    /// Time between heartbeats. Default 25 s.
    pub ping_interval: Duration,
    /// Time beyond the interval without any byte after which a peer is dead. Default 20 s.
    pub ping_timeout: Duration,
    /// Time in which a client must join a namespace. Default 45 s.
    pub connect_timeout: Duration,
    /// Time a websocket has to take over from polling. Default 10 s.
    pub upgrade_timeout: Duration,
    /// Whether long polling is offered. Default true.
    pub polling: bool,
    /// Whether websockets are offered. Default true.
    pub websocket: bool,
    /// Largest message; a frame may be 1 MiB larger (P21). Default 50 MiB.
    pub max_message_bytes: usize,
    /// Bytes that may wait to be written to one connection (P23). Default 16 MiB.
    pub max_outbound_bytes: usize,
    /// The same for all connections in sum, where a frame shared by several counts once for each;
    /// beyond it only empty lines take more (P25). Default: half of memory, at most 4 GiB.
    pub max_outbound_total: usize,
    /// Bytes that may be under way into the process in large frames, in sum (P25). Default: a
    /// quarter of memory, at most 1 GiB.
    pub max_inflight_bytes: usize,
    /// The same for one address without credential. Default 64 MiB.
    pub max_inflight_per_address: usize,
    /// Most TCP connections, and most sessions. Default 100,000.
    pub max_connections: usize,
    /// I/O threads. Default 1 up to two cores, else half the cores, at most 4.
    pub threads: usize,
    /// Bytes of one read, a buffer of that size per thread. Default 256 KiB.
    pub read_size: usize,
    /// A reader that takes (nearly) nothing for this long is cut (P23). Default 30 s.
    pub stuck_timeout: Duration,
    /// How long a large frame may wait for its permit (P25). Default 30 s.
    pub permit_timeout: Duration,
}

/// Who may come in, and whose word for an address counts.
#[derive(Debug, Clone)]
pub struct Doors {
    /// Cross-origin rules for browsers; none by default.
    pub cors: Option<Cors>,
    /// Refuse a browser's `Origin` that is neither the same host nor in `cors`; wanted while
    /// authentication is off. Default true.
    pub check_origin: bool,
    /// Proxies that say who is behind them; none by default.
    pub trust_proxy: Proxies,
}

impl Default for Doors {
    fn default() -> Self {
        Self {
            cors: None,
            check_origin: true,
            trust_proxy: Proxies::default(),
        }
    }
}

/// The TLS of a transport that runs; `None`: none.
pub type SharedTls = Arc<ArcSwapOption<ServerTls>>;

/// The doors of a transport that runs.
pub type SharedDoors = Arc<ArcSwap<Doors>>;

impl Doors {
    /// As a transport takes them.
    pub fn shared(self) -> SharedDoors {
        Arc::new(ArcSwap::from_pointee(self))
    }
}

/// What a browser page of another origin may do.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    /// Allowed origins such as `https://example.org`; `*` allows all.
    pub origins: Vec<String>,
    /// Allowed methods; empty means `GET,HEAD,PUT,PATCH,POST,DELETE`.
    pub methods: Vec<String>,
    /// Whether credentials may be sent.
    pub credentials: bool,
}

impl Cors {
    /// Whether `origin` is allowed.
    pub fn allows(&self, origin: &str) -> bool {
        self.origins
            .iter()
            .any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: "/socket.io/".to_owned(),
            doors: Doors::default().shared(),
            tls: SharedTls::default(),
            ping_interval: Duration::from_secs(25),
            ping_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(45),
            upgrade_timeout: Duration::from_secs(10),
            polling: true,
            websocket: true,
            max_message_bytes: 50 << 20,
            max_outbound_bytes: 16 << 20,
            max_outbound_total: (memory() / 2).min(4 << 30),
            max_inflight_bytes: (memory() / 4).min(1 << 30),
            max_inflight_per_address: 64 << 20,
            max_connections: 100_000,
            threads: threads(),
            read_size: 256 << 10,
            stuck_timeout: Duration::from_secs(30),
            permit_timeout: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// The largest frame that is delivered: the largest message and 1 MiB for what surrounds it.
    pub fn max_frame_bytes(&self) -> usize {
        self.max_message_bytes.saturating_add(1 << 20)
    }

    /// Time between two looks at all connections: fine enough for the heartbeat, at most 250 ms.
    pub(super) fn granularity(&self) -> Duration {
        (self.ping_interval.min(self.ping_timeout) / 8)
            .clamp(Duration::from_millis(10), super::thread::HANDLER_TICKS)
    }
}

fn threads() -> usize {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        0..=2 => 1,
        cores => (cores / 2).min(4),
    }
}

/// Memory this process may use, in bytes: of the machine or of its control group. Where the system
/// does not tell, 2 GiB are assumed.
fn memory() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
            kib.checked_mul(1024)
        });
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    match (machine, group) {
        (Some(machine), Some(group)) => machine.min(group),
        (Some(known), None) | (None, Some(known)) => known,
        (None, None) => 2 << 30,
    }
}
