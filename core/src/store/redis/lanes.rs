//! Which realm and which queue is whose line, and the calls that go over several of them or in
//! bites. Every bite is one bounded script.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::clock::Timestamp;
use crate::model::{MessageId, RealmId};
use crate::{Error, ErrorKind, Result};

use super::super::claim::News;
use super::super::types::{Delayed, Depth, Maintained, QueueId, QueueRecord};
use super::answers::{self, Fields};
use super::args::{Args, millis};
use super::claim::Claims;
use super::documents::DocumentLine;
use super::hub::{self, Hub};
use super::lane::{Call, Lane};
use super::leads;
use super::names;
use super::notices;
use super::script::Script;
use super::take::Taking;
use super::tell::{self, Telling};
use super::trouble;

/// Queues of one bite.
const BITE: usize = 200;
/// Rows of one bite of upkeep.
pub(super) const ROWS: usize = 1000;

/// See the module.
pub(super) struct Lanes {
    pub(super) hub: Arc<Hub>,
    pub(super) runtime: Handle,
    pub(super) realms: RwLock<HashMap<RealmId, Arc<Lane>>>,
    pub(super) queues: RwLock<HashMap<QueueId, Arc<Lane>>>,
    pub(super) claims: Claims,
    /// One realm is renamed at a time.
    renaming: tokio::sync::Mutex<()>,
    /// Realms renamed while changes are noted for a copy, in that order.
    pub(super) renamed: Mutex<Vec<u64>>,
    /// What a copy has still to be told, between its pages.
    pub(super) telling: Mutex<Option<Box<Telling>>>,
    /// Held by who makes that copy.
    pub(super) cursor: Mutex<Weak<()>>,
    /// What of another store has come.
    pub(super) taking: Mutex<Option<Box<Taking>>>,
    /// It does not lead yet.
    pub(super) takes_copy: AtomicBool,
    /// What is asked about documents.
    pub(super) documents: DocumentLine,
    /// Calls about that copy take their turns: the next number to give, and whose turn it is.
    turns: (AtomicU64, watch::Sender<u64>),
}

fn lost() -> Error {
    trouble::unavailable("the store has ended")
}

impl Lanes {
    pub(super) fn new(hub: Arc<Hub>, runtime: Handle) -> Self {
        Self {
            documents: DocumentLine::start(&hub, &runtime),
            hub,
            runtime,
            realms: RwLock::default(),
            queues: RwLock::default(),
            claims: Claims::default(),
            renaming: tokio::sync::Mutex::default(),
            renamed: Mutex::default(),
            telling: Mutex::default(),
            cursor: Mutex::default(),
            taking: Mutex::default(),
            takes_copy: AtomicBool::new(false),
            turns: (AtomicU64::new(0), watch::Sender::new(0)),
        }
    }

    pub(super) fn find(&self, realm: &RealmId) -> Option<Arc<Lane>> {
        self.realms.read().get(realm).cloned()
    }

    pub(super) fn of_queue(&self, queue: QueueId) -> Option<Arc<Lane>> {
        self.queues.read().get(&queue).cloned()
    }

    /// The lane of a realm, which exists from now on.
    pub(super) fn of(&self, realm: &RealmId) -> Arc<Lane> {
        if let Some(lane) = self.find(realm) {
            return lane;
        }
        let mut realms = self.realms.write();
        let lane = realms.entry(realm.clone());
        let new = || Lane::new(self.hub.clone(), self.runtime.clone(), realm.clone(), None);
        lane.or_insert_with(new).clone()
    }

    pub(super) fn learn(&self, queue: QueueId, lane: &Arc<Lane>) {
        self.queues.write().insert(queue, Arc::clone(lane));
    }

    pub(super) fn unlearn(&self, queue: QueueId) {
        self.queues.write().remove(&queue);
        self.claims.forget(queue);
    }

    pub(super) fn all(&self) -> Vec<Arc<Lane>> {
        self.realms.read().values().cloned().collect()
    }

    /// Puts a call into a line; the answer as it is.
    pub(super) fn ask(
        &self,
        lane: &Arc<Lane>,
        script: Script,
        args: Args,
    ) -> impl Future<Output = Result<Value>> + Send + 'static {
        self.ask_for(lane, script, args, 0, Ok)
    }

    /// Puts a call into a line that needs so many ids; `read` makes the answer of what the script
    /// says, whether anybody waits for it or not.
    pub(super) fn ask_for<T: Send + 'static>(
        &self,
        lane: &Arc<Lane>,
        script: Script,
        args: Args,
        ids: u64,
        read: impl FnOnce(Value) -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        lane.push(Call {
            script,
            args,
            ids,
            items: 0,
            deadline: self.hub.clock.elapsed() + self.hub.options.timeout,
            answer: Box::new(move |answer| {
                // Who does not wait any more does not want to know.
                let _ = sender.send(answer.and_then(read));
            }),
        });
        async move { receiver.await.unwrap_or_else(|_| Err(lost())) }
    }

    /// What a call of `queues.lua` or `read.lua` begins with.
    pub(super) fn args(&self, what: &str, now: Timestamp) -> Args {
        let mut args = Args::new();
        args.text(what).overflow(&self.hub.bounds).time(now);
        args
    }

    /// A place among the calls about a copy, taken in the order of this.
    pub(super) fn take_place(self: &Arc<Self>) -> Place {
        Place {
            number: self.turns.0.fetch_add(1, Ordering::AcqRel),
            lanes: self.clone(),
        }
    }

    // --- All realms ---

    /// Learns which realms and queues there are.
    pub(super) async fn load(&self) -> Result<()> {
        self.load_realms().await?;
        self.records().await.map(|_| ())
    }

    /// Learns which realms there are; others may have made some and given other names to some, which are
    /// told as news.
    pub(super) async fn load_realms(&self) -> Result<()> {
        let _renaming = self.renaming.lock().await;
        self.learn_realms().await
    }

    async fn learn_realms(&self) -> Result<()> {
        let (_, mut link) = self.hub.links.get().await?;
        let all = names::all(&self.hub, &mut link).await?;
        let renamed: Vec<_> = {
            let mut realms = self.realms.write();
            let by_tag = realms.values().map(|lane| (lane.tag(), lane.clone()));
            let by_tag: HashMap<u64, Arc<Lane>> = by_tag.collect();
            let learn = |(realm, tag): (RealmId, u64)| {
                let Some(lane) = by_tag.get(&tag) else {
                    let lane = realms.entry(realm.clone());
                    let (hub, runtime) = (self.hub.clone(), self.runtime.clone());
                    let new = || Lane::new(hub, runtime, realm, Some(tag));
                    lane.or_insert_with(new).tag.store(tag, Ordering::Release);
                    return None;
                };
                let before = lane.realm();
                if before == realm {
                    return None;
                }
                if realms
                    .get(&before)
                    .is_some_and(|there| Arc::ptr_eq(there, lane))
                {
                    realms.remove(&before);
                }
                self.give_name(&mut realms, lane, &realm);
                Some(News::Renamed(before, realm))
            };
            all.into_iter().filter_map(learn).collect()
        };
        renamed
            .into_iter()
            .for_each(|news| notices::tell(self, news));
        Ok(())
    }

    fn give_name(
        &self,
        realms: &mut HashMap<RealmId, Arc<Lane>>,
        lane: &Arc<Lane>,
        name: &RealmId,
    ) {
        *lane.name.write() = name.clone();
        if self.hub.is_told.load(Ordering::Acquire) {
            self.renamed.lock().push(lane.tag());
        }
        realms.insert(name.clone(), lane.clone());
    }

    /// The records of all queues in the order they were opened.
    pub(super) async fn records(&self) -> Result<Vec<QueueRecord>> {
        let mut records = Vec::new();
        for lane in self.all() {
            let mut after = "0".to_owned();
            while after != "-" {
                let mut args = self.args("records", Timestamp(0));
                args.text(&after).size(BITE);
                let answer = self.ask(&lane, Script::Read, args).await?;
                let mut parts = answers::list(answer)?;
                let found = answers::list(parts.pop().ok_or_else(answers::strange)?)?;
                after = answers::text(parts.first().ok_or_else(answers::strange)?)?.to_owned();
                for value in found {
                    match answers::left_over(&value)? {
                        Some(queue) => self.learn(queue, &lane),
                        None => {
                            let record = answers::whole_record(value, &lane.realm())?;
                            self.learn(record.queue, &lane);
                            records.push(record);
                        }
                    }
                }
            }
        }
        records.sort_unstable_by_key(|record| record.queue);
        Ok(records)
    }

    pub(super) async fn delayed(
        &self,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<Delayed>, Option<Timestamp>)> {
        let (mut rows, mut next) = (Vec::new(), None);
        let holding = |lane: &Arc<Lane>| lane.holds.load(Ordering::Acquire);
        for lane in self.all().into_iter().filter(holding) {
            let mut args = self.args("delayed", now);
            args.size(limit);
            // Whoever holds one meanwhile says so again.
            lane.holds.store(false, Ordering::Release);
            let answer = self.ask(&lane, Script::Read, args).await;
            let read = answer.and_then(|answer| read_delayed(answer, &lane));
            if !matches!(&read, Ok((0, ..))) {
                lane.holds.store(true, Ordering::Release);
            }
            let (_, following, found) = read?;
            rows.extend(found);
            next = following.into_iter().chain(next).min();
        }
        // Ids ascend, so those of one moment come in the order they were accepted.
        rows.sort_by_key(|row| row.due);
        if rows.len() > limit {
            let first = rows.drain(limit..).next().map(|row| row.due);
            next = first.into_iter().chain(next).min();
        }
        Ok((rows, next))
    }

    pub(super) async fn drop_delayed(&self, ids: &[MessageId]) -> Result<()> {
        let holding = |lane: &Arc<Lane>| lane.holds.load(Ordering::Acquire);
        for lane in self.all().into_iter().filter(holding) {
            for some in ids.chunks(ROWS) {
                let mut args = self.args("drop_delayed", Timestamp(0));
                some.iter().for_each(|id| {
                    args.id(id.0);
                });
                self.ask(&lane, Script::Queues, args).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn maintain(
        self: &Arc<Self>,
        budget: usize,
        now: Timestamp,
    ) -> Result<Maintained> {
        tell::look_after(self).await?;
        let mut done = Maintained::default();
        let mut expired = BTreeMap::new();
        let mut left = budget.max(1);
        for lane in self.all() {
            while left > 0 && lane.wake.load(Ordering::Acquire) <= now.0 {
                let before = lane.wake.swap(u64::MAX, Ordering::AcqRel);
                let answer = self.ask(&lane, Script::Maintain, self.upkeep(left, now));
                let bite = answer.await.and_then(|answer| Bite::read(&answer));
                let Ok(bite) = bite else {
                    lane.wake_at(before);
                    bite?;
                    continue;
                };
                lane.wake_at(bite.again.map_or(u64::MAX, |at| at.0));
                left = left.saturating_sub(bite.looked.max(1));
                self.hub.count(|counters| {
                    counters.expired += bite.expired;
                    counters.dead_letters_expired += bite.letters;
                });
                if bite.expired > 0 {
                    *expired.entry(lane.realm()).or_default() += bite.expired;
                }
            }
        }
        done.more = left == 0;
        done.expired = expired;
        Ok(done)
    }

    pub(super) fn upkeep(&self, left: usize, now: Timestamp) -> Args {
        let bounds = &self.hub.bounds;
        let mut args = Args::new();
        args.overflow(bounds).time(now).size(left.min(ROWS));
        args.number(millis(bounds.dlq_ttl)).memory(bounds);
        args
    }

    /// Those that are known.
    pub(super) fn names(&self) -> Vec<RealmId> {
        self.realms.read().keys().cloned().collect()
    }

    // --- One realm ---

    pub(super) async fn realm_depth(&self, lane: &Arc<Lane>) -> Result<Depth> {
        let mut sum = Depth::default();
        let mut after = "0".to_owned();
        while after != "-" {
            let mut args = self.args("depths", Timestamp(0));
            args.text(&after).size(BITE);
            let answer = self.ask(lane, Script::Read, args).await?;
            let mut parts = answers::list(answer)?;
            let found = answers::list(parts.pop().ok_or_else(answers::strange)?)?;
            after = answers::text(parts.first().ok_or_else(answers::strange)?)?.to_owned();
            for value in &found {
                let depth = answers::depth(answers::text(value)?)?;
                sum.count += depth.count;
                sum.bytes += depth.bytes;
                sum.oldest = sum.oldest.into_iter().chain(depth.oldest).min();
            }
        }
        Ok(sum)
    }

    pub(super) async fn purge_realm(&self, lane: &Arc<Lane>) -> Result<u64> {
        let mut gone = 0;
        loop {
            let args = self.args("purge_realm", Timestamp(0));
            let answer = self.ask(lane, Script::Queues, args).await?;
            let mut fields = Fields::of(answers::text(&answer)?);
            gone += fields.next::<u64>()?;
            if fields.next::<u8>()? == 0 {
                break;
            }
        }
        let mut queues = self.queues.write();
        queues.retain(|_, other| !Arc::ptr_eq(other, lane));
        Ok(gone)
    }

    pub(super) async fn rename(&self, from: &RealmId, to: &RealmId) -> Result<()> {
        let _renaming = self.renaming.lock().await;
        // Others may have made it meanwhile.
        self.learn_realms().await?;
        if let Some(there) = self.find(to) {
            let answer = self.ask(&there, Script::Read, self.args("holds", Timestamp(0)));
            let holds: u64 = Fields::of(answers::text(&answer.await?)?).next()?;
            if holds > 0 {
                let message =
                    format!("the store holds messages of a realm {to} already; purge it first");
                return Err(Error::new(ErrorKind::BadName, message));
            }
        }
        let Some(lane) = self.find(from) else {
            return Ok(());
        };
        let (number, mut link) = self.hub.links.get().await?;
        let renamed = names::rename(&self.hub, &mut link, from, to).await;
        renamed.inspect_err(|_| self.hub.links.broken(number))?;
        let mut realms = self.realms.write();
        realms.remove(from);
        self.give_name(&mut realms, &lane, to);
        Ok(())
    }

    /// Ends all lines: what waits gets a moment.
    pub(super) async fn close(&self) {
        self.hub.close(hub::CLOSING);
        self.all().iter().for_each(|lane| lane.ring());
        self.hub.idle(hub::CLOSING * 2).await;
        notices::leave(self).await;
        if self.takes_copy.load(Ordering::Acquire) {
            leads::give_up(&self.hub).await;
        }
        self.hub.links.drop_present();
    }
}

/// See [`Lanes::take_place`]; gives the turn on when it is dropped.
pub(super) struct Place {
    number: u64,
    lanes: Arc<Lanes>,
}

impl Place {
    /// Ends when it is this one's turn.
    pub(super) async fn turn(&self) {
        let mut turns = self.lanes.turns.1.subscribe();
        // The sender is in the lanes.
        let _ = turns.wait_for(|turn| *turn >= self.number).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = self.number + 1;
        self.lanes
            .turns
            .1
            .send_modify(|turn| *turn = next.max(*turn));
    }
}

type HeldRows = (u64, Option<Timestamp>, Vec<Delayed>);

fn read_delayed(answer: Value, lane: &Lane) -> Result<HeldRows> {
    let mut parts = answers::list(answer)?;
    let found = answers::list(parts.pop().ok_or_else(answers::strange)?)?;
    let mut fields = Fields::of(answers::text(parts.first().ok_or_else(answers::strange)?)?);
    let (next, held) = (fields.time()?, fields.next()?);
    let realm = lane.realm();
    let rows = found
        .into_iter()
        .map(|value| answers::delayed(value, &realm));
    let rows: Vec<_> = rows.collect::<Result<_>>()?;
    Ok((held, next, rows.into_iter().flatten().collect()))
}

struct Bite {
    looked: usize,
    expired: u64,
    letters: u64,
    again: Option<Timestamp>,
}

impl Bite {
    fn read(answer: &Value) -> Result<Self> {
        let mut fields = Fields::of(answers::text(answer)?);
        let looked = fields.next()?;
        let _more: u8 = fields.next()?;
        Ok(Self {
            looked,
            expired: fields.next()?,
            letters: fields.next()?,
            again: fields.time()?,
        })
    }
}
