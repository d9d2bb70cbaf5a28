//! CONSUMER, PRODUCER, SUBSCRIBE, UNSUBSCRIBE: names and subscriptions of a session, in order.
//!
//! CONSUMER, and SUBSCRIBE under a name that is not the session's yet, may wait while a silent holder
//! of the name is probed (P22). What names and subscribes behind it is held back until then;
//! everything else of the session goes on.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::broker::{
    Answer, Broker, ConsumerHello, Member, ProducerHello, SubscribeRequest, UnsubscribeRequest,
};
use crate::limits::{Caps, Exceeded, RealmUse};
use crate::model::{RealmId, is_anonymous};
use crate::protocol::inbound::{Consumer, Producer, Subscribe, Target, Unsubscribe};
use crate::protocol::outbound;
use crate::transport::Link;
use crate::{Error, ErrorKind, Result, broker};

use super::limited::Limited;
use super::replies::Replies;
use super::{Rules, Session};

/// Verbs held back behind one that waits for its name; the client is not read meanwhile if there are more.
const MAX_HELD: usize = 4_096;

/// The names side of a session; outlives the read that called it.
pub(super) struct Identity {
    broker: Arc<Broker>,
    member: Arc<Member>,
    link: Link,
    replies: Arc<Replies>,
    quota: Quota,
    line: Mutex<Line>,
}

/// How many names and subscriptions a session may have, and has.
pub(super) struct Quota {
    rules: Arc<Rules>,
    used: Mutex<RealmUse>,
    limited: Arc<Limited>,
    is_auth_on: bool,
}

impl Quota {
    pub(super) fn new(
        rules: Arc<Rules>,
        used: RealmUse,
        limited: Arc<Limited>,
        is_auth_on: bool,
    ) -> Self {
        Self {
            rules,
            used: Mutex::new(used),
            limited,
            is_auth_on,
        }
    }

    /// Whether there is room for what `ask` asks for; if not, the client is told.
    fn has_room(
        &self,
        member: &Member,
        reply: Option<u64>,
        ask: impl FnOnce(&RealmUse, &Caps) -> Result<(), Exceeded>,
    ) -> bool {
        let caps = self.rules.load().caps(member.realm(), self.is_auth_on);
        let asked = ask(&self.used.lock(), &caps);
        asked
            .map_err(|exceeded| self.limited.refuse(exceeded, reply, true))
            .is_ok()
    }

    /// Counts anew.
    fn count(&self, member: &Member) {
        let (names, subscriptions) = (member.registrations(), member.subscriptions());
        self.used.lock().set(names, subscriptions);
    }
}

#[derive(Default)]
struct Line {
    /// A verb is being run, or waits for its name.
    is_busy: bool,
    is_paused: bool,
    has_ended: bool,
    held: VecDeque<Held>,
}

/// What is still to wait for before the next verb may run.
type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

enum Held {
    Consumer(ConsumerHello, Option<u64>),
    Subscribe(Box<Subscribe>, Option<u64>),
    Unsubscribe(Unsubscribe, Option<u64>),
}

impl Session {
    pub(super) fn consumer(&mut self, consumer: Consumer, reply: Option<u64>) {
        if !self.may_be(consumer.name.as_str(), reply) {
            return;
        }
        let hello = ConsumerHello {
            name: consumer.name,
            id: consumer.id.map(Arc::from),
            instance: consumer.instance.map(Arc::from),
            gap: consumer.gap,
        };
        self.identity.consumer(hello, reply);
    }

    pub(super) fn producer(&mut self, producer: Producer, reply: Option<u64>) {
        if !self.may_be(producer.name.as_str(), reply) {
            return;
        }
        if !self.member.is_producer(producer.name.as_str()) && !self.identity.may_register(reply) {
            return;
        }
        let name = producer.name.clone();
        let hello = ProducerHello {
            name: producer.name,
            id: producer.id.map(Arc::from),
            default_ttl: producer.default_ttl,
            instance: producer.instance.map(Arc::from),
        };
        let registered = self.shared.broker.producer(&self.member, hello);
        self.identity.count();
        match registered {
            Ok(()) => {
                if let Some(guard) = &mut self.guard {
                    guard.registered(name.as_str());
                }
                self.identity.registered(reply);
            }
            Err(error) if error.kind() == ErrorKind::AnonymousRefused => {
                self.identity.refuse(&error, reply);
            }
            Err(error) => self.fail(&error, reply),
        }
    }

    pub(super) fn subscribe(&mut self, subscribe: Subscribe, reply: Option<u64>) {
        let taken = self.guard.as_ref().map(|guard| guard.take_all(&subscribe));
        match taken {
            Some(Err(error)) => self.fail(&error, reply),
            _ => self.identity.subscribe(subscribe, reply),
        }
    }

    /// Whether the session may take this name as its own; told if not.
    fn may_be(&self, name: &str, reply: Option<u64>) -> bool {
        let is_default = *self.member.realm() == RealmId::default();
        if is_anonymous(name) && is_default && !self.config.allow_anonymous {
            let text = "anonymous names are not allowed here, give the client a name";
            let error = Error::new(ErrorKind::AnonymousRefused, text);
            self.identity.refuse(&error, reply);
            return false;
        }
        let taken = self.guard.as_ref().map(|guard| guard.take(name));
        if let Some(Err(error)) = taken {
            self.fail(&error, reply);
            return false;
        }
        true
    }
}

impl Identity {
    pub(super) fn new(
        broker: Arc<Broker>,
        member: Arc<Member>,
        link: Link,
        replies: Arc<Replies>,
        quota: Quota,
    ) -> Arc<Self> {
        Arc::new(Self {
            broker,
            member,
            link,
            replies,
            quota,
            line: Mutex::default(),
        })
    }

    pub(super) fn consumer(self: &Arc<Self>, hello: ConsumerHello, reply: Option<u64>) {
        self.take(Held::Consumer(hello, reply));
    }

    pub(super) fn subscribe(self: &Arc<Self>, subscribe: Subscribe, reply: Option<u64>) {
        self.take(Held::Subscribe(Box::new(subscribe), reply));
    }

    pub(super) fn unsubscribe(self: &Arc<Self>, unsubscribe: Unsubscribe, reply: Option<u64>) {
        self.take(Held::Unsubscribe(unsubscribe, reply));
    }

    /// The session has ended: what is held back will not be done.
    pub(super) fn end(&self) {
        let mut line = self.line.lock();
        line.has_ended = true;
        line.held.clear();
        drop(line);
        self.quota.used.lock().set(0, 0);
    }

    /// Whether the session may have one more name; if not, the client is told.
    fn may_register(&self, reply: Option<u64>) -> bool {
        self.quota
            .has_room(&self.member, reply, RealmUse::may_register)
    }

    /// Counts what the session holds.
    fn count(&self) {
        if !self.line.lock().has_ended {
            self.quota.count(&self.member);
        }
    }

    fn take(self: &Arc<Self>, verb: Held) {
        let mut line = self.line.lock();
        if line.has_ended {
            return;
        }
        line.held.push_back(verb);
        if line.held.len() > MAX_HELD && !line.is_paused {
            line.is_paused = true;
            self.link.pause_reading();
        }
        drop(line);
        self.drive();
    }

    /// Works the line off, until a verb has to wait for its name.
    fn drive(self: &Arc<Self>) {
        while let Some(verb) = self.next() {
            if let Some(waiting) = self.run(verb) {
                let identity = self.clone();
                tokio::spawn(async move {
                    waiting.await;
                    identity.line.lock().is_busy = false;
                    identity.drive();
                });
                return;
            }
            self.line.lock().is_busy = false;
        }
    }

    fn next(&self) -> Option<Held> {
        let mut line = self.line.lock();
        if line.is_busy {
            return None;
        }
        let verb = line.held.pop_front();
        if line.held.is_empty() {
            // Most sessions never hold anything back again.
            line.held = VecDeque::new();
        }
        line.is_busy = verb.is_some();
        if line.is_paused && line.held.len() <= MAX_HELD / 2 {
            line.is_paused = false;
            self.link.resume_reading();
        }
        verb
    }

    fn run(self: &Arc<Self>, verb: Held) -> Option<Waiting> {
        match verb {
            Held::Consumer(hello, reply) => {
                let is_held = self.member.is_consumer(hello.name.as_str());
                if !is_held && !self.may_register(reply) {
                    return None;
                }
                let claim = self.broker.consumer(&self.member, hello);
                self.decide(claim, move |identity, outcome| match outcome {
                    Ok(()) => identity.registered(reply),
                    Err(error) => identity.refuse(&error, reply),
                })
            }
            Held::Subscribe(subscribe, reply) => self.run_subscribe(*subscribe, reply),
            Held::Unsubscribe(unsubscribe, reply) => {
                self.run_unsubscribe(unsubscribe, reply);
                None
            }
        }
    }

    /// Calls `then` when it is known whether the session has the name: now, or after waiting.
    fn decide(
        self: &Arc<Self>,
        mut claim: Answer<()>,
        then: impl FnOnce(&Self, Result<()>) + Send + 'static,
    ) -> Option<Waiting> {
        match poll_once(&mut claim) {
            Poll::Ready(outcome) => {
                then(self, outcome);
                self.count();
                None
            }
            Poll::Pending => {
                let identity = self.clone();
                Some(Box::pin(async move {
                    let outcome = claim.await;
                    then(&identity, outcome);
                    identity.count();
                }))
            }
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        let line = self.line.lock();
        !line.is_busy && line.held.is_empty()
    }

    /// The session does not get a name.
    pub(super) fn refuse(&self, error: &Error, reply: Option<u64>) {
        // Existing clients know these as ERROR events, whether or not they asked for a reply.
        self.replies.push(|out| outbound::error(out, error));
        if let Some(id) = reply {
            self.replies
                .push(|out| outbound::reply_error(out, id, error));
        }
        if matches!(
            error.kind(),
            ErrorKind::DuplicateConsumer | ErrorKind::AnonymousRefused
        ) {
            self.replies.close();
        }
    }

    pub(super) fn registered(&self, reply: Option<u64>) {
        if let Some(id) = reply {
            self.replies
                .push(|out| outbound::raw_reply(out, id, "{\"ok\":true}"));
        }
    }

    fn run_subscribe(
        self: &Arc<Self>,
        subscribe: Subscribe,
        reply: Option<u64>,
    ) -> Option<Waiting> {
        let never_matches = subscribe.never_matches;
        let request = SubscribeRequest {
            key: Arc::new(subscribe.key),
            consumer: subscribe.consumer,
            id: subscribe.id.map(Arc::from),
            consumer_id: subscribe.consumer_id,
            options: subscribe.options,
        };
        if !self.may_subscribe(&request, reply) {
            return None;
        }
        let claim = self.broker.subscriber(&self.member, &request);
        self.decide(claim, move |identity, outcome| match outcome {
            Ok(()) => identity.subscribe_named(request, never_matches, reply),
            Err(error) if error.kind() == ErrorKind::DuplicateConsumer => {
                identity.refuse(&error, reply);
            }
            Err(error) => identity.replies.fail(&error, reply),
        })
    }

    fn may_subscribe(&self, request: &SubscribeRequest, reply: Option<u64>) -> bool {
        let (member, name) = (&self.member, &request.consumer);
        if !member.is_consumer(name.as_str()) && !self.may_register(reply) {
            return false;
        }
        // Again is free.
        member.has_subscription(&request.key, name)
            || self.quota.has_room(member, reply, RealmUse::may_subscribe)
    }

    fn subscribe_named(&self, request: SubscribeRequest, never_matches: bool, reply: Option<u64>) {
        let replies = self.replies.clone();
        finish(
            self.broker.subscribe(&self.member, request),
            move |outcome| match outcome {
                Ok(subscribed) => answer_subscribed(&replies, &subscribed, never_matches, reply),
                Err(error) => replies.fail(&error, reply),
            },
        );
    }

    fn run_unsubscribe(self: &Arc<Self>, unsubscribe: Unsubscribe, reply: Option<u64>) {
        let request = UnsubscribeRequest {
            what: match unsubscribe.target {
                Target::Name(name) => broker::Unsubscribe::Text(Arc::from(name)),
                Target::Key(key) => broker::Unsubscribe::Key(Arc::new(key)),
            },
            consumer: unsubscribe.consumer,
            consumer_id: unsubscribe.consumer_id,
            purge: unsubscribe.purge,
            detach: unsubscribe.detach,
        };
        let replies = self.replies.clone();
        let done = self.broker.unsubscribe(&self.member, request);
        self.count();
        finish(done, move |outcome| match outcome {
            Ok(done) => {
                if let Some(id) = reply {
                    replies.push(|out| {
                        outbound::unsubscribed(out, id, u64::from(done.removed), done.left)
                    });
                }
            }
            Err(error) => replies.fail(&error, reply),
        });
    }
}

fn answer_subscribed(
    replies: &Replies,
    subscribed: &broker::Subscribed,
    never_matches: bool,
    reply: Option<u64>,
) {
    if never_matches {
        let error = Error::new(
            ErrorKind::BadCommand,
            "a # that is not the last level of a topic pattern never matches",
        );
        replies.fail(&error, reply);
    } else if let Some(id) = reply {
        replies.push(|out| {
            outbound::subscribed(out, id, &subscribed.key.wire_name(), subscribed.queued)
        });
    }
    if subscribed.session_only {
        tracing::warn!(
            key = %subscribed.key.wire_name(),
            "an anonymous consumer's durable subscription ends with its connection: give it a name \
             or a consumer_id"
        );
    }
}

/// Calls `then` with the outcome: at once if it is there, else from a task.
fn finish<T: Send + 'static>(mut answer: Answer<T>, then: impl FnOnce(Result<T>) + Send + 'static) {
    match poll_once(&mut answer) {
        Poll::Ready(outcome) => then(outcome),
        Poll::Pending => {
            tokio::spawn(async move { then(answer.await) });
        }
    }
}

/// Most answers are there at once; a pending one is polled again by whoever waits for it.
fn poll_once<T>(answer: &mut Answer<T>) -> Poll<Result<T>> {
    answer
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}
