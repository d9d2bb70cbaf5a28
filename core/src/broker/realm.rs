//! One realm: its keys, its names, its sessions and its remembered queues.
//!
//! Holds the state and keeps its parts consistent; the verbs are in the files beside it. Lock order:
//! [`State`] → routes → a member's names. Publishing takes the routes' read lock only, and only when
//! its cached matches are stale.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};

use super::MONITORS;
use super::engine::{Engine, QueueMetrics};
use super::forget::Gone;
use super::ids::Ids;
use super::listen::{GroupKey, Keeps, KeyEntry, Slot, SlotState};
use super::matches::Standing;
use super::member::Member;
use super::ports::{Encode, SessionId};
use super::queue::Queue;
use super::registry::{GroupUse, Kept, Users};
use super::routes::Routes;
use crate::clock::Elapsed;
use crate::metrics::{Counter, Metrics};
use crate::model::{ConsumerName, GroupName, Key, ProducerName, RealmId, RetryPolicy};
use crate::store::{LogId, QueueId, QueueKind, QueueRecord, QueueSettings, Seq};

/// See the module.
pub(super) struct Realm {
    pub(super) id: RealmId,
    /// Its consumers see all other realms (wire §4.4).
    pub(super) is_monitor: bool,
    /// It was removed: no session joins it any more. Set under the state's lock.
    is_gone: AtomicBool,
    pub(super) routes: RwLock<Routes>,
    /// Changes whenever a key or a group's interest in one comes or goes.
    generation: AtomicU64,
    ages: AtomicU64,
    /// Counts what comes to, changes in, and goes from the remembered queues.
    remembered: AtomicU64,
    pub(super) state: Mutex<State>,
    pub(super) dropped: Counter,
    pub(super) queued: Counter,
    pub(super) unmatched: Counter,
    pub(super) forgotten: Counter,
    dead_letters: Counter,
    ack_timeouts: Counter,
    pub(super) expired: Counter,
    hidden: Counter,
}

/// Which remembered queue.
pub(super) type SlotKey = (Arc<Key>, QueueKind, Arc<str>);

/// What is behind the realm's lock.
#[derive(Default)]
pub(super) struct State {
    pub(super) members: HashMap<SessionId, Arc<Member>>,
    pub(super) consumers: HashMap<ConsumerName, Box<Consumer>>,
    pub(super) producers: HashMap<ProducerName, Producer>,
    /// Who subscribed to a producer by name, and to how many of its keys; for awareness.
    pub(super) watchers: HashMap<ProducerName, IndexMap<ConsumerName, usize>>,
    /// Who listens to any producer, and by how many keys.
    pub(super) watch_all: IndexMap<ConsumerName, usize>,
    /// Who subscribes by which remembered queue, whether the store has opened it or not.
    pub(super) users: HashMap<SlotKey, Users>,
    /// Remembered queues.
    pub(super) slots: IndexMap<SlotKey, Arc<Slot>>,
    pub(super) by_queue: HashMap<QueueId, Arc<Slot>>,
    /// Of no slot any more, though the store has them still.
    pub(super) forgetting: HashMap<SlotKey, Gone>,
    /// Queues of which the store knows names that have gone.
    pub(super) renamed: HashSet<SlotKey>,
    /// Of `slots`: those that are not durable (P4).
    pub(super) plain_slots: usize,
    /// The plain ones by age; some may be gone or durable by now.
    pub(super) plain_order: VecDeque<SlotKey>,
    /// By the number in the ids of their live copies.
    pub(super) by_number: HashMap<u64, Arc<Slot>>,
    /// Keys by the log that their queues read.
    pub(super) logs: HashMap<LogId, Arc<KeyEntry>>,
    /// Queues without backing, by number.
    pub(super) volatile: HashMap<u64, (SessionId, Arc<Queue>)>,
    /// Groups that somebody listens in or that have a queue.
    pub(super) groups: HashMap<GroupName, GroupUse>,
}

/// A consumer name in the live tables.
pub(super) struct Consumer {
    pub(super) id: Arc<str>,
    pub(super) holder: Option<Arc<Member>>,
    pub(super) instance: Option<Arc<str>>,
    /// Nobody has held it since the start.
    pub(super) is_unseen: bool,
    pub(super) offline_since: Elapsed,
    pub(super) subscriptions: IndexMap<Arc<Key>, Kept>,
    /// The age of the next one.
    pub(super) next_age: u64,
    /// Consumer ids it has subscribed with: their queues are its own (P9).
    pub(super) ids: Ids,
}

/// A producer name in the live tables.
pub(super) struct Producer {
    pub(super) id: Arc<str>,
    pub(super) holder: Option<Arc<Member>>,
    pub(super) instance: Option<Arc<str>>,
    pub(super) offline_since: Elapsed,
    pub(super) standing: Arc<Standing>,
}

impl Realm {
    pub(super) fn new(id: RealmId, metrics: &Metrics) -> Self {
        let name = &[id.as_str()];
        Self {
            dropped: metrics.dropped.counter(name),
            queued: metrics.queued.counter(name),
            unmatched: metrics.unmatched.counter(name),
            forgotten: metrics.forgotten.counter(name),
            dead_letters: metrics.dead_letters.counter(name),
            ack_timeouts: metrics.ack_timeouts.counter(name),
            expired: metrics.expired.counter(name),
            hidden: metrics.hidden.counter(name),
            is_monitor: id.as_str() == MONITORS,
            is_gone: AtomicBool::new(false),
            id,
            routes: RwLock::new(Routes::new()),
            generation: AtomicU64::new(0),
            ages: AtomicU64::new(0),
            remembered: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// What a queue of this key counts in.
    pub(super) fn queue_metrics(&self, entry: &KeyEntry) -> QueueMetrics {
        QueueMetrics {
            delivered: entry.delivered.clone(),
            ..self.left_metrics()
        }
    }

    /// What the queue of an ended subscription counts in: it delivers nothing.
    pub(super) fn left_metrics(&self) -> QueueMetrics {
        QueueMetrics {
            delivered: Counter::default(),
            dead_letters: self.dead_letters.clone(),
            ack_timeouts: self.ack_timeouts.clone(),
            expired: self.expired.clone(),
            hidden: self.hidden.clone(),
            dropped: self.dropped.clone(),
        }
    }

    /// Whether it was removed.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(super) fn set_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn remembered(&self) -> u64 {
        self.remembered.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The entry of a key, made if nobody listens yet, used once more. Under the state's lock.
    pub(super) fn enter(
        &self,
        key: &Arc<Key>,
        encode: &dyn Encode,
        metrics: &Metrics,
    ) -> Arc<KeyEntry> {
        let mut routes = self.routes.write();
        if let Some(entry) = routes.get(key) {
            entry.uses.fetch_add(1, Ordering::Relaxed);
            return entry.clone();
        }
        let delivered = metrics
            .delivered
            .counter(&[self.id.as_str(), &key.wire_name()]);
        let age = self.ages.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(KeyEntry::new(key.clone(), age, encode.head(key), delivered));
        entry.uses.store(1, Ordering::Relaxed);
        routes.insert(entry.clone());
        drop(routes);
        self.changed();
        entry
    }

    /// Undoes one [`Realm::enter`]; the last one takes the key out of the routes (P25).
    pub(super) fn exit(&self, entry: &KeyEntry) {
        if entry.uses.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.routes.write().remove(&entry.key);
            // Cached matches may keep the entry for long, but not its last listeners.
            entry.refresh();
            self.changed();
        }
    }

    /// The group's interest in a key, made if there is none.
    pub(super) fn enter_group(
        &self,
        entry: &KeyEntry,
        name: &GroupName,
        retry: RetryPolicy,
    ) -> Arc<GroupKey> {
        if let Some(group) = entry.group(name.as_str()) {
            return group;
        }
        let group = Arc::new(GroupKey::new(name.clone(), retry));
        entry.groups.write().push(group.clone());
        self.changed();
        group
    }

    /// Drops a group's interest that has neither members nor a queue any more, nor gets one.
    pub(super) fn exit_group(&self, entry: &KeyEntry, name: &str) {
        let mut groups = entry.groups.write();
        let before = groups.len();
        groups.retain(|group| {
            // Cached matches may keep the interest for long, but not its last members.
            group.members.all();
            let is_used = group.members.len() > 0 || group.has_queue() || group.is_opening();
            group.name.as_str() != name || is_used
        });
        if groups.len() != before {
            drop(groups);
            self.changed();
        }
    }

    /// Puts a queue into the tables as the store has it; an older slot of it is replaced in place.
    pub(super) fn remember(
        &self,
        state: &mut State,
        engine: &Arc<Engine>,
        metrics: &Metrics,
        record: QueueRecord,
    ) -> Arc<Slot> {
        self.remembered.fetch_add(1, Ordering::AcqRel);
        let key = Arc::new(record.spec.key.clone());
        let slot_key = (key.clone(), record.spec.kind, record.spec.name.clone());
        let settings = record.spec.settings.clone();
        if let Some(slot) = state.slots.get(&slot_key).cloned()
            && slot.id == record.queue
        {
            self.set_durable(state, &slot, settings, record.head);
            return slot;
        }
        self.forget(state, &slot_key);
        let entry = self.enter(&key, &*engine.encode, metrics);
        let slot = Arc::new(Slot {
            queue: Queue::new(engine.clone(), &record, self.queue_metrics(&entry)),
            id: record.queue,
            entry: entry.clone(),
            kind: record.spec.kind,
            name: record.spec.name,
            state: Mutex::new(SlotState {
                settings: settings.clone(),
                seats: Vec::new(),
                seen: record.seen,
            }),
        });
        entry.set_log(Some(record.log));
        state.logs.insert(record.log, entry.clone());
        entry.raise_end(record.head);
        if !settings.durable {
            state.plain_order.push_back(slot_key.clone());
        }
        if let Some(group) = &settings.group {
            state.enter_group(group, settings.owner.as_ref());
        }
        state.slots.insert(slot_key, slot.clone());
        state.by_queue.insert(slot.id, slot.clone());
        state.by_number.insert(slot.queue.number(), slot.clone());
        self.count(state, &slot, &settings, true);
        slot
    }

    fn set_durable(&self, state: &mut State, slot: &Slot, settings: QueueSettings, after: Seq) {
        let mut inner = slot.state.lock();
        let before = std::mem::replace(&mut inner.settings, settings.clone());
        drop(inner);
        slot.queue.set_takes_all(settings.durable, after);
        if before.durable && !settings.durable {
            let key = (slot.entry.key.clone(), slot.kind, slot.name.clone());
            state.plain_order.push_back(key);
        }
        self.count(state, slot, &before, false);
        self.count(state, slot, &settings, true);
    }

    /// Keeps the numbers by which a publish sees what a key's queues take.
    fn count(&self, state: &mut State, slot: &Slot, settings: &QueueSettings, is_more: bool) {
        match slot.kind {
            QueueKind::Group => {
                let Some(name) = &settings.group else { return };
                let retry = settings.retry_policy();
                let group = self.enter_group(&slot.entry, name, retry);
                let keeps = match (is_more, settings.durable) {
                    (false, _) => Keeps::Nothing,
                    (true, true) => Keeps::Everything,
                    (true, false) => Keeps::Guaranteed,
                };
                group.set_queue(slot.id, keeps);
            }
            QueueKind::Consumer | QueueKind::History => {
                let counter = if settings.durable {
                    &slot.entry.durable
                } else {
                    &slot.entry.guaranteed
                };
                if is_more {
                    counter.fetch_add(1, Ordering::AcqRel);
                } else {
                    counter.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
        if !settings.durable {
            state.plain_slots = if is_more {
                state.plain_slots + 1
            } else {
                state.plain_slots.saturating_sub(1)
            };
        }
    }

    /// Takes everything that is remembered out of the tables; the store is the caller's business.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        let keys: Vec<_> = state.slots.keys().cloned().collect();
        for key in keys {
            self.forget(&mut state, &key);
        }
        state.consumers.clear();
        state.watchers.clear();
        state.watch_all.clear();
        state.users.clear();
    }

    /// Takes a queue out of the tables; the store is the caller's business.
    pub(super) fn forget(&self, state: &mut State, slot_key: &SlotKey) -> Option<Arc<Slot>> {
        let slot = state.slots.swap_remove(slot_key)?;
        self.remembered.fetch_add(1, Ordering::AcqRel);
        state.queue_ended(slot_key);
        state.renamed.remove(slot_key);
        state.by_queue.remove(&slot.id);
        state.by_number.remove(&slot.queue.number());
        let settings = slot.state.lock().settings.clone();
        self.count(state, &slot, &settings, false);
        slot.entry.attached.remove(&slot.id);
        if let Some(group) = &settings.group {
            self.exit_group(&slot.entry, group.as_str());
            state.exit_group(group);
        }
        let has_more = slot.entry.durable.load(Ordering::Acquire) > 0
            || slot.entry.guaranteed.load(Ordering::Acquire) > 0
            || slot
                .entry
                .groups
                .read()
                .iter()
                .any(|group| group.has_queue());
        if !has_more {
            if let Some(log) = slot.entry.log() {
                state.logs.remove(&log);
            }
            slot.entry.set_log(None);
        }
        self.exit(&slot.entry);
        Some(slot)
    }
}

impl State {
    /// Whether nothing at all is in it: no session, no name, no queue.
    pub(super) fn is_empty(&self) -> bool {
        let is_idle = self.members.is_empty() && self.names() == 0;
        is_idle && self.slots.is_empty() && self.forgetting.is_empty() && self.users.is_empty()
    }

    /// Live and offline names together, for the bound.
    pub(super) fn names(&self) -> usize {
        self.consumers.len() + self.producers.len()
    }

    pub(super) fn consumer_holder(&self, name: &ConsumerName) -> Option<&Arc<Member>> {
        self.consumers.get(name)?.holder.as_ref()
    }
}
