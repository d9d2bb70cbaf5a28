//! A store under check, with short ways to say what the checks say often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::model::{Key, Message, MessageId, RealmId};
use crate::store::{
    Append, Appended, Bounds, Burial, Entry, Exception, LogId, Overflow, PageLimit, QueueChange,
    QueueId, QueueKind, QueueRecord, QueueSettings, QueueSpec, Quota, Seq, SharedStore,
};
use crate::{ErrorKind, Result};

use super::Make;

/// When checks begin.
pub(super) const START: Timestamp = Timestamp(1_767_225_600_000);
/// How long messages of checks live unless they say otherwise.
pub(super) const TTL: Duration = Duration::from_secs(3600);
/// Everything in one page.
pub(super) const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

pub(super) fn at(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

pub(super) fn realm(name: &str) -> RealmId {
    RealmId::parse(name).unwrap()
}

pub(super) fn key(event: &str) -> Key {
    Key::Any {
        event: event.into(),
    }
}

pub(super) fn bounds(max_queued: u64, overflow: Overflow) -> Bounds {
    Bounds {
        max_queued,
        overflow,
        ..Bounds::default()
    }
}

/// So many entries a queue and in a realm, so many bytes there.
pub(super) fn quota(queue: u64, queued: u64, bytes: u64) -> Quota {
    Quota {
        queue,
        queued,
        bytes,
    }
}

/// A durable consumer's queue on the key `k` of the realm `r`.
pub(super) fn spec(name: &str) -> QueueSpec {
    QueueSpec {
        realm: realm("r"),
        key: key("k"),
        kind: QueueKind::Consumer,
        name: name.into(),
        settings: QueueSettings {
            durable: true,
            ..QueueSettings::default()
        },
    }
}

/// The same for guaranteed entries only.
pub(super) fn plain(name: &str) -> QueueSpec {
    let mut spec = spec(name);
    spec.settings.durable = false;
    spec
}

pub(super) fn append(message: Message, logs: &[LogId]) -> Append {
    Append::new(realm("r"), Arc::new(message), logs.to_vec())
}

pub(super) fn exception(seq: Seq, due: Timestamp) -> Exception {
    Exception {
        seq,
        attempts: 1,
        failures: 1,
        returns: 0,
        due,
        first_error: Some("first".into()),
        last_error: Some("last".into()),
        suspect: false,
    }
}

pub(super) fn burial(seq: Seq) -> Burial {
    Burial {
        seq,
        attempts: 3,
        reason: "max_attempts".into(),
        first_error: Some("first".into()),
        last_error: Some("last".into()),
    }
}

pub(super) fn low(seq: Seq) -> QueueChange {
    QueueChange {
        low: Some(seq),
        ..QueueChange::default()
    }
}

pub(super) fn done(seqs: &[Seq]) -> QueueChange {
    QueueChange {
        done: seqs.to_vec(),
        ..QueueChange::default()
    }
}

pub(super) fn except(exceptions: Vec<Exception>) -> QueueChange {
    QueueChange {
        except: exceptions,
        ..QueueChange::default()
    }
}

pub(super) fn bury(seqs: &[Seq]) -> QueueChange {
    QueueChange {
        bury: seqs.iter().map(|seq| burial(*seq)).collect(),
        ..QueueChange::default()
    }
}

pub(super) fn seqs(entries: &[Entry]) -> Vec<Seq> {
    entries.iter().map(|entry| entry.seq).collect()
}

pub(super) struct Rig {
    pub(super) store: SharedStore,
    last_id: AtomicU64,
}

impl Rig {
    pub(super) async fn new(make: Make<'_>) -> Self {
        Self::with(make, Bounds::default()).await
    }

    pub(super) async fn with(make: Make<'_>, bounds: Bounds) -> Self {
        Self::on(make(bounds).await)
    }

    pub(super) fn on(store: SharedStore) -> Self {
        let last_id = AtomicU64::new(0);
        Self { store, last_id }
    }

    /// The same with another store.
    pub(super) fn goes_on_with(self, store: SharedStore) -> Self {
        Self { store, ..self }
    }

    /// A message for durable queues, produced at the start.
    pub(super) fn message(&self) -> Message {
        Message {
            id: MessageId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1),
            event: "k".into(),
            from: "p".into(),
            body: Some(Bytes::from_static(b"1")),
            extras: None,
            produced: START,
            expires: Some(START.plus(TTL)),
            guaranteed: false,
            key: None,
        }
    }

    /// A message for every queue.
    pub(super) fn guaranteed(&self) -> Message {
        Message {
            guaranteed: true,
            ..self.message()
        }
    }

    /// A message that expires after so many seconds.
    pub(super) fn expiring(&self, seconds: u64) -> Message {
        Message {
            expires: Some(at(seconds)),
            ..self.message()
        }
    }

    pub(super) async fn open(&self, spec: QueueSpec) -> QueueRecord {
        self.store.open(spec, START).await.unwrap()
    }

    pub(super) async fn try_put(&self, item: Append) -> Result<Appended> {
        let mut answers = self.store.append(vec![item]).await.unwrap();
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    pub(super) async fn put(&self, message: Message, log: LogId) -> Appended {
        self.try_put(append(message, &[log])).await.unwrap()
    }

    /// Whether a message for durable queues is refused; the limit by which, as the refusal names it.
    pub(super) async fn refusal(&self, log: LogId) -> Option<String> {
        let answer = self.try_put(append(self.message(), &[log])).await;
        let error = answer.err()?;
        assert_eq!(error.kind(), ErrorKind::QueueFull);
        let (_, limit) = error.message().rsplit_once('(')?;
        Some(limit.trim_end_matches(')').to_owned())
    }

    /// Appends so many messages for durable queues.
    pub(super) async fn fill(&self, log: LogId, count: usize) {
        for _ in 0..count {
            self.put(self.message(), log).await;
        }
    }

    /// A queue with so many entries.
    pub(super) async fn filled(&self, name: &str, count: usize) -> QueueRecord {
        let record = self.open(spec(name)).await;
        self.fill(record.log, count).await;
        record
    }

    pub(super) async fn change(&self, queue: QueueId, change: QueueChange) {
        self.store.update(queue, change, START).await.unwrap();
    }

    /// The seqs that wait for their turn, at the start.
    pub(super) async fn waiting(&self, queue: QueueId) -> Vec<Seq> {
        self.waiting_at(queue, START).await
    }

    pub(super) async fn waiting_at(&self, queue: QueueId, now: Timestamp) -> Vec<Seq> {
        let page = self.store.page(queue, 0, ALL, now).await.unwrap();
        assert!(page.end, "a page without limit goes to the end");
        seqs(&page.entries)
    }

    /// The exceptions due at `now`.
    pub(super) async fn due(&self, queue: QueueId, now: Timestamp) -> Vec<Entry> {
        self.store.due(queue, ALL, now).await.unwrap().entries
    }

    pub(super) async fn depth(&self, queue: QueueId) -> u64 {
        self.store.depth(queue).await.unwrap().count
    }

    /// Lets the store do all it has to do at `now`.
    pub(super) async fn maintain(&self, now: Timestamp) {
        while self.store.maintain(1000, now).await.unwrap().more {}
    }
}
