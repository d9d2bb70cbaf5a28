//! Telling everything in Redis, page by page, while work goes on (P28).
//!
//! While that lasts every change this broker makes notes in its realm which row it was about
//! (`lua/base.lua`), so those are told again. A row is always read after it was taken out of the
//! line, behind all changes that were called before. Knows neither the other store nor how answers
//! look ([`super::told`]).

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use redis::Value;

use crate::model::MessageId;
use crate::{Error, ErrorKind, Result};

use super::super::record::{ExportCursor, Exported, Record};
use super::super::turns::{Turn, Turns, WALK};
use super::super::types::{DeadLetterId, LogId, PageLimit, QueueId, Seq};
use super::answers::{self, strange};
use super::args::Args;
use super::lane::Lane;
use super::lanes::Lanes;
use super::told;
use super::{SCRIPT_BYTES, SCRIPT_ENTRIES};

mod documents;
mod rows;

use documents::Walk;

/// Rows that are asked for before the first one is answered; few if they may be large.
const AHEAD: usize = 64;
const AHEAD_LARGE: usize = 8;
/// Names of changed rows that are fetched at once.
const NOTES: usize = 500;

/// What of a realm is to be told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum What {
    Realm,
    /// All of it but logs and queues went at once.
    Cleared,
    /// With its entries that were not told yet.
    Log(LogId),
    Queue(QueueId),
    Exception(QueueId, Seq),
    Exceptions(QueueId),
    Letter(DeadLetterId),
    Delayed(MessageId),
    Mark(Arc<str>),
    Uid(Arc<str>),
    EachLog(u64),
    EachQueue(u64),
    EachException(QueueId, Seq),
    EachLetter(Option<DeadLetterId>),
    /// After a due time and place.
    EachDelayed(Option<(u64, Arc<str>)>),
    /// From a time of use on, but so many.
    EachMark(Arc<str>, u64),
    EachUid(u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Row {
    realm: u64,
    what: What,
}

impl Turn for Row {
    fn is_walk(&self) -> bool {
        use What::*;
        matches!(
            self.what,
            EachLog(_)
                | EachQueue(_)
                | EachException(..)
                | EachLetter(_)
                | EachDelayed(_)
                | EachMark(..)
                | EachUid(_)
        )
    }
}

/// A page that is being filled.
struct Sheet {
    records: Vec<Record>,
    entries: usize,
    bytes: usize,
}

impl Sheet {
    fn put(&mut self, record: Record) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(record.weight());
        self.records.push(record);
    }

    fn is_full(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }

    fn room(&self) -> (usize, usize) {
        let entries = self.entries.clamp(1, SCRIPT_ENTRIES);
        (entries, self.bytes.min(SCRIPT_BYTES))
    }
}

/// What is still to be told, see the module.
pub(super) struct Telling {
    cursor: Weak<()>,
    turns: Turns<Row>,
    lanes: HashMap<u64, Arc<Lane>>,
    /// Up to where entries of a log were told, and where it ended then.
    logs: HashMap<LogId, (Seq, Seq)>,
    queues: HashSet<QueueId>,
    /// Realms whose delayed messages were not all passed yet.
    passing: HashSet<u64>,
    documents: Walk,
}

/// What a script said of a row.
struct Answered {
    realm: u64,
    lane: Arc<Lane>,
    answer: Value,
}

type Asked = Pin<Box<dyn Future<Output = Result<Value>> + Send>>;

fn ended() -> Error {
    let why = "the copy of the store was interrupted; begin it again";
    Error::new(ErrorKind::StoreUnavailable, why)
}

/// A page of everything; see [`Store::export`](super::super::Store::export).
pub(super) async fn export(
    lanes: Arc<Lanes>,
    after: Option<ExportCursor>,
    limit: PageLimit,
) -> Result<Exported> {
    let (next, mut telling) = match after {
        Some(cursor) => {
            let is_ours = |telling: &mut Box<Telling>| {
                std::ptr::eq(telling.cursor.as_ptr(), Arc::as_ptr(&cursor.0))
            };
            let telling = lanes.telling.lock().take_if(is_ours);
            (cursor, telling.ok_or_else(ended)?)
        }
        None => Telling::begin(&lanes).await?,
    };
    let mut sheet = Sheet {
        records: vec![Record::Numbers {
            last: lanes.hub.last_id().await?,
        }],
        entries: limit.entries.max(1),
        bytes: limit.bytes.max(1),
    };
    while !sheet.is_full() {
        match telling.turns.next() {
            Some(row) => telling.tell_some(&lanes, row, &mut sheet).await?,
            None if telling.gather(&lanes).await? => {}
            None => break,
        }
    }
    let mut left = telling.left();
    if left == 0 {
        telling.gather(&lanes).await?;
        left = telling.left().max(u64::from(lanes.hub.is_stepping()));
        let is_told = telling.documents.tell(&lanes, &mut sheet).await?;
        left = left.max(u64::from(!is_told));
    }
    *lanes.telling.lock() = Some(telling);
    Ok(Exported {
        records: sheet.records,
        next,
        left,
    })
}

/// Ends the noting of changes once nobody goes on with the copy.
pub(super) async fn look_after(lanes: &Arc<Lanes>) -> Result<()> {
    let is_over = lanes.cursor.lock().strong_count() == 0;
    if is_over && lanes.hub.is_told.swap(false, Ordering::AcqRel) {
        *lanes.telling.lock() = None;
        for lane in lanes.all() {
            lanes.copy(&lane, "note_off", Args::new()).await?;
        }
    }
    Ok(())
}

impl Telling {
    /// Has changes noted from now on, and takes everything there is into the line.
    async fn begin(lanes: &Arc<Lanes>) -> Result<(ExportCursor, Box<Self>)> {
        let cursor = ExportCursor::default();
        let weak = Arc::downgrade(&cursor.0);
        *lanes.cursor.lock() = weak.clone();
        *lanes.telling.lock() = None;
        // A realm that comes after this begins with it (`lua/begin.lua`).
        lanes.hub.is_told.store(true, Ordering::Release);
        let mut telling = Box::new(Self {
            cursor: weak,
            turns: Turns::new(),
            lanes: HashMap::new(),
            logs: HashMap::new(),
            queues: HashSet::new(),
            passing: HashSet::new(),
            documents: Walk::default(),
        });
        lanes.renamed.lock().clear();
        for lane in lanes.all() {
            lanes.copy(&lane, "note_on", Args::new()).await?;
            let realm = telling.enter(&lane);
            telling.passing.insert(realm);
            let walks = [
                What::EachLog(0),
                What::EachQueue(0),
                What::EachLetter(None),
                What::EachDelayed(None),
                What::EachMark("-inf".into(), 0),
                What::EachUid(0),
            ];
            walks.into_iter().for_each(|what| telling.add(realm, what));
        }
        Ok((cursor, telling))
    }

    /// Takes a realm into account; its number.
    fn enter(&mut self, lane: &Arc<Lane>) -> u64 {
        let realm = lane.tag();
        if self.lanes.insert(realm, lane.clone()).is_none() {
            self.add(realm, What::Realm);
        }
        realm
    }

    fn add(&mut self, realm: u64, what: What) {
        self.turns.add(Row { realm, what });
    }

    fn left(&self) -> u64 {
        self.turns.left(|row| match row.what {
            What::Log(id) => self
                .logs
                .get(&id)
                .map_or(WALK, |(told, head)| head.saturating_sub(*told)),
            _ => 0,
        })
    }

    /// Takes what has changed into the line; whether anything has.
    async fn gather(&mut self, lanes: &Arc<Lanes>) -> Result<bool> {
        let all = lanes.all();
        let renamed: Vec<u64> = lanes.renamed.lock().drain(..).collect();
        let mut is_more = !renamed.is_empty();
        // Before what has taken a name comes who has left it.
        for realm in renamed {
            self.add(realm, What::Realm);
        }
        for lane in all {
            if !lane.is_touched.swap(false, Ordering::AcqRel) {
                continue;
            }
            loop {
                let mut args = Args::new();
                args.size(NOTES);
                let answer = lanes.copy(&lane, "notes", args).await?;
                let (notes, more) = told::notes(answers::text(&answer)?)?;
                if !notes.is_empty() {
                    is_more = true;
                    let realm = self.enter(&lane);
                    notes.into_iter().for_each(|what| self.add(realm, what));
                }
                if !more {
                    break;
                }
            }
        }
        Ok(is_more)
    }

    /// Tells a row, and those behind it that can be asked for with it.
    async fn tell_some(&mut self, lanes: &Arc<Lanes>, row: Row, sheet: &mut Sheet) -> Result<()> {
        let mut asked: Vec<(Row, Arc<Lane>, Asked)> = Vec::new();
        let mut next = Some(row);
        while let Some(row) = next.take() {
            let most = match row.what {
                What::Queue(_) | What::Mark(_) | What::Uid(_) => AHEAD,
                What::Exception(..) | What::Letter(_) | What::Delayed(_) => AHEAD_LARGE,
                _ => 1,
            };
            if !asked.is_empty() && asked.len() >= most.min(sheet.entries.max(2) - 1) {
                self.turns.put_back(row);
                break;
            }
            let lane = self.lanes.get(&row.realm).ok_or_else(strange)?.clone();
            match self.question(lanes, &row, sheet.room()) {
                Some((script, args)) => {
                    let answer = Box::pin(lanes.ask(&lane, script, args));
                    asked.push((row, lane, answer));
                }
                None => self.tell_realm(row, &lane, sheet),
            }
            if most > 1 {
                next = self.turns.next();
            }
        }
        for (row, lane, answer) in asked {
            let answer = answer.await?;
            let answered = Answered {
                realm: row.realm,
                lane,
                answer,
            };
            match row.what {
                What::Log(id) => self.take_log(lanes, id, answered, sheet).await?,
                What::Queue(id) => self.take_queue(lanes, id, answered, sheet).await?,
                what => self.take(lanes, what, answered, sheet)?,
            }
        }
        Ok(())
    }
}
