//! Keeps beside the fallback file which subscriptions Redis remembers, so that a start without Redis
//! goes on remembering them (P4, P29).
//!
//! Written a second after something has changed, on the way of no message, and at the end. Knows no
//! format: that is [`crate::store::fallback`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Result;
use crate::broker::Broker;
use crate::clock::Clock;
use crate::store::fallback::write_mirror;

use super::config::Storage;

/// Between two looks; longer where writing takes long.
const PAUSE: Duration = Duration::from_secs(1);
/// Writing takes at most this part of the time.
const PART: u32 = 20;

/// Where the list is to stand, if messages wait in a Redis that has a fallback.
pub(super) fn wanted(storage: &Mutex<Option<Storage>>) -> Option<PathBuf> {
    storage.lock().as_ref().and_then(Storage::fallback)
}

/// Keeps the list until the broker is gone or messages wait elsewhere.
pub(super) async fn keep(
    broker: Weak<Broker>,
    storage: Arc<Mutex<Option<Storage>>>,
    clock: Arc<dyn Clock>,
) {
    let mut written = None;
    while let Some(path) = wanted(&storage) {
        let Some(broker) = broker.upgrade() else {
            return;
        };
        let began = clock.elapsed();
        let stamp = broker.remembered_stamp();
        let now = Some((path.clone(), stamp));
        if written != now && write(&broker, path).await {
            written = now;
        }
        drop(broker);
        let pause = PAUSE.max(clock.elapsed().saturating_sub(began) * PART);
        clock.sleep_until(clock.elapsed() + pause).await;
    }
}

/// Writes the list for the last time.
pub(super) async fn finish(broker: &Broker, storage: &Mutex<Option<Storage>>) -> Result<()> {
    if let Some(path) = wanted(storage) {
        write(broker, path).await;
    }
    Ok(())
}

async fn write(broker: &Broker, path: PathBuf) -> bool {
    let queues = broker.remembered();
    let shown = path.clone();
    let writing = tokio::task::spawn_blocking(move || write_mirror(&path, &queues));
    match writing.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            warn(&shown, &error);
            false
        }
        Err(error) => {
            warn(&shown, &error);
            false
        }
    }
}

fn warn(path: &Path, error: &dyn std::fmt::Display) {
    tracing::warn!(
        %error,
        "what Redis remembers could not be noted beside {}: a start without Redis would not know it",
        path.display()
    );
}
