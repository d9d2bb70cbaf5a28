//! The command's work on a store that no broker serves: streams, exit codes, and Redis as a source.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::redis::server::{RedisServer, shared};

/// Runs the command with this input.
fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_restante"))
        .arg("store")
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // What is refused is not read.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code();
    (code, text(&output.stdout), text(&output.stderr))
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_command_says_by_its_code_how_it_ended() {
    let folder = tempfile::TempDir::new().unwrap();
    let none = folder.path().join("none.sqlite");
    let (code, _, why) = said(&run(&["stats", "--file", name(&none)], b""));
    assert_eq!(code, Some(1));
    assert!(why.contains("there is no database"), "{why}");
    assert_eq!(run(&["what"], b"").status.code(), Some(2));
    let without = ["import", "--from", "tyo-mq-sqlite"];
    assert_eq!(run(&without, b"").status.code(), Some(2));
    let file = folder.path().join("notes.sqlite");
    std::fs::write(&file, "these are notes\n".repeat(900)).unwrap();
    let (code, found, _) = said(&run(&["check", "--filename", name(&file)], b""));
    assert_eq!(code, Some(1));
    assert!(found.contains("not a database"), "{found}");
}

#[test]
fn realms_and_tokens_go_through_an_export() {
    let folder = tempfile::TempDir::new().unwrap();
    let (one, two) = (
        folder.path().join("one.sqlite"),
        folder.path().join("two.sqlite"),
    );
    let document = r#"{"record":"document","collection":"realms","key":"org:acme","text":"{\"required\":true}","version":7}"#;
    let text = format!(
        "{{\"restante\":\"store\",\"version\":1}}\n{document}\n{{\"record\":\"end\",\"lines\":1}}\n"
    );
    let taken = run(
        &["import", "--filename", name(&one), "--json"],
        text.as_bytes(),
    );
    let (code, taken, why) = said(&taken);
    assert_eq!(code, Some(0), "{why}");
    assert!(taken.contains("\"documents\":1"), "{taken}");
    let (_, exported, _) = said(&run(&["export", "--filename", name(&one)], b""));
    assert!(exported.contains(document), "{exported}");
    let import = run(&["import", "--filename", name(&two)], exported.as_bytes());
    assert_eq!(import.status.code(), Some(0));
    let (_, again, _) = said(&run(&["export", "--filename", name(&two)], b""));
    assert_eq!(again, exported);
    let (_, stats, _) = said(&run(&["stats", "--filename", name(&two), "--json"], b""));
    assert!(stats.contains(r#""documents":{"realms":1}"#), "{stats}");
}

/// A row as the description has it: an index by the millisecond, a message for the id.
fn put(redis: &RedisServer, prefix: &str, (consumer, id, at): (&str, &str, &str), row: &str) {
    // base64url of `default` and `orders-paid`.
    let index = format!("{prefix}:index:ZGVmYXVsdA:b3JkZXJzLXBhaWQ:{consumer}");
    redis.say(&["ZADD", &index, at, id]);
    if !row.is_empty() {
        redis.say(&["SET", &format!("{prefix}:message:{id}"), row]);
    }
}

fn row(n: u32, expires: &str) -> String {
    format!(
        r#"{{"id":"x","realm":"default","event":"orders-paid","consumer":"billing","message":{{"event":"Paid","message":{{"n": {n}.0}},"from":"orders"}},"producer":"orders","created_at":"2026-01-01T00:00:00.000Z","expires_at":{expires}}}"#
    )
}

#[test]
fn keys_of_tyo_mq_in_redis_become_durable_queues() {
    let redis = shared();
    let prefix = "tyo[*]:q";
    // `billing` and `__http_sse__`.
    let (billing, history) = ("YmlsbGluZw", "X19odHRwX3NzZV9f");
    put(redis, prefix, (billing, "b", "2000"), &row(2, "null"));
    put(
        redis,
        prefix,
        (billing, "a", "3000"),
        &row(3, "4000000000000"),
    );
    put(redis, prefix, (billing, "c", "1000"), &row(1, "null"));
    put(redis, prefix, (billing, "gone", "1500"), "");
    put(redis, prefix, (billing, "late", "1600"), &row(9, "1000"));
    put(redis, prefix, (history, "page", "1"), &row(9, "null"));
    redis.say(&["ZADD", &format!("{prefix}:dlq:ZGVmYXVsdA"), "5", "d"]);
    let dead = row(7, "null").replace(
        "\"expires_at\"",
        "\"reason\":\"ack timeout after 3 attempt(s)\",\"dead_lettered_at\":\"2026-01-02T00:00:00.000Z\",\"expires_at\"",
    );
    redis.say(&["SET", &format!("{prefix}:dlq:message:d"), &dead]);
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("ours.sqlite");
    let url = redis.url();
    let from = [
        "import",
        "--json",
        "--filename",
        name(&file),
        "--from",
        "tyo-mq-redis",
        &url,
        "--tyo-prefix",
        prefix,
    ];
    let (code, taken, why) = said(&run(&from, b""));
    assert_eq!(code, Some(0), "{why}");
    assert!(
        taken.starts_with(
            r#"{"queues":1,"messages":3,"delayed":0,"dead_letters":1,"documents":0,"expired":2,"history":1,"#
        ),
        "{taken}"
    );
    let (_, lines, _) = said(&run(&["export", "--filename", name(&file)], b""));
    let places: Vec<usize> = (1..=3)
        .filter_map(|n| lines.find(&format!(r#"\"n\": {n}.0"#)))
        .collect();
    assert_eq!(places.len(), 3);
    assert!(places.is_sorted(), "{lines}");
    assert!(lines.contains("ack timeout after 3"), "{lines}");
}

#[test]
fn an_export_goes_through_a_pipe_into_another_store() {
    let folder = tempfile::TempDir::new().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let theirs = folder.path().join("theirs");
    let conn = rusqlite::Connection::open(&theirs).unwrap();
    conn.execute_batch(
        "CREATE TABLE messages (id TEXT PRIMARY KEY, realm TEXT, event TEXT, consumer TEXT, \
         payload TEXT, producer TEXT, created_at TEXT, expires_at INTEGER); \
         INSERT INTO messages VALUES ('a', 'default', 'tyo-mq-all-paid', 'billing', \
         '{\"event\":\"paid\",\"message\":1,\"from\":\"orders\"}', 'orders', \
         '2026-01-01T00:00:00Z', NULL)",
    )
    .unwrap();
    drop(conn);
    let from = [
        "import",
        "--file",
        name(&one),
        "--from",
        "tyo-mq-sqlite",
        name(&theirs),
    ];
    assert_eq!(run(&from, b"").status.code(), Some(0));
    let lines = run(&["export", "--file", name(&one)], b"").stdout;
    let (code, text, why) = said(&run(&["import", "--file", name(&other)], &lines));
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(text, "1 messages, 0 delayed, 0 dead letters, 1 queues\n");
    assert_eq!(run(&["export", "--file", name(&other)], b"").stdout, lines);
    let (code, _, why) = said(&run(&["import", "--file", name(&other)], &lines));
    assert_eq!(code, Some(1));
    assert!(why.contains("holds messages already"), "{why}");
}

#[test]
fn a_store_in_redis_is_looked_at_too() {
    let redis = shared();
    let url = redis.url();
    let which = ["--storage", "redis", "--url", &url, "--prefix", "empty"];
    let (code, text, why) = said(&run(&[&["stats"], &which[..]].concat(), b""));
    assert_eq!(code, Some(0), "{why}");
    assert!(text.contains("0 messages (0 bytes)"), "{text}");
    let (code, text, why) = said(&run(&[&["check"], &which[..]].concat(), b""));
    assert_eq!(
        (code, &*text),
        (Some(0), "0 messages, no damage\n"),
        "{why}"
    );
}
