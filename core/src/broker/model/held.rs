//! Messages that are held until the store has opened a queue that they are for, and those behind them:
//! the store is asked later than they were produced, if at all.

use super::acts::Item;
use super::book::*;
use super::bounds::Rooms;
use super::life::Life;

impl Life {
    fn waiting(&self) -> impl Iterator<Item = usize> {
        self.unanswered.keys().chain(self.unasked.keys()).copied()
    }

    /// Whether one read of a session is held, and whether anything is.
    pub(super) fn note_held(&self, session: usize, from: usize, items: &[Item], rooms: &mut Rooms) {
        let mut before = self.waiting().map(|n| &self.book.sent[n]);
        let is_behind = before.any(|other| other.is_held && other.session == session);
        let promised = self
            .book
            .queues
            .iter()
            .filter(|(_, queue)| queue.is_promised);
        let keys: Vec<usize> = promised.map(|(qid, _)| qid.0).collect();
        let is_first = items.iter().any(|item| {
            let takes = |key: &usize| takes_event(*key, item.event, from);
            item.guaranteed && item.delay.is_none() && keys.iter().any(takes)
        });
        rooms.is_held = is_behind || is_first;
        rooms.is_doubtful = rooms.is_held || self.waiting().any(|n| self.book.sent[n].is_held);
    }

    /// What takes its room later may find none, or one that was not there.
    pub(super) fn doubt_held(&self, sent: &mut Sent, rooms: &Rooms) {
        sent.is_held = rooms.is_held;
        let is_bounded = !rooms.queues.is_empty();
        if !rooms.is_doubtful || !is_bounded || sent.is_cast {
            return;
        }
        sent.full = 0;
        sent.may_be_full = true;
        if sent.is_delayed {
            sent.is_loose = true;
            return;
        }
        sent.certain.clear();
        sent.possible.clear();
        self.find_takers(sent, &mut Rooms::default());
        let certain = std::mem::take(&mut sent.certain);
        sent.possible.extend(certain);
        sent.may_be_full = !sent.possible.is_empty();
    }

    /// A store that refuses now refuses them too, though it did not when they were produced.
    pub(super) fn refuse_held(&mut self) {
        if !self.is_refusing {
            return;
        }
        for n in self.waiting().collect::<Vec<_>>() {
            let sent = &mut self.book.sent[n];
            if sent.is_held {
                sent.is_loose |= sent.is_delayed;
                self.marked.retain(|marked| marked.n != n);
            }
        }
    }

    /// A queue is being opened: what is held on its key may come into it.
    pub(super) fn take_held(&mut self, wish: &Wish, session: usize) {
        let Some(qid) = self.qid(session, wish) else {
            return;
        };
        for n in self.waiting().collect::<Vec<_>>() {
            let sent = &mut self.book.sent[n];
            let takers = || sent.certain.iter().chain(&sent.possible);
            let has_key = takers().any(|taker| taker.0 == qid.0);
            let is_new = takers().all(|taker| *taker != qid);
            if sent.is_held && has_key && is_new && (sent.guaranteed || wish.durable) {
                sent.possible.push(qid.clone());
                let queue = self.book.queues.entry(qid.clone()).or_default();
                queue.entries.entry(n).or_default();
                queue.line.push(n);
            }
        }
    }
}
