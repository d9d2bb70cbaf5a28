//! Beginning anew with another store, in which queues and logs have other numbers: every session is
//! closed, what is remembered is read again, documents too, and whoever comes back finds its place.
//!
//! Knows no store; called by the server's assembly. What keeps its numbers needs none of this.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Broker, admin};
use crate::Result;
use crate::store::QueueRecord;

/// How long what sessions settled last may take to reach the old store.
const QUIET: Duration = Duration::from_millis(500);

/// When queues are looked at again after that, each time after the one before.
const LOOKS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(10),
];

/// Takes nothing new until it is dropped.
struct Moving<'a>(&'a Broker);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.is_moving.store(false, Ordering::Release);
    }
}

fn kick(broker: &Arc<Broker>) {
    let realms = broker.realms();
    realms
        .iter()
        .for_each(|realm| admin::kick_realm(broker, realm));
}

/// See [`Broker::begin_anew`].
pub(super) async fn begin<T>(
    broker: &Arc<Broker>,
    change: impl Future<Output = Result<(T, Vec<QueueRecord>)>>,
) -> Result<T> {
    broker.is_moving.store(true, Ordering::Release);
    let moving = Moving(broker);
    kick(broker);
    let until = broker.clock().elapsed() + QUIET;
    tokio::select! {
        () = broker.engine.quiet() => {}
        () = broker.clock().sleep_until(until) => {}
    }
    let (done, records) = change.await?;
    kick(broker);
    for realm in broker.realms() {
        realm.clear();
    }
    broker.load(records);
    broker.delayed_bell.notify_one();
    drop(moving);
    tokio::spawn(look_again(Arc::downgrade(broker)));
    Ok(done)
}

/// Sessions that are closed and come back at once may find couriers that are about to end: they look
/// at what was given back once more, when that is over.
pub(super) async fn look_again(broker: Weak<Broker>) {
    for pause in LOOKS {
        let Some(strong) = broker.upgrade() else {
            return;
        };
        let clock = strong.clock().clone();
        drop(strong);
        clock.sleep_until(clock.elapsed() + pause).await;
        let realms = broker.upgrade().map(|broker| broker.realms());
        for realm in realms.into_iter().flatten() {
            let slots: Vec<_> = realm.state.lock().slots.values().cloned().collect();
            slots.iter().for_each(|slot| slot.queue.wake());
        }
    }
}
