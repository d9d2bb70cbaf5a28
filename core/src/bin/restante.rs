//! The command line: `restante serve`. Reads flags and environment into a [`ServerConfig`], waits for
//! a signal, shuts down cleanly. Knows nothing of what the server does.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use restante::server::{Server, ServerConfig};
use restante::{Error, ErrorKind, Result};
use serde_json::{Map, Value};
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
}

#[derive(clap::Args)]
struct Serve {
    /// TCP port; 0 picks a free one.
    #[arg(long, env = "RESTANTE_PORT", default_value_t = restante::server::DEFAULT_PORT)]
    port: u16,
    /// Address to listen on; all interfaces if not given.
    #[arg(long, env = "RESTANTE_HOST")]
    host: Option<String>,
    /// Where messages wait: `sqlite` (the default), `redis` or `memory`.
    #[arg(long, env = "RESTANTE_STORAGE")]
    storage: Option<String>,
    /// The database file of `sqlite`; `restante.sqlite` if not given.
    #[arg(long, env = "RESTANTE_FILENAME")]
    filename: Option<String>,
    /// What a confirmed message survives: `full` (the default) power loss too, `normal` a kill.
    #[arg(long, env = "RESTANTE_SYNCHRONOUS")]
    synchronous: Option<String>,
    /// The address of `redis`; `redis://127.0.0.1:6379` if not given.
    #[arg(long, env = "RESTANTE_REDIS_URL", hide_env_values = true)]
    url: Option<String>,
    /// Where messages wait if `redis` is away at the start, until it is back: `sqlite`.
    #[arg(long, env = "RESTANTE_FALLBACK")]
    fallback: Option<String>,
    /// The file for that; `restante.fallback.sqlite` if not given.
    #[arg(long, env = "RESTANTE_FALLBACK_FILENAME")]
    fallback_filename: Option<String>,
    /// I/O threads; 1 up to two cores, else half the cores, at most 4.
    #[arg(long, env = "RESTANTE_THREADS")]
    threads: Option<usize>,
    /// Further options as JSON, as `new Server(options)` takes them.
    #[arg(long, env = "RESTANTE_OPTIONS", default_value = "{}")]
    options: String,
    /// How long a shutdown may take, in seconds.
    #[arg(long, default_value_t = 10)]
    grace: u64,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("RESTANTE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let Command::Serve(serve) = Cli::parse().command;
    match run(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(code = error.code(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(serve: Serve) -> Result<()> {
    let config = configure(&serve)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(ErrorKind::Internal, format!("no runtime: {error}")))?;
    runtime.block_on(async {
        let server = Server::start(config).await?;
        let (storage, _) = server.storage();
        tracing::info!(storage, "listening on {}", server.local_addr());
        signal().await;
        tracing::info!("stopping; a second signal stops at once");
        tokio::select! {
            closed = server.close(Duration::from_secs(serve.grace)) => closed,
            () = signal() => Err(Error::new(ErrorKind::ShuttingDown, "stopped by a second signal")),
        }
    })
}

fn configure(serve: &Serve) -> Result<ServerConfig> {
    let (mut config, warnings) = ServerConfig::from_options(&options(serve)?)?;
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

/// The options given as JSON, with what flags say of the store over it; nothing said: SQLite.
fn options(serve: &Serve) -> Result<String> {
    let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text);
    let mut options = object(&serve.options).map_err(|error| {
        let message = format!("option options must be an object ({error})");
        Error::new(ErrorKind::Config, message)
    })?;
    let is_said = ["storage", "store"]
        .iter()
        .any(|name| options.contains_key(*name));
    if let Some(storage) = &serve.storage {
        options.remove("store");
        options.insert("storage".to_owned(), storage.as_str().into());
    } else if !is_said {
        options.insert("storage".to_owned(), "sqlite".into());
    }
    let flags = [
        ("filename", &serve.filename),
        ("synchronous", &serve.synchronous),
        ("url", &serve.url),
        ("fallback", &serve.fallback),
        ("fallback_filename", &serve.fallback_filename),
    ];
    let name = match options.contains_key("storageOptions") {
        true => "storageOptions",
        false => "storage_options",
    };
    for (flag, value) in flags {
        if let Some(value) = value {
            let inner = options.entry(name).or_insert_with(|| Map::new().into());
            if let Value::Object(inner) = inner {
                inner.insert(flag.to_owned(), value.as_str().into());
            }
        }
    }
    Ok(Value::Object(options).to_string())
}

/// Ends at the next SIGINT or SIGTERM.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
