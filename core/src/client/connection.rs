//! The handle of a connection: every call is sync and short, the work is done by its task.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::answer::{Answer, closed};
use super::frames::{self, json_text};
use super::options::{ConnectOptions, Identity};
use super::produces::Outgoing;
use super::request::{Confirm, Nack, Produce, Subscribe, Subscribed, Unsubscribed};
use super::shared::Shared;
use super::sink::Sink;
use super::state::{Fixed, Unkept};
use super::subscriptions::{self, Entry, Waiter};
use super::verbs::{self, Times};
use crate::clock::Clock;
use crate::model::EventName;
use crate::protocol::json;
use crate::{Error, ErrorKind, Result};

/// Nesting a body may have (P20).
const MAX_DEPTH: usize = 512;
/// Above this a plain message may need chunks, so it is not written straight into its frame.
const SMALL: usize = 64 << 10;

/// One socket to a server, restored by itself until [`Connection::close`] or the last clone is
/// dropped. Cheap to clone.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

/// Ends the task with the last clone.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.start_close(Duration::from_secs(1));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.shared().fixed.options;
        write!(f, "Connection({}:{})", options.host, options.port)
    }
}

impl Connection {
    /// Starts to connect in the background, on the ambient tokio runtime; returns at once.
    ///
    /// # Panics
    /// Outside a tokio runtime: enter a `Handle` first.
    pub fn open(options: ConnectOptions, identity: Identity, sink: Arc<dyn Sink>) -> Self {
        let shared = Arc::new(Shared::new(Fixed::new(options, identity), sink));
        tokio::spawn(super::run::run(shared.clone()));
        Self(Arc::new(Handle(shared)))
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    /// Waits for the first connection, login and registration.
    ///
    /// # Errors
    /// What keeps the connection down: `duplicate_consumer`, `anonymous_refused`,
    /// `unauthenticated`, `rate_limited` (one connection too many), `timeout` (login or
    /// `connect_timeout`), `unsupported`, `config`, `disconnected` after a close. Without
    /// `connect_timeout` a missing server is waited for.
    pub async fn ready(&self) -> Result<()> {
        let mut ready = self.shared().ready.subscribe();
        match ready.wait_for(Option::is_some).await {
            Ok(ready) => ready.clone().unwrap_or(Ok(())),
            Err(_) => Err(closed()),
        }
    }

    /// Subscribes now and after each reconnect. The id names it in [`Sink::delivery`] and stays the
    /// same when the same key is subscribed again. Sent when connected; the answer may time out
    /// (`timeout`) while the subscription stays in force. Refusals: the server's, or `bad_name`.
    pub fn subscribe(&self, mut subscribe: Subscribe) -> (u32, Answer<Subscribed>) {
        let shared = self.shared();
        shared.fixed.fill_in(&mut subscribe);
        let key = match subscriptions::key_of(&subscribe) {
            Ok(key) => key,
            Err(error) => return (0, Answer::settled(Err(error))),
        };
        let (settle, answer) = Answer::pair();
        let deadline = shared.clock.elapsed().saturating_add(subscribe.timeout);
        let entry = Entry {
            subscribe,
            key,
            waiter: Some(Waiter { settle, deadline }),
            was_sent: false,
        };
        let mut state = shared.state.lock();
        if let Err(error) = state.check_open() {
            drop(state);
            return (0, Answer::settled(Err(error)));
        }
        let (id, replaced) = state.subscribe(entry);
        shared.note(&mut state, Some(deadline));
        drop(state);
        shared.wake.notify_one();
        drop(replaced);
        (id, answer)
    }

    /// Ends a subscription for good, durable ones too; `purge` drops its backlog (P5). While
    /// offline it is sent at the next connect. An unknown `id` is answered `removed: 0`.
    pub fn unsubscribe(&self, id: u32, purge: bool) -> Answer<Unsubscribed> {
        let shared = self.shared();
        let (settle, answer) = Answer::pair();
        let timeout = super::request::DEFAULT_TIMEOUT;
        let deadline = shared.clock.elapsed().saturating_add(timeout);
        let mut state = shared.state.lock();
        let told = state.check_open().map(|()| {
            let waiter = Waiter { settle, deadline };
            let unknown = state.unsubscribe(id, purge, waiter).err();
            shared.note(&mut state, Some(deadline));
            unknown
        });
        drop(state);
        shared.wake.notify_one();
        match told {
            Ok(Some(unknown)) => unknown.settle.settle(Ok(Unsubscribed::default())),
            Ok(None) => {}
            Err(error) => return Answer::settled(Err(error)),
        }
        answer
    }

    /// Takes no more of a subscription and does not renew it: a durable one stays at the server,
    /// which queues for it from now on, as if this connection had ended; a plain one ends (P5).
    pub fn detach(&self, id: u32) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        let entry = state.subscriptions.entries.get(&id);
        if entry.is_some_and(|entry| !entry.subscribe.durable) {
            drop(state);
            // Or it would begin again by itself with the name.
            drop(self.unsubscribe(id, false));
            return;
        }
        let detached = state.detach(id);
        drop(state);
        shared.wake.notify_one();
        drop(detached);
    }

    /// Sends a message; never blocks. True while less than the high-water mark waits; at false the
    /// message is taken all the same. With `confirm` every outcome is told there, errors too, and
    /// the result is then `Ok`. Without it, and not `guaranteed`, it is lost with the link.
    ///
    /// # Errors
    /// `payload_too_large`, `not_carriable`, `bad_name`, `queue_full`, `disconnected`.
    pub fn produce(&self, produce: &Produce<'_>, confirm: Option<Confirm>) -> Result<bool> {
        let shared = self.shared();
        let checked = check(produce, shared.fixed.options.max_message_bytes);
        let Some(confirm) = confirm else {
            checked?;
            return match produce.guaranteed {
                true => self.keep(produce, None),
                false => self.send_plain(produce),
            };
        };
        match checked {
            Ok(()) => self.keep(produce, Some(confirm)),
            Err(error) => {
                confirm.settle.settle(Err(error));
                Ok(true)
            }
        }
    }

    fn send_plain(&self, produce: &Produce<'_>) -> Result<bool> {
        let shared = self.shared();
        let fixed = &shared.fixed;
        let size = size(produce);
        if size > SMALL {
            return self.keep_plain(produce);
        }
        let mut state = shared.state.lock();
        if state.produces.waiting() > 0 {
            drop(state);
            return self.keep_plain(produce);
        }
        let line = state.line(size, fixed)?;
        let is_first = line.is_empty();
        verbs::produce_small(line, produce, fixed.from_json.as_deref());
        let is_below = state.is_below_high_water(fixed);
        drop(state);
        if is_first {
            shared.wake.notify_one();
        }
        Ok(is_below)
    }

    /// A large plain message, or one that queues behind others (P8).
    fn keep_plain(&self, produce: &Produce<'_>) -> Result<bool> {
        self.push(self.outgoing(produce, false))
            .map_err(|unkept| unkept.1)
    }

    fn keep(&self, produce: &Produce<'_>, confirm: Option<Confirm>) -> Result<bool> {
        let mut outgoing = self.outgoing(produce, true);
        if let Some(confirm) = confirm {
            outgoing.deadline = Some(outgoing.called.saturating_add(confirm.timeout));
            outgoing.settle = Some(confirm.settle);
        }
        self.push(outgoing).or_else(|unkept| match *unkept {
            (Outgoing { settle: None, .. }, error) => Err(error),
            (outgoing, error) => {
                outgoing.end(Err(error)).tell();
                Ok(true)
            }
        })
    }

    fn outgoing(&self, produce: &Produce<'_>, numbered: bool) -> Outgoing {
        let shared = self.shared();
        let mut head = Vec::with_capacity(produce.message.map_or(0, str::len) + 256);
        verbs::produce_head(&mut head, produce, shared.fixed.from_json.as_deref());
        Outgoing {
            head,
            attachments: produce.attachments.to_vec(),
            times: Times::of(produce),
            called: shared.clock.elapsed(),
            deadline: None,
            numbered,
            settle: None,
        }
    }

    fn push(&self, outgoing: Outgoing) -> Result<bool, Unkept> {
        let shared = self.shared();
        let due = outgoing.due();
        let mut state = shared.state.lock();
        state.keep(outgoing, &shared.fixed)?;
        let is_below = state.is_below_high_water(&shared.fixed);
        shared.note(&mut state, due);
        drop(state);
        shared.wake.notify_one();
        Ok(is_below)
    }

    /// Acks deliveries: (`msg_id`, `attempt`). Gathered, one frame per write. Kept over a
    /// reconnect: an ack settles on any session of the consumer id (P9).
    pub fn ack<'a>(&self, ids: impl IntoIterator<Item = (&'a str, Option<u32>)>) {
        let shared = self.shared();
        let mut must_wake = false;
        let mut state = shared.state.lock();
        for (msg_id, attempt) in ids {
            must_wake |= state.ack(msg_id, attempt);
        }
        drop(state);
        if must_wake {
            shared.wake.notify_one();
        }
    }

    /// Gives a delivery back. Without a link nothing is said: the server has it back already.
    pub fn nack(&self, msg_id: &str, attempt: Option<u32>, nack: Nack<'_>) {
        self.say(|line| verbs::nack(line, msg_id, attempt, nack));
    }

    /// Starts the ack timeout of a delivery anew (P13).
    pub fn working(&self, msg_id: &str, attempt: Option<u32>) {
        self.say(|line| verbs::working(line, msg_id, attempt));
    }

    fn say(&self, verb: impl FnOnce(&mut Vec<u8>)) {
        let shared = self.shared();
        if let Ok(line) = shared.state.lock().line(0, &shared.fixed) {
            verb(line);
        }
        shared.wake.notify_one();
    }

    /// Sends any event. `args` is the JSON text of its arguments, without brackets: `` or
    /// `{"a":1}` or `1,"two"`.
    ///
    /// # Errors
    /// `disconnected`, `queue_full`.
    pub fn emit(&self, name: &str, args: &str, attachments: &[Bytes]) -> Result<()> {
        let shared = self.shared();
        let mut state = shared.state.lock();
        let line = state.line(args.len(), &shared.fixed)?;
        put_event(line, name, None, args, attachments);
        drop(state);
        shared.wake.notify_one();
        Ok(())
    }

    /// Like [`Connection::emit`], and waits for the reply: the JSON text of an array.
    pub fn request(
        &self,
        name: &str,
        args: &str,
        attachments: &[Bytes],
        timeout: Duration,
    ) -> Answer<String> {
        let shared = self.shared();
        let (settle, answer) = Answer::pair();
        let deadline = shared.clock.elapsed().saturating_add(timeout);
        let mut state = shared.state.lock();
        if let Err(error) = state.line(args.len(), &shared.fixed) {
            drop(state);
            settle.settle(Err(error));
            return answer;
        }
        let reply = state.await_reply(settle, deadline);
        if let Ok(line) = state.line(0, &shared.fixed) {
            put_event(line, name, Some(reply), args, attachments);
        }
        shared.note(&mut state, Some(deadline));
        drop(state);
        shared.wake.notify_one();
        answer
    }

    /// The Socket.IO id of the current link; changes on reconnect.
    pub fn socket_id(&self) -> Option<String> {
        self.shared().state.lock().socket_id().cloned()
    }

    /// Whether there is a link, logged in and registered.
    pub fn is_connected(&self) -> bool {
        self.shared().state.lock().is_up()
    }

    /// Bytes that wait to be sent.
    pub fn buffered(&self) -> usize {
        self.shared().state.lock().buffered()
    }

    /// Goes on reading after [`Sink::wants_more`] said no.
    pub fn resume(&self) {
        self.shared().wake.notify_one();
    }

    /// Waits until nothing waits to be sent.
    ///
    /// # Errors
    /// `timeout`; `disconnected` if the connection ends first.
    pub async fn flush(&self, timeout: Duration) -> Result<()> {
        match tokio::time::timeout(timeout, self.shared().idle()).await {
            Ok(result) => result,
            Err(_) => Err(Error::new(
                ErrorKind::Timeout,
                format!("{} bytes still wait to be sent", self.buffered()),
            )),
        }
    }

    /// Sends what waits, waits for open confirms, says goodbye (`41`) and ends; after `timeout` it
    /// ends at once. Everything still open is answered `disconnected`. Any number of times.
    ///
    /// # Errors
    /// `timeout` if the task did not end in time, which takes a [`Sink`] that blocks.
    pub async fn close(&self, timeout: Duration) -> Result<()> {
        let shared = self.shared();
        shared.start_close(timeout);
        let mut ended = shared.ended.subscribe();
        let ended = ended.wait_for(|ended| *ended);
        // The task keeps the deadline; this is for a task that does not get to run.
        match tokio::time::timeout(timeout.saturating_add(GRACE), ended).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(
                ErrorKind::Timeout,
                "the connection did not end in time",
            )),
        }
    }
}

/// How long after its deadline a close may take to be noticed.
const GRACE: Duration = Duration::from_millis(250);

fn put_event(
    line: &mut Vec<u8>,
    name: &str,
    reply: Option<u64>,
    args: &str,
    attachments: &[Bytes],
) {
    let mut quoted = Vec::with_capacity(name.len() + 2);
    json_text(&mut quoted, name);
    let quoted = String::from_utf8_lossy(&quoted);
    frames::event(line, &quoted, reply, attachments, args.len(), |out| {
        out.extend_from_slice(args.as_bytes());
    });
}

/// Bytes of body and attachments, and a little for what is around them.
fn size(produce: &Produce<'_>) -> usize {
    body(produce) + produce.headers.map_or(0, str::len) + produce.enc.map_or(0, str::len)
}

fn body(produce: &Produce<'_>) -> usize {
    let attachments = produce.attachments.iter().map(Bytes::len).sum::<usize>();
    produce.message.map_or(0, str::len) + attachments
}

/// Refuses what the server would refuse, before it costs a transfer.
fn check(produce: &Produce<'_>, max_message_bytes: usize) -> Result<()> {
    EventName::check(produce.event)?;
    let size = body(produce);
    if size > max_message_bytes {
        return Err(Error::new(
            ErrorKind::PayloadTooLarge,
            format!("the message has {size} bytes, {max_message_bytes} are allowed"),
        ));
    }
    if produce
        .message
        .is_some_and(|message| json::is_deeper_than(message, MAX_DEPTH))
    {
        return Err(Error::new(
            ErrorKind::NotCarriable,
            format!("the message is nested deeper than {MAX_DEPTH} levels"),
        ));
    }
    Ok(())
}
