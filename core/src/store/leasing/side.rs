//! What a custom store does not remember itself: its subscriptions, in one JSON text beside it.
//!
//! The text is written anew as a whole and renamed into place, so that a reader finds the old or
//! the new one. Knows no call of the store.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::model::{Backoff, ConsumerName, GroupName, Key, RealmId, RetryPolicy};
use crate::{Error, ErrorKind, Result};

use super::super::documents::{DocumentRecord, Rows as _, private};
use super::super::simple::Place;
use super::super::types::{LogId, QueueId, QueueKind, QueueSettings};
use super::queue::{Past, Queue};
use super::state::State;

/// Where subscriptions are kept.
#[derive(Debug, Clone, Default)]
pub enum Side {
    /// Nowhere: they end with the store.
    #[default]
    None,
    /// With whoever holds this: they end with the process.
    Memory(Arc<Mutex<String>>),
    /// In this file. It belongs to one running store at a time.
    File(PathBuf),
}

/// A side that is open.
#[derive(Debug, Clone, Default)]
pub(super) struct Opened {
    side: Side,
    /// Held as long as the store is open.
    lock: Arc<Mutex<Option<File>>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Text {
    generation: u64,
    last_id: u64,
    queues: Vec<Record>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    documents: Vec<DocumentRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    queue: u64,
    log: u64,
    realm: String,
    key: String,
    kind: String,
    name: String,
    event: String,
    consumer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_realm: Option<String>,
    seen: u64,
    #[serde(default)]
    attached: bool,
    #[serde(default)]
    left: bool,
    joined: u64,
    sent: u64,
    settings: Settings,
}

#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    durable: bool,
    ack: bool,
    ack_timeout_ms: Option<u64>,
    retry: Option<Retry>,
    consumer: Option<String>,
    consumer_meta: Option<Arc<str>>,
    group: Option<String>,
    owner: Option<Arc<str>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Retry {
    max_attempts: u32,
    delay_ms: u64,
    exponential: bool,
    max_delay_ms: u64,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn kind_name(kind: QueueKind) -> &'static str {
    match kind {
        QueueKind::Consumer => "consumer",
        QueueKind::Group => "group",
        QueueKind::History => "history",
    }
}

fn kind_of(name: &str) -> Option<QueueKind> {
    let kinds = [QueueKind::Consumer, QueueKind::Group, QueueKind::History];
    kinds.into_iter().find(|kind| kind_name(*kind) == name)
}

fn settings_of(settings: &QueueSettings) -> Settings {
    Settings {
        durable: settings.durable,
        ack: settings.ack,
        ack_timeout_ms: settings.ack_timeout.map(millis),
        retry: settings.retry.as_deref().map(|retry| Retry {
            max_attempts: retry.max_attempts(),
            delay_ms: millis(retry.first_delay()),
            exponential: retry.backoff() == Backoff::Exponential,
            max_delay_ms: millis(retry.max_delay()),
        }),
        consumer: settings
            .consumer
            .as_ref()
            .map(|name| name.as_str().to_owned()),
        consumer_meta: settings.consumer_meta.clone(),
        group: settings.group.as_ref().map(|name| name.as_str().to_owned()),
        owner: settings.owner.clone(),
    }
}

impl Settings {
    fn read(self) -> Result<QueueSettings> {
        let retry = self.retry.map(|retry| {
            let backoff = match retry.exponential {
                true => Backoff::Exponential,
                false => Backoff::Fixed,
            };
            let delay = Some(Duration::from_millis(retry.delay_ms));
            let max_delay = Some(Duration::from_millis(retry.max_delay_ms));
            RetryPolicy::new(Some(retry.max_attempts), delay, backoff, max_delay)
        });
        Ok(QueueSettings {
            durable: self.durable,
            ack: self.ack,
            ack_timeout: self.ack_timeout_ms.map(Duration::from_millis),
            retry: retry.transpose()?.map(Box::new),
            consumer: self
                .consumer
                .map(|name| ConsumerName::parse(&name))
                .transpose()?,
            consumer_meta: self.consumer_meta,
            group: self.group.map(|name| GroupName::parse(&name)).transpose()?,
            owner: self.owner,
        })
    }
}

/// Everything that is remembered, as text.
pub(super) fn write(state: &State) -> String {
    let queues = state.queues.iter().filter_map(|(id, queue)| {
        let log = state.logs.get(&queue.log)?;
        let realm = log.realm.as_str();
        let stored_realm = (*queue.place.realm != *realm).then(|| queue.place.realm.to_string());
        Some(Record {
            queue: id.0,
            log: queue.log.0,
            realm: realm.to_owned(),
            key: log.key.encode(),
            kind: kind_name(queue.kind).to_owned(),
            name: queue.name.to_string(),
            event: queue.place.event.to_string(),
            consumer: queue.place.consumer.to_string(),
            stored_realm,
            seen: queue.seen.0,
            attached: queue.is_attached,
            left: queue.is_left,
            joined: queue.joined,
            sent: queue.sent,
            settings: settings_of(&queue.settings),
        })
    });
    let documents = state.documents.after(None, usize::MAX).into_iter();
    let text = Text {
        generation: state.generation,
        last_id: state.last_id,
        queues: queues.collect(),
        documents: documents
            .map(|(of, document)| DocumentRecord::new(of, document))
            .collect(),
    };
    // Texts and numbers always serialise.
    serde_json::to_string_pretty(&text).unwrap_or_default()
}

/// Takes up what is remembered.
///
/// # Errors
/// `store_corrupt` for what [`write`] did not write.
pub(super) fn read(text: &str, state: &mut State) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let corrupt = |error: &dyn std::fmt::Display| {
        let text = format!("the remembered subscriptions cannot be read: {error}");
        Error::new(ErrorKind::StoreCorrupt, text)
    };
    let text: Text = serde_json::from_str(text).map_err(|error| corrupt(&error))?;
    state.generation = text.generation + 1;
    state.last_id = text.last_id;
    for told in &text.documents {
        let document = told.document().map_err(|error| corrupt(&error))?;
        state.documents.put(told.collection, document);
    }
    let base = Past::base(state.generation);
    for record in text.queues {
        let key = Key::decode(&record.key).ok_or_else(|| corrupt(&"an unknown key"))?;
        let kind = kind_of(&record.kind).ok_or_else(|| corrupt(&"an unknown kind"))?;
        let realm = RealmId::parse(&record.realm).map_err(|error| corrupt(&error))?;
        let place = Place {
            realm: record.stored_realm.unwrap_or(record.realm).into(),
            event: record.event.into(),
            consumer: record.consumer.into(),
        };
        let settings = record.settings.read().map_err(|error| corrupt(&error))?;
        let (log, name) = (LogId(record.log), record.name.into());
        let mut queue = Queue::new(log, kind, name, settings, Arc::new(place));
        queue.seen = Timestamp(record.seen);
        queue.is_left = record.left;
        queue.joined = record.joined;
        queue.past = Past::Remembered {
            base,
            sent: record.sent,
            until: (!record.attached).then_some(queue.seen),
        };
        // What was sent before is numbered up to here.
        queue.sent = base + Past::UNSENT;
        state.last_id = state.last_id.max(record.queue).max(record.log);
        state.insert(QueueId(record.queue), queue, realm, key, base + Past::FRESH);
    }
    Ok(())
}

impl Opened {
    /// Opens a side and reads it.
    ///
    /// # Errors
    /// `config` if the file cannot be read, made or locked; `store_corrupt` if it is empty, which it
    /// never is by us.
    pub(super) fn open(side: Side) -> Result<(Self, String)> {
        match &side {
            Side::None => Ok((Self::default(), String::new())),
            Side::Memory(text) => {
                let text = text.lock().clone();
                Ok((
                    Self {
                        side,
                        lock: Arc::default(),
                    },
                    text,
                ))
            }
            Side::File(path) => {
                let lock = lock(path).map_err(|error| failed(path, ErrorKind::Config, &error))?;
                let text = match fs::read_to_string(path) {
                    Ok(text) if text.is_empty() => {
                        let why = "it is empty, so it is damaged";
                        return Err(failed(path, ErrorKind::StoreCorrupt, &why));
                    }
                    Ok(text) => text,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
                    Err(error) => return Err(failed(path, ErrorKind::Config, &error)),
                };
                let lock = Arc::new(Mutex::new(Some(lock)));
                let opened = Self { side, lock };
                Ok((opened, text))
            }
        }
    }

    /// The same error with the name of the file that it is about.
    pub(super) fn named(&self, error: Error) -> Error {
        match &self.side {
            Side::File(path) => failed(path, error.kind(), &error),
            Side::None | Side::Memory(_) => error,
        }
    }

    /// Leaves the file to others.
    pub(super) fn release(&self) {
        self.lock.lock().take();
    }

    pub(super) fn remembers(&self) -> bool {
        !matches!(self.side, Side::None)
    }

    /// Whether it outlives the process.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.side, Side::File(_))
    }

    /// Writes the text in place of the old one. Waits for the disk.
    pub(super) fn save(&self, text: &str) -> Result<()> {
        match &self.side {
            Side::None => Ok(()),
            Side::Memory(kept) => {
                text.clone_into(&mut kept.lock());
                Ok(())
            }
            Side::File(path) => {
                replace(path, text).map_err(|error| failed(path, ErrorKind::Config, &error))
            }
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn lock(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)?;
    }
    let file = File::options()
        .create(true)
        .append(true)
        .open(beside(path, ".lock"))?;
    file.try_lock().map_err(|error| match error {
        fs::TryLockError::Error(error) => error,
        fs::TryLockError::WouldBlock => std::io::Error::other("another running server has it"),
    })?;
    Ok(file)
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let new = beside(path, ".new");
    // One that a crash has left may be anybody's to read.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private().write(true).create_new(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    fs::rename(new, path)
}

/// What is damaged is never taken for nothing: that would forget subscriptions in silence.
const MEND: &str = "; bring back a copy of it, or delete it to start without what it remembered";

fn failed(path: &Path, kind: ErrorKind, error: &dyn std::fmt::Display) -> Error {
    let mend = match kind {
        ErrorKind::StoreCorrupt => MEND,
        _ => "",
    };
    let path = path.display();
    Error::new(
        kind,
        format!("the file of subscriptions {path}: {error}{mend}"),
    )
}
