//! What of its queue this courier may hand out, where several brokers use one store (P18, P29).
//!
//! Who comes for a queue claims it; who is refused a call claims again to know why. One that has lost
//! its queue lets go of all it holds: what was acknowledged here is settled all the same. One that
//! shares it gets only what the store says is its own. Knows no other broker.

use crate::clock::Elapsed;
use crate::store::{Claim, Hold, PageLimit, Position, Seq, Wish};
use crate::{ErrorKind, Result};

use super::super::queue::{Answer, Outcome};
use super::Effect;
use super::backoff::Backoff;
use super::entry::Slot;
use super::state::State;

/// The claim of one courier.
pub(super) struct Claiming {
    pub(super) hold: Hold,
    /// Whether to ask, and by force.
    wants: Option<bool>,
    /// It is asked, and by force.
    asks: Option<bool>,
    /// The store has refused something: another broker may have the queue.
    is_fenced: bool,
    backoff: Backoff,
    /// When to look again.
    again: Option<Elapsed>,
}

impl Claiming {
    /// A queue that has to be claimed, or is all ours.
    pub(super) fn new(is_claimed: bool) -> Self {
        Self {
            hold: match is_claimed {
                true => Hold::Nothing,
                false => Hold::Sole,
            },
            wants: None,
            asks: None,
            is_fenced: false,
            backoff: Backoff::default(),
            again: None,
        }
    }

    /// Whether it is not known what is ours.
    pub(super) fn is_open(&self) -> bool {
        self.is_fenced || self.wants.is_some() || self.asks.is_some()
    }

    /// Whether something is ours to read.
    pub(super) fn may_read(&self) -> bool {
        !self.is_open() && self.hold != Hold::Nothing
    }

    /// Whether what was done may be written: at once, so that it is before what whoever comes next
    /// reads; the store refuses it if the queue is another's.
    pub(super) fn may_write(&self) -> bool {
        !self.is_fenced
    }

    pub(super) fn is_shared(&self) -> bool {
        self.hold == Hold::Shared
    }

    pub(super) fn deadline(&self) -> Option<Elapsed> {
        let retry = self.backoff.until.filter(|_| self.wants.is_some());
        self.again.into_iter().chain(retry).min()
    }

    fn want(&mut self, force: bool) {
        self.wants = Some(force | self.wants.unwrap_or(false));
    }
}

impl State {
    /// Somebody has come for the queue.
    pub(super) fn come(&mut self) {
        if self.start.claims && self.is_backed() {
            self.claiming.want(true);
        }
    }

    /// Another broker has done something to the queue.
    pub(super) fn look(&mut self) {
        if self.start.claims && self.is_backed() && !self.seats.is_empty() {
            self.claiming.want(false);
        }
        if self.claiming.hold != Hold::Nothing {
            self.doubt();
        }
    }

    /// Somebody came for the queue elsewhere, and nobody here since.
    pub(super) fn wanted(&self, effects: &mut Vec<Effect>) {
        if self.claiming.wants != Some(true) && self.claiming.asks != Some(true) {
            effects.extend(self.seats.iter().map(|(at, _)| Effect::Taken(at)));
        }
    }

    /// These entries do not go out any more.
    pub(super) fn settled_elsewhere(&mut self, seqs: &[Seq]) {
        for seq in seqs {
            let slot = Slot::stored(*seq);
            if self.held.contains_key(&slot) {
                self.settle(slot);
            } else {
                self.skip_if_out(*seq);
            }
        }
    }

    /// The store may have more for us.
    pub(super) fn doubt(&mut self) {
        self.fresh.doubt();
        self.loading.doubt();
    }

    /// The store has refused a call: another broker may have the queue.
    pub(super) fn fence(&mut self) {
        self.start.claims = true;
        self.claiming.is_fenced = true;
        self.claiming.want(false);
    }

    /// Asks what is ours, if that is to be known.
    pub(super) fn ask_claim(&mut self, effects: &mut Vec<Effect>) {
        let now = self.now.elapsed;
        if self.claiming.again.is_some_and(|at| at <= now) {
            self.claiming.again = None;
            self.look();
        }
        if !self.is_backed() || self.claiming.asks.is_some() || !self.claiming.backoff.is_over(now)
        {
            return;
        }
        self.claiming.asks = self.claiming.wants.take();
        if let Some(force) = self.claiming.asks {
            let taken = self.ledger.taken();
            effects.push(Effect::Claim(Wish { force, taken }));
        }
    }

    /// What is ours now.
    pub(super) fn claimed(&mut self, claim: Result<Claim>, effects: &mut Vec<Effect>) {
        let now = self.now.elapsed;
        let force = self.claiming.asks.take().unwrap_or(false);
        let claim = match claim {
            Ok(claim) => claim,
            Err(error) if error.kind() == ErrorKind::DeliveryUnknown => return self.gone(effects),
            Err(_) => {
                self.tally.store_failures += 1;
                self.claiming.backoff.failed(now);
                return self.claiming.want(force);
            }
        };
        self.claiming.backoff.worked();
        self.claiming.is_fenced = false;
        let before = std::mem::replace(&mut self.claiming.hold, claim.hold);
        let is_watched = claim.hold != Hold::Sole && !self.seats.is_empty();
        self.claiming.again = is_watched.then(|| now.saturating_add(claim.again));
        match (claim.hold, claim.position) {
            (Hold::Nothing, _) => {
                self.let_go(effects);
                if before != Hold::Nothing || force {
                    self.wanted(effects);
                }
            }
            (_, Some(position)) => {
                self.let_go(effects);
                self.begin(position);
            }
            (Hold::Shared, None) if before == Hold::Sole => {
                self.ledger.share();
                self.fresh.share(self.ledger.taken());
            }
            (_, None) if before == Hold::Nothing => self.doubt(),
            _ => {}
        }
    }

    /// Lets go of everything stored: another broker has it. What was acknowledged is settled.
    fn let_go(&mut self, effects: &mut Vec<Effect>) {
        let (settled, answers) = self.ledger.let_go();
        self.drop_stored();
        self.suspects.clear();
        self.over.clear();
        self.fresh.let_go();
        self.loading.let_go();
        let mut answers = Some(answers).filter(|answers| !answers.is_empty());
        let last = settled.len().saturating_sub(1);
        for (at, seq) in settled.into_iter().enumerate() {
            // The last one is settled when all are.
            let waiting = answers.take_if(|_| at == last);
            self.skip.insert(seq);
            self.look_up(seq, Box::new(move |outcome| answer_all(waiting, &outcome)));
        }
        if let Some(answers) = answers {
            // There were failures only: what failed is back already.
            let back = Outcome::Ok { duplicate: true };
            let each = answers.into_iter();
            effects.extend(each.map(|(answer, _)| Effect::Answer(answer, back.clone())));
        }
    }

    /// The queue is ours, in full or in part, as the store says it is.
    fn begin(&mut self, position: Position) {
        let is_shared = self.claiming.is_shared();
        // Of what the log does not hold yet nothing can have been sent, whatever is marked.
        let sent = position.sent.min(position.head);
        self.start.low = position.low;
        self.start.sent_before = sent;
        self.start.unsent.clear();
        self.start.marked = position.sent;
        self.start.has_exceptions = position.exceptions > 0;
        self.start.takes_all = position.durable;
        self.start.changed_at = position.head;
        self.ledger.begin(position.low, position.sent, is_shared);
        self.loading.begin(position.exceptions > 0);
        self.fresh.begin(position.low, sent, position.head);
        if is_shared {
            self.fresh.share(position.low);
        }
    }

    /// Nobody is here any more: what to tell the store, if it is to be told.
    pub(super) fn release(&mut self) -> Option<Effect> {
        self.claiming.wants = None;
        self.claiming.again = None;
        let hold = std::mem::replace(&mut self.claiming.hold, Hold::Nothing);
        if !self.start.claims || hold == Hold::Nothing || !self.is_backed() {
            return None;
        }
        let sent = self.start.sent_before.max(self.ledger.taken());
        if hold == Hold::Sole {
            self.ledger.unmark(sent);
        }
        Some(Effect::Release { sent })
    }

    /// Which part of a shared queue is ours is not known: a page was lost on its way.
    pub(super) fn give_up(&mut self, effects: &mut Vec<Effect>) {
        self.let_go(effects);
        self.claiming.hold = Hold::Nothing;
        self.claiming.want(true);
        effects.push(Effect::Release { sent: Seq::MAX });
    }

    /// Entries of the next page: of a shared queue no more than can go out.
    pub(super) fn page_limit(&mut self) -> Option<PageLimit> {
        let all = PageLimit::default();
        if !self.claiming.is_shared() {
            return self.fresh.wants_page().then_some(all);
        }
        let wants = self.fresh.has_no_page() && self.fresh.is_blind() && self.seats.has_room();
        wants.then(|| PageLimit {
            entries: all.entries.min(self.seats.room()),
            ..all
        })
    }
}

fn answer_all(answers: Option<Vec<(Answer, Outcome)>>, outcome: &Outcome) {
    for (answer, wanted) in answers.into_iter().flatten() {
        answer(match outcome {
            Outcome::Ok { .. } => wanted,
            other => other.clone(),
        });
    }
}
