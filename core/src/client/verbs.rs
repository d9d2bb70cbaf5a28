//! What a client says, verb by verb, as frames (wire.md §2–§6).
//!
//! Writes into a buffer, keeps nothing. Called by the state under its lock, so it must stay cheap.

use std::time::Duration;

use bytes::Bytes;

use super::frames::{self, Object, json_text};
use super::options::{Auth, ConsumerIdentity, ProducerIdentity};
use super::request::{Broadcast, Nack, Produce, Subscribe};
use crate::clock::Elapsed;
use crate::model::{ALL_PRODUCERS, Backoff, RetryPolicy};
use crate::protocol::chunk;

/// JSON texts above this many UTF-16 units are cut (wire.md §5).
pub(super) const CHUNK_UNITS: usize = 262_144;
/// Room for what a produce carries besides its head.
const TAIL: usize = 256;

/// AUTHENTICATION.
pub(super) fn authentication(out: &mut Vec<u8>, auth: &Auth) {
    frames::event(out, "\"AUTHENTICATION\"", None, &[], 256, |out| {
        let mut object = Object::open(out);
        object.text("token", auth.token.as_deref());
        object.text("realm", auth.realm.as_deref());
        object.text("role", auth.role.as_deref());
        object.text("key", auth.key.as_deref());
        object.close();
    });
}

/// CONSUMER.
pub(super) fn consumer(
    out: &mut Vec<u8>,
    who: &ConsumerIdentity,
    instance: &str,
    gap: bool,
    reply: Option<u64>,
) {
    let consumer_id = who.consumer_id.as_deref().unwrap_or(&who.name);
    frames::event(out, "\"CONSUMER\"", reply, &[], 128, |out| {
        let mut object = Object::open(out);
        object.text("name", &*who.name);
        object.text("id", who.id.as_deref().unwrap_or(consumer_id));
        object.text("consumer_id", consumer_id);
        object.text("instance", instance);
        object.flag("gap", gap);
        object.close();
    });
}

/// PRODUCER.
pub(super) fn producer(
    out: &mut Vec<u8>,
    who: &ProducerIdentity,
    instance: &str,
    reply: Option<u64>,
) {
    frames::event(out, "\"PRODUCER\"", reply, &[], 64, |out| {
        let mut object = Object::open(out);
        object.text("name", &*who.name);
        object.seconds("default_ttl", who.default_ttl);
        object.text("instance", instance);
        object.close();
    });
}

/// SUBSCRIBE. `subscribe.consumer` and `consumer_id` are filled in by now.
pub(super) fn subscribe(out: &mut Vec<u8>, subscribe: &Subscribe, reply: u64) {
    frames::event(out, "\"SUBSCRIBE\"", Some(reply), &[], 256, |out| {
        let mut object = Object::open(out);
        key(&mut object, subscribe);
        object.flag("durable", subscribe.durable);
        object.flag("ack", subscribe.ack);
        object.flag("manual_ack", subscribe.manual_ack);
        object.seconds("ack_timeout", subscribe.ack_timeout);
        if let Some(retry) = &subscribe.retry {
            put_retry(object.member("retry"), retry);
        }
        object.text("group", subscribe.group.as_deref());
        object.number("prefetch", subscribe.prefetch.map(u64::from));
        object.close();
    });
}

/// UNSUBSCRIBE of what [`subscribe`] said.
pub(super) fn unsubscribe(out: &mut Vec<u8>, subscribe: &Subscribe, purge: bool, reply: u64) {
    frames::event(out, "\"UNSUBSCRIBE\"", Some(reply), &[], 128, |out| {
        let mut object = Object::open(out);
        key(&mut object, subscribe);
        object.flag("purge", purge);
        object.close();
    });
}

/// UNSUBSCRIBE that ends the deliveries and leaves the subscription in place (P5).
pub(super) fn detach(out: &mut Vec<u8>, subscribe: &Subscribe) {
    frames::event(out, "\"UNSUBSCRIBE\"", None, &[], 128, |out| {
        let mut object = Object::open(out);
        key(&mut object, subscribe);
        object.flag("detach", true);
        object.close();
    });
}

fn key(object: &mut Object<'_>, subscribe: &Subscribe) {
    object.text("event", &*subscribe.event);
    object.text(
        "producer",
        subscribe.producer.as_deref().unwrap_or(ALL_PRODUCERS),
    );
    object.text("consumer", subscribe.consumer.as_deref());
    object.text("consumer_id", subscribe.consumer_id.as_deref());
    object.text("scope", if subscribe.all { "all" } else { "default" });
    if subscribe.topic {
        object.text("mode", "topic");
    }
}

fn put_retry(out: &mut Vec<u8>, retry: &RetryPolicy) {
    let mut object = Object::open(out);
    object.number("max_attempts", Some(retry.max_attempts().into()));
    object.seconds("delay", Some(retry.first_delay()));
    let backoff = match retry.backoff() {
        Backoff::Fixed => "fixed",
        Backoff::Exponential => "exponential",
    };
    object.text("backoff", backoff);
    object.seconds("max_delay", Some(retry.max_delay()));
    object.close();
}

/// PING, whose reply tells that everything before it was read.
pub(super) fn ping(out: &mut Vec<u8>, reply: u64) {
    frames::event(out, "\"PING\"", Some(reply), &[], 16, |out| {
        out.extend_from_slice(b"{}");
    });
}

/// ACK of one delivery.
pub(super) fn ack(out: &mut Vec<u8>, msg_id: &str, attempt: Option<u32>) {
    settle(out, "\"ACK\"", msg_id, attempt, |_| {});
}

/// ACK of many deliveries, for servers of ours.
pub(super) fn ack_many<'a>(out: &mut Vec<u8>, ids: impl Iterator<Item = &'a str>, likely: usize) {
    frames::event(out, "\"ACK\"", None, &[], likely, |out| {
        out.extend_from_slice(b"{\"msgIds\":[");
        for (i, id) in ids.enumerate() {
            if i > 0 {
                out.push(b',');
            }
            json_text(out, id);
        }
        out.extend_from_slice(b"]}");
    });
}

/// WORKING.
pub(super) fn working(out: &mut Vec<u8>, msg_id: &str, attempt: Option<u32>) {
    settle(out, "\"WORKING\"", msg_id, attempt, |_| {});
}

/// NACK.
pub(super) fn nack(out: &mut Vec<u8>, msg_id: &str, attempt: Option<u32>, nack: Nack<'_>) {
    settle(out, "\"NACK\"", msg_id, attempt, |object| {
        if nack.bury {
            object.flag("requeue", false);
        }
        object.seconds("delay", nack.delay);
        object.text("reason", nack.reason);
    });
}

fn settle(
    out: &mut Vec<u8>,
    name: &str,
    msg_id: &str,
    attempt: Option<u32>,
    more: impl FnOnce(&mut Object<'_>),
) {
    frames::event(out, name, None, &[], 64, |out| {
        let mut object = Object::open(out);
        object.text("msgId", msg_id);
        object.number("delivery_attempt", attempt.map(u64::from));
        more(&mut object);
        object.close();
    });
}

/// Every part of a produce that time changes, as it was at the call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    ttl: Option<Duration>,
    lifespan: Option<Duration>,
    delay: Option<Duration>,
    /// `deliver_at` is given: the TTL starts then, and only the server knows when that is.
    held: bool,
}

impl Times {
    pub(super) fn of(produce: &Produce<'_>) -> Self {
        Self {
            ttl: produce.ttl,
            lifespan: produce.lifespan,
            delay: produce.delay,
            held: produce.deliver_at.is_some(),
        }
    }

    /// What is left after `waited`; none if the message has expired.
    pub(super) fn after(self, waited: Duration) -> Option<Self> {
        if self.held {
            return Some(self);
        }
        let overdue = waited.saturating_sub(self.delay.unwrap_or_default());
        let left = |span: Option<Duration>| match span {
            // Zero is no time: it goes to those who are online when it comes (P15).
            None | Some(Duration::ZERO) => Some(span),
            Some(span) => span.checked_sub(overdue).map(Some),
        };
        let lifespan = left(self.lifespan);
        Some(Self {
            // `ttl` beats `lifespan`, so only the one that counts can expire the message.
            ttl: left(self.ttl)?,
            lifespan: match self.ttl {
                Some(_) => lifespan.flatten(),
                None => lifespan?,
            },
            delay: self.delay.map(|delay| delay.saturating_sub(waited)),
            held: false,
        })
    }

    /// When a message of `called` expires, if it says.
    pub(super) fn expiry(self, called: Elapsed) -> Option<Elapsed> {
        let ttl = self.ttl.or(self.lifespan);
        let ttl = ttl.filter(|ttl| !self.held && !ttl.is_zero())?;
        Some(
            called
                .saturating_add(self.delay.unwrap_or_default())
                .saturating_add(ttl),
        )
    }
}

/// Appends the PRODUCE object up to where time begins: not closed. `from` is JSON text.
pub(super) fn produce_head(out: &mut Vec<u8>, produce: &Produce<'_>, from: Option<&str>) {
    let mut object = Object::open(out);
    object.text("event", produce.event);
    object.raw("message", produce.message);
    match produce.from {
        Some(from) => object.text("from", from),
        None => object.raw("from", from),
    }
    object.text("to", produce.to);
    object.raw("enc", produce.enc);
    if produce.guaranteed {
        object.flag("guaranteed", true);
    }
    match produce.broadcast {
        None => {}
        Some(Broadcast::Realm) => {
            object.text("method", "broadcast");
            object.text("broadcast", "realm");
        }
        Some(Broadcast::Group(group)) => {
            object.text("method", "broadcast");
            object.text("broadcast", "group");
            object.text("group", group);
        }
    }
    object.text("msg_uid", produce.id);
    object.raw("headers", produce.headers);
    object.text("key", produce.key);
    object.raw("deliver_at", produce.deliver_at);
}

/// Appends the rest of the PRODUCE object. `numbered`: the instance as JSON text, and the number.
fn produce_tail(out: &mut Vec<u8>, times: Times, numbered: Option<(&str, u64)>) {
    let mut object = Object::resume(out);
    object.seconds("ttl", times.ttl);
    object.seconds("lifespan", times.lifespan);
    object.seconds("delay", times.delay);
    if let Some((instance, number)) = numbered {
        frames::put(
            object.member("instance_seq"),
            format_args!("[{instance},{number}]"),
        );
    }
    object.close();
}

/// Appends the frames of a PRODUCE: one, or PRODUCE_CHUNKs if the text is above the threshold and
/// has no attachments. A reply is asked for with the last.
pub(super) fn produce(
    out: &mut Vec<u8>,
    head: &[u8],
    times: Times,
    numbered: Option<(&str, u64)>,
    attachments: &[Bytes],
    reply: Option<u64>,
) {
    if attachments.is_empty() && head.len() + TAIL > CHUNK_UNITS {
        let mut text = Vec::with_capacity(head.len() + TAIL);
        text.extend_from_slice(head);
        produce_tail(&mut text, times, numbered);
        if chunk::is_large(&text, CHUNK_UNITS) {
            return chunks(out, &text, reply);
        }
    }
    let likely = head.len() + 64;
    frames::event(out, "\"PRODUCE\"", reply, attachments, likely, |out| {
        out.extend_from_slice(head);
        produce_tail(out, times, numbered);
    });
}

/// Appends a plain PRODUCE straight into its frame: the hot path for small messages.
pub(super) fn produce_small(out: &mut Vec<u8>, produce: &Produce<'_>, from: Option<&str>) {
    let likely = produce.message.map_or(0, str::len) + produce.event.len() + 48;
    let attachments = produce.attachments;
    frames::event(out, "\"PRODUCE\"", None, attachments, likely, |out| {
        produce_head(out, produce, from);
        produce_tail(out, Times::of(produce), None);
    });
}

fn chunks(out: &mut Vec<u8>, text: &[u8], reply: Option<u64>) {
    let transfer = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let pieces: Vec<&[u8]> = chunk::split(text, CHUNK_UNITS).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let reply = reply.filter(|_| index + 1 == pieces.len());
        let likely = piece.len() + piece.len() / 4;
        frames::event(out, "\"PRODUCE_CHUNK\"", reply, &[], likely, |out| {
            let mut object = Object::open(out);
            object.text("transferId", &*transfer);
            object.number("index", Some(index as u64));
            object.number("total", Some(pieces.len() as u64));
            // Built from texts and cut between characters, so it is UTF-8 and nothing is lost.
            object.text("data", &*String::from_utf8_lossy(piece));
            object.close();
        });
    }
}

#[cfg(test)]
mod tests;
