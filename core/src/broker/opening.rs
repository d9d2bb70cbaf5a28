//! Queues that the store is opening for plain subscriptions, which were told at once that they are
//! there (P4): what is to be stored for them is held until the store has said which log that is.
//!
//! Begun by [`super::subscribe`] once the store was called, so that an append called later is behind
//! it; [`super::staging`] waits here. Knows no store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Broker;
use super::attach::is_current;
use super::batch::Stored;
use super::listen::{GroupKey, KeyEntry, Listener};
use super::realm::Realm;
use super::request::SubscribeRequest;
use crate::model::GroupName;

/// The queues of a key that are being opened, by the order in which the store was called.
#[derive(Debug, Default)]
pub(super) struct Openings {
    /// How many; saves the lock where nothing is being opened.
    count: AtomicUsize,
    open: Mutex<(u64, BTreeSet<u64>)>,
}

/// Until it is dropped, messages for the subscription's queue wait for the store's word on it.
pub(super) struct Opening {
    realm: Arc<Realm>,
    entry: Arc<KeyEntry>,
    group: Option<(GroupName, Arc<GroupKey>)>,
    number: u64,
}

impl Openings {
    fn begin(&self) -> u64 {
        let mut open = self.open.lock();
        open.0 += 1;
        let number = open.0;
        open.1.insert(number);
        self.count.store(open.1.len(), Ordering::Release);
        number
    }

    fn end(&self, number: u64) {
        let mut open = self.open.lock();
        open.1.remove(&number);
        self.count.store(open.1.len(), Ordering::Release);
    }

    fn none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn first(&self) -> Option<u64> {
        self.open.lock().1.first().copied()
    }

    /// The newest one.
    pub(super) fn last(&self) -> Option<u64> {
        if self.none() {
            return None;
        }
        self.open.lock().1.last().copied()
    }
}

impl Opening {
    /// Of a listener that has a queue to come; `None`: it has left meanwhile.
    pub(super) fn begin(
        broker: &Broker,
        listener: &Arc<Listener>,
        request: &SubscribeRequest,
    ) -> Option<Self> {
        let realm = listener.member.realm_state();
        let _state = realm.state.lock();
        if !is_current(listener) {
            return None;
        }
        // The key stays, whoever leaves it.
        let entry = realm.enter(&request.key, &**broker.encode(), broker.metrics());
        let group = listener.group.as_ref().map(|name| {
            let group = realm.enter_group(&entry, name, request.options.retry);
            group.opening.fetch_add(1, Ordering::AcqRel);
            (name.clone(), group)
        });
        if group.is_none() {
            entry.opening.fetch_add(1, Ordering::AcqRel);
        }
        let number = entry.openings.begin();
        Some(Self {
            realm: realm.clone(),
            entry,
            group,
            number,
        })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let state = self.realm.state.lock();
        match &self.group {
            Some((name, group)) => {
                group.opening.fetch_sub(1, Ordering::AcqRel);
                self.realm.exit_group(&self.entry, name.as_str());
            }
            None => {
                self.entry.opening.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.entry.openings.end(self.number);
        self.realm.exit(&self.entry);
        drop(state);
        self.entry.opened.notify_waiters();
    }
}

impl KeyEntry {
    /// Whether its log is not known yet, though one is to come.
    fn awaits_log(&self) -> bool {
        self.log().is_none() && !self.openings.none()
    }

    /// Returns once that opening and all before it are over: who subscribed by them is attached.
    pub(super) async fn all_opened(&self, last: u64) {
        let first = || self.openings.first();
        self.opened(|| first().is_some_and(|first| first <= last))
            .await;
    }

    /// Returns once `waits` says no; looks again whenever a queue of the key was opened, or not.
    async fn opened(&self, waits: impl Fn() -> bool) {
        loop {
            let mut opened = std::pin::pin!(self.opened.notified());
            // From here on nothing is missed.
            opened.as_mut().enable();
            if !waits() {
                return;
            }
            opened.await;
        }
    }
}

impl GroupKey {
    fn awaits_queue(&self) -> bool {
        !self.has_queue() && self.is_opening()
    }
}

impl Stored {
    /// Whether it is known where it goes.
    pub(super) fn is_ready(&self) -> bool {
        let mut skip = self.skip.iter();
        self.keys.iter().all(|key| !key.awaits_log())
            && skip.all(|(_, group)| !group.awaits_queue())
    }

    /// Returns once it is known where it goes.
    pub(super) async fn ready(&self) {
        for key in &self.keys {
            key.opened(|| key.awaits_log()).await;
        }
        for (key, group) in &self.skip {
            key.opened(|| group.awaits_queue()).await;
        }
    }

    /// Says to the store where it goes, as far as that is known now.
    pub(super) fn locate(&mut self) {
        self.append.logs = self.keys.iter().filter_map(|key| key.log()).collect();
        let skip = self.skip.iter().filter_map(|(_, group)| group.queue());
        self.append.skip = skip.collect();
    }
}
