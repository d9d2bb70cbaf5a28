//! Who holds a name (P22): consumers keep theirs while they live, producers lose theirs to the newest.
//!
//! Also the end of a session. Knows no wire; a silent holder is probed through its outbox.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::attach;
use super::awareness::{self, Mail};
use super::ids::Ids;
use super::listen::Listener;
use super::matches::{NO_TTL, Standing};
use super::member::Member;
use super::ports::Notice;
use super::queue;
use super::realm::{Consumer, Producer, State};
use super::request::{ConsumerHello, Leave, ProducerHello, SubscribeRequest};
use super::{Answer, Broker, ready};
use crate::clock::Elapsed;
use crate::model::{ConsumerName, ProducerName};
use crate::{Error, ErrorKind, Result};

/// Looks at a silent holder this often before the first deadline.
const LOOKS: u32 = 10;

/// See [`Broker::consumer`].
pub(super) fn consumer(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    hello: ConsumerHello,
) -> Answer<()> {
    match may_register(broker, member, hello.name.is_anonymous()) {
        Ok(()) => win(broker, member, hello),
        Err(error) => ready(Err(error)),
    }
}

/// See [`Broker::subscriber`]. There is no anonymous policy here (wire §2.5).
pub(super) fn subscriber(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    request: &SubscribeRequest,
) -> Answer<()> {
    let is_own = {
        let state = member.realm_state().state.lock();
        let holder = state.consumer_holder(&request.consumer);
        holder.is_some_and(|holder| Arc::ptr_eq(holder, member))
    };
    if is_own {
        return ready(Ok(()));
    }
    let hello = ConsumerHello {
        name: request.consumer.clone(),
        id: request.id.clone(),
        instance: None,
        gap: false,
    };
    match may_register(broker, member, false) {
        Ok(()) => win(broker, member, hello),
        Err(error) => ready(Err(error)),
    }
}

/// Takes a consumer's name, from a silent holder too.
fn win(broker: &Arc<Broker>, member: &Arc<Member>, hello: ConsumerHello) -> Answer<()> {
    let holder = match claim(broker, member, &hello) {
        Ok(None) => return ready(Ok(())),
        Ok(Some(holder)) => holder,
        Err(error) => return ready(Err(error)),
    };
    let (broker, member) = (broker.clone(), member.clone());
    holder.outbox().probe();
    let since = broker.clock().elapsed();
    Box::pin(async move {
        let mut holder = holder;
        let mut since = since;
        loop {
            if !is_gone(&broker, &holder, since).await {
                return Err(taken(&hello.name));
            }
            if !holder.has_left() {
                replace(&broker, &holder, &hello.name);
            }
            match claim(&broker, &member, &hello)? {
                None => return Ok(()),
                // Somebody else was faster; the same question again.
                Some(other) => holder = other,
            }
            holder.outbox().probe();
            since = broker.clock().elapsed();
        }
    })
}

fn taken(name: &ConsumerName) -> Error {
    let text = format!(
        "duplicate consumer: a live session holds the name {:?}",
        name.as_str()
    );
    Error::new(ErrorKind::DuplicateConsumer, text)
}

/// Ends a holder's session for a newer one; should it wake, it hears why.
pub(super) fn replace(broker: &Arc<Broker>, older: &Arc<Member>, name: &ConsumerName) {
    let text = format!(
        "duplicate consumer: a newer connection took over the name {:?}",
        name.as_str()
    );
    let error = Error::new(ErrorKind::DuplicateConsumer, text);
    let notice = broker.encode().notice(&Notice::Failed(&error));
    older.outbox().notice(notice);
    older.outbox().close();
    leave(broker, older, Leave::Returned);
}

fn may_register(broker: &Broker, member: &Member, is_anonymous: bool) -> Result<()> {
    if broker.refuses(member) {
        return Err(Error::new(
            ErrorKind::ShuttingDown,
            "the server is stopping",
        ));
    }
    if is_anonymous && !broker.config.rights.allows_anonymous(member.realm()) {
        let text = "this realm takes no anonymous names, give one";
        return Err(Error::new(ErrorKind::AnonymousRefused, text));
    }
    let names = member.realm_state().state.lock().names();
    if names >= broker.config.max_names {
        let text = "the realm holds as many names as it may";
        return Err(Error::new(ErrorKind::RateLimited, text));
    }
    Ok(())
}

/// Takes the name if it is free or held by an older connection of the same client object; else who
/// holds it.
fn claim(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    hello: &ConsumerHello,
) -> Result<Option<Arc<Member>>> {
    let realm = member.realm_state();
    let replaced = {
        let state = realm.state.lock();
        if member.has_left() {
            return Err(Error::new(ErrorKind::Disconnected, "the session has ended"));
        }
        let holder = state.consumers.get(&hello.name).and_then(|entry| {
            let holder = entry.holder.clone()?;
            Some((holder, entry.instance.clone()))
        });
        match holder {
            Some((holder, instance)) if !Arc::ptr_eq(&holder, member) => {
                // Only an older connection gives way: a claim may have waited while a newer one came.
                let is_older = holder.session() < member.session();
                let is_own = holder.pass().owner == member.pass().owner;
                let is_same = instance.is_some() && instance == hello.instance;
                let is_same = is_same && is_older && is_own;
                if !is_same {
                    return Ok(Some(holder));
                }
                Some(holder)
            }
            _ => None,
        }
    };
    if let Some(older) = replaced {
        replace(broker, &older, &hello.name);
    }
    let mail = {
        let mut state = realm.state.lock();
        if member.has_left() {
            return Err(Error::new(ErrorKind::Disconnected, "the session has ended"));
        }
        if let Some(holder) = state.consumer_holder(&hello.name)
            && !Arc::ptr_eq(holder, member)
        {
            return Ok(Some(holder.clone()));
        }
        take(&mut state, member, hello);
        awareness::consumer_online(broker, &state, &hello.name)
    };
    if hello.gap {
        member.set_wants_gap();
    }
    mail.send();
    attach::revive(broker, member, &hello.name);
    Ok(None)
}

/// Binds a consumer's name to a session. Nobody else may hold it.
pub(super) fn take(state: &mut State, member: &Arc<Member>, hello: &ConsumerHello) {
    let id = hello
        .id
        .clone()
        .unwrap_or_else(|| member.socket_id().clone());
    let consumer = state
        .consumers
        .entry(hello.name.clone())
        .or_insert_with(|| Box::new(Consumer::new(id.clone())));
    consumer.id = id;
    consumer.holder = Some(member.clone());
    consumer.instance = hello.instance.clone();
    consumer.is_unseen = false;
    let mut names = member.names.lock();
    if !names.consumers.contains(&hello.name) {
        names.consumers.push(hello.name.clone());
    }
}

/// Whether a silent holder is dead (P22): by the first deadline if its system has not acknowledged
/// the probe or it had been silent for long, else by the second. Any byte saves it.
async fn is_gone(broker: &Broker, holder: &Arc<Member>, since: Elapsed) -> bool {
    let (clock, config) = (broker.clock(), &broker.config);
    let silent_before = holder.outbox().silence() >= config.ping_interval;
    let step = (config.duplicate_probe / LOOKS).max(Elapsed::from_millis(1));
    let first = since + config.duplicate_probe;
    let last = since + config.duplicate_wait;
    let mut next = since + step;
    loop {
        clock.sleep_until(next).await;
        if holder.has_left() {
            return true;
        }
        let now = clock.elapsed();
        let outbox = holder.outbox();
        if outbox.silence() < now.saturating_sub(since) {
            return false;
        }
        let is_unheard =
            !outbox.is_polling() && (silent_before || outbox.acknowledged() == Some(false));
        if now >= last || (now >= first && is_unheard) {
            return true;
        }
        next = (now + step).min(last);
    }
}

/// See [`Broker::producer`].
pub(super) fn producer(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    hello: ProducerHello,
) -> Result<()> {
    may_register(broker, member, hello.name.is_anonymous())?;
    let ttl = hello.default_ttl.map(|ttl| {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(NO_TTL);
        millis.min(NO_TTL - 1)
    });
    let (replaced, list) = {
        let mut state = member.realm_state().state.lock();
        if member.has_left() {
            return Err(Error::new(ErrorKind::Disconnected, "the session has ended"));
        }
        let entry = hold(&mut state, member, &hello.name, hello.id);
        let (replaced, same) = entry;
        let producer = state.producers.get_mut(&hello.name);
        let was_instance = producer.and_then(|producer| {
            if let Some(ttl) = ttl {
                let default_ttl = &producer.standing.default_ttl;
                default_ttl.store(ttl, Ordering::Relaxed);
            }
            std::mem::replace(&mut producer.instance, hello.instance.clone())
        });
        let is_own = same || (was_instance.is_some() && was_instance == hello.instance);
        let list = awareness::producer_online(broker, &state, &hello.name);
        (replaced.filter(|_| !is_own), list)
    };
    if let Some(older) = replaced {
        let notice = broker.encode().notice(&Notice::ProducerReplaced);
        older.outbox().notice(notice);
    }
    list.send_paced(broker, member);
    Ok(())
}

/// Binds a producer's name to a session, whoever held it; who did, and whether that was the same one.
fn hold(
    state: &mut State,
    member: &Arc<Member>,
    name: &ProducerName,
    id: Option<Arc<str>>,
) -> (Option<Arc<Member>>, bool) {
    let id = id.unwrap_or_else(|| member.socket_id().clone());
    let producer = state
        .producers
        .entry(name.clone())
        .or_insert_with(Producer::new);
    producer.id = id;
    producer.standing.is_held.store(true, Ordering::Release);
    let before = producer.holder.replace(member.clone());
    let same = before
        .as_ref()
        .is_some_and(|before| Arc::ptr_eq(before, member));
    if let Some(before) = before.as_ref().filter(|_| !same) {
        before.names.lock().producers.retain(|held| held != name);
    }
    let mut names = member.names.lock();
    if !names.producers.contains(name) {
        names.producers.push(name.clone());
    }
    drop(names);
    (before.filter(|_| !same), same)
}

/// PRODUCE under a name that no live session holds registers it (wire §2.5). What is to be seen of
/// the name, whoever holds it.
pub(super) fn bind_producer(
    broker: &Arc<Broker>,
    member: &Arc<Member>,
    name: &ProducerName,
    id: Option<&str>,
) -> Arc<Standing> {
    let (standing, list) = {
        let mut state = member.realm_state().state.lock();
        let held = state.producers.get(name);
        if let Some(producer) = held.filter(|producer| producer.holder.is_some()) {
            return producer.standing.clone();
        }
        if member.has_left() || (held.is_none() && state.names() >= broker.config.max_names) {
            return Standing::new();
        }
        hold(&mut state, member, name, id.map(Arc::from));
        let standing = state.producers.get_mut(name).map(|producer| {
            // Which client object this is has not been said.
            producer.instance = None;
            producer.standing.clone()
        });
        let list = awareness::producer_online(broker, &state, name);
        (standing, list)
    };
    list.send_paced(broker, member);
    standing.unwrap_or_else(Standing::new)
}

/// See [`Broker::leave`].
pub(super) fn leave(broker: &Arc<Broker>, member: &Arc<Member>, how: Leave) {
    if member.set_left() {
        return;
    }
    let realm = member.realm_state();
    let now = broker.clock().elapsed();
    let mut mail = Vec::new();
    let listeners: Vec<Arc<Listener>> = {
        let mut state = realm.state.lock();
        state.members.remove(&member.session());
        let names = std::mem::take(&mut *member.names.lock());
        for name in &names.consumers {
            mail.push(awareness::consumer_offline(broker, &state, name));
            if let Some(consumer) = state.consumers.get_mut(name)
                && consumer
                    .holder
                    .as_ref()
                    .is_some_and(|holder| Arc::ptr_eq(holder, member))
            {
                consumer.holder = None;
                consumer.offline_since = now;
            }
        }
        for name in &names.producers {
            mail.push(awareness::producer_offline(broker, &state, name));
            if let Some(producer) = state.producers.get_mut(name)
                && producer
                    .holder
                    .as_ref()
                    .is_some_and(|holder| Arc::ptr_eq(holder, member))
            {
                producer.holder = None;
                producer.standing.is_held.store(false, Ordering::Release);
                producer.offline_since = now;
            }
        }
        let listeners = names.listeners.into_values().collect::<Vec<_>>();
        for listener in &listeners {
            attach::withdraw(broker, realm, &mut state, listener, how.into());
        }
        listeners
    };
    mail.into_iter().for_each(Mail::send);
    drop(listeners);
    broker.left();
    broker.drop_if_empty(realm);
}

impl From<Leave> for queue::Leave {
    fn from(how: Leave) -> Self {
        match how {
            Leave::Closed => Self::Closed,
            Leave::Failed => Self::Failed,
            Leave::Returned => Self::Returned,
        }
    }
}

impl Consumer {
    pub(super) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            holder: None,
            instance: None,
            is_unseen: true,
            offline_since: Elapsed::ZERO,
            subscriptions: indexmap::IndexMap::new(),
            next_age: 0,
            ids: Ids::default(),
        }
    }
}

impl Producer {
    fn new() -> Self {
        Self {
            id: "".into(),
            holder: None,
            instance: None,
            offline_since: Elapsed::ZERO,
            standing: Standing::new(),
        }
    }
}
