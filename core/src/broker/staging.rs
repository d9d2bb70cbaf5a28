//! What a session has produced and the store has not answered yet (P24): a line of batches that are
//! completed in commit order, with a gauge that stops the session's reading and a time limit.
//!
//! Decides nothing about routes. A store that answers at once never comes here except to
//! [`Staged::complete`].

mod feeds;
mod line;

use std::collections::HashSet;
use std::sync::Arc;

use super::Broker;
use super::batch::{Answering, Batch, Segment, Stored};
use super::listen::KeyEntry;
use super::member::Member;
use super::request::{Published, Reply, refuse};
use crate::clock::Elapsed;
use crate::model::Message;
use crate::store::{Appended, Pending, QueueId};
use crate::{Error, ErrorKind, Result};

use feeds::Feeds;
pub(super) use line::Line;

/// One batch that the store has been given, or is to be given once queues are open that it is for.
pub(super) struct Staged {
    /// The store has not been asked yet; then there is nothing in `stored`.
    unasked: Option<Vec<Stored>>,
    pending: Pending<Vec<Result<Appended>>>,
    stored: Vec<Given>,
    /// Queues that were being opened when the store was asked: whoever subscribes by them is fed, too.
    behind: Vec<(Arc<KeyEntry>, u64)>,
    messages: usize,
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

impl Staged {
    fn refused() -> Self {
        Self {
            unasked: None,
            pending: Pending::ready(Ok(Vec::new())),
            stored: Vec::new(),
            behind: Vec::new(),
            messages: 0,
            segments: Vec::new(),
            replies: Vec::new(),
            since: Elapsed::ZERO,
            bytes: 0,
            held: HashSet::new(),
            is_refused: true,
            has_delayed: false,
        }
    }

    /// Takes over what the batch has to store, and what waits for that.
    pub(super) fn new(broker: &Broker, batch: &mut Batch) -> Self {
        let mut has_due = batch.appends.iter().map(|item| item.append.due);
        let has_delayed = has_due.any(|due| due.is_some());
        let unasked = std::mem::take(&mut batch.appends);
        Self {
            pending: Pending::ready(Ok(Vec::new())),
            stored: Vec::new(),
            behind: Vec::new(),
            messages: unasked.len(),
            unasked: Some(unasked),
            segments: std::mem::take(&mut batch.segments),
            replies: std::mem::take(&mut batch.replies),
            since: broker.clock().elapsed(),
            bytes: batch.bytes,
            held: std::mem::take(&mut batch.held),
            is_refused: false,
            has_delayed,
        }
    }

    /// Whether the store may be asked: it is known where everything goes.
    fn is_ready(&self) -> bool {
        let mut unasked = self.unasked.iter().flatten();
        unasked.all(Stored::is_ready)
    }

    /// Commits what the batch has to store, unless that was done.
    fn ask(&mut self, broker: &Broker) {
        let Some(unasked) = self.unasked.take().filter(|unasked| !unasked.is_empty()) else {
            return;
        };
        let mut appends = Vec::with_capacity(unasked.len());
        self.stored.reserve_exact(unasked.len());
        for mut item in unasked {
            item.locate();
            self.note_openings(&item.keys);
            self.stored.push(Given {
                message: item.append.message.clone(),
                keys: item.keys,
                skip: item.append.skip.clone(),
            });
            appends.push(item.append);
        }
        self.pending = broker.store().append(appends);
    }

    fn note_openings(&mut self, keys: &[Arc<KeyEntry>]) {
        for key in keys {
            let is_noted = |(other, _): &(Arc<KeyEntry>, u64)| Arc::ptr_eq(other, key);
            if let Some(last) = key.openings.last()
                && !self.behind.last().is_some_and(is_noted)
            {
                self.behind.push((key.clone(), last));
            }
        }
    }

    /// What the store says, asked as soon as it may be, and then by those behind it too.
    async fn outcome(&mut self, broker: &Broker, line: &Line) -> Result<Vec<Result<Appended>>> {
        for item in self.unasked.iter().flatten() {
            item.ready().await;
        }
        self.ask(broker);
        line.ask(broker);
        // The store answers these first.
        for (key, last) in &self.behind {
            key.all_opened(*last).await;
        }
        (&mut self.pending).await
    }

    /// Completes at once if the store has answered already and nothing is before it; else stages it.
    pub(super) fn finish(mut self, broker: &Arc<Broker>, member: &Arc<Member>) {
        // Only this thread makes the line hold anything back.
        if !member.line.is_holding() && self.is_ready() {
            self.ask(broker);
        }
        if member.line.is_idle()
            && self.unasked.is_none()
            && self.behind.is_empty()
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
        // What the store has not been asked yet it never is.
        self.unasked = None;
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
        let resumes = member.line.done(staged.messages, staged.bytes, &broker);
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
            result = staged.outcome(broker, &member.line) => return result,
            () = broker.clock().sleep_until(since + timeout) => {}
        }
        let limit = broker.clock().elapsed().saturating_sub(timeout);
        if !staged.is_refused && staged.since <= limit {
            staged.refuse(broker, member);
        }
        member.line.refuse_late(limit, broker, member);
    }
}
