//! The dead letters of one realm, bounded by number and age (P25, P37). Knows no queue.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Message, RealmId};

use super::super::state;
use super::super::types::{DeadLetter, DeadLetterId};

type Letter = state::Letter<Arc<Message>>;

/// By id, with an order of age beside it.
#[derive(Debug, Default)]
pub(super) struct Graves {
    letters: BTreeMap<DeadLetterId, Letter>,
    ages: BTreeSet<(Timestamp, DeadLetterId)>,
}

impl Graves {
    /// Buries; whether there was none of this id.
    pub(super) fn bury(&mut self, letter: Letter) -> bool {
        self.ages.insert((letter.dead_at, letter.id));
        let older = self.letters.insert(letter.id, letter);
        if let Some(older) = &older {
            self.ages.remove(&(older.dead_at, older.id));
        }
        older.is_none()
    }

    pub(super) fn has(&self, id: DeadLetterId) -> bool {
        self.letters.contains_key(&id)
    }

    pub(super) fn take(&mut self, id: DeadLetterId) -> Option<Letter> {
        let letter = self.letters.remove(&id)?;
        self.ages.remove(&(letter.dead_at, id));
        Some(letter)
    }

    /// Those after `after` by id.
    pub(super) fn after(&self, after: Option<DeadLetterId>) -> impl Iterator<Item = &Letter> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let letters = self.letters.range((from, Bound::Unbounded));
        letters.map(|(_, letter)| letter)
    }

    pub(super) fn list(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Vec<DeadLetter> {
        let letter = |letter: &Letter| DeadLetter {
            id: letter.id,
            realm: realm.clone(),
            key: letter.key.clone(),
            kind: letter.kind,
            name: Arc::clone(&letter.name),
            message: Arc::clone(&letter.held),
            attempts: letter.attempts,
            rounds: letter.rounds,
            reason: Arc::clone(&letter.reason),
            first_error: letter.first_error.clone(),
            last_error: letter.last_error.clone(),
            dead_at: letter.dead_at,
        };
        self.after(after).take(limit).map(letter).collect()
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
}
