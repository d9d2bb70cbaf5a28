//! `restante store …`: flags into a [`Job`] over the standard streams. Progress and errors go to standard
//! error. Exit codes: 0 done, 1 damage was found or it failed, 2 wrong usage.

use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

use restante::offline::{self, Job, Streams};
use restante::{Error, ErrorKind, Result};
use serde_json::json;

use super::Which;

/// What to do with a store.
#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Tells what it holds, queue by queue.
    Stats(Store),
    /// Looks for damage: the database, the checksum of every message, what refers to what.
    Check(Store),
    /// Writes everything it holds to standard output, a JSON object a line.
    Export(Store),
    /// Fills an empty store with such lines from standard input, or with what tyo-mq has left.
    Import(Import),
}

#[derive(clap::Args)]
pub(super) struct Store {
    #[command(flatten)]
    which: Which,
    /// Results as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(super) struct Import {
    #[command(flatten)]
    store: Store,
    /// Take from a file or Redis of tyo-mq: `tyo-mq-sqlite` or `tyo-mq-redis`.
    #[arg(long, requires = "source", value_parser = ["tyo-mq-sqlite", "tyo-mq-redis"])]
    from: Option<String>,
    /// That file, or the address of that Redis.
    #[arg(requires = "from")]
    source: Option<String>,
    /// What its keys in Redis begin with; `tyo-mq:queue` if not given.
    #[arg(long)]
    tyo_prefix: Option<String>,
    /// Names and leaves out rows that cannot be read, rather than giving up.
    #[arg(long)]
    skip_unreadable: bool,
}

fn job(command: &Command) -> Result<Job> {
    let (task, store, import) = match command {
        Command::Stats(store) => ("stats", store, None),
        Command::Check(store) => ("check", store, None),
        Command::Export(store) => ("export", store, None),
        Command::Import(import) => ("import", &import.store, Some(import)),
    };
    let job = json!({
        "task": task,
        "options": store.which.options()?,
        "json": store.json,
        "from": import.and_then(|import| import.from.as_deref()),
        "source": import.and_then(|import| import.source.as_deref()),
        "tyo_prefix": import.and_then(|import| import.tyo_prefix.as_deref()),
        "skip_unreadable": import.is_some_and(|import| import.skip_unreadable),
    });
    serde_json::from_value(job).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
}

/// Does it; with what code to end.
pub(super) fn run(command: Command) -> Result<ExitCode> {
    let job = job(&command)?;
    let (mut input, mut output) = (std::io::stdin().lock(), BufWriter::new(std::io::stdout()));
    let mut notes = |text: &str| {
        // Without standard error nobody wants to know.
        let _ = writeln!(std::io::stderr(), "{text}");
    };
    let mut streams = Streams {
        input: &mut input,
        output: &mut output,
        notes: &mut notes,
    };
    let is_whole = super::runtime()?.block_on(offline::run(&job, &mut streams))?;
    Ok(if is_whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
