//! Sessions whose lines are kept as text.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::gate::Gate;
use crate::Result;
use crate::broker::*;
use crate::clock::{Clock, TestClock};
use crate::metrics::Metrics;
use crate::model::*;
use crate::store::{Bounds, MemoryStore};

pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The line of one session: what was written to it, one text per delivery or notice.
#[derive(Default)]
pub(super) struct Line {
    pub(super) lines: Mutex<Vec<String>>,
    bell: Mutex<Option<watch::Sender<u64>>>,
    pub(super) is_full: AtomicBool,
    pub(super) is_closed: AtomicBool,
    pub(super) is_paused: AtomicBool,
    pub(super) is_polling: AtomicBool,
    pub(super) probes: AtomicU64,
    /// Milliseconds.
    pub(super) silence: AtomicU64,
    pub(super) acknowledged: Mutex<Option<bool>>,
    position: AtomicU64,
    asks: AtomicU64,
    pub(super) pieces: AtomicU64,
}

impl Line {
    fn write(&self, frames: &Bytes) {
        let text = String::from_utf8(frames.to_vec()).unwrap();
        self.lines.lock().extend(text.lines().map(str::to_owned));
        self.ring();
    }

    fn ring(&self) {
        if let Some(bell) = &*self.bell.lock() {
            bell.send_modify(|n| *n += 1);
        }
    }
}

impl Outbox for Line {
    fn offer(&self, frames: Bytes) -> Option<u64> {
        if self.is_full.load(Ordering::SeqCst) {
            return None;
        }
        self.pieces.fetch_add(1, Ordering::SeqCst);
        self.write(&frames);
        Some(
            self.position
                .fetch_add(frames.len() as u64, Ordering::SeqCst)
                + frames.len() as u64,
        )
    }
    fn notice(&self, frames: Bytes) {
        self.write(&frames);
    }
    fn room(&self) -> usize {
        if self.is_full.load(Ordering::SeqCst) {
            0
        } else {
            1 << 20
        }
    }
    fn confirm(&self) {
        self.asks.fetch_add(1, Ordering::SeqCst);
        self.ring();
    }
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
    fn probe(&self) {
        self.probes.fetch_add(1, Ordering::SeqCst);
    }
    fn silence(&self) -> Duration {
        Duration::from_millis(self.silence.load(Ordering::SeqCst))
    }
    fn acknowledged(&self) -> Option<bool> {
        *self.acknowledged.lock()
    }
    fn is_polling(&self) -> bool {
        self.is_polling.load(Ordering::SeqCst)
    }
    fn pause(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
    }
    fn resume(&self) {
        self.is_paused.store(false, Ordering::SeqCst);
    }
}

/// `CONSUME-<key> <event> <body> from <producer>` and the like.
struct Text;

struct TextHead(String);

impl Head for TextHead {
    fn plain(&self, what: &Content<'_>, out: &mut Vec<u8>) {
        let body = what.body.unwrap_or("-");
        let line = format!(
            "CONSUME-{} {} {body} from {}\n",
            self.0, what.event, what.from
        );
        out.extend_from_slice(line.as_bytes());
    }
    fn tracked(&self, what: &Content<'_>, msg_id: &str, attempt: u32, out: &mut Vec<u8>) {
        let body = what.body.unwrap_or("-");
        let line = format!(
            "CONSUME-{} {} {body} #{msg_id} x{attempt}\n",
            self.0, what.event
        );
        out.extend_from_slice(line.as_bytes());
    }
    fn repeated(&self, what: &Content<'_>, out: &mut Vec<u8>) {
        let body = what.body.unwrap_or("-");
        let line = format!("CONSUME-{} {} {body} again\n", self.0, what.event);
        out.extend_from_slice(line.as_bytes());
    }
}

fn names(keys: &[Arc<Key>]) -> String {
    let names: Vec<String> = keys.iter().map(|key| key.wire_name()).collect();
    names.join(",")
}

impl Encode for Text {
    fn head(&self, key: &Key) -> Arc<dyn Head> {
        Arc::new(TextHead(key.wire_name()))
    }
    fn broadcast(&self, what: &Content<'_>, out: &mut Vec<u8>) {
        let body = what.body.unwrap_or("-");
        out.extend_from_slice(format!("CONSUME-{} {body}\n", what.event).as_bytes());
    }
    fn notice(&self, notice: &Notice<'_>) -> Bytes {
        let text = match notice {
            Notice::Subscribed {
                producer_id,
                subscriber,
            } => format!(
                "SUBSCRIBE-TO-{producer_id} {} [{}] {:?}",
                subscriber.name,
                names(subscriber.events),
                subscriber.online,
            ),
            Notice::Unsubscribed {
                producer_id,
                event,
                subscriber,
            } => {
                format!("UNSUBSCRIBE-{producer_id} {event} {}", subscriber.name)
            }
            Notice::ConsumerOnline {
                producer_id,
                consumer,
                ..
            } => {
                format!("CONNECT-{producer_id} {consumer}")
            }
            Notice::ConsumerOffline {
                producer_id,
                consumer,
                ..
            } => {
                format!("DISCONNECT-{producer_id} {consumer}")
            }
            Notice::ProducerOnline {
                consumer_id,
                producer,
                ..
            } => {
                format!("CONNECT-{consumer_id} {producer}")
            }
            Notice::ProducerOffline {
                consumer_id,
                producer,
                ..
            } => {
                format!("DISCONNECT-{consumer_id} {producer}")
            }
            Notice::ProducerReplaced => "ERROR The same producer newly joined".to_owned(),
            Notice::Failed(error) => format!("ERROR {}", error.code()),
            Notice::Denied(error) => format!("AUTH_FAIL {}", error.code()),
            Notice::Gap { keys, dropped } => format!("GAP {} {dropped}", names(keys)),
        };
        Bytes::from(text + "\n")
    }
}

/// A broker over a store that can be held up.
pub(super) struct World {
    pub(super) broker: Arc<Broker>,
    pub(super) clock: Arc<TestClock>,
    pub(super) store: Arc<Gate>,
}

pub(super) async fn world() -> World {
    world_with(|_| {}, Bounds::default()).await
}

pub(super) async fn world_with(change: impl FnOnce(&mut BrokerConfig), bounds: Bounds) -> World {
    let store = Gate::new(Arc::new(MemoryStore::new(bounds)));
    over(change, store).await
}

pub(super) async fn over(change: impl FnOnce(&mut BrokerConfig), store: Arc<Gate>) -> World {
    let clock = TestClock::new();
    let mut config = BrokerConfig::default();
    change(&mut config);
    let metrics = Arc::new(Metrics::default());
    let time: Arc<dyn Clock> = clock.clone();
    let broker = Broker::new(config, store.clone(), time, Arc::new(Text), metrics);
    broker.open().await.unwrap();
    World {
        broker,
        clock,
        store,
    }
}

impl World {
    pub(super) fn join(&self) -> Client {
        self.join_in(&RealmId::default())
    }

    pub(super) fn join_in(&self, realm: &RealmId) -> Client {
        self.join_with(realm, Pass::default())
    }

    pub(super) fn join_with(&self, realm: &RealmId, pass: Pass) -> Client {
        let line = Arc::new(Line::default());
        let joined = self.broker.join(realm, "socket", line.clone(), pass);
        let member = joined.unwrap();
        Client {
            broker: self.broker.clone(),
            member,
            line,
            batch: Mutex::default(),
        }
    }

    /// A session that holds the consumer name already.
    pub(super) async fn consumer(&self, name: &str) -> Client {
        let client = self.join();
        client.consumer(name).await.unwrap();
        client
    }

    pub(super) fn producer(&self, name: &str) -> Client {
        let client = self.join();
        client.producer(name);
        client
    }

    /// Lets tasks run while the clock moves on in steps.
    pub(super) async fn pass(&self, time: Duration) {
        for _ in 0..20 {
            self.clock.advance(time / 20);
            breathe().await;
        }
    }
}

/// Lets all tasks run that can.
pub(super) async fn breathe() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(super) struct Client {
    pub(super) broker: Arc<Broker>,
    pub(super) member: Arc<Member>,
    pub(super) line: Arc<Line>,
    pub(super) batch: Mutex<Batch>,
}

pub(super) fn key(text: &str) -> Arc<Key> {
    let producer = |name: &str| ProducerName::parse(name).unwrap();
    let key = match text.split_once(':') {
        Some(("*", "#")) => Key::Everything {
            spelling: Spelling::Scope,
        },
        Some(("*", event)) => Key::Any {
            event: fold(event).into(),
        },
        Some(("topic", pattern)) => Key::Topic {
            producer: None,
            pattern: fold(pattern).into(),
        },
        Some((name, "#")) => Key::All {
            producer: producer(name),
            spelling: Spelling::Scope,
        },
        Some((name, event)) => Key::Event {
            producer: producer(name),
            event: fold(event).into(),
        },
        None => Key::Any {
            event: fold(text).into(),
        },
    };
    Arc::new(key)
}

/// A plain subscription; see the `with_` methods of [`Wish`].
pub(super) fn wish(consumer: &str, key_text: &str) -> SubscribeRequest {
    SubscribeRequest {
        key: key(key_text),
        consumer: ConsumerName::parse(consumer).unwrap(),
        id: None,
        consumer_id: None,
        options: SubscriptionOptions::default(),
    }
}

pub(super) trait Wish {
    fn durable(self) -> Self;
    fn ack(self) -> Self;
    fn group(self, name: &str) -> Self;
}

impl Wish for SubscribeRequest {
    fn durable(mut self) -> Self {
        self.options.durable = true;
        self
    }
    fn ack(mut self) -> Self {
        self.options.ack = true;
        self
    }
    fn group(mut self, name: &str) -> Self {
        self.options.group = Some(GroupName::parse(name).unwrap());
        self
    }
}

pub(super) fn message<'a>(from: &'a str, event: &'a str, body: &'a str) -> PublishRequest<'a> {
    PublishRequest {
        content: Content {
            event,
            from,
            body: Some(body),
            attachments: &[],
            enc: None,
            to: None,
            content_type: None,
            headers: None,
        },
        producer_id: None,
        ttl: None,
        guaranteed: false,
        broadcast: None,
        uid: None,
        instance_seq: None,
        ordering_key: None,
        due: None,
    }
}

pub(super) fn guaranteed<'a>(from: &'a str, event: &'a str, body: &'a str) -> PublishRequest<'a> {
    PublishRequest {
        guaranteed: true,
        ..message(from, event, body)
    }
}

impl Client {
    pub(super) fn hello(name: &str, instance: Option<&str>) -> ConsumerHello {
        ConsumerHello {
            name: ConsumerName::parse(name).unwrap(),
            id: None,
            instance: instance.map(Arc::from),
            gap: true,
        }
    }

    pub(super) async fn consumer(&self, name: &str) -> Result<()> {
        self.broker
            .consumer(&self.member, Self::hello(name, None))
            .await
    }

    pub(super) fn producer(&self, name: &str) {
        let hello = ProducerHello {
            name: ProducerName::parse(name).unwrap(),
            id: Some(format!("id-{name}").into()),
            default_ttl: None,
            instance: None,
        };
        self.broker.producer(&self.member, hello).unwrap();
    }

    pub(super) async fn subscribe(&self, request: SubscribeRequest) -> Result<Subscribed> {
        let answer = self.subscribe_at_once(request).await;
        breathe().await;
        answer
    }

    /// Does not let the queue's courier look at its backlog first.
    pub(super) async fn subscribe_at_once(&self, request: SubscribeRequest) -> Result<Subscribed> {
        self.broker.subscriber(&self.member, &request).await?;
        self.broker.subscribe(&self.member, request).await
    }

    /// Takes a PRODUCE into the read; nothing leaves before [`Client::flush`].
    pub(super) fn gather(
        &self,
        request: PublishRequest<'_>,
    ) -> oneshot::Receiver<Result<Published>> {
        let (tell, told) = oneshot::channel();
        let reply = Box::new(move |result| tell.send(result).unwrap());
        let mut batch = self.batch.lock();
        self.broker
            .publish(&self.member, &mut batch, request, Some(reply));
        told
    }

    pub(super) fn flush(&self) {
        self.broker.flush(&self.member, &mut self.batch.lock());
    }

    pub(super) async fn publish(&self, request: PublishRequest<'_>) -> Result<Published> {
        let told = self.gather(request);
        self.flush();
        told.await.unwrap()
    }

    pub(super) async fn settle(&self, id: &str, verdict: Verdict) -> Result<bool> {
        let (tell, told) = oneshot::channel();
        let answer = Box::new(move |result| tell.send(result).unwrap());
        self.broker.settle(&self.member, id, None, verdict, answer);
        tokio::time::timeout(PATIENCE, told).await.unwrap().unwrap()
    }

    pub(super) fn leave(&self, how: Leave) {
        self.broker.leave(&self.member, how);
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.line.lines.lock().clone()
    }

    /// Deliveries only, as `event body`.
    pub(super) fn bodies(&self) -> Vec<String> {
        let lines = self.lines();
        let deliveries = lines.iter().filter(|line| line.starts_with("CONSUME-"));
        deliveries
            .map(|line| line.split(' ').nth(2).unwrap_or("").to_owned())
            .collect()
    }

    /// Waits until so many lines are there.
    pub(super) async fn wait_for(&self, count: usize) -> Vec<String> {
        let (bell, mut heard) = watch::channel(0);
        *self.line.bell.lock() = Some(bell);
        let enough = async {
            while self.line.lines.lock().len() < count {
                if self.line.asks.swap(0, Ordering::SeqCst) > 0 {
                    let position = self.line.position.load(Ordering::SeqCst);
                    self.broker.confirmed(&self.member, position);
                }
                heard.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, enough).await.is_err() {
            panic!("wanted {count} lines, got {:?}", self.lines());
        }
        self.lines()
    }
}

/// The id in a tracked delivery's line.
pub(super) fn id_of(line: &str) -> String {
    let id = line.split(' ').find_map(|word| word.strip_prefix('#'));
    id.unwrap().to_owned()
}
