//! What the store's answers mean: rows that are stored, dropped, found and found missing.
//!
//! A `dequeue` may answer a page or everything, leave the rows in the store or not. Rows are told
//! apart by their ids alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::model::{Key, Message};
use crate::{Error, ErrorKind, Result};

use super::super::memory::Row as Exceptional;
use super::super::simple::{DeadRow, Place, Row, RowId, RowPage};
use super::super::types::{DeadLetter, DeadLetterId, Exception, QueueId, Seq};
use super::line::{Op, Purpose, Then, Told};
use super::queue::{Cell, Known, Past, Queue, Stored, Waiting};
use super::state::State;

/// Rows that are asked for at once.
pub(super) const PAGE: usize = if cfg!(test) { 4 } else { 512 };

/// What the store said to one call.
pub(super) enum Outcome {
    /// Rows are stored, one answer each.
    Stored(Vec<Result<RowId>>),
    /// Rows are dropped but for those left, and why.
    Dropped(Vec<RowId>, Result<()>),
    /// Rows of a queue.
    Rows(Result<Vec<Row>>),
    /// It is done or not.
    Done(Result<()>),
}

fn tell(told: Told, outcome: &Result<()>) {
    if let Some(told) = told {
        // Nobody may wait any more.
        let _ = told.send(outcome.clone());
    }
}

impl State {
    /// A call of this queue has been answered.
    pub(super) fn finish_job(&mut self, queue: QueueId, ops: Vec<Op>, outcome: Outcome) {
        let failed = match &outcome {
            Outcome::Stored(answers) => answers.iter().filter(|answer| answer.is_err()).count(),
            Outcome::Dropped(_, result) | Outcome::Done(result) => usize::from(result.is_err()),
            Outcome::Rows(result) => usize::from(result.is_err()),
        };
        self.counters.failures += failed as u64;
        match outcome {
            Outcome::Stored(answers) => {
                for (op, answer) in ops.into_iter().zip(answers) {
                    self.stored(queue, op, answer);
                }
            }
            Outcome::Dropped(left, result) => {
                self.lines.owe(queue, left);
                for op in ops {
                    if let Op::Ack { told, .. } = op {
                        tell(told, &result);
                    }
                }
            }
            Outcome::Rows(rows) => ops
                .into_iter()
                .for_each(|op| self.rows(queue, op, rows.clone())),
            Outcome::Done(result) => ops.into_iter().for_each(|op| self.done(queue, op, &result)),
        }
        self.lines.done(queue);
    }

    fn stored(&mut self, id: QueueId, op: Op, answer: Result<RowId>) {
        let Op::Enqueue { purpose, cell, .. } = op else {
            return;
        };
        let outcome = answer.map(|row| {
            if let Some(queue) = self
                .queues
                .get_mut(&id)
                .filter(|queue| queue.known != Known::Yes)
            {
                queue.own.insert(row.clone());
            }
            cell.set(row);
        });
        match purpose {
            Purpose::Append(number) => self.sent(number, outcome),
            Purpose::Revive(letter, told) => self.revived(id, *letter, cell, told, outcome),
        }
    }

    fn done(&mut self, queue: QueueId, op: Op, result: &Result<()>) {
        match op {
            Op::Bury { cell, told, .. } => {
                if let Err(error) = result {
                    tracing::warn!(
                        "the store takes no dead letter, so its row is dropped: {error}"
                    );
                    return self.ack(queue, vec![cell], told);
                }
                tell(told, result);
            }
            Op::PurgeRealm { told, .. } => tell(told, result),
            Op::Ack { told, .. } => tell(told, result),
            Op::Discard { .. } => {
                if let Err(error) = result {
                    tracing::warn!("a dead letter stays in the store: {error}");
                }
            }
            // These are answered with rows.
            Op::Enqueue { .. }
            | Op::Load { .. }
            | Op::Try { .. }
            | Op::Fetch { .. }
            | Op::Drain { .. } => {}
        }
    }

    fn rows(&mut self, id: QueueId, op: Op, rows: Result<Vec<Row>>) {
        match op {
            Op::Drain { place, told } => self.drained(id, Op::Drain { place, told }, rows),
            Op::Fetch { from, page, .. } => self.fetched(id, from, &page, rows),
            Op::Load { .. } => self.loaded(id, rows),
            Op::Try { place, first, then } => self.tried(id, place, first, then, rows),
            _ => {}
        }
    }

    /// Drops what was found, until nothing is.
    fn drained(&mut self, id: QueueId, op: Op, rows: Result<Vec<Row>>) {
        let Op::Drain { told, .. } = op else {
            return;
        };
        match rows {
            Err(error) => tell(told, &Err(error)),
            Ok(rows) => {
                let cells = rows.into_iter().map(|row| Stored::taken(row.id)).collect();
                self.ack(id, cells, told);
            }
        }
    }

    fn loaded(&mut self, id: QueueId, rows: Result<Vec<Row>>) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                queue.known = Known::No;
                return queue.tell_readers(&Err(error));
            }
        };
        let (count, first) = (rows.len(), rows.first().map(|row| row.id.clone()));
        let last = rows.last().map(|row| row.id.clone());
        let (place, found) = (Arc::clone(&queue.place), self.adopt(id, rows));
        match first {
            Some(first) if self.keeps_rows.is_none() => {
                let then = Then::Load(last.filter(|_| count == PAGE && found > 0));
                let first = Some(first);
                self.lines.push_front(id, Op::Try { place, first, then });
            }
            Some(_) if count == PAGE && found > 0 => {
                self.lines.push_front(id, Op::Load { place, after: last });
            }
            _ => self.learned(id),
        }
    }

    /// Whether the store has left a row where it was when it answered it.
    fn tried(
        &mut self,
        id: QueueId,
        place: Arc<Place>,
        first: Option<RowId>,
        then: Then,
        rows: Result<Vec<Row>>,
    ) {
        if let (Some(first), Ok(rows)) = (&first, &rows) {
            self.keeps_rows = Some(rows.iter().any(|row| row.id == *first));
        }
        let rows = rows.unwrap_or_default();
        let one = rows.first().map(|row| row.id.clone());
        self.adopt(id, rows);
        if let (None, Some(one)) = (first, one) {
            let first = Some(one);
            return self.lines.push_front(id, Op::Try { place, first, then });
        }
        self.is_trying = false;
        match then {
            Then::Load(Some(after)) => {
                self.lines.push_front(
                    id,
                    Op::Load {
                        place,
                        after: Some(after),
                    },
                );
            }
            Then::Load(None) => self.learned(id),
            Then::Nothing => {}
        }
    }

    /// All rows of a queue are known.
    fn learned(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.known = Known::Yes;
            queue.own = HashSet::new();
            queue.tell_readers(&Ok(()));
        }
    }

    /// Takes rows of earlier processes in; how many those were.
    fn adopt(&mut self, id: QueueId, rows: Vec<Row>) -> usize {
        if let Some(row) = rows.first() {
            self.keeps_raw = Some(row.entry.is_some());
        }
        let (may_leave, keeps_rows) = (self.may_leave(), self.keeps_rows);
        let Some(queue) = self.queues.get_mut(&id) else {
            return 0;
        };
        if keeps_rows != Some(true) {
            note_taken(queue, &rows);
        }
        let is_learning = queue.known != Known::Yes;
        let mut found = 0;
        for row in rows {
            let (Some(queue), true) = (self.queues.get_mut(&id), is_learning) else {
                break;
            };
            if !queue.own.insert(row.id.clone()) {
                continue;
            }
            let Some(log) = self.logs.get_mut(&queue.log) else {
                break;
            };
            found += 1;
            let seq = match queue.past {
                Past::New => {
                    log.head += 1;
                    log.head
                }
                past => past.seq(&row, queue),
            };
            queue.found = seq;
            let message = named(row.message, &log.key);
            let entry = Waiting::new(Stored::taken(row.id), message);
            // The queue is there: it was just found.
            let _ = self.change(id, |queue, _, expiry| {
                queue.add(id, seq, entry, may_leave, expiry)
            });
        }
        found
    }

    /// Messages have come back, and some may be gone for good.
    fn fetched(&mut self, id: QueueId, from: Seq, page: &RowPage, rows: Result<Vec<Row>>) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        queue.is_fetching = false;
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => return queue.tell_readers(&Err(error)),
        };
        if self.keeps_rows != Some(true) {
            note_taken(queue, &rows);
        }
        let missing = queue.waiting.range(from..);
        let missing = missing.filter(|(_, entry)| entry.message.is_none());
        let mut missing: HashMap<RowId, Seq> = missing
            .filter_map(|(seq, entry)| Some((entry.cell.id()?.clone(), *seq)))
            .collect();
        let is_all = page.limit.is_none_or(|limit| rows.len() != limit);
        let first = rows.first().map(|row| row.id.clone());
        let mut last = None;
        for row in rows {
            if let Some(seq) = missing.remove(&row.id) {
                queue.fill(seq, row.message);
                last = last.max(Some(seq));
            }
        }
        let place = Arc::clone(&queue.place);
        if last.is_none() && !is_all && page.limit.is_some() {
            // A page of others: this store does not know where to go on.
            queue.is_fetching = true;
            let page = RowPage::default();
            return self.lines.push_front(id, Op::Fetch { place, from, page });
        }
        let gone = missing.into_values();
        let gone: Vec<Seq> = gone.filter(|seq| is_all || Some(*seq) < last).collect();
        queue.tell_readers(&Ok(()));
        if !gone.is_empty() {
            tracing::warn!(
                count = gone.len(),
                "rows have gone from the store that nobody settled"
            );
            self.expire(id, gone);
        }
        if let Some(first) = first.filter(|_| self.keeps_rows.is_none()) {
            let (first, then) = (Some(first), Then::Nothing);
            self.lines.push_front(id, Op::Try { place, first, then });
        }
    }

    fn revived(
        &mut self,
        id: QueueId,
        letter: DeadLetter,
        cell: Cell,
        told: Told,
        outcome: Result<()>,
    ) {
        if let Err(error) = outcome {
            if let Some(realm) = self.realms.get_mut(&letter.realm) {
                realm.bury(letter, self.bounds.dlq_max_per_realm);
            }
            return tell(told, &Err(error));
        }
        self.discard_row(letter.id, &letter.realm);
        let row = Exceptional {
            held: letter.message,
            rounds: letter.rounds,
            state: Exception {
                seq: letter.id.seq,
                attempts: letter.attempts,
                failures: 0,
                returns: 0,
                due: letter.dead_at,
                first_error: letter.first_error,
                last_error: letter.last_error,
                suspect: false,
            },
        };
        let back = self.change(id, |queue, _, expiry| {
            queue.except(id, row, Arc::clone(&cell), expiry)
        });
        if back.is_err() {
            self.ack(id, vec![cell], None);
        }
        let gone = |_| Error::new(ErrorKind::DeliveryUnknown, "its queue has just gone");
        tell(told, &back.map_err(gone));
    }
}

impl State {
    /// Rows that the store may not have any more and nobody has settled, by queue, in order.
    pub(super) fn taken_rows(&self) -> Vec<(Arc<Place>, Vec<Row>)> {
        if self.keeps_rows != Some(false) {
            return Vec::new();
        }
        let taken = |queue: &Queue| {
            let entries = queue
                .entries()
                .into_iter()
                .filter(|(_, cell)| cell.is_taken());
            let rows = entries.filter_map(|(seq, cell)| {
                Some(Row {
                    id: cell.id()?.clone(),
                    message: Arc::clone(queue.message(seq)?),
                    entry: Some((queue.log, seq)),
                })
            });
            rows.collect::<Vec<_>>()
        };
        let queues = self
            .queues
            .values()
            .map(|queue| (Arc::clone(&queue.place), taken(queue)));
        queues.filter(|(_, rows)| !rows.is_empty()).collect()
    }

    /// Takes up the dead letters that the store has kept.
    pub(super) fn exhume(&mut self, letters: Vec<DeadRow>) {
        let queues = self.queues.iter();
        let queues: HashMap<_, _> = queues
            .map(|(id, queue)| (Arc::clone(&queue.place), *id))
            .collect();
        for (at, mut letter) in (1..).zip(letters) {
            let Some(id) = queues.get(&letter.place).copied() else {
                continue;
            };
            let Some((queue, log)) = self
                .queues
                .get(&id)
                .and_then(|queue| Some((queue, self.logs.get(&queue.log)?)))
            else {
                continue;
            };
            letter.row.message = named(letter.row.message, &log.key);
            let entry = letter.row.entry.filter(|(log, _)| *log == queue.log);
            let seq = entry.map_or(Past::base(self.generation) + Past::DEAD + at, |(_, seq)| {
                seq
            });
            let grave = DeadLetter {
                id: DeadLetterId { queue: id, seq },
                realm: log.realm.clone(),
                key: log.key.clone(),
                kind: queue.kind,
                name: Arc::clone(&queue.name),
                message: letter.row.message,
                attempts: 1,
                rounds: 1,
                reason: letter.reason,
                first_error: None,
                last_error: None,
                dead_at: letter.dead_at,
            };
            self.dead_rows
                .insert(grave.id, Stored::taken(letter.row.id));
            let realm = self.realms.entry(grave.realm.clone()).or_default();
            realm.bury(grave, self.bounds.dlq_max_per_realm);
        }
    }

    /// Nobody will answer any more what still waits.
    pub(super) fn abandon(&mut self) {
        self.in_flight.clear();
        self.lines = super::line::Lines::default();
        self.savers.clear();
        self.queues
            .values_mut()
            .for_each(|queue| queue.readers.clear());
    }
}

/// A message of which the store has kept the body only has the event of its queue.
fn named(message: Arc<Message>, key: &Key) -> Arc<Message> {
    if !message.event.is_empty() {
        return message;
    }
    let event = match key {
        Key::Event { event, .. } | Key::Any { event } => Arc::clone(event),
        Key::All { .. } | Key::Everything { .. } | Key::Topic { .. } => key.wire_name().into(),
    };
    Arc::new(Message {
        event,
        ..Message::clone(&message)
    })
}

/// A `dequeue` has brought rows of entries that are here.
fn note_taken(queue: &Queue, rows: &[Row]) {
    let entries = queue.entries().into_iter();
    let cells: HashMap<&RowId, &Cell> = entries
        .filter_map(|(_, cell)| Some((cell.id()?, cell)))
        .collect();
    for row in rows {
        if let Some(cell) = cells.get(&row.id) {
            cell.take();
        }
    }
}

impl Past {
    /// The number of a row of an earlier process.
    fn seq(self, row: &Row, queue: &Queue) -> Seq {
        let Self::Remembered { base, sent, until } = self else {
            return queue.found + 1;
        };
        let entry = row
            .entry
            .filter(|(log, seq)| *log == queue.log && *seq < base);
        let produced = row.message.produced;
        let was_sent = match entry {
            Some((_, seq)) => seq <= sent,
            None => sent > queue.joined && until.is_none_or(|until| produced <= until),
        };
        let place = match (was_sent, entry) {
            (true, Some((_, seq))) => seq,
            (true, None) => base + 1,
            (false, _) => base + Self::UNSENT + 1,
        };
        place.max(queue.found + 1)
    }
}
