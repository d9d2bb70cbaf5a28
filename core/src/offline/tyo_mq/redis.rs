//! The rows of tyo-mq in Redis: an index of ids for every queue, a message for every id.
//!
//! ```text
//! <prefix>:index:<realm>:<event>:<consumer>   ids by the millisecond they came; names in base64url
//! <prefix>:message:<id>                       the row as JSON, gone when it has expired
//! <prefix>:dlq:<realm>                        ids by the millisecond they were given up
//! <prefix>:dlq:message:<id>                   the row with reason and dead_lettered_at
//! ```

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Error, ErrorKind, Result};

use super::super::{Streams, config};
use super::row::{Found, FoundDead};
use super::{Adoption, Intake};

/// Ids and messages that are asked for at once.
const PAGE: isize = 500;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    producer: Option<Cow<'a, str>>,
    #[serde(borrow)]
    created_at: Option<Cow<'a, str>>,
    expires_at: Option<f64>,
    // Of a dead letter, whose index names its realm only.
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow)]
    consumer: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    dead_lettered_at: Option<Cow<'a, str>>,
}

fn says(error: RedisError) -> Error {
    Error::new(
        ErrorKind::StoreUnavailable,
        format!("Redis of tyo-mq: {error}"),
    )
}

/// Takes everything in.
pub(in crate::offline) async fn from_redis(
    url: &str,
    prefix: &str,
    skips: bool,
    intake: &mut Intake<'_>,
    streams: &mut Streams<'_>,
) -> Result<()> {
    let client = Client::open(url).map_err(|_| {
        // The address may hold a password.
        config("the source must be a redis:// or rediss:// address")
    })?;
    let patience = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let link = client
        .get_multiplexed_async_connection_with_config(&patience)
        .await;
    let mut reader = Reader {
        link: link.map_err(says)?,
        prefix,
    };
    let mut adoption = Adoption::new(intake, skips);
    let letters = reader.names("dlq:").await?;
    // `dlq:message:<id>` is no index.
    for realm in letters.iter().filter(|name| !name.contains(':')) {
        let index = format!("{prefix}:dlq:{realm}");
        let names = [decoded(realm)?, String::new(), String::new()];
        let place = (index.as_str(), "dlq:message", &names);
        reader.take(place, &mut adoption, streams).await?;
    }
    for name in reader.names("index:").await? {
        let parts: Vec<&str> = name.split(':').collect();
        let [realm, event, consumer] = parts[..] else {
            let why = format!("{prefix}:index:{name} is no index of a queue");
            return Err(Error::new(ErrorKind::StoreCorrupt, why));
        };
        let index = format!("{prefix}:index:{name}");
        let names = [decoded(realm)?, decoded(event)?, decoded(consumer)?];
        let place = (index.as_str(), "message", &names);
        reader.take(place, &mut adoption, streams).await?;
    }
    adoption.finish(streams).await
}

fn decoded(text: &str) -> Result<String> {
    let bytes = BASE64.decode(text).ok();
    let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    name.ok_or_else(|| {
        let why = format!("{text:?} in a key of tyo-mq is no name in base64url");
        Error::new(ErrorKind::StoreCorrupt, why)
    })
}

struct Reader<'a> {
    link: MultiplexedConnection,
    prefix: &'a str,
}

impl Reader<'_> {
    async fn ask<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T> {
        command.query_async(&mut self.link).await.map_err(says)
    }

    /// What follows `<prefix>:<kind>` in the names of keys, in order.
    async fn names(&mut self, kind: &str) -> Result<Vec<String>> {
        let start = format!("{}:{kind}", self.prefix);
        let mut pattern = String::new();
        for char in start.chars() {
            if matches!(char, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(char);
        }
        pattern.push('*');
        let (mut cursor, mut names) = (0u64, Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(PAGE);
            let (next, found): (u64, Vec<String>) = self.ask(&scan).await?;
            let found = found.iter().filter_map(|name| name.strip_prefix(&start));
            names.extend(found.map(str::to_owned));
            if next == 0 {
                break;
            }
            cursor = next;
        }
        names.sort_unstable();
        // A scan may tell a name twice.
        names.dedup();
        Ok(names)
    }

    /// Takes in what an index names, in its order.
    async fn take(
        &mut self,
        (index, kind, [realm, event, consumer]): (&str, &str, &[String; 3]),
        adoption: &mut Adoption<'_, '_>,
        streams: &mut Streams<'_>,
    ) -> Result<()> {
        let mut from = 0;
        loop {
            let mut range = redis::cmd("ZRANGE");
            range.arg(index).arg(from).arg(from + PAGE - 1);
            let ids: Vec<String> = self.ask(&range).await?;
            if ids.is_empty() {
                return Ok(());
            }
            let mut get = redis::cmd("MGET");
            for id in &ids {
                get.arg(format!("{}:{kind}:{id}", self.prefix));
            }
            let rows: Vec<Option<Vec<u8>>> = self.ask(&get).await?;
            for (id, row) in ids.iter().zip(rows) {
                let Some(row) = row else {
                    // Redis has let it go.
                    adoption.intake.taken.expired += 1;
                    continue;
                };
                let stored = match serde_json::from_slice::<Stored<'_>>(&row) {
                    Ok(stored) => stored,
                    Err(error) => {
                        adoption.unreadable(id, &error.to_string(), streams)?;
                        continue;
                    }
                };
                let dead = (kind != "message").then_some(FoundDead {
                    reason: stored.reason,
                    at: stored.dead_lettered_at,
                });
                let named = |name: &str, told: Option<Cow<'_, str>>| match name {
                    "" => told.unwrap_or_default().into_owned(),
                    name => name.to_owned(),
                };
                let found = Found {
                    id: id.into(),
                    realm: realm.into(),
                    event: named(event, stored.event).into(),
                    consumer: named(consumer, stored.consumer).into(),
                    delivery: stored.message.map_or("", RawValue::get).into(),
                    producer: stored.producer,
                    created_at: stored.created_at,
                    expires_at: stored.expires_at,
                    dead,
                };
                adoption.take(found, streams).await?;
            }
            from += PAGE;
        }
    }
}
