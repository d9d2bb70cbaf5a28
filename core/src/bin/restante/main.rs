//! The command line: `restante serve`, `restante store` and `restante admin`. Reads flags and environment into
//! a [`ServerConfig`], waits for a signal, shuts down cleanly. Knows nothing of what the server does.

mod env_file;
mod store;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use restante::operator::{self, Terminal, Variables};
use restante::server::{Server, ServerConfig, Settings, parse_switch, switch};
use restante::{Error, ErrorKind, Result};
use serde_json::{Map, Value};
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
    Serve(Box<Serve>),
    /// Tells, checks, exports or fills a store that no broker uses.
    #[command(subcommand)]
    Store(Box<store::Command>),
    /// Orders a running broker about: `restante admin --help`.
    #[command(disable_help_flag = true)]
    Admin {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
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
    auth: Option<String>,
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
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "admin")
    {
        return told(admin());
    }
    let done = env_file::args().and_then(|args| match Cli::parse_from(args).command {
        Command::Serve(serve) if serve.check_config => check(&serve).map(|()| ExitCode::SUCCESS),
        Command::Serve(serve) => run(*serve).map(|()| ExitCode::SUCCESS),
        Command::Store(command) => store::run(*command),
        Command::Admin { .. } => admin(),
    });
    told(done)
}

fn told(done: Result<ExitCode>) -> ExitCode {
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

/// Its words, its output and its exit codes are the operator's own.
fn admin() -> Result<ExitCode> {
    let words = std::env::args_os().skip(2);
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let mut console = Terminal;
    let ended = operator::run(
        words.collect::<Vec<_>>(),
        Variables::of_process(),
        &mut console,
    );
    Ok(runtime()?.block_on(ended).code().into())
}

fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| Error::new(ErrorKind::Internal, format!("no runtime: {error}")))
}

fn check(serve: &Serve) -> Result<()> {
    warn(&serve.settings()?.check()?);
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
        let hang_ups = hang_ups();
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
        tokio::select! {
            () = signals.next() => {}
            () = reload_at(hang_ups, &server) => {}
        }
        tracing::info!("stopping; a second signal stops at once");
        tokio::select! {
            closed = server.close(serve.grace) => closed,
            () = signals.next() => Err(Error::new(ErrorKind::ShuttingDown, "stopped by a second signal")),
        }
    })
}

/// Counts SIGHUPs from now on: one that comes while the server starts ends nobody.
#[cfg(unix)]
fn hang_ups() -> Option<tokio::signal::unix::Signal> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::hangup()).ok()
}

#[cfg(not(unix))]
fn hang_ups() {}

/// Reads the settings file again at each SIGHUP; never ends.
#[cfg(unix)]
async fn reload_at(hang_ups: Option<tokio::signal::unix::Signal>, server: &Server) {
    if let Some(mut hang_ups) = hang_ups {
        while hang_ups.recv().await.is_some() {
            // What goes wrong is logged where it goes wrong.
            let _ = server.reload_settings().await;
        }
    }
    std::future::pending::<()>().await;
}

#[cfg(not(unix))]
async fn reload_at((): (), _server: &Server) {
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
        let mut auth = Map::new();
        // An empty variable is as good as none.
        if let Some(text) = self.auth.as_deref().filter(|text| !text.is_empty()) {
            let is_on = parse_switch("--auth or RESTANTE_AUTH_ENABLED", text)?;
            auth.insert("enabled".to_owned(), is_on.into());
        }
        if let Some(file) = &self.env_file {
            // The administrator's secret is looked for there, too.
            let file = file.to_string_lossy().into_owned();
            auth.insert("env_file".to_owned(), file.into());
        }
        if !auth.is_empty() {
            over.insert("auth".to_owned(), auth.into());
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
            "" => false.into(),
            text => switch(text).map_or_else(|| text.into(), Value::from),
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
            // What the options say of a store is meant for the one that the flag names.
            let storage = self.storage.as_deref().unwrap_or("sqlite");
            options.insert("storage".to_owned(), storage.into());
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
