//! The store in Redis: everything of a realm in one slot, one script per call.
//!
//! A call takes its place in its realm's line when it is made ([`lane`]); scripts (`lua/`) do it in
//! one step, once. The model is that of the memory store, with the state in Redis: brokers may come
//! and go. Knows nothing of the broker.

mod answers;
mod args;
mod claim;
mod copies;
mod documents;
mod flow;
mod given;
mod hub;
mod lane;
mod lanes;
mod leads;
mod link;
mod names;
mod notices;
mod options;
mod reads;
mod sample;
mod script;
mod start;
mod take;
mod tell;
mod thread;
mod tls;
mod told;
mod trouble;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::sync::oneshot;

use crate::clock::{Clock, Timestamp};
use crate::model::{MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::record::{ExportCursor, Exported, Record};
use super::settings;
use super::types::{
    Append, Appended, Bounds, DeadLetter, DeadLetterId, Delayed, Depth, Due, Durability, Entry,
    Maintained, Page, PageLimit, QueueChange, QueueId, QueueRecord, QueueSpec, Seq, Settled,
    StoreCounters, StoreHealth,
};
use super::{Pending, Purpose, Store};
use answers::{Fields, strange};
use args::{Args, millis};
use hub::Hub;
use lane::{Call, Lane};
use lanes::Lanes;
use script::Script;
use thread::Thread;

pub use given::{GivenClient, RedisClient};
pub use options::RedisOptions;

/// Entries and bytes that one script reads at most; larger pages are read in several.
const SCRIPT_ENTRIES: usize = 1024;
const SCRIPT_BYTES: usize = 16 << 20;

/// How long lines may take to end once the store is dropped: everything in them is refused.
const CLOSED_LINES: Duration = Duration::from_secs(1);

/// A [`Store`] in Redis (P1, P29). Dropped without [`Store::close`] it refuses what is in line.
pub struct RedisStore {
    lanes: Arc<Lanes>,
    durability: Durability,
    _thread: Thread,
}

fn no_queue() -> Error {
    Error::new(
        ErrorKind::DeliveryUnknown,
        "there is no such queue any more",
    )
}

fn no_dead_letter() -> Error {
    Error::new(ErrorKind::DeadLetterUnknown, "there is no such dead letter")
}

/// The text of an answer that may say that there is no such thing.
fn known(answer: &Value) -> Result<&str> {
    match answers::text(answer)? {
        "?" => Err(no_queue()),
        "F" => Err(claim::fenced()),
        "!" => Err(no_dead_letter()),
        text => Ok(text),
    }
}

/// The parts of an answer that may say that there is no such queue.
fn parts(answer: Value) -> Result<Vec<Value>> {
    match answer {
        Value::Array(parts) => Ok(parts),
        other => Err(known(&other).err().unwrap_or_else(strange)),
    }
}

impl RedisStore {
    /// Connects, reads how Redis is set, and learns what it holds.
    ///
    /// # Errors
    /// `config` for wrong options, and with `strict` for a Redis that evicts keys;
    /// `store_unavailable` if it cannot be reached.
    pub async fn open(
        options: RedisOptions,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::open_for(Purpose::Lead, options, bounds, clock).await
    }

    /// Notes in a Redis that this broker has left where its messages have moved to (P28).
    ///
    /// # Errors
    /// `store_unavailable` if it cannot be reached.
    pub(crate) async fn note_moved(
        options: RedisOptions,
        clock: Arc<dyn Clock>,
        to: &str,
    ) -> Result<()> {
        let hub = Hub::new(options, Bounds::default(), clock)?;
        leads::note_moved(&hub, to).await
    }

    /// The same for what it is to be used for.
    pub(crate) async fn open_for(
        purpose: Purpose,
        options: RedisOptions,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let hub = Arc::new(Hub::new(options, bounds, clock)?);
        let lines = hub.clone();
        let thread = Thread::start(async move { lines.idle(CLOSED_LINES).await })?;
        let lanes = Arc::new(Lanes::new(hub.clone(), thread.handle()));
        let opening = lanes.clone();
        let durability = thread
            .run(async move {
                let durability = start::check_in_time(&opening.hub).await?;
                notices::start(&opening).await?;
                // Of a copy that was cut nothing can be read: only its names are needed to drop it.
                opening.load_realms().await?;
                leads::check(&opening, purpose).await?;
                opening.load().await?;
                Ok(durability)
            })
            .await
            .map_err(|error| start::refused(&hub, &error))?;
        Ok(Self {
            lanes,
            durability,
            _thread: thread,
        })
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.lanes.hub
    }

    fn args(&self, what: &str, now: Timestamp) -> Args {
        self.lanes.args(what, now)
    }

    /// The lane of a queue, for a call about it.
    fn lane_of(&self, queue: QueueId) -> Result<Arc<Lane>> {
        if self.hub().is_closed() {
            return Err(hub::closed());
        }
        self.lanes.of_queue(queue).ok_or_else(no_queue)
    }

    /// A call about a queue; `read` makes the answer of what the script says.
    fn about<T: Send + 'static>(
        &self,
        queue: QueueId,
        script: Script,
        args: impl FnOnce() -> Args,
        read: impl FnOnce(&Arc<Lanes>, &Arc<Lane>, Value) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let lane = match self.lane_of(queue) {
            Ok(lane) => lane,
            Err(error) => return Pending::ready(Err(error)),
        };
        let answer = self.lanes.ask(&lane, script, args());
        let lanes = self.lanes.clone();
        Pending::waiting(async move { read(&lanes, &lane, answer.await?) })
    }

    /// A call about a realm; one that the store knows nothing of answers `none`.
    fn about_realm<T: Send + 'static>(
        &self,
        realm: &RealmId,
        script: Script,
        args: Args,
        none: Result<T>,
        read: impl FnOnce(&Arc<Lane>, Value) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        if self.hub().is_closed() {
            return Pending::ready(Err(hub::closed()));
        }
        let Some(lane) = self.lanes.find(realm) else {
            return Pending::ready(none);
        };
        let answer = self.lanes.ask(&lane, script, args);
        Pending::waiting(async move { read(&lane, answer.await?) })
    }

    /// Does something in several steps that a copy must wait for, whether anybody waits for it or not.
    fn spawn<T, F>(&self, work: impl FnOnce(Arc<Lanes>) -> F) -> Pending<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let step = self.hub().step();
        self.detach(|lanes| {
            let work = work(lanes);
            async move {
                let _step = step;
                work.await
            }
        })
    }

    /// Does something in several steps, whether anybody waits for it or not.
    fn detach<T, F>(&self, work: impl FnOnce(Arc<Lanes>) -> F) -> Pending<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        if self.hub().is_closed() {
            return Pending::ready(Err(hub::closed()));
        }
        let (sender, receiver) = oneshot::channel();
        let work = work(self.lanes.clone());
        self.lanes.runtime.spawn(async move {
            // Who does not wait any more does not want to know.
            let _ = sender.send(work.await);
        });
        let lost = || Err(trouble::unavailable("the store has ended"));
        Pending::waiting(async move { receiver.await.unwrap_or_else(|_| lost()) })
    }

    /// Does something about the copy that comes in, in its turn.
    fn about_copy<T, F>(&self, work: impl FnOnce(Arc<Lanes>) -> F) -> Pending<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let place = self.lanes.take_place();
        self.detach(|lanes| {
            let work = work(lanes);
            async move {
                place.turn().await;
                work.await
            }
        })
    }

    /// Appends of one realm.
    fn append_in(&self, items: Vec<Append>) -> oneshot::Receiver<Result<Vec<Result<Appended>>>> {
        let (sender, receiver) = oneshot::channel();
        let ids: Vec<(MessageId, bool)> = items
            .iter()
            .map(|item| (item.message.id, item.due.is_some()))
            .collect();
        let is_held = items.iter().any(|item| item.due.is_some());
        let lane = match items.first() {
            Some(first) if is_held => Some(self.lanes.of(&first.realm)),
            Some(first) => self.lanes.find(&first.realm),
            None => None,
        };
        let Some(lane) = lane else {
            // No log and no delayed message is there.
            let nothing = items.iter().map(|item| {
                Ok(Appended {
                    id: item.message.id,
                    duplicate: item.release.is_some(),
                    delayed: false,
                    placed: Vec::new(),
                })
            });
            let _ = sender.send(Ok(nothing.collect()));
            return receiver;
        };
        if is_held {
            lane.holds.store(true, Ordering::Release);
        }
        let mut args = Args::new();
        items.iter().for_each(|item| {
            args.item(item);
        });
        let wake = items.iter().filter_map(|item| self.wake_of(item)).min();
        let waking = lane.clone();
        lane.push(Call {
            script: Script::Append,
            args,
            ids: 0,
            items: items.len(),
            deadline: self.hub().clock.elapsed() + self.hub().options.timeout,
            answer: Box::new(move |answer| {
                wake.into_iter().for_each(|at| waking.wake_at(at));
                let answers = answer.and_then(|answer| answers::appended(&answer, &ids));
                let _ = sender.send(answers);
            }),
        });
        receiver
    }

    /// When the sweep has to look at what this leaves.
    fn wake_of(&self, item: &Append) -> Option<u64> {
        let bounds = &self.hub().bounds;
        let after = |millis: u64| item.message.produced.0.saturating_add(millis);
        let expires = item.message.expires.map(|at| at.0);
        let mark = item.mark.as_ref().map(|_| after(millis(bounds.mark_idle)));
        let uid = item
            .uid
            .as_ref()
            .map(|_| after(millis(bounds.dedupe_window)));
        expires.into_iter().chain(mark).chain(uid).min()
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.hub().close(Duration::ZERO);
        self.lanes.all().iter().for_each(|lane| lane.ring());
    }
}

/// Settles entries whose message cannot be read, so that they do not stop their queue (P7).
fn set_aside(lanes: &Arc<Lanes>, lane: &Arc<Lane>, queue: QueueId, damaged: &[Seq]) {
    for seqs in damaged.chunks(SCRIPT_ENTRIES) {
        tracing::error!(
            realm = %lane.realm(), queue = queue.0, ?seqs,
            "stored messages are damaged; they are set aside"
        );
        lanes
            .hub
            .count(|counters| counters.damaged += seqs.len() as u64);
        let mut args = change_args(&lanes.hub, queue, Timestamp(0), "settle");
        seqs.iter().for_each(|seq| {
            args.number(*seq);
        });
        // It is in line; what comes of it is seen at the next read.
        drop(lanes.ask(lane, Script::Change, args));
    }
}

fn change_args(hub: &Hub, queue: QueueId, now: Timestamp, what: &str) -> Args {
    let mut args = Args::new();
    args.id(queue.0)
        .overflow(&hub.bounds)
        .size(hub.bounds.dlq_max_per_realm);
    args.time(now).text(what);
    args
}

mod calls;
