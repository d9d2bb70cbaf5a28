//! A redis-server of a test: on a free port, with a folder of its own, gone with the test or its
//! process. Needs `redis-server` on the path; without it tests fail.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use restante::clock::SystemClock;
use restante::store::{Bounds, RedisOptions, RedisStore};

/// Ends the server when its input ends, however the test's process ends.
/// It says its number before its first word, and its output ends with it.
pub const KEEPER: &str = r#"sh -c 'echo "pid $$"; exec redis-server "$@"' redis-server "$@" & server=$!
    exec >/dev/null; cat >/dev/null; kill -9 $server; wait"#;

pub struct RedisServer {
    pub port: u16,
    pub dir: PathBuf,
    options: Vec<String>,
    running: Option<(Child, Option<ChildStdin>, u32)>,
}

static COUNT: AtomicU64 = AtomicU64::new(0);

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl RedisServer {
    /// A server with these options, as on its command line.
    pub fn start(options: &[&str]) -> Self {
        // Another process may take a port right before it does.
        let started = (0..4).find_map(|_| Self::try_start(options).ok());
        started.unwrap_or_else(|| Self::try_start(options).unwrap())
    }

    fn try_start(options: &[&str]) -> Result<Self, String> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("restante-redis-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let mut server = Self {
            port: free_port(),
            dir,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            running: None,
        };
        server.try_run()?;
        Ok(server)
    }

    /// Starts it again, with what it had written.
    pub fn run(&mut self) {
        self.try_run().unwrap();
    }

    /// What it says, if it does not start.
    fn try_run(&mut self) -> Result<(), String> {
        let dir = self.dir.to_str().unwrap().to_owned();
        let mut child = Command::new("sh")
            .args(["-c", KEEPER, "keeper", "--port", &self.port.to_string()])
            .args(["--dir", &dir, "--bind", "127.0.0.1", "--save", ""])
            .args(&self.options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let pid = first.strip_prefix("pid ").unwrap().parse().unwrap();
        let mut said = Vec::new();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
            said.push(line);
            said.last().unwrap().contains("eady to accept connections")
        });
        if !is_ready {
            drop(input);
            child.wait().unwrap();
            return Err(format!("redis-server did not start: {said:?}"));
        }
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        self.running = Some((child, input, pid));
        Ok(())
    }

    fn signal(&self, name: &str) {
        let pid = self.running.as_ref().unwrap().2.to_string();
        let status = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(status.success());
    }

    /// Ends it at once, with nothing written that was not.
    pub fn kill(&mut self) {
        if let Some((mut child, input, _)) = self.running.take() {
            drop(input);
            child.wait().unwrap();
        }
    }

    /// Stops it in its tracks; connections stay.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Says something to it; its raw answer.
    pub fn say(&self, command: &[&str]) -> String {
        say(self.port, command)
    }

    /// Options with a prefix that nobody else has.
    pub fn options(&self) -> RedisOptions {
        let mut options = RedisOptions::at(self.url());
        options.prefix = format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed));
        options
    }
}

/// Says something to the server of this port; its raw answer.
pub fn say(port: u16, command: &[&str]) -> String {
    let mut link = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut text = format!("*{}\r\n", command.len());
    for part in command {
        text.push_str(&format!("${}\r\n{part}\r\n", part.len()));
    }
    link.write_all(text.as_bytes()).unwrap();
    let mut reader = BufReader::new(link);
    let mut answer = String::new();
    reader.read_line(&mut answer).unwrap();
    if let Some(size) = answer
        .strip_prefix('$')
        .and_then(|size| size.trim().parse::<usize>().ok())
    {
        let mut body = vec![0; size];
        std::io::Read::read_exact(&mut reader, &mut body).unwrap();
        return String::from_utf8_lossy(&body).into_owned();
    }
    answer
}

pub async fn open(options: RedisOptions, bounds: Bounds) -> RedisStore {
    let clock = Arc::new(SystemClock::new());
    RedisStore::open(options, bounds, clock).await.unwrap()
}

/// One for all tests that leave it as it is.
pub fn shared() -> &'static RedisServer {
    static SHARED: OnceLock<RedisServer> = OnceLock::new();
    SHARED.get_or_init(|| RedisServer::start(&["--appendonly", "no"]))
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        // What is left there goes with the system's other temporary files.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
