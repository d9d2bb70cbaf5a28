//! Whether authentication is on: what the operator says at the start, and what a command has said before.

use std::path::Path;

use restante::auth::Action;
use restante::clock::{Clock as _, SystemClock};
use restante::server::{Server, ServerConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ADMIN, signed};
use crate::harness::Client;
use crate::sqlite::process::SECOND;

/// A server whose settings say `settings`, and whose command line or environment says `over`.
async fn start(folder: &Path, settings: bool, over: Option<bool>) -> Server {
    let mut auth = super::settings();
    auth["enabled"] = json!(settings);
    let mut options = json!({
        "host": "127.0.0.1", "port": 0, "data_dir": folder, "auth": auth, "storage": "sqlite",
        "storage_options": { "filename": folder.join("queue.sqlite") },
    });
    if let Some(is_on) = over {
        options["overrides"] = json!({ "auth": { "enabled": is_on } });
    }
    let (config, _) = ServerConfig::from_options(&options.to_string()).unwrap();
    Server::start(config).await.unwrap()
}

async fn order(server: &Server, body: &Value) -> Value {
    let order = signed(Action::Command, ADMIN, SystemClock::new().now(), body);
    let mut client = Client::connect(server.local_addr(), "operator").await;
    let answer = client.call(Action::Command.as_str(), &order).await;
    client.leave().await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer
}

async fn is_on(server: &Server) -> bool {
    let view = order(server, &json!({ "command": "get" })).await;
    view.pointer("/settings/enabled")
        .and_then(Value::as_bool)
        .unwrap_or_else(|| panic!("{view}"))
}

async fn switch(server: &Server, enabled: bool) {
    let body = json!({ "command": "set_global_auth", "enabled": enabled });
    order(server, &body).await;
    assert_eq!(is_on(server).await, enabled);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_says_at_the_start_counts_over_what_a_command_has_stored() {
    let folder = TempDir::new().unwrap();
    let server = start(folder.path(), true, None).await;
    switch(&server, false).await;
    server.close(10 * SECOND).await.unwrap();
    // The settings alone do not bring it back: they have not been edited.
    let server = start(folder.path(), true, None).await;
    assert!(!is_on(&server).await);
    server.close(10 * SECOND).await.unwrap();
    for said in [true, false, true] {
        let server = start(folder.path(), !said, Some(said)).await;
        assert_eq!(is_on(&server).await, said);
        // While it runs a command counts, until the next start.
        switch(&server, !said).await;
        server.close(10 * SECOND).await.unwrap();
        let server = start(folder.path(), !said, Some(said)).await;
        assert_eq!(is_on(&server).await, said);
        server.close(10 * SECOND).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_does_not_undo_a_command_by_what_was_said_at_the_start() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("settings.json");
    std::fs::write(&file, "{}").unwrap();
    let options = json!({
        "host": "127.0.0.1", "port": 0, "data_dir": folder.path(), "auth": super::settings(),
        "settings_file": file, "overrides": { "auth": { "enabled": true } },
    });
    let (config, _) = ServerConfig::from_options(&options.to_string()).unwrap();
    let server = Server::start(config).await.unwrap();
    switch(&server, false).await;
    order(&server, &json!({ "command": "reload_settings" })).await;
    assert!(!is_on(&server).await);
    server.close(10 * SECOND).await.unwrap();
}
