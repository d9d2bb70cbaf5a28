//! The entries of one queue that were not settled in their turn. Each holds its own message, so
//! that the log need not keep it. Knows no log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::Message;

use super::super::state;
use super::super::types::{Entry, Exception, Seq};

pub(in super::super) type Row = state::Row<Arc<Message>>;

impl Row {
    pub(in super::super) fn entry(&self) -> Entry {
        let state = &self.state;
        Entry {
            seq: state.seq,
            message: Arc::clone(&self.held),
            attempts: state.attempts,
            failures: state.failures,
            returns: state.returns,
            due: Some(state.due),
            first_error: state.first_error.clone(),
            last_error: state.last_error.clone(),
            suspect: state.suspect,
        }
    }
}

/// By seq, with an order of due times beside it.
#[derive(Debug, Default)]
pub(in super::super) struct Exceptions {
    rows: BTreeMap<Seq, Row>,
    due: BTreeSet<(Timestamp, Seq)>,
    bytes: u64,
}

impl Exceptions {
    pub(in super::super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Of their messages.
    pub(in super::super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(in super::super) fn insert(&mut self, row: Row) {
        self.take(row.state.seq);
        self.due.insert((row.state.due, row.state.seq));
        self.bytes += row.held.size() as u64;
        self.rows.insert(row.state.seq, row);
    }

    pub(in super::super) fn take(&mut self, seq: Seq) -> Option<Row> {
        let row = self.rows.remove(&seq)?;
        self.due.remove(&(row.state.due, seq));
        self.bytes -= row.held.size() as u64;
        Some(row)
    }

    /// Changes the state of an exception; whether there is one.
    pub(in super::super) fn change(&mut self, state: &Exception) -> bool {
        let Some(row) = self.rows.get_mut(&state.seq) else {
            return false;
        };
        if row.state.due != state.due {
            self.due.remove(&(row.state.due, state.seq));
            self.due.insert((state.due, state.seq));
        }
        row.state = state.clone();
        true
    }

    pub(in super::super) fn get(&self, seq: Seq) -> Option<&Row> {
        self.rows.get(&seq)
    }

    /// Those after `after` by seq.
    pub(in super::super) fn after(&self, after: Seq) -> impl Iterator<Item = &Row> {
        let from = after.saturating_add(1);
        self.rows.range(from..).map(|(_, row)| row)
    }

    /// Due times and seqs in order.
    pub(in super::super) fn by_due(&self) -> impl Iterator<Item = (Timestamp, Seq)> + '_ {
        self.due.iter().copied()
    }
}
