//! One connected client: what it says becomes verbs of the broker, what the broker says becomes frames.
//!
//! The transport calls a [`Session`] with events, the session parses them at once and calls the
//! broker; nothing is parsed further down. Knows no routing, no store and no socket beyond its [`Link`].
//! `server` hands [`Sessions`] to the transport as the service of namespace `/`.

mod dispatch;
mod encode;
mod identify;
mod limited;
mod links;
mod outbox;
mod produce;
mod replies;
mod rules;
mod settle;
mod transfers;

use std::sync::Arc;

use crate::broker::{Batch, Broker, Leave, Member};
use crate::clock::{Clock, Elapsed};
use crate::limits::{Addresses, Caps, Limits, RealmUses, SessionLimits, Ticket};
use crate::metrics::Metrics;
use crate::model::{RealmId, SubscriptionDefaults};
use crate::protocol::inbound::Envelope;
use crate::transport::{Ending, Event, Handler, Hello, Link, Refusal, Service};

pub(crate) use encode::Frames;
use identify::{Identity, Quota};
use limited::{Limited, Refusals, TurnedAway};
pub(crate) use links::Links;
use outbox::LinkOutbox;
use replies::Replies;
pub(crate) use rules::Rules;
use transfers::Transfers;

/// What all sessions of a server share.
#[derive(Debug, Clone)]
pub(crate) struct SessionConfig {
    /// What a SUBSCRIBE gets that does not say.
    pub(crate) defaults: SubscriptionDefaults,
    /// Whether `ANONYMOUS…` names may register in realm `default`; yes.
    pub(crate) allow_anonymous: bool,
    /// `from` must be a producer registered on the session; no (wire §11, F29).
    pub(crate) strict_from: bool,
    /// Largest message, in bytes; 50 MiB (P21).
    pub(crate) max_message_bytes: usize,
    /// How much is too much.
    pub(crate) limits: Arc<Limits>,
    /// Whether clients must show who they are.
    pub(crate) is_auth_on: bool,
}

impl SessionConfig {
    fn caps(&self, realm: &RealmId) -> Caps {
        self.limits.caps(realm, self.is_auth_on)
    }
}

/// The service of namespace `/`: makes a session of every client that connects.
pub(crate) struct Sessions {
    broker: Arc<Broker>,
    clock: Arc<dyn Clock>,
    rules: Arc<Rules>,
    addresses: Addresses,
    uses: RealmUses,
    refusals: Arc<Refusals>,
    links: Arc<Links>,
}

impl Sessions {
    /// Sessions over a broker that was opened.
    pub(crate) fn new(
        broker: Arc<Broker>,
        clock: Arc<dyn Clock>,
        rules: Arc<Rules>,
        metrics: &Metrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            broker,
            clock,
            rules,
            addresses: Addresses::default(),
            uses: RealmUses::default(),
            refusals: Refusals::new(metrics),
            links: Arc::default(),
        })
    }

    /// Its sessions by socket id.
    pub(crate) fn links(&self) -> &Arc<Links> {
        &self.links
    }
}

impl Service for Sessions {
    fn connect(&self, link: Link, hello: &Hello<'_>) -> Result<Box<dyn Handler>, Refusal> {
        let generation = self.rules.generation();
        let config = self.rules.load();
        let (address, now) = (hello.remote.ip(), self.clock.elapsed());
        let admitted = self.addresses.admit(address, &config.limits.address(), now);
        let ticket = match admitted {
            Ok(ticket) => ticket,
            Err(exceeded) => {
                self.refusals.count(exceeded.reason);
                return Ok(TurnedAway::tell(&link, exceeded));
            }
        };
        // With authentication off everybody is in realm `default` with every right (wire §2.1),
        // and counts as logged in (P25).
        link.set_trusted(true);
        let outbox = Arc::new(LinkOutbox::new(link.clone()));
        let member = self
            .broker
            .join(&RealmId::default(), hello.socket_id, outbox);
        self.links.add(&link);
        let replies = Replies::new(link.clone());
        let limited = Limited::new(replies.clone(), self.refusals.clone(), self.clock.clone());
        let identity = Identity::new(
            self.broker.clone(),
            member.clone(),
            link.clone(),
            replies.clone(),
            Quota::new(
                self.rules.clone(),
                self.uses.join(member.realm()),
                limited.clone(),
            ),
        );
        let limits = SessionLimits::new(&config.caps(member.realm()), now);
        Ok(Box::new(Session {
            broker: self.broker.clone(),
            clock: self.clock.clone(),
            config,
            rules: self.rules.clone(),
            generation,
            limits: limits.map(Box::new),
            limited,
            read_at: None,
            _ticket: ticket,
            links: self.links.clone(),
            transfers: None,
            batch: None,
            envelope: None,
            is_reading: false,
            producers: Vec::new(),
            link,
            member,
            identity,
            replies,
        }))
    }
}

/// One client, from CONNECT to its end.
struct Session {
    broker: Arc<Broker>,
    clock: Arc<dyn Clock>,
    config: Arc<SessionConfig>,
    /// Where `config` is from, and the change it is as of.
    rules: Arc<Rules>,
    generation: u64,
    /// Its rates; most sessions have none.
    limits: Option<Box<SessionLimits>>,
    limited: Arc<Limited>,
    /// When the read began that is worked through, once somebody wanted to know.
    read_at: Option<Elapsed>,
    /// Counts it for its address.
    _ticket: Ticket,
    links: Arc<Links>,
    link: Link,
    member: Arc<Member>,
    /// CONSUMER, SUBSCRIBE, UNSUBSCRIBE: one after the other, also while one waits.
    identity: Arc<Identity>,
    replies: Arc<Replies>,
    /// What producers need is made when they produce: most sessions only listen.
    batch: Option<Box<Batch>>,
    envelope: Option<Box<Envelope>>,
    /// Events of the current read have been seen.
    is_reading: bool,
    transfers: Option<Box<Transfers>>,
    /// Producer names registered here, for `strict_from`; only kept when that is on.
    producers: Vec<Arc<str>>,
}

impl Session {
    fn flush(&mut self) {
        if let Some(batch) = &mut self.batch {
            self.broker.flush(&self.member, batch);
        }
    }
}

impl Handler for Session {
    fn event(&mut self, event: Event<'_>) {
        if !std::mem::replace(&mut self.is_reading, true) {
            self.replies.hold();
            self.read_at = None;
            self.refresh();
        }
        self.dispatch(&event);
    }

    fn read_done(&mut self) {
        if std::mem::take(&mut self.is_reading) {
            self.flush();
            self.replies.release();
        }
    }

    fn confirmed(&mut self, position: u64) {
        self.broker.confirmed(&self.member, position);
    }

    fn writable(&mut self) {
        self.broker.writable(&self.member);
    }

    fn oversize(&mut self, size: u64, limit: u64) {
        self.refuse_size("frame", size, limit, None);
    }

    fn tick(&mut self) {
        self.sweep_transfers();
    }

    fn closed(&mut self, ending: Ending) {
        let how = match ending {
            Ending::Closed => Leave::Closed,
            Ending::Broken => Leave::Failed,
            Ending::Silent | Ending::Ours => Leave::Returned,
        };
        self.links.remove(&self.link);
        self.identity.end();
        self.flush();
        self.broker.leave(&self.member, how);
    }
}
