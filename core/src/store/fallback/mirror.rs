//! Which queues Redis remembers, written beside the file that stands in for it: a start without Redis
//! goes on remembering them (P4, P29).
//!
//! A line of JSON for each queue, all of them written anew each time; a line that is damaged costs
//! that queue alone. Knows no broker and no Redis: [`crate::server`] says what there is and when.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, ErrorKind as IoKind, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::clock::Timestamp;
use crate::model::{Key, RealmId};

use super::super::Store;
use super::super::settings;
use super::super::types::QueueSpec;
use super::there::place;

/// One queue.
#[derive(Serialize, Deserialize)]
struct Line {
    realm: String,
    key: String,
    kind: u8,
    name: String,
    settings: String,
    seen: u64,
}

impl Line {
    fn of((spec, seen): &(QueueSpec, Timestamp)) -> Self {
        Self {
            realm: spec.realm.as_str().to_owned(),
            key: spec.key.encode(),
            kind: settings::kind_number(spec.kind),
            name: spec.name.to_string(),
            settings: settings::settings_text(&spec.settings),
            seen: seen.0,
        }
    }

    fn parse(text: &str) -> Option<(QueueSpec, Timestamp)> {
        let line: Self = serde_json::from_str(text).ok()?;
        let spec = QueueSpec {
            realm: RealmId::parse(&line.realm).ok()?,
            key: Key::decode(&line.key)?,
            kind: settings::kind(line.kind)?,
            name: line.name.into(),
            settings: settings::settings(&line.settings)?,
        };
        Some((spec, Timestamp(line.seen)))
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where the queues stand that the file at `path` is to go on remembering.
pub fn mirror_of(path: &Path) -> PathBuf {
    beside(path, "-subscriptions")
}

/// Writes all queues, with when each was last used; all of it is on the disk then, or nothing has
/// changed.
///
/// # Errors
/// What the system says.
pub fn write_mirror(path: &Path, queues: &[(QueueSpec, Timestamp)]) -> std::io::Result<()> {
    let mirror = mirror_of(path);
    let part = beside(&mirror, ".part");
    let mut making = File::options();
    making.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut making, 0o600);
    let mut file = BufWriter::new(making.open(&part)?);
    for queue in queues {
        serde_json::to_writer(&mut file, &Line::of(queue))?;
        file.write_all(b"\n")?;
    }
    let file = file
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(&part, &mirror)
}

/// Has a stand-in, which nobody uses yet, remember what was written. From then on it knows best, and
/// the mirror is gone.
///
/// # Errors
/// What the store says. A mirror that cannot be read is warned of.
pub async fn recall_mirror(path: &Path, store: &dyn Store) -> Result<()> {
    let mirror = mirror_of(path);
    let queues = match read(&mirror) {
        Ok(queues) => queues,
        Err(error) if error.kind() == IoKind::NotFound => return Ok(()),
        Err(error) => {
            tracing::warn!(%error, "what Redis remembers could not be read from {}", mirror.display());
            return Ok(());
        }
    };
    let known = store.queues().await?;
    let known: HashSet<_> = known.iter().map(|record| place(&record.spec)).collect();
    let missing = queues
        .into_iter()
        .filter(|(spec, _)| !known.contains(&place(spec)));
    let openings: Vec<_> = missing.map(|(spec, seen)| store.open(spec, seen)).collect();
    for opening in openings {
        opening.await?;
    }
    // Kept, it would bring back what ends meanwhile.
    if let Err(error) = fs::remove_file(&mirror) {
        tracing::warn!(%error, "{} cannot be removed", mirror.display());
    }
    Ok(())
}

fn read(mirror: &Path) -> std::io::Result<Vec<(QueueSpec, Timestamp)>> {
    let mut queues = Vec::new();
    for line in BufReader::new(File::open(mirror)?).lines() {
        let line = line?;
        match Line::parse(&line) {
            Some(queue) => queues.push(queue),
            None => tracing::warn!(
                "a line of {} is damaged: a subscription is missing",
                mirror.display()
            ),
        }
    }
    Ok(queues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ConsumerName;
    use crate::store::{Bounds, MemoryStore, QueueKind, QueueSettings};

    fn spec(name: &str, kind: QueueKind) -> QueueSpec {
        QueueSpec {
            realm: RealmId::parse("r\u{e9}").unwrap(),
            key: Key::Any {
                event: "k\"\u{1f600}".into(),
            },
            kind,
            name: name.into(),
            settings: QueueSettings {
                durable: true,
                consumer: ConsumerName::parse("c").ok(),
                ..QueueSettings::default()
            },
        }
    }

    #[tokio::test]
    async fn a_stand_in_remembers_what_was_written_but_for_a_damaged_line() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("f.sqlite");
        let queues = [
            (spec("a", QueueKind::Consumer), Timestamp(5)),
            (spec("b", QueueKind::Group), Timestamp(6)),
            (spec("c", QueueKind::Consumer), Timestamp(7)),
        ];
        write_mirror(&path, &queues).unwrap();
        let text = fs::read_to_string(mirror_of(&path)).unwrap();
        let damaged = text.replacen("\"name\":\"b\"", "\"name\":", 1);
        fs::write(mirror_of(&path), damaged).unwrap();
        let store = MemoryStore::new(Bounds::default());
        recall_mirror(&path, &store).await.unwrap();
        let found = store.queues().await.unwrap();
        let found: Vec<_> = found.into_iter().map(|one| (one.spec, one.seen)).collect();
        assert_eq!(found, [queues[0].clone(), queues[2].clone()]);
        assert!(!mirror_of(&path).exists());
        recall_mirror(&path, &store).await.unwrap();
    }

    #[tokio::test]
    async fn what_a_stand_in_knows_already_stays_as_it_is() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("f.sqlite");
        write_mirror(&path, &[(spec("a", QueueKind::Consumer), Timestamp(5))]).unwrap();
        let store = MemoryStore::new(Bounds::default());
        let mut own = spec("a", QueueKind::Consumer);
        own.settings.durable = false;
        store.open(own.clone(), Timestamp(9)).await.unwrap();
        recall_mirror(&path, &store).await.unwrap();
        let found = store.queues().await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].spec, found[0].seen), (&own, Timestamp(9)));
    }
}
