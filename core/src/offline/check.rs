//! Looking for damage, without changing anything.

use serde_json::json;

use crate::Result;
use crate::server::{ServerConfig, Storage};
use crate::store::{PageLimit, SharedStore};

use super::{Streams, check_outlives, open};

/// Findings that are listed; the others are counted.
const LISTED: usize = 1_000;

/// What was found.
#[derive(Debug, Default)]
struct Findings {
    listed: Vec<String>,
    count: usize,
}

impl Findings {
    fn add(&mut self, what: String) {
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(what);
        }
    }
}

/// Lists the damage; whether there is none.
pub(super) async fn check(
    config: &ServerConfig,
    json: bool,
    streams: &mut Streams<'_>,
) -> Result<bool> {
    check_outlives(&config.storage)?;
    let mut findings = Findings::default();
    let messages = match &config.storage {
        #[cfg(feature = "sqlite")]
        Storage::Sqlite(options) => {
            let notes = &mut *streams.notes;
            crate::store::SqliteStore::check(options, notes, &mut |what| findings.add(what))?
        }
        _ => {
            let store = open(config).await?;
            let read = read_all(&store, streams, &mut findings).await;
            store.close().await?;
            read?
        }
    };
    let is_whole = findings.count == 0;
    if json {
        let damage = &findings.listed;
        streams.line(json!({
            "ok": is_whole, "messages": messages, "found": findings.count, "damage": damage,
        }))?;
        return Ok(is_whole);
    }
    for what in &findings.listed {
        streams.line(what)?;
    }
    if findings.count > findings.listed.len() {
        let more = findings.count - findings.listed.len();
        streams.line(format_args!("and {more} more"))?;
    }
    match is_whole {
        true => streams.line(format_args!("{messages} messages, no damage"))?,
        false => streams.line(format_args!("{} damaged", findings.count))?,
    }
    Ok(is_whole)
}

/// Reads whatever waits: what a store cannot read it leaves out.
async fn read_all(
    store: &SharedStore,
    streams: &mut Streams<'_>,
    findings: &mut Findings,
) -> Result<u64> {
    let mut messages = 0;
    for record in store.queues().await? {
        let (mut after, mut found) = (0, 0);
        loop {
            let page = store
                .browse(record.queue, after, PageLimit::default())
                .await?;
            let Some(last) = page.last() else {
                break;
            };
            after = last.seq;
            found += page.len() as u64;
        }
        messages += found;
        let lost = record.depth.saturating_sub(found);
        let (name, key) = (&record.spec.name, record.spec.key.wire_name());
        if lost > 0 {
            let realm = &record.spec.realm;
            findings.add(format!(
                "realm {realm}, key {key}, queue {name:?}: {lost} messages cannot be read"
            ));
        }
        streams.note(format!("queue {name:?} of {key} read"));
    }
    Ok(messages)
}
