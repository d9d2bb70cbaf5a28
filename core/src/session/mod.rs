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
mod limited;
mod links;
mod login;
mod manage;
mod outbox;
mod produce;
mod replies;
mod roll;
mod rules;
mod settle;
mod transfers;

use std::future::Future;
use std::sync::{Arc, OnceLock};

use crate::Result;
use crate::admin::{Admin, RollCall, Told};
use crate::auth::{Auth, Credential, Principal, Role};
use crate::broker::{Batch, Broker, Leave, Member, Pass};
use crate::clock::{Clock, Elapsed};
use crate::limits::{Addresses, Caps, Limits, RealmUses, SessionLimits};
use crate::metrics::Metrics;
use crate::model::{RealmId, SubscriptionDefaults};
use crate::protocol::inbound::Envelope;
use crate::transport::{Handler, Hello, Link, Refusal, Service};

use doorway::Doorway;
pub(crate) use encode::Frames;
use guard::Guard;
use identify::{Identity, Quota};
use limited::{Limited, Refusals, TurnedAway};
pub(crate) use links::Links;
use outbox::LinkOutbox;
use replies::Replies;
use roll::Roll;
pub(crate) use rules::Rules;
use transfers::Transfers;

/// What all sessions of a server share.
#[derive(Debug, Clone)]
pub(crate) struct SessionConfig {
    /// What a SUBSCRIBE gets that does not say.
    pub(crate) defaults: SubscriptionDefaults,
    /// Whether `ANONYMOUS…` names may register in realm `default`; yes.
    pub(crate) allow_anonymous: bool,
    /// `from` must be a producer registered on the session (P30); `None`: where authentication is on.
    pub(crate) strict_from: Option<bool>,
    /// Largest message, in bytes; 50 MiB (P21).
    pub(crate) max_message_bytes: usize,
    /// How much is too much.
    pub(crate) limits: Arc<Limits>,
}

impl SessionConfig {
    fn caps(&self, realm: &RealmId, is_auth_on: bool) -> Caps {
        self.limits.caps(realm, is_auth_on)
    }
}

/// What every session reaches.
struct Shared {
    broker: Arc<Broker>,
    auth: Arc<Auth>,
    clock: Arc<dyn Clock>,
    rules: Arc<Rules>,
    addresses: Addresses,
    uses: RealmUses,
    refusals: Arc<Refusals>,
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
        auth: Arc<Auth>,
        clock: Arc<dyn Clock>,
        rules: Arc<Rules>,
        metrics: &Metrics,
    ) -> Arc<Self> {
        Arc::new(Self(Arc::new(Shared {
            broker,
            auth,
            clock,
            rules,
            addresses: Addresses::default(),
            uses: RealmUses::default(),
            refusals: Refusals::new(metrics),
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
        Box::new(move || roll::end_unfounded(&shared.auth, &shared.broker, &inside))
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
            shared.auth.clone(),
            // From now on, whenever it is run.
            shared.auth.changes(),
            shared.broker.clone(),
            shared.clock.clone(),
        )
    }
}

impl Service for Sessions {
    fn connect(&self, link: Link, hello: &Hello<'_>) -> Result<Box<dyn Handler>, Refusal> {
        let shared = &self.0;
        let caps = shared.rules.load().limits.address();
        let (address, now) = (hello.remote.ip(), shared.clock.elapsed());
        match shared.addresses.admit(address, &caps, now) {
            Ok(ticket) => Ok(Box::new(Doorway::new(shared.clone(), link, ticket))),
            Err(exceeded) => {
                shared.refusals.count(exceeded.reason);
                Ok(TurnedAway::tell(&link, exceeded))
            }
        }
    }
}

/// One client that is in.
struct Session {
    shared: Arc<Shared>,
    config: Arc<SessionConfig>,
    /// The change of rules that `config` is as of.
    generation: u64,
    /// Its rates; most sessions have none.
    limits: Option<Box<SessionLimits>>,
    limited: Arc<Limited>,
    /// When the read began that is worked through, once somebody wanted to know.
    read_at: Option<Elapsed>,
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
        let is_auth_on = shared.auth.is_enabled();
        let generation = shared.rules.generation();
        let config = shared.rules.load();
        let member = join(shared, link, replies, &principal)?;
        let (replies, clock) = (replies.clone(), shared.clock.clone());
        let limited = Limited::new(replies.clone(), shared.refusals.clone(), clock);
        let used = shared.uses.join(member.realm());
        let quota = Quota::new(shared.rules.clone(), used, limited.clone(), is_auth_on);
        let broker = shared.broker.clone();
        let caps = config.caps(member.realm(), is_auth_on);
        let limits = SessionLimits::new(&caps, shared.clock.elapsed());
        let mut session = Self {
            identity: Identity::new(broker, member.clone(), link.clone(), replies.clone(), quota),
            guard: is_auth_on.then(|| Guard::new(&shared.auth, &principal)),
            shared: shared.clone(),
            config,
            generation,
            limits: limits.map(Box::new),
            limited,
            read_at: None,
            link: link.clone(),
            principal,
            is_implicit,
            member,
            replies,
            batch: None,
            envelope: None,
            transfers: None,
        };
        session.hold_to_names();
        Ok(session)
    }

    /// A read begins.
    fn begin(&mut self) {
        self.read_at = None;
        self.refresh();
    }

    /// Holds `from` to the names registered here, or not, as the rules are now.
    fn hold_to_names(&mut self) {
        let auth = &self.shared.auth;
        let is_strict = self.config.strict_from;
        if is_strict.unwrap_or_else(|| auth.is_enabled()) {
            let guard = self
                .guard
                .get_or_insert_with(|| Guard::new(auth, &self.principal));
            guard.hold_to(self.member.producers());
        } else if let Some(guard) = &mut self.guard {
            guard.let_go();
        }
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

/// Into the broker, and into what looks after who is in.
fn join(
    shared: &Arc<Shared>,
    link: &Link,
    replies: &Arc<Replies>,
    principal: &Arc<Principal>,
) -> Result<Arc<Member>> {
    let pass = Pass {
        owner: principal.owner.clone(),
        filter: guard::sight(principal),
        is_admin: principal.role == Role::Admin,
        role: principal.role.as_str(),
        remote: Some(link.remote()),
        since: shared.clock.now(),
    };
    let outbox = Arc::new(LinkOutbox::new(link.clone(), replies.clone()));
    let broker = &shared.broker;
    let member = broker.join(&principal.realm, link.socket_id(), outbox, pass)?;
    // Who shows nothing shares what strangers of an address may have under way (P25).
    link.set_trusted(principal.credential != Credential::None);
    shared
        .links
        .add(link, Some((principal.clone(), member.clone())));
    shared.roll.add(principal, &member);
    Ok(member)
}
