//! Messages held until they are due, of all realms (P17). Knows no log.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use crate::clock::Timestamp;
use crate::model::{MessageId, RealmId};

use super::super::types::Delayed;

/// By due time, then in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    rows: BTreeMap<(Timestamp, u64), Delayed>,
    places: HashMap<MessageId, (Timestamp, u64)>,
    next: u64,
}

impl Delays {
    pub(crate) fn contains(&self, id: MessageId) -> bool {
        self.places.contains_key(&id)
    }

    pub(crate) fn get(&self, id: MessageId) -> Option<&Delayed> {
        self.rows.get(self.places.get(&id)?)
    }

    /// At most `most` behind a due time and place, and those of the last one.
    pub(crate) fn after(
        &self,
        after: Option<(u64, u64)>,
        most: usize,
    ) -> (Vec<Delayed>, Option<(u64, u64)>) {
        let after = after.map(|(due, place)| (Timestamp(due), place));
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.rows.range((from, Bound::Unbounded)).take(most);
        let last = rows.clone().last().map(|((due, place), _)| (due.0, *place));
        (rows.map(|(_, row)| row.clone()).collect(), last)
    }

    pub(crate) fn hold(&mut self, row: Delayed) {
        self.next += 1;
        let place = (row.due, self.next);
        self.places.insert(row.message.id, place);
        self.rows.insert(place, row);
    }

    pub(crate) fn take(&mut self, id: MessageId) -> Option<Delayed> {
        let place = self.places.remove(&id)?;
        self.rows.remove(&place)
    }

    /// At most `limit` that are due, and when the first of the others is due.
    pub(crate) fn due(&self, limit: usize, now: Timestamp) -> (Vec<Delayed>, Option<Timestamp>) {
        let rows = self.rows.values().take(limit);
        let due: Vec<_> = rows.take_while(|row| row.due <= now).cloned().collect();
        let next = self.rows.keys().nth(due.len()).map(|(due, _)| *due);
        (due, next)
    }

    /// Drops those of a realm; how many.
    pub(crate) fn purge(&mut self, realm: &RealmId) -> u64 {
        let before = self.rows.len();
        let places = &mut self.places;
        self.rows.retain(|_, row| {
            let is_kept = row.realm != *realm;
            if !is_kept {
                places.remove(&row.message.id);
            }
            is_kept
        });
        (before - self.rows.len()) as u64
    }

    pub(crate) fn rename(&mut self, from: &RealmId, to: &RealmId) {
        for row in self.rows.values_mut().filter(|row| row.realm == *from) {
            row.realm = to.clone();
        }
    }
}
