//! Killed at any moment, over and over: what was confirmed is delivered (P1, P2, P3, P8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::load::{AllSeen, PRODUCERS, are_seen, consume, produce, subscribe};
use super::process::{Broker, SECOND, command, soon};

/// Starts what `start` runs and kills it, `rounds` times.
pub async fn is_killed_again_and_again(rounds: usize, start: impl AsyncFn() -> Broker) {
    let seen = AllSeen::default();
    let mut confirmed: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();

    let broker = start().await;
    let consumer = soon(broker.client().consumer("billing")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    broker.kill().await;

    for round in 0..rounds {
        let broker = start().await;
        // Every other round somebody is there when it is killed.
        let consuming = match round % 2 {
            0 => None,
            _ => {
                let consumer = soon(broker.client().consumer("billing")).await.unwrap();
                let messages = soon(consumer.subscribe(subscribe())).await.unwrap();
                let task = tokio::spawn(consume(messages, Arc::clone(&seen)));
                Some((consumer, task))
            }
        };
        let count = Arc::new(AtomicUsize::new(0));
        let from = |producer| last.get(producer).copied().unwrap_or(0);
        let client = broker.client();
        let producing = futures_util::future::join_all(PRODUCERS.map(|producer| {
            let (count, never) = (Arc::clone(&count), Arc::default());
            produce(
                &client,
                producer,
                (from(producer), 2 * SECOND),
                count,
                never,
            )
        }));
        let port = broker.port;
        let kill = async {
            // Anywhere in the middle of things.
            let most = 100 + usize::from(moment(round, port));
            while count.load(Ordering::SeqCst) < most {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            broker.signal_kill();
        };
        let (produced, ()) = soon(async { tokio::join!(producing, kill) }).await;
        broker.kill().await;
        if let Some((consumer, task)) = consuming {
            let _ = consumer.connection().close(std::time::Duration::ZERO).await;
            soon(task).await.unwrap();
        }
        for (producer, (done, number)) in PRODUCERS.into_iter().zip(produced) {
            confirmed.entry(producer).or_default().extend(done);
            last.insert(producer, number);
        }
    }

    let broker = start().await;
    let consumer = soon(broker.client().consumer("billing")).await.unwrap();
    let messages = soon(consumer.subscribe(subscribe())).await.unwrap();
    let task = tokio::spawn(consume(messages, Arc::clone(&seen)));
    let is_all_there = || are_seen(&seen, &confirmed);
    soon(async {
        while !is_all_there() && !task.is_finished() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(is_all_there(), "something confirmed is missing");
    let count: usize = confirmed.values().map(BTreeSet::len).sum();
    assert!(count >= rounds * 100, "{count} were confirmed");
    soon(consumer.connection().close(SECOND)).await.unwrap();
    soon(task).await.unwrap();
    broker.kill().await;
}

/// A different moment every round and every run.
fn moment(round: usize, port: u16) -> u8 {
    (round as u64 * 0x9E37_79B9 + u64::from(port)).to_le_bytes()[0]
}

/// How often, by the size of the run.
pub fn rounds() -> usize {
    match std::env::var("RESTANTE_LONG").as_deref() {
        Ok("1") => 200,
        _ => 10,
    }
}

async fn survives_kills_with(synchronous: &str) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("crash.sqlite");
    let more = ["--synchronous", synchronous];
    is_killed_again_and_again(rounds(), async || {
        Broker::start(command(&file, &more)).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_to_a_kill_with_full_synchronisation() {
    survives_kills_with("full").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_to_a_kill_with_normal_synchronisation() {
    survives_kills_with("normal").await;
}
