//! Which queue an ACK belongs to (P9): one of a consumer id or group that the session owns.
//!
//! What it means is the queue's business. Knows no wire; ids are [`Item`]s.

use std::sync::Arc;

use super::member::{AckRoute, Member};
use super::queue::{self, Item, Outcome, Queue, What};
use super::realm::State;
use super::request::{Settled, Verdict};
use crate::model::Key;
use crate::store::{QueueId, QueueKind};
use crate::{Error, ErrorKind, Result};

/// See [`super::Broker::settle`].
pub(super) fn settle(
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
    let queue = match find(member, item) {
        Ok(queue) => queue,
        Err(error) => return answer(Err(error)),
    };
    queue.settle(queue::Verdict {
        item,
        attempt,
        what: what(verdict),
        answer: Box::new(|outcome| answer(result(outcome))),
    });
}

/// The queue that an id names, if the session owns it.
fn find(member: &Arc<Member>, item: Item) -> Result<Arc<Queue>> {
    let route = match item {
        Item::Stored { queue, .. } => AckRoute::Queue(queue),
        Item::Volatile { queue, .. } => AckRoute::Number(queue),
    };
    if let Some(queue) = member.ack_route(route) {
        return Ok(queue); // the session is attached to it
    }
    let state = member.realm_state().state.lock();
    let found = match item {
        Item::Stored { queue, .. } => owned(&state, member, queue)?,
        Item::Volatile { queue, .. } => numbered(&state, member, queue)?,
    };
    found.ok_or_else(|| {
        let text = "this delivery belongs to no queue of this session";
        Error::new(ErrorKind::Forbidden, text)
    })
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

fn unknown() -> Error {
    Error::new(ErrorKind::DeliveryUnknown, "no such delivery is known")
}

/// A remembered queue, if it is the session's, attached or not.
fn owned(state: &State, member: &Member, queue: QueueId) -> Result<Option<Arc<Queue>>> {
    let slot = state.by_queue.get(&queue).ok_or_else(unknown)?;
    let is_own = owns(state, member, &slot.entry.key, slot.kind, &slot.name);
    Ok(is_own.then(|| slot.queue.clone()))
}

/// Whether a queue is one of the consumer ids of the session's names, or of a group in which the
/// session has a live subscription.
fn owns(
    state: &State,
    member: &Member,
    key: &Arc<Key>,
    kind: QueueKind,
    queue: &Arc<str>,
) -> bool {
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
fn numbered(state: &State, member: &Member, number: u64) -> Result<Option<Arc<Queue>>> {
    if let Some((session, queue)) = state.volatile.get(&number) {
        let is_own = *session == member.session();
        return Ok(is_own.then(|| queue.clone()));
    }
    let slot = state.by_number.get(&number).ok_or_else(unknown)?;
    let seats = &slot.state.lock().seats;
    let is_own = seats
        .iter()
        .any(|(session, _)| *session == member.session());
    Ok(is_own.then(|| slot.queue.clone()))
}
