//! UNSUBSCRIBE: the only way but age in which a remembered subscription ends (P5).

use std::sync::Arc;

use super::attach;
use super::awareness::{self, Mail};
use super::forget::{self, End, Gone};
use super::ids::Ids;
use super::member::Member;
use super::pass::Pass;
use super::queue;
use super::realm::{Realm, SlotKey, State};
use super::registry;
use super::request::{SubscribeRequest, Unsubscribe, UnsubscribeRequest, Unsubscribed};
use super::{Answer, Broker, ready};
use crate::model::{ConsumerId, ConsumerName, Key, fold};
use crate::store::QueueKind;
use crate::{Error, ErrorKind, Result};

/// See [`Broker::unsubscribe`].
pub(super) fn unsubscribe(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    request: &UnsubscribeRequest,
) -> Answer<Unsubscribed> {
    let realm = member.realm_state();
    let mut mails = Vec::new();
    let mut queues = Vec::new();
    let mut done = Unsubscribed::default();
    let mut is_own = false;
    let forgets: Vec<_> = {
        let mut state = realm.state.lock();
        let names = match names(&state, member, request) {
            Ok(names) => names,
            Err(error) => return ready(Err(error)),
        };
        for name in names {
            for key in keys(&state, &name, &request.what) {
                let id = request.consumer_id.as_ref();
                is_own |= find(&state, member, &name, &key, None).is_some();
                match find(&state, member, &name, &key, id) {
                    Some(Found::Subscription) if request.detach => {
                        detach(broker, member, &mut state, &name, &key);
                    }
                    Some(Found::Subscription) => {
                        let (mail, queue) = end(broker, member, &mut state, &name, &key, request);
                        mails.push(mail);
                        queues.extend(queue);
                    }
                    Some(Found::Queue(slot_key)) if !request.detach => {
                        state.leave_queue(&name, &slot_key);
                        queues.extend(release(realm, &mut state, &slot_key, request.purge));
                    }
                    _ => continue,
                }
                done.removed += 1;
            }
        }
        if !is_own && request.consumer.is_none() && is_anybodys(realm, &request.what) {
            let text = "nobody on this session has this subscription, somebody else has";
            return ready(Err(Error::new(ErrorKind::Forbidden, text)));
        }
        let gone = queues.into_iter();
        let forget = |gone| forget::forget(broker, realm, &mut state, gone);
        gone.map(forget).collect()
    };
    mails.into_iter().for_each(Mail::send);
    let purge = request.purge;
    if forgets.is_empty() {
        return ready(Ok(done));
    }
    Box::pin(async move {
        for forget in forgets {
            let left = forget.await?;
            if !purge {
                done.left += left;
            }
        }
        Ok(done)
    })
}

fn names(
    state: &State,
    member: &Arc<Member>,
    request: &UnsubscribeRequest,
) -> Result<Vec<ConsumerName>> {
    let Some(name) = &request.consumer else {
        return Ok(member.names.lock().consumers.clone());
    };
    let holder = state.consumer_holder(name);
    if holder.is_some_and(|holder| Arc::ptr_eq(holder, member)) {
        return Ok(vec![name.clone()]);
    }
    let text = "this consumer name is not registered on this session";
    Err(Error::new(ErrorKind::Forbidden, text))
}

/// What an UNSUBSCRIBE means on one key.
enum Found {
    /// The consumer's subscription: in the live tables, or remembered only.
    Subscription,
    /// What is remembered of an id by which the consumer listens no more.
    Queue(SlotKey),
}

/// Nothing of what belongs to another credential is meant (P30).
fn find(
    state: &State,
    member: &Member,
    name: &ConsumerName,
    key: &Arc<Key>,
    id: Option<&ConsumerId>,
) -> Option<Found> {
    let pass = member.pass();
    let subscribed = state.kept(name, key, pass).map(|kept| &*kept.request);
    let is_meant = |request: &SubscribeRequest| {
        let own = request.consumer_id.as_ref().map(ConsumerId::shared);
        id.is_none_or(|id| own.unwrap_or(name.shared()) == id.shared())
    };
    match subscribed {
        Some(request) if is_meant(request) => Some(Found::Subscription),
        Some(_) => own_slot(state, pass, name, key, id).map(Found::Queue),
        None => own_slot(state, pass, name, key, id).map(|_| Found::Subscription),
    }
}

/// The consumer's keys that may be meant.
fn keys(state: &State, name: &ConsumerName, what: &Unsubscribe) -> Vec<Arc<Key>> {
    let Some(consumer) = state.consumers.get(name) else {
        return Vec::new();
    };
    let text = match what {
        Unsubscribe::Key(key) => return vec![key.clone()],
        Unsubscribe::Text(text) => text,
    };
    let named = |is_meant: &dyn Fn(&str) -> bool| {
        let keys = consumer.subscriptions.keys();
        let meant = keys.filter(|key| is_meant(&key.wire_name()));
        meant.cloned().collect::<Vec<_>>()
    };
    // All events of a producer have two names that differ in case only.
    let exact = named(&|name| name == &**text);
    if !exact.is_empty() {
        return exact;
    }
    let folded = fold(text);
    named(&|name| fold(name) == folded)
}

/// Whether any consumer has or left a subscription to what is meant.
fn is_anybodys(realm: &Realm, what: &Unsubscribe) -> bool {
    let routes = realm.routes.read();
    match what {
        Unsubscribe::Key(key) => routes.get(key).is_some(),
        Unsubscribe::Text(text) => routes.has_name(text),
    }
}

/// A queue of the consumer's own ids on this key, of `id` if that is given.
fn own_slot(
    state: &State,
    pass: &Pass,
    name: &ConsumerName,
    key: &Arc<Key>,
    id: Option<&ConsumerId>,
) -> Option<SlotKey> {
    let ids = state.consumers.get(name).map(|consumer| &consumer.ids);
    let ids = ids.into_iter().flat_map(Ids::iter).chain([name.shared()]);
    let ids = ids.filter(|own| id.is_none_or(|id| id.shared() == *own));
    let mut keys = ids.map(|id| (key.clone(), QueueKind::Consumer, id.clone()));
    keys.find(|key| {
        let slot = state.slots.get(key);
        slot.is_some_and(|slot| pass.may_use(slot.state.lock().settings.owner.as_ref()))
    })
}

/// Stops listening for this session; what it held goes back without a failure (P10).
pub(super) fn detach(
    broker: &Broker,
    member: &Member,
    state: &mut State,
    name: &ConsumerName,
    key: &Arc<Key>,
) {
    let place = (key.clone(), name.clone());
    let listener = member.names.lock().listeners.swap_remove(&place);
    if let Some(listener) = &listener {
        let realm = member.realm_state();
        attach::withdraw(broker, realm, state, listener, queue::Leave::Returned);
    }
}

/// Ends one subscription; the queue to forget, unless somebody else still uses it.
fn end(
    broker: &Broker,
    member: &Member,
    state: &mut State,
    name: &ConsumerName,
    key: &Arc<Key>,
    what: &UnsubscribeRequest,
) -> (Mail, Option<Gone>) {
    let realm = member.realm_state();
    let mail = awareness::unsubscribed(broker, state, name, key);
    let request = state.drop_subscription(name, key);
    let place = (key.clone(), name.clone());
    let listener = member.names.lock().listeners.swap_remove(&place);
    if let Some(listener) = &listener {
        // Should its queue be opened only now, it is not to be remembered.
        let _ = listener.ended.set(what.purge);
        attach::withdraw(broker, realm, state, listener, queue::Leave::Unsubscribed);
    }
    let slot_key = request.and_then(|request| registry::slot_key(&request));
    let slot_key =
        slot_key.or_else(|| own_slot(state, member.pass(), name, key, what.consumer_id.as_ref()));
    if let Some(slot_key) = &slot_key {
        state.leave_queue(name, slot_key);
    }
    let queue = slot_key.and_then(|slot_key| release(realm, state, &slot_key, what.purge));
    (mail, queue)
}

/// Takes a queue that nobody uses any more out of the tables.
pub(super) fn release(
    realm: &Realm,
    state: &mut State,
    slot_key: &SlotKey,
    purge: bool,
) -> Option<Gone> {
    let slot = state.slots.get(slot_key)?;
    if slot.is_attached() || state.is_used(slot_key) {
        return None;
    }
    let slot = realm.forget(state, slot_key)?;
    Some(Gone {
        key: slot_key.clone(),
        queue: slot.id,
        end: End::of(purge),
    })
}
