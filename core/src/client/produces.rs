//! Numbered produces: which wait, which are out and unanswered, and what becomes of them (P2, P16).
//!
//! Confirmed and guaranteed messages get a number at their first send and are sent again over
//! reconnects until they are answered, expire, or time out. The numbers out at any time lie within
//! [`WINDOW`], so a resend is never below the window the server remembers. While something waits,
//! plain messages queue behind it, so that the order of the calls is the order on the wire (P8).
//!
//! Knows no clock and no socket: `now` is an argument, frames go into a buffer.

use std::collections::VecDeque;

use bytes::Bytes;

use super::answer::Settle;
use super::request::{Confirmed, DEFAULT_TIMEOUT};
use super::verbs::{self, Times};
use crate::clock::Elapsed;
use crate::{Error, ErrorKind, Result};

/// Most numbers between the oldest unanswered and the newest produce (P16).
const WINDOW: u64 = 1024;

/// One message that is kept.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The PRODUCE object without its end.
    pub(super) head: Vec<u8>,
    pub(super) attachments: Vec<Bytes>,
    pub(super) times: Times,
    pub(super) called: Elapsed,
    /// When to give up.
    pub(super) deadline: Option<Elapsed>,
    /// Confirmed or guaranteed; else plain.
    pub(super) numbered: bool,
    /// Who wants to know.
    pub(super) settle: Option<Settle<Confirmed>>,
}

impl Outgoing {
    pub(super) fn size(&self) -> usize {
        self.head.len() + self.attachments.iter().map(Bytes::len).sum::<usize>()
    }

    /// When something is to be done about it; the expiry of a plain one is found when it is sent.
    pub(super) fn due(&self) -> Option<Elapsed> {
        let expiry = self.times.expiry(self.called).filter(|_| self.numbered);
        self.deadline.into_iter().chain(expiry).min()
    }
}

/// A kept message that came to its end, to be told outside the lock.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) settle: Option<Settle<Confirmed>>,
    pub(super) result: Result<Confirmed>,
}

impl Ended {
    /// Tells whoever waits; comes back with the error if nobody does.
    pub(super) fn tell(self) -> Option<Error> {
        match self.settle {
            Some(settle) => {
                settle.settle(self.result);
                None
            }
            None => self.result.err(),
        }
    }
}

impl Outgoing {
    pub(super) fn end(self, result: Result<Confirmed>) -> Ended {
        Ended {
            settle: self.settle,
            result,
        }
    }
}

/// Where frames go, and what they need.
pub(super) struct Wire<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// The client's instance as JSON text.
    pub(super) instance: &'a str,
    pub(super) now: Elapsed,
    /// The earliest deadline that sending has set.
    pub(super) due: Option<Elapsed>,
}

#[derive(Debug)]
pub(super) struct Produces {
    /// Most bytes that are out and unanswered (or one message).
    max_sent_bytes: usize,
    waiting: VecDeque<Outgoing>,
    waiting_bytes: usize,
    /// By number, from `first` on; answered ones are none.
    sent: VecDeque<Option<Outgoing>>,
    first: u64,
    sent_bytes: usize,
}

impl Produces {
    pub(super) fn new(max_sent_bytes: usize) -> Self {
        Self {
            max_sent_bytes,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: VecDeque::new(),
            first: 1,
            sent_bytes: 0,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Whether nothing waits and nothing is unanswered.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// Keeps a message behind all others.
    pub(super) fn push(&mut self, outgoing: Outgoing) {
        self.waiting_bytes += outgoing.size();
        self.waiting.push_back(outgoing);
    }

    fn has_room(&self, next: &Outgoing) -> bool {
        !next.numbered
            || self.sent.is_empty()
            || ((self.sent.len() as u64) < WINDOW
                && self.sent_bytes + next.size() <= self.max_sent_bytes)
    }

    /// Sends what may be sent.
    pub(super) fn pump(&mut self, wire: &mut Wire<'_>, ended: &mut Vec<Ended>) {
        while self.waiting.front().is_some_and(|next| self.has_room(next))
            && let Some(next) = self.waiting.pop_front()
        {
            self.waiting_bytes -= next.size();
            self.send(next, wire, ended);
        }
    }

    fn send(&mut self, mut next: Outgoing, wire: &mut Wire<'_>, ended: &mut Vec<Ended>) {
        let Some(times) = next.times.after(wire.now.saturating_sub(next.called)) else {
            return ended.push(next.end(Err(expired())));
        };
        let number = self.first + self.sent.len() as u64;
        put(&next, times, number, wire);
        if next.numbered {
            arm(&mut next, wire);
            self.sent_bytes += next.size();
            self.sent.push_back(Some(next));
        }
    }

    /// Sends everything unanswered again, on a new link, under its old numbers.
    pub(super) fn resend(&mut self, wire: &mut Wire<'_>, ended: &mut Vec<Ended>) {
        for (number, slot) in (self.first..).zip(&mut self.sent) {
            let Some(outgoing) = slot else { continue };
            let waited = wire.now.saturating_sub(outgoing.called);
            if let Some(times) = outgoing.times.after(waited) {
                put(outgoing, times, number, wire);
                arm(outgoing, wire);
            } else if let Some(outgoing) = slot.take() {
                self.sent_bytes -= outgoing.size();
                ended.push(outgoing.end(Err(expired())));
            }
        }
        self.trim();
    }

    /// The server's answer to `number`; none if nobody waits for it.
    pub(super) fn answer(&mut self, number: u64, result: Result<Confirmed>) -> Option<Ended> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let outgoing = self.sent.get_mut(at)?.take()?;
        self.sent_bytes -= outgoing.size();
        self.trim();
        Some(outgoing.end(result))
    }

    fn trim(&mut self) {
        while self.sent.pop_front_if(|slot| slot.is_none()).is_some() {
            self.first += 1;
        }
    }

    /// The link is gone: plain messages go with it, unconfirmed ones stop the clock of their
    /// answer.
    pub(super) fn link_down(&mut self) {
        self.waiting.retain(|outgoing| outgoing.numbered);
        self.waiting_bytes = self.waiting.iter().map(Outgoing::size).sum();
        for outgoing in self.sent.iter_mut().flatten() {
            if outgoing.settle.is_none() {
                outgoing.deadline = None;
            }
        }
    }

    /// Ends what is past its time.
    pub(super) fn expire(&mut self, now: Elapsed, ended: &mut Vec<Ended>) {
        let is_due = |outgoing: &Outgoing| outgoing.due().is_some_and(|due| due <= now);
        let mut kept = VecDeque::with_capacity(self.waiting.len());
        for outgoing in std::mem::take(&mut self.waiting) {
            if is_due(&outgoing) {
                self.waiting_bytes -= outgoing.size();
                let is_late = outgoing.deadline.is_some_and(|deadline| deadline <= now);
                ended.push(outgoing.end(Err(if is_late { unanswered() } else { expired() })));
            } else {
                kept.push_back(outgoing);
            }
        }
        self.waiting = kept;
        for slot in &mut self.sent {
            // What is out may have arrived, so only its deadline counts until it is sent again.
            let late =
                slot.take_if(|outgoing| outgoing.deadline.is_some_and(|deadline| deadline <= now));
            if let Some(outgoing) = late {
                self.sent_bytes -= outgoing.size();
                ended.push(outgoing.end(Err(unanswered())));
            }
        }
        self.trim();
    }

    /// When [`Produces::expire`] has something to do next.
    pub(super) fn next_due(&self) -> Option<Elapsed> {
        let waiting = self.waiting.iter().filter_map(Outgoing::due);
        let sent = self.sent.iter().flatten();
        waiting
            .chain(sent.filter_map(|outgoing| outgoing.deadline))
            .min()
    }

    /// Takes everything, to be settled.
    pub(super) fn take(&mut self) -> Vec<Outgoing> {
        let sent = std::mem::take(&mut self.sent);
        self.first += sent.len() as u64;
        let waiting = std::mem::take(&mut self.waiting);
        (self.waiting_bytes, self.sent_bytes) = (0, 0);
        sent.into_iter().flatten().chain(waiting).collect()
    }
}

/// Guaranteed messages that nobody awaits have a deadline only while they are out: they may wait
/// for a link as long as they live, but a server that never answers must not fill the window.
fn arm(outgoing: &mut Outgoing, wire: &mut Wire<'_>) {
    if outgoing.settle.is_none() {
        outgoing.deadline = Some(wire.now.saturating_add(DEFAULT_TIMEOUT));
        wire.due = outgoing.deadline;
    }
}

fn put(outgoing: &Outgoing, times: Times, number: u64, wire: &mut Wire<'_>) {
    let numbered = outgoing.numbered.then_some((wire.instance, number));
    let reply = outgoing.numbered.then(|| reply_id(number));
    let attachments = &outgoing.attachments;
    verbs::produce(
        wire.out,
        &outgoing.head,
        times,
        numbered,
        attachments,
        reply,
    );
}

/// Numbered produces have the even reply ids, requests the odd ones.
pub(super) fn reply_id(number: u64) -> u64 {
    number << 1
}

fn expired() -> Error {
    Error::new(
        ErrorKind::Expired,
        "the message outlived its ttl before it could be sent",
    )
}

fn unanswered() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "the server did not answer in time; it may or may not have the message",
    )
}

#[cfg(test)]
mod tests;
