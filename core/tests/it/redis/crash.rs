//! Brokers on Redis killed at any moment, over and over: what was confirmed is delivered (P1, P2, P8).

use tokio::process::Command;

use super::server::RedisServer;
use crate::sqlite::crash::{is_killed_again_and_again, rounds};
use crate::sqlite::process::Broker;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_is_lost_to_a_kill_of_a_broker_on_redis() {
    let redis = RedisServer::start(&["--appendonly", "no"]);
    let url = redis.url();
    is_killed_again_and_again(rounds(), async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_restante"));
        command.args(["serve", "--port", "0", "--host", "127.0.0.1"]);
        command.args(["--storage", "redis", "--url", &url]);
        Broker::start(command).await
    })
    .await;
}
