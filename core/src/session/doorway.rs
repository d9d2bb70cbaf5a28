//! The door of one client: nobody in until `auth` says so, then its session.
//!
//! Before that little is heard: AUTHENTICATION, strangers' verbs, and a first verb by which somebody
//! may be let in that shows nothing (admin.md §2.2, §2.5). With authentication off the session is there
//! from the start. Knows no broker beyond that.

use std::sync::Arc;

use crate::ErrorKind;
use crate::auth::{Denied, Outcome, Principal};
use crate::broker::Leave;
use crate::limits::Ticket;
use crate::protocol::inbound::{Answer, Inbound};
use crate::protocol::outbound;
use crate::transport::{Ending, Event, Handler, Link};

use super::login::{Decision, Login, MOST_HELD_BYTES, Shown};
use super::replies::Replies;
use super::{Session, Shared, guard, manage};

/// The largest event of who is not in (P25).
const LARGEST: usize = 64 << 10;
/// The largest frame that is read of it: one that is a little too large is answered, and costs nothing.
const LARGEST_READ: usize = 2 * LARGEST;
/// The same while somebody outside is asked: what it says then waits, within bounds of its own.
const LARGEST_WAITING: usize = LARGEST_READ + MOST_HELD_BYTES;
/// Frames of a wrong shape before the connection is closed.
const STRIKES: u32 = 20;

/// See the module.
pub(super) struct Doorway {
    shared: Arc<Shared>,
    link: Link,
    replies: Arc<Replies>,
    session: Option<Session>,
    /// `None`: there is nothing to show any more.
    login: Option<Box<Login>>,
    /// Events of the current read have been seen.
    is_reading: bool,
    /// Counts it for its address.
    _ticket: Ticket,
}

impl Doorway {
    pub(super) fn new(shared: Arc<Shared>, link: Link, ticket: Ticket) -> Self {
        let replies = Replies::new(link.clone());
        let mut doorway = Self {
            session: None,
            login: None,
            is_reading: false,
            _ticket: ticket,
            shared: shared.clone(),
            link,
            replies,
        };
        if shared.auth.is_enabled() {
            let until = shared.clock.elapsed() + shared.auth.timeout();
            doorway.login = Some(Box::new(Login::new(until)));
            doorway.link.limit_frames(Some(LARGEST_READ));
            shared.links.add(&doorway.link, None);
        } else if let Err(denied) = doorway.enter(Arc::new(Principal::everybody()), false) {
            doorway.replies.deny(&denied, None);
            doorway.replies.close();
        }
        doorway
    }

    /// In, in the place of who was in before.
    fn enter(&mut self, principal: Arc<Principal>, is_implicit: bool) -> Result<(), Denied> {
        if let Some(mut before) = self.session.take() {
            before.end(Leave::Closed);
        }
        let (shared, link) = (&self.shared, &self.link);
        let mut session = Session::enter(shared, link, &self.replies, principal, is_implicit)?;
        // What has changed while it came in was asked of nobody.
        if let Err(denied) = shared.auth.check(&session.principal) {
            shared.broker.expel(&session.member, None);
            session.end(Leave::Closed);
            return Err(Denied {
                closes: true,
                ..denied
            });
        }
        self.session = Some(session);
        self.link.limit_frames(None);
        Ok(())
    }

    fn take(&mut self, event: &Event<'_>) {
        if let Some(login) = &mut self.login
            && login.is_waiting()
        {
            if !login.hold(event, &self.link) {
                let text = "too much was said before it is known who says it";
                let denied = Denied::new(ErrorKind::Unauthenticated, text);
                self.replies.deny(&denied, event.reply);
            }
            return;
        }
        let again = match &mut self.session {
            Some(session) => session.dispatch(event),
            None => return self.at_door(event),
        };
        if let Some((shown, reply)) = again {
            self.attempt(shown, reply);
        }
    }

    fn at_door(&mut self, event: &Event<'_>) {
        let attachments = event.attachments.iter().map(|bytes| bytes.len());
        let size = event.args.len() + attachments.sum::<usize>();
        if size > LARGEST {
            let (size, limit) = (size as u64, LARGEST as u64);
            let reply = event.reply;
            self.replies
                .refuse_size("frame before AUTHENTICATION", size, limit, reply);
            return self.strike();
        }
        let mut scratch = String::new();
        let defaults = self.shared.rules.load().defaults;
        match Inbound::parse(event.args, event.attachments, &mut scratch, &defaults) {
            Ok(Inbound::Authentication(said)) => self.attempt(said.into(), event.reply),
            Ok(verb) => match guard::need_of(&verb) {
                Some(need) => match self.shared.auth.admit(need) {
                    Ok(principal) => self.let_in(principal, event),
                    Err(denied) => self.replies.deny(&denied, event.reply),
                },
                None => {
                    if let Inbound::Other { name, payload } = verb {
                        let order = manage::Order {
                            name: &name,
                            payload,
                            reply: event.reply,
                        };
                        self.shared.other(&self.link, &self.replies, order);
                    }
                }
            },
            Err(refused) if refused.answer == Answer::AuthFail => {
                self.attempt(Shown::default(), event.reply);
            }
            Err(refused) => {
                self.replies.refuse(&refused, event.reply);
                self.strike();
            }
        }
    }

    /// In without having shown anything, for this event.
    fn let_in(&mut self, principal: Arc<Principal>, event: &Event<'_>) {
        match self.enter(principal, true) {
            Ok(()) => self.take(event),
            Err(denied) => self.replies.deny(&denied, event.reply),
        }
    }

    fn strike(&mut self) {
        if let Some(login) = &mut self.login {
            login.strikes += 1;
            if login.strikes >= STRIKES {
                tracing::debug!(socket = self.link.socket_id(), "too many malformed frames");
                self.replies.close();
            }
        }
    }

    fn attempt(&mut self, shown: Shown, reply: Option<u64>) {
        let now = self.shared.clock.elapsed();
        let timeout = self.shared.auth.timeout();
        let login = self
            .login
            .get_or_insert_with(|| Box::new(Login::new(now + timeout)));
        let attempt = login.attempt(shown, &self.link);
        match self.shared.auth.authenticate(&attempt) {
            Outcome::Now(decision) => self.decided(decision, reply),
            Outcome::Later(asking) => {
                self.link.limit_frames(Some(LARGEST_WAITING));
                login.wait(asking, &self.link, reply, now);
            }
        }
    }

    fn decided(&mut self, decision: Decision, reply: Option<u64>) {
        let entered = decision.and_then(|principal| self.enter(principal, false));
        match (entered, &self.session) {
            (Ok(()), Some(session)) => {
                let principal = &session.principal;
                let (realm, role) = (principal.realm.as_str(), principal.role.as_str());
                self.replies
                    .push(|out| outbound::auth_ok(out, reply, realm, role));
                self.login = None;
            }
            (Err(denied), _) => {
                if let Some(login) = &mut self.login {
                    login.failures = login.failures.saturating_add(1);
                }
                let most = self.session.is_none().then_some(LARGEST_READ);
                self.link.limit_frames(most);
                self.replies.deny(&denied, reply);
            }
            (Ok(()), None) => {}
        }
    }

    /// Looks whether the attempt that is out is over; then what waited behind it is heard.
    fn look(&mut self) {
        let now = self.shared.clock.elapsed();
        let over = self.login.as_mut().and_then(|login| login.over(now));
        let Some(over) = over else { return };
        self.replies.hold();
        let is_late = over.decision.is_none();
        let late = || {
            Denied::new(
                ErrorKind::Unauthenticated,
                "it could not be decided in time",
            )
        };
        self.decided(over.decision.unwrap_or_else(|| Err(late())), over.reply);
        for held in over.held {
            if self.replies.is_closed() {
                break;
            }
            if is_late {
                self.replies.deny(&late(), held.reply);
            } else {
                self.take(&held.event());
            }
        }
        self.read_over();
    }

    fn read_over(&mut self) {
        if let Some(session) = &mut self.session {
            session.flush();
        }
        self.replies.release();
    }

    /// Whoever is not in by now is not coming in.
    fn look_at_time(&self) {
        let (None, Some(login)) = (&self.session, &self.login) else {
            return;
        };
        let is_over = self.shared.clock.elapsed() >= login.until;
        let may_stay = || self.shared.has_request(&self.link);
        if is_over && !login.is_waiting() && !self.replies.is_closed() && !may_stay() {
            let text = "nobody was let in by this connection in time";
            let denied = Denied {
                closes: true,
                ..Denied::new(ErrorKind::Unauthenticated, text)
            };
            self.replies.deny(&denied, None);
        }
    }
}

impl Handler for Doorway {
    fn event(&mut self, event: Event<'_>) {
        if !std::mem::replace(&mut self.is_reading, true) {
            self.replies.hold();
            if let Some(session) = &mut self.session {
                session.begin();
            }
        }
        if !self.replies.is_closed() {
            self.take(&event);
        }
    }

    fn read_done(&mut self) {
        if std::mem::take(&mut self.is_reading) {
            self.read_over();
        }
    }

    fn confirmed(&mut self, position: u64) {
        if let Some(session) = &self.session {
            self.shared.broker.confirmed(&session.member, position);
        }
    }

    fn writable(&mut self) {
        if let Some(session) = &self.session {
            self.shared.broker.writable(&session.member);
        }
    }

    fn oversize(&mut self, size: u64, limit: u64) {
        self.replies.refuse_size("frame", size, limit, None);
        if self.session.is_none() {
            self.strike();
        }
    }

    fn tick(&mut self) {
        if self.login.is_some() {
            self.look();
            self.look_at_time();
        }
        if let Some(session) = &mut self.session {
            session.sweep_transfers();
        }
    }

    fn called(&mut self) {
        self.look();
    }

    fn closed(&mut self, ending: Ending) {
        let how = match ending {
            Ending::Closed => Leave::Closed,
            Ending::Broken => Leave::Failed,
            Ending::Silent | Ending::Ours => Leave::Returned,
        };
        self.shared.ended(&self.link);
        self.login = None;
        if let Some(session) = &mut self.session {
            session.end(how);
        }
    }
}
