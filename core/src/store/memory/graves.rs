//! The dead letters of one realm, by id and by age (P37). Knows no queue, and of a letter only that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Message, RealmId};

use super::super::state::Letter;
use super::super::types::{DeadLetter, DeadLetterId};

/// What [`Graves`] must know of a letter.
pub(in super::super) trait Buried {
    /// Its id, and when it was buried.
    fn grave(&self) -> (DeadLetterId, Timestamp);
}

impl<H> Buried for Letter<H> {
    fn grave(&self) -> (DeadLetterId, Timestamp) {
        (self.id, self.dead_at)
    }
}

impl Letter<Arc<Message>> {
    pub(super) fn dead_letter(&self, realm: &RealmId) -> DeadLetter {
        DeadLetter {
            id: self.id,
            realm: realm.clone(),
            key: self.key.clone(),
            kind: self.kind,
            name: Arc::clone(&self.name),
            message: Arc::clone(&self.held),
            attempts: self.attempts,
            rounds: self.rounds,
            reason: Arc::clone(&self.reason),
            first_error: self.first_error.clone(),
            last_error: self.last_error.clone(),
            dead_at: self.dead_at,
        }
    }
}

impl Buried for DeadLetter {
    fn grave(&self) -> (DeadLetterId, Timestamp) {
        (self.id, self.dead_at)
    }
}

/// By id, with an order of age beside it.
#[derive(Debug)]
pub(in super::super) struct Graves<L> {
    letters: BTreeMap<DeadLetterId, L>,
    ages: BTreeSet<(Timestamp, DeadLetterId)>,
}

impl<L> Default for Graves<L> {
    fn default() -> Self {
        Self {
            letters: BTreeMap::new(),
            ages: BTreeSet::new(),
        }
    }
}

impl<L: Buried> Graves<L> {
    pub(in super::super) fn len(&self) -> usize {
        self.letters.len()
    }

    /// Buries; whether there was none of this id.
    pub(in super::super) fn bury(&mut self, letter: L) -> bool {
        let (id, dead_at) = letter.grave();
        let is_new = self.take(id).is_none();
        self.ages.insert((dead_at, id));
        self.letters.insert(id, letter);
        is_new
    }

    pub(in super::super) fn get(&self, id: DeadLetterId) -> Option<&L> {
        self.letters.get(&id)
    }

    pub(in super::super) fn take(&mut self, id: DeadLetterId) -> Option<L> {
        let letter = self.letters.remove(&id)?;
        self.ages.remove(&(letter.grave().1, id));
        Some(letter)
    }

    /// Those after `after` by id.
    pub(in super::super) fn after(&self, after: Option<DeadLetterId>) -> impl Iterator<Item = &L> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let letters = self.letters.range((from, Bound::Unbounded));
        letters.map(|(_, letter)| letter)
    }

    /// All of them, to be changed in what is neither id nor age.
    pub(in super::super) fn all_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.letters.values_mut()
    }

    /// Ends at most `budget` of those buried at `before` or earlier, the oldest first; which.
    pub(in super::super) fn end_old(
        &mut self,
        before: Timestamp,
        budget: usize,
    ) -> Vec<DeadLetterId> {
        let mut ended = Vec::new();
        while ended.len() < budget
            && let Some(&(at, id)) = self.ages.first()
            && at <= before
        {
            self.take(id);
            ended.push(id);
        }
        ended
    }
}
