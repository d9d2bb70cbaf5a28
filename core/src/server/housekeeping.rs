//! The thread for the broker's own tasks: sweeps, delayed messages, waits on the store.
//!
//! The core must not depend on the runtime it is called from: the addon's may end before the server
//! does. Knows nothing of what it runs.

use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result};

/// A current-thread runtime on a thread of its own; ends when stopped or dropped.
pub(super) struct Housekeeping {
    handle: Handle,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("no thread for the broker: {error}"),
    )
}

impl Housekeeping {
    pub(super) fn start() -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("restante-core".to_owned())
            .spawn(move || {
                // Ends by a word or by the sender's end, which is the same word.
                let _ = runtime.block_on(stopped);
            })
            .map_err(failed)?;
        Ok(Self {
            handle,
            stop: Mutex::new(Some(stop)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs `task` there; nobody waits for it.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Runs `task` there and answers its outcome.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.handle.spawn(task).await.unwrap_or_else(|error| {
            Err(match error.is_cancelled() {
                true => Error::new(ErrorKind::ShuttingDown, "the server has stopped"),
                false => failed(error),
            })
        })
    }

    /// Ends the thread, and with it what runs there; what it lets go of may be this.
    fn end(&self) {
        self.stop.lock().take();
    }

    /// Ends the thread and waits for that: it has nothing to do that could take long.
    pub(super) fn stop(&self) {
        self.end();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the broker's thread ended by a panic");
        }
    }
}

/// Ends the thread when it is dropped: what runs there knows the thread, so that it never ends by itself.
pub(super) struct Owned(pub(super) Arc<Housekeeping>);

impl std::ops::Deref for Owned {
    type Target = Housekeeping;

    fn deref(&self) -> &Housekeeping {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.end();
    }
}
