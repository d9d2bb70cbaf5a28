//! Writing down what is remembered, and the end of a lifted store. Called by the driver alone.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

use crate::{Error, ErrorKind, Result};

use super::super::simple::{Place, Row, RowPage, SimpleStore};
use super::super::types::LogId;
use super::shared::Shared;
use super::side;

/// Who waits until it is written.
pub(super) type Savers = Vec<oneshot::Sender<Result<()>>>;

/// What is written beside the store, as a method that may fail.
const SUBSCRIPTIONS: &str = "subscriptions";

impl<S: SimpleStore> Shared<S> {
    pub(super) fn begin_save(self: &Arc<Self>) -> Option<(JoinHandle<Result<()>>, Savers)> {
        let (text, savers) = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.is_dirty) {
                return None;
            }
            (side::write(&state), std::mem::take(&mut state.savers))
        };
        let shared = Arc::clone(self);
        let saved = tokio::task::spawn_blocking(move || shared.side.save(&text));
        Some((saved, savers))
    }

    pub(super) fn end_save(
        &self,
        saved: std::result::Result<Result<()>, JoinError>,
        savers: Savers,
    ) {
        let saved =
            saved.unwrap_or_else(|error| Err(Error::new(ErrorKind::Internal, error.to_string())));
        let saved = saved.map_err(|error| {
            tracing::error!("{error}");
            Error::new(ErrorKind::StoreUnavailable, error.message())
        });
        match &saved {
            Ok(()) => self.health.worked(SUBSCRIPTIONS),
            Err(error) => {
                // The next change writes it again.
                self.state.lock().counters.failures += 1;
                self.health.failed(SUBSCRIPTIONS, error, &*self.clock);
            }
        }
        for saver in savers {
            // Nobody may wait any more.
            let _ = saver.send(saved.clone());
        }
    }

    /// Puts back what was taken out, ends the store, and tells everybody who still waits.
    pub(super) async fn shut(&self) {
        self.put_back().await;
        let ended = self.call("close", || self.simple.close()).await;
        self.side.release();
        let closing = {
            let mut state = self.state.lock();
            state.abandon();
            state.closers.drain(..).collect::<Vec<_>>()
        };
        for closer in closing {
            // Nobody may wait any more.
            let _ = closer.send(ended.clone());
        }
    }

    /// Rows that a `dequeue` has taken out of the store, and nobody settled.
    async fn put_back(&self) {
        let rows = self.state.lock().taken_rows();
        for (place, rows) in rows {
            if let Err(error) = self.put_back_to(&place, rows).await {
                tracing::error!(
                    event = &*place.event,
                    consumer = &*place.consumer,
                    "rows are lost: {error}"
                );
            }
        }
    }

    async fn put_back_to(&self, place: &Arc<Place>, rows: Vec<Row>) -> Result<()> {
        if self.methods.import {
            return self
                .call("import", || self.simple.import(place, rows))
                .await;
        }
        // Before the others of the queue: these are taken out too.
        let rest = self
            .call("dequeue", || self.simple.dequeue(place, RowPage::default()))
            .await?;
        let mut rows = rows;
        rows.extend(rest);
        for row in rows {
            let now = self.clock.now();
            let ttl = row.message.expires.map(|expires| expires.since(now));
            let entry = row.entry.unwrap_or((LogId(0), 0));
            let row = self
                .state
                .lock()
                .row(Arc::clone(place), row.message, ttl, entry);
            self.call("enqueue", || self.simple.enqueue(row)).await?;
        }
        Ok(())
    }
}
