//! What a session has produced and the store has not answered yet (P24): a line of batches that are
//! completed in commit order, with a gauge that stops the session's reading and a time limit.
//!
//! Decides nothing about routes. A store that answers at once never comes here except to
//! [`Staged::complete`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indexmap::IndexMap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::Broker;
use super::batch::{Answering, Batch, Segment};
use super::listen::{KeyEntry, Slot};
use super::member::Member;
use super::queue::Fed;
use super::request::{Published, Reply, refuse};
use crate::clock::Elapsed;
use crate::model::Message;
use crate::store::{Appended, LogId, Pending, Placed, QueueId, Seq};
use crate::{Error, ErrorKind, Result};

/// The staging line of one session.
#[derive(Default)]
pub(super) struct Line {
    inner: Mutex<Inner>,
    /// Something is staged; saves the lock on the way of plain messages.
    is_busy: AtomicBool,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Staged>,
    is_draining: bool,
    messages: usize,
    bytes: usize,
    is_paused: bool,
    held: HashMap<usize, usize>,
}

/// One batch that the store has been given.
pub(super) struct Staged {
    pending: Pending<Vec<Result<Appended>>>,
    stored: Vec<Given>,
    segments: Vec<Segment>,
    replies: Vec<Answering>,
    since: Elapsed,
    bytes: usize,
    held: HashSet<usize>,
    is_refused: bool,
    /// Some of it is held until due (P17).
    has_delayed: bool,
}

/// A message that the store has been given.
struct Given {
    message: Arc<Message>,
    /// Whose logs take it.
    keys: Vec<Arc<KeyEntry>>,
    /// Who does not get it all the same.
    skip: Vec<QueueId>,
}

impl Line {
    /// Whether messages on this key wait here: later ones must wait too (P8).
    pub(super) fn holds(&self, key: usize) -> bool {
        self.is_busy.load(Ordering::Acquire) && self.inner.lock().held.contains_key(&key)
    }

    /// Whether nothing is staged.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::Acquire)
    }

    /// Puts a batch at the end; whether the caller must start a [`drain`], and whether the session
    /// must not be read from now on.
    fn push(&self, staged: Staged, broker: &Broker) -> (bool, bool) {
        let mut inner = self.inner.lock();
        self.is_busy.store(true, Ordering::Release);
        inner.messages += staged.stored.len();
        inner.bytes += staged.bytes;
        for key in &staged.held {
            *inner.held.entry(*key).or_default() += 1;
        }
        inner.waiting.push_back(staged);
        let is_full = inner.messages >= broker.config.staging_messages
            || inner.bytes >= broker.config.staging_bytes;
        let pauses = is_full && !inner.is_paused;
        inner.is_paused |= is_full;
        (!std::mem::replace(&mut inner.is_draining, true), pauses)
    }

    /// The next batch to wait for; `None`: the line is idle and whoever drains it may go.
    fn next(&self) -> Option<Staged> {
        let mut inner = self.inner.lock();
        let next = inner.waiting.pop_front();
        if next.is_none() {
            inner.is_draining = false;
            self.is_busy.store(false, Ordering::Release);
        }
        next
    }

    fn release(&self, held: &mut HashSet<usize>) {
        let mut inner = self.inner.lock();
        for key in held.drain() {
            if let Some(count) = inner.held.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    inner.held.remove(&key);
                }
            }
        }
    }

    /// A batch is through; whether the session may be read again.
    fn done(&self, messages: usize, bytes: usize, broker: &Broker) -> bool {
        let mut inner = self.inner.lock();
        inner.messages -= messages;
        inner.bytes -= bytes;
        let has_room = inner.messages <= broker.config.staging_messages / 2
            && inner.bytes <= broker.config.staging_bytes / 2;
        has_room && std::mem::take(&mut inner.is_paused)
    }

    /// When the first of the waiting batches is too old; refused ones are not waited for.
    fn oldest(&self) -> Option<Elapsed> {
        let inner = self.inner.lock();
        let mut waiting = inner.waiting.iter();
        waiting
            .find(|staged| !staged.is_refused)
            .map(|staged| staged.since)
    }

    /// Refuses what is older than `limit`.
    fn refuse_late(&self, limit: Elapsed, broker: &Broker, member: &Member) {
        loop {
            // Out of the line while it is refused: replies are called without a lock.
            let (at, mut staged) = {
                let mut inner = self.inner.lock();
                let at = inner.waiting.iter().position(|staged| !staged.is_refused);
                let Some(at) = at.filter(|at| inner.waiting[*at].since <= limit) else {
                    return;
                };
                match inner.waiting.get_mut(at) {
                    Some(slot) => (at, std::mem::replace(slot, Staged::refused())),
                    None => return,
                }
            };
            staged.refuse(broker, member);
            // Only this task takes from the front, so the place is still the same.
            if let Some(slot) = self.inner.lock().waiting.get_mut(at) {
                *slot = staged;
            }
        }
    }
}

impl Staged {
    fn refused() -> Self {
        Self {
            pending: Pending::ready(Ok(Vec::new())),
            stored: Vec::new(),
            segments: Vec::new(),
            replies: Vec::new(),
            since: Elapsed::ZERO,
            bytes: 0,
            held: HashSet::new(),
            is_refused: true,
            has_delayed: false,
        }
    }

    /// Commits what the batch has to store and takes over what waits for that.
    pub(super) fn new(broker: &Broker, batch: &mut Batch) -> Self {
        let mut appends = Vec::with_capacity(batch.appends.len());
        let mut stored = Vec::with_capacity(batch.appends.len());
        let mut has_delayed = false;
        for item in batch.appends.drain(..) {
            has_delayed |= item.append.due.is_some();
            stored.push(Given {
                message: item.append.message.clone(),
                keys: item.keys,
                skip: item.append.skip.clone(),
            });
            appends.push(item.append);
        }
        let pending = if appends.is_empty() {
            Pending::ready(Ok(Vec::new()))
        } else {
            broker.store().append(appends)
        };
        Self {
            pending,
            stored,
            segments: std::mem::take(&mut batch.segments),
            replies: std::mem::take(&mut batch.replies),
            since: broker.clock().elapsed(),
            bytes: batch.bytes,
            held: std::mem::take(&mut batch.held),
            is_refused: false,
            has_delayed,
        }
    }

    /// Completes at once if the store has answered already and nothing is before it; else stages it.
    pub(super) fn finish(mut self, broker: &Arc<Broker>, member: &Arc<Member>) {
        if member.line.is_idle()
            && let Some(result) = self.pending.take_ready()
        {
            return self.complete(broker, member, result);
        }
        let (starts, pauses) = member.line.push(self, broker);
        if pauses {
            member.outbox().pause();
            broker.pause(member);
        }
        if starts {
            tokio::spawn(drain(broker.clone(), member.clone()));
        }
    }

    /// What follows a commit: attached queues are fed, waiting copies leave, producers are answered.
    fn complete(
        &mut self,
        broker: &Broker,
        member: &Member,
        result: Result<Vec<Result<Appended>>>,
    ) {
        let results = match result {
            Ok(results) => results,
            Err(error) => self.stored.iter().map(|_| Err(error.clone())).collect(),
        };
        if self.has_delayed {
            broker.delayed_bell().notify_one();
        }
        self.drop_expired(broker, member);
        self.hand_out(member, &results);
        if self.is_refused {
            return;
        }
        self.answer(broker, member, |place| {
            results.get(place).cloned().unwrap_or_else(|| {
                let text = "the store answered fewer messages than it was given";
                Err(Error::new(ErrorKind::Internal, text))
            })
        });
    }

    /// What has waited beyond its TTL reaches nobody (P15).
    fn drop_expired(&mut self, broker: &Broker, member: &Member) {
        let now = broker.clock().now();
        let dropped = self.segments.iter_mut().map(|segment| segment.expire(now));
        member.realm_state().expired.add(dropped.sum());
    }

    /// Feeds attached queues and sends what waited, in the order of the PRODUCEs (P8): one feed per
    /// log and queue for all messages between two copies that waited.
    fn hand_out(&mut self, member: &Member, results: &[Result<Appended>]) {
        let mut feeds = Feeds::default();
        let mut queued = 0;
        let mut next = 0;
        let goes = |guard: usize| {
            let stored = results.get(guard).and_then(|outcome| outcome.as_ref().ok());
            stored.is_some_and(|stored| !stored.duplicate)
        };
        for place in 0..=self.stored.len() {
            while let Some(segment) = self.segments.get_mut(next) {
                if segment.manner.waits && segment.after > place {
                    break;
                }
                if segment.manner.waits && segment.manner.guard.is_none_or(goes) {
                    feeds.flush(member);
                    segment.send(member);
                }
                next += 1;
            }
            let (Some(given), Some(Ok(appended))) = (self.stored.get(place), results.get(place))
            else {
                continue;
            };
            for placed in &appended.placed {
                queued += u64::from(placed.queued);
                feeds.add(placed, given);
            }
        }
        feeds.flush(member);
        member.realm_state().queued.add(queued);
    }

    fn send(&mut self, member: &Member, may_go: impl Fn(usize) -> bool) {
        for segment in &mut self.segments {
            if segment.manner.waits && segment.manner.guard.is_none_or(&may_go) {
                segment.send(member);
            }
        }
    }

    fn answer(
        &mut self,
        broker: &Broker,
        member: &Member,
        outcome: impl Fn(usize) -> Result<Appended>,
    ) {
        let mut told = false;
        for answering in self.replies.drain(..) {
            let result = answering.append.map(&outcome).transpose();
            let result = result.map(|appended| answering.published(appended, &self.segments));
            if result.is_ok() || answering.reply.is_some() || !told {
                told |= result.is_err() && answering.reply.is_none();
                settle(broker, member, answering.reply, result);
            }
        }
    }

    /// The store took too long: producers are told no, what needs no store goes on (P24, P27).
    fn refuse(&mut self, broker: &Broker, member: &Member) {
        self.is_refused = true;
        self.drop_expired(broker, member);
        self.send(member, |_| false);
        let error = Error::new(
            ErrorKind::StoreTimeout,
            "the store did not answer in time; the message may or may not be stored",
        );
        self.answer(broker, member, |_| Err(error.clone()));
        // What was to go out with the refused ones reaches nobody, even if they are stored later.
        self.segments.clear();
        member.line.release(&mut self.held);
    }
}

/// What attached queues are to be fed, by log, and how far each log has got.
#[derive(Default)]
struct Feeds {
    logs: IndexMap<LogId, Feed>,
    ends: SmallVec<[(Arc<KeyEntry>, LogId, Seq); 2]>,
}

struct Feed {
    key: Arc<KeyEntry>,
    entries: Vec<Fed>,
    /// Which queue does not get which of them.
    skips: Vec<(QueueId, Seq)>,
    /// The last one that some queue was too full for; only the store knows which.
    refused: Option<Seq>,
}

impl Feeds {
    fn add(&mut self, placed: &Placed, given: &Given) {
        // Of what no queue had room for the log has nothing.
        if placed.queued == 0 {
            return;
        }
        let mut keys = given.keys.iter();
        let Some(key) = keys.find(|key| key.log() == Some(placed.log)) else {
            return;
        };
        match self.ends.iter_mut().find(|(_, log, _)| *log == placed.log) {
            Some((_, _, end)) => *end = placed.seq,
            None => self.ends.push((key.clone(), placed.log, placed.seq)),
        }
        if key.attached.len() == 0 {
            return;
        }
        let feed = self.logs.entry(placed.log).or_insert_with(|| Feed {
            key: key.clone(),
            entries: Vec::new(),
            skips: Vec::new(),
            refused: None,
        });
        if placed.refused > 0 {
            feed.refused = Some(placed.seq);
            return;
        }
        let skips = given.skip.iter().map(|queue| (*queue, placed.seq));
        feed.skips.extend(skips);
        feed.entries.push(Fed {
            seq: placed.seq,
            message: given.message.clone(),
        });
    }

    fn flush(&mut self, producer: &Member) {
        producer.note_stored(self.ends.drain(..));
        for (_, feed) in self.logs.drain(..) {
            feed.key.may_be_ahead();
            for slot in feed.key.attached.all().iter() {
                feed.to(slot);
            }
        }
    }
}

impl Feed {
    /// What a queue is not fed is a gap to it, and its courier reads what it is to get from there.
    fn to(&self, slot: &Slot) {
        if self.skips.iter().all(|(queue, _)| *queue != slot.id) {
            slot.queue.feed(&self.entries);
        } else {
            let is_for_it = |fed: &&Fed| !self.skips.contains(&(slot.id, fed.seq));
            let entries: Vec<Fed> = self.entries.iter().filter(is_for_it).cloned().collect();
            slot.queue.feed(&entries);
        }
        if let Some(seq) = self.refused {
            slot.queue.missed(seq);
        }
    }
}

impl Answering {
    pub(super) fn published(&self, appended: Option<Appended>, segments: &[Segment]) -> Published {
        let copies = self.segments.iter().filter_map(|at| segments.get(*at));
        let delivered = copies.map(|segment| segment.delivered).sum();
        let Some(appended) = appended.or_else(|| self.known.clone()) else {
            return Published {
                id: self.id,
                queued: 0,
                delivered,
                refused: 0,
                duplicate: false,
                delayed: false,
            };
        };
        Published {
            id: appended.id,
            queued: appended.placed.iter().map(|placed| placed.queued).sum(),
            delivered,
            refused: appended.placed.iter().map(|placed| placed.refused).sum(),
            duplicate: appended.duplicate,
            delayed: appended.delayed,
        }
    }
}

/// Tells a producer, by its reply or, for a failure without one, by a notice (wire §6.10-13).
pub(super) fn settle(
    broker: &Broker,
    member: &Member,
    reply: Option<Reply>,
    result: Result<Published>,
) {
    match result {
        Ok(published) => {
            if let Some(reply) = reply {
                reply(Ok(published));
            }
        }
        Err(error) => refuse(broker, member, reply, error),
    }
}

/// Waits for a session's staged batches one after the other; ends with the last.
async fn drain(broker: Arc<Broker>, member: Arc<Member>) {
    while let Some(mut staged) = member.line.next() {
        let result = wait(&broker, &member, &mut staged).await;
        staged.complete(&broker, &member, result);
        member.line.release(&mut staged.held);
        let resumes = member.line.done(staged.stored.len(), staged.bytes, &broker);
        if resumes {
            member.outbox().resume();
            broker.resume(&member);
        }
    }
}

/// The store's answer for this batch; meanwhile it and those behind it are refused as they get too old.
async fn wait(
    broker: &Broker,
    member: &Member,
    staged: &mut Staged,
) -> Result<Vec<Result<Appended>>> {
    let timeout = broker.config.store_timeout;
    loop {
        let since = if staged.is_refused {
            member.line.oldest()
        } else {
            Some(staged.since)
        };
        // With nothing to refuse, look again later: more may be staged by then.
        let since = since.unwrap_or_else(|| broker.clock().elapsed());
        tokio::select! {
            biased;
            result = &mut staged.pending => return result,
            () = broker.clock().sleep_until(since + timeout) => {}
        }
        let limit = broker.clock().elapsed().saturating_sub(timeout);
        if !staged.is_refused && staged.since <= limit {
            staged.refuse(broker, member);
        }
        member.line.refuse_late(limit, broker, member);
    }
}
