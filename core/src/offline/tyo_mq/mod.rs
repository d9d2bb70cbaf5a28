//! Messages that tyo-mq has left in its SQLite file or its Redis, as records of a store of ours.
//!
//! A queue of tyo-mq is a consumer's rows under one key in their order; it becomes a durable queue.
//! What is there is only read. Knows the layouts from their description, nothing of the broker there.

mod key;
#[cfg(feature = "redis")]
mod redis;
mod row;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::model::{Key, Message, MessageId, RealmId};
use crate::store::record::{EntryRecord, LetterRecord, LogRecord, ReaderRecord, Run, Sums};
use crate::store::{QueueKind, QueueSettings, Record};
use crate::{Error, ErrorKind, Result};

use super::import::Intake;
use super::{Streams, clock};
use row::{Found, Row};

#[cfg(feature = "redis")]
pub(super) use redis::from_redis;
#[cfg(feature = "sqlite")]
pub(super) use sqlite::from_sqlite;

/// What the names of its keys in Redis begin with.
#[cfg(feature = "redis")]
pub(super) const PREFIX: &str = "tyo-mq:queue";
/// Whose rows are history of HTTP, not a queue.
const HISTORY: &str = "__http_sse__";
/// Rows between two words of how far it has come.
const WORDS: u64 = 50_000;

/// What was put into the log of a key so far.
struct Log {
    id: u64,
    sums: Sums,
    queues: BTreeMap<Arc<str>, Queue>,
}

/// A consumer under a key: which entries of the log wait for it.
struct Queue {
    id: u64,
    own: Vec<Run>,
}

impl Queue {
    fn takes(&mut self, seq: u64) {
        match self.own.last_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => self.own.push((seq, seq)),
        }
    }

    /// Up to where everything is settled, and the settled runs behind that, in a log that ends at
    /// `head`.
    fn settled(&self, head: u64) -> (u64, Vec<Run>) {
        let low = self.own.first().map_or(head, |(first, _)| first - 1);
        let nexts = self.own.iter().skip(1).map(|(first, _)| *first);
        let gaps = self.own.iter().zip(nexts.chain([head + 1]));
        let gaps = gaps.map(|((_, last), next)| (last + 1, next - 1));
        (low, gaps.filter(|(first, last)| first <= last).collect())
    }
}

/// Makes records of rows.
struct Adoption<'a, 'b> {
    intake: &'a mut Intake<'b>,
    skips: bool,
    now: Timestamp,
    last_id: u64,
    last_message: u64,
    realms: HashMap<RealmId, u64>,
    logs: HashMap<(u64, Key), Log>,
    rows: u64,
    old_letters: u64,
}

fn next(last: &mut u64) -> u64 {
    *last += 1;
    *last
}

impl<'a, 'b> Adoption<'a, 'b> {
    fn new(intake: &'a mut Intake<'b>, skips: bool) -> Self {
        let now = clock().now();
        Self {
            intake,
            skips,
            now,
            last_id: 0,
            // Below what a broker gives from now on.
            last_message: now.0 << 20,
            realms: HashMap::new(),
            logs: HashMap::new(),
            rows: 0,
            old_letters: 0,
        }
    }

    /// Takes a row in. One that cannot be read ends it all, or is named and left out.
    async fn take(&mut self, found: Found<'_>, streams: &mut Streams<'_>) -> Result<()> {
        self.rows += 1;
        if self.rows.is_multiple_of(WORDS) {
            streams.note(format!("{} rows read", self.rows));
        }
        if found.consumer == HISTORY {
            self.intake.taken.history += 1;
            return Ok(());
        }
        match found.read() {
            Ok(row) if row.dead.is_none() && row.message.is_expired(self.now) => {
                self.intake.taken.expired += 1;
                Ok(())
            }
            Ok(row) => self.put(row).await,
            Err(why) => self.unreadable(&found.id, &why, streams),
        }
    }

    fn unreadable(&mut self, id: &str, why: &str, streams: &mut Streams<'_>) -> Result<()> {
        let why = format!("row {id:?} of tyo-mq cannot be read: {why}");
        if !self.skips {
            let why = format!("{why}; with --skip-unreadable such rows are named and left out");
            return Err(Error::new(ErrorKind::StoreCorrupt, why));
        }
        self.intake.taken.unreadable += 1;
        streams.note(why);
        Ok(())
    }

    async fn put(&mut self, row: Row) -> Result<()> {
        let size = row.message.size();
        let realm = self.realm(row.realm).await?;
        let place = (realm, row.key.clone());
        let last_id = &mut self.last_id;
        let is_new = !self.logs.contains_key(&place);
        let log = self.logs.entry(place).or_insert_with(|| Log {
            id: next(last_id),
            sums: no_sums(),
            queues: BTreeMap::new(),
        });
        if is_new {
            // Where it ends is told again behind its entries.
            let record = log_record(realm, &row.key, log);
            self.intake.take(0, record, 0).await?;
        }
        let queue = log.queues.entry(Arc::clone(&row.name));
        let queue = queue.or_insert_with(|| Queue {
            id: next(last_id),
            own: Vec::new(),
        });
        log.sums.seq += 1;
        log.sums.bytes += size as u64;
        let message = Arc::new(Message {
            id: MessageId(next(&mut self.last_message)),
            ..row.message
        });
        let entry = Record::Entry(EntryRecord {
            log: log.id,
            sums: log.sums,
            message: Arc::clone(&message),
        });
        self.intake.take(0, entry, size).await?;
        let Some(dead) = row.dead else {
            queue.takes(log.sums.seq);
            return Ok(());
        };
        // Its entry stands for its place alone: nobody waits for it.
        self.intake.taken.messages -= 1;
        let kept = Duration::from_secs(7 * 86_400);
        self.old_letters += u64::from(dead.at.plus(kept) <= self.now);
        let letter = Record::Letter(Box::new(LetterRecord {
            realm,
            queue: queue.id,
            seq: log.sums.seq,
            key: row.key,
            kind: QueueKind::Consumer,
            name: row.name,
            attempts: 1,
            rounds: 1,
            reason: dead.reason,
            first_error: None,
            last_error: None,
            dead_at: dead.at.0,
            message,
        }));
        self.intake.take(0, letter, size).await
    }

    async fn realm(&mut self, name: RealmId) -> Result<u64> {
        if let Some(id) = self.realms.get(&name) {
            return Ok(*id);
        }
        let realm = next(&mut self.last_id);
        let record = Record::Realm {
            realm,
            name: name.as_str().into(),
        };
        self.realms.insert(name, realm);
        self.intake.take(0, record, 0).await?;
        Ok(realm)
    }

    /// Tells where logs end, and who reads them.
    async fn finish(self, streams: &mut Streams<'_>) -> Result<()> {
        let mut logs: Vec<_> = self.logs.into_iter().collect();
        logs.sort_unstable_by_key(|(_, log)| log.id);
        for ((realm, key), log) in &logs {
            let record = log_record(*realm, key, log);
            self.intake.take(0, record, 0).await?;
            for (name, queue) in &log.queues {
                let record = queue_record(log, queue, name, self.now);
                self.intake.take(0, record, 0).await?;
            }
        }
        let numbers = Record::Numbers { last: self.last_id };
        self.intake.take(0, numbers, 0).await?;
        if self.old_letters > 0 {
            streams.note(format!(
                "{} dead letters are older than 7 days and end when a broker starts, unless its \
                 dlq_ttl is longer",
                self.old_letters
            ));
        }
        Ok(())
    }
}

fn no_sums() -> Sums {
    Sums {
        seq: 0,
        guaranteed: 0,
        bytes: 0,
        guaranteed_bytes: 0,
    }
}

fn log_record(realm: u64, key: &Key, log: &Log) -> Record {
    Record::Log(LogRecord {
        log: log.id,
        realm,
        key: key.clone(),
        head: log.sums,
        gone: Vec::new(),
        gone_guaranteed: Vec::new(),
    })
}

fn queue_record(log: &Log, queue: &Queue, name: &Arc<str>, now: Timestamp) -> Record {
    let (low, done) = queue.settled(log.sums.seq);
    Record::Queue(Box::new(ReaderRecord {
        queue: queue.id,
        log: log.id,
        kind: QueueKind::Consumer,
        name: Arc::clone(name),
        settings: QueueSettings {
            durable: true,
            ..QueueSettings::default()
        },
        seen: now.0,
        sent: 0,
        is_left: false,
        exceptions: 0,
        exception_bytes: 0,
        joined: 0,
        owned: 0,
        owned_guaranteed: 0,
        low,
        gone: 0,
        done,
        shut: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_others_is_settled() {
        let mut queue = Queue {
            id: 1,
            own: Vec::new(),
        };
        assert_eq!(queue.settled(4), (4, vec![]));
        for seq in [3, 4, 7] {
            queue.takes(seq);
        }
        assert_eq!(queue.own, [(3, 4), (7, 7)]);
        assert_eq!(queue.settled(7), (2, vec![(5, 6)]));
        assert_eq!(queue.settled(9), (2, vec![(5, 6), (8, 9)]));
    }
}
