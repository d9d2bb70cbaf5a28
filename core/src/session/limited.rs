//! What a session hears when it is over a limit: `RATE_LIMITED` at most once a second, and an answer to
//! whatever it waits for (P25). Everything refused is counted. Knows no rate: `limits` decides.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Elapsed};
use crate::limits::{Exceeded, SessionLimits};
use crate::metrics::{Counter, Metrics};
use crate::protocol::outbound;
use crate::transport::{Ending, Event, Handler, Link};

use super::Session;
use super::replies::Replies;

/// Between two notices to one session.
const SILENCE: Duration = Duration::from_secs(1);

/// Everything that can be exceeded here.
const REASONS: &[&str] = &[
    "bytes_per_second",
    "connections_per_minute_per_ip",
    "max_connections_per_ip",
    "max_registrations_per_realm",
    "max_registrations_per_socket",
    "max_subscriptions_per_realm",
    "max_subscriptions_per_socket",
    "message_too_large",
    "messages_per_second",
];

/// What all sessions count refusals in; each is looked up once.
#[derive(Debug)]
pub(super) struct Refusals(Vec<(&'static str, Counter)>);

impl Refusals {
    pub(super) fn new(metrics: &Metrics) -> Arc<Self> {
        let counter = |reason: &&'static str| (*reason, metrics.rate_limited.counter(&[reason]));
        Arc::new(Self(REASONS.iter().map(counter).collect()))
    }

    pub(super) fn count(&self, reason: &str) {
        if let Some((_, counter)) = self.0.iter().find(|(name, _)| *name == reason) {
            counter.add(1);
        }
    }
}

/// The voice of one session's limits.
pub(super) struct Limited {
    replies: Arc<Replies>,
    refusals: Arc<Refusals>,
    clock: Arc<dyn Clock>,
    told: Mutex<Option<Elapsed>>,
}

impl Limited {
    pub(super) fn new(
        replies: Arc<Replies>,
        refusals: Arc<Refusals>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            replies,
            refusals,
            clock,
            told: Mutex::default(),
        })
    }

    /// Something was refused. `must_tell`: the client is to hear of it whatever it has heard before.
    pub(super) fn refuse(&self, exceeded: Exceeded, reply: Option<u64>, must_tell: bool) {
        let Exceeded {
            reason,
            retry_after,
        } = exceeded;
        self.refusals.count(reason);
        let is_due = self.is_due();
        self.replies.push(|out| {
            if is_due {
                outbound::rate_limited(out, reason, retry_after);
            }
            match reply {
                Some(id) => outbound::reply_rate_limited(out, id, reason, retry_after),
                None if must_tell => outbound::error_rate_limited(out, reason, retry_after),
                None => {}
            }
        });
    }

    fn is_due(&self) -> bool {
        let now = self.clock.elapsed();
        let mut told = self.told.lock();
        let is_due = told.is_none_or(|told| now.saturating_sub(told) >= SILENCE);
        if is_due {
            *told = Some(now);
        }
        is_due
    }
}

impl Session {
    /// Takes over rules that have changed.
    pub(super) fn refresh(&mut self) {
        let generation = self.shared.rules.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.config = self.shared.rules.load();
        self.hold_to_names();
        let is_auth_on = self.shared.auth.is_enabled();
        let caps = self.config.caps(self.member.realm(), is_auth_on);
        let now = self.shared.clock.elapsed();
        let limits = match self.limits.take() {
            Some(limits) => limits.renewed(&caps, now),
            None => SessionLimits::new(&caps, now),
        };
        self.limits = limits.map(Box::new);
    }

    /// Whether a message or chunk of so many bytes may pass now; if not, the client is told.
    pub(super) fn admit(&mut self, bytes: usize, reply: Option<u64>, must_tell: bool) -> bool {
        let Some(limits) = &mut self.limits else {
            return true;
        };
        // The messages of one read came at one time.
        let now = *self
            .read_at
            .get_or_insert_with(|| self.shared.clock.elapsed());
        match limits.message(bytes, now) {
            Ok(()) => true,
            Err(exceeded) => {
                self.limited.refuse(exceeded, reply, must_tell);
                false
            }
        }
    }
}

/// A client that is turned away at the door: it hears why and is closed.
pub(super) struct TurnedAway;

impl TurnedAway {
    pub(super) fn tell(link: &Link, exceeded: Exceeded) -> Box<dyn Handler> {
        let mut frames = Vec::new();
        outbound::rate_limited(&mut frames, exceeded.reason, exceeded.retry_after);
        link.reply(frames.into());
        link.close();
        Box::new(Self)
    }
}

impl Handler for TurnedAway {
    fn event(&mut self, _event: Event<'_>) {}
    fn read_done(&mut self) {}
    fn confirmed(&mut self, _position: u64) {}
    fn writable(&mut self) {}
    fn oversize(&mut self, _size: u64, _limit: u64) {}
    fn tick(&mut self) {}
    fn closed(&mut self, _ending: Ending) {}
}
