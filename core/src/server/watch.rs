//! Tells when a file has other content: by its directory, so that a file saved under another name and
//! renamed is seen too, and so is one that a link points to. Knows no settings; wakes [`Reloader`].

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::reload::Reloader;
use super::settings::content;
use super::stores::Stores;
use crate::clock::Clock;

/// A file that is being written is left alone until it has been still for this long …
const STILL: Duration = Duration::from_millis(150);
/// … or until this much has passed since its first change.
const LONGEST: Duration = Duration::from_secs(2);

/// Watches until it is dropped.
pub(super) struct Watch {
    files: Vec<PathBuf>,
    /// Ends the task when it is dropped.
    _watcher: RecommendedWatcher,
}

/// What tells the task; it ends with its last clone.
struct Bell(Arc<Rung>);

#[derive(Default)]
struct Rung {
    notify: Notify,
    has_ended: AtomicBool,
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        self.0.notify.notify_one();
    }
}

impl Watch {
    /// Watches `files`; `None`: the system does not tell, which is logged.
    pub(super) fn start(
        reloader: &Arc<Reloader>,
        stores: &Arc<Stores>,
        files: Vec<PathBuf>,
    ) -> Option<Self> {
        let places = places(&files);
        let names: BTreeSet<OsString> = places
            .iter()
            .filter_map(|path| path.file_name().map(ToOwned::to_owned))
            .collect();
        let rung = Arc::<Rung>::default();
        let bell = Bell(rung.clone());
        let on_event = move |event: notify::Result<Event>| {
            if event.is_ok_and(|event| concerns(&event, &names)) {
                bell.0.notify.notify_one();
            }
        };
        let folders: BTreeSet<&Path> = places.iter().filter_map(|path| path.parent()).collect();
        let watching = notify::recommended_watcher(on_event).and_then(|mut watcher| {
            for folder in folders {
                watcher.watch(folder, RecursiveMode::NonRecursive)?;
            }
            Ok(watcher)
        });
        let watcher = watching.inspect_err(|error| {
            tracing::warn!(%error, "changes of the settings file are not noticed by themselves");
        });
        let task = wait(
            Arc::downgrade(reloader),
            rung,
            files.clone(),
            stores.clock.clone(),
        );
        stores.housekeeping.spawn(task);
        Some(Self {
            files,
            _watcher: watcher.ok()?,
        })
    }

    pub(super) fn is_of(&self, files: &[PathBuf]) -> bool {
        self.files == files
    }
}

/// The files, and what they are links to.
fn places(files: &[PathBuf]) -> Vec<PathBuf> {
    let targets = files.iter().filter_map(|file| file.canonicalize().ok());
    files.iter().cloned().chain(targets).collect()
}

/// Whether it may be one of these files. A name that comes or goes beside them may be what they are
/// links to; what is written beside them, such as a database, is not.
fn concerns(event: &Event, names: &BTreeSet<OsString>) -> bool {
    let is_named = || {
        let mut paths = event.paths.iter();
        paths.any(|path| path.file_name().is_some_and(|name| names.contains(name)))
    };
    match event.kind {
        // Reading is no change, and we read ourselves.
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => is_named(),
        EventKind::Access(_) => false,
        EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => {
            true
        }
        EventKind::Modify(_) | EventKind::Any | EventKind::Other => is_named(),
    }
}

async fn wait(
    reloader: Weak<Reloader>,
    rung: Arc<Rung>,
    files: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
) {
    let read = || -> Vec<_> { files.iter().map(|file| content(file)).collect() };
    // As of nothing: what has changed between the start and now is not missed.
    let mut known = Vec::new();
    rung.notify.notify_one();
    loop {
        rung.notify.notified().await;
        let latest = clock.elapsed() + LONGEST;
        loop {
            let until = (clock.elapsed() + STILL).min(latest);
            tokio::select! {
                () = clock.sleep_until(until) => break,
                () = rung.notify.notified() => {}
            }
        }
        if rung.has_ended.load(Ordering::Acquire) {
            return;
        }
        let now = read();
        if now == known {
            continue;
        }
        known = now;
        let Some(reloader) = reloader.upgrade() else {
            return;
        };
        // What goes wrong is told where it goes wrong.
        let _ = reloader.reload().await;
    }
}
