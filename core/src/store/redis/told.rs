//! What `lua/tell.lua` answers, as rows that any store understands. Knows no order and no connection.

use std::sync::Arc;

use bytes::Bytes;
use redis::Value;

use crate::model::{Key, Message, MessageId, RealmId};
use crate::{Error, Result};

use super::super::record::{
    DelayedRecord, ExceptionRecord, LetterRecord, LogRecord, MarkRecord, ReaderRecord, Record, Run,
    Sums,
};
use super::super::settings;
use super::super::types::{DeadLetterId, LogId, QueueId, QueueKind, Seq};
use super::answers::{self, Fields, list, strange, text};
use super::tell::What;

/// Numbers of which a producer instance's mark tells each.
const WINDOW: u64 = 1024;

fn parts<const N: usize>(value: Value) -> Result<[Value; N]> {
    <[Value; N]>::try_from(list(value)?).map_err(|_| strange())
}

/// Nothing for `?`.
fn known(value: Value) -> Result<Option<Value>> {
    match &value {
        Value::Array(_) => Ok(Some(value)),
        other if text(other)? == "?" => Ok(None),
        _ => Err(strange()),
    }
}

fn message(value: Value) -> Option<Result<Arc<Message>>> {
    match value {
        Value::BulkString(bytes) => Some(Message::decode(Bytes::from(bytes)).map(Arc::new)),
        _ => None,
    }
}

/// A message with the expiry that holds for it, if it can be read.
fn expiring(value: Value, expires: u64) -> Option<Arc<Message>> {
    let message = message(value)?.ok()?;
    let expires = answers::expiry(expires);
    Some(match message.expires == expires {
        true => message,
        false => Arc::new(Message {
            expires,
            ..Message::clone(&message)
        }),
    })
}

/// Names of changed rows, and whether there are more.
pub(super) fn notes(text: &str) -> Result<(Vec<What>, bool)> {
    let mut notes = Vec::new();
    let (more, mut rest) = text.split_at_checked(1).ok_or_else(strange)?;
    while !rest.is_empty() {
        let (size, behind) = rest.split_once(':').ok_or_else(strange)?;
        let size = size.parse().map_err(|_| strange())?;
        let (name, behind) = behind.split_at_checked(size).ok_or_else(strange)?;
        notes.push(note(name)?);
        rest = behind;
    }
    Ok((notes, more == "1"))
}

fn note(name: &str) -> Result<What> {
    let (kind, name) = name.split_once(':').unwrap_or((name, ""));
    let number = |text: &str| text.parse::<u64>().map_err(|_| strange());
    Ok(match kind {
        "R" => What::Cleared,
        "l" => What::Log(LogId(number(name)?)),
        "q" => What::Queue(QueueId(number(name)?)),
        "x" => {
            let (queue, seq) = name.split_once(':').ok_or_else(strange)?;
            What::Exception(QueueId(number(queue)?), number(seq)?)
        }
        "X" => What::Exceptions(QueueId(number(name)?)),
        "g" => What::Letter(answers::letter_id(name)?),
        "d" => What::Delayed(MessageId(number(name)?)),
        "m" => What::Mark(name.into()),
        "u" => What::Uid(name.into()),
        _ => return Err(strange()),
    })
}

/// A walk's next place, and its rows.
pub(super) fn with_next(value: Value) -> Result<(String, Value)> {
    let [next, rows] = parts(value)?;
    Ok((text(&next)?.to_owned(), rows))
}

pub(super) fn ids(value: &Value) -> Result<Vec<u64>> {
    let ids = text(value)?.split_ascii_whitespace();
    ids.map(|id| id.parse().map_err(|_| strange())).collect()
}

fn sums(fields: &mut Fields<'_>) -> Result<Sums> {
    Ok(Sums {
        seq: fields.next()?,
        guaranteed: fields.next()?,
        bytes: fields.next()?,
        guaranteed_bytes: fields.next()?,
    })
}

pub(super) fn log(value: Value, id: LogId, realm: u64) -> Result<Option<LogRecord>> {
    let Some(value) = known(value)? else {
        return Ok(None);
    };
    let [numbers, key] = parts(value)?;
    Ok(Some(LogRecord {
        log: id.0,
        realm,
        key: Key::decode(text(&key)?).ok_or_else(strange)?,
        head: sums(&mut Fields::of(text(&numbers)?))?,
        // Here every queue has them among what is settled.
        gone: Vec::new(),
        gone_guaranteed: Vec::new(),
    }))
}

/// An entry's totals, and its message if it is not let go.
pub(super) type Told1 = (Sums, Option<Result<Arc<Message>, Error>>);

/// Up to where was looked, and what was there.
pub(super) fn entries(value: Value) -> Result<Option<(Seq, Vec<Told1>)>> {
    let Some(value) = known(value)? else {
        return Ok(None);
    };
    let [upto, totals, messages] = parts(value)?;
    let mut fields = Fields::of(text(&totals)?);
    let messages = list(messages)?.into_iter();
    let entries = messages.map(|value| Ok((sums(&mut fields)?, message(value))));
    let entries = entries.collect::<Result<_>>()?;
    Ok(Some((Fields::of(text(&upto)?).next()?, entries)))
}

/// Rows by seq; those without a record cannot be read.
pub(super) fn exceptions(value: Value, queue: QueueId) -> Result<Vec<(Seq, Option<Record>)>> {
    let rows = list(value)?.into_iter().map(|row| {
        let [numbers, first, last, held] = parts(row)?;
        let mut fields = Fields::of(text(&numbers)?);
        let (seq, rounds, attempts) = (fields.next()?, fields.next()?, fields.next()?);
        let (failures, returns, due) = (fields.next()?, fields.next()?, fields.next()?);
        let (expires, suspect) = (fields.next()?, fields.next::<u8>()? == 1);
        let (first_error, last_error) = (answers::optional(&first)?, answers::optional(&last)?);
        let record = expiring(held, expires).map(|message| {
            Record::Exception(Box::new(ExceptionRecord {
                queue: queue.0,
                seq,
                rounds,
                attempts,
                failures,
                returns,
                due,
                first_error,
                last_error,
                suspect,
                message,
            }))
        });
        Ok((seq, record))
    });
    rows.collect()
}

/// Dead letters by id; those without a record cannot be read.
pub(super) fn letters(
    value: Value,
    number: u64,
    realm: &RealmId,
) -> Result<Vec<(DeadLetterId, Option<Record>)>> {
    let rows = list(value)?.into_iter().map(|row| {
        let id = match &row {
            Value::Array(parts) => text(parts.first().ok_or_else(strange)?)?,
            _ => return Err(strange()),
        };
        let id = answers::letter_id(id)?;
        let letter = answers::dead_letter(row, realm)?.map(|letter| {
            Record::Letter(Box::new(LetterRecord {
                realm: number,
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
                message: letter.message,
            }))
        });
        Ok((id, letter))
    });
    rows.collect()
}

/// A delayed message's due time and place, and its record if it can be read.
pub(super) type Held = ((u64, Arc<str>), Option<Record>);

pub(super) fn delayed(value: Value, realm: u64) -> Result<Vec<Held>> {
    let rows = list(value)?.into_iter().map(|row| {
        let [due, place, owner, held] = parts(row)?;
        let due = Fields::of(text(&due)?).next()?;
        let owner = answers::optional(&owner)?;
        let record = message(held).and_then(Result::ok).map(|message| {
            Record::Delayed(DelayedRecord {
                realm,
                due,
                owner,
                message,
            })
        });
        Ok(((due, text(&place)?.into()), record))
    });
    rows.collect()
}

pub(super) fn marks(value: Value, realm: u64) -> Result<Vec<Record>> {
    let rows = list(value)?.into_iter().map(|row| {
        let [instance, numbers, missing, pairs] = parts(row)?;
        let mut fields = Fields::of(text(&numbers)?);
        let (used, high, count) = (fields.next()?, fields.next::<u64>()?, fields.next::<u64>()?);
        let mut window = vec![0_u64; (WINDOW / 64) as usize];
        let mut set = |number: u64, is_stored: bool| {
            let place = number % WINDOW;
            let (word, bit) = ((place / 64) as usize, 1 << (place % 64));
            match is_stored {
                true => window[word] |= bit,
                false => window[word] &= !bit,
            }
        };
        let first = (high + 1).saturating_sub(WINDOW);
        (first..=high).for_each(|number| set(number, true));
        for (from, to) in runs(text(&missing)?)? {
            (from.max(first)..=to.min(high)).for_each(|number| set(number, false));
        }
        let mut kept = Vec::new();
        let mut fields = text(&pairs)?.split_ascii_whitespace();
        while let (Some(place), Some(number), Some(id)) =
            (fields.next(), fields.next(), fields.next())
        {
            let read = |field: &str| field.parse::<u64>().map_err(|_| strange());
            let age = (count + 127 - read(place)?) % 128;
            kept.push((age, read(number)?, read(id)?));
        }
        kept.sort_unstable_by_key(|(age, ..)| std::cmp::Reverse(*age));
        Ok(Record::Mark(Box::new(MarkRecord {
            realm,
            instance: text(&instance)?.into(),
            used,
            high,
            window,
            ids: kept.into_iter().map(|(_, n, id)| (n, id)).collect(),
        })))
    });
    rows.collect()
}

pub(super) fn uids(value: Value, realm: u64) -> Result<Vec<Record>> {
    let rows = list(value)?.into_iter().map(|row| {
        let [uid, kept] = parts(row)?;
        let mut fields = Fields::of(text(&kept)?);
        Ok(Record::Uid {
            realm,
            uid: text(&uid)?.into(),
            at: fields.next()?,
            message: fields.next()?,
        })
    });
    rows.collect()
}

fn runs(text: &str) -> Result<Vec<Run>> {
    let runs = text.split_ascii_whitespace().map(|run| {
        let (first, last) = run.split_once('-').ok_or_else(strange)?;
        let read = |field: &str| field.parse::<u64>().map_err(|_| strange());
        Ok((read(first)?, read(last)?))
    });
    runs.collect()
}

/// How a queue numbers entries from a seq on.
#[derive(Debug, Clone, Copy)]
struct Segment {
    seq: Seq,
    takes_all: bool,
    number: u64,
    base: u64,
}

/// A queue as Redis has it, see `lua/base.lua`.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) log: u64,
    pub(super) exceptions: u64,
    seen: u64,
    sent: Seq,
    is_left: bool,
    joined: Seq,
    low: u64,
    exception_bytes: u64,
    shut: Option<(u64, Seq)>,
    kind: QueueKind,
    name: Arc<str>,
    settings: super::super::types::QueueSettings,
    segments: Vec<Segment>,
    done: Vec<Run>,
}

impl Told {
    pub(super) fn read(value: Value) -> Result<Option<Self>> {
        let Some(value) = known(value)? else {
            return Ok(None);
        };
        let [numbers, kind, name, settings, segments, done] = parts(value)?;
        let mut fields = Fields::of(text(&numbers)?);
        let (log, seen, sent) = (fields.next()?, fields.next()?, fields.next()?);
        let is_left = fields.next::<u8>()? == 1;
        let (joined, low) = (fields.next()?, fields.next()?);
        let (exceptions, exception_bytes) = (fields.next()?, fields.next()?);
        let (number, seq) = (fields.time()?, fields.time()?);
        let segments: Vec<u64> = ids(&segments)?;
        let segments = segments.chunks_exact(4).map(|s| Segment {
            seq: s[0],
            takes_all: s[1] == 1,
            number: s[2],
            base: s[3],
        });
        Ok(Some(Self {
            log,
            seen,
            sent,
            is_left,
            joined,
            low,
            exceptions,
            exception_bytes,
            shut: number.zip(seq).map(|(number, seq)| (number.0, seq.0)),
            kind: settings::kind(Fields::of(text(&kind)?).next()?).ok_or_else(strange)?,
            name: text(&name)?.into(),
            settings: settings::settings(text(&settings)?).ok_or_else(strange)?,
            segments: segments.collect(),
            done: runs(text(&done)?)?,
        }))
    }

    fn tail(&self) -> Result<Segment> {
        self.segments.last().copied().ok_or_else(strange)
    }

    /// Between which seqs the guaranteed entries must be known to number it anew: it has waiting
    /// entries from when it took another class.
    pub(super) fn unclear(&self) -> Option<(Seq, Seq)> {
        let tail = self.segments.last()?;
        let old = self.segments.iter().zip(self.segments.iter().skip(1));
        let first = old
            .filter(|(segment, next)| !segment.takes_all && next.number > self.low)
            .map(|(segment, _)| segment.seq)
            .next()?;
        Some((first, tail.seq))
    }

    /// As a row in which numbers up to the last segment are seqs. `guaranteed`: seq and number among
    /// the guaranteed of those entries that [`Told::unclear`] asks for.
    pub(super) fn record(self, queue: QueueId, guaranteed: &[(Seq, u64)]) -> Result<ReaderRecord> {
        let tail = self.tail()?;
        let shift = |number: u64| number.saturating_sub(tail.number) + tail.seq;
        let (low, done) = match self.low >= tail.number {
            true => {
                let done = self.done.iter().map(|run| (shift(run.0), shift(run.1)));
                (shift(self.low), done.collect())
            }
            false => self.renumbered(tail, guaranteed),
        };
        Ok(ReaderRecord {
            queue: queue.0,
            log: self.log,
            kind: self.kind,
            name: self.name,
            settings: self.settings,
            seen: self.seen,
            sent: self.sent,
            is_left: self.is_left,
            exceptions: self.exceptions,
            exception_bytes: self.exception_bytes,
            joined: self.joined,
            owned: tail.seq,
            owned_guaranteed: if tail.takes_all { 0 } else { tail.base },
            low,
            gone: 0,
            done,
            shut: self.shut.map(|(number, seq)| (shift(number), seq)),
        })
    }

    /// Low and settled runs of a queue with waiting entries before its last segment.
    fn renumbered(&self, tail: Segment, guaranteed: &[(Seq, u64)]) -> (u64, Vec<Run>) {
        let is_waiting = |number: u64| {
            number > self.low
                && !self
                    .done
                    .iter()
                    .any(|run| (run.0..=run.1).contains(&number))
        };
        let mut settled: Vec<Run> = Vec::new();
        let mut settle = |first: Seq, last: Seq| match settled.last_mut() {
            Some(run) if run.1 + 1 >= first => run.1 = run.1.max(last),
            _ if first <= last => settled.push((first, last)),
            _ => {}
        };
        // What comes before the first segment is passed.
        settle(
            0,
            self.segments.first().map_or(self.joined, |first| first.seq),
        );
        for (at, segment) in self.segments.iter().enumerate() {
            let next = self.segments.get(at + 1);
            let end = next.map_or(u64::MAX, |next| next.number);
            let seq = |number: u64| number.saturating_sub(segment.number) + segment.seq;
            if segment.takes_all || next.is_none() {
                if self.low > segment.number {
                    settle(segment.seq + 1, seq(self.low.min(end)));
                }
                for run in &self.done {
                    let (first, last) = (run.0.max(segment.number + 1), run.1.min(end));
                    if first <= last {
                        settle(seq(first), seq(last));
                    }
                }
                continue;
            }
            let upto = next.map_or(tail.seq, |next| next.seq);
            let mut passed = segment.seq;
            for (at, count) in guaranteed {
                let number = (segment.number + count).saturating_sub(segment.base);
                if *at > segment.seq && *at <= upto && is_waiting(number) {
                    settle(passed + 1, *at - 1);
                    passed = *at;
                }
            }
            settle(passed + 1, upto);
        }
        let low = settled.first().map_or(self.joined, |run| run.1);
        (low, settled.into_iter().skip(1).collect())
    }
}
