//! One connected client: what it says becomes verbs of the broker, what the broker says becomes frames.
//!
//! The transport calls a [`Doorway`](doorway::Doorway) with events. It lets the client in, by what
//! [`auth`](crate::auth) says; from then on there is a [`Session`], which parses events at once and
//! calls the broker; nothing is parsed further down. Knows no routing, no store and no socket beyond
//! its [`Link`]. `server` hands [`Sessions`] to the transport as the service of namespace `/`.

mod absent;
mod dispatch;
mod doorway;
mod encode;
mod guard;
mod identify;
mod links;
mod login;
mod manage;
mod outbox;
mod produce;
mod replies;
mod roll;
mod settle;
mod transfers;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::Result;
use crate::admin::{Admin, RollCall, Told};
use crate::auth::{Auth, Credential, Principal, Role};
use crate::broker::{Batch, Broker, Leave, Member, Pass};
use crate::clock::Clock;
use crate::model::SubscriptionDefaults;
use crate::protocol::inbound::Envelope;
use crate::transport::{Handler, Hello, Link, Refusal, Service};

use doorway::Doorway;
pub(crate) use encode::Frames;
use guard::Guard;
use identify::Identity;
pub(crate) use links::Links;
use outbox::LinkOutbox;
use replies::Replies;
use roll::Roll;
use transfers::Transfers;

/// What all sessions of a server share.
#[derive(Debug, Clone)]
pub(crate) struct SessionConfig {
    /// Who is who, and may what.
    pub(crate) auth: Arc<Auth>,
    /// How long a client may take to come in; 10 s (P25).
    pub(crate) auth_timeout: Duration,
    /// What a SUBSCRIBE gets that does not say.
    pub(crate) defaults: SubscriptionDefaults,
    /// Whether `ANONYMOUS…` names may register in realm `default`; yes.
    pub(crate) allow_anonymous: bool,
    /// `from` must be a producer registered on the session (P30); `None`: where authentication is on.
    pub(crate) strict_from: Option<bool>,
    /// Largest message, in bytes; 50 MiB (P21).
    pub(crate) max_message_bytes: usize,
}

/// What every session reaches.
struct Shared {
    broker: Arc<Broker>,
    clock: Arc<dyn Clock>,
    config: SessionConfig,
    links: Arc<Links>,
    roll: Arc<Roll>,
    /// What orders go to, once there is one.
    admin: OnceLock<Arc<Admin>>,
}

impl Shared {
    /// A verb that is none of a session's own: an order, or one of a part that is not there.
    fn other(&self, link: &Link, replies: &Arc<Replies>, order: manage::Order<'_>) {
        let (name, reply) = (order.name, order.reply);
        if !manage::take(self.admin.get(), &self.links, link, replies, order) {
            absent::answer(replies, name, reply);
        }
    }

    /// Whether a connection waits for a decision on its authorization request (P25).
    fn has_request(&self, link: &Link) -> bool {
        let admin = self.admin.get();
        admin.is_some_and(|admin| admin.requests().is_waiting(link.socket_id()))
    }

    fn ended(&self, link: &Link) {
        self.links.remove(link);
        if let Some(admin) = self.admin.get() {
            admin.requests().session_ended(link.socket_id());
        }
    }
}

/// The service of namespace `/`: makes a doorway for every client that connects.
pub(crate) struct Sessions(Arc<Shared>);

impl Sessions {
    /// Sessions over a broker that was opened.
    pub(crate) fn new(
        broker: Arc<Broker>,
        clock: Arc<dyn Clock>,
        config: SessionConfig,
    ) -> Arc<Self> {
        Arc::new(Self(Arc::new(Shared {
            broker,
            clock,
            config,
            links: Arc::default(),
            roll: Arc::default(),
            admin: OnceLock::new(),
        })))
    }

    /// From now on orders go to `admin`; the first one counts.
    pub(crate) fn manage_by(&self, admin: Arc<Admin>) {
        let _ = self.0.admin.set(admin);
    }

    /// Notes who is connected; called later it ends those who have lost their right to be, and says how
    /// many.
    pub(crate) fn roll_call(&self) -> RollCall {
        let (inside, shared) = (self.0.links.inside(), self.0.clone());
        Box::new(move || roll::end_unfounded(&shared.config.auth, &shared.broker, &inside))
    }

    /// Requesters hear what another broker has decided.
    pub(crate) fn tell(&self, told: &Told) {
        manage::tell(&self.0.links, told);
    }

    /// Its sessions by socket id.
    pub(crate) fn links(&self) -> &Arc<Links> {
        &self.0.links
    }

    /// Ends sessions that have lost their right to be there; to be run as long as the server does.
    pub(crate) fn watch(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = &self.0;
        roll::watch(
            shared.roll.clone(),
            shared.links.clone(),
            shared.config.auth.clone(),
            shared.broker.clone(),
            shared.clock.clone(),
        )
    }
}

impl Service for Sessions {
    fn connect(&self, link: Link, _: &Hello<'_>) -> Result<Box<dyn Handler>, Refusal> {
        Ok(Box::new(Doorway::new(self.0.clone(), link)))
    }
}

/// One client that is in.
struct Session {
    shared: Arc<Shared>,
    link: Link,
    principal: Arc<Principal>,
    /// It had to show nothing, and has not.
    is_implicit: bool,
    /// `None`: it is held to nothing.
    guard: Option<Box<Guard>>,
    member: Arc<Member>,
    /// CONSUMER, SUBSCRIBE, UNSUBSCRIBE: one after the other, also while one waits.
    identity: Arc<Identity>,
    replies: Arc<Replies>,
    /// What producers need is made when they produce: most sessions only listen.
    batch: Option<Box<Batch>>,
    envelope: Option<Box<Envelope>>,
    transfers: Option<Box<Transfers>>,
}

impl Session {
    /// Joins the principal's realm.
    ///
    /// # Errors
    /// What [`Broker::join`] says.
    fn enter(
        shared: &Arc<Shared>,
        link: &Link,
        replies: &Arc<Replies>,
        principal: Arc<Principal>,
        is_implicit: bool,
    ) -> Result<Self> {
        let auth = &shared.config.auth;
        let pass = Pass {
            owner: principal.owner.clone(),
            filter: guard::sight(&principal),
            is_admin: principal.role == Role::Admin,
            role: principal.role.as_str(),
            remote: Some(link.remote()),
            since: shared.clock.now(),
        };
        let outbox = Arc::new(LinkOutbox::new(link.clone()));
        let broker = &shared.broker;
        let member = broker.join(&principal.realm, link.socket_id(), outbox, pass)?;
        // Who shows nothing shares what strangers of an address may have under way (P25).
        link.set_trusted(principal.credential != Credential::None);
        let inside = (principal.clone(), member.clone());
        shared.links.add(link, Some(inside));
        shared.roll.add(&principal, &member);
        let is_from_strict = shared
            .config
            .strict_from
            .unwrap_or_else(|| auth.is_enabled());
        let identity = Identity::new(
            broker.clone(),
            member.clone(),
            link.clone(),
            replies.clone(),
        );
        Ok(Self {
            guard: Guard::new(auth, &principal, is_from_strict),
            shared: shared.clone(),
            link: link.clone(),
            replies: replies.clone(),
            principal,
            is_implicit,
            member,
            identity,
            batch: None,
            envelope: None,
            transfers: None,
        })
    }

    /// Whether nobody has to show anything.
    fn is_open(&self) -> bool {
        self.principal.credential == Credential::Off
    }

    fn flush(&mut self) {
        if let Some(batch) = &mut self.batch {
            self.shared.broker.flush(&self.member, batch);
        }
    }

    /// The client is gone, or comes in again as somebody else.
    fn end(&mut self, how: Leave) {
        self.shared.roll.remove(&self.principal, &self.member);
        self.identity.end();
        self.flush();
        self.shared.broker.leave(&self.member, how);
    }
}
