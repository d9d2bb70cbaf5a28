//! Documents of a state: what a keep has in rows, told to copies like any other row. Knows nothing of
//! what they say.

use std::sync::Arc;

use crate::Result;
use crate::clock::Timestamp;

use super::super::documents::{
    Collection, Document, DocumentChange, DocumentRecord, Rows as _, change,
};
use super::super::record::{Gone, Record};
use super::changes::{Changes, Touched};
use super::export::Sheet;
use super::keep::Keep;
use super::state::State;

impl<K: Keep> State<K> {
    pub(crate) fn documents(
        &self,
        collection: Collection,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Vec<Document> {
        let most = limit.min(Document::MAX_PAGE);
        self.keep.documents().page(collection, after, most, now)
    }

    pub(crate) fn change_documents(
        &mut self,
        changes: &[DocumentChange],
        now: Timestamp,
    ) -> Result<()> {
        change(self.keep.documents_mut(), changes, now)?;
        for change in changes {
            let name = || Touched::Document(change.collection, Arc::clone(&change.key));
            self.keep.note(name);
        }
        Ok(())
    }

    /// Ends what has expired; how much of `left` is left.
    pub(super) fn sweep_documents(&mut self, left: usize, now: Timestamp) -> usize {
        let expired = self.keep.documents().expired(now, left);
        let left = left.saturating_sub(expired.len());
        for (collection, key) in expired {
            self.drop_document(collection, &key);
        }
        left
    }

    pub(super) fn drop_document(&mut self, collection: Collection, key: &Arc<str>) {
        self.keep.documents_mut().drop(collection, key);
        self.keep
            .note(|| Touched::Document(collection, Arc::clone(key)));
    }

    pub(super) fn drop_documents(&mut self) {
        loop {
            let some = self.keep.documents().after(None, Document::MAX_PAGE);
            if some.is_empty() {
                return;
            }
            for (collection, document) in some {
                self.drop_document(collection, &document.key);
            }
        }
    }

    pub(super) fn import_document(&mut self, told: &DocumentRecord) -> Result<()> {
        let document = told.document()?;
        self.keep.documents_mut().put(told.collection, document);
        Ok(())
    }

    pub(super) fn tell_documents(&self, row: Touched, changes: &mut Changes, sheet: &mut Sheet) {
        let tell =
            |collection, document| Record::Document(DocumentRecord::new(collection, document));
        match row {
            Touched::Document(collection, key) => {
                let found = self.keep.documents().get(collection, &key);
                sheet.put(match found {
                    Some(document) => tell(collection, document),
                    None => Record::Gone(Gone::Document { collection, key }),
                });
            }
            Touched::EachDocument(after) => {
                let after = after
                    .as_ref()
                    .map(|(collection, key)| (*collection, &**key));
                let most = sheet.entries.min(Document::MAX_PAGE);
                let documents = self.keep.documents().after(after, most);
                if let Some((collection, last)) = documents.last() {
                    let last = (*collection, Arc::clone(&last.key));
                    changes.add(Touched::EachDocument(Some(last)));
                }
                for (collection, document) in documents {
                    sheet.put(tell(collection, document));
                }
            }
            _ => {}
        }
    }
}
