//! Whether what is in Redis leads: marks of copies, and dropping what does not (P28).
//!
//! `<prefix>:copying` says that a copy is being made into it (`cut`), or has come to its end and does
//! not lead yet (`whole`); `<prefix>:copying:alive` that somebody is at it. `<prefix>:moved` says
//! where everything has gone. Knows no row.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::clock::Timestamp;
use crate::{Error, ErrorKind, Result};

use super::super::{Purpose, not_empty};
use super::answers::{self, Fields};
use super::args::Args;
use super::hub::Hub;
use super::lanes::Lanes;
use super::script::Script;
use super::{names, trouble};

const COPYING: &str = "copying";
const ALIVE: &str = "copying:alive";
const MOVED: &str = "moved";
/// Who makes a copy says so more often than this, in milliseconds.
const ALIVE_FOR: u64 = 60_000;
/// How long it may take to say that nobody does any more.
const GIVING_UP: Duration = Duration::from_secs(1);

async fn say(hub: &Hub, parts: &[&str]) -> Result<Value> {
    let mut cmd = redis::Cmd::new();
    parts.iter().for_each(|part| {
        cmd.arg(*part);
    });
    let (_, mut link) = hub.links.get().await?;
    let said = link.one(&cmd).await;
    said.map_err(|error| trouble::said(&error))
}

async fn mark(hub: &Hub, name: &str) -> Result<Option<String>> {
    Ok(match say(hub, &["GET", &hub.key(name)]).await? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    })
}

async fn set(hub: &Hub, name: &str, value: &str) -> Result<()> {
    let set = say(hub, &["SET", &hub.key(name), value]).await;
    set.map(|_| ())
}

async fn drop_mark(hub: &Hub, name: &str) -> Result<()> {
    say(hub, &["DEL", &hub.key(name)]).await.map(|_| ())
}

/// Refuses what must not lead, or lets it lead; drops a copy that was cut.
pub(super) async fn check(lanes: &Arc<Lanes>, purpose: Purpose) -> Result<()> {
    let hub = &lanes.hub;
    if purpose == Purpose::TakeCopy {
        return Ok(());
    }
    if hub.options.force {
        drop_mark(hub, MOVED).await?;
    }
    if let Some(to) = mark(hub, MOVED).await? {
        let why = format!(
            "its messages have moved to {to}; open that one, or this one with `force` to go back \
             to what it held then"
        );
        return Err(Error::new(ErrorKind::Config, why));
    }
    match mark(hub, COPYING).await?.as_deref() {
        None => Ok(()),
        Some("whole") if purpose == Purpose::Chosen => lead(hub).await,
        Some(_) if mark(hub, ALIVE).await?.is_some() => {
            let why = "another broker is copying its messages into it";
            Err(Error::new(ErrorKind::Config, why))
        }
        Some(_) if purpose == Purpose::Chosen => {
            let why = "it holds a copy that did not come to its end";
            Err(Error::new(ErrorKind::Config, why))
        }
        Some(_) => {
            tracing::warn!("Redis held a copy that never led; it is dropped");
            wipe(lanes).await?;
            drop_mark(hub, COPYING).await
        }
    }
}

/// Empties Redis for a copy, if what it holds may go.
pub(super) async fn begin_copy(lanes: &Arc<Lanes>, replace: bool) -> Result<()> {
    let hub = &lanes.hub;
    let is_ours = mark(hub, ALIVE).await?.is_none_or(|who| who == hub.writer);
    if !is_ours {
        let why = "another broker is copying its messages into this Redis";
        return Err(Error::new(ErrorKind::Config, why));
    }
    let holds = mark(hub, COPYING).await?.is_none() && holds_something(lanes).await?;
    if let (true, false) = (holds, replace) {
        return Err(match mark(hub, MOVED).await? {
            Some(to) => {
                let why = format!("what Redis holds has moved to {to}; with `force` it is emptied");
                Error::new(ErrorKind::Config, why)
            }
            None => not_empty(),
        });
    }
    if holds && mark(hub, MOVED).await?.is_none() {
        return Err(not_empty());
    }
    set(hub, COPYING, "cut").await?;
    go_on(hub).await?;
    drop_mark(hub, MOVED).await?;
    wipe(lanes).await
}

/// Somebody is at it.
pub(super) async fn go_on(hub: &Hub) -> Result<()> {
    let (key, time) = (hub.key(ALIVE), ALIVE_FOR.to_string());
    let said = say(hub, &["SET", &key, &hub.writer, "PX", &time]).await;
    said.map(|_| ())
}

/// The copy is whole.
pub(super) async fn end_copy(hub: &Hub) -> Result<()> {
    set(hub, COPYING, "whole").await
}

/// The copy leads.
pub(super) async fn lead(hub: &Hub) -> Result<()> {
    drop_mark(hub, COPYING).await?;
    drop_mark(hub, ALIVE).await
}

/// Everything has gone to another store.
pub(super) async fn moved(hub: &Hub, to: &str) -> Result<()> {
    set(hub, MOVED, to).await
}

/// Gives up a copy, so that another one may begin at once.
pub(super) async fn give_up(hub: &Hub) {
    // Else it may begin a minute later.
    let _ = tokio::time::timeout(GIVING_UP, drop_mark(hub, ALIVE)).await;
}

/// The same, if that does not stand there yet.
pub(super) async fn note_moved(hub: &Hub, to: &str) -> Result<()> {
    let noted = say(hub, &["SET", &hub.key(MOVED), to, "NX"]).await;
    noted.map(|_| ())
}

async fn holds_something(lanes: &Arc<Lanes>) -> Result<bool> {
    for lane in lanes.all() {
        let args = lanes.args("holds", Timestamp(0));
        let answer = lanes.ask(&lane, Script::Read, args).await?;
        if Fields::of(answers::text(&answer)?).next::<u64>()? > 0 {
            return Ok(true);
        }
    }
    lanes.documents.is_empty().await.map(|is_empty| !is_empty)
}

/// Drops everything, in bites.
async fn wipe(lanes: &Arc<Lanes>) -> Result<()> {
    for lane in lanes.all() {
        while answers::text(&lanes.copy(&lane, "wipe", Args::new()).await?)? == "1" {}
    }
    lanes.documents.wipe().await?;
    lanes.leave_all();
    let (_, mut link) = lanes.hub.links.get().await?;
    names::drop(&lanes.hub, &mut link, None).await
}
