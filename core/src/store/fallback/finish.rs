//! The end of a merge: what became of the entries that were brought over, dead letters, delayed
//! messages, and what is remembered of producers.

use std::collections::HashMap;

use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::{ErrorKind, Result};

use super::super::documents::{Collection, Condition, DocumentChange, DocumentRecord};
use super::super::record::{ExceptionRecord, LetterRecord, ReaderRecord, Record};
use super::super::types::{
    Append, Appended, Burial, Exception, QueueChange, QueueSettings, QueueSpec, Seq,
};
use super::there::There;
use super::{BITE, Merged, Merging, Moved, Reader, unfit};

impl Merging {
    /// Does what is known only when everything has come: what was settled is, exceptions have their
    /// attempts, dead letters are dead.
    ///
    /// # Errors
    /// What the other store says.
    pub async fn finish(mut self, now: Timestamp) -> Result<Merged> {
        let there = There::new(self.to.queues().await?);
        for reader in std::mem::take(&mut self.readers).into_values() {
            self.finish_queue(&reader, &there, now).await?;
        }
        for letter in std::mem::take(&mut self.letters).into_values() {
            self.bury(letter, &there, now).await?;
        }
        self.put_delayed().await?;
        for document in std::mem::take(&mut self.documents).into_values() {
            self.put_document(document, now).await?;
        }
        let mut marks: HashMap<u64, Vec<Record>> = HashMap::new();
        for ((realm, _), mark) in std::mem::take(&mut self.marks) {
            marks.entry(realm).or_default().push(mark);
        }
        for (realm, mut marks) in marks {
            let realm = self.realm(realm)?;
            // The oldest first.
            marks.sort_by_key(|mark| match mark {
                Record::Uid { at, .. } => *at,
                _ => 0,
            });
            while !marks.is_empty() {
                let rest = marks.split_off(marks.len().min(BITE));
                self.to.remember(&realm, marks).await?;
                marks = rest;
            }
        }
        Ok(self.merged)
    }

    async fn put_delayed(&mut self) -> Result<()> {
        let mut rows = std::mem::take(&mut self.delayed).into_values().peekable();
        while rows.peek().is_some() {
            let mut items = Vec::new();
            for row in rows.by_ref().take(BITE) {
                let realm = self.realm(row.realm)?;
                let mut item = Append::new(realm, row.message, Vec::new());
                (item.due, item.owner) = (Some(Timestamp(row.due)), row.owner);
                let mark = format!("stand-in d{}", row.realm).into();
                item.mark = Some((mark, item.message.id.0));
                items.push(item);
            }
            for answer in self.to.append(items).await? {
                self.merged.messages += u64::from(!answer?.duplicate);
            }
        }
        Ok(())
    }

    fn realm(&self, number: u64) -> Result<RealmId> {
        let realm = self.realms.get(&number).cloned();
        realm.ok_or_else(|| unfit("its realm is unknown"))
    }

    async fn put(&self, item: Append) -> Result<Appended> {
        let mut answers = self.to.append(vec![item]).await?;
        answers.pop().ok_or_else(|| unfit("no answer"))?
    }

    /// Puts a document where there is none: what the other store says holds.
    async fn put_document(&self, told: DocumentRecord, now: Timestamp) -> Result<()> {
        let expires = told.expires.map(Timestamp);
        if expires.is_some_and(|at| at <= now) {
            return Ok(());
        }
        let (collection, key) = (told.collection, told.key.clone());
        let change = DocumentChange {
            collection,
            key: told.key,
            text: Some(told.text),
            expires,
            only_if: Condition::Absent,
        };
        match self.to.change_documents(vec![change], now).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                if collection != Collection::Nonces {
                    let collection = collection.as_str();
                    tracing::warn!(collection, %key, "changed on both sides; that of Redis holds");
                }
                Ok(())
            }
            put => put,
        }
    }

    async fn finish_queue(&mut self, reader: &Reader, there: &There, now: Timestamp) -> Result<()> {
        let (told, target) = (&reader.told, reader.target);
        let source = self.logs.get(&told.log);
        let source = source.ok_or_else(|| unfit("the log of a queue is unknown"))?;
        let (mut settled, mut excepted, mut sent) = (Vec::new(), Vec::new(), None);
        for moved in &source.moved {
            let row = self.exceptions.remove(&(told.queue, moved.seq));
            let Some(to) = moved.to else {
                continue;
            };
            if let Some(row) = row {
                excepted.push(state(&row, to));
            } else if !is_waiting(told, moved) {
                settled.push(to);
            } else if moved.seq <= told.sent {
                sent = Some(to);
            }
        }
        let of_queue = (told.queue, 0)..=(told.queue, Seq::MAX);
        let rest: Vec<Seq> = self
            .exceptions
            .range(of_queue)
            .map(|((_, seq), _)| *seq)
            .collect();
        let (realm, log) = (source.realm.clone(), source.target);
        for seq in rest {
            let Some(row) = self.exceptions.remove(&(told.queue, seq)) else {
                continue;
            };
            let mut item = Append::new(
                realm.clone(),
                row.message.clone(),
                log.into_iter().collect(),
            );
            item.skip = there.others(log, target);
            item.mark = Some((format!("stand-in x{}", told.queue).into(), seq));
            if let Some(placed) = self.put(item).await?.placed.first() {
                self.merged.messages += 1;
                excepted.push(state(&row, placed.seq));
            }
        }
        for some in settled.chunks(BITE) {
            self.to.settle(target, some.to_vec()).await?;
        }
        for some in excepted.chunks(BITE) {
            let change = QueueChange {
                except: some.to_vec(),
                ..QueueChange::default()
            };
            self.to.update(target, change, now).await?;
        }
        if sent.is_some() {
            let change = QueueChange {
                sent,
                ..QueueChange::default()
            };
            self.to.update(target, change, now).await?;
        }
        if told.is_left {
            self.to.forget(target, false).await?;
        }
        Ok(())
    }

    /// Makes a dead letter of its queue, which may be gone.
    async fn bury(&mut self, letter: LetterRecord, there: &There, now: Timestamp) -> Result<()> {
        let realm = self.realm(letter.realm)?;
        let spec = QueueSpec {
            realm: realm.clone(),
            key: letter.key,
            kind: letter.kind,
            name: letter.name,
            settings: QueueSettings {
                durable: true,
                ..QueueSettings::default()
            },
        };
        let found = there.find(&spec).map(|record| (record.queue, record.log));
        let (queue, log) = match found {
            Some(found) => found,
            None => {
                let opened = self.to.open(spec, now).await?;
                (opened.queue, opened.log)
            }
        };
        let mut item = Append::new(realm, letter.message, vec![log]);
        item.skip = there.others(Some(log), queue);
        item.mark = Some((format!("stand-in g{}", letter.queue).into(), letter.seq));
        if let Some(placed) = self.put(item).await?.placed.first() {
            let change = QueueChange {
                bury: vec![Burial {
                    seq: placed.seq,
                    attempts: letter.attempts,
                    reason: letter.reason,
                    first_error: letter.first_error,
                    last_error: letter.last_error,
                }],
                ..QueueChange::default()
            };
            self.to
                .update(queue, change, Timestamp(letter.dead_at))
                .await?;
            self.merged.dead_letters += 1;
        }
        if found.is_none() {
            self.to.forget(queue, true).await?;
        }
        Ok(())
    }
}

fn state(row: &ExceptionRecord, seq: Seq) -> Exception {
    Exception {
        seq,
        attempts: row.attempts,
        failures: row.failures,
        returns: row.returns,
        due: Timestamp(row.due),
        first_error: row.first_error.clone(),
        last_error: row.last_error.clone(),
        suspect: row.suspect,
    }
}

/// Whether an entry was not settled in its turn yet.
fn is_waiting(queue: &ReaderRecord, entry: &Moved) -> bool {
    let is_owned = queue.settings.durable || entry.seq <= queue.owned;
    let number = match (is_owned, entry.guaranteed) {
        (true, _) => entry.seq,
        (false, Some(number)) => (queue.owned + number).saturating_sub(queue.owned_guaranteed),
        (false, None) => return false,
    };
    let end = queue.shut.map_or(u64::MAX, |(number, _)| number);
    let at = queue.done.partition_point(|run| run.1 < number);
    let is_done = queue.done.get(at).is_some_and(|run| run.0 <= number);
    entry.seq > queue.joined && number > queue.low && number <= end && !is_done
}
