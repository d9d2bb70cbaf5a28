//! Documents as rows of one table. Knows nothing of what they say.

use std::rc::Rc;
use std::sync::Arc;

use rusqlite::Row;

use crate::clock::Timestamp;

use super::super::documents::{Collection, Document, DocumentChange, Documents, Rows, checked};
use super::super::pending::Pending;
use super::SqliteStore;
use super::db::{Db, int, uint};
use super::line::Nature;

const COLUMNS: &str = "SELECT collection, key, text, version, expires FROM document";

/// The table of documents.
#[derive(Debug)]
pub(crate) struct DocumentRows {
    db: Rc<Db>,
    last_version: u64,
}

impl DocumentRows {
    pub(super) fn new(db: Rc<Db>) -> Self {
        let highest = "SELECT coalesce(max(version), 0) FROM document";
        let last: Option<i64> = db.row(highest, [], |row| row.get(0));
        Self {
            db,
            last_version: uint(last.unwrap_or(0)),
        }
    }
}

type Read = (Option<Collection>, Document);

fn read(row: &Row<'_>) -> rusqlite::Result<Read> {
    let collection: String = row.get(0)?;
    let expires: Option<i64> = row.get(4)?;
    let document = Document {
        key: row.get(1)?,
        text: row.get(2)?,
        version: uint(row.get(3)?),
        expires: expires.map(|at| Timestamp(uint(at))),
    };
    Ok((Collection::parse(&collection), document))
}

impl Rows for DocumentRows {
    fn get(&self, collection: Collection, key: &str) -> Option<Document> {
        let one = format!("{COLUMNS} WHERE collection = ?1 AND key = ?2");
        let found = self.db.row(&one, (collection.as_str(), key), read);
        found.map(|(_, document)| document)
    }

    fn put(&mut self, collection: Collection, document: Document) {
        self.last_version = self.last_version.max(document.version);
        self.db.run(
            "INSERT INTO document VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET \
             text = ?3, version = ?4, expires = ?5",
            (
                collection.as_str(),
                document.key,
                document.text,
                int(document.version),
                document.expires.map(|at| int(at.0)),
            ),
        );
    }

    fn drop(&mut self, collection: Collection, key: &str) {
        let drop = "DELETE FROM document WHERE collection = ?1 AND key = ?2";
        self.db.run(drop, (collection.as_str(), key));
    }

    fn page(
        &self,
        collection: Collection,
        after: Option<&str>,
        most: usize,
        now: Timestamp,
    ) -> Vec<Document> {
        let next = format!(
            "{COLUMNS} WHERE collection = ?1 AND key > ?2 \
             AND (expires IS NULL OR expires > ?3) ORDER BY key LIMIT ?4"
        );
        let after = after.unwrap_or_default();
        let params = (collection.as_str(), after, int(now.0), int(most as u64));
        let rows = self.db.rows(&next, params, read);
        rows.into_iter().map(|(_, document)| document).collect()
    }

    fn after(&self, after: Option<(Collection, &str)>, most: usize) -> Vec<(Collection, Document)> {
        // In the order of their names here; whoever walks only needs one that stays.
        let next = format!(
            "{COLUMNS} WHERE (collection, key) > (?1, ?2) ORDER BY collection, key LIMIT ?3"
        );
        let (collection, key) = after.map_or(("", ""), |(of, key)| (of.as_str(), key));
        let params = (collection, key, int(most as u64));
        let rows = self.db.rows(&next, params, read).into_iter();
        rows.filter_map(|(of, document)| Some((of?, document)))
            .collect()
    }

    fn expired(&self, now: Timestamp, most: usize) -> Vec<(Collection, Arc<str>)> {
        let over = format!("{COLUMNS} WHERE expires <= ?1 ORDER BY expires LIMIT ?2");
        let params = (int(now.0), int(most as u64));
        let rows = self.db.rows(&over, params, read).into_iter();
        rows.filter_map(|(of, document)| Some((of?, document.key)))
            .collect()
    }

    fn is_empty(&self) -> bool {
        let any = "SELECT EXISTS(SELECT 1 FROM document)";
        let any: Option<bool> = self.db.row(any, [], |row| row.get(0));
        any == Some(false)
    }

    fn last_version(&mut self) -> &mut u64 {
        &mut self.last_version
    }
}

impl Documents for SqliteStore {
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        self.call(Nature::Read, move |core| {
            let state = &core.state;
            Ok(state.documents(collection, after.as_deref(), limit, now))
        })
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        if let Some(refused) = checked(&changes) {
            return refused;
        }
        // Not as one that grows: a realm must be told to be closed when the disk is full.
        self.call(Nature::Write, move |core| {
            core.state.change_documents(&changes, now)
        })
    }
}
