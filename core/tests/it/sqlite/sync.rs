//! What is confirmed is on the disk: the sync comes before the answer, as the system calls show.

use std::path::Path;

use restante::client::{Produce, Subscribe};
use tempfile::TempDir;
use tokio::process::Command;

use super::process::{Broker, SECOND, command, soon};

/// The command under `strace`, which writes what it does with files and sockets to `trace`.
fn traced(file: &Path, trace: &Path, synchronous: &str) -> Command {
    let plain = command(file, &["--synchronous", synchronous, "--threads", "1"]);
    let plain = plain.as_std();
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-yy", "-s", "400", "-e"])
        .arg("trace=fsync,fdatasync,write,writev,sendto,sendmsg,pwrite64")
        .arg("-o")
        .arg(trace)
        .arg(plain.get_program())
        .args(plain.get_args());
    strace
}

/// For each confirmed produce: whether the log of the database was synced between its last write
/// and the answer.
async fn synced_before_answers(synchronous: &str) -> Vec<bool> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("sync.sqlite");
    let trace = folder.path().join("trace");
    let broker = Broker::start(traced(&file, &trace, synchronous)).await;
    let consumer = soon(broker.client().consumer("billing")).await.unwrap();
    let subscribe = Subscribe::to("paid").durable().acked();
    drop(soon(consumer.subscribe(subscribe)).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    let producer = soon(broker.client().producer("orders")).await.unwrap();
    const COUNT: usize = 10;
    for number in 0..COUNT {
        let body = format!("\"number {number}\"");
        let produce = Produce {
            event: "paid",
            message: Some(&body),
            ..Produce::default()
        };
        soon(producer.send(&produce, 20 * SECOND)).await.unwrap();
    }
    soon(producer.connection().close(SECOND)).await.unwrap();
    broker.end_inner().await;
    let trace = std::fs::read_to_string(&trace).unwrap();
    let mut is_synced = false;
    let mut answers = Vec::new();
    for line in trace.lines() {
        let is_log = line.contains("sync.sqlite-wal");
        if line.contains("pwrite64(") && is_log {
            is_synced = false;
        } else if line.contains("sync(") && is_log {
            // The time of the last change is nobody's business (`.cargo/config.toml`).
            assert!(line.contains("fdatasync("), "{line}");
            is_synced = true;
        } else if line.contains("\\\"queued\\\":1") {
            answers.push(is_synced);
        }
    }
    assert_eq!(answers.len(), COUNT, "answers seen");
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_full_synchronisation_every_answer_comes_after_a_sync() {
    let answers = synced_before_answers("full").await;
    assert!(answers.iter().all(|is_synced| *is_synced), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_normal_synchronisation_answers_wait_for_no_sync() {
    let answers = synced_before_answers("normal").await;
    assert!(answers.iter().any(|is_synced| !is_synced), "{answers:?}");
}
