//! What time ends: entries, dead letters, marks, left-overs. By index, in bites.

use std::collections::BTreeMap;

use crate::clock::Timestamp;
use crate::model::RealmId;

use super::super::types::{Maintained, QueueId};
use super::state::State;

impl State {
    /// Looks at about `budget` rows, and tries again what the store refused to drop.
    pub(super) fn maintain(&mut self, budget: usize, now: Timestamp) -> Maintained {
        self.lines.retry_owed();
        let mut left = budget.max(1);
        let mut expired: BTreeMap<QueueId, Vec<u64>> = BTreeMap::new();
        for (expires, queue, seq) in self.expiry.iter().take(left) {
            if *expires > now {
                break;
            }
            expired.entry(*queue).or_default().push(*seq);
        }
        let mut done = Maintained::default();
        for (queue, seqs) in expired {
            left -= seqs.len();
            let realm = self
                .queues
                .get(&queue)
                .and_then(|queue| self.logs.get(&queue.log));
            let realm: Option<RealmId> = realm.map(|log| log.realm.clone());
            let count = self.expire(queue, seqs);
            if let Some(realm) = realm.filter(|_| count > 0) {
                *done.expired.entry(realm).or_default() += count;
            }
            self.end_left(queue);
        }
        let ended = self.documents.sweep(now, left);
        left -= ended;
        self.is_dirty |= ended > 0;
        left = self.sweep_realms(left, now);
        done.more = left == 0;
        done
    }

    /// Ends a left-over of which nothing is left.
    pub(super) fn end_left(&mut self, id: QueueId) {
        let is_over = self
            .queues
            .get(&id)
            .is_some_and(|queue| queue.is_left && queue.count() == 0);
        if is_over {
            self.remove(id);
            self.is_dirty |= self.remembers;
        }
    }

    fn sweep_realms(&mut self, mut left: usize, now: Timestamp) -> usize {
        let ttl = u64::try_from(self.bounds.dlq_ttl.as_millis()).unwrap_or(u64::MAX);
        let before = now.0.checked_sub(ttl).map(Timestamp);
        let mut ended = Vec::new();
        for (id, realm) in &mut self.realms {
            realm.marks.sweep(now, &self.bounds);
            if let Some(before) = before {
                let letters = realm.graves.end_old(before, left);
                left -= letters.len();
                ended.extend(letters.into_iter().map(|letter| (letter, id.clone())));
            }
        }
        self.counters.dead_letters_expired += ended.len() as u64;
        for (letter, realm) in ended {
            self.discard_row(letter, &realm);
        }
        self.realms.retain(|_, realm| !realm.is_empty());
        left
    }
}
