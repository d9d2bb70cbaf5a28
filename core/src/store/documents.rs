//! Small named texts beside the messages: realms, tokens, requests, nonces. Whoever keeps them knows
//! nothing of what they say; `auth` does.

use std::sync::Arc;

use super::pending::Pending;
use crate::clock::Timestamp;

/// What documents are about; keys are unique in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Collection {
    /// Configured realms, by name.
    Realms,
    /// Tokens, by their hash.
    Tokens,
    /// Management tokens, by their hash.
    ManagementTokens,
    /// External validators and other settings of authentication, by name.
    Settings,
    /// Authorization requests, by id.
    Requests,
    /// Nonces of proofs that were used.
    Nonces,
}

/// One document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its key, 1 to 1,024 bytes.
    pub key: Arc<str>,
    /// What it says: JSON text, at most 64 KiB.
    pub text: Arc<str>,
    /// Greater with every change of this document.
    pub version: u64,
    /// From then on it counts as absent; `None`: it stays.
    pub expires: Option<Timestamp>,
}

/// Puts or removes one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentChange {
    /// Where.
    pub collection: Collection,
    /// Which.
    pub key: Arc<str>,
    /// What it says from now on; `None`: it is removed.
    pub text: Option<Arc<str>>,
    /// When it ends.
    pub expires: Option<Timestamp>,
    /// What must hold, or the whole call changes nothing.
    pub only_if: Condition,
}

/// What must hold of a document before it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is none, or one that has expired.
    Absent,
    /// It has this version still.
    Version(u64),
}

/// A keeper of documents: every [`Store`](super::Store) that can, or a file of its own.
pub trait Documents: Send + Sync + 'static {
    /// The documents of a collection by key, after `after`, at most `limit`, without expired ones.
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>>;

    /// Makes all the changes, or none.
    ///
    /// Errors: `Conflict` if a condition does not hold.
    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()>;
}
