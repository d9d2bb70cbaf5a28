//! The command line: `restante serve` and `restante store`. Reads flags and environment into a
//! [`ServerConfig`], waits for a signal, shuts down cleanly. Knows nothing of what the server does.

mod env_file;
mod store;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use restante::server::{Server, ServerConfig, Settings};
use restante::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

/// A message broker whose messages wait until their subscriber comes back.
#[derive(Parser)]
#[command(version, args_override_self = true)]
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
    /// The settings file: what it says counts over `--options`, and again when it has changed. It is
    /// made if it is not there.
    #[arg(long, env = "RESTANTE_SETTINGS_FILE")]
    settings: Option<PathBuf>,
    /// Variables to read before anything else; `.env` if that is there. Those that are set already
    /// count.
    #[arg(long, env = env_file::VARIABLE)]
    env_file: Option<PathBuf>,
    /// Says what is wrong with all of this, and starts nothing.
    #[arg(long)]
    check_config: bool,
    /// TCP port; 17352 if not given, 0 picks a free one.
    #[arg(long, env = "RESTANTE_PORT")]
    port: Option<u16>,
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
    /// Where `restante.state.json` is; the working directory if not given.
    #[arg(long, env = "RESTANTE_DATA_DIR")]
    data_dir: Option<String>,
    /// Clients must show who they are.
    #[arg(long, env = "RESTANTE_AUTH_ENABLED", num_args = 0..=1, default_missing_value = "true")]
    auth: Option<bool>,
    /// Where realms and tokens are kept.
    #[arg(long, env = "RESTANTE_AUTH_STORE", num_args = 0..=1, default_missing_value = "true")]
    auth_store: Option<String>,
    /// The certificate with its chain, in PEM: connections are secured by it.
    #[arg(long, env = "RESTANTE_TLS_CERT")]
    tls_cert: Option<String>,
    /// Its private key, in PEM.
    #[arg(long, env = "RESTANTE_TLS_KEY", hide_env_values = true)]
    tls_key: Option<String>,
    /// The largest message, in bytes; 50 MiB if not given.
    #[arg(long, env = "RESTANTE_MAX_HTTP_BUFFER_SIZE")]
    max_message_bytes: Option<u64>,
    /// I/O threads; 1 up to two cores, else half the cores, at most 4.
    #[arg(long, env = "RESTANTE_THREADS")]
    threads: Option<usize>,
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
    let done = env_file::args().and_then(|args| match Cli::parse_from(args).command {
        Command::Serve(serve) if serve.check_config => check(&serve).map(|()| ExitCode::SUCCESS),
        Command::Serve(serve) => run(serve).map(|()| ExitCode::SUCCESS),
        Command::Store(command) => store::run(command),
    });
    done.unwrap_or_else(|error| {
        tracing::error!(code = error.code(), "{error}");
        ExitCode::FAILURE
    })
}

fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Error::new(ErrorKind::Internal, format!("no runtime: {error}")))
}

fn check(serve: &Serve) -> Result<()> {
    let (config, warnings) = serve.settings()?.read_again()?;
    config.check()?;
    warn(&warnings);
    // Without standard output nobody wants to know.
    let _ = writeln!(std::io::stdout(), "nothing is wrong");
    Ok(())
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

fn run(serve: Serve) -> Result<()> {
    let (config, warnings): (ServerConfig, _) = serve.settings()?.read()?;
    warn(&warnings);
    runtime()?.block_on(async {
        let server = Server::start(config).await?;
        let (storage, _) = server.storage();
        tracing::info!(storage, "listening on {}", server.local_addr());
        tokio::select! {
            () = signal() => {}
            () = reload_on_hang_up(&server) => {}
        }
        tracing::info!("stopping; a second signal stops at once");
        tokio::select! {
            closed = server.close(Duration::from_secs(serve.grace)) => closed,
            () = signal() => Err(Error::new(ErrorKind::ShuttingDown, "stopped by a second signal")),
        }
    })
}

/// Reads the settings file again at each SIGHUP; never ends.
async fn reload_on_hang_up(server: &Server) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut hang_up) = signal(SignalKind::hangup()) {
            while hang_up.recv().await.is_some() {
                // What goes wrong is logged where it goes wrong.
                let _ = server.reload_settings().await;
            }
        }
    }
    let _ = server;
    std::future::pending::<()>().await;
}

impl Serve {
    /// Where everything comes from: `--options`, the settings file over it, variables and flags over
    /// both.
    fn settings(&self) -> Result<Settings> {
        let mut options = self.which.base()?;
        if let Some(file) = &self.settings {
            let file = file.to_string_lossy().into_owned();
            options.insert("settings_file".to_owned(), file.into());
        }
        let mut over = self.which.flags(&[
            ("fallback", &self.fallback),
            ("fallback_filename", &self.fallback_filename),
        ]);
        let given: [(&str, Option<Value>); 6] = [
            ("port", self.port.map(Value::from)),
            ("host", self.host.as_deref().map(Value::from)),
            ("threads", self.threads.map(|threads| threads.max(1).into())),
            ("data_dir", self.data_dir.as_deref().map(Value::from)),
            ("max_message_bytes", self.max_message_bytes.map(Value::from)),
            ("auth_store", self.auth_store()),
        ];
        for (name, value) in given {
            over.extend(value.map(|value| (name.to_owned(), value)));
        }
        if let Some(is_on) = self.auth {
            over.insert("auth".to_owned(), json!({ "enabled": is_on }));
        }
        let tls = [("cert", &self.tls_cert), ("key", &self.tls_key)];
        let tls = tls.into_iter().filter_map(|(name, value)| {
            let value = value.as_deref()?;
            Some((name.to_owned(), Value::from(value)))
        });
        let tls: Map<String, Value> = tls.collect();
        if !tls.is_empty() {
            over.insert("tls".to_owned(), tls.into());
        }
        options.insert("overrides".to_owned(), over.into());
        Settings::from_options(&Value::Object(options).to_string())
    }

    /// `true`, `false` or a path.
    fn auth_store(&self) -> Option<Value> {
        Some(match self.auth_store.as_deref()? {
            "true" => true.into(),
            "false" | "" => false.into(),
            path => path.into(),
        })
    }
}

impl Which {
    /// The options given as JSON; nothing said of the store: SQLite.
    fn base(&self) -> Result<Map<String, Value>> {
        let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text);
        let mut options = object(&self.options).map_err(|error| {
            let message = format!("option options must be an object ({error})");
            Error::new(ErrorKind::Config, message)
        })?;
        let names = ["storage", "store"];
        if !names.iter().any(|name| options.contains_key(*name)) {
            options.insert("storage".to_owned(), "sqlite".into());
        }
        Ok(options)
    }

    /// What flags and variables say of the store.
    fn flags(&self, more: &[(&str, &Option<String>)]) -> Map<String, Value> {
        let flags = [
            ("filename", &self.filename),
            ("synchronous", &self.synchronous),
            ("url", &self.url),
            ("prefix", &self.prefix),
        ];
        let given = flags.iter().chain(more).filter_map(|(name, value)| {
            let value = value.as_deref()?;
            Some(((*name).to_owned(), Value::from(value)))
        });
        let inner: Map<String, Value> = given.collect();
        let mut over = Map::new();
        if let Some(storage) = &self.storage {
            over.insert("storage".to_owned(), storage.as_str().into());
        }
        if !inner.is_empty() {
            over.insert("storage_options".to_owned(), inner.into());
        }
        over
    }

    /// All of it.
    fn options(&self) -> Result<Value> {
        let mut options = self.base()?;
        options.insert("overrides".to_owned(), self.flags(&[]).into());
        Ok(Value::Object(options))
    }
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
