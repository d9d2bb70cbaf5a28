//! What a client says: the JSON array text of an event → a verb.
//!
//! One pass over the text checks the whole of it as JSON and hands out the raw text of the members
//! we know; each member is then read by its own rule. Bodies stay raw text. Of
//! duplicate members the last wins, unknown ones are ignored (P20). Does not know who may do what.
//! Called by `session`.

mod envelope;
mod object;
mod produce;
mod register;
mod settle;
mod subscribe;

use std::borrow::Cow;

use bytes::Bytes;

use crate::model::SubscriptionDefaults;
use crate::{Error, ErrorKind};

use super::names;
use object::Args;

pub use envelope::Envelope;
pub use produce::{Broadcast, Hold, Produce, ProduceChunk};
pub use register::{Authentication, Consumer, Producer};
pub use settle::{Ack, Nack, Working};
pub use subscribe::{Subscribe, Target, Unsubscribe};

/// A verb, checked.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the frequent one, boxing it would cost an allocation a message"
)]
pub enum Inbound<'a> {
    /// A consumer registers.
    Consumer(Consumer),
    /// A producer registers.
    Producer(Producer),
    /// A subscription begins, or its consumer is back.
    Subscribe(Box<Subscribe>),
    /// A subscription ends.
    Unsubscribe(Unsubscribe),
    /// A message.
    Produce(Produce<'a>),
    /// A piece of a message, for [`super::chunk::Assembler`].
    ProduceChunk(ProduceChunk<'a>),
    /// Deliveries are done.
    Ack(Ack<'a>),
    /// A delivery failed.
    Nack(Nack<'a>),
    /// A delivery takes longer.
    Working(Working<'a>),
    /// For logs only.
    Hello,
    /// To be answered with [`super::outbound::pong`], which takes the object's raw text.
    Ping(Option<&'a str>),
    /// For logs only.
    Debug,
    /// Close, if the text is the session's own socket id.
    Quit(Cow<'a, str>),
    /// Who the client is.
    Authentication(Authentication<'a>),
    /// A verb of another part of the server, or one nobody knows.
    Other {
        /// The event's name.
        name: Cow<'a, str>,
        /// The raw JSON text of the first argument, if there is one.
        payload: Option<&'a str>,
    },
}

/// How a client is told that its verb was refused; a frame that asked for a reply gets the reply
/// `{ok:false, …}` instead of an ERROR, and besides a `…_FAIL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The text is no JSON array with a name: end the session.
    Close,
    /// Say nothing, unless a reply is awaited: a payload string that holds no JSON.
    Ignore,
    /// `ERROR {message, code, error}`.
    Error,
    /// `ERROR` with a bare string, as clients know it of a malformed SUBSCRIBE.
    BareError,
    /// `ACK_FAIL`.
    AckFail,
    /// `NACK_FAIL`.
    NackFail,
    /// `WORKING_FAIL`.
    WorkingFail,
    /// `AUTH_FAIL`.
    AuthFail,
}

/// A verb that was refused; [`super::outbound::refused`] writes the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// How the client is told.
    pub answer: Answer,
    /// Why.
    pub error: Error,
}

impl Refused {
    fn new(answer: Answer, kind: ErrorKind, message: &str) -> Self {
        Self {
            answer,
            error: Error::new(kind, message),
        }
    }

    fn frame() -> Self {
        let message = "the frame holds no JSON array that begins with a name";
        Self::new(Answer::Close, ErrorKind::BadFrame, message)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self {
            answer: Answer::Error,
            error,
        }
    }
}

impl<'a> Inbound<'a> {
    /// Reads `["NAME", payload, …]`, checked as UTF-8 but not as JSON.
    ///
    /// `attachments` are those of a binary event. `scratch` holds the decoded text when the
    /// payload is a string that holds JSON; its capacity may be reused for the next call.
    ///
    /// # Errors
    /// [`Refused`] says what was wrong and how to answer.
    pub fn parse(
        args: &'a str,
        attachments: &'a [Bytes],
        scratch: &'a mut String,
        defaults: &SubscriptionDefaults,
    ) -> Result<Self, Refused> {
        let (name, args) = Args::open(args).ok_or_else(Refused::frame)?;
        Ok(match &*name {
            names::PRODUCE => Self::Produce(Produce::parse(args, scratch, attachments)?),
            names::ACK => Self::Ack(Ack::parse(args, scratch)?),
            names::NACK => Self::Nack(Nack::parse(args, scratch)?),
            names::WORKING => Self::Working(Working::parse(args, scratch)?),
            names::PRODUCE_CHUNK => Self::ProduceChunk(ProduceChunk::parse(args, scratch)?),
            names::SUBSCRIBE => {
                Self::Subscribe(Box::new(Subscribe::parse(args, scratch, defaults)?))
            }
            names::UNSUBSCRIBE => Self::Unsubscribe(Unsubscribe::parse(args, scratch)?),
            names::CONSUMER => Self::Consumer(Consumer::parse(args, scratch)?),
            names::PRODUCER => Self::Producer(Producer::parse(args, scratch)?),
            names::AUTHENTICATION => Self::Authentication(Authentication::parse(args, scratch)?),
            names::HELLO => Self::Hello,
            names::DEBUG => Self::Debug,
            names::PING => Self::Ping(args.object(scratch)?),
            names::QUIT => Self::Quit(args.text()?),
            _ => Self::Other {
                payload: args.raw()?,
                name,
            },
        })
    }
}

#[cfg(test)]
mod tests;
