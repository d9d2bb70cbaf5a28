//! The file of documents over restarts, damage and other readers.

use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::super::Condition;
use super::*;

const NOW: Timestamp = Timestamp(1_767_225_600_000);

fn put(key: &str, text: &str, only_if: Condition) -> DocumentChange {
    DocumentChange {
        collection: Collection::Realms,
        key: key.into(),
        text: Some(text.into()),
        expires: None,
        only_if,
    }
}

async fn all(documents: &FileDocuments) -> Vec<Document> {
    let all = documents.documents(Collection::Realms, None, usize::MAX, NOW);
    all.await.unwrap()
}

#[tokio::test]
async fn what_was_confirmed_is_there_after_a_restart_with_its_version() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broker.auth.json");
    let documents = FileDocuments::open(&path).unwrap();
    let change = put("a", r#"{"required":true}"#, Condition::Absent);
    documents
        .change_documents(vec![change.clone()], NOW)
        .await
        .unwrap();
    let before = all(&documents).await;
    documents.close().await.unwrap();
    assert_eq!(
        documents
            .change_documents(vec![change.clone()], NOW)
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::StoreUnavailable
    );
    let documents = FileDocuments::open(&path).unwrap();
    assert_eq!(all(&documents).await, before);
    let again = documents.change_documents(vec![change], NOW).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
    let change = put("a", "{}", Condition::Version(before[0].version));
    documents.change_documents(vec![change], NOW).await.unwrap();
    assert!(all(&documents).await[0].version > before[0].version);
}

#[tokio::test]
async fn the_file_is_its_owners_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broker.auth.json");
    fs::write(beside(&path, ".part"), "left by a crash").unwrap();
    let documents = FileDocuments::open(&path).unwrap();
    let change = put("a", "{}", Condition::Always);
    documents.change_documents(vec![change], NOW).await.unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["broker.auth.json", "broker.auth.json.lock"]);
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broker.auth.json");
    let twice = r#"{"collection":"realms","key":"a","text":"s3cret","version":1}"#;
    let twice = format!(r#"{{"version":1,"documents":[{twice},{twice}]}}"#);
    for text in [
        "",
        "{",
        "[]",
        "s3cret",
        r#"{"version":1,"documents":[{"key":"s3cret"}]}"#,
        &twice,
    ] {
        fs::write(&path, text).unwrap();
        let error = FileDocuments::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreCorrupt, "{text}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, r#"{"version":2,"documents":[]}"#).unwrap();
    let newer = FileDocuments::open(&path).unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::StoreUnsupported);
}

#[tokio::test]
async fn one_broker_at_a_time_has_the_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broker.auth.json");
    let first = FileDocuments::open(&path).unwrap();
    let second = FileDocuments::open(&path).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::StoreLocked);
    first.close().await.unwrap();
    FileDocuments::open(&path).unwrap();
}

#[tokio::test]
async fn what_could_not_be_written_has_not_happened() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broker.auth.json");
    let documents = FileDocuments::open(&path).unwrap();
    let change = put("a", "{}", Condition::Absent);
    documents.change_documents(vec![change], NOW).await.unwrap();
    // A directory that is not empty cannot be taken away for the part.
    let part = beside(&path, ".part");
    fs::create_dir(&part).unwrap();
    fs::write(part.join("x"), "").unwrap();
    let change = put("b", "{}", Condition::Absent);
    let refused = documents.change_documents(vec![change.clone()], NOW).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    assert_eq!(all(&documents).await.len(), 1);
    fs::remove_dir_all(&part).unwrap();
    documents.change_documents(vec![change], NOW).await.unwrap();
    assert_eq!(all(&documents).await.len(), 2);
}

#[tokio::test]
async fn expired_documents_leave_the_file_with_the_next_change() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broker.auth.json");
    let documents = FileDocuments::open(&path).unwrap();
    let mut nonce = put("short-lived", "{}", Condition::Absent);
    nonce.expires = Some(Timestamp(NOW.0 + 1000));
    documents.change_documents(vec![nonce], NOW).await.unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("short-lived"));
    let later = Timestamp(NOW.0 + 1000);
    let change = put("b", "{}", Condition::Absent);
    documents
        .change_documents(vec![change], later)
        .await
        .unwrap();
    assert!(!fs::read_to_string(&path).unwrap().contains("short-lived"));
}
