//! Which queue an ACK belongs to (P9): one of a consumer id or group that the session owns.
//!
//! What it means is the queue's business. Knows no wire; ids are [`Item`]s.

use std::sync::Arc;

use super::member::{AckRoute, Member};
use super::queue::{self, Item, Outcome, Queue, What};
use super::realm::State;
use super::request::{Settled, Verdict};
use crate::store::{LogId, QueueKind};
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
    let said = Said {
        item,
        attempt,
        what: what(verdict),
    };
    let route = match item {
        Item::Stored { log, .. } => AckRoute::Log(log),
        Item::Volatile { queue, .. } => AckRoute::Number(queue),
    };
    match member.ack_route(route) {
        // Where the session is attached now; if it is not there, all it owns.
        Some(queue) => {
            let (owner, again) = (member.clone(), said.clone());
            let other = queue.clone();
            said.to(&queue, move |outcome| match outcome {
                Outcome::Unknown => everywhere(&owner, again, Some(&other), answer),
                outcome => answer(result(outcome)),
            });
        }
        None => everywhere(member, said, None, answer),
    }
}

#[derive(Clone)]
struct Said {
    item: Item,
    attempt: Option<u32>,
    what: What,
}

impl Said {
    fn to(self, queue: &Arc<Queue>, answer: impl FnOnce(Outcome) + Send + 'static) {
        queue.settle(queue::Verdict {
            item: self.item,
            attempt: self.attempt,
            what: self.what,
            answer: Box::new(answer),
        });
    }
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

/// Asks the session's queues of that log one after the other.
fn everywhere(member: &Arc<Member>, said: Said, but: Option<&Arc<Queue>>, answer: Settled) {
    let found = {
        let state = member.realm_state().state.lock();
        match said.item {
            Item::Stored { log, .. } => owned(&state, member, log),
            Item::Volatile { queue, .. } => numbered(&state, member, queue),
        }
    };
    match found {
        Ok(mut queues) => {
            let had_any = !queues.is_empty();
            queues.retain(|queue| but.is_none_or(|but| !Arc::ptr_eq(queue, but)));
            if had_any || but.is_some() {
                ask(queues, said, answer);
            } else {
                let text = "this delivery belongs to no queue of this session";
                answer(Err(Error::new(ErrorKind::Forbidden, text)));
            }
        }
        Err(error) => answer(Err(error)),
    }
}

fn ask(mut queues: Vec<Arc<Queue>>, said: Said, answer: Settled) {
    let Some(queue) = queues.pop() else {
        return answer(result(Outcome::Unknown));
    };
    let again = said.clone();
    said.to(&queue, move |outcome| match outcome {
        Outcome::Unknown => ask(queues, again, answer),
        outcome => answer(result(outcome)),
    });
}

fn unknown() -> Error {
    Error::new(ErrorKind::DeliveryUnknown, "no such delivery is known")
}

/// The session's queues of a log: those of the consumer ids of its names, attached or not, and
/// those of groups in which it has a live subscription.
fn owned(state: &State, member: &Member, log: LogId) -> Result<Vec<Arc<Queue>>> {
    let entry = state.by_log.get(&log).ok_or_else(unknown)?;
    let mut queues = Vec::new();
    let names = member.names.lock();
    let mut add = |kind: QueueKind, name: &Arc<str>| {
        let slot = state.slots.get(&(entry.key.clone(), kind, name.clone()));
        if let Some(slot) = slot.filter(|slot| slot.log == log) {
            queues.push(slot.queue.clone());
        }
    };
    for name in &names.consumers {
        let ids = state.consumers.get(name).map(|consumer| &consumer.ids);
        let other = ids.into_iter().flatten().filter(|id| *id != name.shared());
        other
            .chain([name.shared()])
            .for_each(|id| add(QueueKind::Consumer, id));
        let listener = names.listeners.get(&(entry.key.clone(), name.clone()));
        if let Some(group) = listener.and_then(|listener| listener.group.as_ref()) {
            add(QueueKind::Group, group.shared());
        }
    }
    Ok(queues)
}

/// The queue of live copies with that number, if the session is attached to it.
fn numbered(state: &State, member: &Member, number: u64) -> Result<Vec<Arc<Queue>>> {
    if let Some((session, queue)) = state.volatile.get(&number) {
        let own = *session == member.session();
        return Ok(own.then(|| queue.clone()).into_iter().collect());
    }
    let slot = state.by_number.get(&number).ok_or_else(unknown)?;
    let seats = &slot.state.lock().seats;
    let own = seats
        .iter()
        .any(|(session, _)| *session == member.session());
    Ok(own.then(|| slot.queue.clone()).into_iter().collect())
}
