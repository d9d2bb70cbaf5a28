//! A store that may not grow any more, by a limit of the system, and one that may again (A05).

use std::time::Duration;

use futures_util::StreamExt;
use restante::client::{Produce, Subscribe};
use tempfile::TempDir;
use tokio::process::Command;

use super::process::{Broker, SECOND, command, soon};

/// The command in a shell that limits the size of files; beyond it a write fails.
fn limited(file: &std::path::Path, kib: u32) -> Command {
    let plain = command(file, &[]);
    let plain = plain.as_std();
    let mut shell = Command::new("bash");
    // The signal would end the process before the write could fail.
    let script = format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(plain.get_program());
    shell.args(plain.get_args());
    shell
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_may_not_write_refuses_lives_and_loses_nothing() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("full.sqlite");
    let broker = Broker::start(limited(&file, 4000)).await;
    let subscribe = || Subscribe::to("paid").durable().acked();
    let consumer = soon(broker.client().consumer("billing")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    let producer = soon(broker.client().producer("orders")).await.unwrap();
    let mut confirmed = Vec::new();
    let mut refused = 0;
    for number in 0..400u64 {
        let body = format!("[{number},\"{}\"]", "x".repeat(40_000));
        let produce = Produce {
            event: "paid",
            message: Some(&body),
            ..Produce::default()
        };
        match soon(producer.send(&produce, 20 * SECOND)).await {
            Ok(_) => confirmed.push(number),
            Err(error) => {
                assert!(error.code().starts_with("store_"), "{error:?}");
                refused += 1;
            }
        }
        if refused == 3 {
            break;
        }
    }
    assert!(refused == 3 && confirmed.len() > 10, "{refused} refused");
    broker.kill().await;

    // With room again everything confirmed is there, and it takes more.
    let broker = Broker::start(command(&file, &[])).await;
    let consumer = soon(broker.client().consumer("billing")).await.unwrap();
    let mut messages = soon(consumer.subscribe(subscribe())).await.unwrap();
    let producer = soon(broker.client().producer("orders")).await.unwrap();
    let last = Produce {
        event: "paid",
        message: Some("[9999,\"\"]"),
        ..Produce::default()
    };
    soon(producer.send(&last, 20 * SECOND)).await.unwrap();
    confirmed.push(9999);
    let mut found = Vec::new();
    while found.last() != Some(&9999) {
        let message = soon(messages.next()).await.unwrap();
        let (number, _): (u64, String) = message.body().unwrap();
        found.push(number);
        message.ack();
    }
    found.retain(|number| confirmed.contains(number));
    assert_eq!(found, confirmed);
    let _ = consumer.connection().close(Duration::ZERO).await;
    broker.kill().await;
}
