//! What every queue shares: the store, the clock, the encoder, the limits, the counters.
//!
//! Holds, and decides nothing. Made by the server's assembly through [`super`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::metrics::Counter;
use crate::store::SharedStore;

use super::ports::Encode;

/// Queues that are not remembered and that the store may be asked for at once.
const MOST_LOOK_UPS: usize = 4_096;

/// Limits of the durable engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineConfig {
    /// How long an ACK waits for its write before it is answered as kept (P27); 5 s.
    pub(crate) store_timeout: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            store_timeout: Duration::from_secs(5),
        }
    }
}

/// What all couriers have counted; none ever falls (P38).
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Deliveries handed to sessions.
    pub(crate) sent: AtomicU64,
    /// Of them repeats.
    pub(crate) repeated: AtomicU64,
    /// Entries settled.
    pub(crate) settled: AtomicU64,
    /// Attempts that ended badly.
    pub(crate) failed: AtomicU64,
    /// Entries that became dead letters.
    pub(crate) buried: AtomicU64,
    /// Entries that expired while they were in hand or read.
    pub(crate) expired: AtomicU64,
    /// Entries settled because no session of their queue may see them (P30).
    pub(crate) hidden: AtomicU64,
    /// Live copies dropped: their session ended, or too many waited.
    pub(crate) dropped: AtomicU64,
    /// Store calls of couriers that failed (health).
    pub(crate) store_failures: AtomicU64,
}

impl Counters {
    /// Adds to one of them.
    pub(super) fn add(counter: &AtomicU64, more: u64) {
        if more > 0 {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// Where one queue counts beside that: its realm's metrics, and its key's.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueMetrics {
    /// Stored entries handed to sessions, again ones too.
    pub(crate) delivered: Counter,
    /// Entries that became dead letters.
    pub(crate) dead_letters: Counter,
    /// Deliveries that were not acknowledged in time.
    pub(crate) ack_timeouts: Counter,
    /// Entries that expired while they were in hand or read.
    pub(crate) expired: Counter,
    /// Entries settled because no session of their queue may see them (P30).
    pub(crate) hidden: Counter,
    /// Live copies dropped.
    pub(crate) dropped: Counter,
}

/// Shared by all queues of a broker.
pub(crate) struct Engine {
    store: SharedStore,
    /// The only source of time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Turns facts into bytes.
    pub(crate) encode: Arc<dyn Encode>,
    /// Limits.
    pub(crate) config: EngineConfig,
    /// For stats, metrics and health.
    pub(crate) counters: Counters,
    /// For verdicts on queues that are not remembered, while the store is asked for them.
    pub(crate) look_ups: Arc<Semaphore>,
    numbers: AtomicU64,
}

impl Engine {
    /// An engine over `store`.
    pub(crate) fn new(
        store: SharedStore,
        clock: Arc<dyn Clock>,
        encode: Arc<dyn Encode>,
        config: EngineConfig,
    ) -> Arc<Self> {
        // Ids of live copies must not come again after a restart: a late ack would settle another.
        let first = clock.now().0 << 12;
        Arc::new(Self {
            store,
            clock,
            encode,
            config,
            counters: Counters::default(),
            look_ups: Arc::new(Semaphore::new(MOST_LOOK_UPS)),
            numbers: AtomicU64::new(first),
        })
    }

    /// The store.
    pub(crate) fn store(&self) -> &SharedStore {
        &self.store
    }

    /// A number for a queue, unique across restarts.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}
