//! Documents of a custom store: in the text of what is remembered, or nowhere.

use std::sync::Arc;

use crate::clock::Timestamp;

use super::super::documents::{
    Collection, Document, DocumentChange, Documents, Rows as _, change, no_place,
};
use super::super::pending::Pending;
use super::super::simple::SimpleStore;
use super::Leasing;

impl<S: SimpleStore> Documents for Leasing<S> {
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        Pending::ready(self.shared.locked(|state| {
            if !state.remembers {
                return Err(no_place());
            }
            let most = limit.min(Document::MAX_PAGE);
            let documents = &state.documents;
            Ok(documents.page(collection, after.as_deref(), most, now))
        }))
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        self.shared.then(|state| {
            if !state.remembers {
                return Err(no_place());
            }
            change(&mut state.documents, &changes, now)?;
            Ok(((), state.save()))
        })
    }
}
