//! Documents in a JSON file of their own: for brokers whose store has no place for them, or not one
//! that lasts.
//!
//! The file is written anew as a whole, synced and renamed into place before a change is confirmed,
//! so that a reader finds the old or the new one. Only its owner may read it. One thread does the
//! calls in their order. Called by whoever assembles a server.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind as IoKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::Timestamp;
use crate::{Error, ErrorKind, Result};

use super::super::pending::Pending;
use super::{Book, Collection, Document, DocumentChange, DocumentRecord, Documents, Rows, change};

/// The version of the file's form.
const VERSION: u32 = 1;
/// Most calls in line.
const LINE: usize = 1024;

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    documents: Vec<DocumentRecord>,
}

enum Job {
    Read {
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
        answer: oneshot::Sender<Result<Vec<Document>>>,
    },
    Change {
        changes: Vec<DocumentChange>,
        now: Timestamp,
        answer: oneshot::Sender<Result<()>>,
    },
    Close(oneshot::Sender<Result<()>>),
}

/// A keeper of documents in a file. Dropped, it still does what was called.
#[derive(Debug)]
pub struct FileDocuments {
    line: SyncSender<Job>,
}

impl FileDocuments {
    /// Opens a file and reads it; one that is not there is made with the first change.
    ///
    /// # Errors
    /// `store_locked` if another broker uses it, `config` if it cannot be read, `store_corrupt` if it
    /// is damaged: it is never taken for an empty one.
    pub fn open(path: &Path) -> Result<Self> {
        let lock = lock(path)?;
        let book = read(path)?;
        let (line, jobs) = mpsc::sync_channel(LINE);
        let mut keeper = Keeper {
            path: path.to_owned(),
            book,
            _lock: lock,
        };
        std::thread::Builder::new()
            .name("restante-documents".to_owned())
            .spawn(move || {
                let mut closers = Vec::new();
                for job in jobs {
                    match job {
                        Job::Close(closer) => {
                            closers.push(closer);
                            break;
                        }
                        job => keeper.run(job),
                    }
                }
                drop(keeper);
                for closer in closers {
                    // Nobody may wait any more.
                    let _ = closer.send(Ok(()));
                }
            })
            .map_err(|error| failed(path, ErrorKind::Internal, &error))?;
        Ok(Self { line })
    }

    /// Does what was called before and leaves the file to others; later calls are refused.
    pub fn close(&self) -> Pending<()> {
        let (closer, closed) = oneshot::channel();
        match self.line.try_send(Job::Close(closer)) {
            Ok(()) => Pending::waiting(async move { closed.await.unwrap_or(Ok(())) }),
            Err(TrySendError::Disconnected(_)) => Pending::ready(Ok(())),
            Err(TrySendError::Full(_)) => Pending::ready(Err(too_much())),
        }
    }

    fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job,
    ) -> Pending<T> {
        let (asker, answer) = oneshot::channel();
        match self.line.try_send(job(asker)) {
            Ok(()) => {
                Pending::waiting(async move { answer.await.unwrap_or_else(|_| Err(closed())) })
            }
            Err(TrySendError::Disconnected(_)) => Pending::ready(Err(closed())),
            Err(TrySendError::Full(_)) => Pending::ready(Err(too_much())),
        }
    }
}

impl Documents for FileDocuments {
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        self.call(|answer| Job::Read {
            collection,
            after,
            limit,
            now,
            answer,
        })
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        self.call(|answer| Job::Change {
            changes,
            now,
            answer,
        })
    }
}

struct Keeper {
    path: PathBuf,
    book: Book,
    _lock: File,
}

impl Keeper {
    fn run(&mut self, job: Job) {
        match job {
            Job::Read {
                collection,
                after,
                limit,
                now,
                answer,
            } => {
                let most = limit.min(Document::MAX_PAGE);
                // Nobody may wait any more.
                let _ = answer.send(Ok(self.book.page(collection, after.as_deref(), most, now)));
            }
            Job::Change {
                changes,
                now,
                answer,
            } => {
                let _ = answer.send(self.change(&changes, now));
            }
            Job::Close(_) => {}
        }
    }

    fn change(&mut self, changes: &[DocumentChange], now: Timestamp) -> Result<()> {
        let mut next = self.book.clone();
        change(&mut next, changes, now)?;
        next.sweep(now, usize::MAX);
        write(&self.path, &next).map_err(|error| {
            tracing::error!(path = %self.path.display(), %error, "realms and tokens are not written");
            let kind = match error.kind() {
                IoKind::StorageFull | IoKind::QuotaExceeded => ErrorKind::StoreFull,
                _ => ErrorKind::StoreUnavailable,
            };
            failed(&self.path, kind, &error)
        })?;
        self.book = next;
        Ok(())
    }
}

fn read(path: &Path) -> Result<Book> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == IoKind::NotFound => return Ok(Book::default()),
        Err(error) if error.kind() == IoKind::InvalidData => return Err(damaged(path, &error)),
        Err(error) => return Err(failed(path, ErrorKind::Config, &error)),
    };
    // What stands in it stays out of the message.
    let text: Text = serde_json::from_str(&text)
        .map_err(|error| damaged(path, &format!("line {}", error.line())))?;
    if text.version != VERSION {
        let why = "another version has written it";
        return Err(failed(path, ErrorKind::StoreUnsupported, &why));
    }
    let mut book = Book::default();
    for record in &text.documents {
        let document = record.document().map_err(|error| damaged(path, &error))?;
        if book.get(record.collection, &record.key).is_some() {
            return Err(damaged(path, &"a document stands in it twice"));
        }
        book.put(record.collection, document);
    }
    Ok(book)
}

fn write(path: &Path, book: &Book) -> std::io::Result<()> {
    let documents = book.after(None, usize::MAX).into_iter();
    let documents = documents.map(|(of, document)| DocumentRecord::new(of, document));
    let text = Text {
        version: VERSION,
        documents: documents.collect(),
    };
    let text = serde_json::to_vec_pretty(&text)?;
    let part = beside(path, ".part");
    // One that a crash has left may be anybody's to read.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != IoKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private().write(true).create_new(true).open(&part)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    if cfg!(unix) {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// How a file is made that only its owner may read.
pub(in crate::store) fn private() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "modes are Unix's"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn lock(path: &Path) -> Result<File> {
    let file = private()
        .create(true)
        .append(true)
        .open(beside(path, ".lock"))
        .map_err(|error| failed(path, ErrorKind::Config, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let why = "another running broker has it";
            Err(failed(path, ErrorKind::StoreLocked, &why))
        }
        Err(TryLockError::Error(error)) => Err(failed(path, ErrorKind::Config, &error)),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn closed() -> Error {
    let why = "the file of realms and tokens is closed";
    Error::new(ErrorKind::StoreUnavailable, why)
}

fn too_much() -> Error {
    let why = "too much waits for the file of realms and tokens already";
    Error::new(ErrorKind::StoreUnavailable, why)
}

fn damaged(path: &Path, how: &dyn std::fmt::Display) -> Error {
    let how = format!("it is damaged ({how}); bring back a copy of it");
    failed(path, ErrorKind::StoreCorrupt, &how)
}

fn failed(path: &Path, kind: ErrorKind, error: &dyn std::fmt::Display) -> Error {
    let path = path.display();
    Error::new(
        kind,
        format!("the file of realms and tokens {path}: {error}"),
    )
}

#[cfg(test)]
mod tests;
