//! The settings file: read before the port opens, read again while the server runs, and what it says of
//! the store (P28, P33).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use restante::ErrorKind;
use restante::server::{STATE_FILE, Server, ServerConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{self, Client};
use crate::redis::server as redis;
use crate::sqlite::load::{AllSeen, are_seen, consume, produce, subscribe};
use crate::sqlite::process::{Broker, SECOND, command, soon};
use crate::sqlite::swap::{client, until, waiting};

/// A folder with a settings file and a server that goes by it.
struct Rig {
    folder: TempDir,
}

impl Rig {
    fn new(settings: &Value) -> Self {
        let this = Self {
            folder: TempDir::new().unwrap(),
        };
        this.write(&settings.to_string());
        this
    }

    fn file(&self) -> PathBuf {
        self.path("settings.json")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    /// As editors do it.
    fn save_by_rename(&self, settings: &Value) {
        let part = self.path(".settings.json.swp");
        std::fs::write(&part, settings.to_string()).unwrap();
        std::fs::rename(part, self.file()).unwrap();
    }

    fn options(&self) -> Value {
        json!({
            "host": "127.0.0.1",
            "port": 0,
            "data_dir": self.folder.path(),
            "settings_file": self.file(),
        })
    }

    async fn start(&self) -> Server {
        let (config, _) = ServerConfig::from_options(&self.options().to_string()).unwrap();
        Server::start(config).await.unwrap()
    }

    fn sqlite(&self, name: &str) -> Value {
        json!({"storage": "sqlite", "storage_options": {"filename": self.path(name)}})
    }
}

fn failures(server: &Server) -> u64 {
    server.metrics().settings_failures.total()
}

/// Whether an anonymous consumer may register now.
async fn lets_anonymous_in(server: &Server) -> bool {
    let client = client(server);
    let outcome = soon(client.consumer("ANONYMOUS-1")).await;
    if let Ok(consumer) = &outcome {
        soon(consumer.connection().close(SECOND)).await.unwrap();
    }
    match outcome {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AnonymousRefused);
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_saves_by_rename_both_count_and_a_removed_key_returns_to_its_default() {
    let rig = Rig::new(&json!({}));
    let server = rig.start().await;
    assert!(lets_anonymous_in(&server).await);
    rig.save_by_rename(&json!({"allow_anonymous": false}));
    follows(&server, false, "the first save").await;
    rig.save_by_rename(&json!({}));
    follows(&server, true, "the second save").await;
    assert_eq!(failures(&server), 0);
    server.close(SECOND).await.unwrap();
}

async fn follows(server: &Server, lets_in: bool, what: &str) {
    let is_noticed = async || lets_anonymous_in(server).await == lets_in;
    harness::until(what, is_noticed).await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_on_the_way_to_the_file_are_followed_wherever_they_come_to_lead() {
    use std::os::unix::fs::symlink;
    let rig = Rig::new(&json!({}));
    let say = |name: &str, lets_in: bool| {
        let text = json!({"allow_anonymous": lets_in}).to_string();
        std::fs::write(rig.path(name), text).unwrap();
    };
    let lead = |name: &str, target: &str| {
        symlink(target, rig.path("new")).unwrap();
        std::fs::rename(rig.path("new"), rig.path(name)).unwrap();
    };
    for name in ["one", "two"] {
        std::fs::create_dir(rig.path(name)).unwrap();
    }
    say("one/s.json", true);
    say("two/s.json", false);
    lead("now", "one");
    let mut options = rig.options();
    options["settings_file"] = json!(rig.path("now/s.json"));
    let (config, _) = ServerConfig::from_options(&options.to_string()).unwrap();
    let server = Server::start(config).await.unwrap();
    assert!(lets_anonymous_in(&server).await);
    lead("now", "two");
    follows(&server, false, "a folder's link that leads elsewhere").await;
    say("two/s.json", true);
    follows(&server, true, "an edit behind the new link").await;
    std::fs::remove_file(rig.path("two/s.json")).unwrap();
    lead("two/s.json", "../later/s.json");
    until(|| failures(&server) > 0).await;
    std::fs::create_dir(rig.path("later")).unwrap();
    say("later/s.json", false);
    follows(&server, false, "what a link leads to and comes later").await;
    say("later/s.json", true);
    follows(&server, true, "an edit of what came later").await;
    server.close(SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_file_changes_nothing_as_a_whole_and_its_repair_is_taken() {
    let rig = Rig::new(&json!({"allow_anonymous": false}));
    let server = rig.start().await;
    let bad = [
        "{",
        "{\"allow_anonymous\": tr",
        "[1]",
        r#"{"allow_anonymous": true, "limits": {"messages_per_second": "fast"}}"#,
        r#"{"allow_anonymous": true, "tls": {"cert": "/nowhere.pem", "key": "/nowhere.pem"}}"#,
        r#"{"allow_anonymous": true, "storage": "sqlite", "storage_options": {"filename": "/nowhere/x.db"}}"#,
    ];
    for text in bad {
        rig.write(text);
        let error = server.reload_settings().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{text}: {error}");
        assert!(!lets_anonymous_in(&server).await, "{text}");
        assert!(server.settings_error().is_some());
        assert_eq!(server.storage().0, "memory");
    }
    std::fs::remove_file(rig.file()).unwrap();
    assert!(server.reload_settings().await.is_err());
    assert!(failures(&server) >= 7);
    rig.write(r#"{"allow_anonymous": true}"#);
    server.reload_settings().await.unwrap();
    assert!(lets_anonymous_in(&server).await);
    assert_eq!(server.settings_error(), None);
    server.close(SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_authorization_requests_may_wait_as_soon_as_the_file_says_so() {
    let limited = |most: usize| {
        json!({"auth": {"enabled": true, "auto_admin_token": false},
            "limits": {"max_pending_authorization_requests": most}})
    };
    let rig = Rig::new(&limited(1));
    let server = rig.start().await;
    let ask = async |name: &str| {
        let mut client = Client::connect(server.local_addr(), "asking").await;
        let wish =
            json!({"realm": "acme", "role": "consumer", "client_id": name, "client_name": name});
        let answer = client.call("AUTHORIZATION_REQUEST", &wish).await;
        (client, answer["code"].clone())
    };
    let (_one, answered) = ask("one").await;
    assert_eq!(answered, Value::Null);
    assert_eq!(ask("two").await.1, 429);
    rig.write(&limited(2).to_string());
    let reloaded = server.reload_settings().await.unwrap();
    assert!(reloaded.needs_restart.is_empty(), "{reloaded:?}");
    let (_two, answered) = ask("two").await;
    assert_eq!(answered, Value::Null);
    assert_eq!(ask("three").await.1, 429);
    server.close(SECOND).await.unwrap();
}

#[tokio::test]
async fn what_cannot_change_while_it_runs_is_named_until_the_restart() {
    let rig = Rig::new(&json!({"prefetch": 5}));
    let server = rig.start().await;
    rig.write(r#"{"prefetch": 6, "threads": 3, "pingInterval": 1000}"#);
    for changed in [vec!["prefetch".to_owned()], Vec::new()] {
        let reloaded = server.reload_settings().await.unwrap();
        // Whether it was noticed before we asked does not matter.
        assert!(reloaded.changed == changed || reloaded.changed.is_empty());
        assert_eq!(reloaded.needs_restart.len(), 2, "{reloaded:?}");
    }
    server.close(SECOND).await.unwrap();
}

#[tokio::test]
async fn a_server_without_a_settings_file_says_so() {
    let mut config = ServerConfig::default();
    config.host = Some("127.0.0.1".to_owned());
    config.port = 0;
    let server = Server::start(config).await.unwrap();
    let error = server.reload_settings().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    server.close(SECOND).await.unwrap();
}

/// Edits the file until the server says that it goes by it.
async fn edit(rig: &Rig, server: &Server, settings: &Value, name: &str) {
    rig.save_by_rename(settings);
    until(|| server.storage().0 == name).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_goes_from_memory_to_a_file_to_redis_by_edits_under_load() {
    let rig = Rig::new(&json!({"storage": "memory"}));
    let server = rig.start().await;
    let client = client(&server);
    let away = soon(client.consumer("billing")).await.unwrap();
    drop(soon(away.subscribe(subscribe())).await.unwrap());
    soon(away.connection().close(SECOND)).await.unwrap();

    let sent = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let orders = {
        let (client, sent, is_over) = (client.clone(), Arc::clone(&sent), Arc::clone(&is_over));
        let producing =
            async move { produce(&client, "orders", (0, 20 * SECOND), sent, is_over).await };
        tokio::spawn(producing)
    };
    let more = async |than: usize| until(|| sent.load(Ordering::SeqCst) >= than).await;
    more(500).await;
    edit(&rig, &server, &rig.sqlite("a"), "sqlite").await;
    more(sent.load(Ordering::SeqCst) + 500).await;
    let options = redis::shared().options();
    let redis = json!({"storage": "redis",
        "storage_options": {"url": options.url, "prefix": options.prefix}});
    edit(&rig, &server, &redis, "redis").await;
    more(sent.load(Ordering::SeqCst) + 500).await;
    is_over.store(true, Ordering::SeqCst);
    let (done, last) = soon(orders).await.unwrap();
    assert_eq!(done.len() as u64, last, "nothing was refused");
    assert_eq!(waiting(&server).await, [last]);
    assert_eq!(failures(&server), 0);
    server.close(10 * SECOND).await.unwrap();

    // The next start opens the new store.
    let server = rig.start().await;
    assert_eq!(server.storage().0, "redis");
    assert_eq!(server.warnings(), [""; 0]);
    let seen = AllSeen::default();
    let back = soon(super::sqlite::swap::client(&server).consumer("billing"))
        .await
        .unwrap();
    let messages = soon(back.subscribe(subscribe())).await.unwrap();
    let consuming = tokio::spawn(consume(messages, Arc::clone(&seen)));
    let confirmed: BTreeMap<&str, BTreeSet<u64>> = [("orders", done.into_iter().collect())].into();
    until(|| are_seen(&seen, &confirmed)).await;
    soon(back.connection().close(SECOND)).await.unwrap();
    soon(consuming).await.unwrap();
    server.close(10 * SECOND).await.unwrap();
}

#[tokio::test]
async fn an_edit_of_the_store_counts_over_what_was_set_before_it_and_not_after() {
    let rig = Rig::new(&json!({}));
    rig.write(&rig.sqlite("a").to_string());
    let server = rig.start().await;
    let b = super::sqlite::swap::sqlite(rig.folder.path(), "b");
    server
        .set_persistence(super::sqlite::swap::wish(b))
        .await
        .unwrap();
    server.close(SECOND).await.unwrap();
    // What was set stays, for the file says what it said then.
    let server = rig.start().await;
    assert_eq!(server.warnings().len(), 1, "{:?}", server.warnings());
    server.close(SECOND).await.unwrap();
    rig.write(&rig.sqlite("c").to_string());
    let server = rig.start().await;
    assert!(rig.path("c").exists());
    assert_eq!(server.warnings().len(), 1, "{:?}", server.warnings());
    server.close(SECOND).await.unwrap();
    assert!(rig.path(STATE_FILE).exists());
}

#[tokio::test]
async fn memory_takes_the_place_of_a_durable_store_by_an_edit_only_with_force() {
    let rig = Rig::new(&json!({}));
    rig.write(&rig.sqlite("a").to_string());
    let server = rig.start().await;
    rig.write(r#"{"storage": "memory"}"#);
    let error = server.reload_settings().await.unwrap_err();
    assert!(error.message().contains("force"), "{error}");
    assert_eq!(server.storage().0, "sqlite");
    rig.write(r#"{"storage": "memory", "storage_options": {"force": true}}"#);
    until(|| server.storage().0 == "memory").await;
    server.close(SECOND).await.unwrap();
}

/// The command with this settings file; what it said, and its code.
fn ends(folder: &Path, settings: &str, more: &[&str]) -> (Option<i32>, String) {
    let file = folder.join("settings.json");
    std::fs::write(&file, settings).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_restante"));
    command
        .current_dir(folder)
        .args(["serve", "--port", "0", "--host", "127.0.0.1", "--settings"])
        .arg(file)
        .args(more)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn the_command_does_not_start_with_a_bad_file_and_says_what_is_wrong() {
    let folder = TempDir::new().unwrap();
    for (settings, path) in [
        ("{", "line 1"),
        (
            r#"{"limits": {"realms": {"acme": {"message_burst": []}}}}"#,
            "limits.realms.acme.message_burst",
        ),
        (
            r#"{"tls": {"cert": "/nowhere.pem", "key": "/nowhere.key"}}"#,
            "tls.cert",
        ),
        (r#"{"storage": "paper"}"#, "paper"),
    ] {
        for more in [&[][..], &["--check-config"]] {
            let (code, said) = ends(folder.path(), settings, more);
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains(path), "{said}");
            assert!(!said.contains("listening"), "{said}");
        }
    }
    let fine = r#"{"limits": {"messages_per_second": 5}, "colour": 1}"#;
    let (code, said) = ends(folder.path(), fine, &["--check-config"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("colour"), "{said}");
}

/// What `serve --check-config` says with this in the environment, and its code.
fn checked(folder: &Path, more: &[&str], variable: (&str, &str)) -> (Option<i32>, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_restante"));
    command
        .current_dir(folder)
        .args(["serve", "--check-config", "--storage", "memory"])
        .args(more)
        .env("NO_COLOR", "1")
        .env(variable.0, variable.1)
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_switch_in_the_environment_that_is_no_switch_stops_the_start() {
    let folder = TempDir::new().unwrap();
    let check = |text: &str| checked(folder.path(), &[], ("RESTANTE_AUTH_ENABLED", text));
    for word in ["1", "YES", "true", "On", "0", "no", "FALSE", "off", ""] {
        let (code, said) = check(word);
        assert_eq!(code, Some(0), "{word:?}: {said}");
    }
    for word in ["2", "enabled", "ja", "true false"] {
        let (code, said) = check(word);
        assert_eq!(code, Some(1), "{word:?}: {said}");
        assert!(said.contains("RESTANTE_AUTH_ENABLED must be"), "{said}");
    }
}

#[test]
fn of_a_settings_file_that_is_not_there_the_check_says_what_the_start_would() {
    let folder = TempDir::new().unwrap();
    let check = |file: &Path| {
        let file = file.to_string_lossy();
        checked(
            folder.path(),
            &["--settings", &file],
            ("RESTANTE_PORT", "0"),
        )
    };
    let file = folder.path().join("new.json");
    let (code, said) = check(&file);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("new.json is not there") && said.contains("nothing is wrong"));
    assert!(!file.exists(), "a check makes nothing");
    for file in [
        folder.path().join("none/new.json"),
        folder.path().to_owned(),
    ] {
        let (code, said) = check(&file);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("settings file"), "{said}");
    }
}

#[tokio::test]
async fn flags_and_an_environment_file_count_over_the_settings_file_and_a_hang_up_reads_it() {
    let rig = Rig::new(&json!({"host": "127.0.0.2", "storage": "memory"}));
    std::fs::write(
        rig.path("vars"),
        "RESTANTE_STORAGE='sqlite'\nRESTANTE_PORT=1\n",
    )
    .unwrap();
    let mut command = command(&rig.path("flags.sqlite"), &["--env-file"]);
    command
        .arg(rig.path("vars"))
        .arg("--settings")
        .arg(rig.file())
        .current_dir(rig.folder.path());
    let broker = Broker::start(command).await;
    assert!(rig.path("flags.sqlite").exists());
    rig.write("{");
    broker.signal("-HUP");
    let producer = soon(broker.client().producer("orders")).await.unwrap();
    soon(producer.connection().close(SECOND)).await.unwrap();
    broker.kill().await;
}
