//! Documents in Redis: what one broker writes another knows, and one of two wins.

use std::sync::Arc;

use restante::ErrorKind;
use restante::clock::SystemClock;
use restante::store::fallback::{Merging, begin_numbers};
use restante::store::{
    Bounds, Collection, Condition, DocumentChange, Documents as _, News, RedisStore, SharedStore,
    SqliteOptions, SqliteStore, Store as _,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::rig::now;
use super::server;
use crate::transport::harness::PATIENCE;

fn put(collection: Collection, key: &str, text: &str, only_if: Condition) -> DocumentChange {
    DocumentChange {
        collection,
        key: key.into(),
        text: Some(text.into()),
        expires: None,
        only_if,
    }
}

async fn two() -> (RedisStore, RedisStore) {
    let options = server::shared().options();
    let first = server::open(options.clone(), Bounds::default()).await;
    (first, server::open(options, Bounds::default()).await)
}

async fn texts(store: &RedisStore, collection: Collection) -> Vec<String> {
    let all = store.documents(collection, None, 100, now()).await.unwrap();
    all.iter()
        .map(|document| document.text.to_string())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_hears_what_another_has_changed() {
    let (here, there) = two().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    there.listen(Arc::new(move |news| {
        if let News::Documents(collection) = news {
            let _ = tell.send(collection);
        }
    }));
    let nonce = put(Collection::Nonces, "n", "{}", Condition::Absent);
    here.change_documents(vec![nonce], now()).await.unwrap();
    let realm = put(Collection::Realms, "r", "1", Condition::Absent);
    here.change_documents(vec![realm], now()).await.unwrap();
    let heard = timeout(PATIENCE, told.recv()).await.unwrap();
    assert_eq!(heard, Some(Collection::Realms), "and of no nonce");
    assert_eq!(texts(&there, Collection::Realms).await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_brokers_that_use_a_nonce_one_does() {
    let (here, there) = two().await;
    for round in 0..50 {
        let nonce = || {
            vec![put(
                Collection::Nonces,
                &round.to_string(),
                "{}",
                Condition::Absent,
            )]
        };
        let (a, b) = tokio::join!(
            here.change_documents(nonce(), now()),
            there.change_documents(nonce(), now())
        );
        let lost = [a, b].into_iter().filter_map(Result::err);
        let lost: Vec<_> = lost.map(|error| error.kind()).collect();
        assert_eq!(lost, [ErrorKind::Conflict]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_there_for_a_broker_that_starts_anew() {
    let options = server::shared().options();
    let store = server::open(options.clone(), Bounds::default()).await;
    let token = put(Collection::Tokens, "t", "{}", Condition::Absent);
    store
        .change_documents(vec![token.clone()], now())
        .await
        .unwrap();
    let before = store
        .documents(Collection::Tokens, None, 9, now())
        .await
        .unwrap();
    store.close().await.unwrap();
    let closed = store.change_documents(vec![token.clone()], now()).await;
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    let store = server::open(options, Bounds::default()).await;
    let after = store
        .documents(Collection::Tokens, None, 9, now())
        .await
        .unwrap();
    assert_eq!(after, before);
    let again = store.change_documents(vec![token], now()).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stand_in_took_in_is_put_where_redis_has_nothing() {
    let options = SqliteOptions {
        path: None,
        ..SqliteOptions::default()
    };
    let file = SqliteStore::open(options, Bounds::default(), Arc::new(SystemClock::new())).await;
    let from: SharedStore = Arc::new(file.unwrap());
    begin_numbers(&*from, false).await.unwrap();
    let to = Arc::new(server::open(server::shared().options(), Bounds::default()).await);
    let known = put(Collection::Realms, "r", "redis", Condition::Absent);
    to.change_documents(vec![known], now()).await.unwrap();
    for (key, text) in [("r", "file"), ("s", "file")] {
        let change = put(Collection::Realms, key, text, Condition::Absent);
        from.change_documents(vec![change], now()).await.unwrap();
    }
    let mut merging = Merging::begin(from, to.clone()).await.unwrap();
    while merging.page().await.unwrap() > 0 {}
    merging.finish(now()).await.unwrap();
    assert_eq!(texts(&to, Collection::Realms).await, ["redis", "file"]);
}
