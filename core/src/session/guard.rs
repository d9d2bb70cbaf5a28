//! What one session may do: the roles' table, its credential's patterns, its realm's policies (P30).
//!
//! Only sessions have one that are held to something; with authentication off nobody is, unless `from`
//! is. Decides on the concrete event and name; what a wildcard may see is its filter's business, in the
//! broker. Knows no packet.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::auth::{Auth, Need, Principal};
use crate::broker::Filter;
use crate::model::ProducerName;
use crate::protocol::inbound::{Inbound, Produce, Subscribe};
use crate::{Error, ErrorKind, Result};

use super::manage;

/// Decisions on events that are kept; past this they are made anew.
const MAX_DECIDED: usize = 1_024;

/// What a verb needs of a role (admin.md §2.6); `None`: it is not guarded.
pub(super) fn need_of(verb: &Inbound<'_>) -> Option<Need> {
    Some(match verb {
        Inbound::Producer(_) | Inbound::Produce(_) | Inbound::ProduceChunk(_) => Need::Produce,
        Inbound::Consumer(_)
        | Inbound::Subscribe(_)
        | Inbound::Unsubscribe(_)
        | Inbound::Ack(_)
        | Inbound::Nack(_)
        | Inbound::Working(_) => Need::Consume,
        Inbound::Hello | Inbound::Ping(_) | Inbound::Debug | Inbound::Quit(_) => Need::Any,
        Inbound::Authentication(_) => return None,
        Inbound::Other { name, .. } if manage::is_unguarded(name) => return None,
        Inbound::Other { .. } => Need::Any,
    })
}

/// See the module.
pub(super) struct Guard {
    auth: Arc<Auth>,
    principal: Arc<Principal>,
    changes: watch::Receiver<u64>,
    needs_e2ee: bool,
    /// Whether the realm ends by itself.
    is_ephemeral: bool,
    /// Producer names registered here, where `from` is held to them.
    producers: Option<Vec<Arc<str>>>,
    decided: Decided,
}

/// Which events may be produced, as far as that was asked.
#[derive(Default)]
struct Decided {
    events: HashMap<Box<str>, bool>,
    /// Bursts mostly go one way.
    last: String,
    is_allowed: bool,
}

impl Guard {
    /// Holds a session to what its principal may.
    pub(super) fn new(auth: &Arc<Auth>, principal: &Arc<Principal>) -> Box<Self> {
        let changes = auth.changes();
        Box::new(Self {
            needs_e2ee: auth.needs_e2ee(&principal.realm),
            is_ephemeral: auth.is_ephemeral(&principal.realm),
            auth: auth.clone(),
            principal: principal.clone(),
            changes,
            producers: None,
            decided: Decided::default(),
        })
    }

    /// `from` is held to these names, and to those registered from now on, unless it is already held.
    pub(super) fn hold_to(&mut self, names: Vec<ProducerName>) {
        let names = names.iter().map(|name| Arc::from(name.as_str()));
        self.producers.get_or_insert_with(|| names.collect());
    }

    /// `from` may be whoever the credential lets it be.
    pub(super) fn let_go(&mut self) {
        self.producers = None;
    }

    /// Whether the role covers a verb.
    ///
    /// # Errors
    /// `forbidden`.
    pub(super) fn covers(&self, need: Need) -> Result<()> {
        let role = self.principal.role;
        if role.covers(need) {
            return Ok(());
        }
        let what = match need {
            Need::Produce => "produce",
            Need::Consume => "consume",
            Need::Any => "do this",
        };
        Err(forbidden(&format!("a {} may not {what}", role.as_str())))
    }

    /// Whether a name may be taken, as producer, consumer, consumer id or group.
    ///
    /// # Errors
    /// `forbidden`.
    pub(super) fn take(&self, name: &str) -> Result<()> {
        if self.principal.allow.names.is_none() || self.principal.allow.may_take(name) {
            return Ok(());
        }
        let text = format!("the credential does not allow the name {name:?}");
        Err(forbidden(&text))
    }

    /// The names of a SUBSCRIBE.
    ///
    /// # Errors
    /// `forbidden`.
    pub(super) fn take_all(&self, subscribe: &Subscribe) -> Result<()> {
        self.take(subscribe.consumer.as_str())?;
        if let Some(id) = &subscribe.consumer_id {
            self.take(id.as_str())?;
        }
        match &subscribe.options.group {
            Some(group) => self.take(group.as_str()),
            None => Ok(()),
        }
    }

    /// A producer name has been registered on the session.
    pub(super) fn registered(&mut self, name: &str) {
        if let Some(producers) = &mut self.producers
            && !producers.iter().any(|known| **known == *name)
        {
            producers.push(Arc::from(name));
        }
    }

    /// Whether this message may be produced here, under this name.
    ///
    /// # Errors
    /// `forbidden`, `e2ee_required`; `realm_unknown` once the realm's end has come.
    pub(super) fn produce(&mut self, produce: &Produce<'_>, from: &str) -> Result<()> {
        match &self.producers {
            Some(names) if !names.iter().any(|name| **name == *from) => {
                let text = format!("{from:?} is not a producer registered on this connection");
                return Err(forbidden(&text));
            }
            Some(_) => {}
            None => self.take(from)?,
        }
        if self.changes.has_changed().unwrap_or_default() {
            self.changes.mark_unchanged();
            self.needs_e2ee = self.auth.needs_e2ee(&self.principal.realm);
            self.is_ephemeral = self.auth.is_ephemeral(&self.principal.realm);
        }
        // Its session ends soon, and nothing is taken until then.
        if self.is_ephemeral && self.auth.has_ended(&self.principal.realm) {
            return Err(Error::new(ErrorKind::RealmUnknown, "the realm has ended"));
        }
        if self.needs_e2ee && produce.enc.is_none() {
            let text = "the realm takes encrypted bodies only";
            return Err(Error::new(ErrorKind::E2eeRequired, text));
        }
        if self.principal.allow.produce.is_some() && !self.may_produce(&produce.event) {
            let text = format!("no right to produce {:?} here", produce.event);
            return Err(forbidden(&text));
        }
        Ok(())
    }

    fn may_produce(&mut self, event: &str) -> bool {
        let decided = &mut self.decided;
        if decided.last == event {
            return decided.is_allowed;
        }
        let known = decided.events.get(event).copied();
        let is_allowed = known.unwrap_or_else(|| self.principal.may_produce(event));
        if known.is_none() {
            if decided.events.len() >= MAX_DECIDED {
                decided.events.clear();
            }
            decided.events.insert(event.into(), is_allowed);
        }
        decided.last.clear();
        decided.last.push_str(event);
        decided.is_allowed = is_allowed;
        is_allowed
    }
}

fn forbidden(text: &str) -> Error {
    Error::new(ErrorKind::Forbidden, text)
}

/// What a session may receive, for the broker; `None`: everything.
pub(super) fn sight(principal: &Arc<Principal>) -> Option<Arc<dyn Filter>> {
    let is_open = !principal.is_narrow() && principal.role.covers(Need::Consume);
    (!is_open).then(|| Arc::new(Sight(principal.clone())) as Arc<dyn Filter>)
}

struct Sight(Arc<Principal>);

impl Filter for Sight {
    fn may_see(&self, event: &str) -> bool {
        self.0.may_consume(event)
    }
}
