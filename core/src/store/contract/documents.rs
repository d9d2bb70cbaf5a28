//! Documents: what stays, what ends, and what a change asks for first.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::store::{Collection, Condition, Document, DocumentChange, SharedStore};
use crate::{ErrorKind, Result};

use super::Make;
use super::rig::{Rig, START, at};

use Collection::{Nonces, Realms, Requests, Tokens};

fn put(collection: Collection, key: &str, text: &str, only_if: Condition) -> DocumentChange {
    DocumentChange {
        collection,
        key: key.into(),
        text: Some(text.into()),
        expires: None,
        only_if,
    }
}

fn remove(collection: Collection, key: &str, only_if: Condition) -> DocumentChange {
    DocumentChange {
        text: None,
        ..put(collection, key, "", only_if)
    }
}

fn until(change: DocumentChange, expires: Timestamp) -> DocumentChange {
    DocumentChange {
        expires: Some(expires),
        ..change
    }
}

async fn change(store: &SharedStore, changes: Vec<DocumentChange>) -> Result<()> {
    store.change_documents(changes, START).await
}

async fn refused(store: &SharedStore, changes: Vec<DocumentChange>) -> ErrorKind {
    change(store, changes).await.unwrap_err().kind()
}

async fn all_at(store: &SharedStore, collection: Collection, now: Timestamp) -> Vec<Document> {
    let all = store.documents(collection, None, usize::MAX, now);
    all.await.unwrap()
}

async fn all(store: &SharedStore, collection: Collection) -> Vec<Document> {
    all_at(store, collection, START).await
}

fn keys(documents: &[Document]) -> Vec<&str> {
    documents.iter().map(|document| &*document.key).collect()
}

async fn one(store: &SharedStore, collection: Collection) -> Document {
    let mut all = all(store, collection).await;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// A store with a place for documents; one that has none says so to every call.
async fn place(make: Make<'_>) -> Option<Rig> {
    let rig = Rig::new(make).await;
    match change(&rig.store, Vec::new()).await {
        Ok(()) => Some(rig),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::StoreUnsupported);
            let read = rig.store.documents(Realms, None, 1, START).await;
            assert_eq!(read.unwrap_err().kind(), ErrorKind::StoreUnsupported);
            None
        }
    }
}

/// # Panics
/// When a promise is broken.
pub async fn a_document_is_kept_by_collection_and_key(make: Make<'_>) {
    let Some(Rig { store, .. }) = place(make).await else {
        return;
    };
    assert_eq!(all(&store, Realms).await, []);
    let strange = "__proto__ 😀 \n\0%*{}";
    let text = r#"{"a": 1,  "b":"\ud800 😀"}"#;
    change(&store, vec![put(Realms, strange, text, Condition::Always)])
        .await
        .unwrap();
    change(&store, vec![put(Tokens, strange, "2", Condition::Always)])
        .await
        .unwrap();
    let found = one(&store, Realms).await;
    assert_eq!(
        (&*found.key, &*found.text, found.expires),
        (strange, text, None)
    );
    assert_eq!(&*one(&store, Tokens).await.text, "2");
    change(&store, vec![put(Realms, strange, "3", Condition::Always)])
        .await
        .unwrap();
    let later = one(&store, Realms).await;
    assert_eq!(&*later.text, "3");
    assert!(later.version > found.version);
    change(&store, vec![remove(Realms, strange, Condition::Always)])
        .await
        .unwrap();
    change(&store, vec![remove(Realms, "never", Condition::Always)])
        .await
        .unwrap();
    assert_eq!(all(&store, Realms).await, []);
    assert_eq!(&*one(&store, Tokens).await.text, "2");
}

/// # Panics
/// When a promise is broken.
pub async fn a_document_is_changed_only_if_its_condition_holds(make: Make<'_>) {
    let Some(Rig { store, .. }) = place(make).await else {
        return;
    };
    let absent = put(Nonces, "n", "1", Condition::Absent);
    change(&store, vec![absent.clone()]).await.unwrap();
    assert_eq!(refused(&store, vec![absent]).await, ErrorKind::Conflict);
    let first = one(&store, Nonces).await;
    let version = Condition::Version(first.version);
    change(&store, vec![put(Nonces, "n", "2", version)])
        .await
        .unwrap();
    let second = one(&store, Nonces).await;
    for stale in [put(Nonces, "n", "3", version), remove(Nonces, "n", version)] {
        assert_eq!(refused(&store, vec![stale]).await, ErrorKind::Conflict);
    }
    assert_eq!(one(&store, Nonces).await, second);
    let missing = put(Nonces, "m", "3", version);
    assert_eq!(refused(&store, vec![missing]).await, ErrorKind::Conflict);
    let version = Condition::Version(second.version);
    change(&store, vec![remove(Nonces, "n", version)])
        .await
        .unwrap();
    // One that comes again is not the one it was.
    change(&store, vec![put(Nonces, "n", "2", Condition::Absent)])
        .await
        .unwrap();
    assert!(one(&store, Nonces).await.version > second.version);
    assert_eq!(
        refused(&store, vec![remove(Nonces, "n", version)]).await,
        ErrorKind::Conflict
    );
}

/// # Panics
/// When a promise is broken.
pub async fn documents_are_changed_all_or_none(make: Make<'_>) {
    let Some(Rig { store, .. }) = place(make).await else {
        return;
    };
    change(&store, vec![put(Requests, "r", "{}", Condition::Absent)])
        .await
        .unwrap();
    let before = one(&store, Requests).await;
    let both = |only_if| {
        vec![
            put(Tokens, "t", "{}", Condition::Absent),
            remove(Requests, "r", only_if),
        ]
    };
    let refused = refused(&store, both(Condition::Absent)).await;
    assert_eq!(refused, ErrorKind::Conflict);
    assert_eq!(one(&store, Requests).await, before);
    assert_eq!(all(&store, Tokens).await, []);
    change(&store, both(Condition::Version(before.version)))
        .await
        .unwrap();
    assert_eq!(all(&store, Requests).await, []);
    assert_eq!(keys(&all(&store, Tokens).await), ["t"]);
}

/// # Panics
/// When a promise is broken.
pub async fn an_expired_document_counts_as_absent(make: Make<'_>) {
    let Some(Rig { store, .. }) = place(make).await else {
        return;
    };
    let nonce = until(put(Nonces, "n", "1", Condition::Absent), at(10));
    change(&store, vec![nonce.clone()]).await.unwrap();
    let first = one(&store, Nonces).await;
    assert_eq!(first.expires, Some(at(10)));
    let early = store.change_documents(vec![nonce], at(9)).await;
    assert_eq!(early.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(all_at(&store, Nonces, at(10)).await, []);
    let stale = put(Nonces, "n", "2", Condition::Version(first.version));
    let stale = store.change_documents(vec![stale], at(10)).await;
    assert_eq!(stale.unwrap_err().kind(), ErrorKind::Conflict);
    let again = put(Nonces, "n", "2", Condition::Absent);
    store.change_documents(vec![again], at(10)).await.unwrap();
    let again = all_at(&store, Nonces, at(1000)).await;
    assert_eq!((&*again[0].text, again[0].expires), ("2", None));
}

/// # Panics
/// When a promise is broken.
pub async fn maintenance_ends_expired_documents(make: Make<'_>) {
    let Some(rig) = place(make).await else {
        return;
    };
    let soon = (0..5).map(|n| until(put(Nonces, &n.to_string(), "1", Condition::Absent), at(n)));
    change(&rig.store, soon.collect()).await.unwrap();
    change(
        &rig.store,
        vec![put(Nonces, "stays", "1", Condition::Absent)],
    )
    .await
    .unwrap();
    assert_eq!(all_at(&rig.store, Nonces, Timestamp(0)).await.len(), 6);
    rig.maintain(at(2)).await;
    // Whoever looks back in time sees what is there.
    let left = all_at(&rig.store, Nonces, Timestamp(0)).await;
    assert_eq!(keys(&left), ["3", "4", "stays"]);
    rig.maintain(at(100)).await;
    let left = all_at(&rig.store, Nonces, Timestamp(0)).await;
    assert_eq!(keys(&left), ["stays"]);
}

/// # Panics
/// When a promise is broken.
pub async fn documents_are_listed_in_pages_by_the_bytes_of_their_keys(make: Make<'_>) {
    let Some(Rig { store, .. }) = place(make).await else {
        return;
    };
    let names = ["a", "B", "10", "9", "\u{fb33}", "😀", "b", "a/b", "é"];
    for name in names {
        change(&store, vec![put(Realms, name, "{}", Condition::Absent)])
            .await
            .unwrap();
    }
    let mut sorted = names;
    sorted.sort_unstable();
    let (mut found, mut after) = (Vec::new(), None::<Arc<str>>);
    loop {
        let page = store
            .documents(Realms, after.clone(), 2, START)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.key.clone());
        found.extend(page.into_iter().map(|document| document.key));
    }
    assert_eq!(found.iter().map(|key| &**key).collect::<Vec<_>>(), sorted);
    // Where it begins need not be there.
    let page = store
        .documents(Realms, Some("a-".into()), 1, START)
        .await
        .unwrap();
    assert_eq!(keys(&page), ["a/b"]);
    assert_eq!(store.documents(Realms, None, 0, START).await.unwrap(), []);
}

/// # Panics
/// When a promise is broken.
pub async fn a_page_of_documents_passes_expired_ones(make: Make<'_>) {
    let Some(Rig { store, .. }) = place(make).await else {
        return;
    };
    for bite in 0..5 {
        let some = (0..250).map(|n| {
            let key = format!("{:05}", bite * 250 + n);
            until(put(Nonces, &key, "1", Condition::Absent), at(1))
        });
        change(&store, some.collect()).await.unwrap();
    }
    change(&store, vec![put(Nonces, "z", "1", Condition::Absent)])
        .await
        .unwrap();
    let page = store.documents(Nonces, None, 10, at(1)).await.unwrap();
    assert_eq!(keys(&page), ["z"]);
    let page = store
        .documents(Nonces, None, usize::MAX, START)
        .await
        .unwrap();
    assert!(page.len() <= Document::MAX_PAGE && !page.is_empty());
}

/// # Panics
/// When a promise is broken.
pub async fn a_document_may_be_large_but_not_larger(make: Make<'_>) {
    let Some(Rig { store, .. }) = place(make).await else {
        return;
    };
    let large = "x".repeat(Document::MAX_TEXT);
    let key = "k".repeat(Document::MAX_KEY);
    let fits = put(Realms, &key, &large, Condition::Absent);
    change(&store, vec![fits.clone()]).await.unwrap();
    assert_eq!(*one(&store, Realms).await.text, *large);
    let over = put(Realms, "a", &format!("{large}x"), Condition::Absent);
    assert_eq!(
        refused(&store, vec![over]).await,
        ErrorKind::PayloadTooLarge
    );
    let sum = (0..17).map(|n| put(Realms, &n.to_string(), &large, Condition::Always));
    assert_eq!(
        refused(&store, sum.collect()).await,
        ErrorKind::PayloadTooLarge
    );
    for key in [String::new(), format!("{key}k")] {
        let wrong = put(Realms, &key, "{}", Condition::Always);
        assert_eq!(refused(&store, vec![wrong]).await, ErrorKind::BadCommand);
    }
    let twice = vec![fits.clone(), remove(Realms, &key, Condition::Always)];
    assert_eq!(refused(&store, twice).await, ErrorKind::BadCommand);
    let many =
        (0..=DocumentChange::MOST).map(|n| remove(Realms, &n.to_string(), Condition::Always));
    assert_eq!(refused(&store, many.collect()).await, ErrorKind::BadCommand);
    assert_eq!(*one(&store, Realms).await.key, *key);
}

/// # Panics
/// When a promise is broken.
pub async fn of_many_who_put_a_document_where_there_is_none_one_does(make: Make<'_>) {
    let Some(Rig { store, .. }) = place(make).await else {
        return;
    };
    let tries = (0..20).map(|n| {
        let text = n.to_string();
        store.change_documents(vec![put(Nonces, "n", &text, Condition::Absent)], START)
    });
    // All are called before the first is answered.
    let tries: Vec<_> = tries.collect();
    let mut won = Vec::new();
    for (n, answer) in tries.into_iter().enumerate() {
        match answer.await {
            Ok(()) => won.push(n),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
        }
    }
    assert_eq!(won, [0]);
    assert_eq!(&*one(&store, Nonces).await.text, "0");
}

/// # Panics
/// When a promise is broken.
pub async fn realms_that_are_purged_or_renamed_leave_documents_alone(make: Make<'_>) {
    let Some(rig) = place(make).await else {
        return;
    };
    rig.filled("c", 1).await;
    change(&rig.store, vec![put(Realms, "r", "{}", Condition::Absent)])
        .await
        .unwrap();
    let before = one(&rig.store, Realms).await;
    let (from, to) = (super::rig::realm("r"), super::rig::realm("s"));
    rig.store.rename_realm(&from, &to).await.unwrap();
    rig.store.purge_realm(&to).await.unwrap();
    assert_eq!(one(&rig.store, Realms).await, before);
}
