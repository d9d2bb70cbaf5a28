//! The end of a realm, and its change of names (admin.md §1.6, §1.7): sessions first, then the live
//! tables, then the store.
//!
//! Whether it may be is asked before, by whoever calls. A session that was sent away holds the realm
//! as it was, which nobody finds any more: nothing it still does brings the name back.

use std::sync::Arc;
use std::time::Duration;

use super::realm::Realm;
use super::request::Removed;
use super::{Answer, Broker, MONITORS, anew, ready, sessions};
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

/// How long what sessions settled last may take to reach the store before a realm is renamed.
const QUIET: Duration = Duration::from_millis(500);

/// Nobody joins these realms until it is dropped.
struct Closing {
    broker: Arc<Broker>,
    realms: Vec<RealmId>,
}

impl Closing {
    fn new(broker: &Arc<Broker>, realms: &[&RealmId]) -> Result<Self> {
        let is_fixed =
            |realm: &&RealmId| **realm == RealmId::default() || realm.as_str() == MONITORS;
        if realms.iter().any(is_fixed) {
            let text = "the realms default and * can be neither removed nor renamed";
            return Err(Error::new(ErrorKind::BadName, text));
        }
        let mut closing = broker.closing.lock();
        if realms.iter().any(|realm| closing.contains(*realm)) {
            let text = "the realm is being removed or renamed already";
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let realms: Vec<RealmId> = realms.iter().map(|realm| (*realm).clone()).collect();
        closing.extend(realms.iter().cloned());
        Ok(Self {
            broker: broker.clone(),
            realms,
        })
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut closing = self.broker.closing.lock();
        for realm in &self.realms {
            closing.remove(realm);
        }
    }
}

/// Takes the realm out of the table, and its sessions with it; how many those were.
fn close(broker: &Arc<Broker>, id: &RealmId) -> usize {
    let Some(realm) = broker.find_realm(id) else {
        return 0;
    };
    let closed = expel_all(broker, &realm);
    realm.clear();
    let gone = {
        let mut realms = broker.realms.write();
        let _state = realm.state.lock();
        realm.set_gone();
        realms.remove(id)
    };
    drop(gone);
    // Whoever joined in between.
    closed + expel_all(broker, &realm)
}

fn expel_all(broker: &Arc<Broker>, realm: &Arc<Realm>) -> usize {
    let members: Vec<_> = realm.state.lock().members.values().cloned().collect();
    for member in &members {
        sessions::expel(broker, member, None);
    }
    members.len()
}

/// See [`Broker::remove_realm`].
fn remove(broker: &Arc<Broker>, id: &RealmId) -> Answer<Removed> {
    let closing = match Closing::new(broker, &[id]) {
        Ok(closing) => closing,
        Err(error) => return ready(Err(error)),
    };
    let sessions = close(broker, id);
    let purged = broker.store().purge_realm(id);
    Box::pin(async move {
        let messages = purged.await;
        drop(closing);
        Ok(Removed {
            sessions,
            messages: messages?,
        })
    })
}

/// See [`Broker::rename_realm`].
fn rename(broker: &Arc<Broker>, from: &RealmId, to: &RealmId) -> Answer<usize> {
    let closing = match Closing::new(broker, &[from, to]) {
        Ok(closing) => closing,
        Err(error) => return ready(Err(error)),
    };
    let (broker, from, to) = (broker.clone(), from.clone(), to.clone());
    Box::pin(async move {
        let sessions = close(&broker, &from) + close(&broker, &to);
        let until = broker.clock().elapsed() + QUIET;
        tokio::select! {
            () = broker.engine().quiet() => {}
            () = broker.clock().sleep_until(until) => {}
        }
        let renamed = broker.store().rename_realm(&from, &to).await;
        let records = broker.store().queues().await?;
        let is_meant = |realm: &RealmId| *realm == from || *realm == to;
        let records = records.into_iter();
        broker.load(
            records
                .filter(|record| is_meant(&record.spec.realm))
                .collect(),
        );
        broker.delayed_bell().notify_one();
        drop(closing);
        tokio::spawn(anew::look_again(Arc::downgrade(&broker)));
        renamed.map(|()| sessions)
    })
}

impl Broker {
    /// Ends a realm: closes its sessions, lets nobody in until it is done, forgets its names and queues
    /// and drops all that is stored for it (admin.md §1.6).
    /// Errors: `bad_name` for `default` and `*`; store trouble: its sessions and names are gone then.
    pub fn remove_realm(self: &Arc<Self>, realm: &RealmId) -> Answer<Removed> {
        remove(self, realm)
    }

    /// Gives a realm another name, with all that is stored for it; its sessions are closed and have to
    /// come in anew (admin.md §1.7). How many those were.
    /// Errors: `bad_name` for `default` and `*`, or if the store holds anything under `to`; then
    /// everything is as before, but for the sessions.
    pub fn rename_realm(self: &Arc<Self>, from: &RealmId, to: &RealmId) -> Answer<usize> {
        rename(self, from, to)
    }

    /// A realm that may be joined.
    pub(super) fn open_realm(&self, id: &RealmId) -> Result<Arc<Realm>> {
        if self.closing.lock().contains(id) {
            let text = "the realm is being removed or renamed";
            return Err(Error::new(ErrorKind::RealmUnknown, text));
        }
        Ok(self.realm(id))
    }
}
