//! The thread that the addon's clients live on: one `current_thread` runtime, started with the
//! first connection or server and ended with the last, so that an idle process has no thread of
//! ours. Servers bring threads of their own; only their start and stop run here.

use std::sync::Arc;
use std::sync::Weak;
use std::thread;

use parking_lot::Mutex;
use restante::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

static CURRENT: Mutex<Weak<Runtime>> = Mutex::new(Weak::new());

/// Keeps the thread running; the thread ends when the last clone is dropped.
pub(crate) struct Runtime {
    handle: Handle,
    /// Dropping it wakes the thread, which then ends.
    _stop: oneshot::Sender<()>,
}

impl Runtime {
    /// The running thread, or a new one.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the operating system gives no thread or no poller.
    pub(crate) fn shared() -> Result<Arc<Self>> {
        let mut current = CURRENT.lock();
        if let Some(running) = current.upgrade() {
            return Ok(running);
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| no_thread(&error))?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("restante-client".into())
            .spawn(move || {
                // An error is the sign that the sender is gone, which is what we wait for.
                let _ = runtime.block_on(stopped);
            })
            .map_err(|error| no_thread(&error))?;
        let started = Arc::new(Self {
            handle,
            _stop: stop,
        });
        *current = Arc::downgrade(&started);
        Ok(started)
    }

    /// Where to spawn.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("could not start the client thread: {error}"),
    )
}
