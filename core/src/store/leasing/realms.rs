//! Calls about a whole realm.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

use super::super::types::{DeadLetterId, Depth, QueueId};
use super::line::Op;
use super::queue::{Known, Queue};
use super::state::{State, Waits};

impl State {
    pub(super) fn purge_realm(&mut self, id: &RealmId) -> (u64, Waits) {
        let Some(realm) = self.realms.get_mut(id) else {
            return (0, Vec::new());
        };
        let gone = realm.queued + realm.graves.len() as u64;
        let queues: Vec<QueueId> = realm.queues.values().copied().collect();
        let letters: Vec<DeadLetterId> = realm.graves.after(None).map(|letter| letter.id).collect();
        letters
            .into_iter()
            .for_each(|letter| self.discard_row(letter, id));
        let mut waits = Vec::new();
        let mut last = None;
        for queue in queues {
            let place = self
                .queues
                .get(&queue)
                .map(|queue| Arc::clone(&queue.place));
            let is_known = self
                .queues
                .get(&queue)
                .is_none_or(|queue| queue.known == Known::Yes);
            waits.extend(self.remove(queue));
            if let Some(place) = place.filter(|_| !is_known) {
                let (told, done) = oneshot::channel();
                self.lines.push(
                    queue,
                    Op::Drain {
                        place,
                        told: Some(told),
                    },
                );
                waits.push(done);
            }
            last = Some(queue);
        }
        if let Some(queue) = last.filter(|_| self.lines.methods.purge_realm) {
            let (told, done) = oneshot::channel();
            let op = Op::PurgeRealm {
                realm: id.clone(),
                told: Some(told),
            };
            self.lines.push(queue, op);
            waits.push(done);
        }
        self.realms.remove(id);
        let gone = gone + self.delays.purge(id);
        waits.extend(self.save());
        (gone, waits)
    }

    /// Rows stay under the name that they were stored with.
    pub(super) fn rename_realm(&mut self, from: &RealmId, to: &RealmId) -> Result<Waits> {
        if from == to {
            return Ok(Vec::new());
        }
        if self.realms.get(to).is_some_and(|realm| !realm.is_empty()) {
            return Err(Error::new(
                ErrorKind::BadName,
                format!("the store holds messages of a realm {to} already; purge it first"),
            ));
        }
        let Some(mut realm) = self.realms.remove(from) else {
            return Ok(Vec::new());
        };
        for id in realm.logs.values() {
            if let Some(log) = self.logs.get_mut(id) {
                log.realm = to.clone();
            }
        }
        for letter in realm.graves.all_mut() {
            letter.realm = to.clone();
        }
        self.delays.rename(from, to);
        self.realms.insert(to.clone(), realm);
        Ok(self.save())
    }

    pub(super) fn realm_depth(&self, realm: &RealmId) -> Depth {
        let mut sum = Depth::default();
        let queues = self.realms.get(realm).into_iter();
        for id in queues.flat_map(|realm| realm.queues.values()) {
            let depth = self.queues.get(id).map(Queue::depth).unwrap_or_default();
            sum.count += depth.count;
            sum.bytes += depth.bytes;
            sum.oldest = sum.oldest.into_iter().chain(depth.oldest).min();
        }
        sum
    }
}
