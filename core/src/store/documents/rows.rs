//! What a change of documents means, whatever keeps the rows. Called by every keeper but Redis,
//! which has a script that means the same.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::{Error, ErrorKind, Result};

use super::{Collection, Condition, Document, DocumentChange, conflict};

/// Where documents are.
pub(crate) trait Rows: Debug {
    /// One document, expired or not.
    fn get(&self, collection: Collection, key: &str) -> Option<Document>;
    /// Puts one in the place of what was there.
    fn put(&mut self, collection: Collection, document: Document);
    /// Takes one out.
    fn drop(&mut self, collection: Collection, key: &str);
    /// Those of a collection by key, without expired ones.
    fn page(
        &self,
        collection: Collection,
        after: Option<&str>,
        most: usize,
        now: Timestamp,
    ) -> Vec<Document>;
    /// All by collection and key, expired or not.
    fn after(&self, after: Option<(Collection, &str)>, most: usize) -> Vec<(Collection, Document)>;
    /// Some that have expired.
    fn expired(&self, now: Timestamp, most: usize) -> Vec<(Collection, Arc<str>)>;
    /// Whether there is none.
    fn is_empty(&self) -> bool;
    /// The highest version that was given.
    fn last_version(&mut self) -> &mut u64;
}

/// Refuses what no keeper takes.
///
/// # Errors
/// `bad_command`, `payload_too_large`.
pub(crate) fn check(changes: &[DocumentChange]) -> Result<()> {
    let refused = |why: &'static str| Err(Error::new(ErrorKind::BadCommand, why));
    if changes.len() > DocumentChange::MOST {
        return refused("too many documents are changed at once");
    }
    let mut named = HashSet::new();
    let mut sum = 0;
    for change in changes {
        if !(1..=Document::MAX_KEY).contains(&change.key.len()) {
            return refused("the key of a document has 1 to 1,024 bytes");
        }
        if !named.insert((change.collection, &change.key)) {
            return refused("a document is changed twice at once");
        }
        let text = change.text.as_ref().map_or(0, |text| text.len());
        sum += text;
        if text > Document::MAX_TEXT || sum > DocumentChange::MOST_BYTES {
            let why = format!("documents have at most {} bytes", Document::MAX_TEXT);
            return Err(Error::new(ErrorKind::PayloadTooLarge, why));
        }
    }
    Ok(())
}

fn holds(only_if: Condition, found: Option<&Document>, now: Timestamp) -> bool {
    let found = found.filter(|document| !document.is_over(now));
    match only_if {
        Condition::Always => true,
        Condition::Absent => found.is_none(),
        Condition::Version(version) => found.is_some_and(|found| found.version == version),
    }
}

/// Makes all the changes, or none.
///
/// A version is never below the time of its change, so that a document which comes back after its
/// keeper has started anew does not have a version that it had before.
///
/// # Errors
/// `conflict`, `bad_command`, `payload_too_large`; nothing has changed then.
pub(crate) fn change(
    rows: &mut impl Rows,
    changes: &[DocumentChange],
    now: Timestamp,
) -> Result<()> {
    check(changes)?;
    for change in changes {
        if change.only_if != Condition::Always {
            let found = rows.get(change.collection, &change.key);
            if !holds(change.only_if, found.as_ref(), now) {
                return Err(conflict());
            }
        }
    }
    for change in changes {
        let Some(text) = &change.text else {
            rows.drop(change.collection, &change.key);
            continue;
        };
        let last = rows.last_version();
        *last = last.saturating_add(1).max(now.0);
        let version = *last;
        let document = Document {
            key: Arc::clone(&change.key),
            text: Arc::clone(text),
            version,
            expires: change.expires,
        };
        rows.put(change.collection, document);
    }
    Ok(())
}
