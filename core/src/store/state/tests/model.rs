//! Any store against a naive model: every queue of the model keeps its own entries.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use proptest::prelude::*;

use bytes::Bytes;

use crate::ErrorKind;
use crate::clock::Timestamp;
use crate::model::{Message, MessageId};

use super::super::super::ExportCursor;
use super::super::super::types::{
    Append, Bounds, Burial, DeadLetterId, LogId, Overflow, PageLimit, QueueChange, QueueId, Quota,
    Seq, Settled, StoreCounters,
};
use super::naive::{Item, Model, ModelQueue};
use super::ops::{Op, ops};
use super::{Subject, exception, now, realm, spec};

const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

/// A few rows.
const FEW: PageLimit = PageLimit {
    entries: 3,
    bytes: 400,
};

struct Pair<S> {
    subject: S,
    /// A copy that has begun.
    copy: Option<(S, ExportCursor)>,
    model: Model,
    now: Timestamp,
    next_id: u64,
    /// Every message of the present log by its seq.
    alive: BTreeMap<Seq, Weak<Message>>,
}

impl<S: Subject> Pair<S> {
    fn new(bounds: Bounds) -> Self {
        Self {
            subject: S::make(bounds.clone()),
            copy: None,
            model: Model {
                bounds,
                head: 0,
                log: LogId(0),
                queues: BTreeMap::new(),
                dead: BTreeMap::new(),
                counters: StoreCounters::default(),
            },
            now: Timestamp(1000),
            next_id: 0,
            alive: BTreeMap::new(),
        }
    }

    /// The model's queue with its nth entry.
    fn nth(&mut self, queue: usize, nth: usize) -> Option<(QueueId, Seq, &mut ModelQueue)> {
        let queue = self.model.live(queue)?;
        let seq = *queue.items.keys().nth(nth)?;
        Some((queue.id, seq, queue))
    }

    fn update(&self, queue: QueueId, change: QueueChange) {
        now(self.subject.store().update(queue, change, self.now)).unwrap();
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Append {
                guaranteed,
                ttl,
                size,
                skip,
            } => self.append(guaranteed, ttl, size, skip),
            Op::Open { queue, durable } => self.open(queue, durable),
            Op::Forget { queue, purge } => self.forget(queue, purge),
            Op::Low { queue, nth } => self.low(queue, nth),
            Op::Done { queue, nth } => self.done(queue, nth),
            Op::Except { queue, nth } => self.except(queue, nth),
            Op::Bury { queue, nth } => self.bury(queue, nth),
            Op::Revive { nth } => self.revive(nth),
            Op::Settle { queue, seq } => self.settle(queue, seq),
            Op::Page { queue } => self.page(queue),
            Op::Due { queue } => self.due(queue),
            Op::Purge { queue } => self.purge(queue),
            Op::Bound { queue, queued } => {
                let quota = Quota {
                    queue,
                    queued: queued.unwrap_or(Quota::ANY),
                    bytes: Quota::ANY,
                };
                self.model.bounds.realms.set(quota, [].into());
            }
            Op::Maintain => {
                self.model.maintain(self.now);
                while now(self.subject.store().maintain(3, self.now))
                    .unwrap()
                    .more
                {}
            }
            Op::Reopen => {
                self.copy = None;
                if self.subject.reopen() {
                    self.model.counters = StoreCounters::default();
                }
            }
            Op::Fail => {
                self.copy = None;
                self.subject.fail();
            }
            Op::Copy => {
                self.copy(FEW);
            }
            Op::Move => self.move_all(),
            Op::Wait { ms } => self.now = self.now.plus(Duration::from_millis(ms)),
        }
        if self.model.queues.is_empty() {
            self.model.head = 0;
            self.alive.clear();
        }
    }

    /// Copies some rows; how many are left.
    fn copy(&mut self, limit: PageLimit) -> u64 {
        let (target, cursor) = match self.copy.take() {
            Some((target, cursor)) => (target, Some(cursor)),
            None => {
                let target = self.subject.target(&self.model.bounds);
                now(target.store().begin_import(false)).unwrap();
                (target, None)
            }
        };
        let page = now(self.subject.store().export(cursor, limit)).unwrap();
        now(target.store().import(page.records)).unwrap();
        self.copy = Some((target, page.next));
        page.left
    }

    fn move_all(&mut self) {
        while self.copy(FEW) > 0 {}
        if let Some((target, _)) = self.copy.take() {
            now(target.store().end_import()).unwrap();
            now(target.store().lead()).unwrap();
            self.subject = target;
            self.model.counters = StoreCounters::default();
            self.compare();
        }
    }

    fn low(&mut self, queue: usize, nth: usize) {
        if let Some((id, seq, model)) = self.nth(queue, nth) {
            model
                .items
                .retain(|at, item| *at > seq || item.due.is_some());
            let change = QueueChange {
                low: Some(seq),
                ..QueueChange::default()
            };
            self.update(id, change);
        }
    }

    fn done(&mut self, queue: usize, nth: usize) {
        if let Some((id, seq, model)) = self.nth(queue, nth) {
            model.items.remove(&seq);
            let change = QueueChange {
                done: vec![seq],
                ..QueueChange::default()
            };
            self.update(id, change);
        }
    }

    fn except(&mut self, queue: usize, nth: usize) {
        let due = self.now.plus(Duration::from_millis(nth as u64));
        if let Some((id, seq, model)) = self.nth(queue, nth) {
            model.items.get_mut(&seq).unwrap().due = Some(due);
            let change = QueueChange {
                except: vec![exception(seq, due)],
                ..QueueChange::default()
            };
            self.update(id, change);
        }
    }

    fn bury(&mut self, queue: usize, nth: usize) {
        if let Some((queue, seq, model)) = self.nth(queue, nth) {
            let item = model.items.remove(&seq).unwrap();
            let id = DeadLetterId { queue, seq };
            self.model.dead.insert(id, item.message);
            self.model.counters.buried += 1;
            let burial = Burial {
                seq,
                attempts: 3,
                reason: "x".into(),
                first_error: None,
                last_error: None,
            };
            let change = QueueChange {
                bury: vec![burial],
                ..QueueChange::default()
            };
            self.update(queue, change);
        }
    }

    fn settle(&mut self, queue: usize, seq: Seq) {
        if let Some(model) = self.model.live(queue) {
            let answer = now(self.subject.store().settle(model.id, vec![seq])).unwrap();
            let was_there = model.items.remove(&seq).is_some();
            assert_eq!(answer[0] == Settled::Now, was_there, "{answer:?}");
        }
    }

    fn page(&mut self, queue: usize) {
        if let Some(model) = self.model.live(queue) {
            let page = now(self.subject.store().page(model.id, 0, ALL, self.now)).unwrap();
            let expired = model.drop_expired(self.now, |item| item.due.is_none());
            assert_eq!((page.expired, page.end), (expired, true));
            let waiting = model.items.iter().filter(|(_, item)| item.due.is_none());
            let found = page.entries.iter().map(|entry| &entry.seq);
            assert!(found.eq(waiting.map(|(seq, _)| seq)));
            self.model.counters.expired += expired;
        }
    }

    fn due(&mut self, queue: usize) {
        let at = self.now;
        if let Some(model) = self.model.live(queue) {
            let due = now(self.subject.store().due(model.id, ALL, at)).unwrap();
            let is_due = |item: &Item| item.due.is_some_and(|due| due <= at);
            assert_eq!(due.expired, model.drop_expired(at, is_due));
            let items = model.items.iter().filter(|(_, item)| is_due(item));
            let mut expected: Vec<_> = items.map(|(seq, item)| (item.due, *seq)).collect();
            expected.sort_unstable();
            let found = due.entries.iter().map(|entry| (entry.due, entry.seq));
            assert!(found.eq(expected));
            self.model.counters.expired += due.expired;
        }
    }

    fn purge(&mut self, queue: usize) {
        if let Some(model) = self.model.live(queue) {
            let purged = now(self.subject.store().purge_queue(model.id)).unwrap();
            assert_eq!(purged, model.items.len() as u64);
            model.items.clear();
        }
    }

    fn append(&mut self, guaranteed: bool, ttl: u64, size: usize, skip: Option<usize>) {
        self.next_id += 1;
        let message = Arc::new(Message {
            id: MessageId(self.next_id),
            event: "k".into(),
            from: "p".into(),
            body: Some(Bytes::from(vec![b'1'; size])),
            extras: None,
            produced: self.now,
            expires: (ttl < 50).then(|| self.now.plus(Duration::from_millis(ttl))),
            guaranteed,
            key: None,
        });
        let skip = skip.and_then(|queue| Some(self.model.queues.get(&queue)?.id));
        let expected = self.model.append(&message, skip);
        let item = Append {
            // Twice is once.
            skip: skip.into_iter().chain(skip).collect(),
            ..Append::new(realm(), Arc::clone(&message), vec![self.model.log])
        };
        let answer = now(self.subject.store().append(vec![item]))
            .unwrap()
            .remove(0);
        match (expected, answer) {
            (None, Err(error)) => assert_eq!(error.kind(), ErrorKind::QueueFull),
            (Some(0), Ok(answer)) => assert!(answer.placed.is_empty()),
            (Some(queued), Ok(answer)) => {
                let placed = answer.placed[0];
                assert_eq!((placed.seq, placed.queued), (self.model.head, queued));
                self.alive.insert(placed.seq, Arc::downgrade(&message));
            }
            (expected, answer) => panic!("{expected:?} {answer:?}"),
        }
    }

    fn open(&mut self, name: usize, durable: bool) {
        let record = now(self.subject.store().open(spec(name, durable), self.now)).unwrap();
        self.model.log = record.log;
        let queue = self.model.queues.entry(name).or_insert(ModelQueue {
            id: record.queue,
            durable,
            is_left: false,
            items: BTreeMap::new(),
        });
        assert_eq!(record.queue, queue.id);
        (queue.durable, queue.is_left) = (durable, false);
        assert_eq!(record.head, self.model.head);
        let waiting = queue.items.iter().find(|(_, item)| item.due.is_none());
        let low = waiting.map_or(record.head, |(seq, _)| *seq - 1);
        assert!(record.low <= low, "low {} passes {low}", record.low);
    }

    fn forget(&mut self, name: usize, purge: bool) {
        let Some(queue) = self.model.live(name) else {
            return;
        };
        let left = now(self.subject.store().forget(queue.id, purge)).unwrap();
        assert_eq!(left, queue.items.len() as u64);
        queue.is_left = true;
        if purge || left == 0 {
            self.model.queues.remove(&name);
        }
    }

    fn revive(&mut self, nth: usize) {
        let Some(&id) = self.model.dead.keys().nth(nth) else {
            return;
        };
        let mut queues = self.model.queues.values_mut();
        let queue = queues.find(|queue| queue.id == id.queue);
        let answer = now(self.subject.store().revive(&realm(), id, self.now));
        let Some(queue) = queue else {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::DeliveryUnknown);
            return;
        };
        assert_eq!(answer, Ok(id.queue));
        let mut message = Message::clone(&self.model.dead.remove(&id).unwrap());
        let lives = message
            .expires
            .map(|expires| expires.since(message.produced));
        message.expires = lives.map(|lives| self.now.plus(lives));
        let item = Item {
            message: Arc::new(message),
            due: Some(self.now),
        };
        queue.items.insert(id.seq, item);
    }

    fn compare(&self) {
        for queue in self.model.queues.values().filter(|queue| !queue.is_left) {
            let found = now(self.subject.store().browse(queue.id, 0, ALL)).unwrap();
            let found: Vec<_> = found.iter().map(|e| (e.seq, e.due, e.message.id)).collect();
            let items = queue.items.iter();
            let expected: Vec<_> = items.map(|(seq, i)| (*seq, i.due, i.message.id)).collect();
            assert_eq!(found, expected);
            let depth = now(self.subject.store().depth(queue.id)).unwrap();
            let messages = || queue.items.values().map(|item| &item.message);
            let bytes: usize = messages().map(|message| message.size()).sum();
            assert_eq!(
                (depth.count, depth.bytes),
                (expected.len() as u64, bytes as u64)
            );
        }
        let depth = now(self.subject.store().realm_depth(&realm())).unwrap();
        assert_eq!(depth.count, self.model.sum());
        assert_eq!(self.subject.store().counters(), self.model.counters);
        self.subject
            .check(depth.count, self.model.queues.is_empty());
    }

    /// What is behind every queue has been let go.
    fn check_let_go(self) {
        drop(self.copy);
        let first = |queue: &ModelQueue| {
            let mut items = queue.items.iter();
            items
                .find(|(_, item)| item.due.is_none())
                .map(|(seq, _)| *seq)
        };
        let firsts = self.model.queues.values().filter_map(first);
        let lowest = firsts.min().unwrap_or(u64::MAX);
        let queues = self.model.queues.values();
        let items = queues.flat_map(|queue| queue.items.keys().copied());
        let dead = self.model.dead.keys().map(|id| id.seq);
        let needed: Vec<Seq> = items.chain(dead).collect();
        drop(self.model);
        for (seq, message) in &self.alive {
            let is_held = message.strong_count() > 0;
            assert!(
                !is_held || *seq >= lowest || needed.contains(seq),
                "{seq} is held"
            );
        }
    }
}

/// What a store is made with, and what is done to it.
#[derive(Debug, Clone)]
pub(crate) struct Story {
    max: u64,
    realm_max: Option<u64>,
    drops: bool,
    first: (bool, bool),
    ops: Vec<Op>,
}

pub(crate) fn stories() -> impl Strategy<Value = Story> {
    let realm_max = prop::option::weighted(0.2, 5..20u64);
    let first = (any::<bool>(), any::<bool>());
    let ops = prop::collection::vec(ops(), 1..150);
    (1..9u64, realm_max, any::<bool>(), first, ops).prop_map(
        |(max, realm_max, drops, first, ops)| Story {
            max,
            realm_max,
            drops,
            first,
            ops,
        },
    )
}

/// Tells a story to a store and to the model.
pub(crate) fn tell<S: Subject>(story: Story) {
    let overflow = match story.drops {
        true => Overflow::DropOldest,
        false => Overflow::Reject,
    };
    let mut pair = Pair::<S>::new(Bounds {
        max_queued: story.max,
        max_queued_per_realm: story.realm_max,
        overflow,
        ..Bounds::default()
    });
    pair.open(0, story.first.0);
    pair.open(1, story.first.1);
    // Looking at a queue settles what it lazily left; do it at some steps only.
    for (step, op) in story.ops.into_iter().enumerate() {
        pair.apply(op);
        if step % 7 == 0 {
            pair.compare();
        }
    }
    pair.compare();
    if S::SHARES_MESSAGES {
        pair.check_let_go();
    }
}
