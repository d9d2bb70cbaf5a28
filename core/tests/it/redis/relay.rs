//! A relay in front of a server that cuts connections after so many bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes left until the cut; below zero: no cut.
#[derive(Default)]
struct Budget {
    there: AtomicI64,
    back: AtomicI64,
    cuts: AtomicU64,
    /// Nothing passes, and no connection lives.
    is_blocked: watch::Sender<bool>,
}

pub struct Relay {
    pub port: u16,
    budget: Arc<Budget>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let budget = Arc::new(Budget::default());
        budget.there.store(i64::MAX, Ordering::SeqCst);
        budget.back.store(i64::MAX, Ordering::SeqCst);
        let shared = budget.clone();
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let budget = shared.clone();
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(("127.0.0.1", target)).await else {
                        return;
                    };
                    let mut blocked = budget.is_blocked.subscribe();
                    let ((near_in, near_out), (far_in, far_out)) =
                        (near.into_split(), far.into_split());
                    tokio::select! {
                        _ = blocked.wait_for(|is_blocked| *is_blocked) => {}
                        () = carry(near_in, far_out, &budget.there) => {}
                        () = carry(far_in, near_out, &budget.back) => {}
                    }
                    budget.cuts.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, budget, task }
    }

    /// Cuts once so many more bytes have gone to the server.
    pub fn cut_there(&self, after: i64) {
        self.budget.there.store(after, Ordering::SeqCst);
    }

    /// Cuts once so many more bytes have come from the server.
    pub fn cut_back(&self, after: i64) {
        self.budget.back.store(after, Ordering::SeqCst);
    }

    /// Ends every connection, and lets no new one through until [`Relay::unblock`].
    pub fn block(&self) {
        self.budget.is_blocked.send_replace(true);
    }

    pub fn unblock(&self) {
        self.budget.is_blocked.send_replace(false);
    }

    /// How many connections have ended.
    pub fn cuts(&self) -> u64 {
        self.budget.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries bytes until one side ends or the budget does; the next connection has none to fear.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, budget: &AtomicI64) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        let left = budget.fetch_sub(count as i64, Ordering::SeqCst);
        let passes = usize::try_from(left.max(0)).unwrap().min(count);
        if to.write_all(&buffer[..passes]).await.is_err() {
            return;
        }
        if passes < count {
            budget.store(i64::MAX, Ordering::SeqCst);
            // What has been written is on its way.
            let _ = to.shutdown().await;
            return;
        }
    }
}
