//! Rows of a store in line to be told to a copy, each once, in the order in which they came or changed.
//!
//! Knows no row's content.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// A row that is to be told as it is when its turn comes, or a walk over many.
pub(super) trait Turn: Clone + Eq + Hash {
    /// Whether it stands for many.
    fn is_walk(&self) -> bool;
}

/// A walk counts as so many rows: it is not nearly at its end.
pub(super) const WALK: u64 = 10_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Turns<R> {
    line: VecDeque<R>,
    waiting: HashSet<R>,
    walks: u64,
}

impl<R: Turn> Turns<R> {
    pub(super) fn new() -> Self {
        Self {
            line: VecDeque::new(),
            waiting: HashSet::new(),
            walks: 0,
        }
    }

    pub(super) fn add(&mut self, row: R) {
        if self.waiting.insert(row.clone()) {
            self.walks += u64::from(row.is_walk());
            self.line.push_back(row);
        }
    }

    /// Puts the row back that came last.
    #[cfg(feature = "redis")]
    pub(super) fn put_back(&mut self, row: R) {
        if self.waiting.insert(row.clone()) {
            self.walks += u64::from(row.is_walk());
            self.line.push_front(row);
        }
    }

    pub(super) fn next(&mut self) -> Option<R> {
        let row = self.line.pop_front()?;
        self.waiting.remove(&row);
        self.walks -= u64::from(row.is_walk());
        Some(row)
    }

    /// About how many rows are left; `behind` tells how many more one row stands for.
    pub(super) fn left(&self, behind: impl Fn(&R) -> u64) -> u64 {
        let rows = self.line.len() as u64 + self.walks * WALK;
        if rows >= WALK {
            return rows;
        }
        rows + self.line.iter().map(behind).sum::<u64>()
    }
}
