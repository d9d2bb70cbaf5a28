//! What only the inside shows: whether the rows fit together.

use super::db::uint;
use super::line::Nature;
use super::*;

/// What a store holds, in numbers.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) queued: u64,
    pub(crate) logs: usize,
    pub(crate) wakes: usize,
    /// Bodies whose references are not as many as the rows that refer to them.
    pub(crate) unfit: i64,
    /// Bytes that realms count, and those of the rows that are there.
    pub(crate) kept: (u64, u64),
}

const KEPT: &str = "SELECT coalesce(sum(size), 0) FROM
    (SELECT size FROM entry UNION ALL SELECT size FROM exception)";

const UNFIT: &str = "
    WITH used(mid) AS (
      SELECT mid FROM entry UNION ALL SELECT mid FROM exception
      UNION ALL SELECT mid FROM dead UNION ALL SELECT mid FROM delayed),
    counted(mid, n) AS (SELECT mid, count(*) FROM used GROUP BY mid)
    SELECT (SELECT count(*) FROM body LEFT JOIN refs USING (mid) LEFT JOIN counted USING (mid)
            WHERE coalesce(refs.n, 1) IS NOT counted.n)
         + (SELECT count(*) FROM counted WHERE mid NOT IN (SELECT mid FROM body))
         + (SELECT count(*) FROM refs WHERE n < 2)";

impl SqliteStore {
    /// A command that fails.
    pub(crate) fn fail_once(&self) -> Pending<()> {
        self.call(Nature::Write, |core| {
            core.db.run("INSERT INTO no_such_table VALUES (1)", []);
            Ok(())
        })
    }

    /// A look inside.
    pub(crate) fn inspect(&self) -> Pending<Inside> {
        self.call(Nature::Read, |core| {
            let names: Vec<RealmId> = core.state.realms.keys().cloned().collect();
            names.iter().for_each(|name| core.state.weigh(name));
            let state = &core.state;
            Ok(Inside {
                queued: state.realms.values().map(|realm| realm.queued).sum(),
                logs: state.logs.len(),
                wakes: state.wakes.len(),
                kept: (
                    state.realms.values().map(|realm| realm.kept.bytes()).sum(),
                    core.db.row(KEPT, [], |row| row.get(0)).map_or(0, uint),
                ),
                unfit: core.db.row(UNFIT, [], |row| row.get(0)).unwrap_or(-1),
            })
        })
    }
}

mod documents;
mod failures;
mod places;
mod reopening;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;

use crate::clock::TestClock;
use crate::model::{Key, Message};
use crate::store::{LogId, QueueKind, QueueSettings};

/// When tests begin.
const START: Timestamp = Timestamp(1_767_225_600_000);
const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

fn at(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

fn realm() -> RealmId {
    RealmId::parse("r").unwrap()
}

fn spec(name: &str) -> QueueSpec {
    QueueSpec {
        realm: realm(),
        key: Key::Any { event: "k".into() },
        kind: QueueKind::Consumer,
        name: name.into(),
        settings: QueueSettings {
            durable: true,
            ack: true,
            ..QueueSettings::default()
        },
    }
}

fn message(id: u64, bytes: usize) -> Message {
    Message {
        id: MessageId(id),
        event: "k".into(),
        from: "p".into(),
        body: Some(Bytes::from(vec![b'1'; bytes])),
        extras: None,
        produced: START,
        expires: Some(at(3600)),
        guaranteed: false,
        key: None,
    }
}

/// A database in a directory of its own.
struct House {
    folder: TempDir,
    options: SqliteOptions,
    bounds: Bounds,
}

impl House {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let options = SqliteOptions {
            path: Some(folder.path().join("store.sqlite")),
            busy_timeout: Duration::from_millis(50),
            ..SqliteOptions::default()
        };
        Self {
            folder,
            options,
            bounds: Bounds::default(),
        }
    }

    fn path(&self) -> &Path {
        self.options.path.as_deref().unwrap()
    }

    async fn try_open(&self) -> Result<SqliteStore> {
        let clock = TestClock::new();
        SqliteStore::open(self.options.clone(), self.bounds.clone(), clock).await
    }

    async fn open(&self) -> SqliteStore {
        self.try_open().await.unwrap()
    }

    /// The database and its log as the next start would find them if it was killed now.
    fn as_a_kill_leaves_it(&self) -> House {
        let left = House::new();
        for suffix in ["", "-wal"] {
            let [from, to] = [self, &left].map(|house| open::beside(house.path(), suffix));
            if from.exists() {
                std::fs::copy(from, to).unwrap();
            }
        }
        left
    }

    /// The names in its directory.
    fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl SqliteStore {
    async fn put(&self, log: LogId, id: u64, bytes: usize) -> Result<Appended> {
        let item = Append::new(realm(), Arc::new(message(id, bytes)), vec![log]);
        self.append(vec![item]).await?.remove(0)
    }

    async fn filled(&self, name: &str, count: u64, bytes: usize) -> QueueRecord {
        let record = Store::open(self, spec(name), START).await.unwrap();
        for id in 1..=count {
            self.put(record.log, id, bytes).await.unwrap();
        }
        record
    }

    async fn waiting(&self, queue: QueueId) -> Vec<Seq> {
        let page = self.page(queue, 0, ALL, START).await.unwrap();
        page.entries.iter().map(|entry| entry.seq).collect()
    }

    async fn sql(&self, sql: &'static str) {
        let done = self.call(Nature::Read, move |core| {
            core.db.conn().execute_batch(sql).unwrap();
            Ok(())
        });
        done.await.unwrap();
    }
}
