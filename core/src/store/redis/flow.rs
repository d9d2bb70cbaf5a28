//! How the calls of one lane go out and come back: numbers, epochs, repeats, deadlines.
//!
//! See [`super::lane`] for why a change happens once. Knows no call's meaning.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use redis::{RedisResult, Value};

use crate::clock::Elapsed;
use crate::{Error, ErrorKind, Result};

use super::answers;
use super::args::Args;
use super::hub::Hub;
use super::lane::{Call, Lane, refuse};
use super::names;
use super::script::{self, Place, SCRIPTS, Script};
use super::trouble::{self, Verdict};

/// Commands sent and not answered; Redis keeps the answers of so many (`lua/base.lua`).
const WINDOW: usize = 16;
/// Commands of one packet, and packets under way.
const PACKET: usize = 8;
const PACKETS: usize = 2;
const PACKET_BYTES: usize = 4 << 20;
/// Messages that go as one command.
const JOINED: usize = 64;
const JOINED_BYTES: usize = 1 << 20;
/// Between two tries.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);
/// How long a try to begin anew may take.
const TRY: Duration = Duration::from_secs(2);

/// One call of a script, for one caller or for several whose appends go together.
struct Command {
    script: Script,
    args: Args,
    ids: u64,
    calls: Vec<Call>,
    number: u64,
    deadline: Elapsed,
    /// It may have happened.
    is_sent: bool,
}

type Flight = Pin<Box<dyn Future<Output = Landed> + Send>>;

struct Landed {
    link: u64,
    count: usize,
    values: RedisResult<Vec<Value>>,
}

/// See the module.
pub(super) struct Flow {
    hub: Arc<Hub>,
    tag: Option<u64>,
    prefix: String,
    epoch: u64,
    /// The last number given to a change.
    last: u64,
    /// Sent and not answered, or to be sent first.
    window: VecDeque<Command>,
    /// How many of the window are under way.
    under_way: usize,
    is_known: [bool; SCRIPTS],
    is_broken: bool,
    wait: Duration,
    reason: Error,
}

impl Flow {
    pub(super) fn new(hub: Arc<Hub>, tag: Option<u64>) -> Self {
        Self {
            prefix: tag.map_or_else(String::new, |tag| prefix(&hub, tag)),
            hub,
            tag,
            epoch: 0,
            last: 0,
            window: VecDeque::new(),
            under_way: 0,
            is_known: [false; SCRIPTS],
            is_broken: true,
            wait: SHORTEST,
            reason: trouble::unavailable("no connection"),
        }
    }

    /// Works until nothing is in line or under way.
    pub(super) async fn work(&mut self, lane: &Lane) {
        let mut flying: FuturesOrdered<Flight> = FuturesOrdered::new();
        loop {
            let next = self.expire(lane);
            if self.window.is_empty() && lane.is_line_empty() {
                return;
            }
            if self.is_broken {
                // What is still under way ends with its epoch.
                flying.clear();
                self.under_way = 0;
                self.recover(lane).await;
                continue;
            }
            while flying.len() < PACKETS && !self.is_broken {
                match self.form(lane) {
                    Some(flight) => flying.push_back(flight),
                    None => break,
                }
            }
            if flying.is_empty() {
                // What the window still holds was meant to be under way.
                self.is_broken = true;
                continue;
            }
            let clock = self.hub.clock.clone();
            let until = next.or_else(|| self.window.front().map(|front| front.deadline));
            let until = until.unwrap_or_else(|| clock.elapsed() + TRY);
            tokio::select! {
                biased;
                Some(landed) = flying.next() => self.land(landed),
                () = lane.rung() => {}
                () = clock.sleep_until(until) => {}
            }
        }
    }

    /// Refuses what has waited too long; when the next one's time is over.
    fn expire(&mut self, lane: &Lane) -> Option<Elapsed> {
        let now = self.hub.clock.elapsed();
        while let Some(front) = self.window.front()
            && self.hub.cap(front.deadline) <= now
            && let Some(late) = self.window.pop_front()
        {
            self.under_way = self.under_way.saturating_sub(1);
            let error = if late.is_sent {
                let message = format!("no answer in time ({})", self.reason.message());
                Error::new(ErrorKind::StoreTimeout, message)
            } else {
                self.reason.clone()
            };
            self.hub.trouble(&error);
            if !self.is_broken {
                self.hub.links.drop_present();
                self.is_broken = true;
            }
            refuse(&self.hub, late.calls, &error);
        }
        let (late, next) = lane.take_late(now);
        refuse(&self.hub, late, &self.reason);
        let front = self
            .window
            .front()
            .map(|front| self.hub.cap(front.deadline));
        front.into_iter().chain(next).min()
    }

    /// Begins a new epoch, however often that has to be tried while somebody waits.
    async fn recover(&mut self, lane: &Lane) {
        loop {
            let next = self.expire(lane);
            if self.window.is_empty() && lane.is_line_empty() {
                return;
            }
            let clock = self.hub.clock.clone();
            let until = clock.elapsed() + TRY;
            let until = next.map_or(until, |next| next.min(until));
            let tried = tokio::select! {
                tried = self.begin(lane) => tried,
                () = clock.sleep_until(until) => Err(trouble::unavailable("no answer")),
                () = lane.rung(), if self.hub.is_closed() => continue,
            };
            let Err(error) = tried else {
                self.is_broken = false;
                return;
            };
            self.hub.trouble(&error);
            self.hub.links.drop_present();
            self.reason = error;
            let pause = clock.elapsed() + self.wait;
            self.wait = (self.wait * 2).min(LONGEST);
            let pause = next.map_or(pause, |next| next.min(pause));
            tokio::select! {
                () = clock.sleep_until(pause) => {}
                () = lane.rung(), if self.hub.is_closed() => {}
            }
        }
    }

    async fn begin(&mut self, lane: &Lane) -> Result<()> {
        let (_, mut link) = self.hub.links.get().await?;
        self.hub.stock(&mut link).await?;
        if self.tag.is_none() {
            let tag = names::tag(&self.hub, &mut link, &lane.realm()).await?;
            self.prefix = prefix(&self.hub, tag);
            self.tag = Some(tag);
        }
        self.epoch += 1;
        let changes = self.window.iter().filter(|command| command.is_change());
        let first = changes.map(|command| command.number).next();
        let from = first.filter(|number| *number > 0);
        let place = Place {
            prefix: &self.prefix,
            writer: &self.hub.writer,
            epoch: self.epoch,
            number: from.unwrap_or(self.last + 1),
        };
        lane.tag
            .store(self.tag.unwrap_or_default(), Ordering::Release);
        let mut args = Args::new();
        args.flag(self.hub.is_told.load(Ordering::Acquire));
        let cmd = script::command(Script::Begin, false, place, &[&args]);
        let value = link
            .one(&cmd)
            .await
            .map_err(|error| trouble::said(&error))?;
        let (last, mut happened) = answers::begun(value)?;
        let mut number = last;
        for command in std::mem::take(&mut self.window) {
            if command.is_change() && command.is_sent {
                self.hub.state.lock().repeats += 1;
                if let Some(value) = happened.remove(&command.number) {
                    self.finish(command, Ok(value));
                    continue;
                }
            }
            number += u64::from(command.is_change());
            // What was sent in an earlier epoch cannot happen any more.
            self.window.push_back(Command {
                number,
                is_sent: false,
                ..command
            });
        }
        self.last = number;
        Ok(())
    }

    /// The next packet: what has to go again, then new calls.
    fn form(&mut self, lane: &Lane) -> Option<Flight> {
        let mut pipeline = redis::pipe();
        let (mut count, mut bytes) = (0, 0);
        while count < PACKET && bytes < PACKET_BYTES {
            if self.under_way == self.window.len()
                && (self.window.len() >= WINDOW || !self.admit(lane))
            {
                break;
            }
            let Some(command) = self.window.get_mut(self.under_way) else {
                break;
            };
            if command.ids > 0 {
                let Some(first) = self.hub.take_ids(command.ids) else {
                    // Beginning anew gets some.
                    self.is_broken = true;
                    break;
                };
                (first..first + command.ids).for_each(|id| {
                    command.args.id(id);
                });
                command.ids = 0;
            }
            command.is_sent = true;
            let place = Place {
                prefix: &self.prefix,
                writer: &self.hub.writer,
                epoch: self.epoch,
                number: command.number,
            };
            let is_known = std::mem::replace(&mut self.is_known[command.script as usize], true);
            let cmd = script::command(command.script, is_known, place, &[&command.args]);
            pipeline.add_command(cmd);
            bytes += command.args.len();
            count += 1;
            self.under_way += 1;
        }
        if count == 0 {
            return None;
        }
        let Some((number, mut link)) = self.hub.links.present() else {
            self.is_broken = true;
            return None;
        };
        Some(Box::pin(async move {
            let values = link.pipeline(&pipeline).await;
            Landed {
                link: number,
                count,
                values,
            }
        }))
    }

    /// Takes the next calls out of the line into the window; whether there were any.
    fn admit(&mut self, lane: &Lane) -> bool {
        let calls = lane.take(JOINED, JOINED_BYTES);
        let (Some(first), Some(last)) = (calls.first(), calls.last()) else {
            return false;
        };
        let (script, ids, deadline) = (first.script, first.ids, last.deadline);
        let mut args = Args::new();
        if script == Script::Append {
            args.append_head(&self.hub.bounds, &lane.realm());
        }
        calls.iter().for_each(|call| args.join(&call.args));
        self.last += u64::from(!script.is_look());
        self.window.push_back(Command {
            script,
            args,
            ids,
            calls,
            number: self.last,
            deadline,
            is_sent: false,
        });
        true
    }

    /// What became of the first commands under way.
    fn land(&mut self, landed: Landed) {
        let values = match landed.values {
            Ok(values) if values.len() == landed.count => values,
            other => {
                let what = other.err().map(|error| error.to_string());
                self.reason =
                    trouble::unavailable(what.as_deref().unwrap_or("answers are missing"));
                self.hub.trouble(&self.reason);
                self.hub.links.broken(landed.link);
                self.is_broken = true;
                return;
            }
        };
        let mut again = VecDeque::new();
        for value in values {
            let Some(command) = self.window.pop_front() else {
                break;
            };
            self.under_way = self.under_way.saturating_sub(1);
            match trouble::judge(value) {
                Verdict::Done(value) => {
                    self.wait = SHORTEST;
                    self.hub.fine(command.script == Script::Append);
                    self.finish(command, Ok(value));
                }
                Verdict::Refused(error) => {
                    // Its number was not used.
                    self.is_broken |= command.is_change();
                    self.hub.trouble(&error);
                    self.finish(command, Err(error));
                }
                Verdict::Unloaded => {
                    self.is_known = [false; SCRIPTS];
                    again.push_back(command.unsent());
                }
                Verdict::Again(error) => {
                    self.reason = error;
                    again.push_back(command.unsent());
                }
            }
        }
        if !again.is_empty() {
            self.is_broken = true;
            while let Some(command) = again.pop_back() {
                self.window.push_front(command);
            }
        }
    }

    fn finish(&self, command: Command, answer: Result<Value>) {
        let mut calls = command.calls;
        calls
            .iter()
            .for_each(|call| self.hub.release(call.args.len()));
        if command.script == Script::Append {
            let items: Vec<usize> = calls.iter().map(|call| call.items).collect();
            let parts = answers::split(&self.hub, answer, &items);
            for (call, part) in calls.into_iter().zip(parts) {
                (call.answer)(part);
            }
        } else if let Some(call) = calls.pop() {
            (call.answer)(answer);
        }
    }
}

impl Command {
    fn is_change(&self) -> bool {
        !self.script.is_look()
    }

    /// It has surely not happened.
    fn unsent(self) -> Self {
        Self {
            is_sent: false,
            ..self
        }
    }
}

pub(super) fn prefix(hub: &Hub, tag: u64) -> String {
    format!("{}:{{{tag}}}:", hub.options.prefix)
}
