//! Settling, excepting, burying and reviving.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Message, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::types::{
    Burial, DeadLetter, DeadLetterId, Exception, QueueChange, QueueId, Seq, Settled,
};
use super::exceptions::Row;
use super::state::{Change, State};

fn no_dead_letter() -> Error {
    Error::new(ErrorKind::DeadLetterUnknown, "there is no such dead letter")
}

impl Change<'_> {
    fn settle(&mut self, seq: Seq) -> Settled {
        match self.take_exception(seq) {
            Some(_) => Settled::Now,
            None => self.queue.settle_waiting(seq, self.log),
        }
    }

    fn upsert(&mut self, state: Exception) {
        if let Some(rows) = self.queue.exceptions_mut()
            && rows.change(&state)
        {
            return;
        }
        if let Some(message) = self.take_waiting(state.seq) {
            self.except(Row {
                message,
                rounds: 0,
                state,
            });
        }
    }

    fn take_waiting(&mut self, seq: Seq) -> Option<Arc<Message>> {
        let message = Arc::clone(self.queue.waiting_message(seq, self.log)?);
        self.queue.settle_waiting(seq, self.log);
        Some(message)
    }

    fn bury(&mut self, burial: Burial, now: Timestamp) -> Option<DeadLetter> {
        let (message, rounds) = match self.take_exception(burial.seq) {
            Some(row) => (row.message, row.rounds),
            None => (self.take_waiting(burial.seq)?, 0),
        };
        Some(DeadLetter {
            id: DeadLetterId {
                queue: self.queue.id,
                seq: burial.seq,
            },
            realm: self.log.realm.clone(),
            key: self.log.key.clone(),
            kind: self.queue.kind,
            name: Arc::clone(&self.queue.name),
            message,
            attempts: burial.attempts,
            rounds: rounds + 1,
            reason: burial.reason,
            first_error: burial.first_error,
            last_error: burial.last_error,
            dead_at: now,
        })
    }
}

impl State {
    pub(super) fn update(
        &mut self,
        id: QueueId,
        update: QueueChange,
        now: Timestamp,
    ) -> Result<()> {
        let letters = self.change_any(id, |change| {
            for state in update.except {
                change.upsert(state);
            }
            for seq in update.clear.into_iter().chain(update.done) {
                change.settle(seq);
            }
            let burials = update.bury.into_iter();
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
            letters
        })?;
        self.counters.buried += letters.len() as u64;
        for letter in letters {
            let realm = self.realms.entry(letter.realm.clone()).or_default();
            let dropped = realm.graves.bury(letter, self.bounds.dlq_max_per_realm);
            self.counters.dead_letters_dropped += dropped;
        }
        self.end_left(id);
        Ok(())
    }

    pub(super) fn settle(&mut self, id: QueueId, seqs: &[Seq]) -> Result<Vec<Settled>> {
        let settled = self.change_any(id, |change| {
            seqs.iter().map(|seq| change.settle(*seq)).collect()
        })?;
        self.end_left(id);
        Ok(settled)
    }

    pub(super) fn purge_queue(&mut self, id: QueueId) -> Result<u64> {
        self.change(id, |change| {
            let rows = change.exceptions().map(|rows| rows.after(0));
            let seqs: Vec<Seq> = rows
                .into_iter()
                .flatten()
                .map(|row| row.state.seq)
                .collect();
            let exceptions = seqs.len() as u64;
            for seq in seqs {
                change.take_exception(seq);
            }
            exceptions + change.queue.purge(change.log)
        })
    }

    pub(super) fn revive(
        &mut self,
        realm: &RealmId,
        id: DeadLetterId,
        now: Timestamp,
    ) -> Result<QueueId> {
        let graves = self.realms.get(realm).map(|realm| &realm.graves);
        let letter = graves
            .and_then(|graves| graves.get(id))
            .ok_or_else(no_dead_letter)?;
        let message = &letter.message;
        let lives = message
            .expires
            .map(|expires| expires.since(message.produced));
        let row = Row {
            message: Arc::new(Message {
                expires: lives.map(|lives| now.plus(lives)),
                ..Message::clone(message)
            }),
            rounds: letter.rounds,
            state: Exception {
                seq: id.seq,
                attempts: letter.attempts,
                failures: 0,
                returns: 0,
                due: now,
                first_error: letter.first_error.clone(),
                last_error: letter.last_error.clone(),
                suspect: false,
            },
        };
        self.change_any(id.queue, |change| change.except(row))?;
        if let Some(realm) = self.realms.get_mut(realm) {
            realm.graves.take(id);
        }
        Ok(id.queue)
    }

    pub(super) fn discard(&mut self, realm: &RealmId, id: DeadLetterId) -> Result<()> {
        let graves = self.realms.get_mut(realm).map(|realm| &mut realm.graves);
        let letter = graves.and_then(|graves| graves.take(id));
        letter.map(|_| ()).ok_or_else(no_dead_letter)
    }
}
