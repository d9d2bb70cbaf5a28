//! The command as a child process, and clients of it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use restante::client::Client;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub const SECOND: Duration = Duration::from_secs(1);

pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(60 * SECOND, what)
        .await
        .expect("in time")
}

/// A running broker.
pub struct Broker {
    child: Child,
    pub port: u16,
}

/// The command with its arguments, on a port that it picks.
pub fn command(file: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_restante"));
    command
        .args(["serve", "--port", "0", "--host", "127.0.0.1", "--filename"])
        .arg(file)
        .args(more);
    command
}

impl Broker {
    /// Starts `command` and waits until it listens.
    pub async fn start(mut command: Command) -> Self {
        let mut child = command
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let port = loop {
            let line = soon(lines.next_line()).await.unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended: {said}"));
            said.push_str(&line);
            if let Some((_, port)) = line.split_once("listening on 127.0.0.1:") {
                let digits = port.split(|c: char| !c.is_ascii_digit()).next();
                break digits.unwrap().parse().unwrap();
            }
        };
        // What it says later must not fill the pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, port }
    }

    pub fn client(&self) -> Client {
        Client::builder()
            .host("127.0.0.1")
            .port(self.port)
            .connect_timeout(10 * SECOND)
            .build()
    }

    /// SIGKILL.
    pub fn signal_kill(&self) {
        self.signal("-9");
    }

    /// Another signal.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(sent.unwrap().success());
    }

    /// SIGTERM to the process that it runs for us, and waits for both.
    #[cfg(target_os = "linux")]
    pub async fn end_inner(mut self) {
        let pid = self.child.id().expect("it runs");
        let children = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(children).unwrap();
        for child in children.split_whitespace() {
            let ended = std::process::Command::new("kill").arg(child).status();
            assert!(ended.unwrap().success());
        }
        soon(self.child.wait()).await.unwrap();
    }

    /// SIGKILL, and waits for its end.
    pub async fn kill(mut self) {
        // It may have been killed before.
        let _ = self.child.start_kill();
        soon(self.child.wait()).await.unwrap();
    }
}
