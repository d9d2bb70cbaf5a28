//! A master that Sentinels watch is killed under load, and a replica takes its place (P29).

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use restante::store::Store as _;
use tempfile::TempDir;

use crate::harness;

use super::rig::Rig;
use super::server::{KEEPER, RedisServer, free_port, say};

const MASTER: &str = "mine";

/// Watches one master, and decides alone.
struct Sentinel {
    port: u16,
    running: Child,
    _folder: TempDir,
}

impl Sentinel {
    fn start(master: u16) -> Self {
        let (port, folder) = (free_port(), TempDir::new().unwrap());
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds {MASTER} 300\nsentinel failover-timeout {MASTER} 3000\n",
            folder.path().display()
        );
        std::fs::write(&file, text).unwrap();
        let running = Command::new("sh")
            .args(["-c", KEEPER, "keeper", file.to_str().unwrap(), "--sentinel"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let sentinel = Self {
            port,
            running,
            _folder: folder,
        };
        until("the Sentinel knows the replica", || {
            let is_up = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            is_up && sentinel.replicas() == 1
        });
        sentinel
    }

    fn replicas(&self) -> usize {
        let mut cli = Command::new("redis-cli");
        let said = cli
            .args(["-p", &self.port.to_string(), "SENTINEL", "REPLICAS", MASTER])
            .output()
            .unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        text.lines().filter(|line| *line == "runid").count()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // Its keeper ends it with its input.
        drop(self.running.stdin.take());
        let _ = self.running.wait();
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_failover_under_load_keeps_order_and_needs_no_restart() {
    let mut master = RedisServer::start(&["--appendonly", "no"]);
    let port = master.port.to_string();
    let replica = RedisServer::start(&[
        "--appendonly",
        "no",
        "--repl-diskless-sync-delay",
        "0",
        "--replicaof",
        "127.0.0.1",
        &port,
    ]);
    until("the replica follows", || {
        say(replica.port, &["INFO", "replication"]).contains("master_link_status:up")
    });
    let sentinel = Sentinel::start(master.port);
    let mut options = master.options();
    options.url = format!("redis://127.0.0.1:{}", sentinel.port);
    options.sentinel = Some(MASTER.to_owned());
    options.timeout = Duration::from_secs(30);
    let rig = Rig::new(options).await;
    let told = |port, name: &str| {
        let info = say(port, &["INFO", "replication"]);
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::to_owned)
    };
    until("the queue itself has come to the replica", || {
        told(master.port, "master_repl_offset:") == told(replica.port, "slave_repl_offset:")
    });
    let calls: Vec<_> = (0..2_000).map(|_| rig.put()).collect();
    let waiting = tokio::spawn(async move {
        let mut outcomes = Vec::new();
        for call in calls {
            outcomes.push(call.await.map(|mut answers| answers.remove(0)));
        }
        outcomes
    });
    // In the middle of it.
    let is_under_way = async || rig.store.counters().appended >= 200;
    harness::until("200 are appended", is_under_way).await;
    master.kill();
    let outcomes = waiting.await.unwrap();
    let confirmed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert!(confirmed > 0, "{outcomes:?}");
    // It goes on by itself.
    let mut later = Vec::new();
    for _ in 0..100 {
        later.push(rig.put().await.unwrap().remove(0).unwrap().id.0);
    }
    let left = rig.waiting().await;
    assert!(
        left.is_sorted_by(|a, b| a < b),
        "once and in order: {left:?}"
    );
    assert!(left.ends_with(&later), "what the new master confirmed");
    assert!(say(replica.port, &["ROLE"]).starts_with('*'));
    assert!(say(replica.port, &["INFO", "replication"]).contains("role:master"));
}
