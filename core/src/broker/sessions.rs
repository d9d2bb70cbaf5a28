//! Sessions as those see them who let them in and send them away: joining, listing, expelling.
//!
//! Knows no verb of theirs. The end of a session is in [`super::takeover`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::member::Member;
use super::pass::Pass;
use super::ports::{Notice, Outbox, SessionId};
use super::realm::Realm;
use super::request::{Leave, SessionInfo};
use super::{Broker, takeover};
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

/// See [`Broker::join`].
pub(super) fn join(
    broker: &Arc<Broker>,
    realm: &RealmId,
    socket_id: &str,
    outbox: Arc<dyn Outbox>,
    pass: Pass,
) -> Result<Arc<Member>> {
    if broker.is_moving.load(Ordering::Acquire) {
        // It comes back when the other store leads.
        outbox.close();
    }
    let session = SessionId(broker.last_session.fetch_add(1, Ordering::Relaxed) + 1);
    let socket_id: Arc<str> = socket_id.into();
    loop {
        let realm = broker.open_realm(realm)?;
        let member = Member::new(
            session,
            socket_id.clone(),
            outbox.clone(),
            realm.clone(),
            pass.clone(),
        );
        if member.is_intruder() {
            let text = "this realm is for administrators";
            return Err(Error::new(ErrorKind::Forbidden, text));
        }
        let mut state = realm.state.lock();
        if realm.is_gone() {
            continue; // it was taken out of the table since
        }
        let member = Arc::new(member);
        state.members.insert(session, member.clone());
        broker.sessions.fetch_add(1, Ordering::AcqRel);
        return Ok(member);
    }
}

/// See [`Broker::sessions_of`].
pub(super) fn list(broker: &Broker, realm: Option<&RealmId>) -> Vec<SessionInfo> {
    let mut members: Vec<_> = match realm {
        Some(realm) => broker.find_realm(realm).iter().flat_map(members).collect(),
        None => broker.realms().iter().flat_map(members).collect(),
    };
    members.sort_unstable_by_key(|member| member.session());
    members.iter().map(|member| info(member)).collect()
}

fn members(realm: &Arc<Realm>) -> Vec<Arc<Member>> {
    realm.state.lock().members.values().cloned().collect()
}

fn info(member: &Member) -> SessionInfo {
    let names = member.names.lock();
    let pass = member.pass();
    SessionInfo {
        socket_id: member.socket_id().clone(),
        realm: member.realm().clone(),
        role: pass.role,
        owner: pass.owner.clone(),
        consumers: names.consumers.clone(),
        producers: names.producers.clone(),
        remote: pass.remote,
        since: pass.since,
    }
}

/// See [`Broker::disconnect`].
pub(super) fn disconnect(broker: &Arc<Broker>, socket_id: &str, why: Option<&Error>) -> bool {
    let realms = broker.realms();
    let mut members = realms.iter().flat_map(members);
    let found = members.find(|member| **member.socket_id() == *socket_id);
    if let Some(member) = &found {
        expel(broker, member, why);
    }
    found.is_some()
}

/// See [`Broker::expel`].
pub(super) fn expel(broker: &Arc<Broker>, member: &Arc<Member>, why: Option<&Error>) {
    member.set_expelled();
    if let Some(why) = why {
        let notice = broker.encode().notice(&Notice::Denied(why));
        member.outbox().notice(notice);
    }
    member.outbox().close();
    takeover::leave(broker, member, Leave::Returned);
}
