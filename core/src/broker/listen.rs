//! Who listens to a key: the connected subscriptions, the groups, and the remembered queues.
//!
//! A [`KeyEntry`] is all that a publish needs to know of a key. Does not match keys (that is
//! [`super::routes`]) and does not know names' registries.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::member::Member;
use super::opening::Openings;
use super::ports::{Filter, Head, SessionId};
use super::queue::Queue;
use super::roster::Roster;
use crate::clock::Timestamp;
use crate::metrics::Counter;
use crate::model::{ConsumerName, GroupName, Key, RetryPolicy};
use crate::store::{LogId, QueueId, QueueKind, QueueSettings, Seq};

const NO_LOG: u64 = u64::MAX;

/// A subscription of a connected session.
pub(super) struct Listener {
    pub(super) member: Arc<Member>,
    pub(super) consumer: ConsumerName,
    pub(super) entry: Arc<KeyEntry>,
    pub(super) group: Option<GroupName>,
    /// Its live copies carry an id and await an ACK.
    pub(super) is_tracked: bool,
    /// Everything comes from its queue.
    pub(super) is_durable: bool,
    /// It has a queue, or gets one: guaranteed messages come from there.
    pub(super) is_remembered: bool,
    pub(super) filter: Option<Arc<dyn Filter>>,
    /// Set once the queue is open; a volatile one has no slot.
    pub(super) queue: OnceLock<Arc<Queue>>,
    pub(super) slot: OnceLock<Arc<Slot>>,
    /// Set by UNSUBSCRIBE: whether its backlog goes too.
    pub(super) ended: OnceLock<bool>,
}

impl Listener {
    pub(super) fn session(&self) -> SessionId {
        self.member.session()
    }

    pub(super) fn may_see(&self, event: &str) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| filter.may_see(event))
    }

    /// Whether its live copies take more than bytes.
    pub(super) fn needs_message(&self) -> bool {
        self.is_tracked || self.filter.is_some()
    }

    /// Whether it has a queue, or may have one by the time that a copy goes out which waits now.
    pub(super) fn may_have_queue(&self) -> bool {
        self.is_remembered || self.queue.get().is_some()
    }

    /// The queue that a live copy must go through now, if any (P8, P9).
    pub(super) fn detour(&self, is_untracked: bool) -> Option<&Arc<Queue>> {
        let queue = self.queue.get()?;
        let is_tracked = self.is_tracked && !is_untracked;
        (is_tracked || queue.has_ahead()).then_some(queue)
    }
}

/// A remembered queue and who is attached to it.
pub(super) struct Slot {
    pub(super) queue: Arc<Queue>,
    pub(super) id: QueueId,
    pub(super) entry: Arc<KeyEntry>,
    pub(super) kind: QueueKind,
    pub(super) name: Arc<str>,
    pub(super) state: Mutex<SlotState>,
}

pub(super) struct SlotState {
    pub(super) settings: QueueSettings,
    /// Several names of one session may share a queue by one consumer id.
    pub(super) seats: Vec<(SessionId, ConsumerName)>,
    pub(super) seen: Timestamp,
}

impl Slot {
    pub(super) fn is_attached(&self) -> bool {
        !self.state.lock().seats.is_empty()
    }

    /// Some attached session, for copies that are not stored.
    pub(super) fn any_session(&self) -> Option<SessionId> {
        self.state.lock().seats.first().map(|seat| seat.0)
    }
}

/// One key that somebody listens to or that has a remembered queue.
pub(super) struct KeyEntry {
    pub(super) key: Arc<Key>,
    /// Older patterns come first where a group can take a message once only (P18).
    pub(super) age: u64,
    pub(super) head: Arc<dyn Head>,
    /// Plain subscriptions outside groups.
    pub(super) live: Roster<(SessionId, ConsumerName), Arc<Listener>>,
    pub(super) groups: RwLock<Vec<Arc<GroupKey>>>,
    /// Queues that somebody is attached to: they are fed after a commit.
    pub(super) attached: Roster<QueueId, Arc<Slot>>,
    /// Of the consumers' queues (groups choose for themselves).
    pub(super) durable: AtomicU32,
    pub(super) guaranteed: AtomicU32,
    /// Queues of plain consumers that the store has not opened yet, see [`super::opening`].
    pub(super) opening: AtomicU32,
    /// Those and the ones for groups.
    pub(super) openings: Openings,
    /// Told whenever one of them has come to its end.
    pub(super) opened: Notify,
    /// Of `live`: those that need the message itself.
    pub(super) tracked: AtomicU32,
    pub(super) delivered: Counter,
    /// Listeners and slots; changed under the realm's lock only.
    pub(super) uses: AtomicUsize,
    log: AtomicU64,
    /// The last entry of the log that is known to be stored.
    end: AtomicU64,
    /// Non-zero: some plain subscription may have stored entries that are not out yet.
    ahead: AtomicU64,
}

impl KeyEntry {
    pub(super) fn new(key: Arc<Key>, age: u64, head: Arc<dyn Head>, delivered: Counter) -> Self {
        Self {
            key,
            age,
            head,
            live: Roster::new(),
            groups: RwLock::new(Vec::new()),
            attached: Roster::new(),
            durable: AtomicU32::new(0),
            guaranteed: AtomicU32::new(0),
            opening: AtomicU32::new(0),
            openings: Openings::default(),
            opened: Notify::new(),
            tracked: AtomicU32::new(0),
            delivered,
            uses: AtomicUsize::new(0),
            log: AtomicU64::new(NO_LOG),
            end: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
        }
    }

    pub(super) fn log(&self) -> Option<LogId> {
        let log = self.log.load(Ordering::Acquire);
        (log != NO_LOG).then_some(LogId(log))
    }

    pub(super) fn set_log(&self, log: Option<LogId>) {
        let log = log.map_or(NO_LOG, |log| log.0);
        if self.log.swap(log, Ordering::AcqRel) != log {
            self.end.store(0, Ordering::Release);
        }
    }

    pub(super) fn end(&self) -> Seq {
        self.end.load(Ordering::Acquire)
    }

    pub(super) fn raise_end(&self, seq: Seq) {
        self.end.fetch_max(seq, Ordering::AcqRel);
    }

    /// Whether a consumer's queue takes messages of this class.
    pub(super) fn stores(&self, guaranteed: bool) -> bool {
        self.durable.load(Ordering::Acquire) > 0 || (guaranteed && self.keeps_guaranteed())
    }

    /// Whether a plain consumer has a queue here, or will have one.
    pub(super) fn keeps_guaranteed(&self) -> bool {
        self.guaranteed.load(Ordering::Acquire) > 0 || self.opening.load(Ordering::Acquire) > 0
    }

    /// From now on live copies look whether they must queue behind stored entries (P8).
    pub(super) fn may_be_ahead(&self) {
        self.ahead.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether live copies need the message itself rather than bytes only. Looks at all
    /// subscriptions only while stored entries may be on their way.
    pub(super) fn needs_message(&self) -> bool {
        if self.tracked.load(Ordering::Acquire) > 0 {
            return true;
        }
        let seen = self.ahead.load(Ordering::Acquire);
        if seen == 0 {
            return false;
        }
        let live = self.live.all();
        if live
            .iter()
            .any(|listener| listener.queue.get().is_some_and(|queue| queue.has_ahead()))
        {
            return true;
        }
        // Unless somebody has raised it meanwhile.
        let _ = self
            .ahead
            .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
        false
    }

    /// Lets go of who has left since the last message.
    pub(super) fn refresh(&self) {
        self.live.all();
        self.attached.all();
        for group in self.groups.read().iter() {
            group.members.all();
        }
    }

    pub(super) fn group(&self, name: &str) -> Option<Arc<GroupKey>> {
        let groups = self.groups.read();
        groups
            .iter()
            .find(|group| group.name.as_str() == name)
            .cloned()
    }
}

/// A group's interest in one key.
pub(super) struct GroupKey {
    pub(super) name: GroupName,
    pub(super) members: Roster<(SessionId, ConsumerName), Arc<Listener>>,
    /// The first SUBSCRIBE's (P18).
    pub(super) retry: RetryPolicy,
    /// See [`Keeps`].
    keeps: AtomicU32,
    /// Means something while it keeps something.
    queue: AtomicU64,
    /// Its queue is being opened for so many plain members, see [`super::opening`].
    pub(super) opening: AtomicU32,
    turn: AtomicUsize,
}

/// What a group's queue takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// There is no queue.
    Nothing = 0,
    Guaranteed = 1,
    Everything = 2,
}

impl GroupKey {
    pub(super) fn new(name: GroupName, retry: RetryPolicy) -> Self {
        Self {
            name,
            members: Roster::new(),
            retry,
            keeps: AtomicU32::new(Keeps::Nothing as u32),
            queue: AtomicU64::new(0),
            opening: AtomicU32::new(0),
            turn: AtomicUsize::new(0),
        }
    }

    pub(super) fn set_queue(&self, queue: QueueId, keeps: Keeps) {
        self.queue.store(queue.0, Ordering::Release);
        self.keeps.store(keeps as u32, Ordering::Release);
    }

    pub(super) fn has_queue(&self) -> bool {
        self.keeps.load(Ordering::Acquire) != Keeps::Nothing as u32
    }

    pub(super) fn is_opening(&self) -> bool {
        self.opening.load(Ordering::Acquire) > 0
    }

    pub(super) fn queue(&self) -> Option<QueueId> {
        let queue = || QueueId(self.queue.load(Ordering::Acquire));
        self.has_queue().then(queue)
    }

    /// Whether the group's queue, or the one to come, takes messages of this class.
    pub(super) fn stores(&self, guaranteed: bool) -> bool {
        match self.keeps.load(Ordering::Acquire) {
            0 => guaranteed && self.is_opening(),
            1 => guaranteed,
            _ => true,
        }
    }

    /// The connected member whose turn it is: the next with an empty enough line (wire §8.2).
    pub(super) fn choose(&self, event: &str) -> Option<Arc<Listener>> {
        let members = self.members.all();
        let count = members.len();
        if count == 0 {
            return None;
        }
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut fallback = None;
        for step in 0..count {
            let listener = &members[start.wrapping_add(step) % count];
            if !listener.may_see(event) {
                continue;
            }
            if listener.member.outbox().room() > 0 {
                return Some(listener.clone());
            }
            fallback.get_or_insert(listener);
        }
        fallback.cloned()
    }
}
