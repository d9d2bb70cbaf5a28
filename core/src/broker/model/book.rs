//! What the model knows: who subscribed to what, what each queue owes, who holds what, and the checks
//! of every single delivery against it. Does not talk to the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::link::{Got, Line, Style};
use crate::clock::{Elapsed, Timestamp};

pub(super) const ACK_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const MAX_ATTEMPTS: u32 = 3;

/// What is known for certain, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tri {
    No,
    Maybe,
    Yes,
}

/// A queue: the key it listens to, and the consumer id or group. Live copies that a nameless
/// subscription has to ack have one of their own, beginning with `~`.
pub(super) type Qid = (usize, String);

/// How a subscription was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) name: usize,
    pub(super) key: usize,
    pub(super) who: Who,
    pub(super) durable: bool,
    pub(super) ack: bool,
    pub(super) prefetch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Own,
    Shared,
    Group,
}

#[derive(Clone)]
pub(super) struct Sent {
    pub(super) session: usize,
    pub(super) from: usize,
    pub(super) event: usize,
    pub(super) guaranteed: bool,
    pub(super) online_only: bool,
    pub(super) expires: Timestamp,
    pub(super) key: Option<usize>,
    /// Guaranteed and refused: reaches nobody live (P27).
    pub(super) is_refused: bool,
    /// Refused because the store was too slow: it may come after what was not.
    pub(super) is_late: bool,
    /// The store never had it.
    pub(super) is_nowhere: bool,
    /// It reaches nobody live before it is stored, as guaranteed ones and numbered ones (P16, P27).
    pub(super) is_guarded: bool,
    /// It is held until due.
    pub(super) is_delayed: bool,
    /// It was due while the store was in trouble: who gets it, and how often, is not known.
    pub(super) is_loose: bool,
    pub(super) is_cast: bool,
    /// It may wait for a queue that is being opened: queues opened meanwhile may take it too.
    pub(super) is_held: bool,
    /// Queues that were full for it.
    pub(super) full: usize,
    /// One of those that may take it was full.
    pub(super) may_be_full: bool,
    pub(super) certain: Vec<Qid>,
    pub(super) possible: Vec<Qid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Settled,
    Dead,
    Expired,
    Purged,
}

/// A stored copy in a queue.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The queue owes it.
    pub(super) must: bool,
    pub(super) attempts: u32,
    pub(super) failures: u32,
    pub(super) is_suspect: bool,
    /// It was left behind, so that a mark made for a block speaks of it: it may be called a repeat
    /// though it is none.
    pub(super) was_left: bool,
    /// A full line refused it while others were there: its turn may have passed.
    pub(super) was_refused: bool,
    /// It was settled by a pong: the store may not have been told when the broker ends.
    pub(super) was_received: bool,
    /// The broker ended while it was out or had been: how often it was sent is known roughly.
    pub(super) was_recalled: bool,
    pub(super) end: Option<End>,
}

/// A live copy for one subscription of a session.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) must: bool,
    pub(super) attempts: u32,
    pub(super) failures: u32,
    /// The stored copy has come to this subscription.
    pub(super) came_stored: bool,
    pub(super) is_over: bool,
}

pub(super) struct Hold {
    pub(super) acked: bool,
    /// In the session's own time.
    deadline: Elapsed,
    pub(super) position: u64,
}

/// Live copies sort behind stored ones.
pub(super) type Held = (bool, usize);

pub(super) struct Seat {
    pub(super) line: Arc<Line>,
    pub(super) prefetch: u32,
    /// Everything it has of the queue is known.
    pub(super) is_exact: bool,
    /// Its subscription was made anew without ack while live copies awaited one: others wait for room
    /// behind those, and for those of their ordering key (P8, P12).
    pub(super) was_acked: bool,
    pub(super) holds: BTreeMap<Held, Hold>,
    alone: Option<usize>,
}

pub(super) struct Queue {
    pub(super) every: Tri,
    pub(super) guaranteed: Tri,
    /// It is being opened for a plain subscription that was told it is there.
    pub(super) is_promised: bool,
    pub(super) entries: BTreeMap<usize, Entry>,
    pub(super) seats: BTreeMap<usize, Seat>,
    /// Nothing failed and nothing has a key, so that whatever can go goes.
    pub(super) is_plain_sailing: bool,
    /// What came into it, in that order.
    pub(super) line: Vec<usize>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            every: Tri::No,
            guaranteed: Tri::No,
            is_promised: false,
            entries: BTreeMap::new(),
            seats: BTreeMap::new(),
            is_plain_sailing: true,
            line: Vec::new(),
        }
    }
}

impl Queue {
    /// Whether it takes a message.
    pub(super) fn takes(&self, guaranteed: bool) -> Tri {
        match guaranteed {
            true if self.is_promised => Tri::Yes,
            true => self.every.max(self.guaranteed),
            false => self.every,
        }
    }

    pub(super) fn is_known(&self) -> Tri {
        self.every.max(self.guaranteed)
    }

    /// An attempt at `n` has failed, by a lost session that may fail it up to `most` times or else.
    pub(super) fn fail(&mut self, n: usize, most: u32, is_lost: bool, is_expired: bool) {
        self.is_plain_sailing = false;
        let Some(entry) = self.entries.get_mut(&n) else {
            return;
        };
        if is_expired {
            entry.end = Some(End::Expired);
            return;
        }
        entry.failures = entry.failures.max((entry.failures + 1).min(most));
        if entry.failures >= MAX_ATTEMPTS {
            entry.end = Some(End::Dead);
        } else if is_lost {
            entry.is_suspect = entry.failures + 1 >= MAX_ATTEMPTS;
        }
    }
}

/// Session, key, producer session, and ordering key.
pub(super) type Source = (usize, usize, usize, Option<usize>);

/// A subscription of a live session.
pub(super) struct Sub {
    pub(super) wish: Wish,
    /// `None`: nothing of it waits anywhere.
    pub(super) qid: Option<Qid>,
    /// Listens (live copies).
    pub(super) enrolled: Tri,
    /// Guaranteed messages come from its queue.
    pub(super) remembered: Tri,
    /// Everything comes from its queue.
    pub(super) is_durable: bool,
}

#[derive(Default)]
pub(super) struct Book {
    pub(super) sent: Vec<Sent>,
    pub(super) queues: BTreeMap<Qid, Queue>,
    /// By session and consumer name and key.
    pub(super) subs: BTreeMap<(usize, usize, usize), Sub>,
    /// By session, key and message.
    pub(super) live: BTreeMap<(usize, usize, usize), Live>,
    pub(super) alive: BTreeSet<usize>,
    /// First deliveries of a subscription by producer session and ordering key (P8).
    pub(super) order: BTreeMap<Source, usize>,
    /// Sessions that were of a group on a key and are not any more: its choice may still come.
    pub(super) moved: BTreeSet<(usize, usize)>,
    /// What timed out at the moment its session was taken over: a failure or none.
    pub(super) doubtful: BTreeSet<(Qid, usize)>,
    /// Messages that a group without a queue has had, by key.
    pub(super) group: BTreeSet<(usize, usize)>,
    /// What sessions that ended since the last look had subscribed to, by session and key.
    pub(super) just_left: BTreeMap<(usize, usize), Option<Qid>>,
    /// Who has had which broadcast, by session and key; without a key: under its event.
    pub(super) casts: BTreeSet<(usize, Option<usize>, usize)>,
}

pub(super) fn matches(key: usize, sent: &Sent) -> bool {
    takes_event(key, sent.event, sent.from)
}

pub(super) fn takes_event(key: usize, event: usize, from: usize) -> bool {
    match key {
        0 => event == 0,
        1 => event == 1,
        2 => event == 0 && from == 0,
        _ => true,
    }
}

impl Book {
    pub(super) fn sub(&self, session: usize, key: usize) -> Option<&Sub> {
        let mut subs = self.subs.range((session, 0, 0)..(session + 1, 0, 0));
        subs.find(|((_, _, at), _)| *at == key).map(|(_, sub)| sub)
    }

    /// A message is in the queues of its takers, or may be.
    pub(super) fn store(&mut self, n: usize, sent: &Sent, is_sure: bool) {
        if sent.is_nowhere {
            return;
        }
        let certain = sent.certain.iter().map(|qid| (qid, is_sure));
        let possible = sent.possible.iter().map(|qid| (qid, false));
        for (qid, must) in certain.chain(possible) {
            let queue = self.queues.entry(qid.clone()).or_default();
            queue.is_plain_sailing &= sent.key.is_none();
            let must = must && queue.takes(sent.guaranteed) == Tri::Yes;
            let entry = Entry {
                must,
                ..Entry::default()
            };
            queue.entries.insert(n, entry);
            queue.line.push(n);
        }
    }

    /// A subscription begins anew: what it has had says nothing of what comes.
    pub(super) fn forget_order(&mut self, session: usize, key: usize) {
        self.order
            .retain(|(at, of, _, _), _| (*at, *of) != (session, key));
    }

    /// A session leaves a queue with what it holds of it.
    pub(super) fn unseat(&mut self, session: usize, qid: &Qid, is_failed: bool, now: Timestamp) {
        let sent = &self.sent;
        let Some(queue) = self.queues.get_mut(qid) else {
            return;
        };
        let Some(seat) = queue.seats.remove(&session) else {
            return;
        };
        let stored = seat.holds.keys().filter(|(is_live, _)| !is_live).count();
        let most = if stored > 1 {
            MAX_ATTEMPTS - 1
        } else {
            u32::MAX
        };
        for ((is_live, n), hold) in seat.holds {
            if is_live || !hold.acked {
                continue;
            }
            if is_failed {
                queue.fail(n, most, true, sent[n].expires <= now);
            }
        }
        if qid.1.starts_with('~') {
            self.queues.remove(qid);
        }
    }

    /// Live copies of a subscription end with it.
    pub(super) fn end_live(&mut self, session: usize, key: usize) {
        for (_, live) in self
            .live
            .range_mut((session, key, 0)..(session, key + 1, 0))
        {
            live.must = false;
            live.is_over = true;
        }
    }

    /// A session was taken over in the same moment in which some of its ack clocks ran out.
    pub(super) fn doubt(&mut self, session: usize) {
        for (qid, queue) in &mut self.queues {
            let Some(seat) = queue.seats.get(&session) else {
                continue;
            };
            let own = seat.line.time();
            let late = seat
                .holds
                .iter()
                .filter(|(_, hold)| hold.acked && hold.deadline <= own);
            for ((_, n), _) in late.filter(|((is_live, _), _)| !is_live) {
                self.doubtful.insert((qid.clone(), *n));
                if let Some(entry) = queue.entries.get_mut(n) {
                    entry.must = false;
                }
            }
        }
    }

    /// Ack clocks that have run out.
    pub(super) fn run_clocks(&mut self, now: Timestamp) {
        let (sent, all) = (&self.sent, &mut self.live);
        for ((key, _), queue) in &mut self.queues {
            let mut failed = Vec::new();
            for (session, seat) in &mut queue.seats {
                let own = seat.line.time();
                seat.holds.retain(|held, hold| {
                    let is_late = hold.acked && hold.deadline <= own;
                    if is_late {
                        failed.push((*session, *held));
                    }
                    !is_late
                });
            }
            for (session, (is_live, n)) in failed {
                if !is_live {
                    queue.fail(n, u32::MAX, false, sent[n].expires <= now);
                } else if let Some(live) = all.get_mut(&(session, *key, n)) {
                    live.failures += 1;
                    live.is_over |= live.failures >= MAX_ATTEMPTS;
                }
            }
        }
    }

    pub(super) fn holds(&self, qid: &Qid, session: usize, held: Held) -> bool {
        let seats = self.queues.get(qid).map(|queue| &queue.seats);
        let seat = seats.and_then(|seats| seats.get(&session));
        seat.is_some_and(|seat| seat.holds.contains_key(&held))
    }

    /// How often it was sent.
    pub(super) fn attempts(&self, qid: &Qid, session: usize, (is_live, n): Held) -> u32 {
        if is_live {
            let live = self.live.get(&(session, qid.0, n));
            return live.map_or(0, |live| live.attempts);
        }
        let entry = self.queues.get(qid).and_then(|queue| queue.entries.get(&n));
        entry.map_or(0, |entry| entry.attempts)
    }

    /// An ACK has settled it, wherever it is.
    pub(super) fn acked(&mut self, qid: &Qid, session: usize, (is_live, n): Held) {
        let Some(queue) = self.queues.get_mut(qid) else {
            return;
        };
        if is_live {
            let live = self.live.get_mut(&(session, qid.0, n));
            live.into_iter().for_each(|live| live.is_over = true);
        } else if let Some(entry) = queue.entries.get_mut(&n) {
            entry.end.get_or_insert(End::Settled);
        }
        for (at, seat) in &mut queue.seats {
            if !is_live || *at == session {
                seat.holds.remove(&(is_live, n));
            }
        }
    }
}

impl Hold {
    pub(super) fn new(got: &Got, line: &Line) -> Self {
        Self {
            acked: matches!(got.style, Style::Tracked(_)),
            deadline: line.time() + ACK_TIMEOUT,
            position: got.position,
        }
    }

    pub(super) fn restart(&mut self, line: &Line) {
        self.deadline = line.time() + ACK_TIMEOUT;
    }
}

impl Seat {
    pub(super) fn new(line: &Arc<Line>, prefetch: u32, is_exact: bool) -> Self {
        Self {
            line: line.clone(),
            prefetch,
            is_exact,
            was_acked: false,
            holds: BTreeMap::new(),
            alone: None,
        }
    }

    pub(super) fn take(&mut self, held: Held, hold: Hold, is_suspect: bool, got: &Got) {
        let count = self.holds.len();
        assert!(
            count < self.prefetch as usize,
            "beyond the window of {} (P12): {got:?}",
            self.prefetch
        );
        let alone = self.alone.filter(|n| self.holds.contains_key(&(false, *n)));
        assert!(alone.is_none(), "not alone with {alone:?} (P11): {got:?}");
        assert!(
            !is_suspect || count == 0,
            "a suspect beside others (P11): {got:?}"
        );
        self.alone = is_suspect.then_some(held.1);
        self.holds.insert(held, hold);
    }
}
