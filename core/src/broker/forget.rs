//! Queues that are remembered no more: the store is told, and told again where it refuses (P27).
//!
//! The tables have let go of them already. All under the realm's lock, so that nobody opens one
//! between the look and the call. Decides nothing about who remembers what.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::realm::{Realm, SlotKey, State};
use super::{Answer, Broker, ready};
use crate::store::QueueId;
use crate::{Error, ErrorKind, Result};

/// Queues of one realm that the store is told of again in one go.
const BATCH: usize = 64;

/// A queue that is to go from the store.
pub(super) struct Gone {
    pub(super) key: SlotKey,
    pub(super) queue: QueueId,
    pub(super) end: End,
}

/// Why a queue goes, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its consumer does not want it any more.
    Left,
    /// Nor what waits in it.
    Purged,
    /// It was not used for long, here; if another broker uses it, it stays.
    Evicted,
}

impl End {
    pub(super) fn of(purge: bool) -> Self {
        if purge { Self::Purged } else { Self::Left }
    }
}

/// Tells the store; how many entries that leaves. What it refuses is tried again later.
pub(super) fn forget(
    broker: &Broker,
    realm: &Arc<Realm>,
    state: &mut State,
    gone: Gone,
) -> Answer<u64> {
    let mut pending = match gone.end {
        End::Evicted => broker.store().evict(gone.queue, broker.clock().now()),
        end => broker.store().forget(gone.queue, end == End::Purged),
    };
    if let Some(result) = pending.take_ready() {
        keep(state, gone, &result);
        return ready(result);
    }
    let realm = realm.clone();
    let (done, waiting) = oneshot::channel();
    tokio::spawn(async move {
        let result = pending.await;
        keep(&mut realm.state.lock(), gone, &result);
        // Nobody may wait any more.
        let _ = done.send(result);
    });
    Box::pin(async move {
        let stopped = || Error::new(ErrorKind::ShuttingDown, "the server is stopping");
        waiting.await.unwrap_or_else(|_| Err(stopped()))
    })
}

/// Somebody subscribes by it again: what it was to leave behind goes first.
pub(super) fn before_open(broker: &Broker, realm: &Arc<Realm>, state: &mut State, key: &SlotKey) {
    if let Some(gone) = state.forgetting.remove(key) {
        drop(forget(broker, realm, state, gone));
    }
}

/// Tells the store once more of what it has refused.
pub(super) fn again(broker: &Broker, realm: &Arc<Realm>) {
    let mut state = realm.state.lock();
    let keys: Vec<SlotKey> = state.forgetting.keys().take(BATCH).cloned().collect();
    for key in keys {
        if let Some(gone) = state.forgetting.remove(&key) {
            drop(forget(broker, realm, &mut state, gone));
        }
    }
}

fn keep(state: &mut State, gone: Gone, result: &Result<u64>) {
    let Err(error) = result else { return };
    let is_over = error.kind() == ErrorKind::DeliveryUnknown;
    // Whoever subscribes by it now has it back.
    if is_over || state.is_used(&gone.key) || state.slots.contains_key(&gone.key) {
        return;
    }
    tracing::warn!(%error, queue = gone.queue.0, "the store could not forget a subscription; again later");
    state.forgetting.insert(gone.key.clone(), gone);
}
