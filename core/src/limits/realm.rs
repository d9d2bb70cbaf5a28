//! How many names and subscriptions the live sessions of a realm have. Looking never inserts: a realm
//! is here while a session counts in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{Caps, Exceeded, one_more};
use crate::model::RealmId;

#[derive(Debug, Default)]
struct Counts {
    registrations: AtomicUsize,
    subscriptions: AtomicUsize,
}

type Table = Mutex<HashMap<RealmId, Arc<Counts>>>;

/// The realms of a server that have sessions.
#[derive(Debug, Clone, Default)]
pub struct RealmUses(Arc<Table>);

impl RealmUses {
    /// What a new session of this realm counts in.
    pub fn join(&self, realm: &RealmId) -> RealmUse {
        let counts = self.0.lock().entry(realm.clone()).or_default().clone();
        RealmUse {
            table: self.0.clone(),
            realm: realm.clone(),
            counts,
            registrations: 0,
            subscriptions: 0,
        }
    }
}

/// What one session has of its realm's counts; gives it back when dropped.
#[derive(Debug)]
pub struct RealmUse {
    table: Arc<Table>,
    realm: RealmId,
    counts: Arc<Counts>,
    registrations: usize,
    subscriptions: usize,
}

impl RealmUse {
    /// The session has this many names and subscriptions now.
    pub fn set(&mut self, registrations: usize, subscriptions: usize) {
        shift(
            &self.counts.registrations,
            &mut self.registrations,
            registrations,
        );
        shift(
            &self.counts.subscriptions,
            &mut self.subscriptions,
            subscriptions,
        );
    }

    /// Whether the session may have one more name.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn may_register(&self, caps: &Caps) -> Result<(), Exceeded> {
        let own = "max_registrations_per_socket";
        one_more(caps.max_registrations_per_socket, self.registrations, own)?;
        let all = self.counts.registrations.load(Ordering::Relaxed);
        let reason = "max_registrations_per_realm";
        one_more(caps.max_registrations_per_realm, all, reason)
    }

    /// Whether the session may have one more subscription.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn may_subscribe(&self, caps: &Caps) -> Result<(), Exceeded> {
        let own = "max_subscriptions_per_socket";
        one_more(caps.max_subscriptions_per_socket, self.subscriptions, own)?;
        let all = self.counts.subscriptions.load(Ordering::Relaxed);
        let reason = "max_subscriptions_per_realm";
        one_more(caps.max_subscriptions_per_realm, all, reason)
    }
}

fn shift(sum: &AtomicUsize, own: &mut usize, now: usize) {
    match now.checked_sub(*own) {
        Some(more) => sum.fetch_add(more, Ordering::Relaxed),
        None => sum.fetch_sub(*own - now, Ordering::Relaxed),
    };
    *own = now;
}

impl Drop for RealmUse {
    fn drop(&mut self) {
        self.set(0, 0);
        let mut table = self.table.lock();
        // The table's and this one: nobody else counts in it.
        if Arc::strong_count(&self.counts) == 2 {
            table.remove(&self.realm);
        }
    }
}
