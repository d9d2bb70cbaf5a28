//! Another store takes the place of the one in force while work goes on, and after kills (P28).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use restante::ErrorKind;
use restante::client::Client;
use restante::model::RealmId;
use restante::server::{Persisted, Persistence, STATE_FILE, Server, ServerConfig, Storage};
use restante::store::SqliteOptions;
use tempfile::TempDir;
use tokio::process::Command;

use super::crash::is_killed_again_and_again;
use super::load::{AllSeen, are_seen, consume, produce, subscribe};
use super::process::{Broker, SECOND, soon};

pub fn is_long() -> bool {
    std::env::var("RESTANTE_LONG").as_deref() == Ok("1")
}

pub fn sqlite(folder: &Path, name: &str) -> Storage {
    Storage::Sqlite(SqliteOptions {
        path: Some(folder.join(name)),
        ..SqliteOptions::default()
    })
}

pub fn wish(storage: Storage) -> Persistence {
    Persistence {
        storage,
        default_ttl: None,
        force: false,
    }
}

pub async fn start(folder: &Path, storage: Storage) -> restante::Result<Server> {
    let mut config = ServerConfig::default();
    config.host = Some("127.0.0.1".to_owned());
    config.port = 0;
    config.data_dir = folder.to_owned();
    config.storage = storage;
    Server::start(config).await
}

pub fn client(server: &Server) -> Client {
    Client::builder()
        .host("127.0.0.1")
        .port(server.local_addr().port())
        .connect_timeout(10 * SECOND)
        .build()
}

pub async fn until(what: impl Fn() -> bool) {
    let waiting = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    // The stated size takes its time.
    let patience = if is_long() { 900 } else { 60 };
    let waited = tokio::time::timeout(patience * SECOND, waiting).await;
    waited.expect("in time");
}

/// What waits in each queue.
pub async fn waiting(server: &Server) -> Vec<u64> {
    let queues = server.broker().queue_stats(&RealmId::default());
    queues
        .await
        .unwrap()
        .iter()
        .map(|queue| queue.waiting)
        .collect()
}

#[expect(
    clippy::print_stdout,
    reason = "the pause is measured here, and promised in no test"
)]
fn say(queued: usize, changed: &Persisted) {
    println!("{queued} waited, {changed:?}");
}

/// The same in this folder.
fn placed(folder: &TempDir, storage: Storage) -> Storage {
    match storage {
        Storage::Sqlite(options) => {
            let name = options.path.unwrap();
            sqlite(folder.path(), name.to_str().unwrap())
        }
        other => other,
    }
}

/// Changes the store while a backlog waits and is taken, and more comes.
pub async fn moves_under_load(from: Storage, to: Storage, force: bool, queued: usize) {
    let folder = TempDir::new().unwrap();
    let (from, to) = (placed(&folder, from), placed(&folder, to));
    let server = start(folder.path(), from.clone()).await.unwrap();
    let client = client(&server);
    let away = soon(client.consumer("billing")).await.unwrap();
    drop(soon(away.subscribe(subscribe())).await.unwrap());
    soon(away.connection().close(SECOND)).await.unwrap();

    let count = Arc::new(AtomicUsize::new(0));
    let is_filled = Arc::new(AtomicBool::new(false));
    let filling = produce(
        &client,
        "orders",
        (0, 20 * SECOND),
        Arc::clone(&count),
        Arc::clone(&is_filled),
    );
    let (orders, ()) = tokio::join!(filling, async {
        until(|| count.load(Ordering::SeqCst) >= queued).await;
        is_filled.store(true, Ordering::SeqCst);
    });

    let is_over = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicUsize::new(0));
    let returning = {
        let (client, sent, is_over) = (client.clone(), Arc::clone(&sent), Arc::clone(&is_over));
        tokio::spawn(
            async move { produce(&client, "returns", (0, 20 * SECOND), sent, is_over).await },
        )
    };
    until(|| sent.load(Ordering::SeqCst) > 100).await;

    // The backlog is taken while it moves.
    let seen = AllSeen::default();
    let change = Persistence {
        force,
        ..wish(to.clone())
    };
    let back = async {
        let back = soon(client.consumer("billing")).await.unwrap();
        let messages = soon(back.subscribe(subscribe())).await.unwrap();
        let consuming = tokio::spawn(consume(messages, Arc::clone(&seen)));
        (back, consuming)
    };
    let (changed, (back, consuming)) = tokio::join!(server.set_persistence(change), back);
    let changed = changed.unwrap();
    say(queued, &changed);
    assert_eq!(server.storage().0, to.name());
    let at = sent.load(Ordering::SeqCst);
    until(|| sent.load(Ordering::SeqCst) > at + 100).await;
    is_over.store(true, Ordering::SeqCst);
    let returns = soon(returning).await.unwrap();

    let mut confirmed: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (producer, (done, last)) in [("orders", orders), ("returns", returns)] {
        assert_eq!(done.len() as u64, last, "{producer}: nothing was refused");
        confirmed.insert(producer, done.into_iter().collect());
    }
    until(|| are_seen(&seen, &confirmed)).await;
    let repeats: u64 = seen.lock().values().map(|seen| seen.repeats).sum();
    assert_eq!(repeats, 0, "nothing came twice");
    let settled = async {
        while waiting(&server).await != [0] {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    soon(settled).await;
    soon(back.connection().close(SECOND)).await.unwrap();
    soon(consuming).await.unwrap();
    server.close(10 * SECOND).await.unwrap();

    // The next start goes on with the new store, whatever is configured.
    let server = start(folder.path(), from).await.unwrap();
    assert_eq!(server.storage().0, to.name());
    if to != Storage::Memory {
        assert_eq!(
            waiting(&server).await,
            [0],
            "it is remembered, and all was settled"
        );
    }
    server.close(10 * SECOND).await.unwrap();
}

pub fn queued() -> usize {
    if is_long() { 100_000 } else { 2_000 }
}

pub fn named(name: &str) -> Storage {
    sqlite(Path::new(""), name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_memory_moves_to_a_file_under_load() {
    moves_under_load(Storage::Memory, named("a"), false, queued()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_a_file_moves_to_memory_under_load() {
    moves_under_load(named("a"), Storage::Memory, true, queued()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_a_file_moves_to_another_under_load() {
    moves_under_load(named("a"), named("b"), false, queued()).await;
}

#[tokio::test]
async fn a_change_that_is_refused_leaves_the_old_store_as_it_was() {
    let folder = TempDir::new().unwrap();
    let server = start(folder.path(), sqlite(folder.path(), "a"))
        .await
        .unwrap();
    let refused = async |storage: Storage, kind: ErrorKind| {
        let error = server.set_persistence(wish(storage)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(server.storage().0, "sqlite");
        assert!(!folder.path().join(STATE_FILE).exists());
    };
    refused(Storage::Memory, ErrorKind::Config).await;
    refused(sqlite(folder.path(), "none/b"), ErrorKind::Config).await;
    refused(sqlite(folder.path(), "a"), ErrorKind::StoreLocked).await;
    let other = TempDir::new().unwrap();
    let full = start(other.path(), sqlite(folder.path(), "b"))
        .await
        .unwrap();
    let consumer = soon(client(&full).consumer("billing")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    full.close(SECOND).await.unwrap();
    refused(sqlite(folder.path(), "b"), ErrorKind::Config).await;
    // And it goes on.
    let consumer = soon(client(&server).consumer("x")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    server.close(SECOND).await.unwrap();
}

#[tokio::test]
async fn a_second_change_is_refused_while_the_first_goes_on() {
    let folder = TempDir::new().unwrap();
    let server = start(folder.path(), Storage::Memory).await.unwrap();
    let consumer = soon(client(&server).consumer("a")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    let change = |name| server.set_persistence(wish(sqlite(folder.path(), name)));
    let both = async { tokio::join!(change("one"), change("other")) };
    let (first, second) = Box::pin(soon(both)).await;
    assert_eq!(first.unwrap().storage, "sqlite");
    let refused = second.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SwapInProgress, "{refused}");
    assert!(!folder.path().join("other").exists());
    // It may be asked for again when that is done.
    assert_eq!(soon(change("third")).await.unwrap().copied.queues, 1);
}

#[tokio::test]
async fn a_store_that_was_left_says_where_its_messages_went_and_opens_when_forced() {
    let folder = TempDir::new().unwrap();
    let a = sqlite(folder.path(), "a");
    let server = start(folder.path(), a.clone()).await.unwrap();
    let consumer = soon(client(&server).consumer("billing")).await.unwrap();
    drop(soon(consumer.subscribe(subscribe())).await.unwrap());
    soon(consumer.connection().close(SECOND)).await.unwrap();
    let b = sqlite(folder.path(), "b");
    server.set_persistence(wish(b.clone())).await.unwrap();
    let back = server.set_persistence(wish(a.clone())).await.unwrap_err();
    assert!(back.message().contains("have moved to") || back.message().contains("has moved to"));
    server.close(SECOND).await.unwrap();

    let other = TempDir::new().unwrap();
    let error = start(other.path(), a.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.message();
    assert!(
        text.contains(folder.path().join("b").to_str().unwrap()),
        "{text}"
    );
    let Storage::Sqlite(options) = a.clone() else {
        panic!("{a:?}");
    };
    let forced = Storage::Sqlite(SqliteOptions {
        force: true,
        ..options
    });
    for storage in [forced, a.clone()] {
        // Once forced, it leads again.
        let server = start(other.path(), storage).await.unwrap();
        server.close(SECOND).await.unwrap();
    }
    // What the state file says is missed, not made anew.
    std::fs::remove_file(folder.path().join("b")).unwrap();
    let error = start(folder.path(), a).await.unwrap_err();
    assert!(error.message().contains(STATE_FILE), "{error}");
}

const CHILD: &str = "RESTANTE_TEST_SWAPS_IN";

/// What the test below kills: does nothing unless it is told where to work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_changes_its_store_over_and_over_when_told_to() {
    let Ok(folder) = std::env::var(CHILD) else {
        return;
    };
    let folder = Path::new(&folder);
    let server = start(folder, sqlite(folder, "0.sqlite")).await.unwrap();
    eprintln!("listening on {}", server.local_addr());
    loop {
        let taken = std::fs::read_dir(folder).unwrap().count();
        let next = sqlite(folder, &format!("{taken}.{}.sqlite", std::process::id()));
        server.set_persistence(wish(next)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_to_a_kill_while_the_store_changes() {
    let folder = TempDir::new().unwrap();
    let rounds = if is_long() { 20 } else { 5 };
    is_killed_again_and_again(rounds, async || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture"])
            .arg("sqlite::swap::a_broker_changes_its_store_over_and_over_when_told_to")
            .env(CHILD, folder.path());
        Broker::start(command).await
    })
    .await;
    leads_alone(folder.path(), rounds).await;
}

/// Exactly one of all stores in this folder leads: the one that the state file names.
pub async fn leads_alone(folder: &Path, rounds: usize) {
    let state = std::fs::read_to_string(folder.join(STATE_FILE)).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let leading = state["storage_options"]["filename"]
        .as_str()
        .unwrap_or_default();
    let last = start(folder, Storage::Memory).await.unwrap();
    last.close(SECOND).await.unwrap();
    let mut others = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_database = path.extension().is_some_and(|ending| ending == "sqlite");
        if !is_database || path == Path::new(leading) {
            continue;
        }
        let elsewhere = TempDir::new().unwrap();
        match start(elsewhere.path(), sqlite(folder, path.to_str().unwrap())).await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Config, "{error}"),
            Ok(server) => {
                // A copy that was cut before anything came.
                assert_eq!(waiting(&server).await, [0; 0], "only one leads");
                server.close(SECOND).await.unwrap();
            }
        }
        others += 1;
    }
    assert!(others >= rounds, "{others} stores were left");
}
