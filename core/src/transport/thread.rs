//! The I/O threads: what all connections share, and what those of one thread share.
//!
//! A thread runs its connections' tasks, a flusher that writes the lines of all connections that
//! have something new, and a ticker. Knows no packets.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use super::config::{Config, SharedDoors, SharedTls};
use super::conn::{Conn, HANDLER_TICK, TICK};
use super::engine::EngineService;
use super::http::Fallback;
use super::permits::Permits;
use super::polling::Entry;
use crate::clock::Clock;
use crate::wire::handshake::open_packet;

/// The time between two ticks of a handler.
pub(super) const HANDLER_TICKS: Duration = Duration::from_millis(250);

/// What all threads share.
pub(super) struct Shared {
    pub config: Config,
    pub doors: SharedDoors,
    pub tls: SharedTls,
    pub service: Arc<dyn EngineService>,
    /// Heartbeats start with the session, not with the first namespace.
    pub pings_at_once: bool,
    pub fallback: Fallback,
    pub permits: Permits,
    pub clock: Arc<dyn Clock>,
    /// Sessions that began on polling, by their Engine.IO id.
    pub polled: Mutex<HashMap<Box<str>, Arc<Entry>>>,
    /// Bytes that wait in all lines; shared frames count once per line.
    pub outbound: AtomicUsize,
    pub seats: AtomicUsize,
    pub sessions: AtomicUsize,
    pub opened: AtomicU64,
    /// True once the transport is closing.
    pub closing: watch::Sender<bool>,
    /// Rung when a session or a TCP connection has ended.
    pub ended: Notify,
}

impl Shared {
    /// The open packet of a session.
    pub(super) fn open_packet(&self, sid: &str, on_polling: bool) -> String {
        let config = &self.config;
        open_packet(
            sid,
            on_polling && config.websocket,
            config.ping_interval,
            config.ping_timeout,
            config.max_message_bytes as u64,
        )
    }
}

/// A place among the TCP connections, given back when dropped.
pub(super) struct Seat(Arc<Shared>);

impl Seat {
    /// A place, unless all are taken.
    pub(super) fn take(shared: &Arc<Shared>) -> Option<Arc<Self>> {
        let taken = shared.seats.fetch_add(1, Ordering::Relaxed);
        let seat = Self(shared.clone());
        (taken < shared.config.max_connections).then(|| Arc::new(seat))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.seats.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_waiters();
    }
}

/// One I/O thread, as its connections and other threads see it.
pub(super) struct Thread {
    pub index: usize,
    pub shared: Arc<Shared>,
    pub runtime: tokio::runtime::Handle,
    /// Connections whose lines have something to write; `None` once nobody writes them any more.
    dirty: Mutex<Option<Vec<Arc<Conn>>>>,
    rung: Notify,
    conns: Mutex<HashMap<u64, Arc<Conn>>>,
    /// Elapsed milliseconds at the last tick: good enough for limits of many seconds.
    coarse: AtomicU64,
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// Keeps a connection in its thread's table; takes it out when dropped.
pub(super) struct Registration(Arc<Conn>);

impl Drop for Registration {
    fn drop(&mut self) {
        let thread = &self.0.thread;
        thread.conns.lock().remove(&self.0.id);
        thread.shared.sessions.fetch_sub(1, Ordering::Relaxed);
        thread.shared.ended.notify_waiters();
    }
}

impl Thread {
    pub(super) fn new(
        index: usize,
        shared: Arc<Shared>,
        runtime: tokio::runtime::Handle,
    ) -> Arc<Self> {
        let thread = Self {
            index,
            shared,
            runtime,
            dirty: Mutex::new(Some(Vec::new())),
            rung: Notify::new(),
            conns: Mutex::default(),
            coarse: AtomicU64::new(0),
        };
        thread.set_coarse(thread.now());
        Arc::new(thread)
    }

    pub(super) fn now(&self) -> Duration {
        self.shared.clock.elapsed()
    }

    /// The time at the last tick.
    pub(super) fn coarse_now(&self) -> Duration {
        Duration::from_millis(self.coarse.load(Ordering::Relaxed))
    }

    fn set_coarse(&self, now: Duration) {
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.coarse.store(millis, Ordering::Relaxed);
    }

    /// Notes that a line has something to write; rings the flusher if it sleeps.
    pub(super) fn list(&self, conn: Arc<Conn>) {
        let mut dirty = self.dirty.lock();
        let Some(listed) = &mut *dirty else { return };
        let was_empty = listed.is_empty();
        listed.push(conn);
        drop(dirty);
        if was_empty {
            self.rung.notify_one();
        }
    }

    /// The thread has ended: what it would have written lets go of it.
    pub(super) fn end(&self) {
        let listed = self.dirty.lock().take();
        drop(listed);
    }

    /// Enters a connection into the table; `None` if there are too many, or the end has begun.
    pub(super) fn register(&self, conn: &Arc<Conn>) -> Option<Registration> {
        let shared = &self.shared;
        let sessions = shared.sessions.fetch_add(1, Ordering::Relaxed);
        self.conns.lock().insert(conn.id, conn.clone());
        let registration = Registration(conn.clone());
        let open = sessions < shared.config.max_connections && !*shared.closing.borrow();
        open.then(|| {
            shared.opened.fetch_add(1, Ordering::Relaxed);
            registration
        })
    }

    /// Closes every connection of this thread.
    pub(super) fn close_all(&self) {
        for conn in self.conns.lock().values() {
            conn.close();
        }
    }

    /// Writes the lines that have something new. Woken when the list was empty, so it runs once
    /// after a whole read of one or more connections, and frames of that read go out together.
    pub(super) async fn flush(&self) {
        let mut batch = Vec::new();
        loop {
            self.rung.notified().await;
            if let Some(listed) = &mut *self.dirty.lock() {
                std::mem::swap(listed, &mut batch);
            }
            for conn in batch.drain(..) {
                conn.flush();
            }
        }
    }

    /// Wakes every connection now and then.
    pub(super) async fn tick(&self) {
        let step = self.shared.config.granularity();
        let mut handlers_due = Duration::ZERO;
        loop {
            self.shared.clock.sleep_until(self.now() + step).await;
            let now = self.now();
            self.set_coarse(now);
            let mut signals = TICK;
            if now >= handlers_due {
                handlers_due = now + HANDLER_TICKS;
                signals |= HANDLER_TICK;
            }
            for conn in self.conns.lock().values() {
                conn.signal(signals);
            }
        }
    }
}

/// A new id of 20 url-safe characters, 120 random bits: whoever knows it can speak for the session.
pub(super) fn new_id() -> String {
    let key = generate_key();
    let chars = key.chars().take(20).map(|char| match char {
        '+' => '-',
        '/' => '_',
        other => other,
    });
    chars.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_twenty_url_safe_characters_and_differ() {
        let ids: Vec<_> = (0..100).map(|_| new_id()).collect();
        for id in &ids {
            assert_eq!(id.len(), 20);
            assert!(
                id.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            );
        }
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }
}
