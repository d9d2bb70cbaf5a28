//! Documents of custom stores: with what is remembered, or not at all.

use super::*;
use crate::store::{Collection, Condition, Document, DocumentChange, Documents as _};

fn put(key: &str) -> DocumentChange {
    DocumentChange {
        collection: Collection::Realms,
        key: key.into(),
        text: Some(r#"{"manager_key":"k"}"#.into()),
        expires: None,
        only_if: Condition::Absent,
    }
}

async fn all(store: &Leasing<Shelf>) -> Vec<Document> {
    let all = store.documents(Collection::Realms, None, 100, NOW);
    all.await.unwrap()
}

#[tokio::test]
async fn documents_are_remembered_with_the_subscriptions() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("subscriptions.json");
    let (shelf, side) = (Shelf::new(Habits::default()), Side::File(path.clone()));
    let store = lift(&shelf, &side);
    store.open(spec("a"), NOW).await.unwrap();
    store.change_documents(vec![put("r")], NOW).await.unwrap();
    let before = all(&store).await;
    store.close().await.unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "keys are in it");
    }
    let store = lift(&shelf, &side);
    assert_eq!(all(&store).await, before);
    let again = store.change_documents(vec![put("r")], NOW).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
    store.close().await.unwrap();
}

#[tokio::test]
async fn without_a_place_documents_are_refused() {
    let store = lift(&Shelf::new(Habits::default()), &Side::None);
    let refused = store.change_documents(vec![put("r")], NOW).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::StoreUnsupported);
    let refused = store.documents(Collection::Realms, None, 1, NOW).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::StoreUnsupported);
    store.close().await.unwrap();
}
