//! Signed orders and requests to be let in, over the wire (admin.md §3.1, §4.1): verbs of strangers too.
//!
//! Hands payloads to [`admin`](crate::admin) as they came, and says in which event or reply the answer
//! goes back. Knows no command.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::admin::{Admin, Caller, Told};
use crate::auth::Denied;
use crate::protocol::{names, outbound};
use crate::transport::Link;
use crate::{Error, ErrorKind};

use super::links::Links;
use super::replies::Replies;

/// A verb of this part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Request,
    Next,
    Decide,
    Command,
}

impl Verb {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            names::AUTHORIZATION_REQUEST => Self::Request,
            names::AUTHORIZATION_NEXT => Self::Next,
            names::AUTHORIZATION_DECIDE => Self::Decide,
            names::AUTH_MANAGEMENT_COMMAND => Self::Command,
            _ => return None,
        })
    }

    /// The event of an answer: a good one, a bad one.
    fn events(self) -> (&'static str, &'static str) {
        match self {
            Self::Request => (
                names::AUTHORIZATION_REQUEST_OK,
                names::AUTHORIZATION_REQUEST_FAIL,
            ),
            Self::Next => (names::AUTHORIZATION_NEXT_RESULT, names::AUTHORIZATION_FAIL),
            Self::Decide => (
                names::AUTHORIZATION_DECIDE_RESULT,
                names::AUTHORIZATION_FAIL,
            ),
            Self::Command => (names::AUTH_MANAGEMENT_RESULT, names::AUTH_MANAGEMENT_FAIL),
        }
    }
}

/// Whether a verb is one of strangers: who they are is shown by a proof, or decided by somebody else.
pub(super) fn is_unguarded(name: &str) -> bool {
    Verb::parse(name).is_some()
}

/// Takes an order, if the verb is one.
pub(super) fn take(
    admin: Option<&Arc<Admin>>,
    links: &Arc<Links>,
    link: &Link,
    replies: &Arc<Replies>,
    order: Order<'_>,
) -> bool {
    let (Some(admin), Some(verb)) = (admin, Verb::parse(order.name)) else {
        return false;
    };
    let answer = Answer {
        verb,
        reply: order.reply,
        replies: replies.clone(),
    };
    if !replies.begin_order() {
        let text = "too many orders of this session are under way";
        answer.fail(&Denied::new(ErrorKind::RateLimited, text));
        return true;
    }
    let caller = caller(link);
    let (admin, links) = (admin.clone(), links.clone());
    let payload = order.payload.map(str::to_owned);
    tokio::spawn(async move {
        let done = perform(&admin, &links, verb, payload.as_deref(), &caller).await;
        match done {
            Ok(text) => answer.good(&text),
            Err(denied) => answer.fail(&denied),
        }
        answer.replies.end_order();
    });
    true
}

/// A verb as it came.
pub(super) struct Order<'a> {
    pub(super) name: &'a str,
    pub(super) payload: Option<&'a str>,
    pub(super) reply: Option<u64>,
}

fn caller(link: &Link) -> Caller {
    let address = link.remote().ip().to_canonical();
    Caller {
        address,
        is_private: link.is_private(),
        socket_id: link.socket_id().into(),
    }
}

async fn perform(
    admin: &Admin,
    links: &Links,
    verb: Verb,
    payload: Option<&str>,
    caller: &Caller,
) -> Result<String, Denied> {
    match verb {
        Verb::Request => admin.request(payload, caller).await,
        Verb::Next => admin.next(payload, caller).await,
        Verb::Command => admin.execute(payload, caller).await,
        Verb::Decide => {
            let (text, told) = admin.decide(payload, caller).await?;
            if let Some(told) = told {
                tell(links, &told);
            }
            Ok(text)
        }
    }
}

/// A requester hears what was decided.
pub(super) fn tell(links: &Links, told: &Told) {
    let mut frames = Vec::new();
    let event = match told.is_approved {
        true => names::AUTHORIZATION_APPROVED,
        false => names::AUTHORIZATION_REJECTED,
    };
    outbound::raw_event(&mut frames, event, &told.payload, &[]);
    links.offer(Some(&told.socket_id), &frames.into(), false);
}

/// Where an answer goes.
struct Answer {
    verb: Verb,
    reply: Option<u64>,
    replies: Arc<Replies>,
}

impl Answer {
    fn good(&self, text: &str) {
        self.send(self.verb.events().0, text);
    }

    fn fail(&self, denied: &Denied) {
        self.send(self.verb.events().1, &failure(denied).to_string());
        if denied.closes {
            self.replies.close();
        }
    }

    /// The reply that is awaited, else an event; a requester gets both.
    fn send(&self, event: &str, text: &str) {
        self.replies.push(|out| {
            if let Some(id) = self.reply {
                outbound::raw_reply(out, id, text);
            }
            if self.reply.is_none() || self.verb == Verb::Request {
                outbound::raw_event(out, event, text, &[]);
            }
        });
    }
}

fn failure(denied: &Denied) -> Value {
    let error: &Error = &denied.error;
    let mut failure = json!({
        "ok": false,
        "code": error.kind().status(),
        "error": error.code(),
        "message": error.message(),
    });
    if let Some(wait) = denied.retry_after {
        failure["retry_after"] = wait.as_secs().max(1).into();
    }
    failure
}
