//! The chunk transfers of a session and the permit for what they hold (P25).
//!
//! Made by the first chunk: most sessions never send one. Of messages it knows only what became of
//! those that were joined last.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::broker::Published;
use crate::clock::Elapsed;
use crate::protocol::chunk::{Assembler, Step};
use crate::protocol::inbound::ProduceChunk;
use crate::transport::{Link, Permit};
use crate::{Error, ErrorKind, Result};

/// Transfers up to this size need no permit.
const FREE_BYTES: usize = 64 << 10;
/// Joined messages whose outcome is remembered, as long as the assembler knows their pieces.
const REMEMBERED: usize = 16;

/// What became of a joined message, once it was taken.
pub(super) type Outcome = Arc<OnceLock<Published>>;

pub(super) struct Transfers {
    assembler: Assembler,
    /// For what the assembler holds, once that is more than a little.
    permit: Option<Permit>,
    joined: VecDeque<(Box<str>, Outcome)>,
    link: Link,
}

impl Transfers {
    /// A joined text may have `max_bytes`, and `max_open` may be under way.
    pub(super) fn new(max_bytes: usize, max_open: usize, link: Link) -> Self {
        Self {
            assembler: Assembler::new(max_bytes).with_open(max_open),
            permit: None,
            joined: VecDeque::new(),
            link,
        }
    }

    /// A transfer was joined: where to note what becomes of its message.
    pub(super) fn joined(&mut self, transfer: &str) -> Outcome {
        self.joined.retain(|(id, _)| **id != *transfer);
        if self.joined.len() == REMEMBERED {
            self.joined.pop_front();
        }
        let outcome = Outcome::default();
        self.joined.push_back((transfer.into(), outcome.clone()));
        outcome
    }

    /// What became of the message of a transfer that was joined before; `None`: it was refused, is
    /// not decided yet, or is not known any more.
    pub(super) fn outcome(&self, transfer: &str) -> Option<Published> {
        let mut joined = self.joined.iter();
        let found = joined.find(|(id, _)| **id == *transfer)?;
        found.1.get().copied()
    }

    /// Takes a piece, in any order.
    ///
    /// # Errors
    /// `chunk_dropped` or `payload_too_large`, once per transfer: it is gone.
    pub(super) fn add(&mut self, chunk: &ProduceChunk<'_>, now: Elapsed) -> Result<Step> {
        let step = self.assembler.add(chunk, now);
        if self.hold_permit() {
            return step;
        }
        self.assembler.drop_transfer(&chunk.transfer);
        self.hold_permit();
        let message = "the chunk transfer was dropped: too much is under way, try again later";
        Err(Error::new(ErrorKind::ChunkDropped, message))
    }

    /// Drops a transfer; its later pieces are late.
    pub(super) fn end(&mut self, transfer: &str) {
        self.assembler.drop_transfer(transfer);
        self.hold_permit();
    }

    /// Drops transfers without a new piece for 30 s; one error for each.
    pub(super) fn sweep(&mut self, now: Elapsed) -> Vec<Error> {
        let errors = self.assembler.sweep(now);
        self.hold_permit();
        errors
    }

    /// Keeps the permit in step with what is held; false: the process has no room for it.
    fn hold_permit(&mut self) -> bool {
        let held = self.assembler.held();
        if held <= FREE_BYTES {
            self.permit = None;
            return true;
        }
        match &mut self.permit {
            Some(permit) => permit.grow(held),
            None => {
                self.permit = self.link.permit(held);
                self.permit.is_some()
            }
        }
    }
}
