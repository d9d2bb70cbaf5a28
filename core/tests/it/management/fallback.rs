//! Who may come in while Redis is away, and once it is back (P29, P30).

use std::path::Path;

use restante::auth::{Action, AuthSettings};
use restante::clock::{Clock as _, SystemClock};
use restante::server::{Server, ServerConfig, Storage};
use restante::store::RedisOptions;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ADMIN, shown, signed};
use crate::harness::{Client, until};
use crate::redis::server::RedisServer;
use crate::sqlite::process::SECOND;

async fn start(redis: &RedisServer, folder: &Path) -> Server {
    let mut options = RedisOptions::at(redis.url());
    options.prefix = "managed".to_owned();
    options.fallback = Some(folder.join("fallback.sqlite"));
    options.probe_timeout = 5 * SECOND;
    let mut config = ServerConfig::default();
    config.host = Some("127.0.0.1".to_owned());
    config.port = 0;
    config.data_dir = folder.to_owned();
    config.storage = Storage::Redis(options);
    config.auth = AuthSettings::parse(&super::settings()).unwrap();
    Server::start(config).await.unwrap()
}

fn is_on_fallback(server: &Server) -> bool {
    let health = server.store_health();
    health.figures.contains(&("fallback", 1))
}

async fn add_token(server: &Server, token: &str) {
    let body = json!({ "command": "add_token", "realm": "acme", "token": token });
    let order = signed(Action::Command, ADMIN, SystemClock::new().now(), &body);
    let mut client = Client::connect(server.local_addr(), "operator").await;
    let answer = client.call(Action::Command.as_str(), &order).await;
    assert_eq!(answer["ok"], true, "{answer}");
}

async fn answer_to(server: &Server, token: &str) -> Value {
    let mut client = Client::connect(server.local_addr(), "x").await;
    shown(&mut client, token).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_knows_of_tokens_counts_as_soon_as_it_is_back() {
    let folder = TempDir::new().unwrap();
    let mut redis = RedisServer::start(&["--appendonly", "yes"]);
    let server = start(&redis, folder.path()).await;
    add_token(&server, "a token from before the failure").await;
    server.close(10 * SECOND).await.unwrap();
    redis.kill();
    let server = start(&redis, folder.path()).await;
    assert!(is_on_fallback(&server));
    add_token(&server, "a token from within the failure").await;
    // What the settings say holds wherever messages wait.
    assert_eq!(answer_to(&server, "beta-token").await, "beta");
    redis.run();
    let before = "a token from before the failure";
    let is_back = async || !is_on_fallback(&server) && answer_to(&server, before).await == "acme";
    until("Redis is back", is_back).await;
    let within = "a token from within the failure";
    assert_eq!(answer_to(&server, within).await, "acme");
    server.close(10 * SECOND).await.unwrap();
}
