//! Telling everything a state holds, page by page, while it goes on.
//!
//! Knows neither file nor the other store. What is found damaged is set aside here and not told (P7).

use std::sync::Arc;

use crate::model::Message;
use crate::{Error, ErrorKind, Result};

use super::super::documents::Rows as _;
use super::super::record::{
    DelayedRecord, EntryRecord, ExceptionRecord, ExportCursor, Exported, Gone, LetterRecord,
    LogRecord, MarkRecord, ReaderRecord, Record, Sums,
};
use super::super::types::{DeadLetterId, Delayed, LogId, PageLimit, QueueId, Seq};
use super::changes::{Changes, Touched};
use super::keep::{Entries, Keep, Letter, Row, Uids as _};
use super::log::{Log, Totals};
use super::marks::Mark;
use super::queue::Queue;
use super::realm::Realm;
use super::runs::Runs;
use super::state::State;

/// Entries of one log, or exceptions of one queue, that damage takes, found while telling.
enum Damaged {
    Entry(LogId, Totals),
    Exception(QueueId, Seq),
}

/// A page that is being filled.
pub(super) struct Sheet {
    records: Vec<Record>,
    pub(super) entries: usize,
    bytes: usize,
    damaged: Vec<Damaged>,
}

impl Sheet {
    pub(super) fn put(&mut self, record: Record) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(record.weight());
        self.records.push(record);
    }

    fn is_full(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

impl From<Totals> for Sums {
    fn from(totals: Totals) -> Self {
        Self {
            seq: totals.seq,
            guaranteed: totals.guaranteed,
            bytes: totals.bytes,
            guaranteed_bytes: totals.guaranteed_bytes,
        }
    }
}

fn runs(runs: &Runs) -> Vec<(u64, u64)> {
    runs.iter().collect()
}

fn log_record<E: Entries>(id: LogId, realm: u64, log: &Log<E>) -> Record {
    Record::Log(LogRecord {
        log: id.0,
        realm,
        key: log.key.clone(),
        head: log.head().into(),
        gone: runs(&log.gone),
        gone_guaranteed: runs(&log.gone_guaranteed),
    })
}

fn queue_record(queue: &Queue) -> Record {
    Record::Queue(Box::new(ReaderRecord {
        queue: queue.id.0,
        log: queue.log.0,
        kind: queue.kind,
        name: Arc::clone(&queue.name),
        settings: queue.settings.clone(),
        seen: queue.seen.0,
        sent: queue.sent,
        is_left: queue.is_left,
        exceptions: queue.exceptions,
        exception_bytes: queue.exception_bytes,
        joined: queue.joined,
        owned: queue.owned,
        owned_guaranteed: queue.owned_guaranteed,
        low: queue.low,
        gone: queue.gone,
        done: runs(&queue.done),
        shut: queue.shut.map(|shut| (shut.number, shut.seq)),
    }))
}

fn exception_record(queue: QueueId, row: Row<Arc<Message>>) -> Record {
    Record::Exception(Box::new(ExceptionRecord {
        queue: queue.0,
        seq: row.state.seq,
        rounds: row.rounds,
        attempts: row.state.attempts,
        failures: row.state.failures,
        returns: row.state.returns,
        due: row.state.due.0,
        first_error: row.state.first_error,
        last_error: row.state.last_error,
        suspect: row.state.suspect,
        message: row.held,
    }))
}

fn letter_record(realm: u64, letter: Letter<Arc<Message>>) -> Record {
    Record::Letter(Box::new(LetterRecord {
        realm,
        queue: letter.id.queue.0,
        seq: letter.id.seq,
        key: letter.key,
        kind: letter.kind,
        name: letter.name,
        attempts: letter.attempts,
        rounds: letter.rounds,
        reason: letter.reason,
        first_error: letter.first_error,
        last_error: letter.last_error,
        dead_at: letter.dead_at.0,
        message: letter.held,
    }))
}

fn mark_record(realm: u64, instance: Arc<str>, mark: &Mark) -> Record {
    Record::Mark(Box::new(MarkRecord {
        realm,
        instance,
        used: mark.used.0,
        high: mark.high,
        window: mark.bits.to_vec(),
        ids: mark.ids.iter().map(|(n, id)| (*n, id.0)).collect(),
    }))
}

fn tell_exception(queue: QueueId, seq: Seq, row: Option<Row<Arc<Message>>>, sheet: &mut Sheet) {
    match row {
        Some(row) => sheet.put(exception_record(queue, row)),
        None => sheet.damaged.push(Damaged::Exception(queue, seq)),
    }
}

fn delayed_record(realm: u64, row: Delayed) -> Record {
    Record::Delayed(DelayedRecord {
        realm,
        due: row.due.0,
        owner: row.owner,
        message: row.message,
    })
}

fn ended() -> Error {
    Error::new(
        ErrorKind::StoreUnavailable,
        "the copy of the store was interrupted; begin it again",
    )
}

impl<K: Keep> State<K> {
    /// A page of everything; see [`Store::export`](super::super::Store::export).
    pub(crate) fn export(
        &mut self,
        cursor: Option<&ExportCursor>,
        limit: PageLimit,
    ) -> Result<Exported> {
        let next = match cursor {
            Some(cursor) => cursor.clone(),
            None => self.begin_export(),
        };
        let is_ours = |changes: &mut Box<Changes>| changes.is_of(&next);
        let mut changes = self.keep.changes().take_if(is_ours).ok_or_else(ended)?;
        let mut sheet = Sheet {
            records: vec![Record::Numbers { last: self.last_id }],
            entries: limit.entries.max(1),
            bytes: limit.bytes.max(1),
            damaged: Vec::new(),
        };
        while !sheet.is_full()
            && let Some(row) = changes.next()
        {
            self.tell(row, &mut changes, &mut sheet);
        }
        *self.keep.changes() = Some(changes);
        for damaged in sheet.damaged {
            match damaged {
                Damaged::Entry(log, totals) => self.lose_entry(log, totals),
                Damaged::Exception(queue, seq) => {
                    // A queue that has ended meanwhile had its exceptions taken along.
                    let _ = self.change_any(queue, |change| change.end_exception(seq));
                    self.counters.damaged += 1;
                }
            }
        }
        let left = self.keep.changes().take().ok_or_else(ended)?;
        let entries = |log: LogId, told: Seq| {
            let log = self.logs.get(&log);
            log.map_or(0, |log| {
                log.head().seq.saturating_sub(told.max(log.front()))
            })
        };
        let count = left.left(entries);
        *self.keep.changes() = Some(left);
        Ok(Exported {
            records: sheet.records,
            next,
            left: count,
        })
    }

    /// Takes everything there is into the line; an export that was under way ends.
    fn begin_export(&mut self) -> ExportCursor {
        let cursor = ExportCursor::default();
        let mut changes = Changes::new(&cursor);
        // By number: the same content is told in the same order.
        let mut realms: Vec<_> = self.realms.iter().collect();
        realms.sort_unstable_by_key(|(_, realm)| realm.id);
        for (name, realm) in &realms {
            changes.names.insert(realm.id, (*name).clone());
            changes.add(Touched::Realm(realm.id));
        }
        let mut logs: Vec<LogId> = self.logs.keys().copied().collect();
        logs.sort_unstable();
        logs.into_iter()
            .for_each(|id| changes.add(Touched::Log(id)));
        let mut queues: Vec<&Queue> = self.queues.values().map(|queue| &**queue).collect();
        queues.sort_unstable_by_key(|queue| queue.id);
        for queue in &queues {
            changes.add(Touched::Queue(queue.id));
        }
        for queue in queues.iter().filter(|queue| queue.exceptions > 0) {
            changes.add(Touched::EachException(queue.id, 0));
        }
        for (_, realm) in realms {
            if realm.dead > 0 {
                changes.add(Touched::EachLetter(realm.id, None));
            }
            for instance in realm.marks.instances() {
                changes.add(Touched::Mark(realm.id, instance));
            }
            if !realm.marks.uids.is_empty() {
                changes.add(Touched::EachUid(realm.id, 0));
            }
        }
        changes.is_walking_delayed = true;
        changes.add(Touched::EachDelayed(None));
        if !self.keep.documents().is_empty() {
            changes.add(Touched::EachDocument(None));
        }
        *self.keep.changes() = Some(Box::new(changes));
        cursor
    }

    fn tell(&self, row: Touched, changes: &mut Changes, sheet: &mut Sheet) {
        match row {
            Touched::Realm(realm) => {
                let is_there = self.realm_of(realm, changes).is_some();
                let name = changes.names.get(&realm).filter(|_| is_there);
                sheet.put(match name {
                    Some(name) => Record::Realm {
                        realm,
                        name: name.as_str().into(),
                    },
                    None => Record::Gone(Gone::Realm { realm }),
                });
            }
            Touched::Log(id) => self.tell_log(id, changes, sheet),
            Touched::Queue(id) => sheet.put(match self.queues.get(&id) {
                Some(queue) => queue_record(queue),
                None => Record::Gone(Gone::Queue { queue: id.0 }),
            }),
            Touched::Exception(queue, seq) => {
                let found = self.keep.exceptions_after(queue, seq.saturating_sub(1), 1);
                match found.into_iter().find(|(at, _)| *at == seq) {
                    Some((_, row)) => tell_exception(queue, seq, row, sheet),
                    None => {
                        let queue = queue.0;
                        sheet.put(Record::Gone(Gone::Exception { queue, seq }));
                    }
                }
            }
            Touched::Exceptions(queue) => {
                sheet.put(Record::Gone(Gone::Exceptions { queue: queue.0 }));
                changes.add(Touched::EachException(queue, 0));
            }
            Touched::EachException(queue, after) => {
                let rows = self.keep.exceptions_after(queue, after, sheet.entries);
                if let Some((last, _)) = rows.last() {
                    changes.add(Touched::EachException(queue, *last));
                }
                for (seq, row) in rows {
                    tell_exception(queue, seq, row, sheet);
                }
            }
            Touched::Mark(realm, instance) => {
                let found = self.realm_of(realm, changes);
                if let Some(mark) = found.and_then(|realm| realm.marks.get(&instance)) {
                    sheet.put(mark_record(realm, instance, mark));
                }
            }
            row => self.tell_more(row, changes, sheet),
        }
    }

    fn tell_more(&self, row: Touched, changes: &mut Changes, sheet: &mut Sheet) {
        match row {
            Touched::Letter(realm, id) => {
                let before = DeadLetterId {
                    queue: id.queue,
                    seq: id.seq.saturating_sub(1),
                };
                let mut found = self.keep.letters_after(realm, Some(before), 1);
                let found = found.pop().filter(|letter| letter.id == id);
                sheet.put(match found {
                    Some(letter) => letter_record(realm, letter),
                    None => Record::Gone(Gone::Letter {
                        realm,
                        queue: id.queue.0,
                        seq: id.seq,
                    }),
                });
            }
            Touched::EachLetter(realm, after) => {
                let most = sheet.entries;
                let letters = self.keep.letters_after(realm, after, most);
                let last = letters.last().map(|letter| letter.id);
                for letter in letters {
                    sheet.put(letter_record(realm, letter));
                }
                if last.is_some() {
                    changes.add(Touched::EachLetter(realm, last));
                }
            }
            // What the walk has not passed yet it meets in its place.
            Touched::Delayed(_) if changes.is_walking_delayed => changes.add(row),
            Touched::Delayed(id) => {
                let row = self.keep.delayed_of(id);
                let row = row.and_then(|row| Some((self.realms.get(&row.realm)?.id, row)));
                sheet.put(match row {
                    Some((realm, row)) => delayed_record(realm, row),
                    None => Record::Gone(Gone::Delayed { message: id.0 }),
                });
            }
            Touched::EachDelayed(after) => {
                let (rows, last) = self.keep.delayed_after(after, sheet.entries);
                for row in rows {
                    if let Some(realm) = self.realms.get(&row.realm) {
                        sheet.put(delayed_record(realm.id, row));
                    }
                }
                changes.is_walking_delayed = last.is_some();
                if last.is_some() {
                    changes.add(Touched::EachDelayed(last));
                }
            }
            row => self.tell_uids(row, changes, sheet),
        }
    }

    fn tell_uids(&self, row: Touched, changes: &mut Changes, sheet: &mut Sheet) {
        match row {
            Touched::Uid(realm, uid) => {
                let found = self.realm_of(realm, changes);
                let found = found.and_then(|realm| realm.marks.uids.find(&uid));
                if let Some((message, at)) = found {
                    let (message, at) = (message.0, at.0);
                    sheet.put(Record::Uid {
                        realm,
                        uid,
                        message,
                        at,
                    });
                }
            }
            Touched::EachUid(realm, after) => {
                let found = self.realm_of(realm, changes);
                let most = sheet.entries;
                let found = found.map(|realm| realm.marks.uids.after(after, most));
                let Some((uids, last)) = found else { return };
                for (uid, message, at) in uids {
                    let (message, at) = (message.0, at.0);
                    sheet.put(Record::Uid {
                        realm,
                        uid,
                        message,
                        at,
                    });
                }
                if let Some(last) = last {
                    changes.add(Touched::EachUid(realm, last));
                }
            }
            row => self.tell_documents(row, changes, sheet),
        }
    }

    fn realm_of(&self, id: u64, changes: &Changes) -> Option<&Realm<K::Uids>> {
        let realm = self.realms.get(changes.names.get(&id)?)?;
        (realm.id == id).then_some(realm)
    }

    fn tell_log(&self, id: LogId, changes: &mut Changes, sheet: &mut Sheet) {
        let found = self.logs.get(&id);
        let realm = found.and_then(|log| self.realms.get(&log.realm));
        let (Some(log), Some(realm)) = (found, realm) else {
            changes.told.remove(&id);
            return sheet.put(Record::Gone(Gone::Log { log: id.0 }));
        };
        sheet.put(log_record(id, realm.id, log));
        let told = changes.told.entry(id).or_default();
        loop {
            let most = (sheet.entries.max(1), sheet.bytes);
            let entries = log.entries.after((*told).max(log.front()), most);
            if entries.is_empty() {
                *told = log.head().seq;
                return;
            }
            for (totals, message) in entries {
                *told = totals.seq;
                match message {
                    Some(message) => sheet.put(Record::Entry(EntryRecord {
                        log: id.0,
                        sums: totals.into(),
                        message,
                    })),
                    None => sheet.damaged.push(Damaged::Entry(id, totals)),
                }
            }
            if *told == log.head().seq {
                return;
            }
            if sheet.is_full() {
                return changes.add(Touched::Log(id));
            }
        }
    }
}
