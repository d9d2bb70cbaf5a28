//! A consumer for Rust users: subscriptions as streams, deliveries that can be settled.
//!
//! What waits in the streams is bounded together: beyond that the socket is not read, and the
//! server holds back.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::connection::Connection;
use super::factory::Observer;
use super::request::{Nack, Subscribe, Unsubscribed};
use super::sink::{ClientEvent, Delivery, Sink};
use crate::{Error, ErrorKind, Result};

/// Bytes that may wait in the streams of one connection.
const MAX_HELD: usize = 16 << 20;
/// What a waiting message costs beside its bytes.
const COST: usize = 256;

/// A registered consumer with a connection of its own.
#[derive(Debug)]
pub struct Consumer {
    connection: Connection,
    inboxes: Arc<Inboxes>,
}

impl Consumer {
    pub(super) fn new(connection: Connection, inboxes: Arc<Inboxes>) -> Self {
        Self {
            connection,
            inboxes,
        }
    }

    /// Subscribes, now and after each reconnect. Waits for the server's answer; one that gives
    /// none in time, as tyo-mq, is taken to agree.
    ///
    /// # Errors
    /// `bad_name`, `disconnected`, and the server's refusals.
    pub async fn subscribe(&self, subscribe: Subscribe) -> Result<Messages> {
        let inbox = Arc::new(Inbox::default());
        let answer = {
            // Held over the call, so that no delivery comes before its inbox is known.
            let mut inboxes = self.inboxes.by_id.lock();
            let (id, answer) = self.connection.subscribe(subscribe);
            if let Some(replaced) = inboxes.insert(id, inbox.clone()) {
                replaced.end();
            }
            (id, answer)
        };
        let messages = Messages {
            id: answer.0,
            inbox,
            inboxes: self.inboxes.clone(),
            connection: self.connection.clone(),
        };
        match answer.1.await {
            Err(error) if error.kind() != ErrorKind::Timeout => Err(error),
            _ => Ok(messages),
        }
    }

    /// The connection, for everything else.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// The messages of one subscription. Ends with the connection. Dropping it leaves a durable
/// subscription in place, whose messages wait from then on; a plain one ends (P5).
#[derive(Debug)]
pub struct Messages {
    id: u32,
    inbox: Arc<Inbox>,
    inboxes: Arc<Inboxes>,
    connection: Connection,
}

impl Messages {
    /// Ends the subscription for good; `purge` drops its backlog (P5).
    ///
    /// # Errors
    /// `timeout`, `disconnected`, and the server's refusals.
    pub async fn unsubscribe(self, purge: bool) -> Result<Unsubscribed> {
        self.connection.unsubscribe(self.id, purge).await
    }
}

impl Stream for Messages {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut line = self.inbox.0.lock();
        let Some(held) = line.waiting.pop_front() else {
            if line.is_over {
                return Poll::Ready(None);
            }
            line.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(line);
        let was_full = !self.inboxes.wants_more();
        self.inboxes.held.fetch_sub(held.size(), Ordering::AcqRel);
        if was_full && self.inboxes.wants_more() {
            self.connection.resume();
        }
        Poll::Ready(Some(Message {
            held,
            connection: self.connection.clone(),
        }))
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        let mut by_id = self.inboxes.by_id.lock();
        let is_ours = by_id
            .get(&self.id)
            .is_some_and(|inbox| Arc::ptr_eq(inbox, &self.inbox));
        if is_ours {
            by_id.remove(&self.id);
            self.connection.detach(self.id);
        }
        drop(by_id);
        let mut line = self.inbox.0.lock();
        line.is_over = true;
        let waiting = std::mem::take(&mut line.waiting);
        drop(line);
        let size: usize = waiting.iter().map(Held::size).sum();
        self.inboxes.held.fetch_sub(size, Ordering::AcqRel);
        self.connection.resume();
    }
}

/// One delivery. With an ack subscription it must be settled, by [`Message::ack`] or
/// [`Message::nack`]; dropping it does neither.
#[derive(Debug)]
pub struct Message {
    held: Held,
    connection: Connection,
}

/// A delivery as it came, copied.
#[derive(Debug)]
struct Held {
    payload: Box<str>,
    attachments: Vec<Bytes>,
    msg_id: Option<Box<str>>,
    attempt: Option<u32>,
}

impl Held {
    fn size(&self) -> usize {
        let attachments = self.attachments.iter().map(Bytes::len).sum::<usize>();
        self.payload.len() + attachments + COST
    }
}

/// The members of a delivery.
#[derive(Deserialize)]
struct Members<'a> {
    event: Option<String>,
    from: Option<String>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

impl Message {
    /// The whole delivery object as JSON text.
    pub fn payload(&self) -> &str {
        &self.held.payload
    }

    fn members(&self) -> Result<Members<'_>> {
        serde_json::from_str(&self.held.payload).map_err(unreadable)
    }

    /// The body; what was sent without one reads as `null`.
    ///
    /// # Errors
    /// `bad_command` if it is no `T`.
    pub fn body<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        let body = self.members()?.message.map_or("null", RawValue::get);
        serde_json::from_str(body).map_err(unreadable)
    }

    /// The event, in the producer's case.
    pub fn event(&self) -> String {
        let event = self.members().ok().and_then(|members| members.event);
        event.unwrap_or_default()
    }

    /// The producer.
    pub fn from(&self) -> String {
        let from = self.members().ok().and_then(|members| members.from);
        from.unwrap_or_default()
    }

    /// The binary parts that `{"_placeholder":true,"num":i}` in the body stand for.
    pub fn attachments(&self) -> &[Bytes] {
        &self.held.attachments
    }

    /// Times sent, from 1; none without ack.
    pub fn attempt(&self) -> Option<u32> {
        self.held.attempt
    }

    /// It is done. Nothing happens without an ack subscription.
    pub fn ack(self) {
        if let Some(msg_id) = &self.held.msg_id {
            self.connection.ack([(&**msg_id, self.held.attempt)]);
        }
    }

    /// It failed: another attempt, or a dead letter (P10).
    pub fn nack(self, nack: Nack<'_>) {
        if let Some(msg_id) = &self.held.msg_id {
            self.connection.nack(msg_id, self.held.attempt, nack);
        }
    }

    /// It takes longer: the ack timeout starts anew (P13).
    pub fn working(&self) {
        if let Some(msg_id) = &self.held.msg_id {
            self.connection.working(msg_id, self.held.attempt);
        }
    }
}

fn unreadable(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::BadCommand, error.to_string())
}

/// The sink of a connection with streams.
pub(super) struct Inboxes {
    by_id: Mutex<HashMap<u32, Arc<Inbox>>>,
    held: AtomicUsize,
    observer: Option<Observer>,
}

impl std::fmt::Debug for Inboxes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inboxes({:?} bytes)", self.held)
    }
}

/// The line of one stream.
#[derive(Debug, Default)]
struct Inbox(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Held>,
    waker: Option<Waker>,
    is_over: bool,
}

impl Inbox {
    fn end(&self) {
        let mut line = self.0.lock();
        line.is_over = true;
        let waker = line.waker.take();
        drop(line);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Inboxes {
    pub(super) fn new(observer: Option<Observer>) -> Arc<Self> {
        Arc::new(Self {
            by_id: Mutex::default(),
            held: AtomicUsize::new(0),
            observer,
        })
    }
}

impl Sink for Inboxes {
    fn delivery(&self, subscription: u32, delivery: Delivery<'_>) {
        let Some(inbox) = self.by_id.lock().get(&subscription).cloned() else {
            return;
        };
        let held = Held {
            payload: delivery.payload.into(),
            attachments: delivery.attachments.to_vec(),
            msg_id: delivery.msg_id.map(Into::into),
            attempt: delivery.attempt,
        };
        let mut line = inbox.0.lock();
        if line.is_over {
            return;
        }
        self.held.fetch_add(held.size(), Ordering::AcqRel);
        line.waiting.push_back(held);
        let waker = line.waker.take();
        drop(line);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn batch_end(&self) {}

    fn event(&self, event: ClientEvent<'_>) {
        match (&self.observer, event) {
            (Some(observer), event) => observer(&event),
            (None, ClientEvent::Waiting { error }) => tracing::warn!("{error}"),
            (None, _) => {}
        }
        if matches!(event, ClientEvent::Closed) {
            for inbox in std::mem::take(&mut *self.by_id.lock()).into_values() {
                inbox.end();
            }
        }
    }

    fn wants_more(&self) -> bool {
        self.held.load(Ordering::Acquire) < MAX_HELD
    }
}
