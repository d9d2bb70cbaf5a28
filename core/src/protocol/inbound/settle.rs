//! ACK, NACK, WORKING: what a consumer says about its deliveries (P9, P10, P13).
//!
//! Message ids are opaque texts here.

use std::borrow::Cow;
use std::time::Duration;

use crate::{Error, ErrorKind, Result};

use super::object::{Args, Members, duration, is_present, list, members, text, truthy, unsigned};
use super::{Answer, Refused};

/// Most ids in one ACK.
const MAX_BATCH: usize = 16_384;
const MAX_REASON: usize = 1024;

/// Deliveries are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ack<'a> {
    /// `{msgId, delivery_attempt?}`, answered `{ok, msgId}`.
    One {
        /// The delivery.
        id: Cow<'a, str>,
        /// Which attempt is meant, if the client says.
        attempt: Option<u32>,
    },
    /// `{msgIds}`, answered once for all.
    Many(Vec<Cow<'a, str>>),
}

/// A delivery failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack<'a> {
    /// The delivery.
    pub id: Cow<'a, str>,
    /// Which attempt is meant, if the client says.
    pub attempt: Option<u32>,
    /// Try again, or bury it now.
    pub requeue: bool,
    /// When to try again; `None`: as the retry policy says.
    pub delay: Option<Duration>,
    /// For the dead letter; at most 1 KiB of it.
    pub reason: Option<Cow<'a, str>>,
}

/// A delivery takes longer: its ack timeout starts anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Working<'a> {
    /// The delivery.
    pub id: Cow<'a, str>,
    /// Which attempt is meant, if the client says.
    pub attempt: Option<u32>,
}

members! {
    struct SettleMembers {
        msg_id_camel = "msgId", msg_id, id, msg_ids = "msgIds",
        delivery_attempt, requeue, delay, reason,
    }
}

impl<'a> SettleMembers<'a> {
    fn one(&self) -> Result<(Cow<'a, str>, Option<u32>)> {
        let raw = [self.msg_id_camel, self.msg_id, self.id];
        let raw = raw.into_iter().find(|raw| is_present(*raw)).flatten();
        let id = text(raw, "msgId")?.filter(|id| !id.is_empty());
        let missing = || Error::new(ErrorKind::BadCommand, "msgId is missing");
        let attempt = unsigned(self.delivery_attempt, "delivery_attempt")?
            .map(|attempt| u32::try_from(attempt).unwrap_or(u32::MAX));
        Ok((id.ok_or_else(missing)?, attempt))
    }

    fn many(&self) -> Result<Vec<Cow<'a, str>>> {
        let ids = list(self.msg_ids, "msgIds", MAX_BATCH)?;
        ids.into_iter()
            .map(|raw| {
                let bad = || Error::new(ErrorKind::BadCommand, "msgIds must hold texts");
                text(Some(raw), "msgIds")?.ok_or_else(bad)
            })
            .collect()
    }
}

fn fail(answer: Answer) -> impl Fn(Error) -> Refused {
    move |error| Refused { answer, error }
}

/// Unlike other verbs these are answered even if the payload is a string without JSON.
fn read<'a>(
    args: Args<'a>,
    scratch: &'a mut String,
    answer: Answer,
) -> Result<SettleMembers<'a>, Refused> {
    let mut members = SettleMembers::empty();
    args.read(&mut members, scratch)?
        .object(answer)
        .map_err(|refused| fail(answer)(refused.error))?;
    Ok(members)
}

impl<'a> Ack<'a> {
    pub(super) fn parse(args: Args<'a>, scratch: &'a mut String) -> Result<Self, Refused> {
        let members = read(args, scratch, Answer::AckFail)?;
        let ack = if is_present(members.msg_ids) {
            members.many().map(Self::Many)
        } else {
            members.one().map(|(id, attempt)| Self::One { id, attempt })
        };
        ack.map_err(fail(Answer::AckFail))
    }
}

impl<'a> Nack<'a> {
    pub(super) fn parse(args: Args<'a>, scratch: &'a mut String) -> Result<Self, Refused> {
        let members = read(args, scratch, Answer::NackFail)?;
        Self::of(&members).map_err(fail(Answer::NackFail))
    }

    fn of(members: &SettleMembers<'a>) -> Result<Self> {
        let (id, attempt) = members.one()?;
        let reason = text(members.reason, "reason")?.map(|mut reason| {
            if reason.len() > MAX_REASON {
                let end = reason.floor_char_boundary(MAX_REASON);
                reason = Cow::Owned(reason[..end].to_owned());
            }
            reason
        });
        Ok(Self {
            id,
            attempt,
            requeue: !is_present(members.requeue) || truthy(members.requeue),
            delay: duration(members.delay, "delay")?,
            reason,
        })
    }
}

impl<'a> Working<'a> {
    pub(super) fn parse(args: Args<'a>, scratch: &'a mut String) -> Result<Self, Refused> {
        let members = read(args, scratch, Answer::WorkingFail)?;
        let (id, attempt) = members.one().map_err(fail(Answer::WorkingFail))?;
        Ok(Self { id, attempt })
    }
}
