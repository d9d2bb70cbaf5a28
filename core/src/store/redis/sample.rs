//! What all realms hold in sum, for statistics. Counting costs a script for every 200 queues, so it is
//! done at upkeep and for a twentieth of the time at most.

use std::time::Duration;

use crate::Result;
use crate::clock::Timestamp;

use super::super::types::Holding;
use super::answers::{self, Fields};
use super::lanes::Lanes;
use super::script::Script;

/// Counting takes one part of so many of the time.
const SHARE: u32 = 20;
/// But it is not done more often than so.
const LEAST: Duration = Duration::from_millis(900);

impl Lanes {
    /// Counts, if it is time. What fails is tried again later: whoever waits for more is told why.
    pub(super) async fn sample(&self) {
        let clock = &self.hub.clock;
        let began = clock.elapsed();
        if began < self.hub.state.lock().count_at {
            return;
        }
        let counted = self.count().await;
        let took = clock.elapsed().saturating_sub(began);
        let mut state = self.hub.state.lock();
        state.count_at = began + (took * SHARE).max(LEAST);
        match counted {
            Ok(holding) => state.holding = Some(holding),
            Err(error) => tracing::debug!(%error, "what waits could not be counted"),
        }
    }

    async fn count(&self) -> Result<Holding> {
        let mut sum = Holding::default();
        for lane in self.all() {
            let depth = self.realm_depth(&lane).await?;
            sum.messages += depth.count;
            sum.bytes += depth.bytes;
            sum.oldest = sum.oldest.into_iter().chain(depth.oldest).min();
            let args = self.args("counts", Timestamp(0));
            let answer = self.ask(&lane, Script::Read, args).await?;
            let mut fields = Fields::of(answers::text(&answer)?);
            sum.delayed += fields.next::<u64>()?;
            sum.dead_letters += fields.next::<u64>()?;
        }
        Ok(sum)
    }
}
