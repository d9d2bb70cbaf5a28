//! Bringing what a store took in while another one was away to that other one, which may hold older
//! messages (P29).
//!
//! Both have their own numbers, so nothing is copied as it is: queues are opened by name, entries
//! appended behind what is there, in order, and what had happened to them happens again. Each append
//! carries a mark of its own, so whoever begins anew after a crash appends nothing twice. Numbers of
//! the stand-in begin far above all others: what still speaks of them later is recognised. Knows no
//! kind of store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::{Key, RealmId};
use crate::{Error, ErrorKind, Result};

use super::documents::{Collection, DocumentRecord};
use super::record::{
    DelayedRecord, EntryRecord, ExceptionRecord, ExportCursor, Gone, LetterRecord, ReaderRecord,
    Record,
};
use super::types::{Append, LogId, PageLimit, QueueId, QueueSpec, Seq};
use super::{SharedStore, Store};

mod finish;
mod mirror;
mod there;

use there::There;

pub use mirror::{mirror_of, recall_mirror, write_mirror};

/// Numbers of realms, logs and queues of a stand-in are above it, and no others.
pub const FIRST_NUMBER: u64 = 1 << 52;
/// A page of what is read.
const PAGE: PageLimit = PageLimit {
    entries: 1024,
    bytes: 1 << 20,
};
/// What goes in one call.
const BITE: usize = 256;

/// An entry that was appended to the other store.
struct Moved {
    seq: Seq,
    /// Its number among the guaranteed ones, if it is one.
    guaranteed: Option<u64>,
    /// Where it is now; nobody knows of one that came before a crash.
    to: Option<Seq>,
}

/// A log of the stand-in.
struct Source {
    realm: RealmId,
    key: Key,
    target: Option<LogId>,
    /// Entries that came before anybody was known who reads them.
    early: Vec<EntryRecord>,
    moved: Vec<Moved>,
}

/// A queue of the stand-in and the one that it joins.
struct Reader {
    told: ReaderRecord,
    target: QueueId,
}

/// What was brought over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Merged {
    /// Entries appended, delayed messages among them.
    pub messages: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// See the module.
pub struct Merging {
    from: SharedStore,
    to: SharedStore,
    cursor: Option<ExportCursor>,
    /// What the other store had before.
    there: There,
    realms: HashMap<u64, RealmId>,
    logs: HashMap<u64, Source>,
    readers: BTreeMap<u64, Reader>,
    exceptions: BTreeMap<(u64, Seq), ExceptionRecord>,
    letters: BTreeMap<(u64, Seq), LetterRecord>,
    delayed: BTreeMap<u64, DelayedRecord>,
    marks: BTreeMap<(u64, Arc<str>), Record>,
    documents: BTreeMap<(Collection, Arc<str>), DocumentRecord>,
    merged: Merged,
}

/// Has an empty stand-in begin with numbers of its own; one that holds something goes on with its.
///
/// # Errors
/// What the store says.
pub async fn begin_numbers(store: &dyn Store, replace: bool) -> Result<()> {
    match store.begin_import(replace).await {
        Err(error) if error.kind() == ErrorKind::Config && !replace => return Ok(()),
        begun => begun?,
    }
    let last = FIRST_NUMBER + fastrand::u64(..FIRST_NUMBER >> 1);
    store.import(vec![Record::Numbers { last }]).await?;
    store.end_import().await?;
    store.lead().await
}

fn unfit(what: &str) -> Error {
    let why = format!("a row of the stand-in does not fit the others: {what}");
    Error::new(ErrorKind::StoreCorrupt, why)
}

impl Merging {
    /// Opens the queues of the stand-in in the other store.
    ///
    /// # Errors
    /// What the stores say.
    pub async fn begin(from: SharedStore, to: SharedStore) -> Result<Self> {
        let there = There::new(to.queues().await?);
        let mut merging = Self {
            from,
            to,
            there,
            cursor: None,
            realms: HashMap::new(),
            logs: HashMap::new(),
            readers: BTreeMap::new(),
            exceptions: BTreeMap::new(),
            letters: BTreeMap::new(),
            delayed: BTreeMap::new(),
            marks: BTreeMap::new(),
            documents: BTreeMap::new(),
            merged: Merged::default(),
        };
        // Left-overs stand only here, and readers must be there before the first entry.
        let mut cursor = None;
        loop {
            let page = merging.from.export(cursor, PAGE).await?;
            for record in page.records {
                match record {
                    Record::Realm { .. } | Record::Log(_) | Record::Queue(_) => {
                        merging.take(record).await?;
                    }
                    _ => {}
                }
            }
            cursor = Some(page.next);
            if page.left == 0 {
                return Ok(merging);
            }
        }
    }

    /// Brings one page over; about how many rows are left.
    ///
    /// # Errors
    /// What the stores say; `queue_full` if the other store has no room for what waits. It may be
    /// begun anew then.
    pub async fn page(&mut self) -> Result<u64> {
        let page = self.from.export(self.cursor.clone(), PAGE).await?;
        self.cursor = Some(page.next);
        let mut entries = Vec::new();
        for record in page.records {
            match record {
                Record::Entry(entry) => entries.push(entry),
                record => {
                    self.append(std::mem::take(&mut entries)).await?;
                    self.take(record).await?;
                }
            }
        }
        self.append(entries).await?;
        Ok(page.left)
    }

    async fn take(&mut self, record: Record) -> Result<()> {
        match record {
            Record::Realm { realm, name } => {
                self.realms.insert(realm, RealmId::parse(&name)?);
            }
            Record::Log(log) => {
                let realm = self.realms.get(&log.realm);
                let realm = realm.ok_or_else(|| unfit("the realm of a log is unknown"))?;
                self.logs.entry(log.log).or_insert_with(|| Source {
                    realm: realm.clone(),
                    key: log.key,
                    target: None,
                    early: Vec::new(),
                    moved: Vec::new(),
                });
            }
            Record::Queue(told) => self.take_queue(*told).await?,
            Record::Exception(row) => {
                self.exceptions.insert((row.queue, row.seq), *row);
            }
            Record::Letter(row) => {
                self.letters.insert((row.queue, row.seq), *row);
            }
            Record::Delayed(row) => {
                self.delayed.insert(row.message.id.0, row);
            }
            Record::Mark(mark) => {
                let name = (mark.realm, mark.instance.clone());
                self.marks.insert(name, Record::Mark(mark));
            }
            Record::Uid { realm, ref uid, .. } => {
                // No instance has a name that begins so.
                let name = format!("\0{uid}").into();
                self.marks.insert((realm, name), record);
            }
            Record::Document(row) => {
                let name = (row.collection, row.key.clone());
                self.documents.insert(name, row);
            }
            Record::Gone(gone) => self.take_gone(gone).await?,
            _ => {}
        }
        Ok(())
    }

    async fn take_gone(&mut self, gone: Gone) -> Result<()> {
        match gone {
            Gone::Queue { queue } => {
                self.exceptions.retain(|(of, _), _| *of != queue);
                if let Some(reader) = self.readers.remove(&queue) {
                    self.to.forget(reader.target, false).await?;
                }
            }
            Gone::Exception { queue, seq } => {
                self.exceptions.remove(&(queue, seq));
            }
            Gone::Exceptions { queue } => self.exceptions.retain(|(of, _), _| *of != queue),
            Gone::Letter { queue, seq, .. } => {
                self.letters.remove(&(queue, seq));
            }
            Gone::Delayed { message } => {
                self.delayed.remove(&message);
            }
            Gone::Document { collection, key } => {
                self.documents.remove(&(collection, key));
            }
            Gone::Realm { .. } | Gone::Log { .. } | Gone::Documents => {}
        }
        Ok(())
    }

    async fn take_queue(&mut self, told: ReaderRecord) -> Result<()> {
        if let Some(known) = self.readers.get_mut(&told.queue) {
            known.told = told;
            return Ok(());
        }
        let source = self.logs.get_mut(&told.log);
        let source = source.ok_or_else(|| unfit("the log of a queue is unknown"))?;
        let mut spec = QueueSpec {
            realm: source.realm.clone(),
            key: source.key.clone(),
            kind: told.kind,
            name: told.name.clone(),
            settings: told.settings.clone(),
        };
        let mut seen = Timestamp(told.seen);
        // What was used there since, maybe by another broker, is as it was said there.
        if let Some(found) = self.there.find(&spec).filter(|found| found.seen >= seen) {
            spec.settings = found.spec.settings.clone();
            seen = found.seen;
        }
        let opened = match self.to.open(spec, seen).await {
            Err(error) if error.kind() == ErrorKind::ConsumerIdTaken => {
                // The stand-in is kept, for whoever wants it.
                tracing::error!(%error, name = %told.name, "what a queue took in meanwhile is not merged");
                return Ok(());
            }
            opened => opened?,
        };
        source.target = Some(opened.log);
        let early = std::mem::take(&mut source.early);
        let target = opened.queue;
        self.readers.insert(told.queue, Reader { told, target });
        self.append(early).await
    }

    /// Appends entries behind what the other store has.
    async fn append(&mut self, entries: Vec<EntryRecord>) -> Result<()> {
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let (mut rows, mut items) = (Vec::new(), Vec::new());
            for entry in entries.by_ref().take(BITE) {
                let source = self.logs.get_mut(&entry.log);
                let source = source.ok_or_else(|| unfit("the log of an entry is unknown"))?;
                let Some(target) = source.target else {
                    source.early.push(entry);
                    continue;
                };
                let message = entry.message.clone();
                let mut item = Append::new(source.realm.clone(), message, vec![target]);
                item.mark = Some((format!("stand-in {}", entry.log).into(), entry.sums.seq));
                items.push(item);
                rows.push(entry);
            }
            let answers = self.to.append(items).await?;
            for (entry, answer) in rows.into_iter().zip(answers) {
                let answer = answer?;
                let placed = answer.placed.first().filter(|placed| placed.seq > 0);
                if placed.is_none() && !answer.duplicate {
                    continue;
                }
                self.merged.messages += u64::from(placed.is_some());
                if let Some(source) = self.logs.get_mut(&entry.log) {
                    let guaranteed = entry.message.guaranteed;
                    source.moved.push(Moved {
                        seq: entry.sums.seq,
                        guaranteed: guaranteed.then_some(entry.sums.guaranteed),
                        to: placed.map(|placed| placed.seq),
                    });
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Merging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merging").finish_non_exhaustive()
    }
}
