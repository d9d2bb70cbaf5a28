//! Beginning anew with another store, in which queues and logs have other numbers: every session is
//! closed, what is remembered is read again, and whoever comes back finds its place.
//!
//! Knows no store; called by the server's assembly. What keeps its numbers needs none of this.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Broker, admin};
use crate::Result;
use crate::store::QueueRecord;

/// How long what sessions settled last may take to reach the old store.
const QUIET: Duration = Duration::from_millis(500);

/// Takes nothing new until it is dropped, and closes whoever was refused.
struct Moving<'a>(&'a Arc<Broker>);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.is_moving.store(false, Ordering::Release);
        kick(self.0);
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
    Ok(done)
}
