//! Routing and delivery: who listens to what, who gets a message, what is kept for whom.
//!
//! [`Broker`] has the verbs that a session calls. It knows the store trait and opaque byte lines
//! ([`Outbox`]), no packet, no frame format and no socket; nothing in here waits for a reader.
//!
//! Every verb may be called from any thread inside a tokio runtime (tasks that wait on the store are
//! spawned there). Verbs of one session are called by one thread at a time, in order of arrival.
//! Locks are taken realm's state → its routes → a member's names, never across an await and never
//! while a line is written. Publishing takes none unless a key has come or gone.

mod admin;
mod anew;
mod attach;
mod awareness;
mod batch;
mod broadcast;
mod buffers;
mod catalogue;
mod claims;
mod courier;
mod delayed;
mod engine;
mod forget;
mod ids;
mod listen;
mod matches;
mod member;
mod opening;
mod orders;
mod pass;
mod ports;
mod publish;
mod queue;
mod reach;
mod realm;
mod realms;
mod registry;
mod remembered;
mod request;
mod roster;
mod routes;
mod sessions;
mod settle;
mod staging;
mod subscribe;
mod sweep;
mod takeover;
mod trie;
mod unsubscribe;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::RealmId;
use crate::store::{QueueRecord, SharedStore, Store};
use crate::{Error, ErrorKind, Result};

use engine::{Engine, EngineConfig};
use realm::Realm;

pub use batch::Batch;
pub use member::Member;
pub use pass::Pass;
pub use ports::{
    AllowAll, Content, Encode, Filter, Head, Notice, Outbox, Rights, SessionId, Subscriber,
};
pub use realms::HeldRealms;
pub use request::{
    Broadcast, BrokerConfig, ConsumerHello, Leave, ProducerHello, PublishRequest, Published,
    QueueStats, RealmStats, Removed, Reply, SessionInfo, Settled, SubscribeRequest, Subscribed,
    Unsubscribe, UnsubscribeRequest, Unsubscribed, Verdict,
};

/// The outcome of a verb that may wait. The verb takes effect, in order, when it is called; the
/// future only tells the outcome, except that of [`Broker::consumer`] and [`Broker::subscriber`],
/// which must be awaited. Often ready at the first poll.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// How long couriers may take to tell the store what was settled before the end.
const LONGEST_QUIET: Duration = Duration::from_secs(1);

/// The realm whose consumers see all others (wire §4.4).
const MONITORS: &str = "*";

fn ready<T: Send + 'static>(result: Result<T>) -> Answer<T> {
    Box::pin(std::future::ready(result))
}

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}

/// One broker: all realms of this process.
pub struct Broker {
    config: BrokerConfig,
    /// In milliseconds; what the store in force says, else the config.
    default_ttl: AtomicU64,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    realms: RwLock<HashMap<RealmId, Arc<Realm>>>,
    /// Realms that are being removed or renamed: nobody joins them.
    closing: Mutex<HashSet<RealmId>>,
    /// Realms that another broker is renaming; each as often as it is held.
    held: Mutex<Vec<RealmId>>,
    monitor: Arc<Realm>,
    sessions: AtomicUsize,
    last_session: AtomicU64,
    last_message: AtomicU64,
    /// Which of the brokers on its store it is.
    number: AtomicU16,
    is_closing: AtomicBool,
    /// Another store is taking over, see [`Broker::begin_anew`].
    is_moving: AtomicBool,
    keeps_idle: AtomicBool,
    delayed_bell: Arc<Notify>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("sessions", &self.sessions())
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// A broker over a store. Nothing is loaded yet, see [`Broker::open`].
    pub fn new(
        config: BrokerConfig,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        encode: Arc<dyn Encode>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let engine = EngineConfig {
            store_timeout: config.store_timeout,
        };
        let monitors = RealmId::parse(MONITORS).unwrap_or_default();
        let monitor = Arc::new(Realm::new(monitors, &metrics));
        Arc::new(Self {
            engine: Engine::new(store, clock, encode, engine),
            realms: RwLock::new(HashMap::from([(monitor.id.clone(), monitor.clone())])),
            closing: Mutex::default(),
            held: Mutex::default(),
            monitor,
            default_ttl: AtomicU64::new(millis(config.default_ttl)),
            config,
            metrics,
            sessions: AtomicUsize::new(0),
            last_session: AtomicU64::new(0),
            last_message: AtomicU64::new(0),
            number: AtomicU16::new(0),
            is_closing: AtomicBool::new(false),
            is_moving: AtomicBool::new(false),
            keeps_idle: AtomicBool::new(false),
            delayed_bell: Arc::new(Notify::new()),
        })
    }

    /// Loads remembered queues, then starts the sweep and the release of delayed messages (P4, P17).
    /// To be awaited before the port opens.
    ///
    /// # Errors
    /// What the store says.
    pub async fn open(self: &Arc<Self>) -> Result<()> {
        self.set_number();
        claims::listen(self);
        let records = self.store().queues().await?;
        self.load(records);
        tokio::spawn(sweep::run(Arc::downgrade(self)));
        tokio::spawn(delayed::run(Arc::downgrade(self)));
        Ok(())
    }

    fn load(self: &Arc<Self>, records: Vec<QueueRecord>) {
        let mut by_attach: Vec<&QueueRecord> = records.iter().collect();
        // What a name subscribed to last is what it comes back to.
        by_attach.sort_by_key(|record| record.seen);
        for record in by_attach {
            let realm = self.realm(&record.spec.realm);
            remembered::recall(&mut realm.state.lock(), record);
        }
        for record in records {
            let realm = self.realm(&record.spec.realm);
            let mut state = realm.state.lock();
            realm.remember(&mut state, &self.engine, &self.metrics, record);
        }
    }

    /// Closes every session, runs `change`, which puts another store in the place of the one in
    /// force, and goes on with the queues it answers: their numbers are others. Whoever comes
    /// meanwhile is refused and closed.
    ///
    /// # Errors
    /// What `change` says; then everything is as before, but for the sessions.
    pub async fn begin_anew<T>(
        self: &Arc<Self>,
        change: impl Future<Output = Result<(T, Vec<QueueRecord>)>>,
    ) -> Result<T> {
        anew::begin(self, change).await
    }

    /// A new session, let in with a pass. `socket_id` is its name in awareness.
    ///
    /// # Errors
    /// `forbidden` in realm `*` for who is no admin (F01); `realm_unknown` while the realm is being
    /// removed or renamed.
    pub fn join(
        self: &Arc<Self>,
        realm: &RealmId,
        socket_id: &str,
        outbox: Arc<dyn Outbox>,
        pass: Pass,
    ) -> Result<Arc<Member>> {
        sessions::join(self, realm, socket_id, outbox, pass)
    }

    /// CONSUMER. Waits while a silent holder of the name is probed (P22); the caller holds CONSUMER,
    /// SUBSCRIBE and UNSUBSCRIBE of this session back until the answer, all else goes on.
    /// On `duplicate_consumer` and `anonymous_refused` the caller writes the ERROR and closes.
    pub fn consumer(self: &Arc<Self>, member: &Arc<Member>, hello: ConsumerHello) -> Answer<()> {
        takeover::consumer(self, member, hello)
    }

    /// PRODUCER: the name goes to the newest session; the subscribers' list is sent to it (P22).
    ///
    /// # Errors
    /// `rate_limited` when the realm holds too many names; `shutting_down`.
    pub fn producer(self: &Arc<Self>, member: &Arc<Member>, hello: ProducerHello) -> Result<()> {
        takeover::producer(self, member, hello)
    }

    /// The name of a SUBSCRIBE that is to follow: the session's already, or registered by the road of
    /// [`Broker::consumer`], with all that is said there (wire §2.5, P22).
    pub fn subscriber(
        self: &Arc<Self>,
        member: &Arc<Member>,
        request: &SubscribeRequest,
    ) -> Answer<()> {
        takeover::subscriber(self, member, request)
    }

    /// SUBSCRIBE under a name of [`Broker::subscriber`]: live from this call on, backlog first (P5).
    /// Durable: answered after the commit.
    /// Errors: `duplicate_consumer` (the session does not hold the name), `consumer_id_taken`,
    /// `bad_command` (a group's retry differs), store trouble.
    pub fn subscribe(
        self: &Arc<Self>,
        member: &Arc<Member>,
        request: SubscribeRequest,
    ) -> Answer<Subscribed> {
        subscribe::subscribe(self, member, request)
    }

    /// UNSUBSCRIBE. Errors: `forbidden` for a name of another session.
    pub fn unsubscribe(
        self: &Arc<Self>,
        member: &Arc<Member>,
        request: UnsubscribeRequest,
    ) -> Answer<Unsubscribed> {
        unsubscribe::unsubscribe(self, member, &request)
    }

    /// PRODUCE. `reply` is called once, after the commit (P2); without one, failures are counted and
    /// told by `ERROR` (wire §6.10-13). Live copies leave at [`Broker::flush`].
    pub fn publish(
        self: &Arc<Self>,
        member: &Arc<Member>,
        batch: &mut Batch,
        request: PublishRequest<'_>,
        reply: Option<Reply>,
    ) {
        publish::publish(self, member, batch, &request, reply);
    }

    /// The end of a read: offers what was gathered and makes one append of all there is to store.
    pub fn flush(self: &Arc<Self>, member: &Arc<Member>, batch: &mut Batch) {
        publish::flush(self, member, batch);
    }

    /// ACK, NACK, WORKING (P9, P13). `attempt`: the `delivery_attempt` it speaks of, if it said.
    pub fn settle(
        &self,
        member: &Arc<Member>,
        msg_id: &str,
        attempt: Option<u32>,
        verdict: Verdict,
        answer: Settled,
    ) {
        settle::settle(self, member, msg_id, attempt, verdict, answer);
    }

    /// The peer has confirmed all bytes up to this position (P6).
    pub fn confirmed(&self, member: &Arc<Member>, position: u64) {
        let session = member.session();
        for queue in member.queues() {
            queue.confirmed(session, position);
        }
    }

    /// The session's line, after it had refused something, has room again.
    pub fn writable(&self, member: &Arc<Member>) {
        member.tell_gap(&**self.encode());
        let session = member.session();
        for queue in member.queues() {
            queue.writable(session);
        }
    }

    /// The session is not read for a reason of the caller's: its ack clocks stand still (P24).
    /// (The broker's own [`Outbox::pause`] does this by itself.) Calls nest by count.
    pub fn pause(&self, member: &Arc<Member>) {
        member.pause();
    }

    /// Undoes one [`Broker::pause`].
    pub fn resume(&self, member: &Arc<Member>) {
        member.resume();
    }

    /// The session has ended. Its names go offline, what it held goes back (P10); idempotent.
    pub fn leave(self: &Arc<Self>, member: &Arc<Member>, how: Leave) {
        takeover::leave(self, member, how);
    }

    /// Whether the store answers; writes, reads and deletes something.
    pub fn probe(&self) -> Answer<()> {
        Box::pin(self.store().probe())
    }

    /// Refuses new work, closes every session, waits for what is under way, closes the store (P32).
    /// Idempotent.
    ///
    /// # Errors
    /// `timeout` if the store was not done by then.
    pub async fn close(self: &Arc<Self>, timeout: Duration) -> Result<()> {
        self.is_closing.store(true, Ordering::Release);
        self.delayed_bell.notify_one();
        let realms = self.realms();
        realms
            .iter()
            .for_each(|realm| admin::kick_realm(self, realm));
        let deadline = self.clock().elapsed() + timeout;
        let quiet = self.clock().elapsed() + LONGEST_QUIET.min(timeout / 2);
        let done = async {
            // What sessions settled last is on its way from the couriers.
            tokio::select! {
                () = self.engine.quiet() => {}
                () = self.clock().sleep_until(quiet) => {}
            }
            // A store answers what it was given before it says that it is closed (its line's order).
            self.store().close().await
        };
        tokio::select! {
            biased;
            result = done => result,
            () = self.clock().sleep_until(deadline) => {
                let text = "the store was not done when the broker had to close";
                Err(Error::new(ErrorKind::Timeout, text))
            }
        }
    }

    /// What a message lives from now on that does not say (P15).
    pub fn set_default_ttl(&self, ttl: Duration) {
        self.default_ttl.store(millis(ttl), Ordering::Relaxed);
    }

    /// Takes on the number that the store in force gives it; after every change of stores.
    pub fn set_number(&self) {
        self.number.store(self.store().number(), Ordering::Relaxed);
    }

    /// One round of what the broker does from time to time by itself: idle names, old subscriptions,
    /// the store's upkeep.
    pub async fn sweep(self: &Arc<Self>) {
        sweep::round(self).await;
    }

    /// Takes names that have been idle for their time out of the live tables now; how many.
    pub fn sweep_idle(&self) -> usize {
        sweep::idle_names(self)
    }

    /// From now on only [`Broker::sweep_idle`] does that.
    pub fn stop_idle_eviction(&self) {
        self.keeps_idle.store(true, Ordering::Relaxed);
    }

    /// The store, for what is told of it.
    pub fn store(&self) -> &SharedStore {
        self.engine.store()
    }
}
