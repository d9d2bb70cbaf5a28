//! The sessions of a queue: what each holds, how much more it may get, and who is next.
//!
//! Knows windows (P12, P6), blocked outboxes (P23) and clocks that stand still (P24); does not know
//! what is in the entries.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::clock::Elapsed;
use crate::model::Message;
use crate::store::Seq;

use super::super::ports::SessionId;
use super::super::queue::{Mode, Seat};
use super::entry::{Entry, Slot};

/// Bytes of one batch to one session, or one message.
const MOST_BATCH: usize = 256 << 10;
/// A confirm that takes no longer lets the window grow.
const QUICK: Duration = Duration::from_secs(1);
/// One that takes longer than this makes it shrink, so that a pong is back well within 20 s.
const SLOW: Duration = Duration::from_secs(5);
/// Where the window of unconfirmed entries begins, and its smallest.
const FIRST_WINDOW: (u32, usize) = (64, 256 << 10);
const SMALLEST_WINDOW: (u32, usize) = (16, 64 << 10);

/// One session's place at the queue.
pub(super) struct Post {
    pub(super) seat: Seat,
    pub(super) held: u32,
    pub(super) bytes: usize,
    window: (u32, usize),
    filled: bool,
    /// Its outbox was full.
    pub(super) blocked: bool,
    /// Gets nothing new: it is to be empty for a suspect, or has one.
    pub(super) apart: bool,
    /// The suspect it is alone with.
    pub(super) suspect: Option<Slot>,
    /// What was sent since the last answer of the outbox.
    pub(super) batch: Vec<Slot>,
    batch_bytes: usize,
    /// Everything it may hold, with left-overs of what it holds no more.
    pub(super) given: Vec<Slot>,
    /// Sent without ack, with the position in the outbox behind each.
    pub(super) unconfirmed: VecDeque<(Slot, u64)>,
    asked: Option<Elapsed>,
    paused: Option<Elapsed>,
    stood: Duration,
    /// Ack clocks that ran out while they stood still.
    pub(super) stalled: Vec<Slot>,
    /// Entries up to it were there before it came: they go before live copies (P5).
    pub(super) floor: Seq,
    /// Live copies that have not been out, in the order of the stored entries they go behind.
    pub(super) live: VecDeque<Entry>,
    pub(super) live_bytes: usize,
    /// Live copies that were dropped since it was last told.
    pub(super) lost: u64,
    /// Live copies whose turn has come again; of one that a full outbox has refused, so that it has
    /// not been out, the stored entries up to that one go first.
    pub(super) again: VecDeque<(Slot, Option<Seq>)>,
    rank: Option<Rank>,
    is_stale: bool,
    served: u64,
}

/// More room is better, then having waited longer.
type Rank = (u32, Reverse<u64>, u32);

impl Post {
    fn new(seat: Seat) -> Self {
        let mut post = Self {
            window: FIRST_WINDOW,
            floor: seat.floor,
            seat,
            held: 0,
            bytes: 0,
            filled: false,
            blocked: false,
            apart: false,
            suspect: None,
            batch: Vec::new(),
            batch_bytes: 0,
            given: Vec::new(),
            unconfirmed: VecDeque::new(),
            asked: None,
            paused: None,
            stood: Duration::ZERO,
            stalled: Vec::new(),
            live: VecDeque::new(),
            live_bytes: 0,
            lost: 0,
            again: VecDeque::new(),
            rank: None,
            is_stale: false,
            served: 0,
        };
        post.fit_window();
        post
    }

    fn fit_window(&mut self) {
        let most = (self.seat.prefetch.max(1), self.seat.prefetch_bytes);
        if !matches!(self.seat.mode, Mode::Confirm) {
            self.window = most;
        }
        self.window = (self.window.0.min(most.0), self.window.1.min(most.1));
    }

    /// How many more entries it may get.
    fn room(&self) -> u32 {
        self.window.0.saturating_sub(self.held)
    }

    /// Whether it may get an entry of `size` bytes, apart or not.
    pub(super) fn fits(&self, size: usize) -> bool {
        !self.blocked
            && self.room() > 0
            && (self.held == 0 || self.bytes + size <= self.window.1)
            && (self.batch.is_empty() || self.batch_bytes + size <= MOST_BATCH)
    }

    /// Stored entries up to this one go before its next live copy that has not been out.
    pub(super) fn live_after(&self) -> Option<Seq> {
        let refused = self.again.front().and_then(|(_, after)| *after);
        let first = self.live.front().map(|entry| entry.after);
        refused.into_iter().chain(first).min()
    }

    /// Whether a live copy waits here that came before the stored entry `seq`.
    fn has_before(&self, seq: Seq) -> bool {
        self.live_after().is_some_and(|after| after < seq)
    }

    /// Whether it may see this event (P30).
    pub(super) fn may_see(&self, event: &str) -> bool {
        let filter = self.seat.filter.as_ref();
        filter.is_none_or(|filter| filter.may_see(event))
    }

    /// Whether it has nothing of this queue.
    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Its own time, which stands still while it is paused.
    pub(super) fn time(&self, now: Elapsed) -> Elapsed {
        self.paused.map_or(now, |since| since.min(now)) - self.stood
    }

    /// When `deadline` in its own time will be, if it is not paused till then.
    pub(super) fn real(&self, deadline: Elapsed) -> Elapsed {
        deadline.saturating_add(self.stood)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    pub(super) fn pause(&mut self, now: Elapsed) {
        self.paused.get_or_insert(now);
    }

    /// Its clocks run again; those that ran out meanwhile must be looked at anew.
    pub(super) fn resume(&mut self, now: Elapsed) -> Vec<Slot> {
        if let Some(since) = self.paused.take() {
            self.stood += now.saturating_sub(since);
        }
        std::mem::take(&mut self.stalled)
    }

    /// Whether to ask for a confirmation now.
    pub(super) fn ask(&mut self, now: Elapsed) -> bool {
        let asks = self.asked.is_none() && !self.unconfirmed.is_empty();
        if asks {
            self.asked = Some(now);
        }
        asks
    }

    /// The confirmation came: the window adapts to how long it took.
    pub(super) fn confirmed(&mut self, now: Elapsed) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let took = now.saturating_sub(asked);
        if took <= QUICK && self.filled {
            self.window = (
                self.window.0.saturating_mul(2),
                self.window.1.saturating_mul(2),
            );
        } else if took >= SLOW {
            let (count, bytes) = SMALLEST_WINDOW;
            self.window = (
                (self.window.0 / 2).max(count),
                (self.window.1 / 2).max(bytes),
            );
        }
        self.filled = false;
        self.fit_window();
    }
}

/// All sessions of a queue.
#[derive(Default)]
pub(super) struct Seats {
    posts: Vec<Option<Post>>,
    free: Vec<u32>,
    index: HashMap<SessionId, u32>,
    order: BTreeSet<Rank>,
    stale: Vec<u32>,
    served: u64,
    /// How many may not see everything.
    filtered: usize,
    /// What all of them hold.
    in_flight: u64,
}

impl Seats {
    /// Puts a session in its place; one that is there already gets the new settings.
    pub(super) fn attach(&mut self, seat: Seat) {
        self.filtered += usize::from(seat.filter.is_some());
        if let Some(at) = self.index.get(&seat.session).copied() {
            if let Some(post) = self.get_mut(at) {
                let before = std::mem::replace(&mut post.seat, seat);
                post.fit_window();
                self.filtered -= usize::from(before.filter.is_some());
            }
            return;
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.posts.push(None);
            u32::try_from(self.posts.len() - 1).unwrap_or(u32::MAX)
        });
        let others: Vec<u32> = self.index.values().copied().collect();
        self.index.insert(seat.session, at);
        self.posts[at as usize] = Some(Post::new(seat));
        self.touch(at);
        if let [alone] = others[..] {
            self.touch(alone);
        }
    }

    /// Takes a session away.
    pub(super) fn detach(&mut self, session: SessionId) -> Option<(u32, Post)> {
        let at = self.index.remove(&session)?;
        let post = self.posts.get_mut(at as usize)?.take()?;
        if let Some(rank) = post.rank {
            self.order.remove(&rank);
        }
        self.filtered -= usize::from(post.seat.filter.is_some());
        self.in_flight -= u64::from(post.held);
        self.stale.retain(|stale| *stale != at);
        self.free.push(at);
        Some((at, post))
    }

    pub(super) fn find(&self, session: SessionId) -> Option<u32> {
        self.index.get(&session).copied()
    }

    pub(super) fn get(&self, at: u32) -> Option<&Post> {
        self.posts.get(at as usize)?.as_ref()
    }

    /// The post, whose room may change now.
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Post> {
        self.touch(at);
        self.posts.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Post)> {
        let posts = self.posts.iter().enumerate();
        posts.filter_map(|(at, post)| Some((u32::try_from(at).ok()?, post.as_ref()?)))
    }

    fn touch(&mut self, at: u32) {
        if let Some(Some(post)) = self.posts.get_mut(at as usize)
            && !post.is_stale
        {
            post.is_stale = true;
            self.stale.push(at);
        }
    }

    fn refresh(&mut self) {
        // Whoever is alone need not be compared.
        let alone = self.index.len() == 1;
        while let Some(at) = self.stale.pop() {
            let Some(Some(post)) = self.posts.get_mut(at as usize) else {
                continue;
            };
            post.is_stale = false;
            let (room, served) = if alone {
                (1, 0)
            } else {
                (post.room(), post.served)
            };
            let rank = (!post.apart && post.fits(0)).then_some((room, Reverse(served), at));
            if post.rank != rank {
                if let Some(old) = post.rank {
                    self.order.remove(&old);
                }
                if let Some(new) = rank {
                    self.order.insert(new);
                }
                post.rank = rank;
            }
        }
    }

    /// Whether somebody can get something at all.
    pub(super) fn has_room(&mut self) -> bool {
        self.refresh();
        !self.order.is_empty()
    }

    /// How many more entries all of them may get.
    pub(super) fn room(&self) -> usize {
        let posts = self.iter().filter(|(_, post)| post.fits(0));
        posts.map(|(_, post)| post.room() as usize).sum()
    }

    /// The session with most room that may get this message; if it is new, with `seq`, not one for
    /// which a live copy waits that came before it.
    pub(super) fn choose(&mut self, message: &Message, seq: Seq) -> Option<u32> {
        self.refresh();
        let size = message.size();
        let mut best = self.order.iter().rev().map(|(_, _, at)| *at);
        best.find(|at| {
            self.get(*at).is_some_and(|post| {
                post.fits(size) && !post.has_before(seq) && post.may_see(&message.event)
            })
        })
    }

    /// Whether some session may see this event (P30).
    pub(super) fn may_see(&self, event: &str) -> bool {
        self.filtered < self.len() || self.iter().any(|(_, post)| post.may_see(event))
    }

    /// How many entries are out.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A session gets an entry.
    pub(super) fn give(&mut self, at: u32, slot: Slot, size: usize) {
        self.served += 1;
        let served = self.served;
        self.in_flight += 1;
        if let Some(post) = self.get_mut(at) {
            post.held += 1;
            post.bytes += size;
            post.batch.push(slot);
            post.batch_bytes += size;
            post.served = served;
            post.filled |= post.held >= post.window.0 || post.bytes * 2 >= post.window.1;
            post.given.push(slot);
        }
    }

    /// A session does not hold an entry any more.
    pub(super) fn give_back(&mut self, at: u32, size: usize) {
        if let Some(post) = self.get_mut(at)
            && post.held > 0
        {
            post.held -= 1;
            post.bytes = post.bytes.saturating_sub(size);
            self.in_flight -= 1;
        }
    }

    /// The outbox has answered: what was offered to it.
    pub(super) fn end_batch(&mut self, at: u32, accepted: bool) -> Vec<Slot> {
        let Some(post) = self.get_mut(at) else {
            return Vec::new();
        };
        post.blocked |= !accepted;
        post.batch_bytes = 0;
        std::mem::take(&mut post.batch)
    }
}
