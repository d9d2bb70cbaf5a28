//! What age ends: idle names in the live tables, remembered subscriptions (P4), and the store's own
//! upkeep. One task per broker; nothing on the way of a message waits for it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Broker;
use super::forget::{self, End, Gone};
use super::realm::{Realm, SlotKey};
use super::remembered;
use crate::model::{ConsumerName, ProducerName};
use crate::store::QueueId;

/// Rows a store looks at in one go.
const BUDGET: usize = 10_000;
/// Goes in one round; the next round goes on.
const ROUNDS: usize = 16;

/// How often the store is tidied: what has expired holds room that long.
const TIDY: Duration = Duration::from_secs(1);

/// Runs until the broker is gone or closing.
pub(super) async fn run(broker: Weak<Broker>) {
    let mut last_round = Duration::ZERO;
    loop {
        let Some(strong) = broker.upgrade().filter(|broker| !broker.is_closing()) else {
            return;
        };
        let interval = strong.config.sweep_interval;
        let clock = strong.clock().clone();
        drop(strong);
        clock
            .sleep_until(clock.elapsed() + interval.min(TIDY))
            .await;
        let Some(strong) = broker.upgrade() else {
            return;
        };
        if clock.elapsed().saturating_sub(last_round) >= interval {
            last_round = clock.elapsed();
            strong.sweep().await;
        } else {
            tidy(&strong).await;
        }
    }
}

/// One round over everything; see [`Broker::sweep`].
pub(super) async fn round(broker: &Arc<Broker>) {
    if broker.evicts_idle() {
        idle_names(broker);
    }
    for realm in broker.realms() {
        let entries: Vec<_> = realm.routes.read().iter().cloned().collect();
        entries.iter().for_each(|entry| entry.refresh());
        old_queues(broker, &realm).await;
    }
    tidy(broker).await;
}

/// The store's own upkeep; what it finds expired is counted like what a courier finds.
async fn tidy(broker: &Arc<Broker>) {
    for realm in broker.realms() {
        forget::again(broker, &realm);
        remembered::write(broker, &realm);
    }
    for _ in 0..ROUNDS {
        match broker.store().maintain(BUDGET, broker.clock().now()).await {
            Ok(done) => {
                for (realm, expired) in &done.expired {
                    let counter = broker.metrics().expired.counter(&[realm.as_str()]);
                    counter.add(*expired);
                }
                if !done.more {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the store could not be tidied");
                return;
            }
        }
    }
}

/// Names that nobody has held for a while leave the live tables; queues stay (wire §10.3). How many.
pub(super) fn idle_names(broker: &Broker) -> usize {
    let realms = broker.realms();
    let idle = |realm: &Arc<Realm>| {
        let count = idle_names_of(broker, realm);
        broker.drop_if_empty(realm);
        count
    };
    realms.iter().map(idle).sum()
}

fn idle_names_of(broker: &Broker, realm: &Realm) -> usize {
    let now = broker.clock().elapsed();
    let is_idle = |since: Duration| now.saturating_sub(since) >= broker.config.idle_ttl;
    let mut state = realm.state.lock();
    let consumers: Vec<ConsumerName> = state
        .consumers
        .iter()
        .filter(|(_, consumer)| consumer.holder.is_none() && is_idle(consumer.offline_since))
        .map(|(name, _)| name.clone())
        .collect();
    for name in &consumers {
        state.drop_consumer(name);
    }
    let producers: Vec<ProducerName> = state
        .producers
        .iter()
        .filter(|(_, producer)| producer.holder.is_none() && is_idle(producer.offline_since))
        .map(|(name, _)| name.clone())
        .collect();
    for name in &producers {
        state.producers.remove(name);
    }
    consumers.len() + producers.len()
}

/// Remembered subscriptions without an attach for their whole ttl; a plain one stays while something
/// waits in it, a durable one goes with its backlog.
async fn old_queues(broker: &Arc<Broker>, realm: &Arc<Realm>) {
    let now = broker.clock().now();
    let config = &broker.config;
    let old: Vec<(SlotKey, QueueId, bool)> = {
        let state = realm.state.lock();
        let slots = state.slots.iter().filter_map(|(key, slot)| {
            let inner = slot.state.lock();
            let ttl = if inner.settings.durable {
                config.durable_subscription_ttl
            } else {
                config.guaranteed_subscription_ttl
            };
            let is_old = inner.seats.is_empty() && now.since(inner.seen) >= ttl;
            is_old.then(|| (key.clone(), slot.id, inner.settings.durable))
        });
        slots.collect()
    };
    for (key, queue, is_durable) in old {
        if !is_durable {
            let depth = broker.store().depth(queue).await;
            if depth.is_ok_and(|depth| depth.count > 0) {
                continue;
            }
        }
        let is_gone = {
            let mut state = realm.state.lock();
            let same = state.slots.get(&key).filter(|slot| slot.id == queue);
            let is_idle = same.is_some_and(|slot| !slot.is_attached());
            let is_gone = is_idle && realm.forget(&mut state, &key).is_some();
            let gone = Gone {
                key: key.clone(),
                queue,
                end: End::Evicted,
            };
            if is_gone {
                drop(forget::forget(broker, realm, &mut state, gone));
            }
            is_gone
        };
        if is_gone {
            realm.forgotten.add(1);
            tracing::info!(key = %key.0.wire_name(), name = &*key.2, "a remembered subscription has ended by age");
        }
    }
}
