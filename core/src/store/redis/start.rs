//! What is looked at before a Redis is used: that it answers, takes writes, and how it is set (P1).

use std::sync::atomic::Ordering;

use redis::Value;

use crate::{Error, ErrorKind, Result};

use super::super::types::Durability;
use super::hub::Hub;
use super::link::Link;
use super::trouble;

/// What our scripts need: variadic HSET, UNLINK, effects replication, LIMIT in scripts.
const OLDEST: (u32, u32) = (5, 0);

/// No text: whoever makes one of it shows.
const PROBE: &[u8] = b"\xff\0\r\n1";

/// See [`check`].
///
/// # Errors
/// `store_unavailable` if there is no answer within the time of a call.
pub(super) async fn check_in_time(hub: &Hub) -> Result<Durability> {
    let checked = tokio::time::timeout(hub.options.timeout, check(hub)).await;
    checked.unwrap_or_else(|_| {
        let message = "Redis, or the client that was given, does not answer";
        Err(Error::new(ErrorKind::StoreUnavailable, message))
    })
}

/// Checks and reports; what an answer survives.
async fn check(hub: &Hub) -> Result<Durability> {
    let (_, mut link) = hub.links.get().await?;
    let mut warnings = Vec::new();
    version(&mut link).await?;
    let policy = setting(&mut link, "maxmemory-policy").await;
    let appends = setting(&mut link, "appendonly").await;
    let fsync = setting(&mut link, "appendfsync").await;
    match policy.as_deref() {
        Some("noeviction") => {}
        Some(policy) => {
            let message = format!(
                "Redis may drop messages that wait: its maxmemory-policy is {policy}, set it to noeviction"
            );
            if hub.options.strict {
                return Err(Error::new(ErrorKind::Config, message));
            }
            warnings.push(message);
        }
        None => {
            let message = "Redis does not say how it is set (CONFIG is denied): its maxmemory-policy must be noeviction, its appendonly yes";
            if hub.options.strict {
                return Err(Error::new(ErrorKind::Config, message));
            }
            warnings.push(message.to_owned());
        }
    }
    if appends.as_deref() == Some("no") {
        let message = "what waits does not survive a restart of Redis: its appendonly is no";
        warnings.push(message.to_owned());
    }
    probe(hub, &mut link).await?;
    for warning in &warnings {
        tracing::warn!(url = %hub.options.shown(), "{warning}");
    }
    tracing::info!(
        url = %hub.options.shown(),
        appendonly = appends.as_deref().unwrap_or("unknown"),
        appendfsync = fsync.as_deref().unwrap_or("unknown"),
        "messages wait in Redis"
    );
    hub.state.lock().warnings = warnings;
    let is_disk = appends.as_deref() == Some("yes") && fsync.as_deref() == Some("always");
    Ok(match is_disk {
        true => Durability::Disk,
        false => Durability::Process,
    })
}

/// Takes a number that other brokers of these days do not have.
pub(super) async fn number(hub: &Hub) -> Result<()> {
    let (_, mut link) = hub.links.get().await?;
    let mut cmd = redis::cmd("INCR");
    cmd.arg(hub.key("brokers"));
    let number = link.one(&cmd).await;
    if let Value::Int(number) = number.map_err(|error| trouble::said(&error))? {
        let below = u16::try_from(number.rem_euclid(1023)).unwrap_or(0);
        hub.number.store(below + 1, Ordering::Relaxed);
    }
    Ok(())
}

/// Says where and why a start was refused.
pub(super) fn refused(hub: &Hub, error: &Error) -> Error {
    if error.kind() == ErrorKind::Config {
        return error.clone();
    }
    let message = format!("{}: {}", hub.options.shown(), error.message());
    Error::new(error.kind(), message)
}

async fn version(link: &mut Link) -> Result<()> {
    let mut cmd = redis::cmd("INFO");
    cmd.arg("server");
    let info = link
        .one(&cmd)
        .await
        .map_err(|error| trouble::said(&error))?;
    let text = match &info {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    };
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    let Some(version) = line else {
        return Ok(());
    };
    let mut numbers = version
        .split('.')
        .map(|part| part.trim().parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < OLDEST {
        let message = format!("Redis {version} is too old: 5.0 or newer is needed");
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

/// How Redis is set, if it says so.
async fn setting(link: &mut Link, name: &str) -> Option<String> {
    let mut cmd = redis::cmd("CONFIG");
    cmd.arg("GET").arg(name);
    let value = match link.one(&cmd).await.ok()? {
        Value::Array(list) => list.into_iter().nth(1)?,
        Value::Map(pairs) => pairs.into_iter().next()?.1,
        _ => return None,
    };
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Writes, reads and deletes something.
pub(super) async fn probe(hub: &Hub, link: &mut Link) -> Result<()> {
    let key = hub.key(&format!("probe:{}", hub.writer));
    let mut set = redis::cmd("SET");
    set.arg(&key).arg(PROBE).arg("PX").arg(10_000);
    let mut get = redis::cmd("GET");
    get.arg(&key);
    let mut del = redis::cmd("DEL");
    del.arg(&key);
    let refused = |error: redis::RedisError| match error.code() {
        Some("OOM") => Error::new(ErrorKind::StoreFull, format!("Redis: {error}")),
        _ => trouble::said(&error),
    };
    link.one(&set).await.map_err(refused)?;
    let found = link.one(&get).await.map_err(refused)?;
    link.one(&del).await.map_err(refused)?;
    match found {
        Value::BulkString(bytes) if bytes == PROBE => Ok(()),
        _ if hub.options.client.is_some() => {
            let why = "option storage_options.client: it answers text where Redis has bytes; give \
                       one that has callBuffer() (ioredis) or sendCommand() with Buffers \
                       (node-redis)";
            Err(Error::new(ErrorKind::Config, why))
        }
        _ => Err(trouble::unavailable("what was written could not be read")),
    }
}
