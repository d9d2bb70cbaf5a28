//! What an export has still to tell: rows in the order in which they came or changed, each once.
//!
//! It begins with every realm, log and queue there is and a walk over what may be many; what changes
//! while it lasts goes to the end of the line. So a row never comes before those it refers to, and
//! what took a name never before what left it. Ends when nobody holds its cursor any more. Knows no
//! row's content.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::model::{MessageId, RealmId};

use super::super::documents::Collection;
use super::super::record::ExportCursor;
use super::super::turns::{Turn, Turns};
use super::super::types::{DeadLetterId, LogId, QueueId, Seq};

/// A row that is to be told as it is when its turn comes, or a walk over many.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Touched {
    Realm(u64),
    /// With its entries that were not told yet.
    Log(LogId),
    Queue(QueueId),
    Exception(QueueId, Seq),
    /// All exceptions of a queue went at once.
    Exceptions(QueueId),
    Letter(u64, DeadLetterId),
    Delayed(MessageId),
    Mark(u64, Arc<str>),
    Uid(u64, Arc<str>),
    Document(Collection, Arc<str>),
    /// Exceptions of a queue after a seq.
    EachException(QueueId, Seq),
    /// Dead letters of a realm after one.
    EachLetter(u64, Option<DeadLetterId>),
    /// Delayed messages after a due time and place.
    EachDelayed(Option<(u64, u64)>),
    /// Users' ids of a realm after a place.
    EachUid(u64, u64),
    /// Documents after one.
    EachDocument(Option<(Collection, Arc<str>)>),
}

impl Turn for Touched {
    fn is_walk(&self) -> bool {
        matches!(
            self,
            Self::EachException(..)
                | Self::EachLetter(..)
                | Self::EachDelayed(_)
                | Self::EachUid(..)
                | Self::EachDocument(_)
        )
    }
}

/// What is still to be told.
#[derive(Debug)]
pub(crate) struct Changes {
    cursor: Weak<()>,
    turns: Turns<Touched>,
    /// Up to where entries of logs were told.
    pub(crate) told: HashMap<LogId, Seq>,
    pub(crate) names: HashMap<u64, RealmId>,
    /// The walk over delayed messages has not come to its end.
    pub(crate) is_walking_delayed: bool,
}

impl Changes {
    pub(crate) fn new(cursor: &ExportCursor) -> Self {
        Self {
            cursor: Arc::downgrade(&cursor.0),
            turns: Turns::new(),
            told: HashMap::new(),
            names: HashMap::new(),
            is_walking_delayed: false,
        }
    }

    pub(crate) fn is_of(&self, cursor: &ExportCursor) -> bool {
        std::ptr::eq(self.cursor.as_ptr(), Arc::as_ptr(&cursor.0))
    }

    /// Nobody goes on with it.
    pub(crate) fn is_over(&self) -> bool {
        self.cursor.strong_count() == 0
    }

    pub(crate) fn add(&mut self, row: Touched) {
        self.turns.add(row);
    }

    pub(crate) fn next(&mut self) -> Option<Touched> {
        self.turns.next()
    }

    /// About how many rows are left; `entries` tells how many of a log are after a seq.
    pub(crate) fn left(&self, entries: impl Fn(LogId, Seq) -> u64) -> u64 {
        self.turns.left(|row| match row {
            Touched::Log(log) => entries(*log, self.told.get(log).copied().unwrap_or(0)),
            _ => 0,
        })
    }
}
