//! A copy of a database of one moment, made while work goes on.
//!
//! It is written beside its place under a name that nobody else has and moved there when it is whole,
//! so a backup that is there is a whole one, and nothing is deleted but what was made here.

use std::fs::{self, File};
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result};

use super::super::Pending;
use super::super::documents::private;
use super::line::Nature;
use super::open::{beside, check_name, connect};
use super::options::SqliteOptions;
use super::{SqliteStore, failure, no_thread};

fn refused(path: &Path, why: impl std::fmt::Display) -> Error {
    let path = path.display();
    Error::new(
        ErrorKind::Config,
        format!("the backup {path} cannot be written: {why}"),
    )
}

fn check_place(path: &Path) -> Result<()> {
    check_name(path).map_err(|why| refused(path, why))?;
    match fs::symlink_metadata(path) {
        Ok(_) => Err(refused(path, "there is something of that name")),
        Err(error) if error.kind() == IoKind::NotFound => Ok(()),
        Err(error) => Err(refused(path, error)),
    }
}

/// Begins behind everything that was called before, on a thread and a connection of its own.
pub(super) fn begin(store: &SqliteStore, path: PathBuf) -> Pending<()> {
    if let Err(error) = check_place(&path) {
        return Pending::ready(Err(error));
    }
    if store.options.path.is_none() {
        return Pending::ready(Err(Error::new(
            ErrorKind::StoreUnsupported,
            "this store is in memory: it has no file that could be copied",
        )));
    }
    let reached = store.line.call(Nature::Read, 0, |_| Ok(()));
    let options = store.options.clone();
    Pending::waiting(async move {
        reached.await?;
        let (tell, told) = oneshot::channel();
        std::thread::Builder::new()
            .name("restante-backup".to_owned())
            .spawn(move || {
                // Whoever asked may have stopped waiting; the copy is there all the same.
                let _ = tell.send(copy_of(&options, &path));
            })
            .map_err(no_thread)?;
        told.await.map_err(no_thread)?
    })
}

fn copy_of(options: &SqliteOptions, path: &Path) -> Result<()> {
    let conn = connect(options).map_err(|error| failure::of(&error, "opening for a backup"))?;
    let part = make_part(path)?;
    let written = write(&conn, &part, path);
    // By now it has its name, or is worth nothing.
    let _ = fs::remove_file(&part);
    written
}

/// An empty file beside the place of a backup; nobody else's, and nobody else may read it.
fn make_part(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let part = beside(path, &format!(".{}-{count}.part", std::process::id()));
        match private().write(true).create_new(true).open(&part) {
            Ok(_) => return Ok(part),
            Err(error) if error.kind() == IoKind::AlreadyExists => {}
            Err(error) => return Err(refused(path, error)),
        }
    }
}

fn write(conn: &Connection, part: &Path, path: &Path) -> Result<()> {
    // Absolute, so that no name can be taken for an address.
    let place = std::path::absolute(part).map_err(|error| refused(path, error))?;
    let name = place
        .to_str()
        .ok_or_else(|| refused(path, "its name is no text"))?;
    conn.execute("VACUUM INTO ?1", [name])
        .map_err(|error| failure::of(&error, "writing a backup"))?;
    let synced = File::open(part).and_then(|file| file.sync_all());
    synced.map_err(|error| refused(path, error))?;
    // A link, unlike a move, never takes the place of something that came meanwhile.
    match fs::hard_link(part, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == IoKind::AlreadyExists => {
            Err(refused(path, "there is something of that name by now"))
        }
        // Where there are no links the name is taken first.
        Err(_) => File::create_new(path)
            .and_then(|_| fs::rename(part, path))
            .map_err(|error| refused(path, error)),
    }
}
