//! How a lifted store is doing, by what its calls say (P27).
//!
//! A method that failed is in trouble until a call of it succeeds. What nobody calls any more is
//! forgiven when the store answers a read some time after its last failure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Error;
use crate::clock::{Clock, Elapsed, Timestamp};

use super::super::types::{Holding, StoreHealth};
use super::queue::Queue;
use super::state::State;

/// How long after its last failure a store is asked whether it is well.
const QUIET: Duration = Duration::from_secs(5);

/// What the calls said.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Whether any method is in trouble: every call looks here.
    is_troubled: AtomicBool,
    trouble: Mutex<Trouble>,
}

#[derive(Debug, Default)]
struct Trouble {
    methods: BTreeSet<&'static str>,
    last_error: Option<(Timestamp, Arc<str>)>,
    last_failure: Elapsed,
}

impl Health {
    pub(super) fn failed(&self, method: &'static str, error: &Error, clock: &dyn Clock) {
        let mut trouble = self.trouble.lock();
        if trouble.methods.is_empty() {
            tracing::warn!(%error, "the store has trouble");
        }
        let message = match error.cause() {
            Some(cause) if !error.message().contains(cause) => format!("{error}: {cause}").into(),
            _ => error.message().into(),
        };
        trouble.methods.insert(method);
        trouble.last_error = Some((clock.now(), message));
        trouble.last_failure = clock.elapsed();
        self.is_troubled.store(true, Ordering::Release);
    }

    pub(super) fn worked(&self, method: &str) {
        if self.is_troubled.load(Ordering::Acquire) {
            let mut trouble = self.trouble.lock();
            trouble.methods.remove(method);
            self.forgive(&trouble);
        }
    }

    /// Whether nothing has failed for so long that the store may be well again.
    pub(super) fn wants_probe(&self, clock: &dyn Clock) -> bool {
        self.is_troubled.load(Ordering::Acquire)
            && clock.elapsed() >= self.trouble.lock().last_failure + QUIET
    }

    /// The store has answered a probe that began at `began`.
    pub(super) fn is_well(&self, began: Elapsed) {
        let mut trouble = self.trouble.lock();
        if trouble.last_failure <= began {
            trouble.methods.clear();
            self.forgive(&trouble);
        }
    }

    fn forgive(&self, trouble: &Trouble) {
        if trouble.methods.is_empty() && self.is_troubled.swap(false, Ordering::AcqRel) {
            tracing::info!("the store is back");
        }
    }

    pub(super) fn report(&self, holding: Holding) -> StoreHealth {
        StoreHealth {
            holding: Some(holding),
            is_degraded: self.is_troubled.load(Ordering::Acquire),
            last_error: self.trouble.lock().last_error.clone(),
            ..StoreHealth::default()
        }
    }
}

impl State {
    pub(super) fn holding(&self) -> Holding {
        let mut holding = Holding::default();
        for depth in self.queues.values().map(Queue::depth) {
            holding.messages += depth.count;
            holding.bytes += depth.bytes;
            holding.oldest = holding.oldest.into_iter().chain(depth.oldest).min();
        }
        for realm in self.realms.values() {
            holding.delayed += realm.delayed;
            holding.dead_letters += realm.graves.len() as u64;
        }
        holding
    }
}
