//! For tests: a machine with a store of maps, clients that hold what they got, and a clock.
//!
//! Every delivery is checked against what must always hold: the window, one per ordering key,
//! suspects alone, the order of first deliveries, marks of repeats, the sent mark.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::model::{Backoff, Message, MessageId, RetryPolicy};
use crate::store::{QueueId, Seq};

mod machine;

use super::super::ports::{Nobody, SessionId};
use super::super::queue::{Item, Leave, Mode, Outcome, Seat, Verdict, What};
use super::link::NoHead;
use super::maps::Maps;
use super::{Input, Now, Slot, Start, State, Style};

pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const DELAY: Duration = Duration::from_secs(1);
pub(super) const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// How the store behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Well,
    /// Does what it is told and does not say so.
    Silent,
    Failing,
}

/// What a client got and has not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) slot: Slot,
    pub(super) style: Style,
}

/// A client.
pub(super) struct Client {
    pub(super) mode: Mode,
    pub(super) prefetch: u32,
    pub(super) holds: Vec<Got>,
    pub(super) log: Vec<Got>,
    pub(super) accepts: bool,
    pub(super) asked: bool,
    position: u64,
    /// Ack clocks cannot be predicted simply any more.
    pub(super) was_paused: bool,
}

/// What has happened to an entry, as the outside saw it.
#[derive(Debug, Default, Clone)]
pub(super) struct Known {
    pub(super) sends: u32,
    pub(super) failures: u32,
    pub(super) suspect: bool,
    pub(super) sent_at: Duration,
}

pub(super) struct Bench {
    pub(super) state: State,
    pub(super) now: Now,
    pub(super) maps: Maps,
    pub(super) health: Health,
    unanswered: VecDeque<Input>,
    pub(super) clients: BTreeMap<u64, Client>,
    pub(super) known: BTreeMap<Slot, Known>,
    pub(super) answers: Arc<Mutex<Vec<(String, Outcome)>>>,
    pub(super) max_attempts: u32,
    pub(super) page: usize,
    last_first: BTreeMap<(u64, Option<Arc<str>>), Seq>,
    /// A batch was refused while others were there: they may get what follows it first.
    overtaken: bool,
    live: u64,
    /// What sessions were told of dropped live copies.
    pub(super) lost: Vec<u64>,
    /// Crashes blur which entries were sent.
    pub(super) crashed: bool,
}

pub(super) fn message(key: Option<&str>, expires: Option<Timestamp>, size: usize) -> Arc<Message> {
    Arc::new(Message {
        id: MessageId(1),
        event: "e".into(),
        from: "p".into(),
        body: Some(Bytes::from(vec![b'1'; size])),
        extras: None,
        produced: Timestamp(0),
        expires,
        guaranteed: true,
        key: key.map(Arc::from),
    })
}

fn start(maps: &Maps, fresh: bool) -> Start {
    Start {
        is_caught_up: false,
        queue: Some(QueueId(1)),
        number: 7,
        low: maps.low,
        sent_before: if fresh {
            0
        } else {
            maps.sent.min(maps.log.len() as Seq)
        },
        unsent: Vec::new(),
        marked: maps.sent,
        has_exceptions: !maps.rows.is_empty(),
        takes_all: true,
        changed_at: 0,
        retry: RetryPolicy::default(),
        claims: false,
        store_timeout: STORE_TIMEOUT,
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        let now = Now {
            wall: Timestamp(1_000_000),
            elapsed: Duration::from_secs(1),
        };
        let maps = Maps::default();
        Self {
            state: State::new(start(&maps, true), now),
            now,
            maps,
            health: Health::Well,
            unanswered: VecDeque::new(),
            clients: BTreeMap::new(),
            known: BTreeMap::new(),
            answers: Arc::default(),
            max_attempts: 3,
            page: 256,
            last_first: BTreeMap::new(),
            overtaken: false,
            live: 0,
            lost: Vec::new(),
            crashed: false,
        }
    }

    /// Stores a message; told to the courier if `fed`.
    pub(super) fn publish(&mut self, message: Arc<Message>, fed: bool) -> Seq {
        self.maps.log.push(Arc::clone(&message));
        let seq = self.maps.log.len() as Seq;
        if fed {
            self.tell(Input::Feed(seq, message));
        }
        seq
    }

    /// Stores `count` plain messages that nobody is told of.
    pub(super) fn backlog(&mut self, count: usize) {
        for _ in 0..count {
            self.publish(message(None, None, 10), false);
        }
    }

    pub(super) fn attach(&mut self, session: u64, mode: Mode, prefetch: u32) {
        let retry = RetryPolicy::new(Some(self.max_attempts), Some(DELAY), Backoff::Fixed, None);
        let seat = Seat {
            session: SessionId(session),
            outbox: Arc::new(Nobody),
            head: Arc::new(NoHead),
            mode,
            prefetch,
            prefetch_bytes: 8 << 20,
            retry: retry.unwrap(),
            filter: None,
            floor: self.maps.log.len() as Seq,
            lost: Arc::new(|_| ()),
            taken: Arc::new(|| ()),
        };
        let client = self.clients.entry(session).or_insert(Client {
            mode,
            prefetch,
            holds: Vec::new(),
            log: Vec::new(),
            accepts: true,
            asked: false,
            position: 0,
            was_paused: false,
        });
        (client.mode, client.prefetch) = (mode, prefetch);
        self.tell(Input::Attach(seat));
    }

    pub(super) fn ack_session(&mut self, session: u64, prefetch: u32) {
        self.attach(session, Mode::Ack { timeout: TIMEOUT }, prefetch);
    }

    /// A session ends; what it held counts as the promises say.
    pub(super) fn leave(&mut self, session: u64, how: Leave) -> Vec<Got> {
        let Some(client) = self.clients.remove(&session) else {
            return Vec::new();
        };
        let many = client
            .holds
            .iter()
            .filter(|got| !got.slot.is_live())
            .count()
            > 1;
        for got in &client.holds {
            let known = self.known.get_mut(&got.slot).unwrap();
            if how == Leave::Failed && matches!(got.style, Style::Tracked(_)) {
                let most = if many {
                    self.max_attempts - 1
                } else {
                    u32::MAX
                };
                known.failures = known.failures.max((known.failures + 1).min(most));
                known.suspect = known.failures + 1 >= self.max_attempts;
            }
        }
        self.tell(Input::Detach(SessionId(session), how));
        client.holds
    }

    pub(super) fn verdict(&mut self, slot: Slot, attempt: Option<u32>, what: What, tag: &str) {
        let item = match slot.seq() {
            Some(seq) => Item::Stored {
                queue: QueueId(1),
                seq,
            },
            None => Item::Volatile {
                queue: 7,
                n: slot.number(),
            },
        };
        let (answers, tag) = (Arc::clone(&self.answers), tag.to_owned());
        let answer = Box::new(move |outcome| answers.lock().push((tag, outcome)));
        self.tell(Input::Verdict(Verdict {
            item,
            attempt,
            what,
            answer,
        }));
    }

    /// Session acks the `nth` of what it holds.
    pub(super) fn ack(&mut self, session: u64, nth: usize) -> Option<Slot> {
        let client = self.clients.get_mut(&session)?;
        let got = (nth < client.holds.len()).then(|| client.holds.remove(nth))?;
        self.verdict(got.slot, None, What::Ack, "ack");
        Some(got.slot)
    }

    pub(super) fn nack(&mut self, session: u64, nth: usize, requeue: bool) -> Option<Slot> {
        let client = self.clients.get_mut(&session)?;
        let got = (nth < client.holds.len()).then(|| client.holds.remove(nth))?;
        self.known.get_mut(&got.slot).unwrap().failures += 1;
        let what = What::Nack {
            delay: None,
            requeue,
            reason: Some("no".into()),
        };
        self.verdict(got.slot, None, what, "nack");
        Some(got.slot)
    }

    /// The client's pong: everything it got before is settled.
    pub(super) fn confirm(&mut self, session: u64) {
        let Some(client) = self.clients.get_mut(&session).filter(|client| client.asked) else {
            return;
        };
        client.asked = false;
        let position = client.position;
        client
            .holds
            .retain(|got| matches!(got.style, Style::Tracked(_)));
        self.tell(Input::Confirmed(SessionId(session), position));
    }

    pub(super) fn live(&mut self, session: u64, message: Arc<Message>) -> Slot {
        self.live += 1;
        let session = SessionId(session);
        let n = self.live;
        self.tell(Input::Live {
            session,
            n,
            message,
            behind: self.maps.log.len() as Seq,
            is_untracked: false,
        });
        Slot::live(n)
    }

    pub(super) fn advance(&mut self, by: Duration) {
        let end = self.now.elapsed + by;
        // Wakes exactly when the machine asks for it, as the task does.
        while let Some(at) = self.state.deadline().filter(|at| *at <= end) {
            assert!(
                at > self.now.elapsed,
                "a deadline that has passed makes the task spin"
            );
            self.move_to(at);
        }
        self.move_to(end);
    }

    fn move_to(&mut self, at: Duration) {
        self.now.wall = self.now.wall.plus(at - self.now.elapsed);
        self.now.elapsed = at;
        self.run(Vec::new());
    }

    pub(super) fn tell(&mut self, input: Input) {
        self.run(vec![input]);
    }

    /// The store behaves well again, and answers what it owes.
    pub(super) fn heal(&mut self) {
        self.health = Health::Well;
        let owed = self.unanswered.drain(..).collect();
        self.run(owed);
    }

    /// The process dies, and another one begins with what is stored.
    pub(super) fn crash(&mut self) {
        self.crashed = true;
        self.clients.clear();
        self.unanswered.clear();
        self.state = State::new(start(&self.maps, false), self.now);
        for (slot, known) in &mut self.known {
            let row = slot.seq().and_then(|seq| self.maps.rows.get(&seq));
            known.failures = row.map_or(0, |row| row.failures);
            known.suspect = row.is_some_and(|row| row.suspect);
        }
        self.last_first.clear();
    }

    /// Nobody is left and the courier ends; the next one begins where it ended.
    pub(super) fn restart(&mut self) {
        assert!(self.state.is_finished());
        let now = self.now;
        let old = std::mem::replace(&mut self.state, State::new(start(&self.maps, true), now));
        self.state = State::new(old.into_start(), now);
    }

    /// Slots a client holds, as seqs.
    pub(super) fn held(&self, session: u64) -> Vec<Seq> {
        self.clients[&session]
            .holds
            .iter()
            .map(|got| got.slot.number())
            .collect()
    }

    /// Attempts a client holds.
    pub(super) fn attempts(&self, session: u64) -> Vec<u32> {
        let attempt = |got: &Got| match got.style {
            Style::Tracked(attempt) => attempt,
            Style::Plain => 1,
            Style::Repeated => 2,
        };
        self.clients[&session].holds.iter().map(attempt).collect()
    }

    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        self.answers
            .lock()
            .drain(..)
            .map(|(_, outcome)| outcome)
            .collect()
    }
}
