//! The courier as a task over the memory store, with a clock that moves when told and store faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{oneshot, watch};

use crate::ErrorKind;
use crate::clock::TestClock;
use crate::model::{Key, Message, RealmId, RetryPolicy};
use crate::store::faulty::FaultyStore;
use crate::store::{
    Append, MemoryStore, QueueKind, QueueRecord, QueueSettings, QueueSpec, SharedStore, Store,
};

use super::super::super::engine::{Engine, EngineConfig, QueueMetrics};
use super::super::super::ports::{Content, Encode, Head, Notice, Outbox, SessionId};
use super::super::super::queue::{Fed, Item, Leave, Mode, Outcome, Queue, Seat, Verdict, What};
use super::super::bench::message;
use crate::clock::Clock;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Writes `id attempt size` lines.
struct Lines;

impl Encode for Lines {
    fn head(&self, _: &Key) -> Arc<dyn Head> {
        Arc::new(Lines)
    }
    fn broadcast(&self, _: &Content<'_>, _: &mut Vec<u8>) {}
    fn notice(&self, _: &Notice<'_>) -> Bytes {
        Bytes::new()
    }
}

impl Head for Lines {
    fn plain(&self, _: &Content<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"- 1\n");
    }
    fn tracked(&self, _: &Content<'_>, msg_id: &str, attempt: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{msg_id} {attempt}\n").as_bytes());
    }
    fn repeated(&self, _: &Content<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"- 2\n");
    }
}

/// A session's line: what it got, as (id, attempt).
struct Line {
    got: watch::Sender<Vec<(String, u32)>>,
    asked: watch::Sender<u64>,
    is_full: AtomicBool,
}

impl Line {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            got: watch::Sender::new(Vec::new()),
            asked: watch::Sender::new(0),
            is_full: AtomicBool::new(false),
        })
    }

    /// Waits until `count` deliveries have come, and tells all of them.
    async fn until(&self, count: usize) -> Vec<(String, u32)> {
        let mut got = self.got.subscribe();
        let enough = got.wait_for(|got| got.len() >= count);
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, enough)
            .await
            .unwrap()
            .unwrap()
            .clone()
    }
}

impl Outbox for Line {
    fn offer(&self, frames: Bytes) -> Option<u64> {
        if self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        self.got.send_modify(|got| {
            for line in std::str::from_utf8(&frames).unwrap().lines() {
                let (id, attempt) = line.split_once(' ').unwrap();
                got.push((id.to_owned(), attempt.parse().unwrap()));
            }
        });
        Some(self.got.borrow().len() as u64)
    }
    fn notice(&self, _: Bytes) {}
    fn room(&self) -> usize {
        usize::MAX
    }
    fn confirm(&self) {
        self.asked.send_modify(|asked| *asked += 1);
    }
    fn close(&self) {}
    fn probe(&self) {}
    fn silence(&self) -> Duration {
        Duration::ZERO
    }
    fn acknowledged(&self) -> Option<bool> {
        None
    }
    fn is_polling(&self) -> bool {
        false
    }
    fn pause(&self) {}
    fn resume(&self) {}
}

struct Rig {
    clock: Arc<TestClock>,
    faults: Arc<FaultyStore>,
    engine: Arc<Engine>,
    record: QueueRecord,
    queue: Arc<Queue>,
}

impl Rig {
    async fn new() -> Self {
        let clock = TestClock::new();
        let faults = FaultyStore::new(Arc::new(MemoryStore::default()));
        let store: SharedStore = faults.clone();
        let config = EngineConfig::default();
        let engine = Engine::new(store, clock.clone(), Arc::new(Lines), config);
        let spec = QueueSpec {
            realm: RealmId::default(),
            key: Key::Any { event: "e".into() },
            kind: QueueKind::Consumer,
            name: "c".into(),
            settings: QueueSettings {
                durable: true,
                ..QueueSettings::default()
            },
        };
        let record = faults.open(spec, clock.now()).await.unwrap();
        let queue = Queue::new(engine.clone(), &record, QueueMetrics::default());
        Self {
            clock,
            faults,
            engine,
            record,
            queue,
        }
    }

    /// The process starts again with what is stored.
    async fn reopen(&mut self) {
        self.record = self.faults.queues().await.unwrap().remove(0);
        self.queue = Queue::new(self.engine.clone(), &self.record, QueueMetrics::default());
    }

    async fn append(&self, count: usize) -> Vec<Fed> {
        let make = |_| {
            let message = Message {
                produced: self.clock.now(),
                ..Message::clone(&message(None, None, 10))
            };
            Append::new(RealmId::default(), Arc::new(message), vec![self.record.log])
        };
        let batch: Vec<Append> = (0..count).map(make).collect();
        let messages: Vec<_> = batch.iter().map(|append| append.message.clone()).collect();
        let appended = self.faults.append(batch).await.unwrap();
        let placed = appended
            .into_iter()
            .map(|appended| appended.unwrap().placed[0].seq);
        placed
            .zip(messages)
            .map(|(seq, message)| Fed { seq, message })
            .collect()
    }

    fn attach(&self, session: u64, mode: Mode, prefetch: u32) -> Arc<Line> {
        let line = Line::new();
        let seat = Seat {
            session: SessionId(session),
            outbox: line.clone(),
            head: Arc::new(Lines),
            mode,
            prefetch,
            prefetch_bytes: 8 << 20,
            retry: RetryPolicy::default(),
            filter: None,
            floor: 0,
            lost: Arc::new(|_| ()),
            taken: Arc::new(|| ()),
        };
        self.queue.attach(seat, false);
        line
    }

    fn settle(&self, id: &str, what: What) -> oneshot::Receiver<Outcome> {
        let (sender, answer) = oneshot::channel();
        self.queue.settle(Verdict {
            item: id.parse::<Item>().unwrap(),
            attempt: None,
            what,
            answer: Box::new(move |outcome| drop(sender.send(outcome))),
        });
        answer
    }

    async fn ack(&self, id: &str) -> Outcome {
        let limit = Duration::from_secs(20);
        let answer = self.settle(id, What::Ack);
        tokio::time::timeout(limit, answer).await.unwrap().unwrap()
    }

    async fn depth(&self) -> u64 {
        self.faults.depth(self.record.queue).await.unwrap().count
    }

    /// Waits until no courier runs.
    async fn until_idle(&self) {
        let limit = Duration::from_secs(20);
        let idle = async {
            while self.queue.is_running() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(limit, idle).await.unwrap();
    }
}

const OK: Outcome = Outcome::Ok { duplicate: false };

#[tokio::test]
async fn a_backlog_and_what_comes_live_are_delivered_in_order_and_settled() {
    let rig = Rig::new().await;
    rig.append(600).await;
    let line = rig.attach(1, Mode::Ack { timeout: TIMEOUT }, 2000);
    let live = rig.append(600).await;
    rig.queue.feed(&live);
    let got = line.until(1200).await;
    let seqs = got.iter().map(|(id, _)| id.parse::<Item>().unwrap());
    let expected = (1..=1200).map(|seq| Item::Stored {
        queue: rig.record.queue,
        seq,
    });
    assert!(seqs.eq(expected));
    assert_eq!(rig.queue.snapshot().in_flight, 1200);
    for (id, attempt) in &got {
        assert_eq!(*attempt, 1);
        assert_eq!(rig.ack(id).await, OK);
    }
    assert_eq!(rig.depth().await, 0);
    assert_eq!(rig.ack(&got[0].0).await, Outcome::Ok { duplicate: true });
    assert!(!rig.queue.has_ahead());
}

#[tokio::test]
async fn a_courier_ends_with_its_last_session_and_the_next_one_goes_on() {
    let mut rig = Rig::new().await;
    rig.append(3).await;
    let mode = Mode::Ack { timeout: TIMEOUT };
    let line = rig.attach(1, mode, 10);
    let got = line.until(3).await;
    rig.queue.detach(SessionId(1), Leave::Returned);
    rig.until_idle().await;
    // Nobody is attached: an ack still counts (P9).
    assert_eq!(rig.ack(&got[1].0).await, OK);
    rig.until_idle().await;
    rig.reopen().await;
    let line = rig.attach(2, mode, 10);
    let again = line.until(2).await;
    assert_eq!(again, [(got[0].0.clone(), 2), (got[2].0.clone(), 2)]);
}

#[tokio::test]
async fn receipt_settles_without_ack_and_what_was_not_confirmed_is_a_repeat() {
    let rig = Rig::new().await;
    rig.append(2).await;
    let line = rig.attach(1, Mode::Confirm, 10);
    line.until(2).await;
    rig.queue.confirmed(SessionId(1), 2);
    let live = rig.append(1).await;
    rig.queue.feed(&live);
    line.until(3).await;
    rig.queue.detach(SessionId(1), Leave::Failed);
    let line = rig.attach(2, Mode::Flush, 10);
    assert_eq!(line.until(1).await, [("-".to_owned(), 2)]);
    rig.queue.detach(SessionId(2), Leave::Closed);
    rig.until_idle().await;
    assert_eq!(rig.depth().await, 0);
}

#[tokio::test]
async fn an_ack_waits_for_its_write_and_is_kept_when_the_store_is_slow() {
    let rig = Rig::new().await;
    rig.append(2).await;
    let line = rig.attach(1, Mode::Ack { timeout: TIMEOUT }, 10);
    let got = line.until(2).await;
    rig.faults.stall();
    let slow = rig.settle(&got[0].0, What::Ack);
    let later = rig.settle(&got[1].0, What::Ack);
    // Both are in the courier's hands once it has seen that they are not in flight.
    while rig.queue.snapshot().in_flight > 0 {
        tokio::task::yield_now().await;
    }
    rig.clock.advance(Duration::from_secs(5));
    assert_eq!(slow.await.unwrap(), Outcome::Kept);
    assert_eq!(later.await.unwrap(), Outcome::Kept);
    rig.faults.release();
    rig.queue.detach(SessionId(1), Leave::Closed);
    rig.until_idle().await;
    assert_eq!(rig.depth().await, 0);
}

#[tokio::test]
async fn a_store_that_refuses_for_a_while_costs_time_and_no_message() {
    let rig = Rig::new().await;
    rig.append(5).await;
    rig.faults.refuse(Some(ErrorKind::StoreUnavailable));
    let line = rig.attach(1, Mode::Ack { timeout: TIMEOUT }, 10);
    let failures = &rig.engine.counters.store_failures;
    for _ in 0..5 {
        let before = failures.load(Ordering::Relaxed);
        while failures.load(Ordering::Relaxed) == before {
            rig.clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    }
    rig.faults.refuse(None);
    let recovered = async {
        while line.got.borrow().len() < 5 {
            rig.clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, recovered).await.unwrap();
    for (id, _) in line.until(5).await {
        assert_eq!(rig.ack(&id).await, OK);
    }
    assert_eq!(rig.depth().await, 0);
}

#[tokio::test]
async fn a_failed_delivery_is_tried_again_and_then_a_dead_letter_of_the_store() {
    let rig = Rig::new().await;
    rig.append(1).await;
    let line = rig.attach(1, Mode::Ack { timeout: TIMEOUT }, 10);
    for attempt in 1..=3 {
        let got = line.until(attempt).await;
        assert_eq!(got[attempt - 1].1, attempt as u32);
        let reason = Some("no".into());
        let what = What::Nack {
            delay: None,
            requeue: true,
            reason,
        };
        assert_eq!(rig.settle(&got[0].0, what).await.unwrap(), OK);
        while attempt < 3 && rig.queue.snapshot().retrying == 0 {
            tokio::task::yield_now().await;
        }
        rig.clock.advance(Duration::from_secs(5));
    }
    let realm = RealmId::default();
    let dead = rig.faults.dead_letters(&realm, None, 10).await.unwrap();
    assert_eq!(
        (dead.len(), dead[0].attempts, &*dead[0].reason),
        (1, 3, "no")
    );
    let queue = rig.faults.revive(&realm, dead[0].id, rig.clock.now()).await;
    assert_eq!(queue.unwrap(), rig.record.queue);
    rig.queue.wake();
    assert_eq!(line.until(4).await[3].1, 4);
}

#[tokio::test]
async fn a_full_outbox_waits_for_room() {
    let rig = Rig::new().await;
    let line = rig.attach(1, Mode::Ack { timeout: TIMEOUT }, 10);
    line.is_full.store(true, Ordering::Relaxed);
    let live = rig.append(3).await;
    rig.queue.feed(&live);
    while rig.queue.snapshot().in_flight > 0 || !rig.queue.has_ahead() {
        tokio::task::yield_now().await;
    }
    line.is_full.store(false, Ordering::Relaxed);
    rig.queue.writable(SessionId(1));
    let attempts: Vec<u32> = line.until(3).await.iter().map(|(_, n)| *n).collect();
    assert_eq!(attempts, [1, 1, 1]);
}

#[tokio::test]
async fn live_copies_without_a_store_are_tracked_and_go_with_their_session() {
    let rig = Rig::new().await;
    let queue = Queue::volatile(
        rig.engine.clone(),
        RetryPolicy::default(),
        QueueMetrics::default(),
    );
    let rig = Rig { queue, ..rig };
    let line = rig.attach(1, Mode::Ack { timeout: TIMEOUT }, 10);
    for _ in 0..3 {
        rig.queue
            .live(SessionId(1), &message(None, None, 10), 0, false);
    }
    let got = line.until(3).await;
    assert!(got[0].0.starts_with('~'));
    assert_eq!(rig.ack(&got[0].0).await, OK);
    assert_eq!(rig.ack(&got[0].0).await, Outcome::Ok { duplicate: true });
    assert_eq!(rig.ack("~1-1").await, Outcome::Unknown);
    rig.queue.detach(SessionId(1), Leave::Closed);
    rig.until_idle().await;
    assert_eq!(rig.engine.counters.dropped.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn under_load_from_several_sides_every_entry_is_acked_once() {
    const COUNT: usize = 6_000;
    let rig = Arc::new(Rig::new().await);
    let mode = Mode::Ack { timeout: TIMEOUT };
    let lines = [1, 2, 3].map(|session| (session, rig.attach(session, mode, 64)));
    let producer = {
        let rig = rig.clone();
        tokio::spawn(async move {
            for _ in 0..COUNT / 20 {
                let fed = rig.append(20).await;
                rig.queue.feed(&fed);
                tokio::task::yield_now().await;
            }
        })
    };
    let consumers = lines.map(|(session, line)| {
        let rig = rig.clone();
        tokio::spawn(async move {
            let mut acked = Vec::new();
            while rig.depth().await > 0 || rig.engine.counters.sent.load(Ordering::Relaxed) == 0 {
                for (id, _) in line.got.send_replace(Vec::new()) {
                    assert_eq!(rig.ack(&id).await, OK, "{session}");
                    acked.push(id);
                }
                tokio::task::yield_now().await;
            }
            acked
        })
    });
    producer.await.unwrap();
    let mut all = Vec::new();
    for consumer in consumers {
        all.extend(consumer.await.unwrap());
    }
    // What was appended after a consumer had seen an empty queue is still there.
    let line = rig.attach(4, mode, 64);
    while rig.depth().await > 0 {
        for (id, _) in line.got.send_replace(Vec::new()) {
            assert_eq!(rig.ack(&id).await, OK);
            all.push(id);
        }
        for session in 1..=3 {
            rig.queue.detach(SessionId(session), Leave::Closed);
        }
        tokio::task::yield_now().await;
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), COUNT);
}
