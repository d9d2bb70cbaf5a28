//! The command's work on a store that no broker serves, and its orders to a broker that runs, over the
//! standard streams of the process. Called by `bin/restante.js`.

use std::io::{BufWriter, Write as _};
use std::sync::Arc;

use napi::bindgen_prelude::External;
use napi_derive::napi;
use restante::offline::{self, Job, Streams};
use restante::operator::{self, Terminal, Variables};
use restante::{Error, ErrorKind};
use serde::Serialize;

use crate::error::{Result, thrown, unreadable};
use crate::port::Port;

/// Answers `token` when it is done: whether the store is whole.
#[napi(catch_unwind)]
pub fn store_job(port: &External<Arc<Port>>, job: String, token: u32) -> Result<()> {
    let job: Job = serde_json::from_str(&job).map_err(unreadable)?;
    work(port, token, move || run(&job))
}

/// Answers `token` with the exit code of `restante admin` with these words.
#[napi(catch_unwind)]
pub fn admin_job(port: &External<Arc<Port>>, words: Vec<String>, token: u32) -> Result<()> {
    work(port, token, move || {
        let mut console = Terminal;
        let ended = operator::run(words, Variables::of_process(), &mut console);
        Ok(runtime()?.block_on(ended).code())
    })
}

/// On a thread of its own: it may wait for somebody to type.
fn work<T: Serialize>(
    port: &External<Arc<Port>>,
    token: u32,
    work: impl FnOnce() -> restante::Result<T> + Send + 'static,
) -> Result<()> {
    let port = Arc::clone(port);
    let thread = std::thread::Builder::new().name("restante-job".to_owned());
    let failed = |error| thrown(&no_thread(&error));
    let spawned = thread.spawn(move || port.answer(token, work()));
    spawned.map(|_| ()).map_err(failed)
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("no thread: {error}"))
}

fn runtime() -> restante::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| no_thread(&error))
}

fn run(job: &Job) -> restante::Result<bool> {
    let runtime = runtime()?;
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
    runtime.block_on(offline::run(job, &mut streams))
}
