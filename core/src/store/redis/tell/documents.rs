//! Telling the documents, after everything else: all of them, and all again if any has changed since,
//! whoever did that. They are few. Knows no realm.

use std::sync::Arc;

use crate::Result;
use crate::clock::Timestamp;

use super::super::super::documents::{Collection, DocumentRecord};
use super::super::super::record::{Gone, Record};
use super::super::lanes::Lanes;
use super::Sheet;

/// How far it has come.
#[derive(Default)]
pub(super) struct Walk {
    /// How often anything had changed when the last whole walk began; nothing ever, before the first.
    told: u64,
    /// That of the walk under way, its collection, and the last document told.
    going: Option<(u64, usize, Option<Arc<str>>)>,
}

impl Walk {
    /// Tells as much as there is room for; whether that is all.
    pub(super) async fn tell(&mut self, lanes: &Arc<Lanes>, sheet: &mut Sheet) -> Result<bool> {
        while !sheet.is_full() {
            let (changes, at, after) = match self.going.take() {
                Some(going) => going,
                None => {
                    let changes = lanes.documents.changes().await?;
                    if changes == self.told {
                        return Ok(true);
                    }
                    if self.told > 0 {
                        sheet.put(Record::Gone(Gone::Documents));
                    }
                    (changes, 0, None)
                }
            };
            let Some(collection) = Collection::ALL.get(at).copied() else {
                self.told = changes;
                continue;
            };
            let (most, after) = (sheet.room().0, after.as_deref());
            // What has expired is told too: whoever takes it in ends it.
            let page = lanes.documents.page(collection, after, most, Timestamp(0));
            let (documents, last) = page.await?;
            for document in documents {
                sheet.put(Record::Document(DocumentRecord::new(collection, document)));
            }
            self.going = Some(match last {
                Some(last) => (changes, at, Some(last)),
                None => (changes, at + 1, None),
            });
        }
        Ok(false)
    }
}
