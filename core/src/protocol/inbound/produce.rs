//! PRODUCE and PRODUCE_CHUNK: a message, whole or in pieces.
//!
//! The hot path: nothing is copied and nothing allocated unless a name holds escapes. Knows no
//! routing and no store.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::model::instant;
use crate::model::{EventName, Extras, GroupName, Message, MessageId, ProducerName};
use crate::protocol::json;
use crate::{Error, ErrorKind, Result};

use super::object::{
    Args, Members, duration, is_present, list, members, nested, present, strings, text, truthy,
    unsigned,
};
use super::{Answer, Refused};

/// Nesting a body may have (P20).
const MAX_DEPTH: usize = 512;
const MAX_HEADERS: usize = 8 * 1024;
const MAX_NAME: usize = 255;

/// To whom a broadcast goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broadcast {
    /// Every connected member of the realm.
    Realm,
    /// Every connected member of the group.
    Group(GroupName),
}

/// How long a message is held back (P17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// From now.
    For(Duration),
    /// Until this time.
    Until(Timestamp),
}

/// A message, borrowed from the frame it came in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Produce<'a> {
    /// The event in the producer's case, checked as an [`EventName`].
    pub event: Cow<'a, str>,
    /// The producer, checked as a [`ProducerName`]; `None`: `ANONYMOUS`.
    pub from: Option<Cow<'a, str>>,
    /// JSON text of the body; `None` if there is none.
    pub message: Option<&'a str>,
    /// Binary attachments; every placeholder in the raw members has its own among them.
    pub attachments: &'a [Bytes],
    /// The producer's id, if this has to register it: 1–255 bytes, anything else is ignored.
    pub id: Option<Cow<'a, str>>,
    /// `ttl`, else `lifespan` (P15); zero: only to those online.
    pub ttl: Option<Duration>,
    /// Durable for every remembered matching subscription.
    pub guaranteed: bool,
    /// To members rather than subscriptions.
    pub broadcast: Option<Broadcast>,
    /// JSON text, passed through.
    pub enc: Option<&'a str>,
    /// JSON text, passed through.
    pub to: Option<&'a str>,
    /// JSON text, passed through.
    pub content_type: Option<&'a str>,
    /// JSON text of an object of strings, at most 8 KiB.
    pub headers: Option<&'a str>,
    /// The user's own id (P16), 1–255 bytes.
    pub msg_uid: Option<Cow<'a, str>>,
    /// Instance and number of our client's produce (P16).
    pub instance_seq: Option<(Cow<'a, str>, u64)>,
    /// The ordering key (P8), 1–255 bytes.
    pub key: Option<Cow<'a, str>>,
    /// How long it is held back.
    pub hold: Option<Hold>,
}

/// A piece of a message as it came; the assembler judges the numbers, because a bad one ends the
/// transfer it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceChunk<'a> {
    /// The transfer, 1–255 bytes.
    pub transfer: Cow<'a, str>,
    /// Its place, if it is a number from 0.
    pub index: Option<u64>,
    /// How many there are, if it is a number.
    pub total: Option<u64>,
    /// The piece as a raw JSON string with its quotes, if it is one.
    pub data: Option<&'a str>,
}

members! {
    struct ProduceMembers {
        event, message, from, id, ttl, lifespan,
        guaranteed, guaranteed_delivery, guaranteed_camel = "guaranteedDelivery", durable,
        delivery, delivery_mode, method, broadcast, group, to, enc, content_type,
        msg_uid, instance_seq, headers, key, delay, deliver_at,
    }
}

members! {
    struct ChunkMembers { transfer = "transferId", index, total, data }
}

members! {
    struct EventMembers { event }
}

fn bad(message: impl Into<Box<str>>) -> Error {
    Error::new(ErrorKind::BadCommand, message)
}

/// A bad name in a PRODUCE is a bad command.
fn as_command(error: Error) -> Error {
    bad(error.message())
}

fn short_text<'a>(raw: Option<&'a str>, what: &str) -> Result<Option<Cow<'a, str>>> {
    match text(raw, what)? {
        Some(value) if value.is_empty() || value.len() > MAX_NAME => {
            Err(bad(format!("{what} must be 1 to {MAX_NAME} bytes")))
        }
        value => Ok(value),
    }
}

impl<'a> ProduceMembers<'a> {
    fn event(&self) -> Result<Cow<'a, str>> {
        let raw = match self.event {
            Some(raw) if raw.starts_with('{') => {
                nested::<EventMembers<'_>>(Some(raw)).and_then(|object| object.event)
            }
            raw => raw,
        };
        let event = text(raw, "event")?.unwrap_or_default();
        EventName::check(&event).map_err(as_command)?;
        Ok(event)
    }

    fn from(&self) -> Result<Option<Cow<'a, str>>> {
        let from = text(self.from, "from")?.filter(|from| !from.is_empty());
        if let Some(from) = &from {
            ProducerName::check(from).map_err(as_command)?;
        }
        Ok(from)
    }

    fn ttl(&self) -> Result<Option<Duration>> {
        if let Some(ttl) = duration(self.ttl, "ttl")? {
            return Ok(Some(ttl));
        }
        let none = |raw: &str| raw.trim_matches('"').parse() == Ok(-1.0);
        if self.lifespan.is_some_and(none) {
            return Ok(None);
        }
        duration(self.lifespan, "lifespan")
    }

    fn guaranteed(&self) -> bool {
        let flags = [
            self.guaranteed,
            self.guaranteed_delivery,
            self.guaranteed_camel,
            self.durable,
        ];
        let modes = [self.delivery, self.delivery_mode];
        flags.into_iter().any(truthy) || modes.contains(&Some("\"guaranteed\""))
    }

    fn broadcast(&self) -> Result<Option<Broadcast>> {
        if self.method != Some("\"broadcast\"") {
            return Ok(None);
        }
        if self.broadcast != Some("\"group\"") {
            return Ok(Some(Broadcast::Realm));
        }
        let group = text(self.group, "group")?.unwrap_or_default();
        if group.is_empty() {
            return Err(bad("a group broadcast needs a group"));
        }
        let group = GroupName::parse(&group).map_err(as_command)?;
        Ok(Some(Broadcast::Group(group)))
    }

    fn hold(&self) -> Result<Option<Hold>> {
        if is_present(self.delay) && is_present(self.deliver_at) {
            return Err(bad("delay and deliver_at exclude each other"));
        }
        if let Some(delay) = duration(self.delay, "delay")? {
            return Ok(Some(Hold::For(delay)));
        }
        let Some(raw) = present(self.deliver_at) else {
            return Ok(None);
        };
        let at = if raw.starts_with('"') {
            instant::parse(&text(Some(raw), "deliver_at")?.unwrap_or_default())
        } else {
            unsigned(Some(raw), "deliver_at")?.map(Timestamp)
        };
        let message = "deliver_at must be milliseconds since 1970 or a date like \
                       2026-01-31T08:00:00Z";
        at.map(|at| Some(Hold::Until(at)))
            .ok_or_else(|| bad(message))
    }

    fn headers(&self) -> Result<Option<&'a str>> {
        let Some(raw) = present(self.headers) else {
            return Ok(None);
        };
        if raw.len() > MAX_HEADERS {
            return Err(bad("headers are larger than 8 KiB"));
        }
        if !strings(raw) {
            return Err(bad("headers must be an object of strings"));
        }
        Ok(Some(raw))
    }

    fn instance_seq(&self) -> Result<Option<(Cow<'a, str>, u64)>> {
        if !is_present(self.instance_seq) {
            return Ok(None);
        }
        let wrong = || bad("instance_seq must be a text and a number");
        match list(self.instance_seq, "instance_seq", 2)?[..] {
            [instance, number] => {
                let instance = short_text(Some(instance), "instance_seq")?.ok_or_else(wrong)?;
                let number = unsigned(Some(number), "instance_seq")?.ok_or_else(wrong)?;
                Ok(Some((instance, number)))
            }
            _ => Err(wrong()),
        }
    }
}

impl<'a> Produce<'a> {
    #[inline]
    pub(super) fn parse(
        args: Args<'a>,
        scratch: &'a mut String,
        attachments: &'a [Bytes],
    ) -> Result<Self, Refused> {
        let mut members = ProduceMembers::empty();
        args.read(&mut members, scratch)?.object(Answer::Error)?;
        Self::read(&members, attachments).map_err(Refused::from)
    }

    /// Reads the text that [`crate::protocol::chunk::Assembler`] has joined.
    ///
    /// # Errors
    /// [`ErrorKind::ChunkDropped`] if the pieces make no JSON object, else as for a PRODUCE in one
    /// frame.
    pub fn parse_joined(text: &'a str) -> Result<Self> {
        let members = nested(Some(text)).ok_or_else(|| {
            Error::new(
                ErrorKind::ChunkDropped,
                "the chunks make no JSON object together, send the message again",
            )
        })?;
        Self::read(&members, &[])
    }

    #[inline]
    fn read(members: &ProduceMembers<'a>, attachments: &'a [Bytes]) -> Result<Self> {
        let produce = Self {
            event: members.event()?,
            from: members.from()?,
            message: members.message,
            attachments,
            id: short_text(members.id, "id").ok().flatten(),
            ttl: members.ttl()?,
            guaranteed: members.guaranteed(),
            broadcast: members.broadcast()?,
            enc: present(members.enc),
            to: present(members.to),
            content_type: present(members.content_type),
            headers: members.headers()?,
            msg_uid: short_text(members.msg_uid, "msg_uid")?,
            instance_seq: members.instance_seq()?,
            key: short_text(members.key, "key")?,
            hold: members.hold()?,
        };
        produce.check_raw()?;
        Ok(produce)
    }

    /// Whether nothing but names, ttl and guarantee stands beside the body.
    pub(super) fn is_simple(&self) -> bool {
        let raws = [self.enc, self.to, self.content_type, self.headers];
        let texts = [&self.id, &self.msg_uid, &self.key];
        raws.iter().all(Option::is_none)
            && texts.into_iter().all(Option::is_none)
            && self.instance_seq.is_none()
            && self.broadcast.is_none()
            && self.hold.is_none()
            && self.attachments.is_empty()
    }

    /// What is passed on as it is must not harm those who get it.
    pub(super) fn check_raw(&self) -> Result<()> {
        let raws = [self.message, self.enc, self.to, self.content_type];
        for raw in raws.into_iter().flatten() {
            if json::is_deeper_than(raw, MAX_DEPTH) {
                return Err(Error::new(
                    ErrorKind::NotCarriable,
                    format!("the message is nested deeper than {MAX_DEPTH} levels"),
                ));
            }
            if !self.attachments.is_empty()
                && !json::placeholders_are_within(raw, self.attachments.len())
            {
                return Err(bad("a placeholder names an attachment that is not there"));
            }
        }
        Ok(())
    }

    /// The message to keep, without its number: copies what it borrows.
    ///
    /// `from` is the producer after all rules of the session.
    pub fn to_message(
        &self,
        from: Arc<str>,
        produced: Timestamp,
        expires: Option<Timestamp>,
    ) -> Message {
        let own = |raw: Option<&str>| raw.map(|raw| Bytes::copy_from_slice(raw.as_bytes()));
        let extras = Extras {
            enc: own(self.enc),
            to: own(self.to),
            content_type: own(self.content_type),
            headers: own(self.headers),
            attachments: self.attachments.to_vec(),
        };
        Message {
            id: MessageId::default(),
            event: (&*self.event).into(),
            from,
            body: own(self.message),
            extras: (!extras.is_empty()).then(|| Box::new(extras)),
            produced,
            expires,
            guaranteed: self.guaranteed,
            key: self.key.as_deref().map(Arc::from),
        }
    }
}

impl<'a> ProduceChunk<'a> {
    pub(super) fn parse(args: Args<'a>, scratch: &'a mut String) -> Result<Self, Refused> {
        let members: ChunkMembers<'_> = args.members(scratch, Answer::Error)?;
        let missing = || bad("transferId is missing");
        Ok(Self {
            transfer: short_text(members.transfer, "transferId")?.ok_or_else(missing)?,
            index: unsigned(members.index, "index").ok().flatten(),
            total: unsigned(members.total, "total").ok().flatten(),
            data: members.data.filter(|data| data.starts_with('"')),
        })
    }
}
