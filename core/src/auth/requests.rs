//! Authorization requests: who asks to be let in, and what a manager says (admin.md §3).
//!
//! Every request is a document, so it outlives this process and other brokers see it; what is looked
//! for often is in memory besides. A token that a client brings is known by its hash only. One that the
//! broker makes is made when it is asked for and stays with the broker that the client is connected to,
//! which tells it once when it is approved, wherever that was. Knows no socket: callers say which session
//! asks, and are told which one is to hear. Called by `session` and `admin`.
//!
//! Changes are made one after the other here, and only to what is as it was read, so that of two
//! brokers that decide one does.

mod candidate;
mod decide;
mod kept;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::store::{Collection, Condition, Document, DocumentChange, Documents};
use crate::{Error, ErrorKind, Result};

use super::{Failures, Secret, Token, TokenHash};

pub use candidate::{Candidate, PublicRequest, Status, Submission};
pub use decide::{Decided, Decision};
use kept::Kept;

/// How long a request waits for its decision.
const PENDING: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a decided one is kept, and how many of them.
const DECIDED: Duration = Duration::from_secs(24 * 3600);
const MOST_DECIDED: usize = 1000;
/// Most that wait of one address (admin.md §3.3).
const MOST_OF_ADDRESS: usize = 20;
/// Most that wait, unless the settings say otherwise.
pub const MOST_PENDING: usize = 1000;
/// Most requests of one answer.
const MOST_LISTED: usize = 1000;
/// How often a change is begun anew because another broker was faster.
const MOST_TRIES: u32 = 8;

/// Where approved tokens go, and where failures are counted: whoever knows all tokens.
pub trait Grants: Failures {
    /// Whether a token of this hash is known already, of whatever kind.
    fn is_known(&self, hash: &TokenHash) -> bool;

    /// The change that stores it, only if there is none.
    ///
    /// # Errors
    /// `internal` for what cannot be written.
    fn change(&self, hash: &TokenHash, token: &Token) -> Result<DocumentChange>;

    /// It is stored: it holds from now on.
    fn granted(&self, hash: TokenHash, token: Token);
}

/// Which requests are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of this realm only.
    pub realm: Option<RealmId>,
    /// In this state only.
    pub status: Option<Status>,
    /// Behind this one, whether it is still there or not.
    pub cursor: Option<Box<str>>,
    /// At most so many; 100 if it is not said, never more than 1,000.
    pub limit: Option<usize>,
}

/// All authorization requests.
pub struct Requests {
    documents: Arc<dyn Documents>,
    grants: Arc<dyn Grants>,
    most_pending: AtomicUsize,
    /// By id, which is the order in which they came.
    kept: Mutex<BTreeMap<Arc<str>, Kept>>,
    /// Who of this process waits for a decision, by request.
    waiting: Mutex<HashMap<Arc<str>, Waiting>>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
}

/// A session that waits for a decision.
struct Waiting {
    session: Arc<str>,
    /// Its token, if it was made here: nowhere else is more than its hash, whoever decides.
    minted: Option<Secret>,
}

impl Waiting {
    /// What it hears.
    fn decided(self, request: PublicRequest) -> Decided {
        Decided {
            token: self.minted.filter(|_| request.status == Status::Approved),
            request,
            tell: Some(self.session),
        }
    }
}

fn unknown() -> Error {
    Error::new(
        ErrorKind::RequestUnknown,
        "there is no such request that waits for a decision",
    )
}

impl Requests {
    /// Reads what is there. `most_pending` is the most that may wait, [`MOST_PENDING`] by default.
    ///
    /// # Errors
    /// What the keeper says.
    pub async fn open(
        documents: Arc<dyn Documents>,
        grants: Arc<dyn Grants>,
        most_pending: usize,
        now: Timestamp,
    ) -> Result<Self> {
        let requests = Self {
            documents,
            grants,
            most_pending: AtomicUsize::new(most_pending),
            kept: Mutex::default(),
            waiting: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        };
        requests.reload(now).await?;
        Ok(requests)
    }

    /// From now on so many may wait; those that do stay.
    pub fn set_most_pending(&self, most: usize) {
        self.most_pending.store(most, Ordering::Relaxed);
    }

    /// Reads them anew, when another broker has changed them; what was decided there of requests whose
    /// sessions wait here.
    ///
    /// # Errors
    /// What the keeper says; what is known stays as it is then.
    pub async fn reload(&self, now: Timestamp) -> Result<Vec<Decided>> {
        let _changing = self.changing.lock().await;
        self.read(now).await?;
        let mut decided = Vec::new();
        let mut waiting = self.waiting.lock();
        let kept = self.kept.lock();
        let over = waiting.extract_if(|id, _| {
            let request = kept.get(id);
            !request.is_some_and(|request| request.is_pending(now))
        });
        for (id, waits) in over {
            if let Some(request) = kept.get(&id) {
                decided.push(waits.decided(request.public()));
            }
        }
        Ok(decided)
    }

    async fn read(&self, now: Timestamp) -> Result<()> {
        let mut found = BTreeMap::new();
        let mut after: Option<Arc<str>> = None;
        loop {
            let page = self
                .documents
                .documents(Collection::Requests, after, Document::MAX_PAGE, now)
                .await?;
            let Some(last) = page.last() else { break };
            after = Some(Arc::clone(&last.key));
            for document in page {
                match Kept::read(&document) {
                    Some(request) => {
                        found.insert(document.key, request);
                    }
                    None => {
                        tracing::error!(id = %document.key, "a request cannot be read; it is left alone");
                    }
                }
            }
        }
        *self.kept.lock() = found;
        Ok(())
    }

    /// The oldest that waits, of this realm if one is given; looking takes nothing away.
    pub fn next(&self, realm: Option<&RealmId>, now: Timestamp) -> Option<PublicRequest> {
        let kept = self.kept.lock();
        let mut pending = kept.values().filter(|request| request.is_pending(now));
        let found = pending.find(|request| realm.is_none_or(|realm| request.realm == *realm));
        found.map(Kept::public)
    }

    /// A page of those wanted, the oldest first, and where the next one goes on; `None`: that was all.
    pub fn list(&self, wanted: &Wanted, now: Timestamp) -> (Vec<PublicRequest>, Option<Arc<str>>) {
        use std::ops::Bound::{Excluded, Unbounded};
        let limit = wanted.limit.unwrap_or(100).clamp(1, MOST_LISTED);
        let kept = self.kept.lock();
        let first = wanted.cursor.as_deref().map_or(Unbounded, Excluded);
        let rows = kept.range::<str, _>((first, Unbounded));
        let mut rows = rows.filter(|(_, request)| {
            let is_of = |realm: &RealmId| request.realm == *realm;
            !request.is_over(now)
                && wanted.realm.as_ref().is_none_or(is_of)
                && wanted.status.is_none_or(|status| request.status == status)
        });
        let page: Vec<_> = rows.by_ref().take(limit).collect();
        let is_more = rows.next().is_some();
        let last = page
            .last()
            .filter(|_| is_more)
            .map(|(id, _)| Arc::clone(id));
        (
            page.into_iter()
                .map(|(_, request)| request.public())
                .collect(),
            last,
        )
    }

    /// The realm of a request that waits: its manager key may decide on it.
    pub fn pending_realm(&self, id: &str, now: Timestamp) -> Option<RealmId> {
        let kept = self.kept.lock();
        let request = kept.get(id).filter(|request| request.is_pending(now));
        request.map(|request| request.realm.clone())
    }

    /// Whether this session waits for a decision (P25).
    pub fn is_waiting(&self, session: &str) -> bool {
        self.waiting
            .lock()
            .values()
            .any(|waits| *waits.session == *session)
    }

    /// This session hears nothing any more; its requests go on waiting.
    pub fn session_ended(&self, session: &str) {
        self.waiting
            .lock()
            .retain(|_, waits| *waits.session != *session);
    }

    /// Drops what waits in a realm that ends (admin.md §1.6); how many requests that were.
    ///
    /// # Errors
    /// What the keeper says.
    pub async fn drop_realm(&self, realm: &RealmId, now: Timestamp) -> Result<usize> {
        let _changing = self.changing.lock().await;
        let of_realm: Vec<Arc<str>> = {
            let kept = self.kept.lock();
            let rows = kept.iter().filter(|(_, request)| request.realm == *realm);
            rows.map(|(id, _)| Arc::clone(id)).collect()
        };
        for some in of_realm.chunks(DocumentChange::MOST) {
            let drops = some.iter().map(|id| removal(Arc::clone(id)));
            self.documents
                .change_documents(drops.collect(), now)
                .await?;
            let (mut kept, mut waiting) = (self.kept.lock(), self.waiting.lock());
            for id in some {
                kept.remove(id);
                waiting.remove(id);
            }
        }
        Ok(of_realm.len())
    }

    /// What is kept of a realm goes on under its new name (admin.md §1.7); how many requests that were.
    ///
    /// # Errors
    /// `conflict` if another broker changes the same all the time; what the keeper says.
    pub async fn rename_realm(
        &self,
        from: &RealmId,
        to: &RealmId,
        now: Timestamp,
    ) -> Result<usize> {
        let _changing = self.changing.lock().await;
        let mut count = 0;
        let mut tries = MOST_TRIES;
        loop {
            let bite: Vec<Kept> = {
                let kept = self.kept.lock();
                let rows = kept.values().filter(|request| request.realm == *from);
                rows.take(DocumentChange::MOST).cloned().collect()
            };
            if bite.is_empty() {
                return Ok(count);
            }
            let renamed = bite.into_iter().map(|mut request| {
                request.realm = to.clone();
                request
            });
            let renamed: Vec<Kept> = renamed.collect();
            let changes: Result<Vec<_>> = renamed.iter().map(Kept::put).collect();
            let moved = renamed.len();
            match self.write(changes?, renamed, now).await {
                Ok(()) => count += moved,
                // It was read again.
                Err(error) if error.kind() == ErrorKind::Conflict && tries > 0 => tries -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes, and knows of these requests from then on as they are then.
    async fn write(
        &self,
        changes: Vec<DocumentChange>,
        requests: Vec<Kept>,
        now: Timestamp,
    ) -> Result<()> {
        let gone: Vec<Arc<str>> = {
            let drops = changes.iter().filter(|change| change.text.is_none());
            drops.map(|change| Arc::clone(&change.key)).collect()
        };
        if let Err(error) = self.documents.change_documents(changes, now).await {
            // It may have happened, or another broker was faster.
            if let Err(unread) = self.read(now).await {
                tracing::warn!(%unread, "requests could not be read again");
            }
            return Err(error);
        }
        for mut request in requests {
            request.version = match self.version(&request.id, now).await {
                Ok(version) => version,
                Err(error) => {
                    // Whoever changes it next finds that out, and reads it anew.
                    tracing::warn!(%error, "a request could not be read again");
                    0
                }
            };
            self.kept.lock().insert(Arc::clone(&request.id), request);
        }
        let (mut kept, mut waiting) = (self.kept.lock(), self.waiting.lock());
        for id in gone {
            kept.remove(&id);
            waiting.remove(&id);
        }
        Ok(())
    }

    /// The version that a request has now.
    async fn version(&self, id: &Arc<str>, now: Timestamp) -> Result<u64> {
        // Hardly any other id lies between it and what it begins with.
        let before = id.get(..id.len().saturating_sub(1)).unwrap_or_default();
        let near = self
            .documents
            .documents(Collection::Requests, Some(before.into()), 16, now)
            .await?;
        let found = near.into_iter().find(|document| document.key == *id);
        Ok(found.map_or(0, |document| document.version))
    }

    /// Decided ones for which there is no room beside `more` new ones, the oldest.
    fn trimmed(&self, more: usize) -> Vec<DocumentChange> {
        let kept = self.kept.lock();
        let decided = kept
            .iter()
            .filter_map(|(id, request)| Some((request.decided?, id)));
        let mut decided: Vec<_> = decided.collect();
        decided.sort_unstable();
        let over = (decided.len() + more).saturating_sub(MOST_DECIDED);
        let over = decided.into_iter().take(over.min(DocumentChange::MOST / 2));
        over.map(|(_, id)| removal(Arc::clone(id))).collect()
    }
}

fn removal(id: Arc<str>) -> DocumentChange {
    DocumentChange {
        collection: Collection::Requests,
        key: id,
        text: None,
        expires: None,
        only_if: Condition::Always,
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
