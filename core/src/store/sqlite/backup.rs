//! A copy of a database of one moment, made while work goes on.
//!
//! It is written beside its place under another name and moved there when it is whole, so a backup
//! that is there is a whole one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result};

use super::super::Pending;
use super::line::Nature;
use super::open::{beside, connect};
use super::options::SqliteOptions;
use super::{SqliteStore, failure, no_thread};

fn refused(path: &Path, why: impl std::fmt::Display) -> Error {
    let path = path.display();
    Error::new(
        ErrorKind::Config,
        format!("the backup {path} cannot be written: {why}"),
    )
}

/// Begins behind everything that was called before, on a thread and a connection of its own.
pub(super) fn begin(store: &SqliteStore, path: PathBuf) -> Pending<()> {
    if fs::symlink_metadata(&path).is_ok() {
        return Pending::ready(Err(refused(&path, "there is something of that name")));
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
    copy(&conn, path)
}

fn copy(conn: &Connection, path: &Path) -> Result<()> {
    let part = beside(path, ".part");
    // What an earlier try has left is not worth keeping.
    let _ = fs::remove_file(&part);
    let written = write(conn, &part, path);
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

fn write(conn: &Connection, part: &Path, path: &Path) -> Result<()> {
    let name = part
        .to_str()
        .ok_or_else(|| refused(path, "its name is no text"))?;
    conn.execute("VACUUM INTO ?1", [name])
        .map_err(|error| failure::of(&error, "writing a backup"))?;
    let synced = File::open(part).and_then(|file| file.sync_all());
    synced.map_err(|error| refused(path, error))?;
    // A link, unlike a move, never takes the place of something that came meanwhile.
    fs::hard_link(part, path)
        .or_else(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Err(error),
            _ => fs::rename(part, path),
        })
        .map_err(|error| refused(path, error))?;
    let _ = fs::remove_file(part);
    Ok(())
}
