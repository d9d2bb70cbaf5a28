//! What sessions go by, changed for all of them at once while they live. Knows no file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::SessionConfig;

/// See the module.
pub(crate) struct Rules {
    /// Counts the changes: sessions look at it for each event, and at the rest when it has moved.
    generation: AtomicU64,
    config: ArcSwap<SessionConfig>,
}

impl Rules {
    pub(crate) fn new(config: SessionConfig) -> Arc<Self> {
        Arc::new(Self {
            generation: AtomicU64::new(0),
            config: ArcSwap::from_pointee(config),
        })
    }

    /// These count from now on.
    pub(crate) fn set(&self, config: SessionConfig) {
        self.config.store(Arc::new(config));
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn load(&self) -> Arc<SessionConfig> {
        self.config.load_full()
    }
}
