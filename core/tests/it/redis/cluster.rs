//! The store in a Redis Cluster of three nodes.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use restante::store::{Bounds, RedisOptions, Store as _};

use super::rig::Rig;
use super::server::{self, RedisServer};

/// Three masters that share the slots.
pub struct Cluster {
    pub nodes: Vec<RedisServer>,
}

impl Cluster {
    pub fn start() -> Self {
        let nodes: Vec<_> = (0..3)
            .map(|_| RedisServer::start(&["--appendonly", "no", "--cluster-enabled", "yes"]))
            .collect();
        let slots = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        for (node, (first, last)) in nodes.iter().zip(slots) {
            let said = node.say(&["CLUSTER", "ADDSLOTSRANGE", first, last]);
            assert!(said.starts_with("+OK"), "{said}");
            let port = nodes[0].port.to_string();
            node.say(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
        let begun = Instant::now();
        let is_whole = |node: &RedisServer| {
            let said = node.say(&["CLUSTER", "INFO"]);
            said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:3")
        };
        while !nodes.iter().all(is_whole) {
            assert!(begun.elapsed() < Duration::from_secs(20), "no cluster");
            std::thread::yield_now();
        }
        Self { nodes }
    }

    pub fn options(&self) -> RedisOptions {
        let urls: Vec<String> = self.nodes.iter().map(RedisServer::url).collect();
        let mut options = self.nodes[0].options();
        options.url = urls.join(",");
        options.cluster = true;
        options
    }
}

/// One for all tests that leave it as it is.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(Cluster::start)
}

#[tokio::test]
async fn a_node_that_forgets_its_scripts_costs_no_order() {
    let cluster = shared();
    let rig = Rig::new(cluster.options()).await;
    let mut calls = Vec::new();
    for round in 0..300 {
        if round % 60 == 7 {
            cluster.nodes.iter().for_each(|node| {
                node.say(&["SCRIPT", "FLUSH"]);
            });
            rig.store.depth(rig.queue.queue).await.unwrap();
        }
        calls.push(rig.put());
    }
    for call in calls {
        call.await.unwrap().remove(0).unwrap();
    }
    assert_eq!(rig.waiting().await, (1..=300).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_slot_that_moves_takes_its_realm_along() {
    let cluster = Cluster::start();
    let options = cluster.options();
    let rig = Rig::new(options.clone()).await;
    let key = format!("{}:realms", options.prefix);
    let mut said = cluster
        .nodes
        .iter()
        .map(|node| node.say(&["HGET", &key, "r"]));
    let tag = said.find(|said| !said.starts_with('-')).unwrap();
    let prefix = format!("{}:{{{tag}}}:", options.prefix);
    for _ in 0..20 {
        rig.put().await.unwrap().remove(0).unwrap();
    }
    let slot = cluster.nodes[0].say(&["CLUSTER", "KEYSLOT", &prefix]);
    let slot = slot.trim().trim_start_matches(':').to_owned();
    let number: u16 = slot.parse().unwrap();
    let from = usize::from(number > 5460) + usize::from(number > 10922);
    let to = (from + 1) % 3;
    let id = |at: usize| cluster.nodes[at].say(&["CLUSTER", "MYID"]);
    let (source, target) = (id(from), id(to));
    let calls: Vec<_> = (0..50).map(|_| rig.put()).collect();
    cluster.nodes[to].say(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
    cluster.nodes[from].say(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    move_keys(cluster.nodes[from].port, &slot, cluster.nodes[to].port);
    for node in &cluster.nodes {
        node.say(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
    }
    let more: Vec<_> = (0..50).map(|_| rig.put()).collect();
    for call in calls.into_iter().chain(more) {
        call.await.unwrap().remove(0).unwrap();
    }
    assert_eq!(rig.waiting().await, (1..=120).collect::<Vec<_>>());
    let again = server::open(options, Bounds::default()).await;
    assert_eq!(again.queues().await.unwrap()[0].depth, 120);
}

/// Moves what is in a slot from node to node.
fn move_keys(from: u16, slot: &str, to: u16) {
    let cli = |args: &[&str]| {
        let mut command = std::process::Command::new("redis-cli");
        let output = command.args(["-p", &from.to_string()]).args(args).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let keys = cli(&["CLUSTER", "GETKEYSINSLOT", slot, "10000"]);
    let to = to.to_string();
    let mut args = vec!["MIGRATE", "127.0.0.1", &to, "", "0", "5000", "KEYS"];
    args.extend(keys.lines());
    assert_eq!(cli(&args).trim(), "OK");
}
