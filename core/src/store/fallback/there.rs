//! The queues that a store has, by what names them and by what they read.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::settings;
use super::super::types::{LogId, QueueId, QueueRecord, QueueSpec};
use crate::model::{Key, RealmId};

/// What names a queue.
pub(super) type Place = (RealmId, Key, u8, Arc<str>);

pub(super) fn place(spec: &QueueSpec) -> Place {
    let kind = settings::kind_number(spec.kind);
    (
        spec.realm.clone(),
        spec.key.clone(),
        kind,
        spec.name.clone(),
    )
}

/// The queues of the other store: nothing is looked through for each of them.
pub(super) struct There {
    by_place: HashMap<Place, QueueRecord>,
    by_log: HashMap<LogId, Vec<QueueId>>,
}

impl There {
    pub(super) fn new(records: Vec<QueueRecord>) -> Self {
        let mut there = Self {
            by_place: HashMap::with_capacity(records.len()),
            by_log: HashMap::new(),
        };
        for record in records {
            let readers = there.by_log.entry(record.log).or_default();
            readers.push(record.queue);
            there.by_place.insert(place(&record.spec), record);
        }
        there
    }

    /// The queue that goes by the same names.
    pub(super) fn find(&self, spec: &QueueSpec) -> Option<&QueueRecord> {
        self.by_place.get(&place(spec))
    }

    /// The other readers of a log.
    pub(super) fn others(&self, log: Option<LogId>, but: QueueId) -> Vec<QueueId> {
        let readers = log.and_then(|log| self.by_log.get(&log));
        let readers = readers.into_iter().flatten().copied();
        readers.filter(|queue| *queue != but).collect()
    }
}
