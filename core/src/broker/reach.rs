//! What the other files of this room reach of the broker: its parts, its realms, its counters of ids
//! and sessions. Decides nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;

use super::engine::Engine;
use super::realm::Realm;
use super::{Broker, Encode, Member, Outbox, Pass, SessionId};
use crate::Result;
use crate::clock::{Clock, Timestamp};
use crate::metrics::Metrics;
use crate::model::{MessageId, RealmId};
use crate::store::Pending;

impl Broker {
    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.engine.clock
    }

    pub(super) fn encode(&self) -> &Arc<dyn Encode> {
        &self.engine.encode
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn monitor(&self) -> &Arc<Realm> {
        &self.monitor
    }

    pub(super) fn delayed_bell(&self) -> Arc<Notify> {
        self.delayed_bell.clone()
    }

    pub(super) fn evicts_idle(&self) -> bool {
        !self.keeps_idle.load(Ordering::Relaxed)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// It takes nothing new at this moment. Whoever asks while another store takes over is closed, so
    /// that it comes back and asks again.
    pub(super) fn refuses(&self, member: &Member) -> bool {
        let is_moving = self.is_moving.load(Ordering::Acquire);
        if is_moving {
            member.outbox().close();
        }
        self.is_closing() || is_moving
    }

    pub(super) fn left(&self) {
        self.sessions.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn realms(&self) -> Vec<Arc<Realm>> {
        self.realms.read().values().cloned().collect()
    }

    pub(super) fn find_realm(&self, id: &RealmId) -> Option<Arc<Realm>> {
        self.realms.read().get(id).cloned()
    }

    pub(super) fn realm(&self, id: &RealmId) -> Arc<Realm> {
        if let Some(realm) = self.find_realm(id) {
            return realm;
        }
        let mut realms = self.realms.write();
        realms
            .entry(id.clone())
            .or_insert_with(|| Arc::new(Realm::new(id.clone(), &self.metrics)))
            .clone()
    }

    /// A session of our own that is in no table.
    pub(super) fn inner_member(&self, realm: &RealmId, outbox: Arc<dyn Outbox>) -> Arc<Member> {
        let realm = self.realm(realm);
        let (id, pass) = (SessionId(0), Pass::default());
        Arc::new(Member::new(id, "".into(), outbox, realm, pass))
    }

    /// Takes a realm that nothing is left of out of the table: its name may never come again (P25).
    pub(super) fn drop_if_empty(&self, realm: &Arc<Realm>) {
        if realm.is_monitor || realm.id == RealmId::default() || !realm.state.lock().is_empty() {
            return;
        }
        let mut realms = self.realms.write();
        let state = realm.state.lock();
        let is_same = realms
            .get(&realm.id)
            .is_some_and(|known| Arc::ptr_eq(known, realm));
        if is_same && state.is_empty() {
            realm.set_gone();
            realms.remove(&realm.id);
        }
    }

    /// Ascending, also across restarts as long as the wall clock does not go back by more than it
    /// ran; no other broker on the store gives the same.
    pub(super) fn next_message(&self, now: Timestamp) -> MessageId {
        let floor = now.0 << 10;
        let following = |last: u64| last.saturating_add(1).max(floor);
        let next = |last: u64| Some(following(last));
        let numbers = &self.last_message;
        match numbers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(last) | Err(last) => {
                let number = self.number.load(Ordering::Relaxed);
                MessageId(following(last) << 10 | u64::from(number))
            }
        }
    }

    /// A call to the store whose answer nobody waits for; a failure is logged.
    pub(super) fn in_background<T: Send + 'static>(
        &self,
        mut pending: Pending<T>,
        what: &'static str,
    ) {
        let log = move |result: Result<T>| {
            if let Err(error) = result {
                tracing::warn!(%error, "the store could not {what}");
            }
        };
        match pending.take_ready() {
            Some(result) => log(result),
            None => {
                tokio::spawn(async move { log(pending.await) });
            }
        }
    }
}
