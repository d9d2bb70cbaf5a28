//! Storing messages: what is known already, who takes it, who is left out, and holding what is not
//! due.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Result;
use crate::clock::Timestamp;
use crate::model::{MessageId, RealmId};

use super::super::types::{
    Append, Appended, Delayed, Full, LogId, Overflow, Placed, QueueId, Quota, Seq,
};
use super::changes::Touched;
use super::keep::{Entries, Keep};
use super::log::{Class, Log};
use super::queue::Queue;
use super::state::State;

/// What a log would do with a message.
struct Offer {
    wanted: u32,
    /// Of those, queues without room.
    full: u32,
    /// Entries that queues dropped because they may have fewer than they had.
    dropped: u64,
}

fn offer<E: Entries>(
    log: &mut Log<E>,
    queues: &mut HashMap<QueueId, Box<Queue>>,
    guaranteed: bool,
    overflow: Overflow,
    mut filled: impl FnMut(QueueId),
) -> Offer {
    let mut offer = Offer {
        wanted: 0,
        full: 0,
        dropped: 0,
    };
    for class in [Class::Every, Class::Guaranteed] {
        if class == Class::Guaranteed && !guaranteed {
            break;
        }
        let next = log.head().of(class) + 1;
        // Every queue comes by here once from having room to being full.
        while let Some(&(room, id)) = log.readers(class).rooms.first()
            && room < next
        {
            match queues.get_mut(&id) {
                Some(queue) => {
                    offer.dropped += queue.fill(log, overflow);
                    filled(id);
                }
                None => {
                    log.readers(class).rooms.pop_first();
                }
            }
        }
        let readers = log.readers(class);
        offer.full += readers.full;
        offer.wanted += readers.full + u32::try_from(readers.rooms.len()).unwrap_or(u32::MAX);
    }
    offer
}

/// The readers of `log` that would take the message, were they not to be skipped.
fn skipped<'a>(
    log: LogId,
    queues: &'a HashMap<QueueId, Box<Queue>>,
    item: &Append,
) -> Vec<&'a Queue> {
    let mut skipped: Vec<&Queue> = Vec::new();
    for id in &item.skip {
        let queue = queues.get(id).filter(|queue| {
            let wants = queue.class() == Class::Every || item.message.guaranteed;
            queue.log == log && wants && !queue.is_left
        });
        if let Some(queue) = queue
            && skipped.iter().all(|other| other.id != *id)
        {
            skipped.push(queue);
        }
    }
    skipped
}

impl<K: Keep> State<K> {
    /// The message that was stored under its mark or uid; its own id where that is forgotten.
    pub(crate) fn known(&self, item: &Append) -> Option<MessageId> {
        if item.mark.is_none() && item.uid.is_none() {
            return None;
        }
        let (mark, uid) = (item.mark.as_ref(), item.uid.as_ref());
        let marks = &self.realms.get(&item.realm)?.marks;
        let known = marks.find(mark, uid, item.message.produced, &self.bounds)?;
        Some(known.id.unwrap_or(item.message.id))
    }

    /// Stores one message; see [`Store::append`](super::super::Store::append).
    pub(crate) fn append(&mut self, item: &Append) -> Result<Appended> {
        let id = item.message.id;
        let now = item.message.produced;
        if let Some(known) = self.known(item) {
            return Ok(self.duplicate(known));
        }
        if let Some(released) = item.release
            && !self.keep.holds(released)
        {
            return Ok(self.duplicate(id));
        }
        let placed = match item.due {
            Some(_) => Vec::new(),
            None => self.place(item)?,
        };
        if let Some(due) = item.due {
            self.hold(item, due)?;
        }
        if let Some(released) = item.release {
            self.drop_delayed(released);
        }
        let is_stored = item.due.is_some() || placed.iter().any(|placed| placed.queued > 0);
        if is_stored
            && (item.mark.is_some() || item.uid.is_some())
            && let Some(realm) = self.realms.get_mut(&item.realm)
        {
            let (mark, uid) = (item.mark.clone(), item.uid.clone());
            realm.marks.set(mark, uid, id, now, &self.bounds);
            self.keep.note_marks(&item.realm);
            let realm = realm.id;
            if let Some((instance, _)) = &item.mark {
                self.keep
                    .note(|| Touched::Mark(realm, Arc::clone(instance)));
            }
            if let Some(uid) = &item.uid {
                self.keep.note(|| Touched::Uid(realm, Arc::clone(uid)));
            }
        }
        Ok(Appended {
            id,
            duplicate: false,
            delayed: item.due.is_some(),
            placed,
        })
    }

    fn hold(&mut self, item: &Append, due: Timestamp) -> Result<()> {
        let max = self.bounds.quota(&item.realm).queue;
        let realm = self.realm_mut(&item.realm);
        let id = realm.id;
        if realm.delayed >= max {
            return Err(Full::Delayed.into());
        }
        realm.delayed += 1;
        let row = Delayed {
            realm: item.realm.clone(),
            message: Arc::clone(&item.message),
            due,
            owner: item.owner.clone(),
        };
        self.keep.hold(id, row);
        self.keep.note(|| Touched::Delayed(item.message.id));
        Ok(())
    }

    pub(crate) fn drop_delayed(&mut self, id: MessageId) {
        let realm = self.keep.drop_delayed(id);
        self.keep.note(|| Touched::Delayed(id));
        if let Some(realm) = realm.and_then(|realm| self.realms.get_mut(&realm)) {
            realm.delayed = realm.delayed.saturating_sub(1);
        }
    }

    pub(crate) fn duplicate(&mut self, id: MessageId) -> Appended {
        self.counters.duplicates += 1;
        Appended {
            id,
            duplicate: true,
            delayed: self.keep.holds(id),
            placed: Vec::new(),
        }
    }

    fn place(&mut self, item: &Append) -> Result<Vec<Placed>> {
        let overflow = self.bounds.overflow;
        let quota = self.bounds.quota(&item.realm);
        self.tell_bound(&item.realm, quota.queue);
        if quota.bytes < Quota::ANY {
            self.weigh(&item.realm);
        }
        let mut placed = Vec::with_capacity(item.logs.len());
        let (mut grows, mut queued, mut refused) = (0u64, 0u64, 0u64);
        let mut dropped = 0;
        for id in &item.logs {
            let Some(log) = self.logs.get_mut(id).filter(|log| log.realm == item.realm) else {
                continue;
            };
            let (keep, guaranteed) = (&mut self.keep, item.message.guaranteed);
            let filled = |queue| keep.note_queue(queue);
            let mut offer = offer(log, &mut self.queues, guaranteed, overflow, filled);
            dropped += offer.dropped;
            for queue in skipped(*id, &self.queues, item) {
                offer.wanted -= 1;
                offer.full -= u32::from(queue.shut.is_some());
            }
            if offer.wanted == 0 {
                continue;
            }
            let refuses = match overflow {
                Overflow::Reject => offer.full,
                Overflow::DropOldest => 0,
            };
            grows += u64::from(offer.wanted - offer.full);
            queued += u64::from(offer.wanted - refuses);
            refused += u64::from(refuses);
            placed.push(Placed {
                log: *id,
                seq: 0,
                queued: offer.wanted - refuses,
                refused: refuses,
            });
        }
        let Some(realm) = self.realms.get_mut(&item.realm) else {
            return Ok(Vec::new());
        };
        realm.queued = realm.queued.saturating_sub(dropped);
        self.counters.dropped_oldest += dropped;
        if placed.is_empty() {
            return Ok(placed);
        }
        let takers = placed.iter().filter(|placed| placed.queued > 0).count();
        let bytes = item.message.size() as u64 * takers as u64;
        let admitted = quota.admit(
            realm.queued.saturating_add(grows),
            realm.kept.bytes().saturating_add(bytes),
        );
        if let Err(full) = admitted {
            self.counters.refused += refused + queued;
            return Err(full.into());
        }
        if queued == 0 {
            self.counters.refused += refused;
            return Err(Full::Queues.into());
        }
        realm.queued += grows;
        self.counters.refused += refused;
        self.counters.dropped_oldest += queued - grows;
        for placed in placed.iter_mut().filter(|placed| placed.queued > 0) {
            let skipped = skipped(placed.log, &self.queues, item);
            let skipped: Vec<QueueId> = skipped.iter().map(|queue| queue.id).collect();
            for id in &skipped {
                // One that drops its oldest for every new entry must not do so for this one.
                self.change(*id, |_| ())?;
            }
            placed.seq = self.push(placed.log, item);
            self.skip(&skipped, placed.seq, &item.realm)?;
        }
        Ok(placed)
    }

    /// Has the queues of a realm go by another bound.
    fn tell_bound(&mut self, name: &RealmId, max_queued: u64) {
        let realm = self.realms.get_mut(name);
        let Some(realm) = realm.filter(|realm| realm.max_queued != max_queued) else {
            return;
        };
        realm.max_queued = max_queued;
        for id in realm.logs.values() {
            if let Some(log) = self.logs.get_mut(id) {
                log.max_queued = max_queued;
            }
        }
        let queues: Vec<QueueId> = realm.queues.values().copied().collect();
        for id in queues {
            // They stand anew after any change. One that has no log is none.
            let _ = self.change_any(id, |_| ());
        }
    }

    /// Finds out how many bytes are kept for a realm, if that is not known.
    pub(crate) fn weigh(&mut self, name: &RealmId) {
        let realm = self.realms.get_mut(name);
        let Some(realm) = realm.filter(|realm| !realm.is_weighed) else {
            return;
        };
        let queues = realm.queues.values().filter_map(|id| self.queues.get(id));
        let exceptions: u64 = queues.map(|queue| queue.exception_bytes).sum();
        let entries = self.keep.weigh(realm.id, &realm.kept);
        realm.kept.set(exceptions + entries);
        realm.is_weighed = true;
    }

    /// Settles a new entry for those that do not get it.
    fn skip(&mut self, queues: &[QueueId], seq: Seq, realm: &RealmId) -> Result<()> {
        for id in queues {
            if let Some(realm) = self.realms.get_mut(realm) {
                // They count every new entry of their class, until the change says otherwise.
                realm.queued += 1;
            }
            self.change(*id, |change| {
                change.queue.settle_waiting(seq, change.log);
            })?;
        }
        Ok(())
    }

    fn push(&mut self, id: LogId, item: &Append) -> u64 {
        let Some(log) = self.logs.get_mut(&id) else {
            return 0;
        };
        self.counters.appended += 1;
        let seq = log.push(&item.message);
        self.keep.note_log(id);
        if let Some(expires) = item.message.expires
            && log.wake.is_none_or(|wake| expires < wake)
        {
            if let Some(wake) = log.wake.replace(expires) {
                self.wakes.remove(&(wake, id));
            }
            self.wakes.insert((expires, id));
        }
        let is_dropping = !log.every.slack.is_empty() || !log.guaranteed.slack.is_empty();
        if is_dropping {
            log.trim();
        }
        seq
    }
}
