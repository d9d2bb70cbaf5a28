//! What is to be written: settled entries, exceptions, burials, the sent mark, and who waits for it.
//!
//! It gathers what happens while one write is under way into the next one, so that the acks of a
//! batch are one store call, and keeps what could not be written until it can be (P27). `low` is
//! never pinned: an entry that outlives many later ones becomes an exception. Calls no store itself.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Elapsed;
use crate::store::{Burial, QueueChange, Seq};

use super::super::queue::{Answer, Outcome};
use super::backoff::Backoff;
use super::entry::{Row, Slot, Table};

/// An entry that outlives so many later settlements becomes an exception.
pub(super) const MOST_SETTLED_ABOVE: usize = 4096;
/// And one that outlives others by so long.
const LONGEST_PIN: Duration = Duration::from_secs(5);
/// The sent mark moves in blocks that grow from this many entries …
const FIRST_BLOCK: u64 = 64;
/// … to this many.
const LARGEST_BLOCK: u64 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// In hand, and pins `low`.
    Open,
    /// `low` may pass it.
    Passed,
}

/// A verdict whose answer waits for the write that holds it.
struct Waiting {
    write: u64,
    deadline: Elapsed,
    answer: Answer,
    outcome: Outcome,
}

/// The ledger of one courier.
pub(super) struct Ledger {
    /// What was taken in hand, from the first that is open: all before that is settled, an
    /// exception, or not for this queue, as is what lies between them. However far apart they are,
    /// only they cost room.
    marks: VecDeque<(Seq, Mark)>,
    /// How many of `marks` are open.
    open: usize,
    /// The last entry that was taken in hand or passed.
    taken: Seq,
    /// The last one that was settled.
    top: Seq,
    /// Entries up to it that are still open at `next_check` become exceptions.
    checkpoint: Seq,
    next_check: Option<Elapsed>,
    low_written: Seq,
    done: Vec<Seq>,
    clear: Vec<Seq>,
    bury: Vec<Burial>,
    dirty: Vec<Seq>,
    /// Entries up to it may be sent.
    sent: Seq,
    sent_wanted: Seq,
    block: u64,
    flight: Option<QueueChange>,
    backoff: Backoff,
    waiting: VecDeque<Waiting>,
    writes: u64,
    done_writes: u64,
    /// What of `done` the low of the writes that have not been answered stands for.
    below: Vec<Seq>,
    /// Others have a part of the queue, so that a low says nothing.
    is_shared: bool,
}

impl Ledger {
    /// A ledger of a queue that is settled up to `low` and marked as sent up to `sent`.
    pub(super) fn new(low: Seq, sent: Seq) -> Self {
        Self {
            marks: VecDeque::new(),
            open: 0,
            taken: low,
            top: 0,
            checkpoint: 0,
            next_check: None,
            low_written: low,
            done: Vec::new(),
            clear: Vec::new(),
            bury: Vec::new(),
            dirty: Vec::new(),
            sent,
            sent_wanted: sent,
            block: FIRST_BLOCK,
            flight: None,
            backoff: Backoff::default(),
            waiting: VecDeque::new(),
            writes: 0,
            done_writes: 0,
            below: Vec::new(),
            is_shared: false,
        }
    }

    /// Begins anew with a queue that is settled and marked as that.
    pub(super) fn begin(&mut self, low: Seq, sent: Seq, is_shared: bool) {
        self.marks.clear();
        self.open = 0;
        (self.taken, self.low_written, self.top) = (low, low, 0);
        (self.sent, self.sent_wanted, self.block) = (sent, sent, FIRST_BLOCK);
        (self.checkpoint, self.next_check) = (0, None);
        self.is_shared = is_shared;
    }

    /// Others have a part of the queue from now on.
    pub(super) fn share(&mut self) {
        self.is_shared = true;
        self.sent_wanted = self.sent;
        if self.flight.is_none() {
            self.done.append(&mut self.below);
        }
    }

    /// Forgets everything: what was settled and is not known to be written, and who waits for that.
    pub(super) fn let_go(&mut self) -> (Vec<Seq>, Vec<(Answer, Outcome)>) {
        let mut settled = std::mem::take(&mut self.below);
        settled.append(&mut self.flight.take().unwrap_or_default().done);
        settled.append(&mut self.done);
        self.purge(self.taken());
        (self.low_written, self.sent_wanted) = (self.low(), self.sent);
        (settled, self.take_answers(|_, _| true))
    }

    /// Nothing behind `sent` has been sent.
    pub(super) fn unmark(&mut self, sent: Seq) {
        self.sent = self.sent.min(sent);
        self.sent_wanted = self.sent;
    }

    /// Everything up to it is settled or an exception.
    pub(super) fn low(&self) -> Seq {
        self.marks
            .front()
            .map_or(self.taken, |(first, _)| first - 1)
    }

    /// The last entry that was taken in hand.
    pub(super) fn taken(&self) -> Seq {
        self.taken
    }

    /// The sent mark as the store has it.
    pub(super) fn sent(&self) -> Seq {
        self.sent
    }

    /// Everything up to `seq` that was not opened is not for this queue or settled.
    pub(super) fn pass_up_to(&mut self, seq: Seq) {
        self.taken = self.taken.max(seq);
    }

    /// `seq` is taken in hand; what lies between it and the one before is not for this queue.
    pub(super) fn open(&mut self, seq: Seq) {
        self.open += 1;
        // Of a shared queue an earlier one may come later.
        if seq > self.taken {
            self.marks.push_back((seq, Mark::Open));
            self.taken = seq;
            return;
        }
        match self.marks.binary_search_by_key(&seq, |(seq, _)| *seq) {
            Ok(at) => {
                self.open -= usize::from(self.marks[at].1 == Mark::Open);
                self.marks[at].1 = Mark::Open;
            }
            Err(at) => self.marks.insert(at, (seq, Mark::Open)),
        }
    }

    /// `seq` is settled.
    pub(super) fn settle(&mut self, seq: Seq, row: Row) {
        self.pass(seq);
        self.top = self.top.max(seq);
        if matches!(row, Row::Sent | Row::Changed) {
            self.clear.push(seq);
        }
        self.done.push(seq);
    }

    /// It becomes a dead letter.
    pub(super) fn bury(&mut self, burial: Burial) {
        self.pass(burial.seq);
        self.top = self.top.max(burial.seq);
        self.bury.push(burial);
    }

    /// Its exception row is new or has changed.
    pub(super) fn except(&mut self, seq: Seq, row: &mut Row) {
        self.pass(seq);
        *row = match *row {
            Row::None => Row::Wanted,
            Row::Sent => Row::Changed,
            Row::Wanted | Row::Changed => return,
        };
        self.dirty.push(seq);
    }

    /// Forgets what is to be written: everything up to `seq` is gone from the store.
    pub(super) fn purge(&mut self, seq: Seq) {
        for list in [&mut self.done, &mut self.clear, &mut self.dirty] {
            list.clear();
        }
        self.bury.clear();
        self.marks.clear();
        self.open = 0;
        self.taken = self.taken.max(seq);
    }

    fn pass(&mut self, seq: Seq) {
        let Ok(at) = self.marks.binary_search_by_key(&seq, |(seq, _)| *seq) else {
            return;
        };
        if self.marks[at].1 == Mark::Open {
            self.marks[at].1 = Mark::Passed;
            self.open -= 1;
            let is_passed = |mark: &mut (Seq, Mark)| mark.1 == Mark::Passed;
            while self.marks.pop_front_if(is_passed).is_some() {}
        }
    }

    /// Entries above `low` that do not pin it.
    fn passed(&self) -> usize {
        let above = usize::try_from(self.taken - self.low()).unwrap_or(usize::MAX);
        above - self.open
    }

    /// Entries that pin `low` for too long; each must be excepted.
    pub(super) fn overdue(&mut self, now: Elapsed) -> Vec<Seq> {
        let mut overdue = Vec::new();
        // As many are passed behind the first open one as `low` may wait for; of these half.
        let mut above = self.passed();
        if above > MOST_SETTLED_ABOVE {
            let mut before = self.low();
            for (seq, mark) in &self.marks {
                let between = usize::try_from(seq - before - 1).unwrap_or(usize::MAX);
                above = above.saturating_sub(between);
                before = *seq;
                match mark {
                    _ if above <= MOST_SETTLED_ABOVE / 2 => break,
                    Mark::Passed => above -= 1,
                    Mark::Open => overdue.push(*seq),
                }
            }
        }
        let is_pinned = self.passed() > 0;
        match self.next_check {
            None if is_pinned => {
                self.checkpoint = self.taken();
                self.next_check = Some(now + LONGEST_PIN);
            }
            Some(check) if check <= now => {
                let pinned = self.checkpoint.min(self.top);
                let open = self.marks.iter().take_while(|(seq, _)| *seq < pinned);
                let open = open.filter(|(_, mark)| *mark == Mark::Open);
                overdue.extend(open.map(|(seq, _)| *seq));
                self.checkpoint = self.taken();
                self.next_check = is_pinned.then(|| now + LONGEST_PIN);
            }
            _ => {}
        }
        overdue
    }

    /// Whether `seq` may be sent; if not, the mark that allows it is written next.
    pub(super) fn may_send(&mut self, seq: Seq) -> bool {
        if self.is_shared {
            return true;
        }
        // The next block is asked for while half of this one is left, so that nobody waits for it.
        if seq + self.block / 2 > self.sent_wanted {
            self.sent_wanted = self.sent_wanted.max(seq - 1) + self.block;
            self.block = (self.block * 2).min(LARGEST_BLOCK);
        }
        seq <= self.sent
    }

    /// Answers a verdict once what it did is written.
    pub(super) fn answer_later(&mut self, deadline: Elapsed, answer: Answer, outcome: Outcome) {
        self.waiting.push_back(Waiting {
            write: self.writes,
            deadline,
            answer,
            outcome,
        });
    }

    /// How many writes have begun; the next one holds what ends now.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// How many of the first writes are known to be in the store, with all that went before.
    pub(super) fn writes_done(&self) -> u64 {
        self.done_writes
    }

    /// How many verdicts wait for their answer.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next write, if there is anything to write and none is under way.
    pub(super) fn next_write(&mut self, held: &mut Table, now: Elapsed) -> Option<QueueChange> {
        if self.flight.is_some() || !self.backoff.is_over(now) {
            return None;
        }
        // Of a shared queue every entry is told.
        let low = if self.is_shared {
            self.low_written
        } else {
            let low = self.low();
            let below = &mut self.below;
            self.done.retain(|seq| {
                let stays = *seq > low;
                below.extend((!stays).then_some(*seq));
                stays
            });
            low
        };
        let nothing = low == self.low_written
            && self.sent_wanted == self.sent
            && self.done.is_empty()
            && self.clear.is_empty()
            && self.bury.is_empty()
            && self.dirty.is_empty();
        if nothing {
            return None;
        }
        let mut except = Vec::with_capacity(self.dirty.len());
        for seq in self.dirty.drain(..) {
            if let Some(held) = held.get_mut(&Slot::stored(seq))
                && matches!(held.entry.row, Row::Wanted | Row::Changed)
            {
                held.entry.row = Row::Sent;
                except.push(held.entry.exception(seq, held.due()));
            }
        }
        let change = QueueChange {
            low: (low > self.low_written).then_some(low),
            done: std::mem::take(&mut self.done),
            sent: (self.sent_wanted > self.sent).then_some(self.sent_wanted),
            except,
            clear: std::mem::take(&mut self.clear),
            bury: std::mem::take(&mut self.bury),
        };
        self.writes += 1;
        self.flight = Some(change.clone());
        Some(change)
    }

    /// The write under way is in the store: the answers that waited for it, and what it wrote.
    pub(super) fn written(&mut self) -> (Vec<(Answer, Outcome)>, QueueChange) {
        let change = self.flight.take().unwrap_or_default();
        self.backoff.worked();
        self.below.clear();
        self.done_writes = self.writes;
        self.low_written = change.low.unwrap_or(self.low_written);
        self.sent = change.sent.unwrap_or(self.sent);
        (
            self.take_answers(|waiting, writes| waiting.write < writes),
            change,
        )
    }

    /// The write under way failed: it goes into the next one.
    pub(super) fn not_written(&mut self, held: &mut Table, now: Elapsed) {
        self.backoff.failed(now);
        let Some(mut change) = self.flight.take() else {
            return;
        };
        for exception in &change.except {
            if let Some(held) = held.get_mut(&Slot::stored(exception.seq))
                && held.entry.row == Row::Sent
            {
                // It may be there all the same.
                held.entry.row = Row::Changed;
                self.dirty.push(exception.seq);
            }
        }
        change.done.append(&mut self.done);
        change.clear.append(&mut self.clear);
        change.bury.append(&mut self.bury);
        (self.done, self.clear, self.bury) = (change.done, change.clear, change.bury);
        if self.is_shared {
            self.done.append(&mut self.below);
        }
    }

    /// The queue is gone from the store: nothing will be written any more.
    pub(super) fn gone(&mut self) -> Vec<(Answer, Outcome)> {
        self.flight = None;
        self.backoff.worked();
        self.purge(self.taken());
        self.low_written = self.low();
        self.sent_wanted = self.sent;
        self.take_answers(|_, _| true)
    }

    /// Answers that have waited as long as they may (P27).
    pub(super) fn late(&mut self, now: Elapsed) -> Vec<(Answer, Outcome)> {
        self.take_answers(|waiting, _| waiting.deadline <= now)
    }

    fn take_answers(&mut self, is_due: impl Fn(&Waiting, u64) -> bool) -> Vec<(Answer, Outcome)> {
        let mut due = Vec::new();
        while let Some(waiting) = self
            .waiting
            .pop_front_if(|first| is_due(first, self.writes))
        {
            due.push((waiting.answer, waiting.outcome));
        }
        due
    }

    /// Whether everything is written and answered.
    pub(super) fn is_clean(&self) -> bool {
        let is_low = self.low() == self.low_written;
        let is_told = |seq: &Seq| *seq <= self.low_written && !self.is_shared;
        self.flight.is_none()
            && self.waiting.is_empty()
            && (is_low || self.is_shared)
            && self.done.iter().all(is_told)
            && self.clear.is_empty()
            && self.bury.is_empty()
            && self.dirty.is_empty()
    }

    /// How much it keeps.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let lists = [&self.done, &self.clear, &self.dirty];
        let lists: usize = lists.into_iter().map(Vec::len).sum();
        self.marks.len() + lists + self.bury.len() + self.waiting.len()
    }

    /// Nothing beyond what is marked will be sent for now.
    pub(super) fn want_no_more(&mut self) {
        if self.flight.is_none() {
            self.sent_wanted = self.sent;
        }
    }

    /// When to look again.
    pub(super) fn deadline(&self, now: Elapsed) -> Option<Elapsed> {
        let answer = self.waiting.front().map(|first| first.deadline);
        let moments = [answer, self.next_check, self.backoff.until].into_iter();
        // A backoff that is over stays until its call has worked.
        moments.flatten().filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_a_log_costs_no_room() {
        let mut ledger = Ledger::new(0, 0);
        ledger.open(1);
        ledger.open(1 << 60);
        ledger.pass_up_to(1 << 61);
        assert_eq!(
            (ledger.low(), ledger.taken(), ledger.len()),
            (0, 1 << 61, 2)
        );
        ledger.settle(1, Row::None);
        assert_eq!(ledger.low(), (1 << 60) - 1);
        ledger.settle(1 << 60, Row::None);
        assert_eq!(ledger.low(), 1 << 61);
    }
}
