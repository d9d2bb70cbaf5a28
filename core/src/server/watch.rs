//! Tells when a file has other content: by the folders that lead to it, so that a file saved under another
//! name and renamed is seen too, and so is a link on the way that leads elsewhere. Knows no settings; wakes
//! [`Reloader`].

mod trail;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::reload::Reloader;
use super::settings::content;
use super::stores::Stores;
use crate::clock::Clock;
use trail::trail;

/// A file that is being written is left alone until it has been still for this long …
const STILL: Duration = Duration::from_millis(150);
/// … or until this much has passed since its first change.
const LONGEST: Duration = Duration::from_secs(2);
/// How often to look again at links that change while they are looked at.
const TRIES: usize = 8;

/// Watches until it is dropped.
pub(super) struct Watch {
    files: Vec<PathBuf>,
    rung: Arc<Rung>,
}

/// What wakes the task.
#[derive(Default)]
struct Rung {
    notify: Notify,
    has_ended: AtomicBool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.rung.has_ended.store(true, Ordering::Release);
        self.rung.notify.notify_one();
    }
}

impl Watch {
    /// Watches `files`; `None`: the system does not tell, which is logged.
    pub(super) fn start(
        reloader: &Arc<Reloader>,
        stores: &Arc<Stores>,
        files: Vec<PathBuf>,
    ) -> Option<Self> {
        let rung = Arc::<Rung>::default();
        let mut eyes = Eyes {
            files: files.clone(),
            rung: rung.clone(),
            watcher: None,
        };
        eyes.open();
        eyes.watcher.as_ref()?;
        let task = wait(Arc::downgrade(reloader), eyes, stores.clock.clone());
        stores.housekeeping.spawn(task);
        Some(Self { files, rung })
    }

    pub(super) fn is_of(&self, files: &[PathBuf]) -> bool {
        self.files == files
    }
}

/// What is looked at now.
struct Eyes {
    files: Vec<PathBuf>,
    rung: Arc<Rung>,
    watcher: Option<RecommendedWatcher>,
}

impl Eyes {
    /// Looks at what leads to the files now: folders and links may be other ones than before.
    fn open(&mut self) {
        for _ in 0..TRIES {
            let seen = self.trails();
            let watching = self.watch(&seen);
            self.watcher = watching
                .inspect_err(|error| {
                    tracing::warn!(%error, "changes of the settings file are not noticed by themselves");
                })
                .ok();
            // What has changed before it was looked at has told nobody.
            if self.watcher.is_none() || self.trails() == seen {
                return;
            }
        }
    }

    fn trails(&self) -> BTreeSet<PathBuf> {
        self.files.iter().flat_map(|file| trail(file)).collect()
    }

    fn watch(&self, trail: &BTreeSet<PathBuf>) -> notify::Result<RecommendedWatcher> {
        let names: BTreeSet<OsString> = trail
            .iter()
            .filter_map(|path| path.file_name().map(ToOwned::to_owned))
            .collect();
        let rung = self.rung.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_ok_and(|event| concerns(&event, &names)) {
                rung.notify.notify_one();
            }
        })?;
        let folders: BTreeSet<&Path> = trail.iter().filter_map(|path| path.parent()).collect();
        let mut outcome = Ok(());
        let mut is_watching = false;
        for folder in folders {
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => is_watching = true,
                // The others may tell enough.
                Err(error) => outcome = Err(error),
            }
        }
        match (is_watching, outcome) {
            (false, Err(error)) => Err(error),
            (_, outcome) => {
                if let Err(error) = outcome {
                    tracing::warn!(%error, "a folder on the way to the settings file is not watched");
                }
                Ok(watcher)
            }
        }
    }

    fn read(&self) -> Vec<Option<Vec<u8>>> {
        self.files.iter().map(|file| content(file)).collect()
    }
}

/// Whether it may be one of these names. What is written beside them, such as a database, is not.
fn concerns(event: &Event, names: &BTreeSet<OsString>) -> bool {
    // Reading is no change, and we read ourselves.
    let is_read = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    };
    // Without a path: the system has lost some.
    let mut paths = event.paths.iter();
    let is_named = |path: &PathBuf| path.file_name().is_some_and(|name| names.contains(name));
    !is_read && (event.paths.is_empty() || paths.any(is_named))
}

async fn wait(reloader: Weak<Reloader>, mut eyes: Eyes, clock: Arc<dyn Clock>) {
    let rung = eyes.rung.clone();
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
        eyes.open();
        let now = eyes.read();
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
