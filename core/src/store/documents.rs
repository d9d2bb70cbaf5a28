//! Small named texts beside the messages: realms, tokens, requests, nonces. Whoever keeps them knows
//! nothing of what they say; `auth` does.

mod book;
mod file;
mod rows;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pending::Pending;
use crate::clock::Timestamp;
use crate::{Error, ErrorKind, Result};

pub(crate) use book::Book;
pub use file::FileDocuments;
pub(in crate::store) use file::private;
pub(crate) use rows::{Rows, change, check};

/// What documents are about; keys are unique in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

impl Collection {
    /// Every collection.
    pub const ALL: &'static [Self] = &[
        Self::Realms,
        Self::Tokens,
        Self::ManagementTokens,
        Self::Settings,
        Self::Requests,
        Self::Nonces,
    ];

    /// Its name in files, tables and notices.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Realms => "realms",
            Self::Tokens => "tokens",
            Self::ManagementTokens => "management_tokens",
            Self::Settings => "settings",
            Self::Requests => "requests",
            Self::Nonces => "nonces",
        }
    }

    /// The collection of this name; `None`: there is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|collection| collection.as_str() == text)
    }
}

/// One document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its key, 1 to 1,024 bytes.
    pub key: Arc<str>,
    /// What it says: JSON text, at most 64 KiB.
    pub text: Arc<str>,
    /// Greater with every change of this document, also when it was gone in between.
    pub version: u64,
    /// From then on it counts as absent; `None`: it stays.
    pub expires: Option<Timestamp>,
}

impl Document {
    /// Most bytes of a key.
    pub const MAX_KEY: usize = 1024;
    /// Most bytes of a text.
    pub const MAX_TEXT: usize = 64 << 10;
    /// Most documents of one answer, whatever was asked for.
    pub const MAX_PAGE: usize = 1024;

    /// Whether it counts as absent.
    pub(in crate::store) fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
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

impl DocumentChange {
    /// Most changes of one call.
    pub const MOST: usize = 256;
    /// Most bytes of all texts of one call.
    pub const MOST_BYTES: usize = 1 << 20;
}

/// What must hold of a document before it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is none, or one that has expired.
    Absent,
    /// It has this version still, and has not expired.
    Version(u64),
}

/// A keeper of documents: every [`Store`](super::Store) that can, or a file of its own.
///
/// **Order** is as with a [`Store`](super::Store): a call takes its place when the method is called.
pub trait Documents: Send + Sync + 'static {
    /// The documents of a collection by key, in the order of its bytes, after `after` (which need
    /// not exist), at most `limit` and never more than [`Document::MAX_PAGE`], without expired ones. An empty
    /// answer is the end.
    ///
    /// Errors: `StoreUnsupported` where there is no place for documents.
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        let _ = (collection, after, limit, now);
        Pending::ready(Err(no_place()))
    }

    /// Makes all the changes, or none. Every condition speaks of what was there before the call.
    ///
    /// Errors: `Conflict` if a condition does not hold; `BadCommand` for a key out of bounds, a
    /// document that is named twice, or more than [`DocumentChange::MOST`]; `PayloadTooLarge` for a text over
    /// [`Document::MAX_TEXT`],
    /// or more than [`DocumentChange::MOST_BYTES`]; `StoreUnsupported` where there is no place for documents.
    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        let _ = (changes, now);
        Pending::ready(Err(no_place()))
    }
}

pub(in crate::store) fn no_place() -> Error {
    Error::new(
        ErrorKind::StoreUnsupported,
        "this store has no place for realms, tokens and requests",
    )
}

pub(in crate::store) fn conflict() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "somebody else has changed it meanwhile",
    )
}

/// Refuses changes that no keeper takes, before anything is asked.
pub(in crate::store) fn checked(changes: &[DocumentChange]) -> Option<Pending<()>> {
    check(changes).err().map(|error| Pending::ready(Err(error)))
}

/// One document as it stands in files and copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentRecord {
    /// Where.
    pub collection: Collection,
    /// Its key.
    pub key: Arc<str>,
    /// What it says.
    pub text: Arc<str>,
    /// Its version.
    pub version: u64,
    /// When it ends, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

impl DocumentRecord {
    pub(in crate::store) fn new(collection: Collection, document: Document) -> Self {
        Self {
            collection,
            key: document.key,
            text: document.text,
            version: document.version,
            expires: document.expires.map(|at| at.0),
        }
    }

    /// The document.
    ///
    /// # Errors
    /// `store_corrupt` for one that cannot be.
    pub(in crate::store) fn document(&self) -> Result<Document> {
        if !(1..=Document::MAX_KEY).contains(&self.key.len())
            || self.text.len() > Document::MAX_TEXT
        {
            let why = "a document is larger than any can be";
            return Err(Error::new(ErrorKind::StoreCorrupt, why));
        }
        Ok(Document {
            key: Arc::clone(&self.key),
            text: Arc::clone(&self.text),
            version: self.version,
            expires: self.expires.map(Timestamp),
        })
    }
}
