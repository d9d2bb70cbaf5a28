//! What is to be told to the store, queue by queue in order, one call of a queue at a time.
//!
//! Knows which calls there are and what belongs together in one; not what their answers mean.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::Result;
use crate::clock::Elapsed;
use crate::model::RealmId;

use super::super::simple::{Methods, NewRow, Place, RowId, RowPage};
use super::super::types::{DeadLetter, QueueId, Seq};
use super::queue::Cell;

/// Rows in one `enqueue_many`.
const MOST_ROWS: usize = 256;
/// Ids in one `ack_many`.
const MOST_IDS: usize = 1024;

/// Who hears of the outcome of an operation.
pub(super) type Told = Option<oneshot::Sender<Result<()>>>;

/// Why a row is stored.
#[derive(Debug)]
pub(super) enum Purpose {
    /// For an append.
    Append(u64),
    /// A dead letter comes back.
    Revive(Box<DeadLetter>, Told),
}

/// How it goes on after [`Op::Try`].
#[derive(Debug)]
pub(super) enum Then {
    /// With [`Op::Load`] behind this row.
    Load(Option<RowId>),
    /// It was for its own sake.
    Nothing,
}

/// One thing to do.
#[derive(Debug)]
pub(super) enum Op {
    /// Store a row; refused if it has waited for too long.
    Enqueue {
        purpose: Purpose,
        cell: Cell,
        row: NewRow,
        since: Elapsed,
    },
    /// Drop rows.
    Ack { cells: Vec<Cell>, told: Told },
    /// Make a row a dead letter.
    Bury {
        cell: Cell,
        reason: Arc<str>,
        told: Told,
    },
    /// Drop a dead letter.
    Discard { cell: Cell, realm: RealmId },
    /// Learn of the rows of earlier processes, those behind `after`.
    Load {
        place: Arc<Place>,
        after: Option<RowId>,
    },
    /// See whether `dequeue` has left this row in the store, then go on. `None`: ask for one first.
    Try {
        place: Arc<Place>,
        first: Option<RowId>,
        then: Then,
    },
    /// Get messages again from this entry on.
    Fetch {
        place: Arc<Place>,
        from: Seq,
        page: RowPage,
    },
    /// Drop whatever rows there are.
    Drain { place: Arc<Place>, told: Told },
    /// Drop a realm.
    PurgeRealm { realm: RealmId, told: Told },
}

/// A call to the store.
#[derive(Debug)]
pub(super) enum Call {
    Enqueue(Vec<NewRow>),
    Ack(Vec<RowId>),
    Bury(RowId, Arc<str>),
    Discard(RowId, RealmId),
    Dequeue(Arc<Place>, RowPage),
    PurgeRealm(RealmId),
    /// There is nothing to say: its rows were never stored.
    Nothing,
    /// Rows that have waited for too long: nobody waits for them any more.
    Late,
}

/// A call, and what it is for.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) queue: QueueId,
    pub(super) ops: Vec<Op>,
    pub(super) call: Call,
}

/// What waits for the store in one queue.
#[derive(Debug, Default)]
struct Line {
    ops: VecDeque<Op>,
    /// Rows that could not be dropped yet (P27).
    owed: Vec<RowId>,
    /// It stands in `ready`, or its call is under way.
    is_busy: bool,
}

/// All lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: HashMap<QueueId, Line>,
    ready: VecDeque<QueueId>,
    pub(super) methods: Methods,
    /// How long a row may wait.
    pub(super) patience: Duration,
}

impl Lines {
    pub(super) fn push(&mut self, queue: QueueId, op: Op) {
        let line = self.lines.entry(queue).or_default();
        line.ops.push_back(op);
        Self::wake(queue, line, &mut self.ready);
    }

    /// Puts something before all that waits: the rest of what is under way.
    pub(super) fn push_front(&mut self, queue: QueueId, op: Op) {
        let line = self.lines.entry(queue).or_default();
        line.ops.push_front(op);
        Self::wake(queue, line, &mut self.ready);
    }

    fn wake(queue: QueueId, line: &mut Line, ready: &mut VecDeque<QueueId>) {
        if !line.is_busy {
            line.is_busy = true;
            ready.push_back(queue);
        }
    }

    /// Rows that are still to be dropped.
    pub(super) fn owe(&mut self, queue: QueueId, ids: Vec<RowId>) {
        if !ids.is_empty() {
            self.lines.entry(queue).or_default().owed.extend(ids);
        }
    }

    /// Tries again what could not be dropped.
    pub(super) fn retry_owed(&mut self) {
        for (queue, line) in &mut self.lines {
            if !line.owed.is_empty() && !line.is_busy {
                let (cells, told) = (Vec::new(), None);
                line.ops.push_back(Op::Ack { cells, told });
                Self::wake(*queue, line, &mut self.ready);
            }
        }
    }

    /// The call of this queue has been answered.
    pub(super) fn done(&mut self, queue: QueueId) {
        let Some(line) = self.lines.get_mut(&queue) else {
            return;
        };
        line.is_busy = false;
        if !line.ops.is_empty() {
            Self::wake(queue, line, &mut self.ready);
        } else if line.owed.is_empty() {
            self.lines.remove(&queue);
        }
    }

    /// The next call.
    pub(super) fn next(&mut self, now: Elapsed) -> Option<Job> {
        let patience = self.patience;
        let is_late = |op: &Op| matches!(op, Op::Enqueue { since, .. } if now.saturating_sub(*since) > patience);
        let queue = self.ready.pop_front()?;
        let line = self.lines.get_mut(&queue)?;
        let mut ops: Vec<Op> = line.ops.pop_front().into_iter().collect();
        let most = match ops.first() {
            Some(first @ Op::Enqueue { .. }) if self.methods.enqueue_many || is_late(first) => {
                MOST_ROWS
            }
            Some(Op::Ack { .. }) => MOST_IDS,
            _ => 1,
        };
        while ops.len() < most
            && let (Some(first), Some(next)) = (ops.first(), line.ops.front())
            && std::mem::discriminant(first) == std::mem::discriminant(next)
            && is_late(first) == is_late(next)
        {
            ops.extend(line.ops.pop_front());
        }
        let call = match ops.first() {
            Some(first) if is_late(first) => Call::Late,
            Some(Op::Enqueue { .. }) => Call::Enqueue(ops.iter().filter_map(row_of).collect()),
            Some(Op::Ack { .. }) => ack(&ops, line),
            Some(Op::Bury { cell, reason, .. }) => cell.id().map_or(Call::Nothing, |id| {
                Call::Bury(id.clone(), Arc::clone(reason))
            }),
            Some(Op::Discard { cell, realm }) => cell
                .id()
                .map_or(Call::Nothing, |id| Call::Discard(id.clone(), realm.clone())),
            Some(Op::Load { place, after }) => {
                let limit = Some(super::load::PAGE);
                Call::Dequeue(
                    Arc::clone(place),
                    RowPage {
                        limit,
                        after: after.clone(),
                    },
                )
            }
            Some(Op::Try { place, .. }) => {
                let (limit, after) = (Some(1), None);
                Call::Dequeue(Arc::clone(place), RowPage { limit, after })
            }
            Some(Op::Fetch { place, page, .. }) => Call::Dequeue(Arc::clone(place), page.clone()),
            Some(Op::Drain { place, .. }) => Call::Dequeue(Arc::clone(place), RowPage::default()),
            Some(Op::PurgeRealm { realm, .. }) => Call::PurgeRealm(realm.clone()),
            None => Call::Nothing,
        };
        Some(Job { queue, ops, call })
    }
}

fn row_of(op: &Op) -> Option<NewRow> {
    match op {
        Op::Enqueue { row, .. } => Some(row.clone()),
        _ => None,
    }
}

fn ack(ops: &[Op], line: &mut Line) -> Call {
    let mut ids = std::mem::take(&mut line.owed);
    for op in ops {
        if let Op::Ack { cells, .. } = op {
            // One without an id was never stored.
            ids.extend(cells.iter().filter_map(|cell| cell.id().cloned()));
        }
    }
    match ids.is_empty() {
        true => Call::Nothing,
        false => Call::Ack(ids),
    }
}
