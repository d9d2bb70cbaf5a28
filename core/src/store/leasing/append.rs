//! Storing messages: who takes it is decided when the call comes; it counts once every row of it
//! is stored, and what came before it in its logs.
//!
//! One row a queue. If the store refuses one of them, those it took are dropped again and the
//! producer is told no.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::{Elapsed, Timestamp};
use crate::model::{Message, MessageId, RealmId};
use crate::{Error, Result};

use super::super::simple::NewRow;
use super::super::types::{
    Append, Appended, Delayed, Full, LogId, Overflow, Placed, QueueId, Quota, Seq,
};
use super::line::{Op, Purpose};
use super::queue::{Cell, Waiting};
use super::state::State;

/// Runs of entries that were not guaranteed that are remembered of a log.
const MOST_RUNS: usize = 1024;

/// A mark or a user's id of one realm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum MarkKey {
    Number(RealmId, Arc<str>, u64),
    Uid(RealmId, Arc<str>),
}

fn mark_keys(item: &Append) -> Vec<MarkKey> {
    let mark = item.mark.as_ref().map(|(instance, number)| {
        MarkKey::Number(item.realm.clone(), Arc::clone(instance), *number)
    });
    let uid = item.uid.as_ref();
    let uid = uid.map(|uid| MarkKey::Uid(item.realm.clone(), Arc::clone(uid)));
    mark.into_iter().chain(uid).collect()
}

type Answer = oneshot::Sender<Result<Appended>>;

/// An append whose rows are on their way.
#[derive(Debug)]
pub(super) struct InFlight {
    item: Append,
    placed: Vec<Placed>,
    targets: Vec<(QueueId, Seq, Cell)>,
    /// Rows without an answer.
    left: usize,
    failure: Option<Error>,
    answers: Vec<Answer>,
    /// The same message again.
    repeats: Vec<Answer>,
}

/// What an append is answered.
pub(super) enum Answered {
    Now(Result<Appended>),
    Later(oneshot::Receiver<Result<Appended>>),
}

/// What one log does with a message.
struct Offer {
    log: LogId,
    takers: Vec<QueueId>,
    full: Vec<QueueId>,
}

impl State {
    pub(super) fn append(&mut self, item: Append, now: Elapsed) -> Answered {
        match self.try_append(item, now) {
            Ok(answered) => answered,
            Err(error) => Answered::Now(Err(error)),
        }
    }

    fn try_append(&mut self, item: Append, now: Elapsed) -> Result<Answered> {
        let id = item.message.id;
        let keys = mark_keys(&item);
        if let Some(answered) = self.known(&item, &keys) {
            return Ok(answered);
        }
        if item
            .release
            .is_some_and(|released| !self.delays.contains(released))
        {
            return Ok(Answered::Now(Ok(self.duplicate(id))));
        }
        if let Some(due) = item.due {
            self.hold(&item, due)?;
            self.mark(&item);
            let delayed = true;
            return Ok(Answered::Now(Ok(Appended {
                delayed,
                ..appended(id, Vec::new())
            })));
        }
        let quota = self.bounds.quota(&item.realm);
        let offers = self.offers(&item, quota.queue);
        if offers.is_empty() {
            self.end_release(&item);
            return Ok(Answered::Now(Ok(appended(id, Vec::new()))));
        }
        let placed = self.admit(&item, &offers, quota)?;
        let offers = (offers, quota.queue);
        Ok(Answered::Later(self.send(item, keys, placed, offers, now)))
    }

    /// The answer for a message that is stored already, or about to be.
    fn known(&mut self, item: &Append, keys: &[MarkKey]) -> Option<Answered> {
        if keys.is_empty() {
            return None;
        }
        let (mark, uid) = (item.mark.as_ref(), item.uid.as_ref());
        let now = item.message.produced;
        let realm = self.realms.get(&item.realm);
        if let Some(known) = realm.and_then(|realm| realm.marks.find(mark, uid, now, &self.bounds))
        {
            let id = known.id.unwrap_or(item.message.id);
            return Some(Answered::Now(Ok(self.duplicate(id))));
        }
        let first = keys.iter().find_map(|key| self.coming.get(key))?;
        let (answer, later) = oneshot::channel();
        self.in_flight.get_mut(first)?.repeats.push(answer);
        Some(Answered::Later(later))
    }

    fn duplicate(&mut self, id: MessageId) -> Appended {
        self.counters.duplicates += 1;
        Appended {
            id,
            duplicate: true,
            delayed: self.delays.contains(id),
            placed: Vec::new(),
        }
    }

    fn hold(&mut self, item: &Append, due: Timestamp) -> Result<()> {
        let max = self.bounds.quota(&item.realm).queue;
        let realm = self.realms.entry(item.realm.clone()).or_default();
        if realm.delayed >= max {
            return Err(Full::Delayed.into());
        }
        realm.delayed += 1;
        self.delays.hold(Delayed {
            realm: item.realm.clone(),
            message: Arc::clone(&item.message),
            due,
            owner: item.owner.clone(),
        });
        self.end_release(item);
        Ok(())
    }

    fn mark(&mut self, item: &Append) {
        if (item.mark.is_some() || item.uid.is_some())
            && let Some(realm) = self.realms.get_mut(&item.realm)
        {
            let (mark, uid) = (item.mark.clone(), item.uid.clone());
            let now = item.message.produced;
            realm
                .marks
                .set(mark, uid, item.message.id, now, &self.bounds);
        }
    }

    fn end_release(&mut self, item: &Append) {
        if let Some(released) = item.release {
            self.drop_delayed(released);
        }
    }

    pub(super) fn drop_delayed(&mut self, id: MessageId) {
        if let Some(row) = self.delays.take(id)
            && let Some(realm) = self.realms.get_mut(&row.realm)
        {
            realm.delayed -= 1;
        }
    }

    /// Which queues want it, log by log.
    fn offers(&self, item: &Append, max_queued: u64) -> Vec<Offer> {
        let mut offers = Vec::new();
        for id in &item.logs {
            let Some(log) = self.logs.get(id).filter(|log| log.realm == item.realm) else {
                continue;
            };
            let (mut takers, mut full) = (Vec::new(), Vec::new());
            for (id, queue) in log
                .queues
                .iter()
                .filter_map(|id| Some((id, self.queues.get(id)?)))
            {
                let wants = queue.settings.durable || item.message.guaranteed;
                if !wants || queue.is_left || item.skip.contains(id) {
                    continue;
                }
                match queue.count() < max_queued {
                    true => takers.push(*id),
                    false => full.push(*id),
                }
            }
            if !takers.is_empty() || !full.is_empty() {
                let log = *id;
                offers.push(Offer { log, takers, full });
            }
        }
        offers
    }

    /// Whether it may be stored, counted; where. The entries have no numbers yet.
    fn admit(&mut self, item: &Append, offers: &[Offer], quota: Quota) -> Result<Vec<Placed>> {
        let rejects = self.bounds.overflow == Overflow::Reject;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let placed: Vec<Placed> = offers
            .iter()
            .map(|offer| {
                let (takes, full) = (number(offer.takers.len()), number(offer.full.len()));
                Placed {
                    log: offer.log,
                    seq: 0,
                    queued: if rejects { takes } else { takes + full },
                    refused: if rejects { full } else { 0 },
                }
            })
            .collect();
        let grows: u64 = offers.iter().map(|offer| offer.takers.len() as u64).sum();
        let queued: u64 = placed.iter().map(|placed| u64::from(placed.queued)).sum();
        let refused: u64 = placed.iter().map(|placed| u64::from(placed.refused)).sum();
        let realm = self.realms.get(&item.realm);
        let (waiting, bytes) = realm.map_or((0, 0), |realm| (realm.queued, realm.bytes));
        let size = item.message.size() as u64;
        let admitted = quota.admit(
            waiting.saturating_add(grows),
            bytes.saturating_add(size.saturating_mul(queued)),
        );
        self.counters.refused += refused;
        if let Err(full) = admitted {
            self.counters.refused += queued;
            return Err(full.into());
        }
        if queued == 0 {
            return Err(Full::Queues.into());
        }
        Ok(placed)
    }

    /// Sends its rows to those that have room and, where none is refused, to those that make it.
    fn send(
        &mut self,
        item: Append,
        keys: Vec<MarkKey>,
        mut placed: Vec<Placed>,
        (offers, max_queued): (Vec<Offer>, u64),
        now: Elapsed,
    ) -> oneshot::Receiver<Result<Appended>> {
        self.last_append += 1;
        let number = self.last_append;
        let mut targets = Vec::new();
        for (placed, offer) in placed.iter_mut().zip(offers) {
            if placed.queued == 0 {
                continue;
            }
            placed.seq = self.number(offer.log, &item.message, number);
            let mut queues = offer.takers;
            if placed.refused == 0 {
                for id in &offer.full {
                    self.drop_oldest(*id, max_queued);
                }
                queues.extend(offer.full);
            }
            for queue in queues {
                let (seq, message) = (placed.seq, Arc::clone(&item.message));
                if let Some(cell) = self.enter(queue, offer.log, seq, message, number, now) {
                    targets.push((queue, seq, cell));
                }
            }
        }
        for key in keys {
            self.coming.insert(key, number);
        }
        let (answer, later) = oneshot::channel();
        let in_flight = InFlight {
            left: targets.len(),
            item,
            placed,
            targets,
            failure: None,
            answers: vec![answer],
            repeats: Vec::new(),
        };
        self.in_flight.insert(number, in_flight);
        later
    }

    /// The next entry of a log.
    fn number(&mut self, log: LogId, message: &Message, append: u64) -> Seq {
        let Some(log) = self.logs.get_mut(&log) else {
            return 0;
        };
        log.head += 1;
        log.line.push_back((append, log.head));
        if !message.guaranteed {
            log.ordinary.insert(log.head);
            let oldest = log.ordinary.iter().next();
            if let Some((first, last)) = oldest.filter(|_| log.ordinary.pieces() > MOST_RUNS) {
                log.ordinary.remove_run(first, last);
            }
        }
        log.head
    }

    fn enter(
        &mut self,
        id: QueueId,
        log: LogId,
        seq: Seq,
        message: Arc<Message>,
        append: u64,
        since: Elapsed,
    ) -> Option<Cell> {
        let cell = Cell::default();
        let entry = Waiting::new(Arc::clone(&cell), Arc::clone(&message));
        let place = self.queues.get(&id).map(|queue| Arc::clone(&queue.place))?;
        let ttl = message
            .expires
            .map(|expires| expires.since(message.produced));
        let row = self.row(place, message, ttl, (log, seq));
        self.try_rows(id);
        let may_leave = self.may_leave();
        self.change(id, |queue, _, expiry| {
            queue.add(id, seq, entry, may_leave, expiry)
        })
        .ok()?;
        let op = Op::Enqueue {
            purpose: Purpose::Append(append),
            cell: Arc::clone(&cell),
            row,
            since,
        };
        self.lines.push(id, op);
        Some(cell)
    }

    pub(super) fn row(
        &mut self,
        place: Arc<super::super::simple::Place>,
        message: Arc<Message>,
        ttl: Option<Duration>,
        entry: (LogId, Seq),
    ) -> NewRow {
        self.last_row += 1;
        NewRow {
            place,
            id: format!("msg-{:016x}-{:x}", self.nonce, self.last_row).into(),
            message,
            ttl,
            entry,
        }
    }

    /// Makes room in a full queue: exceptions stay.
    fn drop_oldest(&mut self, id: QueueId, max_queued: u64) {
        let Some(queue) = self.queues.get(&id) else {
            return;
        };
        // More than one if it may have fewer than it did.
        let waiting = queue.waiting.len() as u64;
        let over = (waiting + 1).saturating_sub(max_queued).max(1).min(waiting);
        let oldest = queue.waiting.keys().copied().take(over as usize);
        let oldest: Vec<Seq> = oldest.collect();
        let dropped = self.change(id, |queue, _, expiry| {
            let cells = oldest.into_iter();
            let cells = cells.filter_map(|seq| queue.take(id, seq, expiry));
            cells.collect::<Vec<Cell>>()
        });
        if let Ok(cells) = dropped
            && !cells.is_empty()
        {
            self.counters.dropped_oldest += cells.len() as u64;
            self.ack(id, cells, None);
        }
    }

    /// One row of an append has been answered.
    pub(super) fn sent(&mut self, number: u64, outcome: Result<()>) {
        let Some(append) = self.in_flight.get_mut(&number) else {
            return;
        };
        append.left -= 1;
        if let Err(error) = outcome {
            append.failure.get_or_insert(error);
        }
        if append.left > 0 {
            return;
        }
        let mut ready = VecDeque::from([number]);
        while let Some(number) = ready.pop_front() {
            if self.is_next(number) {
                ready.extend(self.finish(number));
            }
        }
    }

    /// Whether all its rows are answered and nothing is before it in its logs.
    fn is_next(&self, number: u64) -> bool {
        self.in_flight.get(&number).is_some_and(|append| {
            let logs = append.placed.iter().filter(|placed| placed.seq > 0);
            append.left == 0
                && logs.into_iter().all(|placed| {
                    let front = self.logs.get(&placed.log).and_then(|log| log.line.front());
                    front.is_none_or(|(first, _)| *first == number)
                })
        })
    }

    /// Counts an append, or undoes it; which may be next.
    fn finish(&mut self, number: u64) -> Vec<u64> {
        let Some(append) = self.in_flight.remove(&number) else {
            return Vec::new();
        };
        for key in mark_keys(&append.item) {
            self.coming.remove(&key);
        }
        let mut next = Vec::new();
        for placed in append.placed.iter().filter(|placed| placed.seq > 0) {
            if let Some(log) = self.logs.get_mut(&placed.log) {
                log.line.pop_front();
                next.extend(log.line.front().map(|(number, _)| *number));
            }
            self.counters.appended += u64::from(append.failure.is_none());
        }
        let id = append.item.message.id;
        let outcome = match append.failure {
            None => {
                self.mark(&append.item);
                self.end_release(&append.item);
                Ok(appended(id, append.placed))
            }
            Some(error) => {
                self.undo(append.targets);
                Err(error)
            }
        };
        for repeat in append.repeats {
            let outcome = outcome.clone().map(|first| self.duplicate(first.id));
            // Nobody may wait any more; the same below.
            let _ = repeat.send(outcome);
        }
        for answer in append.answers {
            let _ = answer.send(outcome.clone());
        }
        next
    }

    /// The rows of a refused message reach nobody (P27).
    fn undo(&mut self, targets: Vec<(QueueId, Seq, Cell)>) {
        for (id, seq, cell) in targets {
            // What is settled already has its row dropped behind its storing.
            let taken = self.change(id, |queue, _, expiry| queue.take(id, seq, expiry));
            if matches!(taken, Ok(Some(_))) && cell.id().is_some() {
                self.ack(id, vec![cell], None);
            }
        }
    }
}

fn appended(id: MessageId, placed: Vec<Placed>) -> Appended {
    Appended {
        id,
        duplicate: false,
        delayed: false,
        placed,
    }
}
