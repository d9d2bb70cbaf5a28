//! Opening, filling and leaving: how a queue comes to stand where it does among the readers of its
//! log. Every change of a queue is between [`Queue::begin`] and [`Queue::end_change`].

use super::super::types::{Overflow, Seq};
use super::keep::Entries;
use super::log::{Class, Log};
use super::queue::{Queue, Shut};

/// Where a queue stands in its log's ordered sets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spot {
    /// It may take more: its low, and the last number of its class that it has room for.
    Open { low: (Class, u64), room: u64 },
    /// It takes nothing more: its low and its last entry.
    Shut { low: (Class, u64), end: Seq },
    /// It drops its oldest for every new one: how far its low is behind at most.
    Dropping { slack: u64 },
    /// The same, but it owns more than its class counts: its low stays where it was.
    DroppingOwned { low: u64 },
}

impl Queue {
    /// Begins a change: out of the log's sets, and what the queue missed or dropped while it was
    /// full is settled.
    pub(crate) fn begin<E: Entries>(&mut self, log: &mut Log<E>, overflow: Overflow) {
        self.leave_sets(log);
        if self.is_left {
            return;
        }
        let Some(shut) = self.shut.take() else {
            return;
        };
        let missed = (shut.number + 1, self.end(log));
        match overflow {
            Overflow::Reject => self.miss(missed, log),
            Overflow::DropOldest => self.drop_oldest(missed.1 - shut.number, log),
        }
        self.compact(log);
    }

    /// Ends a change: back into the log's sets.
    pub(crate) fn end_change<E: Entries>(&mut self, log: &mut Log<E>, overflow: Overflow) {
        self.compact(log);
        let low = self.in_class(self.low);
        if let Some(shut) = self.shut {
            self.enter(log, Spot::Shut { low, end: shut.seq });
            return;
        }
        let settled = self.low + self.done.len() + self.gone;
        // Who drops its oldest keeps the newest, even if exceptions alone fill it.
        let least = u64::from(overflow == Overflow::DropOldest);
        let free = log.max_queued.max(1).saturating_sub(self.exceptions);
        let room = settled.saturating_add(free.max(least));
        let room = match self.class() {
            Class::Every => room,
            Class::Guaranteed => room
                .saturating_add(self.owned_guaranteed)
                .saturating_sub(self.owned),
        };
        self.enter(log, Spot::Open { low, room });
    }

    /// The queue has no room for the next entry; how many it drops at once, having been made
    /// smaller than what it has.
    pub(crate) fn fill<E: Entries>(&mut self, log: &mut Log<E>, overflow: Overflow) -> u64 {
        self.leave_sets(log);
        let over = match overflow {
            Overflow::Reject => 0,
            Overflow::DropOldest => self.waiting(log).saturating_sub(log.max_queued.max(1)),
        };
        if over > 0 {
            self.drop_oldest(over, log);
            self.compact(log);
        }
        let number = self.end(log);
        let seq = log.head().seq;
        self.shut = Some(Shut { number, seq });
        let low = self.in_class(self.low);
        let spot = match overflow {
            Overflow::Reject => Spot::Shut { low, end: seq },
            Overflow::DropOldest if low.0 != self.class() => Spot::DroppingOwned { low: low.1 },
            Overflow::DropOldest => Spot::Dropping {
                slack: number - self.low,
            },
        };
        self.enter(log, spot);
        over
    }

    /// Forgets the queue between [`begin`](Self::begin) and [`end_change`](Self::end_change).
    pub(crate) fn forget<E: Entries>(&mut self, log: &Log<E>) {
        self.shut = Some(Shut {
            number: self.end(log),
            seq: log.head().seq,
        });
        self.is_left = true;
    }

    /// Takes a forgotten queue up again, within a change.
    pub(crate) fn remember<E: Entries>(&mut self, log: &Log<E>) {
        self.is_left = false;
        if let Some(shut) = self.shut.take() {
            self.miss((shut.number + 1, self.end(log)), log);
        }
    }

    /// Changes which entries it takes from here on, within a change. What it owns it keeps.
    pub(crate) fn set_durable<E: Entries>(&mut self, durable: bool, log: &Log<E>) {
        let head = log.head();
        if self.settings.durable == durable {
            return;
        }
        if !durable {
            self.owned = head.seq;
            self.owned_guaranteed = head.guaranteed;
            self.settings.durable = false;
            return;
        }
        // From now on it numbers by seq, so what was not for it counts as settled.
        let mut waiting = Vec::new();
        let mut number = self.low;
        while let Some(next) = self.next_waiting(number, log) {
            waiting.push(self.seq_of(next, log));
            number = next;
        }
        self.settings.durable = true;
        self.low = waiting.first().map_or(head.seq, |first| first - 1);
        self.gone = 0;
        self.done.clear();
        let low = self.low;
        self.miss((low + 1, head.seq), log);
        for seq in waiting {
            self.done.remove_run(seq, seq);
        }
    }

    /// Settles numbers that never were for it.
    fn miss<E: Entries>(&mut self, (first, last): (u64, u64), log: &Log<E>) {
        if first > last {
            return;
        }
        self.done.insert_run(first, last);
        let mut gone = Vec::new();
        self.each_gone(first, last, log, |first, last| gone.push((first, last)));
        for (first, last) in gone {
            self.gone += self.done.remove_run(first, last);
        }
    }

    fn drop_oldest<E: Entries>(&mut self, mut count: u64, log: &Log<E>) {
        let end = self.end(log);
        while count > 0 {
            self.compact(log);
            if self.low >= end {
                break;
            }
            let mut stop = self.done.next_start(self.low).unwrap_or(end + 1);
            if self.gone > 0 {
                let low = self.low;
                self.each_gone(low + 1, end, log, |first, _| stop = stop.min(first));
            }
            let dropped = count.min(stop.min(end + 1) - 1 - self.low);
            self.low += dropped;
            count -= dropped;
        }
    }

    // --- The log's sets ---

    fn enter<E: Entries>(&mut self, log: &mut Log<E>, spot: Spot) {
        let id = self.id;
        match spot {
            Spot::Open { low, room } => {
                log.readers(low.0).open.insert((low.1, id));
                log.readers(self.class()).rooms.insert((room, id));
            }
            Spot::Shut { low, end } => {
                log.readers(low.0).shut.insert((low.1, id));
                log.shut_ends.insert((end, id));
                log.readers(self.class()).full += u32::from(!self.is_left);
            }
            Spot::Dropping { slack } => {
                let readers = log.readers(self.class());
                readers.slack.insert((slack, id));
                readers.full += 1;
            }
            Spot::DroppingOwned { low } => {
                log.every.open.insert((low, id));
                log.readers(self.class()).full += 1;
            }
        }
        self.spot = Some(spot);
    }

    /// Takes the queue out of its log's sets.
    pub(crate) fn leave_sets<E: Entries>(&mut self, log: &mut Log<E>) {
        let id = self.id;
        match self.spot.take() {
            None => {}
            Some(Spot::Open { low, room }) => {
                log.readers(low.0).open.remove(&(low.1, id));
                log.readers(self.class()).rooms.remove(&(room, id));
            }
            Some(Spot::Shut { low, end }) => {
                log.readers(low.0).shut.remove(&(low.1, id));
                log.shut_ends.remove(&(end, id));
                log.readers(self.class()).full -= u32::from(!self.is_left);
            }
            Some(Spot::Dropping { slack }) => {
                let readers = log.readers(self.class());
                readers.slack.remove(&(slack, id));
                readers.full -= 1;
            }
            Some(Spot::DroppingOwned { low }) => {
                log.every.open.remove(&(low, id));
                log.readers(self.class()).full -= 1;
            }
        }
    }
}
