//! The command line: `restante serve` and `restante store`. Reads flags and environment into a
//! [`ServerConfig`], waits for a signal, shuts down cleanly. Knows nothing of what the server does.

mod store;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use restante::server::{Server, ServerConfig};
use restante::{Error, ErrorKind, Result};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

/// A message broker whose messages wait until their subscriber comes back.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the broker until SIGINT or SIGTERM.
    Serve(Serve),
    /// Tells, checks, exports or fills a store that no broker uses.
    #[command(subcommand)]
    Store(store::Command),
}

/// Which store, in flags that all commands share.
#[derive(clap::Args)]
struct Which {
    /// Where messages wait: `sqlite` (the default), `redis` or `memory`.
    #[arg(long, env = "RESTANTE_STORAGE")]
    storage: Option<String>,
    /// The database file of `sqlite`; `restante.sqlite` if not given.
    #[arg(long, visible_alias = "file", env = "RESTANTE_FILENAME")]
    filename: Option<String>,
    /// What a confirmed message survives: `full` (the default) power loss too, `normal` a kill.
    #[arg(long, env = "RESTANTE_SYNCHRONOUS")]
    synchronous: Option<String>,
    /// The address of `redis`; `redis://127.0.0.1:6379` if not given.
    #[arg(long, env = "RESTANTE_REDIS_URL", hide_env_values = true)]
    url: Option<String>,
    /// What our keys in `redis` begin with; `restante` if not given.
    #[arg(long, env = "RESTANTE_REDIS_PREFIX")]
    prefix: Option<String>,
    /// Further options as JSON, as `new Server(options)` takes them.
    #[arg(long, env = "RESTANTE_OPTIONS", default_value = "{}")]
    options: String,
}

#[derive(clap::Args)]
struct Serve {
    /// TCP port; 0 picks a free one.
    #[arg(long, env = "RESTANTE_PORT", default_value_t = restante::server::DEFAULT_PORT)]
    port: u16,
    /// Address to listen on; all interfaces if not given.
    #[arg(long, env = "RESTANTE_HOST")]
    host: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Where messages wait if `redis` is away at the start, until it is back: `sqlite`.
    #[arg(long, env = "RESTANTE_FALLBACK")]
    fallback: Option<String>,
    /// The file for that; `restante.fallback.sqlite` if not given.
    #[arg(long, env = "RESTANTE_FALLBACK_FILENAME")]
    fallback_filename: Option<String>,
    /// I/O threads; 1 up to two cores, else half the cores, at most 4.
    #[arg(long, env = "RESTANTE_THREADS")]
    threads: Option<usize>,
    /// How long a shutdown may take: seconds, or a text like 500ms, 2s, 1m.
    #[arg(long, default_value = "10s", value_parser = span)]
    grace: Duration,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("RESTANTE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_colourful())
        .init();
    let done = match Cli::parse().command {
        Command::Serve(serve) => run(serve).map(|()| ExitCode::SUCCESS),
        Command::Store(command) => store::run(command),
    };
    done.unwrap_or_else(|error| {
        tracing::error!(code = error.code(), "{error}");
        ExitCode::FAILURE
    })
}

/// A duration as all options take it (P14).
fn span(text: &str) -> std::result::Result<Duration, String> {
    let read = restante::model::duration_from_text("--grace", text);
    read.map_err(|error| error.message().to_owned())
}

/// Whether who reads standard error sees colours in what makes them (<https://no-color.org>).
fn is_colourful() -> bool {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|said| !said.is_empty());
    std::io::stderr().is_terminal() && !is_plain
}

fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Error::new(ErrorKind::Internal, format!("no runtime: {error}")))
}

fn run(serve: Serve) -> Result<()> {
    let config = configure(&serve)?;
    runtime()?.block_on(async {
        // Before anybody can know that there is something to end.
        let mut signals = Signals::hear()?;
        let server = tokio::select! {
            started = Server::start(config) => started?,
            () = signals.next() => {
                let why = "stopped by a signal while it started";
                return Err(Error::new(ErrorKind::ShuttingDown, why));
            }
        };
        let (storage, _) = server.storage();
        tracing::info!(storage, "listening on {}", server.local_addr());
        signals.next().await;
        tracing::info!("stopping; a second signal stops at once");
        tokio::select! {
            closed = server.close(serve.grace) => closed,
            () = signals.next() => Err(Error::new(ErrorKind::ShuttingDown, "stopped by a second signal")),
        }
    })
}

fn configure(serve: &Serve) -> Result<ServerConfig> {
    let fallback = [
        ("fallback", &serve.fallback),
        ("fallback_filename", &serve.fallback_filename),
    ];
    let options = serve.which.options(&fallback)?.to_string();
    let (mut config, warnings) = ServerConfig::from_options(&options)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    config.port = serve.port;
    if serve.host.is_some() {
        config.host.clone_from(&serve.host);
    }
    if let Some(threads) = serve.threads {
        config.transport.threads = threads.max(1);
    }
    Ok(config)
}

impl Which {
    /// The options given as JSON, with what flags say of the store over it; nothing said: SQLite.
    fn options(&self, more: &[(&str, &Option<String>)]) -> Result<Value> {
        let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text);
        let mut options = object(&self.options).map_err(|error| {
            let message = format!("option options must be an object ({error})");
            Error::new(ErrorKind::Config, message)
        })?;
        let is_said = ["storage", "store"]
            .iter()
            .any(|name| options.contains_key(*name));
        if let Some(storage) = &self.storage {
            options.remove("store");
            options.insert("storage".to_owned(), storage.as_str().into());
        } else if !is_said {
            options.insert("storage".to_owned(), "sqlite".into());
        }
        let flags = [
            ("filename", &self.filename),
            ("synchronous", &self.synchronous),
            ("url", &self.url),
            ("prefix", &self.prefix),
        ];
        let name = match options.contains_key("storageOptions") {
            true => "storageOptions",
            false => "storage_options",
        };
        for (flag, value) in flags.iter().chain(more) {
            if let Some(value) = value {
                let inner = options.entry(name).or_insert_with(|| Map::new().into());
                if let Value::Object(inner) = inner {
                    inner.insert((*flag).to_owned(), value.as_str().into());
                }
            }
        }
        Ok(Value::Object(options))
    }
}

/// SIGINT and SIGTERM, heard from the moment that this is made.
struct Signals {
    #[cfg(unix)]
    heard: [tokio::signal::unix::Signal; 2],
}

impl Signals {
    fn hear() -> Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let deaf = |error| Error::new(ErrorKind::Internal, format!("no signals: {error}"));
            let hear = |kind| signal(kind).map_err(deaf);
            let heard = [
                hear(SignalKind::terminate())?,
                hear(SignalKind::interrupt())?,
            ];
            Ok(Self { heard })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        #[cfg(unix)]
        {
            let [terminate, interrupt] = &mut self.heard;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
