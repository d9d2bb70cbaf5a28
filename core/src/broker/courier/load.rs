//! What a courier reads from the store: pages, exceptions, and ids it does not have in hand.
//!
//! Knows what is under way and what failed; the calls themselves are effects.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::{Elapsed, Timestamp};
use crate::store::{Due, Entry as Stored, Hold, Page, PageLimit, Seq, Settled};
use crate::{ErrorKind, Result};

use super::super::queue::{Answer, Outcome, Verdict};
use super::backoff::Backoff;
use super::entry::{Entry, Held, Place, Slot};
use super::keys::MOST_PARKED;
use super::state::State;
use super::{Effect, Now};

/// Retries that are kept here while they wait; more are left to the store.
pub(super) const MOST_WAITING: usize = 1024;
/// Below so many due retries more are read.
const LOW_DUE: usize = 256;
/// The longest wait a stored due time is believed (P15): clocks can be wrong.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// An ACK for an entry that is not in hand.
struct Lookup {
    seq: Seq,
    deadline: Elapsed,
    /// `None`: answered already, because the store took too long.
    answer: Option<Answer>,
}

/// A NACK or WORKING for an entry that is not in hand.
struct Look {
    seq: Seq,
    deadline: Elapsed,
    verdict: Verdict,
    /// Because the store took too long.
    is_answered: bool,
}

/// The reads of one courier.
pub(super) struct Loading {
    page: bool,
    pub(super) page_backoff: Backoff,
    due: bool,
    pub(super) due_backoff: Backoff,
    /// Where looking for exceptions that must be known from the start goes on; `None`: done.
    browse_from: Option<Seq>,
    browsing: bool,
    pub(super) browse_backoff: Backoff,
    /// When the next exception that is not in hand may be due.
    next_due: Option<Timestamp>,
    asked: Vec<Lookup>,
    asking: Vec<Lookup>,
    /// One by one; the first may be under way.
    looks: VecDeque<Look>,
    looking: bool,
    pub(super) ask_backoff: Backoff,
}

impl Loading {
    pub(super) fn new(has_exceptions: bool) -> Self {
        Self {
            page: false,
            page_backoff: Backoff::default(),
            due: false,
            due_backoff: Backoff::default(),
            browse_from: has_exceptions.then_some(0),
            browsing: false,
            browse_backoff: Backoff::default(),
            next_due: None,
            asked: Vec::new(),
            asking: Vec::new(),
            looks: VecDeque::new(),
            looking: false,
            ask_backoff: Backoff::default(),
        }
    }

    /// Begins anew.
    pub(super) fn begin(&mut self, has_exceptions: bool) {
        self.browse_from = has_exceptions.then_some(0);
        self.next_due = None;
    }

    /// No exception is ours any more.
    pub(super) fn let_go(&mut self) {
        self.begin(false);
    }

    /// Exceptions may have come without us.
    pub(super) fn doubt(&mut self) {
        self.next_due = Some(Timestamp(0));
    }

    /// An exception due then is in the store only.
    pub(super) fn left(&mut self, due: Timestamp) {
        self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
    }

    /// The wall clock was set back: what was far away must not be forgotten.
    pub(super) fn clock_went_back(&mut self, now: Timestamp) {
        if self.next_due.is_some() {
            self.left(now);
        }
    }

    /// Exceptions that must be known before anything goes out are still being looked for.
    pub(super) fn is_starting(&self) -> bool {
        self.browse_from.is_some()
    }

    /// Whether entries are on their way here.
    pub(super) fn is_reading(&self) -> bool {
        self.page || self.due || self.browsing
    }

    /// Whether no id is being looked up.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.asking.is_empty() && self.looks.is_empty()
    }

    /// How many ids are being looked up.
    pub(super) fn asked(&self) -> usize {
        self.asked.len() + self.asking.len() + self.looks.len()
    }

    /// Answers that have waited as long as they may; what they settle is kept (P27).
    pub(super) fn late(&mut self, now: Elapsed, effects: &mut Vec<Effect>) {
        let lookups = self.asking.iter_mut().chain(&mut self.asked);
        // They are in the order of their deadlines.
        for lookup in lookups.take_while(|lookup| lookup.deadline <= now) {
            if let Some(answer) = lookup.answer.take() {
                effects.push(Effect::Answer(answer, Outcome::Kept));
            }
        }
        let looks = self.looks.iter_mut();
        for look in looks.take_while(|look| look.deadline <= now) {
            if !std::mem::replace(&mut look.is_answered, true) {
                let silent: Answer = Box::new(|_| ());
                let answer = std::mem::replace(&mut look.verdict.answer, silent);
                effects.push(Effect::Answer(answer, Outcome::Kept));
            }
        }
    }

    pub(super) fn deadline(&self, now: Now) -> Option<Elapsed> {
        let due = self.next_due.filter(|due| *due > now.wall);
        let waits = [
            self.page_backoff.until,
            self.due_backoff.until,
            self.browse_backoff.until,
            self.ask_backoff.until,
            unanswered(&self.asking),
            unanswered(&self.asked),
            self.looks
                .iter()
                .find(|look| !look.is_answered)
                .map(|look| look.deadline),
            due.map(|due| now.elapsed + due.since(now.wall).min(LONGEST_WAIT)),
        ];
        let later = waits.into_iter().flatten().filter(|at| *at > now.elapsed);
        later.min()
    }
}

fn unanswered(lookups: &[Lookup]) -> Option<Elapsed> {
    let mut open = lookups.iter().filter(|lookup| lookup.answer.is_some());
    open.next().map(|lookup| lookup.deadline)
}

impl State {
    /// Asks for what is needed next.
    pub(super) fn read(&mut self, effects: &mut Vec<Effect>) {
        let now = self.now.elapsed;
        let loading = &mut self.loading;
        if !self.is_gone && loading.asking.is_empty() && loading.ask_backoff.is_over(now) {
            loading.asking = std::mem::take(&mut loading.asked);
            if !loading.asking.is_empty() {
                let seqs = loading.asking.iter().map(|lookup| lookup.seq).collect();
                effects.push(Effect::Settle(seqs));
            }
        }
        if !loading.looking
            && loading.ask_backoff.is_over(now)
            && let Some(look) = loading.looks.front()
        {
            loading.looking = true;
            effects.push(Effect::Look { seq: look.seq });
        }
        if !self.is_backed() || self.seats.is_empty() || !self.claiming.may_read() {
            return;
        }
        if let Some(after) = self.loading.browse_from {
            let may = !self.loading.browsing && self.loading.browse_backoff.is_over(now);
            if may && self.held.len() < MOST_PARKED {
                self.loading.browsing = true;
                effects.push(Effect::Browse { after });
            }
            return;
        }
        if !self.loading.page
            && self.loading.page_backoff.is_over(now)
            && let Some(limit) = self.page_limit()
        {
            self.loading.page = true;
            let after = self.fresh.read_up_to();
            effects.push(Effect::Page { after, limit });
        }
        let is_due = self
            .loading
            .next_due
            .is_some_and(|due| due <= self.now.wall);
        let wants_due = is_due && self.due.len() < LOW_DUE && !self.loading.due;
        if wants_due && self.loading.due_backoff.is_over(now) {
            self.loading.due = true;
            effects.push(Effect::Due(self.due_limit()));
        }
    }

    /// What the store has as due includes what is in hand: the read must reach beyond that.
    fn due_limit(&self) -> PageLimit {
        let in_hand = self.held.values().filter(|held| {
            let is_due = held.due() <= self.now.wall;
            is_due && held.entry.row != super::entry::Row::None
        });
        in_hand.fold(PageLimit::default(), |limit, held| PageLimit {
            entries: limit.entries + 1,
            bytes: limit.bytes + held.entry.message.size(),
        })
    }

    pub(super) fn paged(&mut self, page: Result<Page>, effects: &mut Vec<Effect>) {
        self.loading.page = false;
        match page {
            Ok(page) if self.claiming.is_shared() => {
                self.loading.page_backoff.worked();
                self.tally.expired += page.expired;
                self.fresh.take_page(page);
            }
            // It was asked for when the queue was still ours.
            Ok(_) if self.claiming.hold == Hold::Nothing => {}
            Ok(page) => {
                self.loading.page_backoff.worked();
                self.tally.expired += page.expired;
                self.fresh.page(page);
                if self.fresh.has_no_page() {
                    // Nothing in it was for this queue; `low` must not wait for something that is.
                    self.ledger.pass_up_to(self.fresh.read_up_to());
                }
                self.tidy_skip();
            }
            Err(error) if error.kind() == ErrorKind::DeliveryUnknown => self.gone(effects),
            Err(error) if error.kind() == ErrorKind::Fenced => self.fence(),
            Err(_) => {
                self.failed_read(|loading| &mut loading.page_backoff);
                if self.claiming.is_shared() {
                    self.give_up(effects);
                }
            }
        }
    }

    /// Looks through the exceptions for those that must be known before anything goes out: they
    /// hold an ordering key, are suspects, or go before everything new.
    pub(super) fn browsed(&mut self, entries: Result<Vec<Stored>>) {
        self.loading.browsing = false;
        let entries = match entries {
            Ok(entries) => entries,
            Err(_) => return self.failed_read(|loading| &mut loading.browse_backoff),
        };
        self.loading.browse_backoff.worked();
        // Whatever is an exception was in hand once, and so was marked as sent.
        let end = self.start.marked.max(self.start.low);
        if self.loading.browse_from == Some(0) {
            self.start.has_exceptions = false;
        }
        self.loading.browse_from = match entries.last() {
            Some(last) if last.seq < end => Some(last.seq),
            _ => None,
        };
        for entry in entries {
            let Some(due) = entry.due else { continue };
            self.start.has_exceptions = true;
            let first = entry.message.key.is_some() || entry.suspect || due == Timestamp(0);
            if first && self.held.len() < MOST_PARKED {
                self.admit(entry);
            } else {
                self.loading.left(due);
            }
        }
        self.tidy_skip();
        self.tidy_over();
    }

    pub(super) fn due_read(&mut self, due: Result<Due>) {
        self.loading.due = false;
        match due {
            Ok(due) => {
                self.loading.due_backoff.worked();
                self.tally.expired += due.expired;
                // What is in hand is among it; that costs a look too many, never a message.
                self.loading.next_due = due.next;
                let before = self.held.len();
                for entry in due.entries {
                    self.admit(entry);
                }
                let is_cut = due.next.is_some_and(|next| next <= self.now.wall);
                if is_cut && self.held.len() == before {
                    // Nothing new and yet more: do not spin on it.
                    self.loading.due_backoff.failed(self.now.elapsed);
                }
                self.tidy_skip();
                self.tidy_over();
            }
            Err(error) if error.kind() == ErrorKind::Fenced => self.fence(),
            Err(_) => self.failed_read(|loading| &mut loading.due_backoff),
        }
    }

    /// Takes an exception in hand, unless it is already.
    fn admit(&mut self, stored: Stored) {
        let slot = Slot::stored(stored.seq);
        if self.held.contains_key(&slot)
            || self.skip.contains(&stored.seq)
            || self.over.contains_key(&stored.seq)
        {
            return;
        }
        let due = stored.due.unwrap_or_default();
        let entry = self.excepted(stored);
        let wait = due.since(self.now.wall).min(LONGEST_WAIT);
        let place = if wait > Duration::ZERO {
            let at = self.now.elapsed + wait;
            Place::Waiting { due, at }
        } else if entry.is_suspect() {
            Place::Suspect
        } else if due == Timestamp(0) {
            Place::Again
        } else {
            Place::Due
        };
        let key = entry.message.key.clone();
        let size = entry.message.size();
        self.held.insert(
            slot,
            Held {
                entry,
                place: Place::Parked,
            },
        );
        if key.is_none_or(|key| self.keys.claim(0, &key, slot, size)) {
            self.put(slot, place);
        }
    }

    /// An exception as it is: where its row was written while it waited for its key, its first send
    /// was only marked.
    pub(super) fn excepted(&self, stored: Stored) -> Entry {
        let was_sent = self.fresh.was_sent(stored.seq);
        let mut entry = Entry::excepted(stored);
        entry.attempts = entry.attempts.max(u32::from(was_sent));
        entry
    }

    /// An ACK for an entry that is not in hand: the store knows.
    pub(super) fn look_up(&mut self, seq: Seq, answer: Answer) {
        // Only what was out once can be settled so: an id that was guessed must not make an entry
        // disappear that is still to come.
        self.skip_if_out(seq);
        self.loading.asked.push(Lookup {
            seq,
            deadline: self.now.elapsed + self.start.store_timeout,
            answer: Some(answer),
        });
    }

    pub(super) fn looked_up(&mut self, outcome: Result<Vec<Settled>>, effects: &mut Vec<Effect>) {
        let asking = std::mem::take(&mut self.loading.asking);
        match outcome {
            Ok(settled) => {
                self.loading.ask_backoff.worked();
                for (lookup, settled) in asking.into_iter().zip(settled) {
                    let outcome = match settled {
                        Settled::Now => Outcome::Ok { duplicate: false },
                        Settled::Before => Outcome::Ok { duplicate: true },
                        Settled::Unknown => Outcome::Unknown,
                    };
                    self.tally.settled += u64::from(settled == Settled::Now);
                    effects.extend(lookup.answer.map(|answer| Effect::Answer(answer, outcome)));
                }
            }
            Err(error) if error.kind() == ErrorKind::DeliveryUnknown => {
                let answers = asking.into_iter().filter_map(|lookup| lookup.answer);
                effects.extend(answers.map(|answer| Effect::Answer(answer, Outcome::Unknown)));
            }
            Err(_) => {
                self.failed_read(|loading| &mut loading.ask_backoff);
                let later = std::mem::replace(&mut self.loading.asked, asking);
                self.loading.asked.extend(later);
            }
        }
        self.tidy_skip();
    }

    /// A NACK or WORKING for an entry that is not in hand: the store knows where it is.
    pub(super) fn look_at(&mut self, seq: Seq, verdict: Verdict) {
        self.loading.looks.push_back(Look {
            seq,
            deadline: self.now.elapsed + self.start.store_timeout,
            verdict,
            is_answered: false,
        });
    }

    pub(super) fn looked(&mut self, found: Result<Vec<Stored>>, effects: &mut Vec<Effect>) {
        self.loading.looking = false;
        let found = match found {
            Ok(entries) => entries.into_iter().next(),
            Err(error) if error.kind() == ErrorKind::DeliveryUnknown => None,
            Err(_) => return self.failed_read(|loading| &mut loading.ask_backoff),
        };
        self.loading.ask_backoff.worked();
        if let Some(look) = self.loading.looks.pop_front() {
            let found = found.filter(|entry| entry.seq == look.seq);
            self.judge_stored(Slot::stored(look.seq), look.verdict, found, effects);
        }
        self.tidy_skip();
    }

    /// Whether an entry that is not in hand may have been out.
    pub(super) fn was_out(&self, seq: Seq) -> bool {
        seq <= self.ledger.taken() || self.fresh.was_sent(seq)
    }

    /// What was out once ends while it is not in hand: no read that is to come, or under way, brings
    /// it back.
    pub(super) fn skip_if_out(&mut self, seq: Seq) {
        let may_come = seq > self.ledger.taken() || self.loading.is_reading();
        if may_come && self.was_out(seq) {
            self.skip.insert(seq);
        }
    }

    /// Forgets ended entries whose rows no read can bring any more. A read
    /// that is under way may have begun before the write.
    pub(super) fn tidy_over(&mut self) {
        if !self.over.is_empty() && !self.loading.is_reading() {
            let written = self.ledger.writes_done();
            self.over.retain(|_, write| *write >= written);
        }
    }

    /// Forgets ids that can no longer come up.
    fn tidy_skip(&mut self) {
        if !self.skip.is_empty() && !self.loading.is_reading() && self.loading.is_idle() {
            let (taken, read) = (self.ledger.taken(), self.fresh.known_up_to());
            self.skip.retain(|seq| *seq > taken && *seq <= read);
        }
    }
}
