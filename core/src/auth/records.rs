//! Entries of this room as documents of the store: JSON texts with what the settings file said when the
//! entry was read from it, so that a later edit of the file is seen and what a command has changed or
//! removed stays so. Knows no meaning of an entry. Called by `load` and the registry.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::store::{Collection, Condition, DocumentChange, Documents};
use crate::{Error, ErrorKind, Result};

/// Documents of one page, and changes of one call: what every keeper takes.
const PAGE: usize = 256;
/// Most bytes of a document's text.
const MAX_TEXT: usize = 64 << 10;

/// What a document says of an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stored<T> {
    /// What it is; `None`: it was removed by a command though the file has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<T>,
    /// What the file said when it was read last; `None`: a command made it.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub(super) imported: Option<T>,
    /// The name that a renamed realm has now, while tokens may still name the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) moved_to: Option<Arc<str>>,
    /// When a realm of this name was removed, or got another one: what names it still is not let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) removed_at: Option<Timestamp>,
}

impl<T> Default for Stored<T> {
    fn default() -> Self {
        Self {
            entry: None,
            imported: None,
            moved_to: None,
            removed_at: None,
        }
    }
}

/// A document that was read.
#[derive(Debug)]
pub(super) struct Read<T> {
    pub(super) key: Arc<str>,
    pub(super) stored: Stored<T>,
    /// That it is still as it was read.
    pub(super) unchanged: Condition,
}

fn parse<T: DeserializeOwned>(collection: Collection, key: &str, text: &str) -> Result<Stored<T>> {
    serde_json::from_str(text).map_err(|error| {
        // The text may hold secrets, and so may what serde says of it.
        let at = format!("line {} column {}", error.line(), error.column());
        let message = format!("the document {collection:?} {key:?} cannot be read ({at})");
        Error::new(ErrorKind::StoreCorrupt, message)
    })
}

/// Every document of a collection.
pub(super) async fn all<T: DeserializeOwned>(
    documents: &dyn Documents,
    collection: Collection,
    now: Timestamp,
) -> Result<Vec<Read<T>>> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = documents
            .documents(collection, after.clone(), PAGE, now)
            .await?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        after = Some(last.key.clone());
        for document in page {
            found.push(Read {
                stored: parse(collection, &document.key, &document.text)?,
                key: document.key,
                unchanged: Condition::Version(document.version),
            });
        }
    }
}

/// One document as it is now, or nothing.
pub(super) async fn one<T: DeserializeOwned>(
    documents: &dyn Documents,
    collection: Collection,
    key: &str,
    now: Timestamp,
) -> Result<Read<T>> {
    let mut after: Option<Arc<str>> = before(key);
    loop {
        let page = documents
            .documents(collection, after.clone(), PAGE, now)
            .await?;
        let document = page.iter().find(|document| &*document.key >= key);
        match (document, page.last()) {
            (Some(document), _) if &*document.key == key => {
                return Ok(Read {
                    stored: parse(collection, key, &document.text)?,
                    key: document.key.clone(),
                    unchanged: Condition::Version(document.version),
                });
            }
            (None, Some(last)) => after = Some(last.key.clone()),
            _ => {
                return Ok(Read {
                    key: key.into(),
                    stored: Stored::default(),
                    unchanged: Condition::Absent,
                });
            }
        }
    }
}

/// A text shortly before this one in byte order.
fn before(key: &str) -> Option<Arc<str>> {
    let mut chars = key.chars();
    let last = u32::from(chars.next_back()?);
    let start = chars.as_str();
    let lower = (0..last).rev().find_map(char::from_u32);
    match lower {
        Some(lower) => Some(format!("{start}{lower}").into()),
        None if start.is_empty() => None,
        None => Some(start.into()),
    }
}

/// How long a removed realm is known to be gone.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Until when a realm that was removed at this time is known to be gone.
pub(super) fn remembered_until(removed: Timestamp) -> Timestamp {
    removed.plus(REMEMBERED)
}

/// The change that makes a document say this; one that says nothing goes.
pub(super) fn put<T: Serialize>(
    collection: Collection,
    read: &Read<T>,
    stored: &Stored<T>,
) -> Result<DocumentChange> {
    let is_lasting =
        stored.entry.is_some() || stored.imported.is_some() || stored.moved_to.is_some();
    let text = if is_lasting || stored.removed_at.is_some() {
        let text = serde_json::to_string(stored)
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        if text.len() > MAX_TEXT {
            let message = format!("{:?} is too large: secrets of 64 KiB in sum", read.key);
            return Err(Error::new(ErrorKind::BadCommand, message));
        }
        Some(text.into())
    } else {
        None
    };
    Ok(DocumentChange {
        collection,
        key: read.key.clone(),
        text,
        expires: stored
            .removed_at
            .filter(|_| !is_lasting)
            .map(remembered_until),
        only_if: read.unchanged,
    })
}

/// Makes changes, in bites where there are many: what goes together must be few.
pub(super) async fn write(
    documents: &dyn Documents,
    mut changes: Vec<DocumentChange>,
    now: Timestamp,
) -> Result<()> {
    while !changes.is_empty() {
        let rest = changes.split_off(changes.len().min(PAGE));
        documents.change_documents(changes, now).await?;
        changes = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::Shelf;
    use super::*;

    const NOW: Timestamp = Timestamp(1);

    #[tokio::test]
    async fn one_document_is_found_among_many_and_none_where_there_is_none() {
        let shelf = Shelf::new();
        for n in 0..600 {
            let read: Read<u32> = one(&*shelf, Collection::Realms, &format!("k{n:04}"), NOW)
                .await
                .unwrap();
            assert_eq!(read.unchanged, Condition::Absent);
            let stored = Stored {
                entry: Some(n),
                ..Stored::default()
            };
            let change = put(Collection::Realms, &read, &stored).unwrap();
            write(&*shelf, vec![change], NOW).await.unwrap();
        }
        for n in 0..600 {
            let read: Read<u32> = one(&*shelf, Collection::Realms, &format!("k{n:04}"), NOW)
                .await
                .unwrap();
            assert_eq!(read.stored.entry, Some(n));
        }
        let read: Read<u32> = one(&*shelf, Collection::Realms, "k", NOW).await.unwrap();
        assert_eq!(read.stored.entry, None);
        assert_eq!(
            all::<u32>(&*shelf, Collection::Realms, NOW)
                .await
                .unwrap()
                .len(),
            600
        );
    }

    #[tokio::test]
    async fn a_document_that_cannot_be_read_is_named_and_not_shown() {
        let shelf = Shelf::new();
        let change = DocumentChange {
            collection: Collection::Tokens,
            key: "broken".into(),
            text: Some("{\"entry\": hunter2".into()),
            expires: None,
            only_if: Condition::Always,
        };
        write(&*shelf, vec![change], NOW).await.unwrap();
        let error = all::<u32>(&*shelf, Collection::Tokens, NOW)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreCorrupt);
        assert!(error.message().contains("broken") && !error.message().contains("hunter2"));
    }

    proptest! {
        #[test]
        fn what_is_before_a_key_is_before_it(key in "\\PC{1,6}") {
            if let Some(earlier) = before(&key) {
                prop_assert!(*earlier < *key);
                prop_assert!(!earlier.is_empty());
            }
        }
    }
}
