//! Settling, excepting, burying and reviving.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

use super::super::types::{Burial, DeadLetterId, Exception, QueueChange, QueueId, Seq, Settled};
use super::changes::Touched;
use super::keep::{Held as _, Keep, Letter, Row};
use super::state::{Change, State, no_queue};

fn no_dead_letter() -> Error {
    Error::new(ErrorKind::DeadLetterUnknown, "there is no such dead letter")
}

impl<K: Keep> Change<'_, K> {
    fn settle(&mut self, seq: Seq) -> Settled {
        match self.end_exception(seq) {
            true => Settled::Now,
            false => self.queue.settle_waiting(seq, self.log),
        }
    }

    fn upsert(&mut self, state: &Exception) {
        let has_rows = self.queue.exceptions > 0;
        if has_rows && self.keep.change_exception(self.queue.id, state) {
            let queue = self.queue.id;
            return self.keep.note(|| Touched::Exception(queue, state.seq));
        }
        if let Some(held) = self.take_waiting(state.seq) {
            self.except(Row {
                held,
                rounds: 0,
                state: state.clone(),
            });
        }
    }

    /// Takes an entry out of its turn: a reference of its own to the message.
    fn take_waiting(&mut self, seq: Seq) -> Option<K::Held> {
        let held = self.queue.waiting_message(seq, self.log)?;
        self.queue.settle_waiting(seq, self.log);
        self.keep.retain(&held);
        Some(held)
    }

    fn bury(&mut self, burial: &Burial, now: Timestamp) -> Option<Letter<K::Held>> {
        let (held, rounds) = match self.take_exception(burial.seq) {
            Some(row) => (row.held, row.rounds),
            None => (self.take_waiting(burial.seq)?, 0),
        };
        Some(Letter {
            id: DeadLetterId {
                queue: self.queue.id,
                seq: burial.seq,
            },
            key: self.log.key.clone(),
            kind: self.queue.kind,
            name: Arc::clone(&self.queue.name),
            held,
            attempts: burial.attempts,
            rounds: rounds + 1,
            reason: Arc::clone(&burial.reason),
            first_error: burial.first_error.clone(),
            last_error: burial.last_error.clone(),
            dead_at: now,
        })
    }
}

impl<K: Keep> State<K> {
    pub(crate) fn update(
        &mut self,
        id: QueueId,
        update: &QueueChange,
        now: Timestamp,
    ) -> Result<()> {
        let (realm, letters) = self.change_any(id, |change| {
            for state in &update.except {
                change.upsert(state);
            }
            for seq in update.clear.iter().chain(&update.done) {
                change.settle(*seq);
            }
            let burials = update.bury.iter();
            let letters: Vec<_> = burials
                .filter_map(|burial| change.bury(burial, now))
                .collect();
            let Change { queue, log, .. } = change;
            if let Some(low) = update.low {
                queue.pass(low, log);
            }
            if let Some(sent) = update.sent {
                queue.sent = queue.sent.max(sent);
            }
            (log.realm.clone(), letters)
        })?;
        self.counters.buried += letters.len() as u64;
        if !letters.is_empty() {
            self.bury_all(&realm, letters);
        }
        self.end_left(id);
        Ok(())
    }

    fn bury_all(&mut self, realm: &RealmId, letters: Vec<Letter<K::Held>>) {
        let id = self.realm_mut(realm).id;
        let mut new = 0;
        for letter in letters {
            let buried = letter.id;
            new += usize::from(self.keep.bury(id, letter));
            self.keep.note(|| Touched::Letter(id, buried));
        }
        let max = self.bounds.dlq_max_per_realm;
        let realm = self.realm_mut(realm);
        realm.dead += new;
        let over = realm.dead.saturating_sub(max);
        realm.dead -= over;
        if over > 0 {
            self.end_letters(id, over, Timestamp(u64::MAX));
            self.counters.dead_letters_dropped += over as u64;
        }
    }

    pub(crate) fn settle(&mut self, id: QueueId, seqs: &[Seq]) -> Result<Vec<Settled>> {
        let settled = self.change_any(id, |change| {
            seqs.iter().map(|seq| change.settle(*seq)).collect()
        })?;
        self.end_left(id);
        Ok(settled)
    }

    pub(crate) fn purge_queue(&mut self, id: QueueId) -> Result<u64> {
        self.change(id, |change| {
            change.end_exceptions() + change.queue.purge(change.log)
        })
    }

    pub(crate) fn revive(
        &mut self,
        realm: &RealmId,
        id: DeadLetterId,
        now: Timestamp,
    ) -> Result<QueueId> {
        let realm_id = self.realm_of_letter(realm, id)?;
        if !self.queues.contains_key(&id.queue) {
            return Err(no_queue());
        }
        let letter = self.take_letter(realm_id, realm, id)?;
        let produced = letter.held.produced();
        let expires = letter.held.expires();
        let expires = expires.map(|expires| now.plus(expires.since(produced)));
        let row = Row {
            held: letter.held.expiring(expires),
            rounds: letter.rounds,
            state: Exception {
                seq: id.seq,
                attempts: letter.attempts,
                failures: 0,
                returns: 0,
                due: now,
                first_error: letter.first_error,
                last_error: letter.last_error,
                suspect: false,
            },
        };
        self.change_any(id.queue, |change| change.except(row))?;
        Ok(id.queue)
    }

    pub(crate) fn discard(&mut self, realm: &RealmId, id: DeadLetterId) -> Result<()> {
        let realm_id = self.realm_of_letter(realm, id)?;
        let letter = self.take_letter(realm_id, realm, id)?;
        self.keep.release(letter.held);
        Ok(())
    }

    pub(crate) fn purge_dead_letters(&mut self, realm: &RealmId) -> u64 {
        let Some(realm) = self.realms.get_mut(realm) else {
            return 0;
        };
        let dead = std::mem::take(&mut realm.dead);
        if dead > 0 {
            let id = realm.id;
            self.end_letters(id, dead, Timestamp(u64::MAX));
        }
        dead as u64
    }

    fn end_letters(&mut self, realm: u64, most: usize, before: Timestamp) {
        for id in self.keep.end_letters(realm, most, before) {
            self.keep.note(|| Touched::Letter(realm, id));
        }
    }

    fn realm_of_letter(&self, realm: &RealmId, id: DeadLetterId) -> Result<u64> {
        let realm = self.realms.get(realm).filter(|realm| realm.dead > 0);
        let realm = realm.ok_or_else(no_dead_letter)?.id;
        let is_there = self.keep.has_letter(realm, id);
        is_there.then_some(realm).ok_or_else(no_dead_letter)
    }

    fn take_letter(
        &mut self,
        realm_id: u64,
        realm: &RealmId,
        id: DeadLetterId,
    ) -> Result<Letter<K::Held>> {
        let letter = self
            .keep
            .take_letter(realm_id, id)
            .ok_or_else(no_dead_letter)?;
        self.keep.note(|| Touched::Letter(realm_id, id));
        if let Some(realm) = self.realms.get_mut(realm) {
            realm.dead = realm.dead.saturating_sub(1);
        }
        Ok(letter)
    }
}
