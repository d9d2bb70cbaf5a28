//! One random life of a broker: what clients do to it, and what the model expects of each step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::*;
use super::acts::Item;
use super::book::*;
use super::casts::Casting;
use super::link::{Got, Journal, Line, Text};
use crate::clock::{Elapsed, TestClock, Timestamp};
use crate::model::*;
use crate::store::faulty::FaultyStore;
use crate::store::{Bounds, SharedStore};

pub(super) const STAGING: usize = 6;
pub(super) const EVENTS: [&str; 2] = ["x", "y"];
pub(super) const NAMES: [&str; 4] = ["c0", "c1", "c2", "ANONYMOUS-3"];
/// Of [`NAMES`]: one that nothing is remembered by alone.
pub(super) const ANONYMOUS: usize = 3;
pub(super) const PRODUCERS: [&str; 2] = ["p0", "p1"];
pub(super) const SHARED: &str = "shared";

/// A result that comes when it comes.
pub(super) type Cell<T> = Arc<Mutex<Option<T>>>;

/// A PRODUCE and its answer.
type Replied = (usize, crate::Result<Published>);

pub(super) struct Session {
    pub(super) member: Arc<Member>,
    pub(super) line: Arc<Line>,
    pub(super) batch: Batch,
    /// Deliveries that await an ACK, or did.
    pub(super) tracked: Vec<(Got, Qid)>,
    /// Waits for its name: says nothing that needs it.
    pub(super) is_waiting: bool,
    pub(super) was_limited: bool,
    pub(super) gaps: u64,
    pub(super) reader_paused: bool,
}

/// A consumer name that somebody asked for.
pub(super) struct Claim {
    pub(super) session: usize,
    pub(super) name: usize,
    pub(super) instance: Option<u8>,
    pub(super) since: Elapsed,
    pub(super) holder: Option<usize>,
    /// The holder is an older connection of the same client object.
    pub(super) is_same: bool,
    /// The SUBSCRIBE that asks for it, if it is not a CONSUMER.
    pub(super) wish: Option<Wish>,
    pub(super) answer: Cell<crate::Result<()>>,
}

pub(super) struct Opening {
    pub(super) session: usize,
    pub(super) wish: Wish,
    pub(super) before: (Tri, Tri),
    /// The store refused to open its queue.
    pub(super) is_refused: bool,
    pub(super) answer: Cell<crate::Result<Subscribed>>,
}

pub(super) struct Judged {
    pub(super) qid: Qid,
    pub(super) got: Got,
    pub(super) since: Elapsed,
    /// It was out at the session that settles it.
    pub(super) holds: bool,
    /// It names an older attempt.
    pub(super) is_stale: bool,
    pub(super) answer: Cell<crate::Result<bool>>,
}

/// A message that may be sent again.
#[derive(Clone)]
pub(super) struct Marked {
    pub(super) n: usize,
    pub(super) from: usize,
    pub(super) item: Item,
    pub(super) at: Elapsed,
}

/// A numbered message that was sent again.
pub(super) struct Repeated {
    pub(super) n: usize,
    /// `None`: it was answered.
    pub(super) since: Option<Elapsed>,
    pub(super) is_refused: bool,
    /// Whether it is held until due, if that is known.
    pub(super) is_held: Option<bool>,
}

pub(super) struct Life {
    pub(super) broker: Arc<Broker>,
    pub(super) clock: Arc<TestClock>,
    /// What outlives the broker.
    pub(super) inner: SharedStore,
    pub(super) bounds: Bounds,
    /// The way of this broker to it.
    pub(super) store: Arc<FaultyStore>,
    pub(super) is_stalled: bool,
    pub(super) is_refusing: bool,
    /// When the store was last in trouble.
    pub(super) trouble: Option<Elapsed>,
    pub(super) journal: Journal,
    pub(super) book: Book,
    pub(super) sessions: Vec<Session>,
    pub(super) slots: [Option<usize>; 4],
    /// Who holds a name, and as which client.
    pub(super) holders: BTreeMap<usize, (usize, Option<u8>)>,
    pub(super) producers: BTreeMap<usize, (usize, Option<u8>)>,
    /// What each name has subscribed to, connected or not.
    pub(super) registry: BTreeMap<(usize, usize), Wish>,
    pub(super) claims: Vec<Claim>,
    /// SUBSCRIBEs whose session has the name now.
    pub(super) granted: Vec<(usize, Wish)>,
    pub(super) openings: Vec<Opening>,
    pub(super) judged: Vec<Judged>,
    /// Unanswered PRODUCEs: since when, and by whom.
    pub(super) unanswered: BTreeMap<usize, Elapsed>,
    /// Those of a stalled store that want no answer.
    pub(super) unasked: BTreeMap<usize, Elapsed>,
    pub(super) replies: Arc<Mutex<Vec<Replied>>>,
    /// Messages that are held until then.
    pub(super) held: BTreeMap<usize, Timestamp>,
    pub(super) marked: Vec<Marked>,
    /// By the number under which the answer comes.
    pub(super) repeats: BTreeMap<usize, Repeated>,
    /// Broadcasts since the last look.
    pub(super) casting: Vec<Casting>,
}

/// A broker over what is stored.
pub(super) async fn open(store: &Arc<FaultyStore>, clock: &Arc<TestClock>) -> Arc<Broker> {
    let config = BrokerConfig {
        staging_messages: STAGING,
        idle_ttl: Duration::from_secs(86_400),
        ..BrokerConfig::default()
    };
    let metrics = Arc::new(crate::metrics::Metrics::default());
    let broker = Broker::new(
        config,
        store.clone(),
        clock.clone(),
        Arc::new(Text),
        metrics,
    );
    broker.open().await.unwrap();
    broker
}

pub(super) async fn breathe() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

pub(super) fn run<T: Send + 'static>(answer: Answer<T>) -> Cell<crate::Result<T>> {
    let cell = Cell::default();
    let told = cell.clone();
    tokio::spawn(async move {
        let result = answer.await;
        *told.lock() = Some(result);
    });
    cell
}

impl Life {
    /// A life over an empty store with these bounds, which answers at once.
    pub(super) async fn new(bounds: Bounds, inner: SharedStore) -> Self {
        let store = FaultyStore::new(inner.clone());
        let clock = TestClock::new();
        let broker = open(&store, &clock).await;
        Self {
            broker,
            clock,
            inner,
            bounds,
            store,
            is_stalled: false,
            is_refusing: false,
            trouble: None,
            journal: Journal::default(),
            book: Book::default(),
            sessions: Vec::new(),
            slots: [None; 4],
            holders: BTreeMap::new(),
            producers: BTreeMap::new(),
            registry: BTreeMap::new(),
            claims: Vec::new(),
            granted: Vec::new(),
            openings: Vec::new(),
            judged: Vec::new(),
            unanswered: BTreeMap::new(),
            unasked: BTreeMap::new(),
            replies: Arc::default(),
            held: BTreeMap::new(),
            marked: Vec::new(),
            repeats: BTreeMap::new(),
            casting: Vec::new(),
        }
    }

    pub(super) fn join(&mut self, acknowledged: Option<bool>) -> usize {
        let session = self.sessions.len();
        let line = Line::new(session, &self.journal, &self.clock, acknowledged);
        let realm = RealmId::default();
        let (outbox, pass) = (line.clone(), Pass::default());
        let member = self.broker.join(&realm, "socket", outbox, pass).unwrap();
        self.sessions.push(Session {
            member,
            line,
            batch: Batch::new(),
            tracked: Vec::new(),
            is_waiting: false,
            was_limited: false,
            gaps: 0,
            reader_paused: false,
        });
        self.book.alive.insert(session);
        session
    }
}
