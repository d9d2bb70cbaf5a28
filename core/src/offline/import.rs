//! Filling an empty store from lines or from tyo-mq: all of it, or nothing.

use std::io::{BufRead, Read as _};
#[cfg(feature = "sqlite")]
use std::path::PathBuf;

use serde::Serialize;

use crate::store::{Pending, Record, SharedStore};
use crate::{Error, ErrorKind, Result};

use super::export::{Head, Tail, VERSION, WORDS};
use super::{Streams, tyo_mq};

/// Longest line: the largest message a broker takes is far below.
const MAX_LINE: u64 = 1 << 30;
/// Rows and bytes of them that are under way at once.
const ROWS: usize = 1024;
const BYTES: usize = 4 << 20;

/// Where it comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// The input, as [`super::export`] wrote it.
    Lines,
    /// A database of tyo-mq.
    #[cfg(feature = "sqlite")]
    TyoMqSqlite { path: PathBuf, skips: bool },
    /// Keys of tyo-mq.
    #[cfg(feature = "redis")]
    TyoMqRedis {
        url: String,
        prefix: String,
        skips: bool,
    },
}

/// What was taken in.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Taken {
    pub(super) queues: u64,
    pub(super) messages: u64,
    pub(super) delayed: u64,
    pub(super) dead_letters: u64,
    /// Realms, tokens, requests and the like.
    pub(super) documents: u64,
    /// Messages of tyo-mq that had expired.
    pub(super) expired: u64,
    /// Rows of tyo-mq that are no messages of a queue.
    pub(super) history: u64,
    /// Rows of tyo-mq that could not be read.
    pub(super) unreadable: u64,
}

/// Rows on their way into a store, each with the line it stands in.
pub(super) struct Intake<'a> {
    store: &'a SharedStore,
    under_way: Vec<(u64, Pending<()>)>,
    bytes: usize,
    pub(super) taken: Taken,
}

impl Intake<'_> {
    /// Takes one row; `size` is about its bytes.
    pub(super) async fn take(&mut self, line: u64, record: Record, size: usize) -> Result<()> {
        match &record {
            Record::Queue(_) => self.taken.queues += 1,
            Record::Entry(_) => self.taken.messages += 1,
            Record::Delayed(_) => self.taken.delayed += 1,
            Record::Letter(_) => self.taken.dead_letters += 1,
            Record::Document(_) => self.taken.documents += 1,
            _ => {}
        }
        self.under_way.push((line, self.store.import(vec![record])));
        self.bytes += size;
        match self.under_way.len() >= ROWS || self.bytes >= BYTES {
            true => self.settle().await,
            false => Ok(()),
        }
    }

    /// Waits for what is under way.
    async fn settle(&mut self) -> Result<()> {
        self.bytes = 0;
        for (line, answer) in self.under_way.drain(..) {
            answer.await.map_err(|error| match line {
                0 => error,
                line => Error::new(error.kind(), format!("line {line}: {error}")),
            })?;
        }
        Ok(())
    }
}

/// Fills `store`; with `replaces` what has moved to another store is emptied first.
pub(super) async fn import(
    store: &SharedStore,
    replaces: bool,
    source: Source,
    streams: &mut Streams<'_>,
) -> Result<Taken> {
    store.begin_import(replaces).await?;
    let mut intake = Intake {
        store,
        under_way: Vec::new(),
        bytes: 0,
        taken: Taken::default(),
    };
    let filled = async {
        match source {
            Source::Lines => lines(&mut intake, streams).await?,
            #[cfg(feature = "sqlite")]
            Source::TyoMqSqlite { path, skips } => {
                tyo_mq::from_sqlite(&path, skips, &mut intake, streams).await?;
            }
            #[cfg(feature = "redis")]
            Source::TyoMqRedis { url, prefix, skips } => {
                tyo_mq::from_redis(&url, &prefix, skips, &mut intake, streams).await?;
            }
        }
        intake.settle().await?;
        store.end_import().await?;
        store.lead().await
    };
    let filled = filled.await;
    let taken = intake.taken;
    if filled.is_err() {
        // Nothing of it is ever opened; whether it is gone is told by its mark.
        let _ = store.begin_import(false).await;
    }
    filled.map(|()| taken)
}

fn broken(line: u64, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::StoreCorrupt, format!("line {line}: {why}"))
}

/// The next line without its end; `None`: there is none.
fn next_line(input: &mut dyn BufRead, line: u64, into: &mut Vec<u8>) -> Result<Option<()>> {
    into.clear();
    let read = input.take(MAX_LINE).read_until(b'\n', into);
    let read = read.map_err(|error| broken(line, error))?;
    if read == 0 {
        return Ok(None);
    }
    if read as u64 == MAX_LINE {
        return Err(broken(line, "it is too long"));
    }
    Ok(Some(()))
}

fn check_head(text: &[u8]) -> Result<()> {
    let head: Head = serde_json::from_slice(text)
        .map_err(|error| broken(1, format!("this is no export of a store ({error})")))?;
    if head.restante != "store" {
        return Err(broken(1, "this is no export of a store"));
    }
    if head.version > VERSION {
        let version = head.version;
        let why = format!(
            "line 1: its version is {version} and this program knows versions up to {VERSION}; use \
             the one that wrote it, or a newer one"
        );
        return Err(Error::new(ErrorKind::StoreUnsupported, why));
    }
    Ok(())
}

async fn lines(intake: &mut Intake<'_>, streams: &mut Streams<'_>) -> Result<()> {
    let (mut text, mut line) = (Vec::new(), 1);
    next_line(streams.input, line, &mut text)?
        .ok_or_else(|| broken(1, "there is nothing to import"))?;
    check_head(&text)?;
    loop {
        line += 1;
        next_line(streams.input, line, &mut text)?
            .ok_or_else(|| broken(line, "the end is missing: the export was cut"))?;
        let record = match serde_json::from_slice::<Record>(&text) {
            Ok(record) => record,
            Err(error) => match serde_json::from_slice::<Tail>(&text) {
                Ok(Tail::End { lines }) if lines == line - 2 => break,
                Ok(Tail::End { lines }) => {
                    let (found, lines) = (line - 2, lines);
                    return Err(broken(line, format!("{found} lines came of {lines}")));
                }
                Err(_) => return Err(broken(line, error)),
            },
        };
        intake.take(line, record, text.len()).await?;
        if line.is_multiple_of(WORDS) {
            streams.note(format!("{line} lines read"));
        }
    }
    match next_line(streams.input, line + 1, &mut text)? {
        None => Ok(()),
        Some(()) => Err(broken(line + 1, "there is something behind the end")),
    }
}

/// Says what was taken in.
pub(super) fn report(taken: &Taken, json: bool, streams: &mut Streams<'_>) -> Result<()> {
    if json {
        let text = serde_json::to_string(taken);
        let text = text.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        return streams.line(text);
    }
    let Taken {
        queues,
        messages,
        delayed,
        dead_letters,
        documents,
        expired,
        history,
        unreadable,
    } = taken;
    streams.line(format_args!(
        "{messages} messages, {delayed} delayed, {dead_letters} dead letters, {queues} queues"
    ))?;
    for (count, what) in [
        (documents, "realms, tokens, requests and the like"),
        (expired, "had expired and were left out"),
        (history, "were history of HTTP and were left out"),
        (unreadable, "could not be read and were left out"),
    ] {
        if *count > 0 {
            streams.line(format_args!("{count} {what}"))?;
        }
    }
    Ok(())
}
