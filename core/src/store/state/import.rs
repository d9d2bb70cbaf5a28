//! Taking in what another store tells, row by row, and making one whole of it.
//!
//! While rows come, what follows from them (who stands where in a log, what a realm has in sum, what
//! nobody needs) is not kept in step; [`State::finish_import`] finds it out anew from the rows, as
//! opening a database does. Rows that say what cannot be are refused.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::documents::Rows as _;
use super::super::record::{
    DelayedRecord, EntryRecord, ExceptionRecord, Gone, LetterRecord, LogRecord, MarkRecord,
    ReaderRecord, Record, Run, Sums,
};
use super::super::types::{DeadLetterId, Delayed, Exception, LogId, QueueId, QueueSpec};
use super::keep::{Entries as _, Keep, Letter, Row, Uids as _};
use super::log::Totals;
use super::marks::Mark;
use super::queue::{Queue, Shut};
use super::realm::Realm;
use super::runs::Runs;
use super::state::State;

impl From<Sums> for Totals {
    fn from(sums: Sums) -> Self {
        Self {
            seq: sums.seq,
            guaranteed: sums.guaranteed,
            bytes: sums.bytes,
            guaranteed_bytes: sums.guaranteed_bytes,
        }
    }
}

fn unfit(what: &str) -> Error {
    let why = format!("a copied row does not fit the others: {what}");
    Error::new(ErrorKind::StoreCorrupt, why)
}

/// Runs as told, in the place of what was there.
fn replace(runs: &mut Runs, told: &[Run]) -> Result<()> {
    runs.clear();
    for (first, last) in told {
        if first > last || *last > LAST {
            return Err(unfit("a run of numbers"));
        }
        runs.insert_run(*first, *last);
    }
    Ok(())
}

/// No number is larger.
const LAST: u64 = i64::MAX as u64;

impl<K: Keep> State<K> {
    /// Whether it holds nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.realms.values().all(Realm::is_empty)
            && self.queues.is_empty()
            && self.keep.documents().is_empty()
    }

    /// Takes in one row.
    ///
    /// # Errors
    /// `store_corrupt` for one that cannot be.
    pub(crate) fn import(&mut self, record: &Record) -> Result<()> {
        match record {
            Record::Numbers { last } => self.last_id = self.last_id.max(*last),
            Record::Realm { realm, name } => self.import_realm(*realm, RealmId::parse(name)?),
            Record::Log(log) => self.import_log(log)?,
            Record::Queue(queue) => self.import_queue(queue)?,
            Record::Entry(entry) => self.import_entry(entry)?,
            Record::Exception(exception) => self.import_exception(exception)?,
            Record::Letter(letter) => self.import_letter(letter)?,
            Record::Delayed(delayed) => self.import_delayed(delayed)?,
            Record::Mark(mark) => self.import_mark(mark)?,
            Record::Uid {
                realm,
                uid,
                message,
                at,
            } => {
                let uids = &mut self.imported(*realm)?.1.marks.uids;
                uids.set(Arc::clone(uid), MessageId(*message), Timestamp(*at));
            }
            Record::Document(document) => self.import_document(document)?,
            Record::Gone(gone) => self.import_gone(gone),
        }
        Ok(())
    }

    fn imported(&mut self, id: u64) -> Result<(RealmId, &mut Realm<K::Uids>)> {
        let name = self.names.get(&id).cloned();
        let name = name.ok_or_else(|| unfit("its realm is unknown"))?;
        let realm = self.realms.get_mut(&name);
        let realm = realm.ok_or_else(|| unfit("its realm is gone"))?;
        Ok((name, realm))
    }

    fn import_realm(&mut self, id: u64, name: RealmId) {
        self.last_id = self.last_id.max(id);
        match self.names.insert(id, name.clone()) {
            Some(before) if before == name => {}
            Some(before) => {
                if let Some(realm) = self.realms.remove(&before) {
                    self.keep.realm_renamed(id, &before, &name);
                    self.realms.insert(name.clone(), realm);
                }
                let logs = self.logs.values_mut();
                for log in logs.filter(|log| log.realm == before) {
                    log.realm = name.clone();
                }
            }
            None => {
                let uids = self.keep.uids(id, &name);
                let max = self.bounds.quota(&name).queue;
                let realm = Realm::new(id, uids, max, K::IS_WRITTEN);
                self.realms.insert(name, realm);
            }
        }
    }

    fn import_log(&mut self, told: &LogRecord) -> Result<()> {
        let id = LogId(told.log);
        if !self.logs.contains_key(&id) {
            let (name, _) = self.imported(told.realm)?;
            self.make_log(id, name, told.key.clone());
        }
        if let Some(log) = self.logs.get_mut(&id) {
            log.restore(told.head.into());
            replace(&mut log.gone, &told.gone)?;
            replace(&mut log.gone_guaranteed, &told.gone_guaranteed)?;
        }
        self.last_id = self.last_id.max(told.log);
        self.keep.note_log(id);
        Ok(())
    }

    fn import_queue(&mut self, told: &ReaderRecord) -> Result<()> {
        let (id, log_id) = (QueueId(told.queue), LogId(told.log));
        let log = self.logs.get(&log_id);
        let log = log.ok_or_else(|| unfit("the log of a queue is unknown"))?;
        let spec = QueueSpec {
            realm: log.realm.clone(),
            key: log.key.clone(),
            kind: told.kind,
            name: Arc::clone(&told.name),
            settings: told.settings.clone(),
        };
        match self.queues.get(&id) {
            Some(queue) if queue.settings == spec.settings => {}
            Some(_) => self.keep.queue_set(id, &spec),
            None => {
                self.keep.queue_made(id, log_id, &spec);
                let queue = Queue::new(id, log_id, spec.clone(), log.head(), K::IS_WRITTEN);
                self.queues.insert(id, Box::new(queue));
            }
        }
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.settings = spec.settings;
            queue.seen = Timestamp(told.seen);
            queue.sent = told.sent;
            queue.is_left = told.is_left;
            queue.exceptions = told.exceptions;
            if let Some(log) = self.logs.get(&log_id) {
                queue.weigh_exceptions(log, |_| told.exception_bytes);
            }
            queue.joined = told.joined;
            (queue.owned, queue.owned_guaranteed) = (told.owned, told.owned_guaranteed);
            (queue.low, queue.gone) = (told.low, told.gone);
            replace(&mut queue.done, &told.done)?;
            queue.shut = told.shut.map(|(number, seq)| Shut { number, seq });
        }
        self.last_id = self.last_id.max(told.queue);
        self.keep.note_queue(id);
        Ok(())
    }

    fn import_entry(&mut self, told: &EntryRecord) -> Result<()> {
        let id = LogId(told.log);
        let log = self.logs.get_mut(&id);
        let log = log.ok_or_else(|| unfit("the log of an entry is unknown"))?;
        let totals = Totals::from(told.sums);
        let before = totals.before(&told.message);
        log.entries.push(&told.message, before, totals, false);
        Ok(())
    }

    fn import_exception(&mut self, told: &ExceptionRecord) -> Result<()> {
        let queue = QueueId(told.queue);
        let log = self.queues.get(&queue).map(|queue| queue.log);
        let log = log.ok_or_else(|| unfit("the queue of an exception is unknown"))?;
        self.end_told_exception(queue, told.seq);
        let row = Row {
            held: self.keep.adopt(&told.message),
            rounds: told.rounds,
            state: Exception {
                seq: told.seq,
                attempts: told.attempts,
                failures: told.failures,
                returns: told.returns,
                due: Timestamp(told.due),
                first_error: told.first_error.clone(),
                last_error: told.last_error.clone(),
                suspect: told.suspect,
            },
        };
        self.keep.insert_exception(queue, log, row);
        Ok(())
    }

    fn end_told_exception(&mut self, queue: QueueId, seq: u64) {
        if let Some(row) = self.keep.take_exception(queue, seq) {
            self.keep.release(row.held);
        }
    }

    fn import_letter(&mut self, told: &LetterRecord) -> Result<()> {
        self.imported(told.realm)?;
        let letter = Letter {
            id: DeadLetterId {
                queue: QueueId(told.queue),
                seq: told.seq,
            },
            key: told.key.clone(),
            kind: told.kind,
            name: Arc::clone(&told.name),
            held: self.keep.adopt(&told.message),
            attempts: told.attempts,
            rounds: told.rounds,
            reason: Arc::clone(&told.reason),
            first_error: told.first_error.clone(),
            last_error: told.last_error.clone(),
            dead_at: Timestamp(told.dead_at),
        };
        let is_new = self.keep.bury(told.realm, letter);
        self.imported(told.realm)?.1.dead += usize::from(is_new);
        Ok(())
    }

    fn import_delayed(&mut self, told: &DelayedRecord) -> Result<()> {
        if self.keep.holds(told.message.id) {
            return Ok(());
        }
        let (name, realm) = self.imported(told.realm)?;
        realm.delayed += 1;
        let row = Delayed {
            realm: name,
            message: Arc::clone(&told.message),
            due: Timestamp(told.due),
            owner: told.owner.clone(),
        };
        self.keep.hold(told.realm, row);
        Ok(())
    }

    fn import_mark(&mut self, told: &MarkRecord) -> Result<()> {
        let mut mark = Mark::new();
        mark.high = told.high;
        let window = <&[u64; _]>::try_from(told.window.as_slice());
        mark.bits = *window.map_err(|_| unfit("the window of a mark has another size"))?;
        let ids = told.ids.iter().map(|(n, id)| (*n, MessageId(*id)));
        mark.ids = ids.collect();
        mark.used = Timestamp(told.used);
        let (name, realm) = self.imported(told.realm)?;
        realm.marks.put(Arc::clone(&told.instance), mark);
        self.keep.note_marks(&name);
        Ok(())
    }

    fn import_gone(&mut self, gone: &Gone) {
        match *gone {
            Gone::Realm { realm } => {
                if let Some(name) = self.names.remove(&realm) {
                    self.keep.realm_gone(realm, &name);
                    self.realms.remove(&name);
                }
            }
            Gone::Log { log } => {
                let id = LogId(log);
                if let Some(log) = self.logs.remove(&id) {
                    self.keep.log_gone(id, &log.kept);
                    self.keep.note_log(id);
                }
            }
            Gone::Queue { queue } => {
                let queue = QueueId(queue);
                if let Some(mut gone) = self.queues.remove(&queue) {
                    if let Some(log) = self.logs.get(&gone.log) {
                        gone.weigh_exceptions(log, |_| 0);
                    }
                    self.keep.drop_exceptions(queue);
                    self.keep.queue_gone(queue);
                    self.keep.note_queue(queue);
                }
            }
            Gone::Exception { queue, seq } => self.end_told_exception(QueueId(queue), seq),
            Gone::Exceptions { queue } => self.keep.drop_exceptions(QueueId(queue)),
            Gone::Letter { realm, queue, seq } => {
                let id = DeadLetterId {
                    queue: QueueId(queue),
                    seq,
                };
                if let Some(letter) = self.keep.take_letter(realm, id) {
                    self.keep.release(letter.held);
                    if let Ok((_, realm)) = self.imported(realm) {
                        realm.dead = realm.dead.saturating_sub(1);
                    }
                }
            }
            Gone::Delayed { message } => self.drop_delayed(MessageId(message)),
            Gone::Document {
                collection,
                ref key,
            } => self.drop_document(collection, key),
            Gone::Documents => self.drop_documents(),
        }
    }

    /// Makes one whole of all rows that have come; more may follow, and another end.
    ///
    /// # Errors
    /// `store_corrupt` for rows that do not fit together.
    pub(crate) fn finish_import(&mut self) -> Result<()> {
        for realm in self.realms.values_mut() {
            realm.logs.clear();
            realm.queues.clear();
            realm.queued = 0;
        }
        for (id, log) in &mut self.logs {
            let head = log.head();
            let is_too_large = head.seq.max(head.bytes) > LAST;
            if is_too_large || head.guaranteed > head.seq || head.guaranteed_bytes > head.bytes {
                return Err(unfit("the sums of a log"));
            }
            log.restore(head);
            let realm = self.realms.get_mut(&log.realm);
            let realm = realm.ok_or_else(|| unfit("the realm of a log is gone"))?;
            realm.logs.insert(log.key.clone(), *id);
            for (first, last) in log.gone.iter() {
                log.entries.clear_between(first.saturating_sub(1), last);
            }
        }
        for (id, queue) in &mut self.queues {
            let log = self.logs.get_mut(&queue.log);
            let log = log.ok_or_else(|| unfit("the log of a queue is gone"))?;
            let realm = self.realms.get_mut(&log.realm);
            let realm = realm.ok_or_else(|| unfit("the realm of a queue is gone"))?;
            if !queue.fits(log) {
                return Err(unfit("where a queue stands"));
            }
            log.queues += 1;
            queue.spot = None;
            queue.begin(log, self.bounds.overflow);
            queue.end_change(log, self.bounds.overflow);
            realm.queued += queue.depth(log);
            let name = (queue.log, queue.kind, Arc::clone(&queue.name));
            realm.queues.insert(name, *id);
            self.keep.note_queue(*id);
        }
        self.wakes.clear();
        for (id, log) in &mut self.logs {
            log.trim();
            log.wake = log.entries.next_expiry();
            self.wakes.extend(log.wake.map(|wake| (wake, *id)));
            self.keep.note_log(*id);
        }
        Ok(())
    }
}
