//! Killed at any moment, over and over: what was confirmed is delivered (P1, P2, P3, P8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use parking_lot::Mutex;
use restante::client::{Messages, Produce, Subscribe};
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::process::{Broker, SECOND, command, soon};

const PRODUCERS: [&str; 2] = ["orders", "returns"];
/// Produces of one producer under way.
const WINDOW: u64 = 16;

/// What the consumer has seen, of each producer.
#[derive(Default)]
struct Seen {
    numbers: BTreeSet<u64>,
    last_first: u64,
    repeats: u64,
}

type AllSeen = Arc<Mutex<BTreeMap<String, Seen>>>;

fn body(producer: &str, number: u64) -> String {
    let filler = "x".repeat(usize::try_from(number * 37 % 3000).unwrap());
    let text = format!("{producer} {number} {filler}");
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("[{number},\"{filler}\",\"{hash:x}\"]")
}

fn subscribe() -> Subscribe {
    Subscribe::to("paid").durable().acked()
}

/// Takes deliveries down until the link ends; settles each.
async fn consume(mut messages: Messages, seen: AllSeen) {
    while let Some(message) = messages.next().await {
        let producer = message.from();
        let (number, _, _): (u64, String, String) = message.body().unwrap();
        let text = message.body::<&RawValue>().unwrap().get();
        assert_eq!(text, body(&producer, number), "altered");
        let mut all = seen.lock();
        let seen = all.entry(producer.clone()).or_default();
        if seen.numbers.insert(number) {
            let last = std::mem::replace(&mut seen.last_first, number);
            assert!(last < number, "{producer}: {number} came after {last}");
        } else {
            seen.repeats += 1;
            let attempt = message.attempt();
            assert!(attempt >= Some(2), "{number} is a repeat, {attempt:?}");
        }
        drop(all);
        message.ack();
    }
}

/// Produces until the link ends; the numbers that were confirmed, and the last one tried.
async fn produce(
    broker: &Broker,
    producer: &'static str,
    from: u64,
    confirmed: Arc<AtomicUsize>,
) -> (Vec<u64>, u64) {
    let client = broker.client();
    let link = soon(client.producer(producer)).await.unwrap();
    let mut number = from;
    let mut done = Vec::new();
    loop {
        let sent: Vec<_> = (number + 1..=number + WINDOW)
            .map(|number| {
                let body = body(producer, number);
                let produce = Produce {
                    event: "paid",
                    message: Some(&body),
                    guaranteed: number % 3 == 0,
                    ..Produce::default()
                };
                (number, link.send(&produce, 2 * SECOND))
            })
            .collect();
        number += WINDOW;
        let mut is_over = false;
        for (number, answer) in sent {
            match answer.await {
                Ok(_) => {
                    done.push(number);
                    confirmed.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) => is_over = true,
            }
        }
        if is_over {
            // What was not confirmed may be there or not, and is not sent again.
            let _ = link.connection().close(std::time::Duration::ZERO).await;
            return (done, number);
        }
    }
}

async fn is_killed_again_and_again(synchronous: &str) {
    let rounds = match std::env::var("RESTANTE_LONG").as_deref() {
        Ok("1") => 100,
        _ => 5,
    };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("crash.sqlite");
    let start = || Broker::start(command(&file, &["--synchronous", synchronous]));
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
        let producing = futures_util::future::join_all(
            PRODUCERS
                .map(|producer| produce(&broker, producer, from(producer), Arc::clone(&count))),
        );
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
    let is_all_there = || {
        let seen = seen.lock();
        confirmed.iter().all(|(producer, numbers)| {
            seen.get(*producer)
                .is_some_and(|seen| seen.numbers.is_superset(numbers))
        })
    };
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_to_a_kill_with_full_synchronisation() {
    is_killed_again_and_again("full").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_to_a_kill_with_normal_synchronisation() {
    is_killed_again_and_again("normal").await;
}
