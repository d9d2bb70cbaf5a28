//! What sessions go by, changed for all of them at once while they live. Knows no file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::SessionConfig;
use crate::auth::Auth;
use crate::limits::Caps;
use crate::model::RealmId;

/// See the module.
pub(crate) struct Rules {
    /// Counts the changes: sessions look at it for each event, and at the rest when it has moved.
    generation: AtomicU64,
    config: ArcSwap<SessionConfig>,
    auth: Arc<Auth>,
}

impl Rules {
    pub(crate) fn new(config: SessionConfig, auth: Arc<Auth>) -> Arc<Self> {
        Arc::new(Self {
            generation: AtomicU64::new(0),
            config: ArcSwap::from_pointee(config),
            auth,
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

    /// Who is who, and may what.
    pub(super) fn auth(&self) -> &Arc<Auth> {
        &self.auth
    }

    /// What a session in a realm is held to now.
    pub(super) fn caps(&self, realm: &RealmId) -> Caps {
        let limits = &self.config.load().limits;
        limits.caps(realm, self.auth.is_enabled())
    }

    pub(super) fn load(&self) -> Arc<SessionConfig> {
        self.config.load_full()
    }
}
