//! The thread of a store: its calls must not depend on the runtime of whoever makes them.
//!
//! Knows nothing of what it runs.

use std::future::Future;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result};

/// A current-thread runtime on a thread of its own; ends when dropped.
pub(super) struct Thread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    let message = format!("no thread for the store: {error}");
    Error::new(ErrorKind::Internal, message)
}

impl Thread {
    /// Starts it; once it has to end, `last` is what it does last.
    pub(super) fn start(last: impl Future<Output = ()> + Send + 'static) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("restante-redis".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    // Ends with its sender.
                    let _ = stopped.await;
                    last.await;
                });
            })
            .map_err(failed)?;
        Ok(Self {
            handle,
            _stop: stop,
        })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs `task` there and answers its outcome.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let done = self.handle.spawn(task).await;
        done.unwrap_or_else(|error| Err(failed(error)))
    }
}
