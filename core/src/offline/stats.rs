//! What a store holds, queue by queue and in sum.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clock::Timestamp;
use crate::server::ServerConfig;
use crate::store::{Collection, Document, QueueKind, SharedStore};
use crate::{Error, ErrorKind, Result};

use super::{Streams, clock};

#[derive(Debug, Serialize)]
struct Stats {
    storage: &'static str,
    /// What it survives.
    level: &'static str,
    messages: u64,
    bytes: u64,
    /// Age in seconds.
    oldest: Option<f64>,
    delayed: u64,
    dead_letters: u64,
    /// Realms, tokens, requests and the like, by what they are about.
    documents: BTreeMap<&'static str, u64>,
    warnings: Vec<String>,
    figures: BTreeMap<&'static str, u64>,
    queues: Vec<Queue>,
}

#[derive(Debug, Serialize)]
struct Queue {
    realm: String,
    key: String,
    name: String,
    kind: &'static str,
    durable: bool,
    waiting: u64,
    bytes: u64,
    oldest: Option<f64>,
}

/// Tells it as JSON, or for people.
pub(super) async fn tell(
    store: &SharedStore,
    config: &ServerConfig,
    json: bool,
    streams: &mut Streams<'_>,
) -> Result<()> {
    let stats = ask(store, config).await?;
    if json {
        let text = serde_json::to_string(&stats);
        let text = text.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        return streams.line(text);
    }
    let age = |age: Option<f64>| age.map_or_else(|| "-".to_owned(), |age| format!("{age:.0} s"));
    streams.line(format_args!("{}, level {}", stats.storage, stats.level))?;
    streams.line(format_args!(
        "{} messages ({} bytes), the oldest {}",
        stats.messages,
        stats.bytes,
        age(stats.oldest)
    ))?;
    let (delayed, letters) = (stats.delayed, stats.dead_letters);
    streams.line(format_args!("{delayed} delayed, {letters} dead letters"))?;
    for (name, count) in &stats.documents {
        streams.line(format_args!("{count} {}", name.replace('_', " ")))?;
    }
    for (name, figure) in &stats.figures {
        streams.line(format_args!("{name} {figure}"))?;
    }
    for warning in &stats.warnings {
        streams.line(warning)?;
    }
    for queue in &stats.queues {
        streams.line(format_args!(
            "{} {} {} {:?}: {} waiting, {} bytes, the oldest {}",
            queue.realm,
            queue.key,
            queue.kind,
            queue.name,
            queue.waiting,
            queue.bytes,
            age(queue.oldest)
        ))?;
    }
    Ok(())
}

/// How many documents there are, by collection; those that have none are left out.
async fn count_documents(
    store: &SharedStore,
    now: Timestamp,
) -> Result<BTreeMap<&'static str, u64>> {
    let mut counts = BTreeMap::new();
    for collection in Collection::ALL {
        let mut after = None;
        loop {
            let page = store.documents(*collection, after, Document::MAX_PAGE, now);
            let page = match page.await {
                Err(error) if error.kind() == ErrorKind::StoreUnsupported => return Ok(counts),
                page => page?,
            };
            let Some(last) = page.last() else { break };
            *counts.entry(collection.as_str()).or_default() += page.len() as u64;
            after = Some(last.key.clone());
        }
    }
    Ok(counts)
}

async fn ask(store: &SharedStore, config: &ServerConfig) -> Result<Stats> {
    let now = clock().now();
    let age = |at: Option<Timestamp>| at.map(|at| now.since(at).as_secs_f64());
    let mut oldest: Option<Timestamp> = None;
    let (mut queues, mut messages, mut bytes) = (Vec::new(), 0, 0);
    for record in store.queues().await? {
        let depth = store.depth(record.queue).await?;
        oldest = oldest.into_iter().chain(depth.oldest).min();
        messages += depth.count;
        bytes += depth.bytes;
        queues.push(Queue {
            realm: record.spec.realm.to_string(),
            key: record.spec.key.wire_name(),
            name: record.spec.name.to_string(),
            kind: match record.spec.kind {
                QueueKind::Consumer => "consumer",
                QueueKind::Group => "group",
                QueueKind::History => "history",
            },
            durable: record.spec.settings.durable,
            waiting: depth.count,
            bytes: depth.bytes,
            oldest: age(depth.oldest),
        });
    }
    // A moment at which nothing has expired: nothing is changed by counting.
    store.maintain(1, Timestamp(0)).await?;
    let health = store.health();
    let holding = health.holding.unwrap_or_default();
    Ok(Stats {
        storage: config.storage.name(),
        level: store.durability().as_str(),
        // What forgotten queues have left waits too.
        messages: messages.max(holding.messages),
        bytes,
        oldest: age(oldest),
        delayed: holding.delayed,
        dead_letters: holding.dead_letters,
        documents: count_documents(store, now).await?,
        warnings: health.warnings,
        figures: health.figures.into_iter().collect(),
        queues,
    })
}
