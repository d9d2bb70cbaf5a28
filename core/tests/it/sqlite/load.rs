//! Numbered messages of several producers, and a consumer that sees whether any is lost, altered or
//! out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use restante::client::{Client, Messages, Produce, Subscribe};
use serde_json::value::RawValue;

use super::process::soon;

pub const PRODUCERS: [&str; 2] = ["orders", "returns"];
/// Produces of one producer under way.
const WINDOW: u64 = 16;

/// What the consumer has seen, of each producer.
#[derive(Default)]
pub struct Seen {
    pub numbers: BTreeSet<u64>,
    last_first: u64,
    pub repeats: u64,
}

pub type AllSeen = Arc<Mutex<BTreeMap<String, Seen>>>;

fn body(producer: &str, number: u64) -> String {
    let filler = "x".repeat(usize::try_from(number * 37 % 3000).unwrap());
    let text = format!("{producer} {number} {filler}");
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("[{number},\"{filler}\",\"{hash:x}\"]")
}

pub fn subscribe() -> Subscribe {
    Subscribe::to("paid").durable().acked()
}

/// Takes deliveries down until the link ends; settles each.
pub async fn consume(mut messages: Messages, seen: AllSeen) {
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

/// Whether all these were seen.
pub fn are_seen(seen: &AllSeen, confirmed: &BTreeMap<&str, BTreeSet<u64>>) -> bool {
    let seen = seen.lock();
    confirmed.iter().all(|(producer, numbers)| {
        let seen = seen.get(*producer);
        seen.is_some_and(|seen| seen.numbers.is_superset(numbers))
    })
}

/// Produces behind number `from`, each for at most `patience`, until the link ends or it is told to end; the numbers that were confirmed, and the last
/// one tried.
pub async fn produce(
    client: &Client,
    producer: &'static str,
    (from, patience): (u64, Duration),
    confirmed: Arc<AtomicUsize>,
    is_told: Arc<AtomicBool>,
) -> (Vec<u64>, u64) {
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
                (number, link.send(&produce, patience))
            })
            .collect();
        number += WINDOW;
        let mut is_over = is_told.load(Ordering::SeqCst);
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
            let _ = link.connection().close(Duration::ZERO).await;
            return (done, number);
        }
    }
}
