//! What a broker takes over of what another one has changed, with a store that fails meanwhile (P30).

use std::sync::Arc;
use std::time::Duration;

use super::concerns;
use crate::ErrorKind;
use crate::auth::AuthSettings;
use crate::clock::{Clock, TestClock};
use crate::model::RealmId;
use crate::server::{Server, ServerConfig};
use crate::store::faulty::FaultyStore;
use crate::store::{Bounds, Collection, MemoryStore, News, QueueId, SharedStore};

async fn on(store: SharedStore, clock: &Arc<TestClock>) -> Server {
    let settings = serde_json::json!({ "enabled": true, "auto_admin_token": false });
    let config = ServerConfig {
        host: Some("127.0.0.1".to_owned()),
        port: 0,
        auth: AuthSettings::parse(&settings).unwrap(),
        store: Some(store),
        clock: clock.clone(),
        ..ServerConfig::default()
    };
    Server::start(config).await.unwrap()
}

fn knows(server: &Server, realm: &str) -> bool {
    !server.auth().view()["realms"][realm].is_null()
}

async fn add(server: &Server, realm: &str) {
    let realm = RealmId::parse(realm).unwrap();
    server
        .auth()
        .add_realm(realm, Default::default())
        .await
        .unwrap();
}

/// Lets the clock run until the broker knows a realm.
async fn until_known(server: &Server, realm: &str, clock: &TestClock) {
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    let waiting = async {
        while !knows(server, realm) {
            clock.advance(Duration::from_millis(100));
            pace.tick().await;
        }
    };
    let known = tokio::time::timeout(Duration::from_secs(20), waiting);
    known.await.expect("it is known");
}

#[tokio::test]
async fn what_could_not_be_read_of_another_brokers_change_is_read_a_second_later() {
    let clock = TestClock::new();
    let inner: SharedStore = Arc::new(MemoryStore::new(Bounds::default()));
    let faulty = FaultyStore::new(inner.clone());
    let (there, here) = (on(inner, &clock).await, on(faulty.clone(), &clock).await);
    add(&there, "first").await;
    // One call is the first page of a reading, which fails by it as a whole.
    let (before, since) = (faulty.calls(), clock.elapsed());
    faulty.fail_next(1, ErrorKind::StoreUnavailable);
    faulty.tell(&News::Documents(Collection::Realms));
    until_known(&here, "first", &clock).await;
    assert!(faulty.calls() > before + 1);
    assert!(clock.elapsed() >= since + Duration::from_secs(1));
}

#[tokio::test]
async fn a_rename_that_its_broker_does_not_finish_is_finished_by_another_one() {
    let clock = TestClock::new();
    let inner: SharedStore = Arc::new(MemoryStore::new(Bounds::default()));
    let faulty = FaultyStore::new(inner.clone());
    let (there, here) = (on(inner, &clock).await, on(faulty.clone(), &clock).await);
    add(&there, "old").await;
    let [old, new] = ["old", "new"].map(|name| RealmId::parse(name).unwrap());
    there.auth().begin_rename(&old, &new).await.unwrap();
    there.auth().rename_realm(old, new).await.unwrap();
    faulty.tell(&News::Documents(Collection::Settings));
    until_known(&here, "new", &clock).await;
    let since = clock.elapsed();
    let finishing = async {
        while !here.auth().open_renames().await.unwrap().is_empty() {
            clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    };
    let finished = tokio::time::timeout(Duration::from_secs(20), finishing);
    finished.await.expect("it is finished");
    assert!(clock.elapsed() >= since + Duration::from_secs(29));
}

#[test]
fn realms_tokens_and_requests_are_read_anew_but_not_for_a_nonce() {
    use Collection as Of;
    for collection in [
        Of::Realms,
        Of::Tokens,
        Of::ManagementTokens,
        Of::Settings,
        Of::Requests,
    ] {
        assert!(concerns(&News::Documents(collection)), "{collection:?}");
    }
    assert!(concerns(&News::Missed));
    assert!(!concerns(&News::Documents(Of::Nonces)));
    assert!(!concerns(&News::Forgotten(RealmId::default(), QueueId(1))));
}
