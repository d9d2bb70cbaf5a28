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
}
