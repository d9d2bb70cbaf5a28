//! SUBSCRIBE: who may listen, and which queue remembers it (P4, P5, P30).
//!
//! Checks and the store's part; being attached is in [`super::attach`]. A plain named subscription
//! is answered at once; what is guaranteed and comes before the store has opened its queue is held, see
//! [`super::opening`].

use std::sync::Arc;

use tokio::sync::oneshot;

use super::attach::{self, is_current};
use super::awareness::{self, Mail};
use super::forget::{self, End, Gone};
use super::listen::Listener;
use super::member::Member;
use super::opening::Opening;
use super::queue;
use super::realm::{Realm, SlotKey, State};
use super::registry;
use super::remembered;
use super::request::{SubscribeRequest, Subscribed};
use super::{Answer, Broker, ready};
use crate::model::RetryPolicy;
use crate::store::{QueueKind, QueueRecord, QueueSettings, QueueSpec};
use crate::{Error, ErrorKind, Result};

/// Oldest plain queues looked at for one that nobody is attached to (P4).
const EVICTION_LOOKS: usize = 16;

/// See [`Broker::subscribe`]. What is durable or tracked is answered when its queue is open.
pub(super) fn subscribe(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    request: SubscribeRequest,
) -> Answer<Subscribed> {
    let (listener, request, spec, mail) = match enlist(broker, member, request) {
        Ok(done) => done,
        Err(error) => return ready(Err(error)),
    };
    mail.send();
    let mut subscribed = Subscribed {
        key: request.key.clone(),
        queued: 0,
        session_only: request.options.durable && identity(&request).is_none(),
    };
    let Some(spec) = spec else {
        return ready(Ok(subscribed));
    };
    let mut opening = broker.store().open(spec, broker.clock().now());
    if let Some(record) = opening.take_ready() {
        let attached = opened(broker, &listener, &request, record);
        return ready(attached.map(|queued| {
            subscribed.queued = queued;
            subscribed
        }));
    }
    let waits = request.options.durable || request.options.ack;
    let held = (!waits).then(|| Opening::begin(broker, &listener, &request));
    let (done, waiting) = oneshot::channel();
    let opener = broker.clone();
    tokio::spawn(async move {
        let record = opening.await;
        let result = opened(&opener, &listener, &request, record);
        drop(held);
        // Nobody may wait any more.
        let _ = done.send(result);
    });
    if !waits {
        return ready(Ok(subscribed));
    }
    Box::pin(async move {
        subscribed.queued = waiting.await.unwrap_or_else(|_| Err(stopped()))?;
        Ok(subscribed)
    })
}

fn stopped() -> Error {
    Error::new(ErrorKind::ShuttingDown, "the server is stopping")
}

/// Whose queue remembers a subscription: the group's, or the consumer id's; an anonymous consumer
/// without an id is not remembered (P4).
pub(super) fn identity(request: &SubscribeRequest) -> Option<(QueueKind, Arc<str>)> {
    identity_if(request, request.options.durable)
}

fn identity_if(request: &SubscribeRequest, is_durable: bool) -> Option<(QueueKind, Arc<str>)> {
    if let Some(group) = &request.options.group {
        let is_named = request.consumer_id.is_some() || !request.consumer.is_anonymous();
        return (is_named || is_durable).then(|| (QueueKind::Group, group.shared().clone()));
    }
    if let Some(id) = &request.consumer_id {
        return Some((QueueKind::Consumer, id.shared().clone()));
    }
    let name = &request.consumer;
    (!name.is_anonymous()).then(|| (QueueKind::Consumer, name.shared().clone()))
}

fn spec(
    state: &State,
    member: &Member,
    request: &SubscribeRequest,
    slot_key: &SlotKey,
    owner: Option<Arc<str>>,
) -> QueueSpec {
    let (_, kind, name) = slot_key;
    let options = &request.options;
    QueueSpec {
        realm: member.realm().clone(),
        key: (*request.key).clone(),
        kind: *kind,
        name: name.clone(),
        settings: QueueSettings {
            durable: options.durable,
            ack: options.ack,
            ack_timeout: Some(options.ack_timeout),
            retry: (options.retry != RetryPolicy::default()).then(|| Box::new(options.retry)),
            consumer: Some(request.consumer.clone()),
            consumer_meta: remembered::meta(state, slot_key, request),
            group: options.group.clone(),
            owner,
        },
    }
}

/// Everything that needs no store: checks, the name, the tables. Listens from here on, by the request
/// as it counts.
fn enlist(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    mut request: SubscribeRequest,
) -> Result<(Arc<Listener>, SubscribeRequest, Option<QueueSpec>, Mail)> {
    let realm = member.realm_state();
    let mut state = realm.state.lock();
    if broker.refuses(member) || member.has_left() {
        return Err(stopped());
    }
    check_rights(member, &request)?;
    check_name(&state, member, &request)?;
    request.options.durable |= is_durable_queue(&state, &request);
    let request = request;
    let slot_key = registry::slot_key(&request);
    check_retry(realm, &request)?;
    check_owner(&state, member, &request, slot_key.as_ref())?;
    let owner = owner(&state, member, &request, slot_key.as_ref());
    let name = &request.consumer;
    if let (Some(group), Some(owner)) = (&request.options.group, &owner) {
        state.claim_group(group, owner, name);
    }
    if let Some((_, QueueKind::Consumer, id)) = &slot_key
        && let Some(consumer) = state.consumers.get_mut(name)
    {
        consumer.ids.insert(id.clone());
    }
    state.keep(&Arc::new(request.clone()), owner.as_ref());
    let slot_key = slot_key.filter(|key| make_room(broker, realm, &mut state, key, &request));
    let slot_key = slot_key.as_ref();
    if let Some(slot_key) = slot_key {
        forget::before_open(broker, realm, &mut state, slot_key);
    }
    let listener = attach::listen(broker, member, &mut state, &request, slot_key, true);
    let mail = awareness::subscribed(broker, &state, name, &request.key);
    let spec = slot_key.map(|slot_key| spec(&state, member, &request, slot_key, owner));
    drop(state);
    Ok((listener, request, spec, mail))
}

/// Whether the queue of a request is durable already, whatever the request says: one that may be
/// shared stays so until its subscriptions end (P5).
fn is_durable_queue(state: &State, request: &SubscribeRequest) -> bool {
    let Some((kind, name)) = identity_if(request, true) else {
        return false;
    };
    let is_own = kind == QueueKind::Consumer && name == *request.consumer.shared();
    let slot_key = (request.key.clone(), kind, name);
    let users = state.users.get(&slot_key);
    let by_others = users.is_some_and(|users| users.is_durable_without(&request.consumer));
    let slot = state.slots.get(&slot_key).filter(|_| !is_own);
    by_others || slot.is_some_and(|slot| slot.state.lock().settings.durable)
}

/// Of what a wildcard may see its filter says more.
fn check_rights(member: &Member, request: &SubscribeRequest) -> Result<()> {
    if member.pass().may_listen(&request.key) && !member.is_intruder() {
        return Ok(());
    }
    let text = format!("no right to receive {:?} here", request.key.wire_name());
    Err(Error::new(ErrorKind::Forbidden, text))
}

/// The name must be this session's, see [`Broker::subscriber`]; a newer one may have taken it since.
fn check_name(state: &State, member: &Arc<Member>, request: &SubscribeRequest) -> Result<()> {
    let holder = state.consumer_holder(&request.consumer);
    if holder.is_some_and(|holder| Arc::ptr_eq(holder, member)) {
        return Ok(());
    }
    let text = "this session does not hold the consumer name (duplicate)";
    Err(Error::new(ErrorKind::DuplicateConsumer, text))
}

fn check_retry(realm: &Realm, request: &SubscribeRequest) -> Result<()> {
    let options = &request.options;
    if let Some(group) = &options.group
        && let Some(entry) = realm.routes.read().get(&request.key)
        && let Some(interest) = entry.group(group.as_str())
        && options.retry_given
        && interest.retry != options.retry
    {
        let text = "the group's retry policy is the first SUBSCRIBE's; this one differs";
        return Err(Error::new(ErrorKind::BadCommand, text));
    }
    Ok(())
}

/// What a credential has made is its owner's alone: the queue, the group on whatever key, and the
/// name's own subscription to the key (P30).
pub(super) fn check_owner(
    state: &State,
    member: &Member,
    request: &SubscribeRequest,
    slot_key: Option<&SlotKey>,
) -> Result<()> {
    let pass = member.pass();
    let slot = slot_key.and_then(|key| state.slots.get(key));
    let users = slot_key.and_then(|key| state.users.get(key));
    let group = request.options.group.as_ref();
    let group = group.and_then(|group| state.groups.get(group));
    let kept = state.consumers.get(&request.consumer);
    let kept = kept.and_then(|consumer| consumer.subscriptions.get(&request.key));
    // Of one that nothing remembers its last holder has nothing to lose.
    let kept = kept.and_then(|kept| registry::slot_key(&kept.request));
    let kept = kept.and_then(|key| state.users.get(&key));
    let is_free = slot.is_none_or(|slot| pass.may_use(slot.state.lock().settings.owner.as_ref()))
        && users.is_none_or(|users| pass.may_use(users.owner.as_ref()))
        && group.is_none_or(|group| pass.may_use(group.owner.as_ref()))
        && kept.is_none_or(|kept| pass.may_use(kept.owner.as_ref()));
    if is_free {
        return Ok(());
    }
    let text = "this consumer id or group belongs to another credential";
    Err(Error::new(ErrorKind::ConsumerIdTaken, text))
}

/// Whose the subscription and its queue are from now on: what others use at this moment though nobody
/// owns it stays everybody's (P30).
fn owner(
    state: &State,
    member: &Member,
    request: &SubscribeRequest,
    slot_key: Option<&SlotKey>,
) -> Option<Arc<str>> {
    let owner = member.pass().owner.clone()?;
    let users = slot_key.and_then(|key| state.users.get(key));
    let nobodys = slot_key.filter(|_| users.is_some_and(|users| users.owner.is_none()));
    let is_shared = nobodys.is_some_and(|key| state.is_shared(key, &request.consumer));
    (!is_shared).then_some(owner)
}

/// Whether there may be a queue: a plain one past the bound takes the place of the oldest that
/// nobody is attached to (P4).
fn make_room(
    broker: &Broker,
    realm: &Arc<Realm>,
    state: &mut State,
    slot_key: &SlotKey,
    request: &SubscribeRequest,
) -> bool {
    let bound = broker.config.guaranteed_subscriptions;
    if request.options.durable || state.slots.contains_key(slot_key) || state.plain_slots < bound {
        return true;
    }
    for _ in 0..EVICTION_LOOKS {
        let Some(oldest) = state.plain_order.pop_front() else {
            break;
        };
        let Some(slot) = state.slots.get(&oldest) else {
            continue;
        };
        if slot.state.lock().settings.durable {
            continue;
        }
        if slot.is_attached() {
            state.plain_order.push_back(oldest);
            continue;
        }
        let gone = Gone {
            queue: slot.id,
            key: oldest,
            end: End::Evicted,
        };
        realm.forget(state, &gone.key);
        realm.forgotten.add(1);
        drop(forget::forget(broker, realm, state, gone));
        return true;
    }
    realm.forgotten.add(1);
    false
}

/// The store's answer: attach, and how many wait. Without a store a durable subscription is none; a
/// plain one listens all the same (P27).
fn opened(
    broker: &Arc<Broker>,
    listener: &Arc<Listener>,
    request: &SubscribeRequest,
    record: Result<QueueRecord>,
) -> Result<u64> {
    let error = match record {
        Ok(record) => return Ok(attach::attach(broker, listener, request, record)),
        Err(error) => error,
    };
    tracing::warn!(%error, "a subscription could not be opened in the store");
    let mut state = listener.member.realm_state().state.lock();
    if !is_current(listener) {
        return Err(error);
    }
    if request.options.durable {
        let place = (request.key.clone(), request.consumer.clone());
        let realm = listener.member.realm_state();
        attach::withdraw(broker, realm, &mut state, listener, queue::Leave::Closed);
        listener.member.names.lock().listeners.swap_remove(&place);
        state.drop_subscription(&request.consumer, &request.key);
        return Err(error);
    }
    let slot_key = registry::slot_key(request);
    if error.kind() == ErrorKind::ConsumerIdTaken
        && let Some(slot_key) = &slot_key
    {
        // What another owner has left is not this one's to hold.
        state.leave_queue(&request.consumer, slot_key);
    }
    let other = slot_key.filter(|slot_key| state.slots.contains_key(slot_key));
    state.renamed.extend(other);
    if listener.slot.get().is_none() {
        // Nothing remembers it, so everything comes live (P27).
        attach::listen(broker, &listener.member, &mut state, request, None, true);
    }
    Ok(0)
}
