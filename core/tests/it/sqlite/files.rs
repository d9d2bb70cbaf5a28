//! Somebody deletes what lies beside the database while the broker runs: nothing confirmed is lost
//! (P1), and it stays the only one (L02).

use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use restante::client::{Produce, Producer, Subscribe};
use tempfile::TempDir;

use super::process::{Broker, SECOND, command, soon};

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

async fn produce(producer: &Producer, number: u64) {
    let body = number.to_string();
    let produce = Produce {
        event: "paid",
        message: Some(&body),
        ..Produce::default()
    };
    soon(producer.send(&produce, 20 * SECOND)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_to_a_kill_after_the_log_was_deleted() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("files.sqlite");
    let broker = Broker::start(command(&file, &[])).await;
    let subscribe = || Subscribe::to("paid").durable().acked();
    let consumer = soon(broker.client().consumer("billing")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    let producer = soon(broker.client().producer("orders")).await.unwrap();
    for number in 0..20 {
        produce(&producer, number).await;
    }
    std::fs::remove_file(beside(&file, "-wal")).unwrap();
    for number in 20..23 {
        produce(&producer, number).await;
    }
    broker.kill().await;

    let broker = Broker::start(command(&file, &[])).await;
    let consumer = soon(broker.client().consumer("billing")).await.unwrap();
    let mut messages = soon(consumer.subscribe(subscribe())).await.unwrap();
    for number in 0..23 {
        let message = soon(messages.next()).await.unwrap();
        assert_eq!(message.body::<u64>().unwrap(), number);
        message.ack();
    }
    broker.kill().await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_broker_is_refused_though_the_lock_file_was_deleted() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("files.sqlite");
    let broker = Broker::start(command(&file, &[])).await;
    std::fs::remove_file(beside(&file, ".lock")).unwrap();
    let second = soon(command(&file, &[]).output()).await.unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && said.contains("store_locked"),
        "{said}"
    );
    broker.kill().await;
    // The kill leaves nothing that would have to be removed by hand.
    Broker::start(command(&file, &[])).await.kill().await;
}
