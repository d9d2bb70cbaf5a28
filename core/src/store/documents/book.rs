//! Documents in memory, by key and by expiry. Used by the stores that keep them there or write them
//! as one text.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::clock::Timestamp;

use super::{Collection, Document, Rows};

/// Documents in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    documents: BTreeMap<(Collection, Arc<str>), Document>,
    expiry: BTreeSet<(Timestamp, Collection, Arc<str>)>,
    last_version: u64,
}

impl Book {
    /// Takes out what has expired, at most so many; how many went.
    pub(crate) fn sweep(&mut self, now: Timestamp, most: usize) -> usize {
        let expired = self.expired(now, most);
        for (collection, key) in &expired {
            self.drop(*collection, key);
        }
        expired.len()
    }

    fn first_after(after: Option<(Collection, &str)>) -> Bound<(Collection, Arc<str>)> {
        match after {
            Some((collection, key)) => Bound::Excluded((collection, key.into())),
            None => Bound::Unbounded,
        }
    }
}

impl Rows for Book {
    fn get(&self, collection: Collection, key: &str) -> Option<Document> {
        self.documents.get(&(collection, key.into())).cloned()
    }

    fn put(&mut self, collection: Collection, document: Document) {
        self.drop(collection, &document.key);
        let key = Arc::clone(&document.key);
        if let Some(expires) = document.expires {
            self.expiry.insert((expires, collection, Arc::clone(&key)));
        }
        self.last_version = self.last_version.max(document.version);
        self.documents.insert((collection, key), document);
    }

    fn drop(&mut self, collection: Collection, key: &str) {
        let name = (collection, Arc::from(key));
        let before = self.documents.remove(&name);
        if let Some(expires) = before.and_then(|document| document.expires) {
            self.expiry.remove(&(expires, collection, name.1));
        }
    }

    fn page(
        &self,
        collection: Collection,
        after: Option<&str>,
        most: usize,
        now: Timestamp,
    ) -> Vec<Document> {
        // No key is empty.
        let first = Self::first_after(Some((collection, after.unwrap_or_default())));
        let rows = self.documents.range((first, Bound::Unbounded));
        let rows = rows.take_while(|((of, _), _)| *of == collection);
        let rows = rows.map(|(_, document)| document);
        let live = rows.filter(|document| !document.is_over(now));
        live.take(most).cloned().collect()
    }

    fn after(&self, after: Option<(Collection, &str)>, most: usize) -> Vec<(Collection, Document)> {
        let rows = (Self::first_after(after), Bound::Unbounded);
        let rows = self.documents.range(rows).take(most);
        rows.map(|((collection, _), document)| (*collection, document.clone()))
            .collect()
    }

    fn expired(&self, now: Timestamp, most: usize) -> Vec<(Collection, Arc<str>)> {
        let rows = self.expiry.iter();
        let over = rows.take_while(|(expires, _, _)| *expires <= now);
        over.take(most)
            .map(|(_, collection, key)| (*collection, Arc::clone(key)))
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    fn last_version(&mut self) -> &mut u64 {
        &mut self.last_version
    }
}
