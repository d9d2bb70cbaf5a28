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

/// Nobody joins these realms until it is dropped, and nobody else removes or renames them.
struct Closing {
    broker: Arc<Broker>,
    realms: Vec<RealmId>,
}

/// Nobody joins these realms until it is dropped: another broker renames them.
pub struct HeldRealms {
    broker: Arc<Broker>,
    realms: [RealmId; 2],
}

impl Drop for HeldRealms {
    fn drop(&mut self) {
        let mut held = self.broker.held.lock();
        for realm in &self.realms {
            if let Some(at) = held.iter().position(|held| held == realm) {
                held.swap_remove(at);
            }
        }
    }
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
        // What other brokers have opened there meanwhile.
        close(&broker, &from);
        load(&broker, [from, to]).await?;
        drop(closing);
        renamed.map(|()| sessions)
    })
}

/// Reads again what is remembered in realms that were closed.
async fn load(broker: &Arc<Broker>, realms: [RealmId; 2]) -> Result<()> {
    let records = broker.store().queues().await?.into_iter();
    let meant = records.filter(|record| realms.contains(&record.spec.realm));
    broker.load(meant.collect());
    broker.delayed_bell().notify_one();
    tokio::spawn(anew::look_again(Arc::downgrade(broker)));
    Ok(())
}

/// Another broker has renamed a realm: what was here under either name is closed, and read again under the
/// new one. Does not wait for the store.
pub(super) fn follow(broker: &Arc<Broker>, from: RealmId, to: RealmId) {
    let held = broker.hold_realms([from.clone(), to.clone()]);
    close(broker, &from);
    close(broker, &to);
    let broker = broker.clone();
    tokio::spawn(async move {
        if let Err(error) = load(&broker, [from, to]).await {
            // The store says when it is back, and then everything is looked at.
            tracing::debug!(%error, "a renamed realm cannot be read");
        }
        drop(held);
    });
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

    /// Whether a realm could get this name.
    ///
    /// # Errors
    /// `bad_name` if the store holds anything under it; store trouble.
    pub async fn check_rename(&self, to: &RealmId) -> Result<()> {
        let records = self.store().queues().await?;
        let has_queues = records.iter().any(|record| record.spec.realm == *to);
        if !has_queues && self.store().realm_depth(to).await?.count == 0 {
            return Ok(());
        }
        let text = format!("the store holds something of a realm {to} already; purge it first");
        Err(Error::new(ErrorKind::BadName, text))
    }

    /// Lets nobody join these realms until what it returns is dropped: another broker on the store is about
    /// to rename one to the other. Sessions that are there stay.
    pub fn hold_realms(self: &Arc<Self>, realms: [RealmId; 2]) -> HeldRealms {
        self.held.lock().extend(realms.iter().cloned());
        let broker = self.clone();
        HeldRealms { broker, realms }
    }

    /// Whether a realm is being removed or renamed.
    pub(super) fn is_shut(&self, id: &RealmId) -> bool {
        self.closing.lock().contains(id) || self.held.lock().contains(id)
    }

    /// A realm that may be joined.
    pub(super) fn open_realm(&self, id: &RealmId) -> Result<Arc<Realm>> {
        if self.is_shut(id) {
            let text = "the realm is being removed or renamed; try again in a moment";
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        Ok(self.realm(id))
    }
}
