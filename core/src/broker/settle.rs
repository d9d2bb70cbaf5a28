//! Which queue an ACK belongs to (P9): one of a consumer id or group that the session owns.
//!
//! What it means is the queue's business. An ended subscription leaves a queue in the store that is
//! still its owner's. Knows no wire; ids are [`Item`]s.

use std::sync::Arc;

use super::Broker;
use super::engine::Engine;
use super::member::{AckRoute, Member};
use super::queue::{self, Item, Outcome, Queue, What};
use super::realm::State;
use super::request::{Settled, Verdict};
use crate::model::Key;
use crate::store::{QueueId, QueueKind, QueueRecord};
use crate::{Error, ErrorKind, Result};

/// See [`super::Broker::settle`].
pub(super) fn settle(
    broker: &Broker,
    member: &Arc<Member>,
    msg_id: &str,
    attempt: Option<u32>,
    verdict: Verdict,
    answer: Settled,
) {
    let item = match msg_id.parse::<Item>() {
        Ok(item) => item,
        Err(error) => return answer(Err(error)),
    };
    let said = queue::Verdict {
        item,
        attempt,
        what: what(verdict),
        answer: Box::new(|outcome| answer(result(outcome))),
    };
    match find(member, item) {
        Found::Own(queue) => queue.settle(said),
        Found::Left(queue) => settle_left(broker, member, queue, said),
        Found::Foreign => fail(said, forbidden()),
        Found::Nothing => (said.answer)(Outcome::Unknown),
    }
}

/// The queue that an id names, as the session sees it.
enum Found {
    Own(Arc<Queue>),
    Foreign,
    /// Not among those that are remembered.
    Left(QueueId),
    Nothing,
}

fn find(member: &Arc<Member>, item: Item) -> Found {
    let route = match item {
        Item::Stored { queue, .. } => AckRoute::Queue(queue),
        Item::Volatile { queue, .. } => AckRoute::Number(queue),
    };
    if let Some(queue) = member.ack_route(route) {
        return Found::Own(queue); // the session is attached to it
    }
    let state = member.realm_state().state.lock();
    match item {
        Item::Stored { queue, .. } => remembered(&state, member, queue),
        Item::Volatile { queue, .. } => numbered(&state, member, queue),
    }
}

/// A queue that nobody remembers may have left something in the store (P5).
fn settle_left(broker: &Broker, member: &Arc<Member>, queue: QueueId, said: queue::Verdict) {
    let engine = broker.engine();
    let Ok(permit) = engine.look_ups.clone().try_acquire_owned() else {
        let text = "too many acks of ended subscriptions are under way; send it again later";
        return fail(said, Error::new(ErrorKind::RateLimited, text));
    };
    let mut found = engine.store().left_over(queue);
    if let Some(found) = found.take_ready() {
        return give_left(engine, member, found, said);
    }
    let (engine, member) = (engine.clone(), member.clone());
    let deadline = engine.clock.elapsed() + engine.config.store_timeout;
    tokio::spawn(async move {
        let _permit = permit;
        tokio::select! {
            biased;
            found = &mut found => give_left(&engine, &member, found, said),
            () = engine.clock.sleep_until(deadline) => {
                (said.answer)(Outcome::Kept);
                let silent = queue::Verdict { answer: Box::new(|_| ()), ..said };
                give_left(&engine, &member, found.await, silent);
            }
        }
    });
}

fn give_left(
    engine: &Arc<Engine>,
    member: &Arc<Member>,
    found: Result<Option<QueueRecord>>,
    said: queue::Verdict,
) {
    let realm = member.realm_state();
    let record = match found {
        Ok(Some(record)) if record.spec.realm == realm.id => record,
        Ok(_) => return (said.answer)(Outcome::Unknown),
        Err(error) => return fail(said, error),
    };
    let spec = &record.spec;
    let key = Arc::new(spec.key.clone());
    let is_own = member.pass().may_use(spec.settings.owner.as_ref())
        && owns(&realm.state.lock(), member, &key, spec.kind, &spec.name);
    if !is_own {
        return fail(said, forbidden());
    }
    Queue::new(engine.clone(), &record, realm.left_metrics()).settle(said);
}

fn fail(said: queue::Verdict, error: Error) {
    (said.answer)(Outcome::Failed(error));
}

fn forbidden() -> Error {
    let text = "this delivery belongs to no queue of this session";
    Error::new(ErrorKind::Forbidden, text)
}

fn what(verdict: Verdict) -> What {
    match verdict {
        Verdict::Ack => What::Ack,
        Verdict::Nack {
            delay,
            requeue,
            reason,
        } => What::Nack {
            delay,
            requeue,
            reason,
        },
        Verdict::Working => What::Working,
    }
}

fn result(outcome: Outcome) -> Result<bool> {
    let (kind, text) = match outcome {
        Outcome::Ok { duplicate } => return Ok(duplicate),
        Outcome::Failed(error) => return Err(error),
        Outcome::Unknown => (ErrorKind::DeliveryUnknown, "no such delivery is known"),
        Outcome::Stale => (
            ErrorKind::StaleAck,
            "a newer attempt of this delivery is already out",
        ),
        Outcome::Kept => (
            ErrorKind::StoreUnavailable,
            "the store is slow; the ack is kept and will be written",
        ),
    };
    Err(Error::new(kind, text))
}

fn remembered(state: &State, member: &Member, queue: QueueId) -> Found {
    let Some(slot) = state.by_queue.get(&queue) else {
        return Found::Left(queue);
    };
    let owner = slot.state.lock().settings.owner.clone();
    let may_use = member.pass().may_use(owner.as_ref());
    match may_use && owns(state, member, &slot.entry.key, slot.kind, &slot.name) {
        true => Found::Own(slot.queue.clone()),
        false => Found::Foreign,
    }
}

/// Whether a queue is one of the consumer ids of the session's names, or of a group in which the
/// session has a live subscription.
fn owns(state: &State, member: &Member, key: &Arc<Key>, kind: QueueKind, queue: &Arc<str>) -> bool {
    let names = member.names.lock();
    names.consumers.iter().any(|name| match kind {
        QueueKind::Consumer => {
            let consumer = state.consumers.get(name);
            queue == name.shared() || consumer.is_some_and(|held| held.ids.contains(queue))
        }
        QueueKind::Group => {
            let listener = names.listeners.get(&(key.clone(), name.clone()));
            let group = listener.and_then(|listener| listener.group.as_ref());
            group.is_some_and(|group| group.shared() == queue)
        }
        QueueKind::History => false,
    })
}

/// The queue of live copies with that number, if the session is attached to it.
fn numbered(state: &State, member: &Member, number: u64) -> Found {
    let (is_own, queue) = if let Some((session, queue)) = state.volatile.get(&number) {
        (*session == member.session(), queue)
    } else if let Some(slot) = state.by_number.get(&number) {
        let seats = &slot.state.lock().seats;
        let mut seats = seats.iter().map(|(session, _)| *session);
        (
            seats.any(|session| session == member.session()),
            &slot.queue,
        )
    } else {
        return Found::Nothing;
    };
    match is_own {
        true => Found::Own(queue.clone()),
        false => Found::Foreign,
    }
}
