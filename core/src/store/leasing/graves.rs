//! The dead letters of one realm, bounded by number and age (P25, P37). Knows no queue.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::clock::Timestamp;
use crate::model::RealmId;

use super::super::types::{DeadLetter, DeadLetterId};

/// By id, with an order of age beside it.
#[derive(Debug, Default)]
pub(super) struct Graves {
    letters: BTreeMap<DeadLetterId, DeadLetter>,
    ages: BTreeSet<(Timestamp, DeadLetterId)>,
}

impl Graves {
    pub(super) fn len(&self) -> usize {
        self.letters.len()
    }

    /// Buries; which of the oldest had to go for the bound.
    pub(super) fn bury(&mut self, letter: DeadLetter, max: usize) -> Vec<DeadLetterId> {
        self.ages.insert((letter.dead_at, letter.id));
        if let Some(older) = self.letters.insert(letter.id, letter) {
            self.ages.remove(&(older.dead_at, older.id));
        }
        let mut dropped = Vec::new();
        while self.letters.len() > max
            && let Some((_, id)) = self.ages.pop_first()
        {
            self.letters.remove(&id);
            dropped.push(id);
        }
        dropped
    }

    pub(super) fn get(&self, id: DeadLetterId) -> Option<&DeadLetter> {
        self.letters.get(&id)
    }

    pub(super) fn take(&mut self, id: DeadLetterId) -> Option<DeadLetter> {
        let letter = self.letters.remove(&id)?;
        self.ages.remove(&(letter.dead_at, id));
        Some(letter)
    }

    pub(super) fn list(&self, after: Option<DeadLetterId>, limit: usize) -> Vec<DeadLetter> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let letters = self.letters.range((from, Bound::Unbounded));
        letters
            .take(limit)
            .map(|(_, letter)| letter.clone())
            .collect()
    }

    /// Ends at most `budget` of those buried at `before` or earlier; which.
    pub(super) fn end_old(&mut self, before: Timestamp, budget: usize) -> Vec<DeadLetterId> {
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

    pub(super) fn rename(&mut self, to: &RealmId) {
        for letter in self.letters.values_mut() {
            letter.realm = to.clone();
        }
    }
}
