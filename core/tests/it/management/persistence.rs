//! Another store by command (scenario 31; P28), and what a kill leaves (scenario 37).

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use restante::auth::{Action, AuthSettings};
use restante::clock::{Clock as _, SystemClock};
use restante::server::{Server, ServerConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ADMIN, assert_refused, durable, shown, signed};
use crate::harness::{Client, size};
use crate::sqlite::process::{Broker, SECOND, command};

async fn start(folder: &Path) -> Server {
    let mut config = ServerConfig::default();
    config.host = Some("127.0.0.1".to_owned());
    config.port = 0;
    config.data_dir = folder.to_owned();
    config.auth = AuthSettings::parse(&super::settings()).unwrap();
    Server::start(config).await.unwrap()
}

/// Asserts that a command may have the server open this nowhere.
async fn assert_confined(server: &Server, wish: Value) {
    let mut body = wish;
    body["command"] = json!("set_persistence");
    let answer = order(server.local_addr(), &body).await;
    assert_refused(&answer, 400, "config");
}

async fn order(addr: std::net::SocketAddr, body: &Value) -> Value {
    let order = signed(Action::Command, ADMIN, SystemClock::new().now(), body);
    let mut client = Client::connect(addr, "operator").await;
    let answer = client.call(Action::Command.as_str(), &order).await;
    client.leave().await;
    answer
}

async fn client(server: &Server, name: &str) -> Client {
    let mut client = Client::connect(server.local_addr(), name).await;
    assert_eq!(shown(&mut client, "acme-token").await, "acme");
    for verb in ["CONSUMER", "PRODUCER"] {
        client
            .call(verb, &json!({ "name": name, "id": name }))
            .await;
    }
    client
}

/// `count` messages wait for `c`, who is away.
async fn queue(server: &Server, count: usize) {
    let mut consumer = client(server, "c").await;
    consumer.subscribe(durable("e")).await;
    consumer.leave().await;
    let mut producer = client(server, "p").await;
    for n in 0..count {
        let answer = producer.produce("e", json!(n), json!({})).await;
        assert_eq!(answer["queued"], 1, "{answer}");
    }
    producer.leave().await;
}

async fn assert_waiting(server: &Server, count: usize) {
    let mut consumer = client(server, "c").await;
    consumer.subscribe(durable("e")).await;
    for n in 0..count {
        let delivery = consumer.delivery().await;
        assert_eq!(delivery["message"], n);
        consumer.ack(&delivery).await;
    }
    assert_eq!(consumer.rest().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_had_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let server = start(folder.path()).await;
    queue(&server, 10).await;
    let nobody = crate::redis::server::free_port();
    let url = format!("redis://user:secret-of-redis@127.0.0.1:{nobody}");
    let outside = TempDir::new().unwrap();
    let out = outside.path().join("it.sqlite");
    let up = folder.path().join("a/../../it.sqlite");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    for (wish, code, error) in [
        (
            json!({ "storage": "redis", "url": url }),
            503,
            "store_unavailable",
        ),
        (
            json!({ "storage": "sqlite", "filename": out }),
            400,
            "config",
        ),
        (json!({ "storage": "sqlite", "path": up }), 400, "config"),
        (
            json!({ "storage": "sqlite", "path": link.join("it.sqlite") }),
            400,
            "config",
        ),
        (
            json!({ "backend": "sqlite", "options": { "filename": "/etc/x" } }),
            400,
            "config",
        ),
        (
            json!({ "storage": "custom", "module": "./evil.js" }),
            501,
            "unsupported",
        ),
        (json!({ "storage": "paper" }), 400, "bad_command"),
        (
            json!({ "storage": "sqlite", "default_ttl": "soon" }),
            400,
            "config",
        ),
    ] {
        let mut body = wish;
        body["command"] = json!("set_persistence");
        let answer = order(server.local_addr(), &body).await;
        assert_refused(&answer, code, error);
        assert!(!answer.to_string().contains("secret-of-redis"));
    }
    assert!(!out.exists() && !outside.path().join("it.sqlite").exists());
    let view = order(server.local_addr(), &json!({ "command": "get" })).await;
    assert_eq!(
        view.pointer("/settings/persistence/storage"),
        Some(&json!("memory")),
        "{view}"
    );
    assert_waiting(&server, 10).await;
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_data_dir_a_command_opens_nothing_outside_the_working_directory() {
    let outside = TempDir::new().unwrap();
    let server = start(Path::new("")).await;
    let out = outside.path().join("it.sqlite");
    assert_confined(&server, json!({ "storage": "sqlite", "filename": out })).await;
    assert_confined(
        &server,
        json!({ "storage": "sqlite", "filename": "../it.sqlite" }),
    )
    .await;
    assert!(!out.exists() && !Path::new("../it.sqlite").exists());
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_names_the_files_of_a_redis_within_the_folders_too() {
    let folder = TempDir::new().unwrap();
    let server = start(folder.path()).await;
    let nobody = format!("rediss://127.0.0.1:{}", crate::redis::server::free_port());
    for (name, more) in [
        ("fallback_filename", json!({ "fallback": "sqlite" })),
        ("tls_ca", json!({})),
        (
            "tls_cert",
            json!({ "tls_key": folder.path().join("key.pem") }),
        ),
        (
            "tls_key",
            json!({ "tls_cert": folder.path().join("cert.pem") }),
        ),
    ] {
        let mut options = more;
        options["url"] = json!(nobody);
        options[name] = json!("/etc/passwd");
        assert_confined(&server, json!({ "storage": "redis", "options": options })).await;
    }
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_and_who_may_come_in_move_to_a_file_in_order() {
    let count = size(1_000, 1_000);
    let folder = TempDir::new().unwrap();
    let server = start(folder.path()).await;
    let add =
        json!({ "command": "add_token", "realm": "acme", "token": "added before the change" });
    assert_eq!(order(server.local_addr(), &add).await["ok"], true);
    queue(&server, count).await;
    let file = folder.path().join("new.sqlite");
    let body = json!({ "command": "set_persistence", "storage": "sqlite", "filename": file });
    let answer = order(server.local_addr(), &body).await;
    assert_eq!(answer["ok"], true, "{answer}");
    let storage = answer.pointer("/settings/persistence/storage");
    assert_eq!(storage, Some(&json!("sqlite")), "{answer}");
    let add = json!({ "command": "add_realm", "realm": "later" });
    assert_eq!(order(server.local_addr(), &add).await["ok"], true);
    server.close(10 * SECOND).await.unwrap();
    let server = start(folder.path()).await;
    assert_eq!(server.storage().0, "sqlite");
    let view = server.auth().view();
    assert!(view["realms"]["later"].is_object(), "{view}");
    let mut added = Client::connect(server.local_addr(), "x").await;
    assert_eq!(shown(&mut added, "added before the change").await, "acme");
    assert_waiting(&server, count).await;
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_with_a_password_is_shown_without_it() {
    let redis = crate::redis::server::RedisServer::start(&["--requirepass", "secret-of-redis"]);
    let folder = TempDir::new().unwrap();
    let server = start(folder.path()).await;
    let url = format!("redis://:secret-of-redis@127.0.0.1:{}", redis.port);
    let body = json!({ "command": "set_persistence", "storage": "redis", "url": url });
    let changed = order(server.local_addr(), &body).await;
    assert_eq!(changed["ok"], true, "{changed}");
    let view = order(server.local_addr(), &json!({ "command": "get" })).await;
    let stats = order(server.local_addr(), &json!({ "command": "stats" })).await;
    let storage = view.pointer("/settings/persistence/storage");
    assert_eq!(storage, Some(&json!("redis")), "{view}");
    for answer in [changed, view, stats] {
        assert!(!answer.to_string().contains("secret-of-redis"), "{answer}");
    }
    server.close(10 * SECOND).await.unwrap();
}

/// A broker as a process of its own, in a folder, with a settings file.
async fn process(folder: &Path, storage: &str) -> Broker {
    let settings = folder.join("settings.json");
    let mut tokens = super::settings();
    tokens["enabled"] = json!(true);
    std::fs::write(&settings, json!({ "auth": tokens }).to_string()).unwrap();
    let file = folder.join("it.sqlite");
    let more = [
        "--storage",
        storage,
        "--settings",
        settings.to_str().unwrap(),
    ];
    let mut starting = command(&file, &more);
    starting.current_dir(folder);
    Broker::start(starting).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_there_after_a_kill() {
    for storage in ["sqlite", "memory"] {
        let folder = TempDir::new().unwrap();
        for round in 0..3 {
            let broker = process(folder.path(), storage).await;
            let addr = format!("127.0.0.1:{}", broker.port).parse().unwrap();
            let body =
                json!({ "command": "add_realm", "realm": format!("r{round}"), "key": "key of it" });
            let answer = order(addr, &body).await;
            assert_eq!(answer["ok"], true, "{storage}: {answer}");
            broker.kill().await;
        }
        let broker = process(folder.path(), storage).await;
        let addr = format!("127.0.0.1:{}", broker.port).parse().unwrap();
        let view = order(addr, &json!({ "command": "get" })).await;
        for round in 0..3 {
            let place = format!("/settings/realms/r{round}/key_configured");
            assert_eq!(
                view.pointer(&place),
                Some(&json!(true)),
                "{storage}: {view}"
            );
        }
        broker.kill().await;
        if storage == "memory" {
            let file = folder.path().join("settings.json.auth.json");
            let mode = std::fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let text = std::fs::read_to_string(&file).unwrap();
            serde_json::from_str::<Value>(&text).expect("it is JSON");
            assert!(!text.contains("acme-token"), "tokens are kept as hashes");
        }
    }
}
