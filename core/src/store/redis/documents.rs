//! Documents in Redis: their line, and what scripts are asked about them.
//!
//! All documents lie in one slot of their own, so that one script (`lua/documents.lua`) changes several
//! of them or none. Calls of this broker go one after the other, each change with a number: one that
//! is sent again, or comes late, happens once. Other brokers are told by a notice.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::clock::{Elapsed, Timestamp};
use crate::{Error, ErrorKind, Result};

use super::super::documents::{
    Collection, Condition, Document, DocumentChange, DocumentRecord, Documents, checked, conflict,
};
use super::super::pending::Pending;
use super::super::record::{Gone, Record};
use super::answers::{list, strange, text};
use super::args::{Args, exact};
use super::hub::{Hub, closed};
use super::lanes::Lanes;
use super::trouble::{self, Verdict};
use super::{RedisStore, notices};

const SCRIPT: &str = include_str!("lua/documents.lua");
/// Most calls in line.
const LINE: usize = 1024;
/// Documents that one script ends, or drops, at most.
const BITE: usize = 500;
/// Before a call is sent again.
const PAUSE: Duration = Duration::from_millis(50);

struct Job {
    what: &'static str,
    is_look: bool,
    args: Args,
    deadline: Elapsed,
    answer: oneshot::Sender<Result<Value>>,
}

/// The line of calls about documents.
pub(super) struct DocumentLine {
    hub: Arc<Hub>,
    jobs: mpsc::Sender<Job>,
}

impl DocumentLine {
    pub(super) fn start(hub: &Arc<Hub>, runtime: &Handle) -> Self {
        let (jobs, mut waiting) = mpsc::channel::<Job>(LINE);
        let working = Arc::clone(hub);
        runtime.spawn(async move {
            let mut number = 0;
            while let Some(job) = waiting.recv().await {
                number += u64::from(!job.is_look);
                let answer = perform(&working, &job, number).await;
                // Nobody may wait any more.
                let _ = job.answer.send(answer);
                working.busy.send_modify(|busy| *busy -= 1);
            }
        });
        Self {
            hub: Arc::clone(hub),
            jobs,
        }
    }

    /// Puts a call at the end of the line; what the script says.
    pub(super) fn call(
        &self,
        what: &'static str,
        is_look: bool,
        args: Args,
    ) -> impl Future<Output = Result<Value>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let job = Job {
            what,
            is_look,
            args,
            deadline: self.hub.clock.elapsed() + self.hub.options.timeout,
            answer,
        };
        let refused = match self.hub.is_closed() {
            true => Some(closed()),
            false => self.push(job).err(),
        };
        async move {
            match refused {
                Some(error) => Err(error),
                None => answered.await.unwrap_or_else(|_| Err(closed())),
            }
        }
    }

    fn push(&self, job: Job) -> Result<()> {
        self.hub.busy.send_modify(|busy| *busy += 1);
        self.jobs.try_send(job).map_err(|_| {
            self.hub.busy.send_modify(|busy| *busy -= 1);
            trouble::unavailable("too much about realms and tokens waits for it already")
        })
    }

    /// Ends what has expired, at most so many; whether there may be more.
    pub(super) async fn sweep(&self, now: Timestamp, budget: usize) -> Result<bool> {
        let most = budget.clamp(1, BITE);
        let mut args = Args::new();
        args.time(now).size(most);
        let swept = self.call("sweep", false, args).await?;
        Ok(count(&swept)? >= most as u64)
    }

    /// Whether there are any.
    pub(super) async fn is_empty(&self) -> Result<bool> {
        let counted = self.call("count", true, collections(Args::new())).await?;
        Ok(count(&counted)? == 0)
    }

    /// Drops all of them.
    pub(super) async fn wipe(&self) -> Result<()> {
        loop {
            let mut args = Args::new();
            args.size(BITE);
            let gone = self.call("wipe", false, collections(args)).await?;
            if count(&gone)? < BITE as u64 {
                return Ok(());
            }
        }
    }

    /// Takes rows of a copy in.
    pub(super) async fn take(&self, records: &[Record]) -> Result<()> {
        let mut args = Args::new();
        for record in records {
            match record {
                Record::Document(told) => put(&mut args, told)?,
                Record::Gone(Gone::Document { collection, key }) => {
                    args.text(collection.as_str()).text(key);
                    args.text("0").text("-").text("-");
                }
                Record::Gone(Gone::Documents) => {
                    args = Args::new();
                    self.wipe().await?;
                }
                _ => {}
            }
        }
        match args.is_empty() {
            true => Ok(()),
            false => self.call("take", false, args).await.map(|_| ()),
        }
    }

    /// How often anything has changed.
    pub(super) async fn changes(&self) -> Result<u64> {
        count(&self.call("changes", true, Args::new()).await?)
    }

    /// One script's worth of a collection; where the next one begins, if there is more.
    pub(super) async fn page(
        &self,
        collection: Collection,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<Document>, Option<Arc<str>>)> {
        read_page(
            self.call("page", true, page_args(collection, after, limit, now))
                .await?,
        )
    }
}

fn collections(mut args: Args) -> Args {
    for collection in Collection::ALL {
        args.text(collection.as_str());
    }
    args
}

fn put(args: &mut Args, told: &DocumentRecord) -> Result<()> {
    let document = told.document()?;
    args.text(told.collection.as_str()).text(&document.key);
    args.number(document.version);
    expiry(args, document.expires);
    args.optional(Some(&document.text));
    Ok(())
}

fn expiry(args: &mut Args, expires: Option<Timestamp>) {
    match expires {
        Some(at) => args.time(at),
        None => args.text("-"),
    };
}

fn count(value: &Value) -> Result<u64> {
    text(value)?.parse().map_err(|_| strange())
}

fn page_args(collection: Collection, after: Option<&str>, limit: usize, now: Timestamp) -> Args {
    let mut args = Args::new();
    args.text(collection.as_str());
    match after {
        Some(key) => args.text(&format!("({key}")),
        None => args.text("-"),
    };
    args.time(now).size(limit.min(Document::MAX_PAGE));
    args
}

fn read_page(value: Value) -> Result<(Vec<Document>, Option<Arc<str>>)> {
    let mut parts = list(value)?.into_iter();
    let (Some(last), Some(found)) = (parts.next(), parts.next()) else {
        return Err(strange());
    };
    let last = Some(text(&last)?).filter(|last| !last.is_empty());
    let found = list(found)?;
    let documents = found.chunks_exact(2).map(|pair| {
        let mut words = text(&pair[1])?.splitn(3, ' ');
        let (version, expires, said) = (words.next(), words.next(), words.next());
        let number = |word: &str| word.parse::<u64>().map_err(|_| strange());
        let expires = expires.filter(|at| *at != "-").map(number).transpose()?;
        Ok(Document {
            key: text(&pair[0])?.into(),
            text: said.ok_or_else(strange)?.into(),
            version: number(version.unwrap_or_default())?,
            expires: expires.map(Timestamp),
        })
    });
    Ok((documents.collect::<Result<_>>()?, last.map(Arc::from)))
}

/// Does a call, sending it again as long as its time is not over.
async fn perform(hub: &Hub, job: &Job, number: u64) -> Result<Value> {
    let number = if job.is_look { 0 } else { number };
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(SCRIPT).arg(1).arg(prefix(hub));
    cmd.arg(&hub.writer).arg(number).arg(job.what);
    for arg in job.args.iter() {
        cmd.arg(arg);
    }
    let mut pipeline = redis::pipe();
    pipeline.add_command(cmd);
    let mut reason = trouble::unavailable("no answer in time");
    let mut may_have_happened = false;
    loop {
        let deadline = hub.cap(job.deadline);
        if hub.clock.elapsed() >= deadline {
            hub.trouble(&reason);
            return Err(match may_have_happened && !job.is_look {
                true => Error::new(ErrorKind::StoreTimeout, reason.message()),
                false => reason,
            });
        }
        let asked = async {
            let (link_number, mut link) = hub.links.get().await?;
            Ok((link_number, link.pipeline(&pipeline).await))
        };
        let asked = tokio::select! {
            asked = asked => asked,
            () = hub.clock.sleep_until(deadline) => {
                may_have_happened = true;
                hub.links.drop_present();
                continue;
            }
        };
        match asked {
            Ok((_, Ok(values))) => {
                let value = values.into_iter().next().ok_or_else(strange)?;
                match trouble::judge(value) {
                    Verdict::Done(value) => {
                        hub.fine(false);
                        return Ok(value);
                    }
                    Verdict::Refused(error) => return Err(error),
                    Verdict::Again(error) => reason = error,
                    // It was given its whole text.
                    Verdict::Unloaded => reason = strange(),
                }
            }
            Ok((link_number, Err(error))) => {
                may_have_happened = true;
                reason = trouble::said(&error);
                hub.links.broken(link_number);
            }
            Err(error) => reason = error,
        }
        let pause = (hub.clock.elapsed() + PAUSE).min(deadline);
        hub.clock.sleep_until(pause).await;
    }
}

fn prefix(hub: &Hub) -> String {
    format!("{}:{{documents}}:", hub.options.prefix)
}

impl Documents for RedisStore {
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        let line = &self.lanes.documents;
        let first = line.call(
            "page",
            true,
            page_args(collection, after.as_deref(), limit, now),
        );
        let lanes: Arc<Lanes> = Arc::clone(&self.lanes);
        Pending::waiting(async move {
            let (mut found, mut last) = read_page(first.await?)?;
            // What has expired is still there until the sweep comes.
            while let (true, Some(after)) = (found.is_empty() && limit > 0, &last) {
                let next = lanes.documents.page(collection, Some(after), limit, now);
                (found, last) = next.await?;
            }
            Ok(found)
        })
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        if let Some(refused) = checked(&changes) {
            return refused;
        }
        let mut args = Args::new();
        args.text(&notices::channel(&self.lanes.hub));
        args.time(now).size(changes.len());
        for change in &changes {
            args.text(change.collection.as_str()).text(&change.key);
            expiry(&mut args, change.expires);
            match change.only_if {
                Condition::Always => args.text("-"),
                Condition::Absent => args.text("absent"),
                Condition::Version(version) => args.number(exact(version)),
            };
            args.optional(change.text.as_deref());
        }
        let answer = self.lanes.documents.call("change", false, args);
        Pending::waiting(async move {
            match text(&answer.await?)? {
                "ok" => Ok(()),
                "conflict" => Err(conflict()),
                _ => Err(strange()),
            }
        })
    }
}
