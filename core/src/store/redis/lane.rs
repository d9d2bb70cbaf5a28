//! The line of one realm: calls take their place when they are made, go out in that order, several
//! at a time, and each change happens once, whatever becomes of the link.
//!
//! Every change has a number in the realm, and Redis keeps the number and answer of the last ones
//! (`lua/writing.lua`). One that comes twice is answered from there, one that comes too early is
//! refused. After any trouble the lane begins a new epoch, which ends what may still be under way,
//! learns what has happened, and sends the rest again with new numbers. Knows no call's meaning.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::Elapsed;
use crate::model::RealmId;
use crate::{Error, Result};

use super::args::Args;
use super::flow::Flow;
use super::hub::Hub;
use super::script::Script;

/// Who waits for an answer.
pub(super) type Answer = Box<dyn FnOnce(Result<Value>) + Send>;

/// A call in line.
pub(super) struct Call {
    pub(super) script: Script,
    pub(super) args: Args,
    /// Ids that it needs, put behind its arguments when it is its turn.
    pub(super) ids: u64,
    /// Messages of an append, which may go with its neighbours'; 0 for other calls.
    pub(super) items: usize,
    pub(super) deadline: Elapsed,
    pub(super) answer: Answer,
}

#[derive(Default)]
struct Line {
    calls: VecDeque<Call>,
    is_running: bool,
}

/// See the module.
pub(super) struct Lane {
    pub(super) hub: Arc<Hub>,
    runtime: Handle,
    pub(super) name: RwLock<RealmId>,
    /// What its keys are named by; 0: not known yet.
    pub(super) tag: AtomicU64,
    line: Mutex<Line>,
    bell: Notify,
    /// What its task keeps between two runs.
    flow: tokio::sync::Mutex<Flow>,
    /// When the sweep has to come; `u64::MAX`: no more.
    pub(super) wake: AtomicU64,
    /// There may be delayed messages.
    pub(super) holds: AtomicBool,
    /// Something may have changed since a copy asked for it.
    pub(super) is_touched: AtomicBool,
}

impl Lane {
    /// The lane of a realm; with what its keys are named by, if that is known.
    pub(super) fn new(
        hub: Arc<Hub>,
        runtime: Handle,
        name: RealmId,
        tag: Option<u64>,
    ) -> Arc<Self> {
        let is_old = tag.is_some();
        Arc::new(Self {
            flow: tokio::sync::Mutex::new(Flow::new(hub.clone(), tag)),
            hub,
            runtime,
            name: RwLock::new(name),
            tag: AtomicU64::new(tag.unwrap_or(0)),
            line: Mutex::default(),
            bell: Notify::new(),
            wake: AtomicU64::new(if is_old { 0 } else { u64::MAX }),
            holds: AtomicBool::new(is_old),
            is_touched: AtomicBool::new(false),
        })
    }

    /// What its keys are named by; 0: not known yet.
    pub(super) fn tag(&self) -> u64 {
        self.tag.load(Ordering::Acquire)
    }

    pub(super) fn realm(&self) -> RealmId {
        self.name.read().clone()
    }

    /// Has the sweep come at `at` at the latest.
    pub(super) fn wake_at(&self, at: u64) {
        self.wake.fetch_min(at, Ordering::AcqRel);
    }

    /// Puts a call in line.
    pub(super) fn push(self: &Arc<Self>, call: Call) {
        if let Err(error) = self.hub.admit(call.args.len()) {
            (call.answer)(Err(error));
            return;
        }
        let is_copy = matches!(call.script, Script::Tell | Script::Copy);
        let mut line = self.line.lock();
        line.calls.push_back(call);
        self.is_touched.fetch_or(!is_copy, Ordering::AcqRel);
        if std::mem::replace(&mut line.is_running, true) {
            drop(line);
            self.bell.notify_one();
        } else {
            self.hub.busy.send_modify(|busy| *busy += 1);
            let lane = Arc::clone(self);
            self.runtime.spawn(async move { lane.run().await });
        }
    }

    /// Whoever waits for a bell looks at the time again.
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    async fn run(self: Arc<Self>) {
        let mut flow = self.flow.lock().await;
        loop {
            flow.work(&self).await;
            let mut line = self.line.lock();
            if line.calls.is_empty() {
                line.is_running = false;
                // The next task waits for the flow, so they never run side by side.
                break;
            }
        }
        drop(flow);
        self.hub.busy.send_modify(|busy| *busy -= 1);
    }

    /// Rings when there may be more in line.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }

    pub(super) fn is_line_empty(&self) -> bool {
        self.line.lock().calls.is_empty()
    }

    /// Takes the calls from the front that may go as one command: one, or appends up to so many.
    pub(super) fn take(&self, most_items: usize, most_bytes: usize) -> Vec<Call> {
        let mut line = self.line.lock();
        let mut taken: Vec<Call> = Vec::new();
        let (mut items, mut bytes) = (0, 0);
        while let Some(next) = line.calls.front() {
            let joins = taken.is_empty()
                || (next.items > 0
                    && items > 0
                    && items + next.items <= most_items
                    && bytes + next.args.len() <= most_bytes);
            if !joins {
                break;
            }
            items += next.items;
            bytes += next.args.len();
            taken.extend(line.calls.pop_front());
            if items == 0 {
                break;
            }
        }
        taken
    }

    /// Takes the calls out whose time is over at `now`, and says when the next one's is.
    pub(super) fn take_late(&self, now: Elapsed) -> (Vec<Call>, Option<Elapsed>) {
        let mut line = self.line.lock();
        let mut late = Vec::new();
        while let Some(next) = line.calls.front() {
            let deadline = self.hub.cap(next.deadline);
            if deadline > now {
                return (late, Some(deadline));
            }
            late.extend(line.calls.pop_front());
        }
        (late, None)
    }
}

/// Answers all of these calls with the same refusal.
pub(super) fn refuse(hub: &Hub, calls: Vec<Call>, error: &Error) {
    for call in calls {
        hub.release(call.args.len());
        (call.answer)(Err(error.clone()));
    }
}
