//! What goes through lines of text comes back whole, or not at all.

mod tyo_mq;

use std::path::Path;

use bytes::Bytes;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::clock::Timestamp;
use crate::model::{Extras, Key, Message, MessageId, RealmId};
use crate::store::{
    Append, Bounds, Burial, DeadLetter, Delayed, Entry, Exception, PageLimit, QueueChange,
    QueueKind, QueueRecord, QueueSettings, QueueSpec, SqliteOptions, SqliteStore, Store,
};

const NOW: Timestamp = Timestamp(1_767_225_600_000);
/// In a year nobody lives to see.
const LATER: Timestamp = Timestamp(4_000_000_000_000);
const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

fn job(task: &str, path: &Path, more: serde_json::Value) -> Job {
    let mut job = json!({
        "task": task,
        "json": true,
        "options": {"storage": "sqlite", "storage_options": {"filename": path}},
    });
    for (name, value) in more.as_object().unwrap() {
        job[name] = value.clone();
    }
    serde_json::from_value(job).unwrap()
}

/// Does a job; whether the store is whole, and the output.
async fn does(job: &Job, input: &str) -> Result<(bool, String)> {
    let (mut input, mut output) = (input.as_bytes(), Vec::new());
    let mut streams = Streams {
        input: &mut input,
        output: &mut output,
        notes: &mut |_| (),
    };
    let is_whole = run(job, &mut streams).await?;
    Ok((is_whole, String::from_utf8(output).unwrap()))
}

async fn exported(path: &Path) -> String {
    does(&job("export", path, json!({})), "").await.unwrap().1
}

async fn import(path: &Path, lines: &str) -> Result<serde_json::Value> {
    let (_, output) = does(&job("import", path, json!({})), lines).await?;
    Ok(serde_json::from_str(&output).unwrap())
}

async fn open(path: &Path) -> SqliteStore {
    let options = SqliteOptions {
        path: Some(path.to_owned()),
        ..SqliteOptions::default()
    };
    SqliteStore::open(options, Bounds::default(), clock())
        .await
        .unwrap()
}

fn realm() -> RealmId {
    RealmId::parse("r").unwrap()
}

fn spec(name: &str, event: &str) -> QueueSpec {
    QueueSpec {
        realm: realm(),
        key: Key::Any {
            event: event.into(),
        },
        kind: QueueKind::Consumer,
        name: name.into(),
        settings: QueueSettings {
            durable: true,
            ack: true,
            ..QueueSettings::default()
        },
    }
}

fn message(id: u64) -> Message {
    let body = format!(
        r#"{{"n": {id}.0, "s":"\ud83d", "t":"é{}"}}"#,
        "x".repeat(90)
    );
    Message {
        id: MessageId(id),
        event: "K".into(),
        from: "p".into(),
        body: Some(Bytes::from(body)),
        extras: Some(Box::new(Extras {
            headers: Some(Bytes::from_static(br#"{"a":"b"}"#)),
            attachments: vec![Bytes::from(vec![0, 1, 255, id as u8])],
            ..Extras::default()
        })),
        produced: NOW,
        expires: Some(LATER),
        guaranteed: id.is_multiple_of(2),
        key: None,
    }
}

/// A store with something of everything.
async fn filled(path: &Path) {
    let store = open(path).await;
    let a = store.open(spec("a", "k"), NOW).await.unwrap();
    let b = store.open(spec("b", "k"), NOW).await.unwrap();
    store.open(spec("a", "other"), NOW).await.unwrap();
    let item = |id: u64| Append::new(realm(), Arc::new(message(id)), vec![a.log]);
    let mut items: Vec<Append> = (1..=600).map(item).collect();
    items[3].mark = Some(("instance".into(), 7));
    items[4].uid = Some("order-5".into());
    for id in [601, 602] {
        let mut held = item(id);
        (held.logs, held.due) = (Vec::new(), Some(Timestamp(LATER.0 - id)));
        items.push(held);
    }
    for answer in store.append(items).await.unwrap() {
        answer.unwrap();
    }
    let exception = Exception {
        seq: 2,
        attempts: 3,
        failures: 2,
        returns: 1,
        due: LATER,
        first_error: Some("first".into()),
        last_error: Some("last".into()),
        suspect: true,
    };
    let burial = Burial {
        seq: 3,
        attempts: 4,
        reason: "rejected".into(),
        first_error: None,
        last_error: None,
    };
    let change = QueueChange {
        except: vec![exception],
        bury: vec![burial],
        low: Some(10),
        done: vec![15, 17],
        ..QueueChange::default()
    };
    store.update(a.queue, change, clock().now()).await.unwrap();
    store.settle(b.queue, vec![1, 2, 30]).await.unwrap();
    store.close().await.unwrap();
}

/// All that can be read of a store.
#[derive(Debug, PartialEq)]
struct Seen {
    queues: Vec<QueueRecord>,
    entries: Vec<Vec<Entry>>,
    letters: Vec<DeadLetter>,
    delayed: Vec<Delayed>,
}

async fn seen(path: &Path) -> Seen {
    let store = open(path).await;
    let queues = store.queues().await.unwrap();
    let mut entries = Vec::new();
    for record in &queues {
        entries.push(store.browse(record.queue, 0, ALL).await.unwrap());
    }
    let seen = Seen {
        queues,
        entries,
        letters: store.dead_letters(&realm(), None, 100).await.unwrap(),
        delayed: store.delayed(100, LATER).await.unwrap().0,
    };
    store.close().await.unwrap();
    seen
}

struct House {
    folder: TempDir,
}

impl House {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[tokio::test]
async fn an_export_comes_back_byte_for_byte() {
    let house = House::new();
    let (from, to) = (house.path("from"), house.path("to"));
    filled(&from).await;
    let lines = exported(&from).await;
    let taken = import(&to, &lines).await.unwrap();
    let counts = ["queues", "messages", "delayed", "dead_letters"].map(|name| &taken[name]);
    assert_eq!(counts, [&json!(3), &json!(598), &json!(2), &json!(1)]);
    assert_eq!(exported(&to).await, lines);
    assert_eq!(seen(&to).await, seen(&from).await);
    let repeat = open(&to).await;
    let log = repeat.queues().await.unwrap()[0].log;
    for (mark, uid) in [
        (Some(("instance".into(), 7)), None),
        (None, Some("order-5".into())),
    ] {
        let mut item = Append::new(realm(), Arc::new(message(900)), vec![log]);
        (item.mark, item.uid) = (mark, uid);
        let answer = repeat.append(vec![item]).await.unwrap().remove(0);
        assert!(answer.unwrap().duplicate);
    }
}

#[tokio::test]
async fn bodies_in_an_export_can_be_read_by_people() {
    let house = House::new();
    let path = house.path("store");
    filled(&path).await;
    let lines = exported(&path).await;
    let mut lines = lines.lines();
    assert_eq!(lines.next(), Some(r#"{"restante":"store","version":1}"#));
    let entry = lines
        .find(|line| line.contains(r#""record":"entry""#))
        .unwrap();
    let entry: serde_json::Value = serde_json::from_str(entry).unwrap();
    let message = &entry["message"];
    let body = message["body"].as_str().unwrap();
    assert!(body.starts_with(r#"{"n": 3.0, "s":"\ud83d""#), "{body}");
    assert_eq!(message["attachments"], json!(["AAH/Aw=="]));
    let last = lines.last().unwrap();
    assert!(last.starts_with(r#"{"record":"end""#), "{last}");
}

#[tokio::test]
async fn a_broken_line_is_named_and_nothing_of_it_stays() {
    let house = House::new();
    let from = house.path("from");
    filled(&from).await;
    let whole = exported(&from).await;
    let lines: Vec<&str> = whole.lines().collect();
    let without = |at: usize| {
        let kept = lines.iter().enumerate().filter(|(n, _)| *n != at);
        kept.map(|(_, line)| format!("{line}\n"))
            .collect::<String>()
    };
    let log = lines
        .iter()
        .position(|line| line.contains(r#""record":"log""#))
        .unwrap();
    let cases = [
        (String::new(), "line 1: there is nothing"),
        ("{}\n".to_owned(), "line 1: this is no export"),
        (
            whole.replace("version\":1", "version\":9"),
            "versions up to 1",
        ),
        (lines[..40].join("\n"), "line 41: the end is missing"),
        (without(50), "lines came of"),
        (
            whole.replacen("{\\\"n\\\": 31.0", "{\\\"n\\\": 32.0", 1),
            "checksum",
        ),
        (
            whole.replacen("\"record\":\"queue\"", "\"record\":\"what\"", 1),
            "line ",
        ),
        (without(log), "line "),
        (
            whole.replacen("\"low\":", "\"low\":99", 1),
            "where a queue stands",
        ),
        (format!("{whole}{{}}\n"), "something behind the end"),
    ];
    for (at, (lines, reason)) in cases.into_iter().enumerate() {
        let to = house.path(&format!("to{at}"));
        let error = import(&to, &lines).await.unwrap_err();
        assert!(error.message().contains(reason), "{reason}: {error}");
        let made = std::fs::read_dir(house.folder.path()).unwrap();
        let names = made.map(|file| file.unwrap().file_name().into_string().unwrap());
        let left = names.filter(|name| name.starts_with(&format!("to{at}")));
        assert_eq!(left.collect::<Vec<_>>(), [""; 0], "{reason}");
        let store = open(&to).await;
        assert_eq!(store.queues().await.unwrap(), []);
        assert_eq!(store.dead_letters(&realm(), None, 9).await.unwrap(), []);
        store.close().await.unwrap();
        import(&to, &whole).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_not_to_be_touched_is_refused() {
    let house = House::new();
    let path = house.path("store");
    for task in ["stats", "check", "export"] {
        let error = does(&job(task, &path, json!({})), "").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{task}: {error}");
        assert!(!path.exists(), "{task} made a file");
    }
    filled(&path).await;
    let lines = exported(&path).await;
    let error = import(&path, &lines).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "it is not empty: {error}");
    let running = open(&path).await;
    for task in ["stats", "check", "export", "import"] {
        let error = does(&job(task, &path, json!({})), &lines)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreLocked, "{task}: {error}");
    }
    running.close().await.unwrap();
    let memory = json!({"options": {"storage": "memory"}});
    let error = does(&job("export", &path, memory), "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn statistics_tell_what_waits_and_change_nothing() {
    let house = House::new();
    let path = house.path("store");
    filled(&path).await;
    let before = exported(&path).await;
    let (_, text) = does(&job("stats", &path, json!({})), "").await.unwrap();
    let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
    let names = ["storage", "level", "messages", "delayed", "dead_letters"];
    let told = names.map(|name| stats[name].clone());
    let expected = [
        json!("sqlite"),
        json!("disk"),
        json!(589 + 597),
        json!(2),
        json!(1),
    ];
    assert_eq!(told, expected, "{stats}");
    assert!(stats["oldest"].as_f64().unwrap() > 0.0);
    assert_eq!(stats["queues"].as_array().unwrap().len(), 3);
    assert_eq!(exported(&path).await, before);
    let plain = json!({"json": false});
    let (_, text) = does(&job("stats", &path, plain), "").await.unwrap();
    assert!(text.contains("2 delayed, 1 dead letters"), "{text}");
}

#[tokio::test]
async fn a_check_lists_what_is_damaged_and_changes_nothing() {
    let house = House::new();
    let path = house.path("store");
    filled(&path).await;
    let check = || async {
        let (is_whole, text) = does(&job("check", &path, json!({})), "").await.unwrap();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let damage = told["damage"].as_array().unwrap().clone();
        let damage = damage.iter().map(|what| what.as_str().unwrap().to_owned());
        (is_whole, damage.collect::<Vec<_>>())
    };
    assert_eq!(check().await, (true, vec![]));
    let conn = Connection::open(&path).unwrap();
    let (body, entry) = conn
        .query_row("SELECT mid, seq FROM entry WHERE seq = 40", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .unwrap();
    conn.execute(
        "UPDATE body SET data = substr(data, 1, 20) || x'00' || substr(data, 22) WHERE mid = ?1",
        [body],
    )
    .unwrap();
    conn.execute_batch(
        "DELETE FROM body WHERE mid = (SELECT mid FROM entry WHERE seq = 50); \
         UPDATE queue SET exceptions = 9 WHERE name = 'b';",
    )
    .unwrap();
    conn.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let (is_whole, damage) = check().await;
    assert!(!is_whole);
    for part in [
        format!("realm r, log 1, entry {entry}"),
        "an entry has no message: log 1, entry 50".to_owned(),
        "another number of exceptions than is noted: queue 4".to_owned(),
    ] {
        let found = damage.iter().any(|what| what.contains(&part));
        assert!(found, "{part}: {damage:?}");
    }
    assert_eq!(damage.len(), 3, "{damage:?}");
    assert!(std::fs::read(&path).unwrap() == before);
    let conn = Connection::open(&path).unwrap();
    let leaf = "SELECT max(pageno) FROM dbstat WHERE name = 'body' AND pagetype = 'leaf'";
    let leaf: u32 = conn.query_row(leaf, [], |row| row.get(0)).unwrap();
    conn.close().unwrap();
    let leaf = usize::try_from(leaf).unwrap();
    let mut cut = before;
    cut[4096 * (leaf - 1)..4096 * leaf].fill(0xA5);
    std::fs::write(&path, cut).unwrap();
    let (is_whole, damage) = check().await;
    assert!(!is_whole);
    for part in [
        format!("table body, page {leaf}"),
        "behind body ".to_owned(),
    ] {
        let found = damage.iter().any(|what| what.contains(&part));
        assert!(found, "{part}: {damage:?}");
    }
    std::fs::write(&path, "no database ".repeat(900)).unwrap();
    assert!(!check().await.0);
}
