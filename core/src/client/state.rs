//! Everything a connection remembers, under one short lock: the line of frames, open answers,
//! subscriptions, acks.
//!
//! Nothing here waits, calls out, or knows a socket: what has to be told comes back as
//! [`Outcomes`], to be told after the lock is gone. Called by the handle and by the link.

mod answers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Settle;
use super::options::{ConnectOptions, Identity, OfflinePolicy};
use super::produces::{Ended, Outgoing, Produces, Wire};
use super::request::Unsubscribed;
use super::subscriptions::{Entry, Goodbye, Names, Subscriptions, Waiter};
use super::verbs;
use crate::clock::Elapsed;
use crate::{Error, ErrorKind, Result};

/// Acks that are kept while there is no link; more are left to redelivery.
const MAX_ACKS: usize = 16_384;
/// Ids in one ACK.
const ACKS_PER_FRAME: usize = 1024;

/// Who waits for the reply to a request.
#[derive(Debug)]
enum Request {
    Subscribe(u32),
    Unsubscribe(u32),
    Reply(Waiter<String>),
    /// A registration.
    Register,
    /// Everything before it was read.
    Ready(Elapsed),
}

/// What to tell once the lock is gone.
#[derive(Default)]
pub(super) struct Outcomes {
    pub(super) ended: Vec<Ended>,
    pub(super) answers: Vec<Box<dyn FnOnce() + Send>>,
    /// What became of the registrations, as far as can be known.
    pub(super) ready: Option<Result<()>>,
    /// A new deadline.
    pub(super) due: Option<Elapsed>,
    /// A renewed subscription was refused: the reply's payload.
    pub(super) refused: Option<String>,
    /// Keys whose plain messages may have been missed.
    pub(super) gap: Vec<String>,
}

impl Outcomes {
    fn answer<T: Send + 'static>(&mut self, settle: Settle<T>, result: Result<T>) {
        self.answers.push(Box::new(move || settle.settle(result)));
    }
}

/// A message that was not kept, and why.
pub(super) type Unkept = Box<(Outgoing, Error)>;

/// What does not change over the life of a connection.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) options: ConnectOptions,
    pub(super) identity: Identity,
    pub(super) instance: String,
    /// The same as JSON text.
    pub(super) instance_json: String,
    /// The producer's name as JSON text.
    pub(super) from_json: Option<String>,
}

#[derive(Debug)]
pub(super) struct State {
    /// Logged in and registered.
    is_up: bool,
    /// What became of the first registrations is known.
    is_ready: bool,
    /// Registrations whose replies are missing.
    registering: usize,
    /// Why nothing more is taken: closing, closed, or down for good.
    end: Option<Error>,
    socket_id: Option<String>,
    /// Frames for the next write.
    line: Vec<u8>,
    /// Bytes of the write that is going on.
    writing: usize,
    was_high: bool,
    pub(super) produces: Produces,
    pub(super) subscriptions: Subscriptions,
    requests: HashMap<u64, Request>,
    last_request: u64,
    acks: Vec<(String, Option<u32>)>,
    /// The server answers SUBSCRIBE, so it is one of ours and takes many acks in one frame.
    is_ours: bool,
    /// Keys on which live messages may have been missed: told once they are listened to again, or
    /// what comes between would be missed unsaid.
    missed: Vec<String>,
    /// Subscriptions renewed on this link whose replies are missing, and the last reply id of them.
    renewals: usize,
    last_renewal: u64,
    /// No deadline is earlier.
    pub(super) deadline: Option<Elapsed>,
}

impl State {
    pub(super) fn new(options: &ConnectOptions) -> Self {
        Self {
            is_up: false,
            is_ready: false,
            registering: 0,
            missed: Vec::new(),
            renewals: 0,
            last_renewal: 0,
            end: None,
            socket_id: None,
            line: Vec::new(),
            writing: 0,
            was_high: false,
            produces: Produces::new(options.outbound.hard_limit),
            subscriptions: Subscriptions::default(),
            requests: HashMap::new(),
            last_request: 0,
            acks: Vec::new(),
            is_ours: false,
            deadline: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(super) fn socket_id(&self) -> Option<&String> {
        self.socket_id.as_ref()
    }

    pub(super) fn names(&self) -> Arc<Names> {
        self.subscriptions.names()
    }

    /// Bytes that wait to be sent.
    pub(super) fn buffered(&self) -> usize {
        self.line.len() + self.writing + self.produces.waiting_bytes()
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.buffered() == 0 && self.acks.is_empty()
    }

    /// Whether nothing waits to be sent and no produce is unanswered.
    pub(super) fn is_done(&self) -> bool {
        self.is_idle() && self.produces.is_empty()
    }

    /// Whether anything new is taken.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_open(&self) -> Result<()> {
        self.end.clone().map_or(Ok(()), Err)
    }

    /// Takes nothing new from now on; the first reason stays.
    pub(super) fn shut(&mut self, error: Error) {
        self.end.get_or_insert(error);
    }

    /// The line, if there is a link and room for `size` more bytes (or for one message).
    ///
    /// # Errors
    /// `disconnected`, `queue_full`.
    pub(super) fn line(&mut self, size: usize, fixed: &Fixed) -> Result<&mut Vec<u8>> {
        self.check_open()?;
        if !self.is_up {
            return Err(Error::new(
                ErrorKind::Disconnected,
                "there is no connection at the moment",
            ));
        }
        self.check_room(size, fixed)?;
        Ok(&mut self.line)
    }

    fn check_room(&self, size: usize, fixed: &Fixed) -> Result<()> {
        let buffered = self.buffered();
        if buffered > 0 && buffered.saturating_add(size) > fixed.options.outbound.hard_limit {
            return Err(queue_full(buffered));
        }
        Ok(())
    }

    /// Whether less than the high-water mark waits.
    pub(super) fn is_below_high_water(&mut self, fixed: &Fixed) -> bool {
        let is_high = self.buffered() >= fixed.options.outbound.high_water;
        self.was_high |= is_high;
        !is_high
    }

    /// Keeps a message; the next write takes it along if the window has room.
    pub(super) fn keep(&mut self, outgoing: Outgoing, fixed: &Fixed) -> Result<(), Unkept> {
        if let Err(error) = self.check_keep(&outgoing, fixed) {
            return Err(Box::new((outgoing, error)));
        }
        self.produces.push(outgoing);
        Ok(())
    }

    fn check_keep(&self, outgoing: &Outgoing, fixed: &Fixed) -> Result<()> {
        self.check_open()?;
        if self.is_up {
            return self.check_room(outgoing.size(), fixed);
        }
        let offline = &fixed.options.offline;
        if offline.policy == OfflinePolicy::Reject || !outgoing.numbered {
            return Err(Error::new(
                ErrorKind::Disconnected,
                "there is no connection at the moment",
            ));
        }
        let bytes = self.produces.waiting_bytes();
        let is_full = self.produces.waiting() >= offline.max_messages
            || (bytes > 0 && bytes.saturating_add(outgoing.size()) > offline.max_bytes);
        if is_full {
            Err(queue_full(bytes))
        } else {
            Ok(())
        }
    }

    /// A new odd reply id, for `request`.
    fn request(&mut self, request: Request) -> u64 {
        self.last_request += 1;
        let id = self.last_request << 1 | 1;
        self.requests.insert(id, request);
        id
    }

    /// A reply id for a registration while it matters what becomes of it.
    fn register(&mut self) -> Option<u64> {
        (!self.is_ready).then(|| {
            self.registering += 1;
            self.request(Request::Register)
        })
    }

    fn await_ready(&mut self, now: Elapsed, wait: Duration, outcomes: &mut Outcomes) -> u64 {
        let deadline = now.saturating_add(wait);
        outcomes.due = Some(deadline);
        self.request(Request::Ready(deadline))
    }

    /// Whoever waits for the reply under the id that comes back.
    pub(super) fn await_reply(&mut self, settle: Settle<String>, deadline: Elapsed) -> u64 {
        self.request(Request::Reply(Waiter { settle, deadline }))
    }

    /// Subscribes now, or when there is a link. What it replaces comes back, to be dropped outside
    /// the lock.
    pub(super) fn subscribe(&mut self, entry: Entry) -> (u32, Option<Entry>) {
        let (id, replaced) = self.subscriptions.put(entry);
        if self.is_up {
            self.send_subscribe(id);
        }
        (id, replaced)
    }

    fn send_subscribe(&mut self, id: u32) {
        let reply = self.request(Request::Subscribe(id));
        if let Some(entry) = self.subscriptions.entries.get_mut(&id) {
            entry.was_sent = true;
            verbs::subscribe(&mut self.line, &entry.subscribe, reply);
        }
    }

    /// Unsubscribes now, or when there is a link; the waiter comes back if there is no such
    /// subscription.
    pub(super) fn unsubscribe(
        &mut self,
        id: u32,
        purge: bool,
        waiter: Waiter<Unsubscribed>,
    ) -> Result<(), Waiter<Unsubscribed>> {
        let Some(entry) = self.subscriptions.remove(id) else {
            return Err(waiter);
        };
        let goodbye = Goodbye {
            subscribe: entry.subscribe,
            purge,
            waiter: Some(waiter),
            was_sent: false,
        };
        self.subscriptions.goodbyes.insert(id, goodbye);
        if self.is_up {
            self.send_unsubscribe(id);
        }
        Ok(())
    }

    /// Forgets a subscription that stays at the server, which is told to send no more of it; without
    /// a link it does not send. What was forgotten comes back, to be dropped outside the lock.
    pub(super) fn detach(&mut self, id: u32) -> Option<Entry> {
        let entry = self.subscriptions.remove(id)?;
        if self.is_up && entry.was_sent {
            // Before it, or what is acked here would be delivered again.
            self.flush_acks();
            verbs::detach(&mut self.line, &entry.subscribe);
        }
        Some(entry)
    }

    fn send_unsubscribe(&mut self, id: u32) {
        self.flush_acks();
        let reply = self.request(Request::Unsubscribe(id));
        if let Some(goodbye) = self.subscriptions.goodbyes.get_mut(&id) {
            goodbye.was_sent = true;
            verbs::unsubscribe(&mut self.line, &goodbye.subscribe, goodbye.purge, reply);
        }
    }

    /// Keeps an ack for the next write; true if the link has to be woken.
    pub(super) fn ack(&mut self, msg_id: &str, attempt: Option<u32>) -> bool {
        let is_first = self.acks.is_empty();
        if self.end.is_none() && self.acks.len() < MAX_ACKS {
            self.acks.push((msg_id.to_owned(), attempt));
        }
        is_first && self.is_up
    }

    fn flush_acks(&mut self) {
        let out = &mut self.line;
        match &self.acks[..] {
            [] => return,
            many @ [_, _, ..] if self.is_ours => {
                for some in many.chunks(ACKS_PER_FRAME) {
                    let ids = some.iter().map(|(id, _)| id.as_str());
                    verbs::ack_many(out, ids, some.len() * 40);
                }
            }
            each => {
                for (id, attempt) in each {
                    verbs::ack(out, id, *attempt);
                }
            }
        }
        self.acks.clear();
    }

    /// Takes acks, what waits and has room, and the line for the next write, into an empty buffer.
    /// True if the low-water mark was passed.
    pub(super) fn take_line(
        &mut self,
        out: &mut Vec<u8>,
        now: Elapsed,
        fixed: &Fixed,
    ) -> (Outcomes, bool) {
        let mut outcomes = Outcomes::default();
        self.flush_acks();
        let mut wire = Wire {
            out: &mut self.line,
            instance: &fixed.instance_json,
            now,
            due: None,
        };
        self.produces.pump(&mut wire, &mut outcomes.ended);
        outcomes.due = wire.due;
        std::mem::swap(out, &mut self.line);
        self.writing = out.len();
        let is_drained = self.was_high && self.buffered() < fixed.options.outbound.low_water;
        self.was_high &= !is_drained;
        (outcomes, is_drained)
    }

    /// Logged in: registers, acks, ends and renews subscriptions, and sends again what is open.
    pub(super) fn link_up(&mut self, socket_id: &str, now: Elapsed, fixed: &Fixed) -> Outcomes {
        let mut outcomes = Outcomes::default();
        self.is_up = true;
        self.socket_id = Some(socket_id.to_owned());
        if let Some(consumer) = &fixed.identity.consumer {
            let gap = fixed.options.gap;
            let reply = self.register();
            verbs::consumer(&mut self.line, consumer, &fixed.instance, gap, reply);
        }
        if let Some(producer) = &fixed.identity.producer {
            let reply = self.register();
            verbs::producer(&mut self.line, producer, &fixed.instance, reply);
        }
        // Before the subscriptions, or what is acked here would be delivered again.
        self.flush_acks();
        if !self.is_ready {
            let reply = self.await_ready(now, READY_WAIT, &mut outcomes);
            verbs::ping(&mut self.line, reply);
        }
        let goodbyes: Vec<u32> = self.subscriptions.goodbyes.keys().copied().collect();
        for id in goodbyes {
            self.send_unsubscribe(id);
        }
        let entries = &self.subscriptions.entries;
        let missed = entries
            .values()
            .filter(|entry| entry.was_sent && !entry.subscribe.durable);
        self.missed = missed.map(|entry| entry.key.wire_name()).collect();
        let ids: Vec<u32> = entries.keys().copied().collect();
        self.renewals = ids.len();
        for id in ids {
            self.send_subscribe(id);
        }
        self.last_renewal = self.last_request << 1 | 1;
        if !self.is_ours {
            outcomes.gap = std::mem::take(&mut self.missed);
        }
        let mut wire = Wire {
            out: &mut self.line,
            instance: &fixed.instance_json,
            now,
            due: None,
        };
        self.produces.resend(&mut wire, &mut outcomes.ended);
        outcomes.due = wire.due.or(outcomes.due);
        outcomes
    }

    /// The link is gone, with everything that was on it; true if it had been up.
    pub(super) fn link_down(&mut self) -> (Outcomes, bool) {
        let mut outcomes = Outcomes::default();
        let was_up = std::mem::take(&mut self.is_up);
        self.socket_id = None;
        self.registering = 0;
        self.renewals = 0;
        self.line = Vec::new();
        self.writing = 0;
        self.produces.link_down();
        self.subscriptions.link_down();
        for (_, request) in self.requests.drain() {
            // Subscriptions are sent again.
            if let Request::Reply(waiter) = request {
                outcomes.answer(waiter.settle, Err(super::answer::closed()));
            }
        }
        (outcomes, was_up)
    }

    /// Remembers a deadline; true if it is earlier than all others.
    pub(super) fn note(&mut self, deadline: Option<Elapsed>) -> bool {
        let Some(deadline) = deadline else {
            return false;
        };
        let is_earlier = self.deadline.is_none_or(|earliest| deadline < earliest);
        if is_earlier {
            self.deadline = Some(deadline);
        }
        is_earlier
    }
}

/// The longest a server probes a silent holder of a name (P22), and a little.
const READY_WAIT: Duration = Duration::from_secs(6);
/// How long a server that has answered PING may take to answer a registration; tyo-mq never does.
const REGISTER_WAIT: Duration = Duration::from_millis(500);

fn queue_full(buffered: usize) -> Error {
    Error::new(
        ErrorKind::QueueFull,
        format!("{buffered} bytes wait to be sent already, wait for drain"),
    )
}

#[cfg(test)]
mod tests;
