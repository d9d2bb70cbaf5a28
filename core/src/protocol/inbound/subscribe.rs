//! SUBSCRIBE and UNSUBSCRIBE: to what a consumer listens, and how.
//!
//! Translates all spellings and aliases of the existing clients into one form; knows no
//! registry and no rights.

use std::borrow::Cow;

use crate::model::{
    ALL_PRODUCERS, Backoff, ConsumerId, ConsumerName, EventName, GroupName, Key, MAX_ACK_TIMEOUT,
    ProducerName, RetryPolicy, Spelling, SubscriptionDefaults, SubscriptionOptions, TopicPattern,
};
use crate::protocol::names;
use crate::{Error, ErrorKind, Result};

use super::object::{
    Args, Members, Payload, duration, is_present, members, nested, text, truthy, unsigned,
};
use super::{Answer, Refused, register};

/// A subscription begins, or its consumer is back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// To what it listens.
    pub key: Key,
    /// Its consumer; `ANONYMOUS` if none was named.
    pub consumer: ConsumerName,
    /// The id in the names of awareness events, if this has to register the consumer; `None`: the
    /// socket id.
    pub id: Option<String>,
    /// Whose queue it is; `None`: known by the consumer's name (P4: unless that is anonymous).
    pub consumer_id: Option<ConsumerId>,
    /// How it wants its messages.
    pub options: SubscriptionOptions,
    /// The topic pattern has a `#` that is not its last level: it is kept, matches nothing, and
    /// the client is told.
    pub never_matches: bool,
}

/// What is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Whatever has this wire name (`orders-paid`).
    Name(String),
    /// One key.
    Key(Key),
}

/// A subscription ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe {
    /// What is to end.
    pub target: Target,
    /// Whose; `None`: every consumer of the session.
    pub consumer: Option<ConsumerName>,
    /// Whose queue; `None`: any of those consumers.
    pub consumer_id: Option<ConsumerId>,
    /// Drop the backlog too (P5).
    pub purge: bool,
    /// The subscription stays; only this session takes no more of it (P5).
    pub detach: bool,
}

members! {
    struct SubscribeMembers {
        event, producer, consumer, id, scope,
        consumer_id, consumer_id_camel = "consumerId",
        durable,
        ack, require_ack, require_ack_camel = "requireAck", manual_ack, manual_ack_camel = "manualAck",
        ack_timeout, ack_timeout_camel = "ackTimeout",
        retry, mode, group,
        prefetch, max_in_flight, max_in_flight_camel = "maxInFlight",
        purge, detach, options,
    }
}

members! {
    struct RetryMembers {
        max_attempts, max_attempts_camel = "maxAttempts", delay, backoff,
        max_delay, max_delay_camel = "maxDelay",
    }
}

members! {
    struct EventMembers { event }
}

fn first<const N: usize>(raws: [Option<&str>; N]) -> Option<&str> {
    raws.into_iter().find(|raw| is_present(*raw)).flatten()
}

fn missing_event(verb: &str) -> Refused {
    let message = format!("{verb} needs an object with an event");
    Refused::new(Answer::BareError, ErrorKind::BadCommand, &message)
}

impl<'a> SubscribeMembers<'a> {
    /// What stands in `options`, for whatever is not given at the top.
    fn inner(&self) -> SubscribeMembers<'a> {
        nested(self.options).unwrap_or_else(Members::empty)
    }

    fn consumer_id(&self) -> Result<Option<ConsumerId>> {
        let raw = first([self.consumer_id, self.consumer_id_camel]);
        text(raw, "consumer_id")?
            .filter(|id| !id.is_empty())
            .map(|id| ConsumerId::parse(&id))
            .transpose()
    }

    fn consumer(&self) -> Result<Option<ConsumerName>> {
        text(self.consumer, "consumer")?
            .filter(|name| !name.is_empty())
            .map(|name| ConsumerName::parse(&name))
            .transpose()
    }

    /// `None`: any producer.
    fn producer(&self) -> Result<Option<ProducerName>> {
        match text(self.producer, "producer")?.filter(|name| !name.is_empty()) {
            None => Ok(Some(ProducerName::anonymous())),
            Some(name) if name == ALL_PRODUCERS => Ok(None),
            Some(name) => ProducerName::parse_reserved(&name).map(Some),
        }
    }

    /// A text, or an object with a text of that name.
    fn event(&self) -> Result<Option<Cow<'a, str>>> {
        let raw = match nested::<EventMembers<'_>>(self.event) {
            Some(object) => object.event,
            None => self.event,
        };
        Ok(text(raw, "event")?.filter(|event| !event.is_empty()))
    }

    fn key(&self, verb: &str, inner: &SubscribeMembers<'a>) -> Result<(Key, bool), Refused> {
        let producer = self.producer()?;
        let scope = text(first([self.scope, inner.scope]), "scope")?;
        if scope.as_deref() == Some("all") {
            return Ok((all(producer, Spelling::Scope), false));
        }
        let event = self.event()?.ok_or_else(|| missing_event(verb))?;
        let event = EventName::parse(&event)?;
        let mode = text(first([self.mode, inner.mode]), "mode")?;
        if mode.as_deref() == Some("topic") {
            let pattern = TopicPattern::parse(event.as_str());
            let key = Key::Topic {
                producer,
                pattern: pattern.as_str().into(),
            };
            return Ok((key, pattern.never_matches()));
        }
        if event.as_str().eq_ignore_ascii_case(names::ALL_EVENTS) {
            return Ok((all(producer, Spelling::Plain), false));
        }
        let event = event.folded();
        let key = match producer {
            Some(producer) => Key::Event { producer, event },
            None => Key::Any { event },
        };
        Ok((key, false))
    }

    fn wants_ack(&self) -> bool {
        [
            self.ack,
            self.require_ack,
            self.require_ack_camel,
            self.manual_ack,
            self.manual_ack_camel,
        ]
        .into_iter()
        .any(truthy)
    }

    fn options(
        &self,
        inner: &SubscribeMembers<'a>,
        defaults: &SubscriptionDefaults,
    ) -> Result<SubscriptionOptions> {
        let mut options = SubscriptionOptions::new(defaults);
        options.durable = truthy(self.durable) || truthy(inner.durable);
        options.ack = self.wants_ack() || inner.wants_ack();
        let timeouts = [self, inner].map(|m| first([m.ack_timeout, m.ack_timeout_camel]));
        if let Some(timeout) = duration(first(timeouts), "ack_timeout")? {
            if timeout > MAX_ACK_TIMEOUT {
                return Err(bad("ack_timeout must be at most 24h"));
            }
            if !timeout.is_zero() {
                options.ack_timeout = timeout;
            }
        }
        if let Some(raw) = first([self.retry, inner.retry]) {
            options.retry = retry(raw)?;
            options.retry_given = true;
        }
        let windows =
            [self, inner].map(|m| first([m.prefetch, m.max_in_flight, m.max_in_flight_camel]));
        if let Some(prefetch) = unsigned(first(windows), "prefetch")? {
            if prefetch == 0 {
                return Err(bad("prefetch must be at least 1"));
            }
            options.prefetch = u32::try_from(prefetch).unwrap_or(u32::MAX);
        }
        options.group = text(first([self.group, inner.group]), "group")?
            .filter(|group| !group.is_empty())
            .map(|group| GroupName::parse(&group))
            .transpose()?;
        Ok(options)
    }
}

fn all(producer: Option<ProducerName>, spelling: Spelling) -> Key {
    match producer {
        Some(producer) => Key::All { producer, spelling },
        None => Key::Everything { spelling },
    }
}

fn bad(message: &str) -> Error {
    Error::new(ErrorKind::BadCommand, message)
}

fn retry(raw: &str) -> Result<RetryPolicy> {
    let members: RetryMembers<'_> =
        nested(Some(raw)).ok_or_else(|| bad("retry must be an object"))?;
    let attempts = first([members.max_attempts, members.max_attempts_camel]);
    let attempts = unsigned(attempts, "retry.max_attempts")?;
    let backoff = match text(members.backoff, "retry.backoff")?.as_deref() {
        None | Some("fixed") => Backoff::Fixed,
        Some("exponential") => Backoff::Exponential,
        Some(_) => return Err(bad("retry.backoff must be fixed or exponential")),
    };
    RetryPolicy::new(
        attempts.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        duration(members.delay, "retry.delay")?,
        backoff,
        duration(
            first([members.max_delay, members.max_delay_camel]),
            "retry.max_delay",
        )?,
    )
}

impl Subscribe {
    pub(super) fn parse<'a>(
        args: Args<'a>,
        scratch: &'a mut String,
        defaults: &SubscriptionDefaults,
    ) -> Result<Self, Refused> {
        let members: SubscribeMembers<'_> = args.members(scratch, Answer::BareError)?;
        let inner = members.inner();
        let (key, never_matches) = members.key(names::SUBSCRIBE, &inner)?;
        Ok(Self {
            key,
            never_matches,
            consumer: members.consumer()?.unwrap_or_else(ConsumerName::anonymous),
            id: register::id(members.id, "id")?,
            consumer_id: members.consumer_id()?,
            options: members.options(&inner, defaults)?,
        })
    }
}

impl Unsubscribe {
    /// A string is an object's JSON or, else, a key's wire name.
    pub(super) fn parse<'a>(args: Args<'a>, scratch: &'a mut String) -> Result<Self, Refused> {
        let mut members = SubscribeMembers::empty();
        match args.clone().read(&mut members, scratch)? {
            Payload::Text => {
                return Ok(Self {
                    target: Target::Name(args.text()?.into_owned()),
                    consumer: None,
                    consumer_id: None,
                    purge: false,
                    detach: false,
                });
            }
            payload => payload.object(Answer::Error)?,
        }
        let inner = members.inner();
        let key = members.key(names::UNSUBSCRIBE, &inner);
        let (key, _) = key.map_err(|refused| refused.error)?;
        Ok(Self {
            target: Target::Key(key),
            consumer: members.consumer()?,
            consumer_id: members.consumer_id()?,
            purge: truthy(members.purge) || truthy(inner.purge),
            detach: truthy(members.detach) || truthy(inner.detach),
        })
    }
}
