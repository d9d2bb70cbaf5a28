//! CONSUMER, PRODUCER, AUTHENTICATION: who a client says it is.
//!
//! Does not know whether it may be that.

use std::borrow::Cow;
use std::time::Duration;

use crate::model::{ConsumerName, ProducerName};
use crate::{Error, ErrorKind, Result};

use super::object::{Args, Members, Payload, duration, members, text, truthy};
use super::{Answer, Refused};

/// A consumer registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: ConsumerName,
    /// The id in the names of awareness events; `None`: the socket id.
    pub id: Option<String>,
    /// Names the client object across its reconnects (P22).
    pub instance: Option<String>,
    /// It wants GAP events (P23).
    pub gap: bool,
}

/// A producer registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// Its name.
    pub name: ProducerName,
    /// The id in the names of awareness events; `None`: the socket id.
    pub id: Option<String>,
    /// How long its messages live unless they say (P15); `None` leaves what was said before.
    pub default_ttl: Option<Duration>,
    /// Names the client object across its reconnects (P22).
    pub instance: Option<String>,
}

/// What a client shows to be let in. Every member may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authentication<'a> {
    /// A token of ours, a JWT, or what the validator knows.
    pub token: Option<Cow<'a, str>>,
    /// The realm it wants.
    pub realm: Option<Cow<'a, str>>,
    /// The role it wants.
    pub role: Option<Cow<'a, str>>,
    /// The realm's key.
    pub key: Option<Cow<'a, str>>,
}

members! {
    struct RegisterMembers { name, id, default_ttl, instance, gap }
}

members! {
    struct AuthenticationMembers { token, realm, role, key }
}

const MAX_ID: usize = 255;

/// An id or instance: it becomes part of event names, so its length is bounded.
pub(super) fn id(raw: Option<&str>, what: &str) -> Result<Option<String>> {
    match text(raw, what)? {
        Some(id) if id.len() > MAX_ID => Err(Error::new(
            ErrorKind::BadCommand,
            format!("{what} is longer than {MAX_ID} bytes"),
        )),
        Some(id) if id.is_empty() => Ok(None),
        other => Ok(other.map(Cow::into_owned)),
    }
}

fn name<T>(raw: Option<&str>, parse: fn(&str) -> Result<T>) -> Result<T> {
    let name = text(raw, "name").ok().flatten();
    let missing = || Error::new(ErrorKind::BadName, "name must be a text");
    parse(&name.ok_or_else(missing)?)
}

impl Consumer {
    pub(super) fn parse<'a>(args: Args<'a>, scratch: &'a mut String) -> Result<Self, Refused> {
        let members: RegisterMembers<'_> = args.members(scratch, Answer::Error)?;
        Ok(Self {
            name: name(members.name, ConsumerName::parse)?,
            id: id(members.id, "id")?,
            instance: id(members.instance, "instance")?,
            gap: truthy(members.gap),
        })
    }
}

impl Producer {
    pub(super) fn parse<'a>(args: Args<'a>, scratch: &'a mut String) -> Result<Self, Refused> {
        let members: RegisterMembers<'_> = args.members(scratch, Answer::Error)?;
        Ok(Self {
            name: name(members.name, ProducerName::parse)?,
            id: id(members.id, "id")?,
            default_ttl: duration(members.default_ttl, "default_ttl")?,
            instance: id(members.instance, "instance")?,
        })
    }
}

impl<'a> Authentication<'a> {
    pub(super) fn parse(args: Args<'a>, scratch: &'a mut String) -> Result<Self, Refused> {
        let mut members = AuthenticationMembers::empty();
        let payload = args.read(&mut members, scratch)?;
        if payload != Payload::Missing {
            // Text that holds no JSON is answered too: the client waits.
            let refused = payload.object(Answer::AuthFail);
            refused.map_err(|refused| Refused {
                answer: Answer::AuthFail,
                ..refused
            })?;
        }
        let read = |raw, what| {
            text(raw, what).map_err(|error| Refused {
                answer: Answer::AuthFail,
                error,
            })
        };
        Ok(Self {
            token: read(members.token, "token")?,
            realm: read(members.realm, "realm")?,
            role: read(members.role, "role")?,
            key: read(members.key, "key")?,
        })
    }
}
