//! A login under way: what was shown, who is asked, and what the client says meanwhile.
//!
//! What comes behind an attempt that somebody outside decides waits for it, in order and bounded
//! (F05). Does not know what the verbs mean.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::auth::{Attempt, Denied, Principal};
use crate::clock::Elapsed;
use crate::protocol::inbound::Authentication;
use crate::transport::{Event, Link, Permit};

/// Events that wait behind an attempt, and their bytes.
const MOST_HELD: usize = 64;
pub(super) const MOST_HELD_BYTES: usize = 1 << 20;
/// Of them what needs no permit.
const FREE_BYTES: usize = 64 << 10;
/// How long they wait; an attempt that takes longer has failed.
const LONGEST: Elapsed = Elapsed::from_secs(10);

/// What AUTHENTICATION showed; nothing at all if it was no object.
#[derive(Default)]
pub(super) struct Shown {
    token: Option<String>,
    realm: Option<String>,
    role: Option<String>,
    key: Option<String>,
}

impl From<Authentication<'_>> for Shown {
    fn from(said: Authentication<'_>) -> Self {
        let own = |text: Option<std::borrow::Cow<'_, str>>| text.map(Into::into);
        Self {
            token: own(said.token),
            realm: own(said.realm),
            role: own(said.role),
            key: own(said.key),
        }
    }
}

/// Where a session stands that has not shown who it is.
pub(super) struct Login {
    /// When it has to have come in.
    pub(super) until: Elapsed,
    /// Attempts that failed.
    pub(super) failures: u32,
    /// Frames of a wrong shape.
    pub(super) strikes: u32,
    waiting: Option<Box<Waiting>>,
}

/// What an attempt came to.
pub(super) type Decision = Result<Arc<Principal>, Denied>;

struct Waiting {
    decision: Arc<Mutex<Option<Decision>>>,
    task: AbortHandle,
    until: Elapsed,
    /// The acknowledgement id of the attempt.
    reply: Option<u64>,
    held: VecDeque<Held>,
    bytes: usize,
    /// For more than [`FREE_BYTES`] of them: many who wait are bounded in sum.
    permit: Option<Permit>,
}

/// An event that waits.
pub(super) struct Held {
    args: Box<str>,
    attachments: Vec<Bytes>,
    pub(super) reply: Option<u64>,
}

impl Held {
    pub(super) fn event(&self) -> Event<'_> {
        Event {
            reply: self.reply,
            args: &self.args,
            attachments: &self.attachments,
        }
    }
}

/// An attempt that is over, and what waited behind it.
pub(super) struct Over {
    /// `None`: it took too long.
    pub(super) decision: Option<Decision>,
    pub(super) reply: Option<u64>,
    pub(super) held: VecDeque<Held>,
}

impl Login {
    pub(super) fn new(until: Elapsed) -> Self {
        Self {
            until,
            failures: 0,
            strikes: 0,
            waiting: None,
        }
    }

    /// The attempt as `auth` wants it.
    pub(super) fn attempt(&self, shown: Shown, link: &Link) -> Attempt {
        Attempt {
            token: shown.token,
            realm: shown.realm,
            role: shown.role,
            key: shown.key,
            address: link.remote().ip(),
            failures: self.failures,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// From now on events wait, until [`Login::over`] says more; the handler of `link` is called then.
    pub(super) fn wait(
        &mut self,
        asking: Pin<Box<dyn Future<Output = Decision> + Send>>,
        link: &Link,
        reply: Option<u64>,
        now: Elapsed,
    ) {
        let decision = Arc::<Mutex<Option<Decision>>>::default();
        let (told, link) = (decision.clone(), link.clone());
        let task = tokio::spawn(async move {
            let outcome = asking.await;
            *told.lock() = Some(outcome);
            link.call();
        });
        self.waiting = Some(Box::new(Waiting {
            decision,
            task: task.abort_handle(),
            until: now + LONGEST,
            reply,
            held: VecDeque::new(),
            bytes: 0,
            permit: None,
        }));
    }

    /// Keeps an event for later; false: too much waits already.
    pub(super) fn hold(&mut self, event: &Event<'_>, link: &Link) -> bool {
        let Some(waiting) = &mut self.waiting else {
            return false;
        };
        let attachments: usize = event.attachments.iter().map(Bytes::len).sum();
        let bytes = waiting.bytes + event.args.len() + attachments;
        if waiting.held.len() >= MOST_HELD || bytes > MOST_HELD_BYTES {
            return false;
        }
        if bytes > FREE_BYTES {
            let has_room = match &mut waiting.permit {
                Some(permit) => permit.grow(bytes),
                none => {
                    *none = link.permit(bytes);
                    none.is_some()
                }
            };
            if !has_room {
                return false;
            }
        }
        waiting.bytes = bytes;
        waiting.held.push_back(Held {
            args: event.args.into(),
            attachments: event.attachments.to_vec(),
            reply: event.reply,
        });
        true
    }

    /// The attempt, if it is decided or has taken too long.
    pub(super) fn over(&mut self, now: Elapsed) -> Option<Over> {
        let waiting = self.waiting.as_mut()?;
        let decision = waiting.decision.lock().take();
        if decision.is_none() && now < waiting.until {
            return None;
        }
        let over = Over {
            decision,
            reply: waiting.reply,
            held: std::mem::take(&mut waiting.held),
        };
        self.waiting = None;
        Some(over)
    }
}

/// Nobody waits any more for what it asks.
impl Drop for Waiting {
    fn drop(&mut self) {
        self.task.abort();
    }
}
