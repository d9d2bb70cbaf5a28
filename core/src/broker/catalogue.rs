//! All remembered queues of this process, for who keeps a list of them elsewhere (P4). On the way of no
//! message: looks at the tables a page at a time.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::Broker;
use super::realm::Realm;
use crate::clock::Timestamp;
use crate::store::QueueSpec;

/// Queues looked at under one lock.
const PAGE: usize = 256;

/// A number that is another one after a queue has come, changed its settings, or gone.
pub(super) fn stamp(broker: &Broker) -> u64 {
    let realms = broker.realms();
    let of = |realm: &Arc<Realm>| {
        let mut hasher = DefaultHasher::new();
        (realm.id.as_str(), realm.remembered()).hash(&mut hasher);
        hasher.finish()
    };
    realms.iter().map(of).fold(0, u64::wrapping_add)
}

/// The queues, with when each was last attached to or left; what changes meanwhile changes the stamp.
pub(super) fn queues(broker: &Broker) -> Vec<(QueueSpec, Timestamp)> {
    let mut queues = Vec::new();
    for realm in broker.realms() {
        let mut from = 0;
        loop {
            let state = realm.state.lock();
            let Some(page) = state
                .slots
                .get_range(from..(from + PAGE).min(state.slots.len()))
            else {
                break;
            };
            if page.is_empty() {
                break;
            }
            queues.extend(page.values().map(|slot| {
                let inner = slot.state.lock();
                let spec = QueueSpec {
                    realm: realm.id.clone(),
                    key: (*slot.entry.key).clone(),
                    kind: slot.kind,
                    name: slot.name.clone(),
                    settings: inner.settings.clone(),
                };
                (spec, inner.seen)
            }));
            from += PAGE;
        }
    }
    queues
}
