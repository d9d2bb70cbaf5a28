//! What operators ask of the broker and order it to do: numbers, queues, dead letters, sessions.
//! The doing is in [`super::admin`] and [`super::sessions`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::member::Member;
use super::request::{QueueStats, RealmStats, SessionInfo};
use super::{Answer, Broker, admin, catalogue, sessions};
use crate::Error;
use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::store::{DeadLetter, DeadLetterId, QueueId, QueueSpec};

impl Broker {
    /// Live numbers by realm, sorted by name.
    pub fn stats(&self) -> Vec<(RealmId, RealmStats)> {
        admin::stats(self)
    }

    /// Sessions now.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Acquire)
    }

    /// Every remembered queue of a realm: waiting, in flight, oldest.
    pub fn queue_stats(&self, realm: &RealmId) -> Answer<Vec<QueueStats>> {
        admin::queue_stats(self, realm)
    }

    /// A number that is another one after a remembered queue has come, changed its settings, or gone.
    pub fn remembered_stamp(&self) -> u64 {
        catalogue::stamp(self)
    }

    /// Every remembered queue of this process, with when it was last attached to or left.
    pub fn remembered(&self) -> Vec<(QueueSpec, Timestamp)> {
        catalogue::queues(self)
    }

    /// One page of dead letters, oldest first, after `after` (P37).
    pub fn dead_letters(
        &self,
        realm: &RealmId,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Answer<Vec<DeadLetter>> {
        Box::pin(self.store().dead_letters(realm, after, limit))
    }

    /// Back into its queue. Errors: `dead_letter_unknown`.
    pub fn requeue(self: &Arc<Self>, realm: &RealmId, id: DeadLetterId) -> Answer<()> {
        admin::requeue(self, realm, id)
    }

    /// Drops a dead letter. Errors: `dead_letter_unknown`.
    pub fn discard(&self, realm: &RealmId, id: DeadLetterId) -> Answer<()> {
        Box::pin(self.store().discard(realm, id))
    }

    /// Drops all dead letters of a realm; answers how many.
    pub fn purge_dead_letters(&self, realm: &RealmId) -> Answer<u64> {
        Box::pin(self.store().purge_dead_letters(realm))
    }

    /// Drops the backlog of one queue, which stays; answers how many messages.
    pub fn purge_queue(&self, realm: &RealmId, queue: QueueId) -> Answer<u64> {
        admin::purge_queue(self, realm, queue)
    }

    /// Takes a queue from its owner: whoever attaches next has it (P30).
    /// Errors: `delivery_unknown` for a queue the realm does not have.
    pub fn release_queue(self: &Arc<Self>, realm: &RealmId, queue: QueueId) -> Answer<()> {
        admin::release_queue(self, realm, queue)
    }

    /// Closes the sessions of a realm, drops all that is stored for it and forgets its remembered
    /// queues; answers how many messages. The realm goes on.
    pub fn purge_realm(self: &Arc<Self>, realm: &RealmId) -> Answer<u64> {
        admin::purge_realm(self, realm)
    }

    /// The sessions of a realm, or of all, the oldest first.
    pub fn sessions_of(&self, realm: Option<&RealmId>) -> Vec<SessionInfo> {
        sessions::list(self, realm)
    }

    /// Closes the session with this socket id; `why` is told as `AUTH_FAIL` first. Whether there is one.
    pub fn disconnect(self: &Arc<Self>, socket_id: &str, why: Option<&Error>) -> bool {
        sessions::disconnect(self, socket_id, why)
    }

    /// Ends a session that has lost its right to be there: what it still says counts for nothing.
    pub fn expel(self: &Arc<Self>, member: &Arc<Member>, why: Option<&Error>) {
        sessions::expel(self, member, why);
    }
}
