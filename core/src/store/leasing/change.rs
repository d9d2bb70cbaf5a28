//! Settling, excepting, burying and reviving.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock::{Elapsed, Timestamp};
use crate::model::{Message, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::memory::Row;
use super::super::types::{
    Burial, DeadLetter, DeadLetterId, Exception, QueueChange, QueueId, Seq, Settled,
};
use super::line::{Op, Purpose};
use super::queue::Cell;
use super::read::Look;
use super::state::{State, Waits, no_queue};

fn no_dead_letter() -> Error {
    Error::new(ErrorKind::DeadLetterUnknown, "there is no such dead letter")
}

impl State {
    /// Applies a change; what must be written before it is answered.
    pub(super) fn update(
        &mut self,
        id: QueueId,
        update: &QueueChange,
        now: Timestamp,
    ) -> Result<Look<Waits>> {
        let queue = self.any(id)?;
        let seqs = update.except.iter().map(|row| row.seq);
        let mut seqs = seqs.chain(update.bury.iter().map(|burial| burial.seq));
        let away = seqs.find(|seq| {
            let entry = queue.waiting.get(seq);
            entry.is_some_and(|entry| entry.message.is_none())
        });
        if let Some(seq) = away {
            return Ok(Look::Wait(self.fetch(id, seq)));
        }
        update
            .except
            .iter()
            .try_for_each(|state| self.upsert(id, state))?;
        let mut cells = Vec::new();
        for seq in update.clear.iter().chain(&update.done) {
            cells.extend(self.change(id, |queue, _, expiry| queue.take(id, *seq, expiry))?);
        }
        let mut waits = Vec::new();
        for burial in &update.bury {
            waits.extend(self.bury(id, burial, now)?);
        }
        if let Some(low) = update.low {
            cells.extend(self.change(id, |queue, _, expiry| {
                let passed: Vec<Seq> = queue.waiting.range(..=low).map(|(seq, _)| *seq).collect();
                let passed = passed.into_iter();
                passed
                    .filter_map(|seq| queue.take(id, seq, expiry))
                    .collect::<Vec<Cell>>()
            })?);
        }
        if let Some(sent) = update.sent
            && let Some(queue) = self.queues.get_mut(&id)
            && sent > queue.sent
        {
            queue.sent = sent;
            waits.extend(self.save());
        }
        if !cells.is_empty() || !update.clear.is_empty() || !update.done.is_empty() {
            waits.extend(self.ack_then(id, cells));
        }
        self.end_left(id);
        Ok(Look::Found(waits))
    }

    fn upsert(&mut self, id: QueueId, state: &Exception) -> Result<()> {
        self.change(id, |queue, log, expiry| {
            if queue.exceptions.change(state) || state.seq > log.committed() {
                return;
            }
            if let Some(entry) = queue.take_waiting(id, state.seq, expiry)
                && let Some(message) = entry.message
            {
                let row = Row {
                    held: message,
                    rounds: 0,
                    state: state.clone(),
                };
                queue.except(id, row, entry.cell, expiry);
            }
        })
    }

    fn bury(&mut self, id: QueueId, burial: &Burial, now: Timestamp) -> Result<Waits> {
        let taken = self.change(id, |queue, log, expiry| {
            let (message, rounds, cell) = match queue.take_exception(id, burial.seq, expiry) {
                Some((row, cell)) => (row.held, row.rounds, cell),
                None => {
                    let entry = queue.take_waiting(id, burial.seq, expiry)?;
                    (entry.message?, 0, entry.cell)
                }
            };
            let letter = DeadLetter {
                id: DeadLetterId {
                    queue: id,
                    seq: burial.seq,
                },
                realm: log.realm.clone(),
                key: log.key.clone(),
                kind: queue.kind,
                name: Arc::clone(&queue.name),
                message,
                attempts: burial.attempts,
                rounds: rounds + 1,
                reason: Arc::clone(&burial.reason),
                first_error: burial.first_error.clone(),
                last_error: burial.last_error.clone(),
                dead_at: now,
            };
            Some((letter, cell))
        })?;
        let Some((letter, cell)) = taken else {
            return Ok(Vec::new());
        };
        self.counters.buried += 1;
        let (told, waits) = oneshot::channel();
        let (told, reason) = (Some(told), Arc::clone(&letter.reason));
        match self.lines.methods.dead_letter {
            true => {
                self.dead_rows.insert(letter.id, Arc::clone(&cell));
                self.lines.push(id, Op::Bury { cell, reason, told });
            }
            false => self.ack(id, vec![cell], told),
        }
        let realm_id = letter.realm.clone();
        let realm = self.realms.entry(realm_id.clone()).or_default();
        let dropped = realm.bury(letter, self.bounds.dlq_max_per_realm);
        self.counters.dead_letters_dropped += dropped.len() as u64;
        dropped
            .into_iter()
            .for_each(|letter| self.discard_row(letter, &realm_id));
        Ok(vec![waits])
    }

    /// Drops the row of a dead letter.
    pub(super) fn discard_row(&mut self, letter: DeadLetterId, realm: &RealmId) {
        if let Some(cell) = self.dead_rows.remove(&letter)
            && self.lines.methods.discard_dlq
        {
            let realm = realm.clone();
            self.lines.push(letter.queue, Op::Discard { cell, realm });
        }
    }

    pub(super) fn settle(&mut self, id: QueueId, seqs: &[Seq]) -> Result<(Vec<Settled>, Waits)> {
        self.any(id)?;
        let mut cells = Vec::new();
        let mut answers = Vec::with_capacity(seqs.len());
        for seq in seqs {
            answers.push(self.change(id, |queue, log, expiry| {
                if let Some(cell) = queue.take(id, *seq, expiry) {
                    cells.push(cell);
                    return Settled::Now;
                }
                let is_other = !queue.settings.durable && log.ordinary.end_of(*seq).is_some();
                match *seq <= queue.joined || *seq > log.head || is_other {
                    true => Settled::Unknown,
                    false => Settled::Before,
                }
            })?);
        }
        let waits = self.ack_then(id, cells);
        self.end_left(id);
        Ok((answers, waits))
    }

    pub(super) fn purge_queue(&mut self, id: QueueId) -> Result<(u64, Waits)> {
        self.live(id)?;
        let cells = self.change(id, |queue, _, expiry| queue.take_all(id, expiry))?;
        Ok((cells.len() as u64, self.ack_then(id, cells)))
    }

    pub(super) fn revive(
        &mut self,
        realm: &RealmId,
        id: DeadLetterId,
        now: Timestamp,
        since: Elapsed,
    ) -> Result<Waits> {
        let graves = self.realms.get(realm).map(|realm| &realm.graves);
        let letter = graves
            .and_then(|graves| graves.get(id))
            .ok_or_else(no_dead_letter)?;
        let queue = self.queues.get(&id.queue).ok_or_else(no_queue)?;
        let (place, log) = (Arc::clone(&queue.place), queue.log);
        let mut letter = letter.clone();
        let message = &letter.message;
        let lives = message
            .expires
            .map(|expires| expires.since(message.produced));
        letter.message = Arc::new(Message {
            expires: lives.map(|lives| now.plus(lives)),
            ..Message::clone(message)
        });
        letter.dead_at = now;
        let row = self.row(place, Arc::clone(&letter.message), lives, (log, id.seq));
        if let Some(realm) = self.realms.get_mut(realm) {
            realm.graves.take(id);
        }
        let (told, waits) = oneshot::channel();
        let purpose = Purpose::Revive(Box::new(letter), Some(told));
        let cell = Cell::default();
        self.lines.push(
            id.queue,
            Op::Enqueue {
                purpose,
                cell,
                row,
                since,
            },
        );
        Ok(vec![waits])
    }

    pub(super) fn discard(&mut self, realm: &RealmId, id: DeadLetterId) -> Result<()> {
        let graves = self.realms.get_mut(realm).map(|realm| &mut realm.graves);
        let letter = graves.and_then(|graves| graves.take(id));
        letter.ok_or_else(no_dead_letter)?;
        self.discard_row(id, realm);
        Ok(())
    }

    pub(super) fn purge_dead_letters(&mut self, realm: &RealmId) -> u64 {
        let Some(graves) = self.realms.get_mut(realm).map(|realm| &mut realm.graves) else {
            return 0;
        };
        let letters = std::mem::take(graves);
        for letter in letters.after(None) {
            self.discard_row(letter.id, realm);
        }
        letters.len() as u64
    }

    /// Whether an entry could still be changed: none is known of an unknown queue.
    pub(super) fn touch(&mut self, id: QueueId, now: Timestamp) -> Result<()> {
        self.live(id)?;
        if let Some(queue) = self.queues.get_mut(&id) {
            (queue.seen, queue.is_attached) = (now, false);
            // Nobody waits for it.
            self.is_dirty |= self.remembers;
        }
        Ok(())
    }
}
