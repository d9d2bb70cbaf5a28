//! What a server finds when it starts again (scenarios 21, 33, 37).

use std::sync::Arc;
use std::time::Duration;

use restante::Result;
use restante::auth::{Action, AuthSettings};
use restante::clock::{Clock as _, TestClock};
use restante::server::{Server, ServerConfig, Storage};
use restante::store::SqliteOptions;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ADMIN, assert_refused, shown, signed};
use crate::harness::{Client, ticking, until};

const COMMAND: &str = "AUTH_MANAGEMENT_COMMAND";

/// A place where servers stand one after another.
struct Place {
    folder: TempDir,
    clock: Arc<TestClock>,
    is_lasting: bool,
}

impl Place {
    fn new(is_lasting: bool) -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            clock: TestClock::new(),
            is_lasting,
        }
    }

    async fn start(&self) -> Server {
        self.try_start().await.unwrap()
    }

    async fn try_start(&self) -> Result<Server> {
        let mut config = ServerConfig::default();
        config.host = Some("127.0.0.1".to_owned());
        config.port = 0;
        config.data_dir = self.folder.path().to_owned();
        config.transport.ping_interval = Duration::from_secs(1_000_000_000);
        config.auth = AuthSettings::parse(&super::settings()).unwrap();
        config.clock = self.clock.clone();
        if self.is_lasting {
            config.storage = Storage::Sqlite(SqliteOptions {
                path: Some(self.folder.path().join("it.sqlite")),
                ..SqliteOptions::default()
            });
        }
        Server::start(config).await
    }

    fn order(&self, body: &Value) -> Value {
        signed(Action::Command, ADMIN, self.clock.now(), body)
    }
}

async fn close(server: Server, place: &Place) {
    let closing = server.close(Duration::from_secs(3_600));
    let closed = ticking(&place.clock, Duration::from_millis(100), closing);
    closed.await.unwrap();
}

async fn send(server: &Server, order: &Value) -> Value {
    let mut client = Client::connect(server.local_addr(), "operator").await;
    let answer = client.call(COMMAND, order).await;
    client.leave().await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_that_was_used_before_a_restart_is_refused_after_it() {
    for is_lasting in [true, false] {
        let place = Place::new(is_lasting);
        let server = place.start().await;
        let order = place.order(&json!({ "command": "get" }));
        assert_eq!(send(&server, &order).await["ok"], true);
        close(server, &place).await;
        place.clock.advance(Duration::from_secs(1));
        let server = place.start().await;
        assert_refused(&send(&server, &order).await, 401, "proof_rejected");
        let next = place.order(&json!({ "command": "get" }));
        assert_eq!(send(&server, &next).await["ok"], true);
        close(server, &place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_ordered_is_there_after_a_restart() {
    let place = Place::new(true);
    let server = place.start().await;
    for body in [
        json!({ "command": "add_realm", "realm": "kept", "key": "key of it", "require_acceptance": false }),
        json!({ "command": "add_token", "realm": "kept", "token": "a token that is kept as a hash" }),
        json!({ "command": "revoke_token", "token": "beta-token" }),
        json!({ "command": "remove_realm", "realm": "acme" }),
    ] {
        let answer = send(&server, &place.order(&body)).await;
        assert_eq!(answer["ok"], true, "{body}: {answer}");
    }
    let ask = json!({ "realm": "kept", "client_id": "x", "client_name": "x" });
    let mut asking = Client::connect(server.local_addr(), "x").await;
    let id = asking.call("AUTHORIZATION_REQUEST", &ask).await["request_id"].clone();
    asking.leave().await;
    let before = server.auth().view();
    close(server, &place).await;
    let server = place.start().await;
    // The settings still name acme and its token: what was removed by order stays removed.
    assert_eq!(server.auth().view(), before);
    for (token, answer) in [
        ("a token that is kept as a hash", json!("kept")),
        ("beta-token", json!(401)),
        ("acme-token", json!(401)),
    ] {
        let mut client = Client::connect(server.local_addr(), "x").await;
        assert_eq!(shown(&mut client, token).await, answer, "{token}");
    }
    let list = place.order(&json!({ "command": "authorization_list" }));
    assert_eq!(send(&server, &list).await["requests"][0]["request_id"], id);
    close(server, &place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_that_was_cut_short_is_finished_at_the_start() {
    let realm = |name| restante::model::RealmId::parse(name).unwrap();
    for is_renamed in [true, false] {
        let place = Place::new(true);
        let server = place.start().await;
        let mut client = Client::connect(server.local_addr(), "c").await;
        assert_eq!(shown(&mut client, "acme-token").await, "acme");
        for verb in ["CONSUMER", "PRODUCER"] {
            let hello = json!({ "name": "c", "id": "c" });
            client.call(verb, &hello).await;
        }
        client.subscribe(super::durable("e")).await;
        let answer = client.produce("e", json!("waits"), json!({})).await;
        assert_eq!(answer["queued"], 1, "{answer}");
        let wish = json!({ "realm": "acme", "client_id": "x", "client_name": "x" });
        client.call("AUTHORIZATION_REQUEST", &wish).await;
        client.leave().await;
        // As far as it had come.
        let (old, new) = (realm("acme"), realm("new"));
        server.auth().begin_rename(&old, &new).await.unwrap();
        if is_renamed {
            server.auth().rename_realm(old, new).await.unwrap();
        }
        close(server, &place).await;
        let server = place.start().await;
        assert!(server.auth().open_renames().await.unwrap().is_empty());
        let name = if is_renamed { "new" } else { "acme" };
        let mut client = Client::connect(server.local_addr(), "c").await;
        assert_eq!(shown(&mut client, "acme-token").await, name);
        let hello = json!({ "name": "c", "id": "c" });
        client.call("CONSUMER", &hello).await;
        client.subscribe(super::durable("e")).await;
        assert_eq!(client.messages(1).await, [json!("waits")]);
        let list = json!({ "command": "authorization_list", "realm": name });
        let listed = send(&server, &place.order(&list)).await;
        assert_eq!(listed["requests"].as_array().unwrap().len(), 1, "{listed}");
        close(server, &place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_realm_that_ended_while_nobody_served_it_is_gone_before_the_port_opens() {
    let place = Place::new(true);
    let server = place.start().await;
    let add = json!({ "command": "add_realm", "realm": "brief", "ttl": "10m" });
    assert_eq!(send(&server, &place.order(&add)).await["ok"], true);
    let add =
        json!({ "command": "add_token", "realm": "brief", "token": "a token of a brief realm" });
    assert_eq!(send(&server, &place.order(&add)).await["ok"], true);
    let mut client = Client::connect(server.local_addr(), "c").await;
    assert_eq!(
        shown(&mut client, "a token of a brief realm").await,
        "brief"
    );
    client
        .call("CONSUMER", &json!({ "name": "c", "id": "c" }))
        .await;
    client
        .call("PRODUCER", &json!({ "name": "c", "id": "c" }))
        .await;
    client.subscribe(super::durable("e")).await;
    let answer = client.produce("e", json!(1), json!({})).await;
    assert_eq!(answer["queued"], 1, "{answer}");
    client.leave().await;
    close(server, &place).await;
    place.clock.advance(Duration::from_secs(601));
    let server = place.start().await;
    let stored = server.broker().store().realms().await.unwrap();
    assert!(
        !stored.iter().any(|realm| realm.as_str() == "brief"),
        "{stored:?}"
    );
    let view = server.auth().view().to_string();
    assert!(!view.contains("brief"), "{view}");
    assert!(server.stats()["realms"]["brief"].is_null());
    close(server, &place).await;
}

#[tokio::test]
async fn a_server_that_is_dropped_lets_go_of_its_file() {
    let place = Place::new(true);
    let server = place.start().await;
    let order = place.order(&json!({ "command": "add_realm", "realm": "kept" }));
    assert_eq!(send(&server, &order).await["ok"], true);
    drop(server);
    let mut again = None;
    let starts = async || {
        again = place.try_start().await.ok();
        again.is_some()
    };
    until("the file is free", starts).await;
    let again = again.unwrap();
    assert!(!again.auth().view()["realms"]["kept"].is_null());
    close(again, &place).await;
}
