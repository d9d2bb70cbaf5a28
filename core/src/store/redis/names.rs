//! The names of realms: one hash that says which number a realm's keys carry. A realm is renamed by
//! changing its name there, in one step; its keys stay where they are.

use redis::Value;

use crate::model::RealmId;
use crate::{Error, Result};

use super::answers::number;
use super::hub::Hub;
use super::link::Link;
use super::notices;
use super::trouble;

/// Also for a name that is gone: who has not heard it yet, hears it now.
const RENAME: &str = "local tag = redis.call('HGET', KEYS[1], ARGV[1])
if tag then
  redis.call('HSET', KEYS[1], ARGV[2], tag)
  redis.call('HDEL', KEYS[1], ARGV[1])
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1";

const KEY: &str = "realms";

fn refused(error: &redis::RedisError) -> Error {
    trouble::said(error)
}

/// The number of a realm; it gets one if it has none.
pub(super) async fn tag(hub: &Hub, link: &mut Link, realm: &RealmId) -> Result<u64> {
    let key = hub.key(KEY);
    let mut look = redis::cmd("HGET");
    look.arg(&key).arg(realm.as_str());
    let known = link.one(&look).await.map_err(|error| refused(&error))?;
    if let Some(tag) = number(&known) {
        return Ok(tag);
    }
    let Some(new) = hub.take_ids(1) else {
        return Err(trouble::unavailable("no id is left for the realm"));
    };
    // Somebody else may have been faster.
    let mut name = redis::cmd("HSETNX");
    name.arg(&key).arg(realm.as_str()).arg(new);
    link.one(&name).await.map_err(|error| refused(&error))?;
    let known = link.one(&look).await.map_err(|error| refused(&error))?;
    number(&known).ok_or_else(|| trouble::unavailable("the realm got no number"))
}

/// Every realm with its number.
pub(super) async fn all(hub: &Hub, link: &mut Link) -> Result<Vec<(RealmId, u64)>> {
    let mut cmd = redis::cmd("HGETALL");
    cmd.arg(hub.key(KEY));
    let value = link.one(&cmd).await.map_err(|error| refused(&error))?;
    let pairs: Vec<(Value, Value)> = match value {
        Value::Map(pairs) => pairs,
        Value::Array(list) => {
            let names = list.iter().step_by(2).cloned();
            names.zip(list.iter().skip(1).step_by(2).cloned()).collect()
        }
        _ => Vec::new(),
    };
    let realm = |name: &Value| match name {
        Value::BulkString(bytes) => RealmId::parse(std::str::from_utf8(bytes).ok()?).ok(),
        _ => None,
    };
    let found = pairs.iter();
    Ok(found
        .filter_map(|(name, tag)| Some((realm(name)?, number(tag)?)))
        .collect())
}

/// Gives a realm another name, and tells all brokers in the same step.
pub(super) async fn rename(hub: &Hub, link: &mut Link, from: &RealmId, to: &RealmId) -> Result<()> {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(RENAME).arg(1).arg(hub.key(KEY));
    cmd.arg(from.as_str()).arg(to.as_str());
    let (channel, notice) = notices::renamed(hub);
    cmd.arg(channel).arg(notice);
    let renamed = link.one(&cmd).await;
    renamed.map(|_| ()).map_err(|error| refused(&error))
}

/// Gives a realm that another store told of its number there, in the place of another name of it.
pub(super) async fn put(
    hub: &Hub,
    link: &mut Link,
    (realm, tag): (&RealmId, u64),
    before: Option<&RealmId>,
) -> Result<()> {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg("if ARGV[3] then redis.call('HDEL', KEYS[1], ARGV[3]) end\nreturn redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])");
    cmd.arg(1).arg(hub.key(KEY)).arg(realm.as_str()).arg(tag);
    if let Some(before) = before {
        cmd.arg(before.as_str());
    }
    let put = link.one(&cmd).await;
    put.map(|_| ()).map_err(|error| refused(&error))
}

/// Takes the name of a realm away, or those of all.
pub(super) async fn drop(hub: &Hub, link: &mut Link, realm: Option<&RealmId>) -> Result<()> {
    let mut cmd = redis::cmd(if realm.is_some() { "HDEL" } else { "DEL" });
    cmd.arg(hub.key(KEY));
    if let Some(realm) = realm {
        cmd.arg(realm.as_str());
    }
    let dropped = link.one(&cmd).await;
    dropped.map(|_| ()).map_err(|error| refused(&error))
}
