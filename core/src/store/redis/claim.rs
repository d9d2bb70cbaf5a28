//! Which queues this broker has in hand (P18, P29): one broker hands out a consumer's queue, several
//! may share a group's, and whoever has lost one is refused by the scripts.
//!
//! Keeps the epoch of each claim and says it with every call that needs one. Knows no courier.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::clock::Timestamp;
use crate::{Error, ErrorKind, Result};

use super::super::claim::{Claim, Hear, Hold, Position, Wish};
use super::super::types::{Page, PageLimit, QueueId, Seq};
use super::answers::{self, Fields};
use super::lane::Lane;
use super::lanes::Lanes;
use super::notices::{self, Others};
use super::script::Script;
use super::{Pending, RedisStore, SCRIPT_BYTES, SCRIPT_ENTRIES, known, set_aside};

/// A broker gives a sign of life, and looks for those who give none, so often in a lease.
pub(super) const SIGNS: u32 = 5;

/// Whoever is asked to let a queue go has so long before it is taken.
const GRACE: Duration = Duration::from_millis(250);

pub(super) fn fenced() -> Error {
    Error::new(
        ErrorKind::Fenced,
        "another broker has taken this queue over",
    )
}

/// The last claim of a queue.
#[derive(Debug, Clone, Copy)]
struct Held {
    epoch: u64,
    /// Who has come for it later than this broker has a greater one.
    ticket: u64,
    is_shared: bool,
    is_held: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Claims {
    held: Mutex<HashMap<QueueId, Held>>,
    /// Who waits until another broker lets a queue go.
    waiting: Mutex<HashMap<QueueId, Arc<Notify>>>,
    pub(super) others: Others,
    pub(super) hear: Mutex<Option<Hear>>,
}

impl Claims {
    fn get(&self, queue: QueueId) -> Option<Held> {
        self.held.lock().get(&queue).copied()
    }

    /// What a call says of it: `-`, the epoch, with `+` if it is shared.
    pub(super) fn text(&self, queue: QueueId) -> String {
        match self.get(queue).filter(|held| held.is_held) {
            Some(held) => held.text(),
            None => "-".to_owned(),
        }
    }

    /// Whether who has drawn this ticket came later than anybody here.
    pub(super) fn is_older(&self, queue: QueueId, ticket: u64) -> bool {
        let held = self.get(queue);
        held.is_some_and(|held| held.is_held && held.ticket < ticket)
    }

    pub(super) fn is_shared(&self, queue: QueueId) -> bool {
        let held = self.get(queue);
        held.is_some_and(|held| held.is_held && held.is_shared)
    }

    pub(super) fn forget(&self, queue: QueueId) {
        self.held.lock().remove(&queue);
        self.waiting.lock().remove(&queue);
    }

    /// The queues that are held.
    pub(super) fn queues(&self) -> Vec<QueueId> {
        let held = self.held.lock();
        let queues = held.iter().filter(|(_, held)| held.is_held);
        queues.map(|(queue, _)| *queue).collect()
    }

    /// Rings when another broker lets the queue go; to be called before that is asked for.
    fn until_released(&self, queue: QueueId) -> Arc<Notify> {
        let bell = Arc::new(Notify::new());
        self.waiting.lock().insert(queue, bell.clone());
        bell
    }

    /// Another broker has let the queue go.
    pub(super) fn released(&self, queue: QueueId) {
        if let Some(bell) = self.waiting.lock().remove(&queue) {
            bell.notify_one();
        }
    }

    fn read(&self, queue: QueueId, text: &str) -> Result<(Claim, u64)> {
        let mut fields = Fields::of(text);
        let what = fields.next::<String>()?;
        let (epoch, is_kept) = (fields.next()?, fields.next::<u8>()? == 1);
        let [_id, _log, _seen]: [u64; 3] = [fields.next()?, fields.next()?, fields.next()?];
        let mut position = Position {
            low: fields.next()?,
            sent: fields.next()?,
            head: fields.next()?,
            exceptions: fields.next()?,
            durable: false,
        };
        let _depth: u64 = fields.next()?;
        position.durable = fields.next::<u8>()? == 1;
        let ticket = fields.next()?;
        let hold = match what.as_str() {
            "S" => Hold::Sole,
            "G" => Hold::Shared,
            _ => Hold::Nothing,
        };
        let mut all = self.held.lock();
        if hold == Hold::Nothing {
            all.remove(&queue);
        } else {
            self.waiting.lock().remove(&queue);
            let held = Held {
                epoch,
                ticket,
                is_shared: hold == Hold::Shared,
                is_held: true,
            };
            all.insert(queue, held);
        }
        let claim = Claim {
            hold,
            position: (!is_kept).then_some(position),
            again: Duration::MAX,
        };
        Ok((claim, ticket))
    }
}

impl Held {
    fn text(self) -> String {
        format!("{}{}", self.epoch, if self.is_shared { "+" } else { "" })
    }
}

impl RedisStore {
    /// Who comes for a queue asks whoever has it to let go, and insists after a moment.
    pub(super) fn claim_queue(&self, queue: QueueId, wish: Wish) -> Pending<Claim> {
        let lane = match self.lane_of(queue) {
            Ok(lane) => lane,
            Err(error) => return Pending::ready(Err(error)),
        };
        let claims = &self.lanes.claims;
        let released = wish.force.then(|| claims.until_released(queue));
        let how = if wish.force { "come" } else { "look" };
        let asking = ask(&self.lanes, &lane, queue, how, wish);
        let Some(released) = released else {
            return Pending::waiting(async move { asking.await.map(|(claim, _)| claim) });
        };
        self.spawn(move |lanes| async move {
            let (claim, ticket) = asking.await?;
            if claim.hold != Hold::Nothing {
                return Ok(claim);
            }
            // It may have died.
            let _ = timeout(grace(&lanes), released.notified()).await;
            let ticket = ticket.to_string();
            let insisting = ask(&lanes, &lane, queue, &ticket, wish);
            insisting.await.map(|(claim, _)| claim)
        })
    }

    pub(super) fn release_queue(&self, queue: QueueId, sent: Seq) -> Pending<()> {
        let mut text = "-".to_owned();
        if let Some(held) = self.lanes.claims.held.lock().get_mut(&queue)
            && std::mem::replace(&mut held.is_held, false)
        {
            text = held.text();
        }
        if text == "-" {
            return Pending::ready(Ok(()));
        }
        let args = || {
            let mut args = self.args("release", Timestamp(0));
            args.id(queue.0).text(&text).number(sent);
            args
        };
        self.change(queue, Script::Claim, args, |_, _, value| {
            answers::text(&value).map(|_| ())
        })
    }

    /// Whoever has the queue in hand gets a moment to let it go; a group's stays if somebody uses it,
    /// and so does any that is only `old`.
    pub(super) fn forget_queue(
        &self,
        queue: QueueId,
        purge: bool,
        old: Option<Timestamp>,
    ) -> Pending<u64> {
        let lane = match self.lane_of(queue) {
            Ok(lane) => lane,
            Err(error) => return Pending::ready(Err(error)),
        };
        let released = self.lanes.claims.until_released(queue);
        let now = old.unwrap_or_default();
        let forgetting = forget(&self.lanes, &lane, queue, now, purge, false);
        self.spawn(move |lanes| async move {
            if let Some(left) = forgetting.await? {
                return Ok(left);
            }
            if old.is_none() {
                let _ = timeout(grace(&lanes), released.notified()).await;
                let forgetting = forget(&lanes, &lane, queue, now, purge, true);
                if let Some(left) = forgetting.await? {
                    return Ok(left);
                }
            }
            notices::opened(&lanes, &lane, queue).await;
            Ok(0)
        })
    }

    /// A page of a shared queue: what nobody else has, which is ours from now on.
    pub(super) fn take(&self, queue: QueueId, limit: PageLimit, now: Timestamp) -> Pending<Page> {
        let lane = match self.lane_of(queue) {
            Ok(lane) => lane,
            Err(error) => return Pending::ready(Err(error)),
        };
        let mut args = self.args("take", now);
        args.id(queue.0)
            .text(&self.lanes.claims.text(queue))
            .size(limit.entries.clamp(1, SCRIPT_ENTRIES))
            .size(limit.bytes.min(SCRIPT_BYTES));
        let taking = self.lanes.ask_for(&lane, Script::Claim, args, 0, |value| {
            known(&value).map(str::to_owned)
        });
        self.spawn(move |lanes| async move {
            let taken = taking.await?;
            fetch(&lanes, &lane, queue, &taken).await
        })
    }
}

fn grace(lanes: &Lanes) -> Duration {
    (lanes.hub.options.lease / SIGNS).min(GRACE)
}

/// How much is left of the queue; `None`: another broker has it in hand.
fn forget(
    lanes: &Arc<Lanes>,
    lane: &Arc<Lane>,
    queue: QueueId,
    now: Timestamp,
    purge: bool,
    insists: bool,
) -> impl Future<Output = Result<Option<u64>>> + Send + 'static {
    let mut args = lanes.args("forget", now);
    args.id(queue.0).flag(purge).flag(insists);
    let reading = lanes.clone();
    lanes.ask_for(lane, Script::Queues, args, 0, move |value| {
        let text = known(&value)?;
        if text == "=" {
            return Ok(None);
        }
        let left = Fields::of(text).next()?;
        if purge || left == 0 {
            reading.unlearn(queue);
        }
        Ok(Some(left))
    })
}

/// Puts a claim in line; with it comes its ticket, if it has not got the queue.
fn ask(
    lanes: &Arc<Lanes>,
    lane: &Arc<Lane>,
    queue: QueueId,
    how: &str,
    wish: Wish,
) -> impl Future<Output = Result<(Claim, u64)>> + Send + 'static {
    let lease = lanes.hub.options.lease;
    let last = lanes.claims.get(queue);
    let mut args = lanes.args("claim", Timestamp(0));
    args.id(queue.0)
        .text(how)
        .text(&last.map_or_else(|| "-".to_owned(), Held::text))
        .number(notices::sign_millis(&lanes.hub))
        .number(wish.taken);
    let reading = lanes.clone();
    lanes.ask_for(lane, Script::Claim, args, 0, move |value| {
        let (claim, ticket) = reading.claims.read(queue, known(&value)?)?;
        let again = lease / SIGNS;
        Ok((Claim { again, ..claim }, ticket))
    })
}

async fn fetch(lanes: &Arc<Lanes>, lane: &Arc<Lane>, queue: QueueId, taken: &str) -> Result<Page> {
    let mut fields = Fields::of(taken);
    let (end, expired) = (fields.next::<u8>()? == 1, fields.next()?);
    lanes.hub.count(|counters| counters.expired += expired);
    let names: Vec<&str> = taken.split_ascii_whitespace().skip(2).collect();
    let seqs: Vec<&str> = names
        .iter()
        .map(|name| name.trim_end_matches('*'))
        .collect();
    let mut page = Page {
        entries: Vec::new(),
        next: 0,
        expired,
        end,
    };
    if seqs.is_empty() {
        return Ok(page);
    }
    let mut args = lanes.args("fetch", Timestamp(0));
    args.id(queue.0);
    seqs.iter().for_each(|seq| {
        args.text(seq);
    });
    let answer = super::parts(lanes.ask(lane, Script::Read, args).await?)?;
    let messages = answers::list(answer.into_iter().next().ok_or_else(answers::strange)?)?;
    let mut damaged = Vec::new();
    page.entries = answers::page_entries(&seqs.join(" "), 0, messages, &mut damaged)?;
    set_aside(lanes, lane, queue, &damaged);
    let repeats = names.iter().filter_map(|name| name.strip_suffix('*'));
    let repeats: HashSet<Seq> = repeats.filter_map(|seq| seq.parse().ok()).collect();
    for entry in &mut page.entries {
        entry.attempts = u32::from(repeats.contains(&entry.seq));
    }
    Ok(page)
}
