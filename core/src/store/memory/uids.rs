//! Users' own ids of one realm, in memory (P16). Times are those of the messages.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::MessageId;

use super::super::state::Uids;
use super::super::types::Bounds;

/// By id, with a line of ages beside it.
#[derive(Debug, Default)]
pub(crate) struct MemoryUids {
    uids: HashMap<Arc<str>, (MessageId, Timestamp)>,
    line: VecDeque<(Timestamp, Arc<str>)>,
    /// How many have left the line.
    ended: u64,
}

impl Uids for MemoryUids {
    fn find(&self, uid: &Arc<str>) -> Option<(MessageId, Timestamp)> {
        self.uids.get(uid).copied()
    }

    fn set(&mut self, uid: Arc<str>, id: MessageId, now: Timestamp) {
        self.line.push_back((now, Arc::clone(&uid)));
        self.uids.insert(uid, (id, now));
    }

    fn end(&mut self, now: Timestamp, bounds: &Bounds) {
        while let Some((at, _)) = self.line.front() {
            let is_over = self.line.len() > bounds.dedupe_max;
            if !is_over && now.since(*at) < bounds.dedupe_window {
                return;
            }
            self.ended += 1;
            if let Some((at, uid)) = self.line.pop_front()
                && self.uids.get(&uid).is_some_and(|(_, newest)| *newest == at)
            {
                self.uids.remove(&uid);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.uids.is_empty()
    }

    fn after(
        &self,
        after: u64,
        most: usize,
    ) -> (Vec<(Arc<str>, MessageId, Timestamp)>, Option<u64>) {
        let skip = usize::try_from(after.saturating_sub(self.ended)).unwrap_or(usize::MAX);
        let places = self.line.iter().skip(skip).take(most);
        let count = places.len() as u64;
        let rows = places.filter_map(|(at, uid)| {
            let (id, newest) = *self.uids.get(uid)?;
            (newest == *at).then(|| (Arc::clone(uid), id, *at))
        });
        let last = after.max(self.ended) + count;
        (rows.collect(), (count > 0).then_some(last))
    }
}
