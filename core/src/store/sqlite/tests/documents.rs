//! Documents in a database: after a restart, in one that an older version wrote, and with a full disk.

use super::*;
use crate::store::{Collection, Condition, Document, DocumentChange, Documents as _};

fn put(key: &str, only_if: Condition) -> DocumentChange {
    DocumentChange {
        collection: Collection::Tokens,
        key: key.into(),
        text: Some("{}".into()),
        expires: None,
        only_if,
    }
}

async fn all(store: &SqliteStore) -> Vec<Document> {
    let all = store.documents(Collection::Tokens, None, 100, START);
    all.await.unwrap()
}

#[tokio::test]
async fn documents_are_there_after_a_restart_and_go_on_with_higher_versions() {
    let house = House::new();
    let store = house.open().await;
    let changes = vec![put("a", Condition::Absent), put("b", Condition::Absent)];
    store.change_documents(changes, START).await.unwrap();
    let before = all(&store).await;
    store.close().await.unwrap();
    let store = house.open().await;
    assert_eq!(all(&store).await, before);
    let again = store.change_documents(vec![put("a", Condition::Absent)], START);
    assert_eq!(again.await.unwrap_err().kind(), ErrorKind::Conflict);
    let version = Condition::Version(before[0].version);
    store
        .change_documents(vec![put("a", version)], START)
        .await
        .unwrap();
    assert!(all(&store).await[0].version > before[1].version);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_database_of_the_first_version_gets_its_table_of_documents() {
    let house = House::new();
    let store = house.open().await;
    store.filled("a", 3, 10).await;
    store.close().await.unwrap();
    let old = rusqlite::Connection::open(house.path()).unwrap();
    old.execute_batch("DROP TABLE document; PRAGMA user_version = 1")
        .unwrap();
    drop(old);
    let store = house.open().await;
    assert_eq!(all(&store).await, []);
    store
        .change_documents(vec![put("a", Condition::Absent)], START)
        .await
        .unwrap();
    assert_eq!(all(&store).await.len(), 1);
    assert_eq!(store.queues().await.unwrap()[0].depth, 3);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_change_that_was_taken_back_has_changed_no_document() {
    let house = House::new();
    let store = house.open().await;
    store
        .change_documents(vec![put("a", Condition::Absent)], START)
        .await
        .unwrap();
    let before = all(&store).await;
    // In one batch, most likely: the one that fails takes the other back, which is done again.
    let changed = store.change_documents(vec![put("b", Condition::Absent)], START);
    let failed = store.fail_once();
    assert!(failed.await.is_err());
    changed.await.unwrap();
    let after = all(&store).await;
    assert_eq!(after.len(), 2);
    assert_eq!(after[0], before[0]);
    store.close().await.unwrap();
}
