//! The line of entries nobody has had yet from this courier, in log order.
//!
//! It is filled by pages of the store until it has caught up, then from memory; what memory cannot
//! hold is left to the pages again. Knows seqs and messages, nothing of sessions.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::Message;
use crate::store::{Page, Seq};

/// Entries that are kept when they come from memory.
pub(crate) const MOST_FED: usize = 1024;
/// And bytes of their messages, or one message.
pub(crate) const MOST_FED_BYTES: usize = 1 << 20;
/// Below this the next page is fetched.
const LOW_WATER: usize = 128;

/// An entry in the line.
#[derive(Debug, Clone)]
pub(super) struct Next {
    pub(super) seq: Seq,
    pub(super) message: Arc<Message>,
    /// It may have been sent before this courier began.
    pub(super) repeat: bool,
}

/// The line.
#[derive(Debug)]
pub(super) struct Fresh {
    paged: VecDeque<Next>,
    fed: VecDeque<(Seq, Arc<Message>)>,
    fed_bytes: usize,
    /// Everything up to it was in `paged` or has been taken from `fed`.
    read: Seq,
    /// The last entry of the log that we have heard of.
    head: Seq,
    /// There may be entries after `read` that we have not heard of.
    blind: bool,
    /// Entries up to it may have been sent before this courier began.
    sent_before: Seq,
    /// Except these, ascending.
    unsent: Vec<Seq>,
    /// Entries up to it come from pages only.
    paged_up_to: Seq,
}

impl Fresh {
    /// A line that begins after `low`; `knows_all`: nothing is there that will not be fed. Which
    /// entries up to `changed_at` are for this queue only the store knows.
    pub(super) fn new(
        low: Seq,
        sent_before: Seq,
        unsent: Vec<Seq>,
        knows_all: bool,
        changed_at: Seq,
    ) -> Self {
        Self {
            paged: VecDeque::new(),
            fed: VecDeque::new(),
            fed_bytes: 0,
            read: low,
            head: low,
            blind: !knows_all,
            sent_before,
            unsent,
            paged_up_to: changed_at,
        }
    }

    /// Begins anew after `low`; entries up to `head` come from pages.
    pub(super) fn begin(&mut self, low: Seq, sent_before: Seq, head: Seq) {
        *self = Self::new(low, sent_before, Vec::new(), false, head);
    }

    /// From now on everything comes from pages that say what is ours; nothing that waits here is.
    pub(super) fn share(&mut self, taken: Seq) {
        let unsent = std::mem::take(&mut self.unsent);
        *self = Self::new(taken, self.sent_before, unsent, false, Seq::MAX);
    }

    /// Nothing is ours any more.
    pub(super) fn let_go(&mut self) {
        let unsent = std::mem::take(&mut self.unsent);
        *self = Self::new(self.read, self.sent_before, unsent, true, Seq::MAX);
    }

    /// A page of a shared queue.
    pub(super) fn take_page(&mut self, page: Page) {
        for entry in page.entries {
            self.read = self.read.max(entry.seq);
            self.paged.push_back(Next {
                repeat: entry.attempts > 0,
                seq: entry.seq,
                message: entry.message,
            });
        }
        self.head = self.read;
        self.blind = !page.end;
    }

    /// Whether there may be entries that we have not heard of.
    pub(super) fn is_blind(&self) -> bool {
        self.blind
    }

    /// Everything up to it has been read.
    pub(super) fn read_up_to(&self) -> Seq {
        self.read
    }

    /// The last entry that is here or was.
    pub(super) fn known_up_to(&self) -> Seq {
        self.fed.back().map_or(self.read, |(last, _)| *last)
    }

    /// Entries up to `seq` went by without coming here.
    pub(super) fn missed(&mut self, seq: Seq) {
        self.head = self.head.max(seq);
    }

    /// Whether an entry may have been sent before this courier began.
    pub(super) fn was_sent(&self, seq: Seq) -> bool {
        seq <= self.sent_before && self.unsent.binary_search(&seq).is_err()
    }

    /// Something may be in the store that we do not know of.
    pub(super) fn doubt(&mut self) {
        self.blind = true;
    }

    /// What is here from memory is to come from the pages instead, and all that is still to come of
    /// the entries up to `changed_at`.
    pub(super) fn read_again(&mut self, changed_at: Seq) {
        self.paged_up_to = self.paged_up_to.max(changed_at);
        self.fed.clear();
        self.fed_bytes = 0;
        self.blind = true;
    }

    /// Whether [`Fresh::peek`] shows an entry of a page: those are for this queue.
    pub(super) fn is_paged(&self) -> bool {
        !self.paged.is_empty()
    }

    /// Whether a page should be read now.
    pub(super) fn wants_page(&self) -> bool {
        self.paged.len() <= LOW_WATER
            && match self.fed.front() {
                Some((seq, _)) => *seq > self.read + 1,
                None => self.blind || self.head > self.read,
            }
    }

    /// Whether all pages so far have been taken.
    pub(super) fn has_no_page(&self) -> bool {
        self.paged.is_empty()
    }

    /// Whether nothing of the log waits here or behind what is here.
    pub(super) fn is_caught_up(&self) -> bool {
        self.paged.is_empty() && self.fed.is_empty() && !self.blind && self.head <= self.read
    }

    /// A page that began after [`Fresh::read_up_to`].
    pub(super) fn page(&mut self, page: Page) {
        for entry in page.entries {
            if entry.seq > self.read {
                self.paged.push_back(Next {
                    repeat: self.was_sent(entry.seq),
                    seq: entry.seq,
                    message: entry.message,
                });
            }
        }
        self.read = self.read.max(page.next);
        self.head = self.head.max(self.read);
        self.blind = !page.end && self.head <= self.read;
        while let Some((seq, _)) = self.fed.front()
            && *seq <= self.read
        {
            self.pop_fed();
        }
    }

    /// The next entry of the log, from memory. Kept if it follows what is here and there is room,
    /// else the pages will bring it.
    pub(super) fn feed(&mut self, seq: Seq, message: Arc<Message>) {
        self.head = self.head.max(seq);
        let follows = match self.fed.back() {
            Some((last, _)) => seq == last + 1,
            None => seq > self.read,
        };
        let has_room = self.fed.is_empty()
            || (self.fed.len() < MOST_FED && self.fed_bytes + message.size() <= MOST_FED_BYTES);
        if follows && has_room && seq > self.paged_up_to {
            self.fed_bytes += message.size();
            self.fed.push_back((seq, message));
        }
    }

    /// The next entry, without taking it.
    pub(super) fn peek(&self) -> Option<(Seq, &Arc<Message>, bool)> {
        if let Some(next) = self.paged.front() {
            return Some((next.seq, &next.message, next.repeat));
        }
        let (seq, message) = self.fed.front()?;
        (*seq == self.read + 1).then_some((*seq, message, false))
    }

    /// Takes the entry that [`Fresh::peek`] showed.
    pub(super) fn take(&mut self) -> Option<Next> {
        if let Some(next) = self.paged.pop_front() {
            return Some(next);
        }
        if self.fed.front()?.0 != self.read + 1 {
            return None;
        }
        let (seq, message) = self.pop_fed()?;
        self.read = seq;
        Some(Next {
            seq,
            message,
            repeat: false,
        })
    }

    /// The seq before which nothing of the log waits here, if there is one to wait for.
    pub(super) fn front(&self) -> Option<Seq> {
        match self.paged.front() {
            Some(next) => Some(next.seq),
            None => (!self.is_caught_up()).then_some(self.read + 1),
        }
    }

    /// Drops everything that is here; the seq up to which nothing is left.
    pub(super) fn clear(&mut self) -> Seq {
        self.paged.clear();
        self.fed.clear();
        self.fed_bytes = 0;
        self.read = self.read.max(self.head);
        self.blind = true;
        self.read
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.paged.len() + self.fed.len()
    }

    fn pop_fed(&mut self) -> Option<(Seq, Arc<Message>)> {
        let (seq, message) = self.fed.pop_front()?;
        self.fed_bytes -= message.size();
        Some((seq, message))
    }
}
