//! One connected session as the broker knows it: its line, its names, its subscriptions.
//!
//! Knows no packet. Made by `join`, ended by `leave`; listeners point back to it until then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use indexmap::IndexMap;
use parking_lot::Mutex;

use super::listen::{KeyEntry, Listener};
use super::pass::Pass;
use super::ports::{Encode, Notice, Outbox, SessionId};
use super::queue::Queue;
use super::realm::Realm;
use super::staging::Line;
use crate::model::{ConsumerName, Key, ProducerName, RealmId};
use crate::store::{LogId, QueueId, Seq};

/// Logs whose ends are kept for one session; past this they are looked up in the keys.
const MOST_LOGS: usize = 1_024;

/// Keys named in one GAP notice.
const GAP_KEYS: usize = 64;

/// One live session in its realm. Made by [`super::Broker::join`], ended by [`super::Broker::leave`].
pub struct Member {
    session: SessionId,
    socket_id: Arc<str>,
    outbox: Arc<dyn Outbox>,
    realm: Arc<Realm>,
    pass: Pass,
    pub(super) names: Mutex<Names>,
    /// What it produced and the store has not answered yet (P24).
    pub(super) line: Line,
    /// The last entry it has stored of each log: later live copies go behind it (P8).
    stored: Mutex<Stored>,
    /// Takes no new names or subscriptions; set once.
    has_left: AtomicBool,
    /// It was sent away: what it still says counts for nothing.
    is_expelled: AtomicBool,
    wants_gap: AtomicBool,
    dropped: Mutex<Dropped>,
    /// The queues it is attached to, so that an ACK takes no lock of the realm.
    acks: Mutex<HashMap<AckRoute, Arc<Queue>>>,
    /// Reasons for which it is not read now (P24).
    pauses: Mutex<u32>,
    /// Which list of subscribers it is being sent (P22).
    list: AtomicU64,
}

/// What a session holds.
#[derive(Default)]
pub(super) struct Names {
    pub(super) consumers: Vec<ConsumerName>,
    pub(super) producers: Vec<ProducerName>,
    pub(super) listeners: IndexMap<(Arc<Key>, ConsumerName), Arc<Listener>>,
}

#[derive(Default)]
struct Stored {
    last: HashMap<LogId, Seq>,
    has_forgotten: bool,
}

/// What the id of a delivery says of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AckRoute {
    Queue(QueueId),
    Number(u64),
}

#[derive(Default)]
struct Dropped {
    keys: Vec<Arc<Key>>,
    count: u64,
}

impl Member {
    pub(super) fn new(
        session: SessionId,
        socket_id: Arc<str>,
        outbox: Arc<dyn Outbox>,
        realm: Arc<Realm>,
        pass: Pass,
    ) -> Self {
        Self {
            session,
            socket_id,
            outbox,
            realm,
            pass,
            names: Mutex::default(),
            line: Line::default(),
            stored: Mutex::default(),
            has_left: AtomicBool::new(false),
            is_expelled: AtomicBool::new(false),
            wants_gap: AtomicBool::new(false),
            dropped: Mutex::default(),
            acks: Mutex::default(),
            pauses: Mutex::default(),
            list: AtomicU64::new(0),
        }
    }

    /// Its id.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Its realm.
    pub fn realm(&self) -> &RealmId {
        &self.realm.id
    }

    /// What it was let in with.
    pub fn pass(&self) -> &Pass {
        &self.pass
    }

    /// Its name in awareness.
    pub fn socket_id(&self) -> &Arc<str> {
        &self.socket_id
    }

    /// Names registered as consumer and as producer, for quotas.
    pub fn registrations(&self) -> usize {
        let names = self.names.lock();
        names.consumers.len() + names.producers.len()
    }

    /// Live subscriptions, for quotas.
    pub fn subscriptions(&self) -> usize {
        self.names.lock().listeners.len()
    }

    /// Whether this name is registered on the session as a producer (P30).
    pub fn is_producer(&self, name: &str) -> bool {
        let names = self.names.lock();
        names.producers.iter().any(|held| held.as_str() == name)
    }

    /// Whether this name is registered on the session as a consumer.
    pub fn is_consumer(&self, name: &str) -> bool {
        let names = self.names.lock();
        names.consumers.iter().any(|held| held.as_str() == name)
    }

    /// Whether it listens to this key under this name already.
    pub fn has_subscription(&self, key: &Arc<Key>, consumer: &ConsumerName) -> bool {
        let place = (key.clone(), consumer.clone());
        self.names.lock().listeners.contains_key(&place)
    }

    /// The names registered on the session as a producer.
    pub fn producers(&self) -> Vec<ProducerName> {
        self.names.lock().producers.clone()
    }

    /// Whether [`super::Broker::leave`] was called or somebody took its place.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    pub(super) fn set_left(&self) -> bool {
        self.has_left.swap(true, Ordering::AcqRel)
    }

    pub(super) fn is_expelled(&self) -> bool {
        self.is_expelled.load(Ordering::Acquire)
    }

    pub(super) fn set_expelled(&self) {
        self.is_expelled.store(true, Ordering::Release);
    }

    /// Whether it is where only admins may be (F01).
    pub(super) fn is_intruder(&self) -> bool {
        self.realm.is_monitor && !self.pass.is_admin
    }

    pub(super) fn set_wants_gap(&self) {
        self.wants_gap.store(true, Ordering::Relaxed);
    }

    pub(super) fn outbox(&self) -> &Arc<dyn Outbox> {
        &self.outbox
    }

    pub(super) fn realm_state(&self) -> &Arc<Realm> {
        &self.realm
    }

    /// A new list of subscribers begins; older ones end.
    pub(super) fn next_list(&self) -> u64 {
        self.list.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn is_list(&self, list: u64) -> bool {
        self.list.load(Ordering::Acquire) == list
    }

    /// It has stored something up to these ends of logs.
    pub(super) fn note_stored(&self, ends: impl Iterator<Item = (Arc<KeyEntry>, LogId, Seq)>) {
        let mut ends = ends.peekable();
        if ends.peek().is_none() {
            return;
        }
        let mut stored = self.stored.lock();
        for (key, log, end) in ends {
            key.raise_end(end);
            if stored.last.len() >= MOST_LOGS && !stored.last.contains_key(&log) {
                stored.last.clear();
                stored.has_forgotten = true;
            }
            stored.last.insert(log, end);
        }
    }

    /// How far into the log of a key it has stored something, or farther.
    pub(super) fn stored_up_to(&self, key: &KeyEntry) -> Seq {
        let Some(log) = key.log() else {
            return 0;
        };
        let stored = self.stored.lock();
        match stored.last.get(&log) {
            Some(end) => *end,
            None if stored.has_forgotten => key.end(),
            None => 0,
        }
    }

    pub(super) fn ack_route(&self, route: AckRoute) -> Option<Arc<Queue>> {
        self.acks.lock().get(&route).cloned()
    }

    /// It is attached to this queue now; one that is not read has no running ack clocks there either.
    pub(super) fn add_queue(&self, queue: &Arc<Queue>) {
        let pauses = self.pauses.lock();
        let mut acks = self.acks.lock();
        acks.insert(AckRoute::Number(queue.number()), queue.clone());
        if let Some(id) = queue.id() {
            acks.insert(AckRoute::Queue(id), queue.clone());
        }
        drop(acks);
        if *pauses > 0 {
            queue.pause(self.session);
        }
    }

    /// It is not read for one more reason: its ack clocks stand still (P24).
    pub(super) fn pause(&self) {
        let mut pauses = self.pauses.lock();
        *pauses += 1;
        if *pauses == 1 {
            let queues = self.queues();
            queues.iter().for_each(|queue| queue.pause(self.session));
        }
    }

    /// Undoes one [`Member::pause`].
    pub(super) fn resume(&self) {
        let mut pauses = self.pauses.lock();
        let before = *pauses;
        *pauses = before.saturating_sub(1);
        if before == 1 {
            let queues = self.queues();
            queues.iter().for_each(|queue| queue.resume(self.session));
        }
    }

    pub(super) fn remove_queue(&self, queue: &Queue) {
        let mut acks = self.acks.lock();
        acks.remove(&AckRoute::Number(queue.number()));
        if let Some(id) = queue.id() {
            acks.remove(&AckRoute::Queue(id));
        }
    }

    /// Every queue it is attached to, volatile ones too.
    pub(super) fn queues(&self) -> Vec<Arc<Queue>> {
        let acks = self.acks.lock();
        let by_number = acks
            .iter()
            .filter(|(route, _)| matches!(route, AckRoute::Number(_)));
        by_number.map(|(_, queue)| queue.clone()).collect()
    }

    /// Plain copies of a key were dropped because its line is full (P23).
    pub(super) fn dropped(&self, key: &Arc<Key>, count: u64) {
        self.realm.dropped.add(count);
        self.note_gap(key, count);
    }

    /// Live copies of a key were dropped, and counted, because too many waited for it (P23).
    pub(super) fn lost(&self, key: &Arc<Key>, count: u64, encode: &dyn Encode) {
        self.note_gap(key, count);
        self.tell_gap(encode);
    }

    fn note_gap(&self, key: &Arc<Key>, count: u64) {
        if !self.wants_gap.load(Ordering::Relaxed) {
            return;
        }
        let mut dropped = self.dropped.lock();
        dropped.count += count;
        if dropped.keys.len() < GAP_KEYS && !dropped.keys.contains(key) {
            dropped.keys.push(key.clone());
        }
    }

    /// Tells it once of everything dropped so far; called when the line has room again.
    pub(super) fn tell_gap(&self, encode: &dyn Encode) {
        let dropped = std::mem::take(&mut *self.dropped.lock());
        if dropped.count > 0 {
            self.outbox.notice(encode.notice(&Notice::Gap {
                keys: &dropped.keys,
                dropped: dropped.count,
            }));
        }
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("session", &self.session)
            .field("realm", &self.realm.id)
            .finish_non_exhaustive()
    }
}
