//! What scripts answer, read. The other side of `lua/`; knows no line.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use redis::Value;

use crate::clock::Timestamp;
use crate::model::{Key, Message, MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::settings;
use super::super::types::{
    Appended, DeadLetter, DeadLetterId, Delayed, Depth, Entry, Full, LogId, Placed, QueueId,
    QueueRecord, QueueSpec, Seq, Settled,
};
use super::hub::Hub;

/// A message that cannot be read any more, or is gone.
pub(super) type Damaged = Seq;

pub(super) fn strange() -> Error {
    Error::new(
        ErrorKind::StoreCorrupt,
        "a script of Redis answered what nobody expects",
    )
}

pub(super) fn list(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(list) => Ok(list),
        _ => Err(strange()),
    }
}

pub(super) fn text(value: &Value) -> Result<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).map_err(|_| strange()),
        Value::SimpleString(text) => Ok(text),
        _ => Err(strange()),
    }
}

/// A number as a command answers it.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(Bytes::from(bytes)),
        _ => None,
    }
}

pub(super) fn optional(value: &Value) -> Result<Option<Arc<str>>> {
    Ok(text(value)?.strip_prefix('+').map(Arc::from))
}

/// Fields of a line one after the other.
pub(super) struct Fields<'a>(std::str::SplitAsciiWhitespace<'a>);

impl<'a> Fields<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(text.split_ascii_whitespace())
    }

    pub(super) fn next<T: FromStr>(&mut self) -> Result<T> {
        let field = self.0.next().and_then(|field| field.parse().ok());
        field.ok_or_else(strange)
    }

    /// `-` is none.
    pub(super) fn time(&mut self) -> Result<Option<Timestamp>> {
        match self.0.next() {
            Some("-") => Ok(None),
            Some(field) => field
                .parse()
                .map(|at| Some(Timestamp(at)))
                .map_err(|_| strange()),
            None => Err(strange()),
        }
    }
}

/// The last number that has happened and the answers up to it.
pub(super) fn begun(value: Value) -> Result<(u64, HashMap<u64, Value>)> {
    let mut values = list(value)?.into_iter();
    let last = values.next().ok_or_else(strange)?;
    let last = Fields::of(text(&last)?).next()?;
    let mut answers = HashMap::new();
    while let (Some(number), Some(answer)) = (values.next(), values.next()) {
        answers.insert(Fields::of(text(&number)?).next()?, answer);
    }
    Ok((last, answers))
}

/// One answer to appends that went together, as one for each of them; counts what it says.
pub(super) fn split(hub: &Hub, answer: Result<Value>, items: &[usize]) -> Vec<Result<Value>> {
    let parts = answer.and_then(|answer| {
        let mut lines = text(&answer)?.split('\n');
        let mut counts = Fields::of(lines.next().ok_or_else(strange)?);
        let mut next = || counts.next::<u64>();
        let (appended, refused, dropped, duplicates) = (next()?, next()?, next()?, next()?);
        hub.count(|counters| {
            counters.appended += appended;
            counters.refused += refused;
            counters.dropped_oldest += dropped;
            counters.duplicates += duplicates;
        });
        let parts = items.iter().map(|count| {
            let own: Vec<&str> = lines.by_ref().take(*count).collect();
            Value::BulkString(own.join("\n").into_bytes())
        });
        Ok(parts.collect::<Vec<_>>())
    });
    match parts {
        Ok(parts) => parts.into_iter().map(Ok).collect(),
        Err(error) => items.iter().map(|_| Err(error.clone())).collect(),
    }
}

/// The lines of an append, one per message of it: its id and whether it is to be held.
pub(super) fn appended(answer: &Value, ids: &[(MessageId, bool)]) -> Result<Vec<Result<Appended>>> {
    let mut lines = text(answer)?.split('\n');
    let each = ids.iter().map(|(id, is_held)| {
        let line = lines.next().ok_or_else(strange)?;
        let (what, rest) = line.split_once(' ').ok_or_else(strange)?;
        Ok(match what {
            "D" => {
                let (held, first) = rest.split_once(' ').ok_or_else(strange)?;
                Ok(Appended {
                    // `-`: the first one's is not known any more.
                    id: match first {
                        "-" => *id,
                        first => MessageId(Fields::of(first).next()?),
                    },
                    duplicate: true,
                    delayed: held == "h",
                    placed: Vec::new(),
                })
            }
            "S" => Ok(Appended {
                id: *id,
                duplicate: false,
                delayed: *is_held,
                placed: rest
                    .split_ascii_whitespace()
                    .map(placed)
                    .collect::<Result<_>>()?,
            }),
            _ => Err(full(rest).into()),
        })
    });
    each.collect()
}

fn placed(text: &str) -> Result<Placed> {
    let mut fields = text.split(':').map(|field| field.parse::<u64>());
    let mut next = || {
        fields
            .next()
            .and_then(|field| field.ok())
            .ok_or_else(strange)
    };
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Placed {
        log: LogId(next()?),
        seq: next()?,
        queued: count(next()?),
        refused: count(next()?),
    })
}

fn full(why: &str) -> Full {
    match why {
        "delayed" => Full::Delayed,
        "realm" => Full::Realm,
        "bytes" => Full::Bytes,
        _ => Full::Queues,
    }
}

pub(super) fn settled(text: &str) -> Vec<Settled> {
    let each = text.chars().map(|mark| match mark {
        'N' => Settled::Now,
        'B' => Settled::Before,
        _ => Settled::Unknown,
    });
    each.collect()
}

fn waiting(seq: Seq, sent: Seq, message: Message) -> Entry {
    Entry {
        seq,
        message: Arc::new(message),
        attempts: u32::from(seq <= sent),
        failures: 0,
        returns: 0,
        due: None,
        first_error: None,
        last_error: None,
        suspect: false,
    }
}

/// Entries in their turn; what cannot be read goes to `damaged`.
pub(super) fn page_entries(
    seqs: &str,
    sent: Seq,
    messages: Vec<Value>,
    damaged: &mut Vec<Damaged>,
) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(messages.len());
    let mut seqs = Fields::of(seqs);
    for message in messages {
        let seq = seqs.next()?;
        match bytes(message).map(Message::decode) {
            Some(Ok(message)) => entries.push(waiting(seq, sent, message)),
            _ => damaged.push(seq),
        }
    }
    Ok(entries)
}

/// Entries of a look or of what is due; what cannot be read goes to `damaged`.
pub(super) fn entries(
    values: Vec<Value>,
    sent: Seq,
    damaged: &mut Vec<Damaged>,
) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(values.len());
    for value in values {
        let mut parts = list(value)?;
        let message = parts.pop().and_then(bytes).map(Message::decode);
        let mut fields = Fields::of(text(parts.first().ok_or_else(strange)?)?);
        let seq = fields.next()?;
        let Some(Ok(mut message)) = message else {
            damaged.push(seq);
            continue;
        };
        let [_, first, last] = parts.as_slice() else {
            entries.push(waiting(seq, sent, message));
            continue;
        };
        let mut entry = waiting(seq, 0, Message::clone(&message));
        entry.attempts = fields.next()?;
        entry.failures = fields.next()?;
        entry.returns = fields.next()?;
        entry.due = fields.time()?;
        message.expires = expiry(fields.next()?);
        entry.message = Arc::new(message);
        entry.suspect = fields.next::<u8>()? == 1;
        entry.first_error = optional(first)?;
        entry.last_error = optional(last)?;
        entries.push(entry);
    }
    Ok(entries)
}

pub(super) fn expiry(at: u64) -> Option<Timestamp> {
    (at > 0).then_some(Timestamp(at))
}

pub(super) fn depth(text: &str) -> Result<Depth> {
    let mut fields = Fields::of(text);
    Ok(Depth {
        count: fields.next()?,
        bytes: fields.next()?,
        oldest: fields.time()?,
    })
}

/// A record of a queue of which the rest is known.
pub(super) fn record(text: &str, spec: QueueSpec) -> Result<QueueRecord> {
    let mut fields = Fields::of(text);
    Ok(QueueRecord {
        queue: QueueId(fields.next()?),
        log: LogId(fields.next()?),
        spec,
        seen: Timestamp(fields.next()?),
        low: fields.next()?,
        sent: fields.next()?,
        head: fields.next()?,
        exceptions: fields.next()?,
        depth: fields.next()?,
    })
}

/// The queue of which something is left, if the answer is about such a one.
pub(super) fn left_over(value: &Value) -> Result<Option<QueueId>> {
    match value {
        Value::Array(parts) => match parts.as_slice() {
            [id] => Ok(Some(QueueId(Fields::of(text(id)?).next()?))),
            _ => Ok(None),
        },
        _ => Err(strange()),
    }
}

/// A record as Redis has it.
pub(super) fn whole_record(value: Value, realm: &RealmId) -> Result<QueueRecord> {
    let parts = list(value)?;
    let [fields, key, kind, name, set] = parts.as_slice() else {
        return Err(strange());
    };
    let kind = Fields::of(text(kind)?).next()?;
    let spec = QueueSpec {
        realm: realm.clone(),
        key: Key::decode(text(key)?).ok_or_else(strange)?,
        kind: settings::kind(kind).ok_or_else(strange)?,
        name: text(name)?.into(),
        settings: settings::settings(text(set)?).ok_or_else(strange)?,
    };
    record(text(fields)?, spec)
}

/// A delayed message, or nothing if it cannot be read.
pub(super) fn delayed(value: Value, realm: &RealmId) -> Result<Option<Delayed>> {
    let mut parts = list(value)?;
    let message = parts.pop().and_then(bytes).map(Message::decode);
    let [due, owner] = parts.as_slice() else {
        return Err(strange());
    };
    let due = Timestamp(Fields::of(text(due)?).next()?);
    let owner = optional(owner)?;
    Ok(message.and_then(Result::ok).map(|message| Delayed {
        realm: realm.clone(),
        message: Arc::new(message),
        due,
        owner,
    }))
}

/// How dead letters are named in Redis: so that the order of texts is that of ids.
pub(super) fn letter_name(id: DeadLetterId) -> String {
    format!("{:016}-{:016}", id.queue.0, id.seq)
}

/// Reads what [`letter_name`] gave.
pub(super) fn letter_id(name: &str) -> Result<DeadLetterId> {
    let (queue, seq) = name.split_once('-').ok_or_else(strange)?;
    Ok(DeadLetterId {
        queue: QueueId(Fields::of(queue).next()?),
        seq: Fields::of(seq).next()?,
    })
}

/// A dead letter, or nothing if its message cannot be read.
pub(super) fn dead_letter(value: Value, realm: &RealmId) -> Result<Option<DeadLetter>> {
    let mut parts = list(value)?;
    let message = parts.pop().and_then(bytes).map(Message::decode);
    let [id, fields, key, kind, name, reason, first, last] = parts.as_slice() else {
        return Err(strange());
    };
    let id = letter_id(text(id)?)?;
    let mut fields = Fields::of(text(fields)?);
    let Some(Ok(message)) = message else {
        return Ok(None);
    };
    let kind = Fields::of(text(kind)?).next()?;
    let (attempts, rounds, dead_at) = (fields.next()?, fields.next()?, fields.next()?);
    Ok(Some(DeadLetter {
        id,
        realm: realm.clone(),
        key: Key::decode(text(key)?).ok_or_else(strange)?,
        kind: settings::kind(kind).ok_or_else(strange)?,
        name: text(name)?.into(),
        message: Arc::new(Message {
            expires: expiry(fields.next()?),
            ..message
        }),
        attempts,
        rounds,
        reason: text(reason)?.into(),
        first_error: optional(first)?,
        last_error: optional(last)?,
        dead_at: Timestamp(dead_at),
    }))
}
