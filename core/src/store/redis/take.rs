//! Taking another store's rows in, page by page (P28).
//!
//! Entries and what belongs to them are written as they come; queues and the ends of logs are kept
//! here and written when everything has come, as by then nothing of them changes any more. Knows
//! neither the other store nor who leads ([`super::leads`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

use super::super::record::{
    DelayedRecord, EntryRecord, ExceptionRecord, Gone, LetterRecord, LogRecord, MarkRecord,
    ReaderRecord, Record, Run,
};
use super::super::settings::{kind_number, settings_text};
use super::super::types::{DeadLetterId, QueueId};
use super::answers::letter_name;
use super::args::{Args, LARGEST};
use super::lane::Lane;
use super::lanes::Lanes;
use super::{leads, names};

/// Logs or queues that one script ends.
const BITE: usize = 200;

/// What has come, see the module.
#[derive(Default)]
pub(super) struct Taking {
    last: u64,
    lanes: HashMap<u64, Arc<Lane>>,
    logs: BTreeMap<u64, LogRecord>,
    queues: BTreeMap<u64, ReaderRecord>,
    /// Realms of delayed messages.
    held: HashMap<u64, u64>,
}

/// Rows of one realm on their way.
struct Batch {
    realm: u64,
    args: Args,
}

fn not_begun() -> Error {
    let why = "the copy was interrupted; begin it again";
    Error::new(ErrorKind::StoreUnavailable, why)
}

fn unfit(what: &str) -> Error {
    let why = format!("a copied row does not fit the others: {what}");
    Error::new(ErrorKind::StoreCorrupt, why)
}

/// Makes Redis ready for a copy, see [`Store::begin_import`](super::super::Store::begin_import).
pub(super) async fn begin(lanes: &Arc<Lanes>, replace: bool) -> Result<()> {
    leads::begin_copy(lanes, replace).await?;
    *lanes.taking.lock() = Some(Box::default());
    lanes.takes_copy.store(true, Ordering::Release);
    Ok(())
}

/// Takes a page in.
pub(super) async fn import(lanes: &Arc<Lanes>, records: Vec<Record>) -> Result<()> {
    let taking = lanes.taking.lock().take();
    let mut taking = taking.ok_or_else(not_begun)?;
    leads::go_on(&lanes.hub).await?;
    let mut batch = Batch {
        realm: 0,
        args: Args::new(),
    };
    lanes.documents.take(&records).await?;
    for record in records {
        match record {
            Record::Numbers { last } => taking.last = taking.last.max(last),
            Record::Realm { realm, name } => {
                taking.send(lanes, &mut batch).await?;
                let name = RealmId::parse(&name)?;
                taking.enter(lanes, realm, name).await?;
            }
            Record::Gone(Gone::Realm { realm }) => {
                if let Some(lane) = taking.lanes.get(&realm).cloned() {
                    taking.begin(lanes, &mut batch, realm).await?.text("R");
                    taking.send(lanes, &mut batch).await?;
                    lanes.leave(&lane).await?;
                }
            }
            record => {
                let Some(realm) = taking.realm_of(&record)? else {
                    continue;
                };
                let args = taking.begin(lanes, &mut batch, realm).await?;
                put(args, &record);
                taking.note(record);
            }
        }
    }
    taking.send(lanes, &mut batch).await?;
    *lanes.taking.lock() = Some(taking);
    Ok(())
}

/// Makes one whole of it, see [`Store::end_import`](super::super::Store::end_import).
pub(super) async fn end(lanes: &Arc<Lanes>) -> Result<()> {
    let taking = lanes.taking.lock().take();
    let taking = taking.ok_or_else(not_begun)?;
    let of_realm = |realm: u64| move |log: &&LogRecord| log.realm == realm;
    for (realm, lane) in &taking.lanes {
        let logs: Vec<&LogRecord> = taking.logs.values().filter(of_realm(*realm)).collect();
        for some in logs.chunks(BITE) {
            let mut args = Args::new();
            some.iter().for_each(|log| {
                args.id(log.log);
            });
            lanes.copy(lane, "end_logs", args).await?;
        }
    }
    let mut queues: HashMap<u64, Vec<(&ReaderRecord, &LogRecord)>> = HashMap::new();
    for queue in taking.queues.values() {
        let log = taking.logs.get(&queue.log);
        let log = log.ok_or_else(|| unfit("the log of a queue is gone"))?;
        queues.entry(log.realm).or_default().push((queue, log));
    }
    for (realm, queues) in queues {
        let lane = taking.lanes.get(&realm);
        let lane = lane.ok_or_else(|| unfit("the realm of a queue is gone"))?;
        for some in queues.chunks(BITE) {
            let mut args = Args::new();
            some.iter()
                .for_each(|(queue, log)| put_end(&mut args, queue, log));
            lanes.copy(lane, "end_queues", args).await?;
            for (queue, _) in some {
                lanes.learn(QueueId(queue.queue), lane);
            }
        }
        lane.wake_at(0);
    }
    lanes.hub.raise_ids(taking.last).await?;
    leads::end_copy(&lanes.hub).await
}

impl Taking {
    /// The batch of a realm, which rows are added to.
    async fn begin<'a>(
        &mut self,
        lanes: &Arc<Lanes>,
        batch: &'a mut Batch,
        realm: u64,
    ) -> Result<&'a mut Args> {
        if batch.realm != realm {
            self.send(lanes, batch).await?;
            batch.realm = realm;
        }
        Ok(&mut batch.args)
    }

    async fn send(&mut self, lanes: &Arc<Lanes>, batch: &mut Batch) -> Result<()> {
        let args = std::mem::take(&mut batch.args);
        if args.is_empty() {
            return Ok(());
        }
        let lane = self.lanes.get(&batch.realm);
        let lane = lane.ok_or_else(|| unfit("its realm is unknown"))?;
        lanes.copy(lane, "take", args).await.map(|_| ())
    }

    /// A realm has come, or has another name.
    async fn enter(&mut self, lanes: &Arc<Lanes>, realm: u64, name: RealmId) -> Result<()> {
        self.last = self.last.max(realm);
        let known = self.lanes.get(&realm).cloned();
        let before = known.as_ref().map(|lane| lane.realm());
        let (_, mut link) = lanes.hub.links.get().await?;
        let before = before.filter(|before| *before != name);
        names::put(&lanes.hub, &mut link, (&name, realm), before.as_ref()).await?;
        let lane = known.unwrap_or_else(|| lanes.new_lane(name.clone(), realm));
        lanes.enter(&lane, name);
        self.lanes.insert(realm, lane);
        Ok(())
    }

    fn realm_of_log(&self, log: u64) -> Option<u64> {
        Some(self.logs.get(&log)?.realm)
    }

    fn realm_of_queue(&self, queue: u64) -> Option<u64> {
        self.realm_of_log(self.queues.get(&queue)?.log)
    }

    /// Nothing for what is gone and never came.
    fn realm_of(&self, record: &Record) -> Result<Option<u64>> {
        let must = |realm: Option<u64>, what: &str| match realm {
            Some(realm) => Ok(Some(realm)),
            None => Err(unfit(what)),
        };
        match record {
            Record::Log(log) => Ok(Some(log.realm)),
            Record::Entry(entry) => must(
                self.realm_of_log(entry.log),
                "the log of an entry is unknown",
            ),
            Record::Queue(queue) => must(
                self.realm_of_log(queue.log),
                "the log of a queue is unknown",
            ),
            Record::Exception(exception) => must(
                self.realm_of_queue(exception.queue),
                "the queue of an exception is unknown",
            ),
            Record::Letter(letter) => Ok(Some(letter.realm)),
            Record::Delayed(delayed) => Ok(Some(delayed.realm)),
            Record::Mark(mark) => Ok(Some(mark.realm)),
            Record::Uid { realm, .. } => Ok(Some(*realm)),
            Record::Gone(gone) => Ok(match gone {
                Gone::Log { log } => self.realm_of_log(*log),
                Gone::Queue { queue }
                | Gone::Exception { queue, .. }
                | Gone::Exceptions { queue } => self.realm_of_queue(*queue),
                Gone::Letter { realm, .. } => Some(*realm),
                Gone::Delayed { message } => self.held.get(message).copied(),
                Gone::Realm { .. } | Gone::Document { .. } | Gone::Documents => None,
            }),
            Record::Numbers { .. } | Record::Realm { .. } | Record::Document(_) => Ok(None),
        }
    }

    /// Keeps what later rows refer to.
    fn note(&mut self, record: Record) {
        match record {
            Record::Log(log) => {
                self.last = self.last.max(log.log);
                self.logs.insert(log.log, log);
            }
            Record::Queue(queue) => {
                self.last = self.last.max(queue.queue);
                self.queues.insert(queue.queue, *queue);
            }
            Record::Delayed(delayed) => {
                self.held.insert(delayed.message.id.0, delayed.realm);
            }
            Record::Gone(Gone::Log { log }) => {
                self.logs.remove(&log);
            }
            Record::Gone(Gone::Queue { queue }) => {
                self.queues.remove(&queue);
            }
            Record::Gone(Gone::Delayed { message }) => {
                self.held.remove(&message);
            }
            _ => {}
        }
    }
}

/// A row as `lua/copy.lua` takes it.
fn put(args: &mut Args, record: &Record) {
    match record {
        Record::Log(log) => {
            args.text("l").id(log.log).text(&log.key.encode());
            args.number(log.head.seq).number(log.head.guaranteed);
            args.number(log.head.bytes)
                .number(log.head.guaranteed_bytes);
        }
        Record::Entry(EntryRecord { log, sums, message }) => {
            args.text("e").id(*log).number(sums.seq);
            args.number(sums.guaranteed)
                .number(sums.bytes)
                .number(sums.guaranteed_bytes);
            args.head(message, u8::from(message.guaranteed))
                .message(message);
        }
        Record::Queue(queue) => {
            args.text("q").id(queue.queue);
        }
        Record::Exception(row) => put_exception(args, row),
        Record::Letter(row) => put_letter(args, row),
        Record::Delayed(DelayedRecord {
            due,
            owner,
            message,
            ..
        }) => {
            args.text("d").id(message.id.0).number(*due);
            args.optional(owner.as_deref()).message(message);
        }
        Record::Mark(mark) => put_mark(args, mark),
        Record::Uid {
            uid, message, at, ..
        } => {
            args.text("u").text(uid).id(*message).number(*at);
        }
        Record::Gone(gone) => put_gone(args, gone),
        Record::Numbers { .. } | Record::Realm { .. } | Record::Document(_) => {}
    }
}

/// What [`Store::remember`](super::super::Store::remember) asks for.
pub(super) fn marks(marks: &[Record]) -> Args {
    let mut args = Args::new();
    marks.iter().for_each(|mark| put(&mut args, mark));
    args
}

fn put_gone(args: &mut Args, gone: &Gone) {
    match *gone {
        Gone::Realm { .. } | Gone::Document { .. } | Gone::Documents => {}
        Gone::Log { log } => {
            args.text("L").id(log);
        }
        Gone::Queue { queue } => {
            args.text("Q").id(queue);
        }
        Gone::Exception { queue, seq } => {
            args.text("x0").id(queue).number(seq);
        }
        Gone::Exceptions { queue } => {
            args.text("X").id(queue);
        }
        Gone::Letter { queue, seq, .. } => {
            let queue = QueueId(queue);
            args.text("g0")
                .text(&letter_name(DeadLetterId { queue, seq }));
        }
        Gone::Delayed { message } => {
            args.text("d0").id(message);
        }
    }
}

fn put_exception(args: &mut Args, row: &ExceptionRecord) {
    let message = &row.message;
    args.text("x").id(row.queue).number(row.seq);
    for count in [row.rounds, row.attempts, row.failures, row.returns] {
        args.number(count.into());
    }
    args.number(row.due)
        .number(message.expires.map_or(0, |at| at.0))
        .flag(row.suspect)
        .time(message.produced)
        .size(message.size());
    args.optional(row.first_error.as_deref())
        .optional(row.last_error.as_deref())
        .message(message);
}

fn put_letter(args: &mut Args, row: &LetterRecord) {
    let (queue, seq) = (QueueId(row.queue), row.seq);
    let message = &row.message;
    args.text("g")
        .text(&letter_name(DeadLetterId { queue, seq }));
    args.text(&row.key.encode())
        .number(kind_number(row.kind).into())
        .text(&row.name)
        .number(row.attempts.into())
        .number(row.rounds.into())
        .text(&row.reason)
        .optional(row.first_error.as_deref())
        .optional(row.last_error.as_deref());
    args.number(row.dead_at)
        .number(message.expires.map_or(0, |at| at.0))
        .time(message.produced)
        .size(message.size())
        .message(message);
}

fn put_mark(args: &mut Args, mark: &MarkRecord) {
    // Numbers that scripts cannot keep apart from their neighbours dedupe nothing.
    let high = mark.high.min(LARGEST - 1);
    let count = mark.window.len() as u64 * 64;
    let is_stored = |number: u64| {
        let place = number % count.max(1);
        let word = usize::try_from(place / 64).unwrap_or(usize::MAX);
        mark.window
            .get(word)
            .is_some_and(|bits| bits & (1 << (place % 64)) != 0)
    };
    let mut missing: Vec<Run> = Vec::new();
    for number in (high + 1).saturating_sub(count)..=high {
        match missing.last_mut() {
            _ if is_stored(number) => {}
            Some(run) if run.1 + 1 == number => run.1 = number,
            _ => missing.push((number, number)),
        }
    }
    let ids: Vec<String> = mark.ids.iter().map(|(n, id)| format!("{n} {id}")).collect();
    args.text("m").text(&mark.instance).number(mark.used);
    args.number(high).text(&runs(&missing)).text(&ids.join(","));
}

fn runs(runs: &[Run]) -> String {
    let runs: Vec<String> = runs
        .iter()
        .map(|(first, last)| format!("{first}-{last}"))
        .collect();
    runs.join(" ")
}

/// A queue as it is when everything has come.
fn put_end(args: &mut Args, queue: &ReaderRecord, log: &LogRecord) {
    let is_plain = !queue.settings.durable;
    let segments = match is_plain {
        false => format!("{0} 1 {0} {0}", queue.joined),
        true => {
            let own = format!("{0} 2 {0} {1}", queue.owned, queue.owned_guaranteed);
            match queue.low >= queue.owned {
                true => own,
                false => format!("{0} 1 {0} {0} {own}", queue.joined),
            }
        }
    };
    let (number, seq) = match queue.shut {
        Some((number, seq)) => (number.to_string(), seq.to_string()),
        None => ("-".to_owned(), "-".to_owned()),
    };
    args.id(queue.queue)
        .id(queue.log)
        .number(kind_number(queue.kind).into())
        .text(&queue.name)
        .text(&settings_text(&queue.settings))
        .optional(queue.settings.owner.as_deref());
    args.number(queue.seen)
        .number(queue.sent)
        .flag(queue.is_left)
        .number(queue.joined)
        .number(queue.low)
        .number(queue.exceptions)
        .number(queue.exception_bytes);
    args.text(&number).text(&seq).text(&segments);
    args.text(&runs(&settled(queue, log)));
}

/// Settled numbers above low, with those that are gone from the log: here they stand in the queue.
fn settled(queue: &ReaderRecord, log: &LogRecord) -> Vec<Run> {
    let mut all = queue.done.clone();
    if queue.gone > 0 {
        let (owned, base) = match queue.settings.durable {
            true => (u64::MAX, 0),
            false => (queue.owned, queue.owned_guaranteed),
        };
        let numbers = log.head.guaranteed.saturating_sub(base);
        let end = match queue.settings.durable {
            true => log.head.seq,
            false => owned + numbers,
        };
        let end = queue.shut.map_or(end, |(number, _)| number);
        let every = log.gone.iter().map(|run| (run.0, run.1.min(owned)));
        let guaranteed = log.gone_guaranteed.iter().filter(|run| run.1 > base);
        let number = |count: u64| owned.saturating_add(count.saturating_sub(base));
        let guaranteed = guaranteed.map(|run| (number(run.0.max(base + 1)), number(run.1)));
        let gone = every.chain(guaranteed);
        all.extend(gone.map(|run| (run.0.max(queue.low + 1), run.1.min(end))));
    }
    all.retain(|(first, last)| first <= last);
    all.sort_unstable();
    let mut merged: Vec<Run> = Vec::new();
    for (first, last) in all {
        match merged.last_mut() {
            Some(run) if run.1 + 1 >= first => run.1 = run.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}
