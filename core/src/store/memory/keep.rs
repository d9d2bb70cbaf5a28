//! Where a memory store has its rows. A message is an `Arc`: references count themselves.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Key, Message, MessageId, RealmId};

use super::super::documents::Book;
use super::super::state::{Changes, Held, Keep, Kept, Letter, Row};
use super::super::types::{DeadLetterId, Delayed, Exception, LogId, QueueId, Seq};
use super::delays::Delays;
use super::entries::Pieces;
use super::exceptions::Exceptions;
use super::graves::Graves;
use super::uids::MemoryUids;

impl Held for Arc<Message> {
    fn size(&self) -> u64 {
        Message::size(self) as u64
    }

    fn produced(&self) -> Timestamp {
        self.produced
    }

    fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    fn is_guaranteed(&self) -> bool {
        self.guaranteed
    }

    fn expiring(self, expires: Option<Timestamp>) -> Self {
        Arc::new(Message {
            expires,
            ..Message::clone(&self)
        })
    }
}

/// The rows of a memory store.
#[derive(Debug, Default)]
pub(crate) struct MemoryKeep {
    exceptions: HashMap<QueueId, Exceptions>,
    exception_expiry: BTreeSet<(Timestamp, QueueId, Seq)>,
    graves: HashMap<u64, Graves<Letter<Arc<Message>>>>,
    delays: Delays,
    documents: Book,
    changes: Option<Box<Changes>>,
}

impl MemoryKeep {
    pub(super) fn exceptions(&self, queue: QueueId) -> Option<&Exceptions> {
        self.exceptions.get(&queue)
    }

    pub(super) fn graves(&self, realm: u64) -> Option<&Graves<Letter<Arc<Message>>>> {
        self.graves.get(&realm)
    }

    pub(super) fn delays(&self) -> &Delays {
        &self.delays
    }
}

impl Keep for MemoryKeep {
    type Held = Arc<Message>;
    type Entries = Pieces;
    type Uids = MemoryUids;
    type Documents = Book;
    const IS_WRITTEN: bool = false;

    fn entries(&mut self, _log: LogId, _realm: u64, _key: &Key, kept: &Kept) -> Pieces {
        Pieces::new(kept.clone())
    }

    fn uids(&mut self, _realm: u64, _name: &RealmId) -> MemoryUids {
        MemoryUids::default()
    }

    fn documents(&self) -> &Book {
        &self.documents
    }

    fn documents_mut(&mut self) -> &mut Book {
        &mut self.documents
    }

    fn changes(&mut self) -> &mut Option<Box<Changes>> {
        &mut self.changes
    }

    fn adopt(&mut self, message: &Arc<Message>) -> Arc<Message> {
        Arc::clone(message)
    }

    fn exceptions_after(
        &self,
        queue: QueueId,
        after: Seq,
        most: usize,
    ) -> Vec<(Seq, Option<Row<Arc<Message>>>)> {
        let rows = self.exceptions.get(&queue).map(|rows| rows.after(after));
        let rows = rows.into_iter().flatten().take(most);
        rows.map(|row| (row.state.seq, Some(row.clone()))).collect()
    }

    fn letters_after(
        &self,
        realm: u64,
        after: Option<DeadLetterId>,
        most: usize,
    ) -> Vec<Letter<Arc<Message>>> {
        let graves = self.graves.get(&realm);
        graves.map_or_else(Vec::new, |graves| {
            graves.after(after).take(most).cloned().collect()
        })
    }

    fn delayed_of(&self, id: MessageId) -> Option<Delayed> {
        self.delays.get(id).cloned()
    }

    fn delayed_after(
        &self,
        after: Option<(u64, u64)>,
        most: usize,
    ) -> (Vec<Delayed>, Option<(u64, u64)>) {
        self.delays.after(after, most)
    }

    fn retain(&mut self, _held: &Arc<Message>) {}

    fn release(&mut self, _held: Arc<Message>) {}

    fn insert_exception(&mut self, queue: QueueId, _log: LogId, row: Row<Arc<Message>>) {
        if let Some(expires) = row.held.expires {
            self.exception_expiry
                .insert((expires, queue, row.state.seq));
        }
        self.exceptions.entry(queue).or_default().insert(row);
    }

    fn take_exception(&mut self, queue: QueueId, seq: Seq) -> Option<Row<Arc<Message>>> {
        let rows = self.exceptions.get_mut(&queue)?;
        let row = rows.take(seq)?;
        if rows.len() == 0 {
            self.exceptions.remove(&queue);
        }
        if let Some(expires) = row.held.expires {
            self.exception_expiry.remove(&(expires, queue, seq));
        }
        Some(row)
    }

    fn change_exception(&mut self, queue: QueueId, state: &Exception) -> bool {
        let rows = self.exceptions.get_mut(&queue);
        rows.is_some_and(|rows| rows.change(state))
    }

    fn first_exception(&self, queue: QueueId) -> Option<Arc<Message>> {
        let row = self.exceptions.get(&queue)?.after(0).next()?;
        Some(Arc::clone(&row.held))
    }

    fn drop_exceptions(&mut self, queue: QueueId) {
        let rows = self.exceptions.remove(&queue);
        for row in rows.iter().flat_map(|rows| rows.after(0)) {
            if let Some(expires) = row.held.expires {
                self.exception_expiry
                    .remove(&(expires, queue, row.state.seq));
            }
        }
    }

    fn expired_exception(&self, now: Timestamp) -> Option<(QueueId, Seq)> {
        let (expires, queue, seq) = self.exception_expiry.first()?;
        (*expires <= now).then_some((*queue, *seq))
    }

    fn bury(&mut self, realm: u64, letter: Letter<Arc<Message>>) -> bool {
        self.graves.entry(realm).or_default().bury(letter)
    }

    fn has_letter(&self, realm: u64, id: DeadLetterId) -> bool {
        self.graves
            .get(&realm)
            .is_some_and(|graves| graves.get(id).is_some())
    }

    fn take_letter(&mut self, realm: u64, id: DeadLetterId) -> Option<Letter<Arc<Message>>> {
        self.graves.get_mut(&realm)?.take(id)
    }

    fn end_letters(&mut self, realm: u64, most: usize, before: Timestamp) -> Vec<DeadLetterId> {
        let graves = self.graves.get_mut(&realm);
        graves.map_or_else(Vec::new, |graves| graves.end_old(before, most))
    }

    fn hold(&mut self, _realm: u64, row: Delayed) {
        self.delays.hold(row);
    }

    fn holds(&self, id: MessageId) -> bool {
        self.delays.contains(id)
    }

    fn drop_delayed(&mut self, id: MessageId) -> Option<RealmId> {
        self.delays.take(id).map(|row| row.realm)
    }

    fn realm_gone(&mut self, realm: u64, name: &RealmId) {
        self.graves.remove(&realm);
        self.delays.purge(name);
    }

    fn realm_renamed(&mut self, _realm: u64, from: &RealmId, to: &RealmId) {
        self.delays.rename(from, to);
    }
}
