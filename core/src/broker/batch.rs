//! What one session has published since the end of its last read, gathered so that each receiver
//! gets one piece of bytes and the store one call.
//!
//! Decides nothing: [`super::publish`] says what goes where. A [`Segment`] is the messages of one
//! key (or of one group member) that go out together; segments of a key go out in the order made.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::buffers;
use super::listen::{GroupKey, KeyEntry, Listener};
use super::matches::RouteSet;
use super::member::Member;
use super::ports::{Content, SessionId};
use super::queue::Queue;
use super::request::Reply;
use crate::clock::Timestamp;
use crate::model::Message;
use crate::store::{Append, Appended, Seq};

/// Cached matches of one session; past this they are dropped and built anew.
const MAX_ROUTES: usize = 1_024;

/// A segment that grows past this is followed by another one, so that a full line loses little.
const SEGMENT_BYTES: usize = 64 << 10;

/// What one session has published since its last [`super::Broker::flush`]; keeps its buffers.
#[derive(Default)]
pub struct Batch {
    routes: HashMap<Box<str>, Arc<RouteSet>>,
    /// The one that was found last, for the names in `scratch`: bursts mostly go one way.
    last: Option<Arc<RouteSet>>,
    scratch: String,
    pub(super) segments: Vec<Segment>,
    /// The newest segment of a target.
    open: HashMap<usize, usize>,
    /// Keys with a segment that waits for the store: what follows on them waits too (P8).
    pub(super) held: HashSet<usize>,
    pub(super) appends: Vec<Stored>,
    pub(super) replies: Vec<Answering>,
    pub(super) bytes: usize,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("segments", &self.segments.len())
            .field("appends", &self.appends.len())
            .finish_non_exhaustive()
    }
}

/// A message on its way to the store and the keys whose logs take it.
pub(super) struct Stored {
    pub(super) append: Append,
    pub(super) keys: Vec<Arc<KeyEntry>>,
    /// Groups that do not get it on these keys.
    pub(super) skip: Vec<(Arc<KeyEntry>, Arc<GroupKey>)>,
}

/// A PRODUCE that wants to know.
pub(super) struct Answering {
    pub(super) reply: Option<Reply>,
    /// Its place among the appends.
    pub(super) append: Option<usize>,
    /// Its live copies.
    pub(super) segments: SmallVec<[usize; 2]>,
    pub(super) id: crate::model::MessageId,
    /// The store had it already, and was not asked to store it again.
    pub(super) known: Option<Appended>,
}

/// Who gets a segment.
#[derive(Clone)]
pub(super) enum Target {
    /// Every plain subscription of the key.
    Key,
    /// The member that a group has chosen.
    One(Arc<Listener>),
    /// A session attached to a durable queue: what is never stored (`ttl: 0`).
    Seat(Arc<Queue>, SessionId),
}

/// How a segment goes out; messages of one segment have this in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Manner {
    /// The messages are kept beside the bytes, for who must get them through a queue.
    pub(super) keeps: bool,
    /// Subscriptions with a remembered queue get it from there.
    pub(super) is_guaranteed: bool,
    /// Goes out only if this append has succeeded.
    pub(super) guard: Option<usize>,
    /// Goes out after the session's appends so far.
    pub(super) waits: bool,
    /// Nobody acknowledges it, whatever the subscription says: it is for everybody.
    pub(super) is_untracked: bool,
    /// Of what waits: not after that (P15).
    pub(super) expires: Option<Timestamp>,
}

/// See the module.
pub(super) struct Segment {
    pub(super) entry: Arc<KeyEntry>,
    pub(super) target: Target,
    pub(super) manner: Manner,
    bytes: Vec<u8>,
    count: u64,
    messages: Vec<Arc<Message>>,
    is_sent: bool,
    /// How many appends of the batch come before it.
    pub(super) after: usize,
    /// Copies of one message of it that reached a line; set when it has gone out.
    pub(super) delivered: u32,
}

impl Batch {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The cached matches of a producer and event, if they still hold.
    pub(super) fn cached(&mut self, from: &str, event: &str) -> Option<Arc<RouteSet>> {
        // No name holds a control character.
        let is_last = self
            .scratch
            .split_once('\n')
            .is_some_and(|last| last == (from, event));
        if !is_last {
            self.scratch.clear();
            self.scratch.push_str(from);
            self.scratch.push('\n');
            self.scratch.push_str(event);
            self.last = self.routes.get(self.scratch.as_str()).cloned();
        }
        self.last.clone().filter(|set| set.holds())
    }

    /// Keeps matches for [`Batch::cached`], which was called for the same names just before.
    pub(super) fn cache(&mut self, set: &Arc<RouteSet>) {
        if self.routes.len() >= MAX_ROUTES {
            self.routes.clear();
        }
        self.routes
            .insert(self.scratch.as_str().into(), set.clone());
        self.last = Some(set.clone());
    }

    /// Adds a live copy; the segment it went into.
    pub(super) fn add(
        &mut self,
        entry: &Arc<KeyEntry>,
        target: Target,
        manner: Manner,
        content: &Content<'_>,
        message: Option<&Arc<Message>>,
    ) -> usize {
        let address = match &target {
            Target::Key => Arc::as_ptr(entry) as usize,
            Target::One(listener) => Arc::as_ptr(listener) as usize,
            Target::Seat(queue, _) => Arc::as_ptr(queue) as usize,
        };
        if manner.waits {
            self.held.insert(Arc::as_ptr(entry) as usize);
        }
        let at = match self.newest(address, &target, entry) {
            Some(at) if self.segments[at].takes(manner, self.appends.len()) => at,
            _ => {
                let mut segment = Segment::new(entry, target, manner);
                segment.after = self.appends.len();
                self.segments.push(segment);
                let at = self.segments.len() - 1;
                self.open.insert(address, at);
                at
            }
        };
        let segment = &mut self.segments[at];
        entry.head.plain(content, &mut segment.bytes);
        segment.count += 1;
        if manner.keeps {
            segment.messages.extend(message.cloned());
        }
        at
    }

    /// Adds a copy for one seat of a queue; its segment.
    pub(super) fn add_seat(
        &mut self,
        entry: &Arc<KeyEntry>,
        target: Target,
        waits: bool,
        message: Arc<Message>,
    ) -> usize {
        let manner = Manner {
            keeps: true,
            waits,
            ..Manner::default()
        };
        let mut segment = Segment::new(entry, target, manner);
        segment.after = self.appends.len();
        segment.count = 1;
        segment.messages.push(message);
        self.segments.push(segment);
        self.segments.len() - 1
    }

    /// Whether the newest segment of a key keeps its messages; then the next one may as well, which
    /// saves looking at every subscription again.
    pub(super) fn keeps(&self, entry: &Arc<KeyEntry>) -> bool {
        let address = Arc::as_ptr(entry) as usize;
        let at = self.newest(address, &Target::Key, entry);
        at.is_some_and(|at| self.segments[at].manner.keeps)
    }

    /// Bursts mostly go to one key: look at the last segment before the table.
    fn newest(&self, address: usize, target: &Target, entry: &Arc<KeyEntry>) -> Option<usize> {
        if let (Some(last), Target::Key) = (self.segments.last(), target)
            && matches!(last.target, Target::Key)
            && Arc::ptr_eq(&last.entry, entry)
        {
            return Some(self.segments.len() - 1);
        }
        self.open.get(&address).copied()
    }

    /// Starts anew; caches and the memory of the tables stay.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.open.clear();
        self.held.clear();
        self.bytes = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.appends.is_empty() && self.replies.is_empty()
    }
}

impl Segment {
    fn new(entry: &Arc<KeyEntry>, target: Target, manner: Manner) -> Self {
        Self {
            entry: entry.clone(),
            target,
            manner,
            bytes: buffers::take(),
            count: 0,
            messages: Vec::new(),
            is_sent: false,
            after: 0,
            delivered: 0,
        }
    }

    /// What waits keeps its place among the appends too (P8).
    fn takes(&self, manner: Manner, appends: usize) -> bool {
        !self.is_sent
            && self.manner == manner
            && manner.guard.is_none()
            && (!manner.waits || self.after == appends)
            && self.bytes.len() < SEGMENT_BYTES
    }

    /// Drops it if it has waited beyond its TTL; how many messages that were (P15).
    pub(super) fn expire(&mut self, now: Timestamp) -> u64 {
        let is_expired = self.manner.expires.is_some_and(|expires| expires <= now);
        if !is_expired || std::mem::replace(&mut self.is_sent, true) {
            return 0;
        }
        self.bytes = Vec::new();
        self.count
    }

    /// Hands it to everybody concerned, once: O(receivers) whatever the number of messages.
    pub(super) fn send(&mut self, producer: &Member) {
        if std::mem::replace(&mut self.is_sent, true) {
            return;
        }
        let frames = buffers::freeze(std::mem::take(&mut self.bytes));
        // Only who gets it through a queue wants to know.
        let behind = LazyCell::new(|| producer.stored_up_to(&self.entry));
        let delivered = match &self.target {
            Target::Key => {
                let all = self.entry.live.all();
                let reached = all
                    .iter()
                    .filter(|listener| self.reach(listener, &frames, &behind));
                reached.count()
            }
            Target::One(listener) => usize::from(self.reach(listener, &frames, &behind)),
            Target::Seat(queue, session) => {
                for message in &self.messages {
                    queue.live(*session, message, *behind, false);
                }
                1
            }
        };
        self.delivered = u32::try_from(delivered).unwrap_or(u32::MAX);
        self.entry
            .delivered
            .add(self.count.saturating_mul(u64::from(self.delivered)));
    }

    fn reach<F: FnOnce() -> Seq>(
        &self,
        listener: &Listener,
        frames: &Bytes,
        behind: &LazyCell<Seq, F>,
    ) -> bool {
        let is_untracked = self.manner.is_untracked;
        // A group's choice may have left while the copy waited.
        let is_out = listener.member.has_left() || listener.member.is_intruder();
        if is_out || (self.manner.is_guaranteed && listener.is_remembered) {
            return false;
        }
        if listener.filter.is_some() {
            return self.reach_filtered(listener, behind);
        }
        if self.manner.keeps
            && let Some(queue) = listener.detour(is_untracked)
        {
            for message in &self.messages {
                queue.live(listener.session(), message, **behind, is_untracked);
            }
            return true;
        }
        if listener.member.outbox().offer(frames.clone()).is_some() {
            return true;
        }
        listener.member.dropped(&self.entry.key, self.count);
        false
    }

    /// A subscription that may not see everything gets its messages one by one (P30).
    fn reach_filtered<F: FnOnce() -> Seq>(
        &self,
        listener: &Listener,
        behind: &LazyCell<Seq, F>,
    ) -> bool {
        let is_untracked = self.manner.is_untracked;
        let mut reached = false;
        for message in &self.messages {
            if !listener.may_see(&message.event) {
                continue;
            }
            if let Some(queue) = listener.detour(is_untracked) {
                queue.live(listener.session(), message, **behind, is_untracked);
                reached = true;
                continue;
            }
            let mut out = Vec::new();
            let content = Content::of(message);
            self.entry.head.plain(&content, &mut out);
            match listener.member.outbox().offer(out.into()) {
                Some(_) => reached = true,
                None => listener.member.dropped(&self.entry.key, 1),
            }
        }
        reached
    }
}
