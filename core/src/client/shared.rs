//! What the handle and the task of a connection share: the state under its lock, the bells, the
//! sink.
//!
//! Tells outcomes once the lock is gone. Knows no socket.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use super::answer::closed;
use super::frames::json_text;
use super::options::{ConnectOptions, Identity};
use super::outage::Outage;
use super::request::Subscribe;
use super::sink::{ClientEvent, Sink};
use super::state::{Fixed, Outcomes, State};
use crate::Result;
use crate::clock::{Clock, Elapsed, SystemClock};

pub(super) struct Shared {
    pub(super) fixed: Fixed,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) clock: SystemClock,
    pub(super) state: Mutex<State>,
    /// There is something to send, or the sink has room again.
    pub(super) wake: Notify,
    /// There is an earlier deadline.
    pub(super) timer: Notify,
    /// Nothing waits to be sent, or the end has come.
    idle: Notify,
    /// Why there is no connection.
    pub(super) outage: Mutex<Outage>,
    /// How the first connection went.
    pub(super) ready: watch::Sender<Option<Result<()>>>,
    /// Somebody asked to close, until then.
    pub(super) closing: watch::Sender<Option<Elapsed>>,
    /// The task is over.
    pub(super) ended: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(fixed: Fixed, sink: Arc<dyn Sink>) -> Self {
        Self {
            state: Mutex::new(State::new(&fixed.options)),
            fixed,
            sink,
            clock: SystemClock::new(),
            wake: Notify::new(),
            timer: Notify::new(),
            idle: Notify::new(),
            outage: Mutex::default(),
            ready: watch::Sender::new(None),
            closing: watch::Sender::new(None),
            ended: watch::Sender::new(false),
        }
    }

    /// Takes nothing new from now on and ends by itself, at the latest after `timeout`. Of several
    /// calls the earliest end counts.
    pub(super) fn start_close(&self, timeout: Duration) {
        self.state.lock().shut(closed());
        let until = self.clock.elapsed().saturating_add(timeout);
        self.closing.send_if_modified(|deadline| {
            let is_earlier = deadline.is_none_or(|deadline| until < deadline);
            if is_earlier {
                *deadline = Some(until);
            }
            is_earlier
        });
    }

    /// Remembers a deadline and sees to it that it is kept.
    pub(super) fn note(&self, state: &mut MutexGuard<'_, State>, deadline: Option<Elapsed>) {
        if state.note(deadline) {
            self.timer.notify_one();
        }
    }

    /// The first connection is settled, once.
    pub(super) fn settle_ready(&self, result: Result<()>) {
        self.ready.send_if_modified(|ready| {
            let is_first = ready.is_none();
            if is_first {
                *ready = Some(result);
            }
            is_first
        });
    }

    /// Tells outcomes, on the connection's task; true if the sink was told.
    pub(super) fn tell(&self, outcomes: Outcomes) -> bool {
        let mut is_told = false;
        for ended in outcomes.ended {
            if let Some(error) = ended.tell() {
                self.sink
                    .event(ClientEvent::ProduceFailed { error: &error });
                is_told = true;
            }
        }
        for answer in outcomes.answers {
            answer();
        }
        if let Some(result) = outcomes.ready {
            self.settle_ready(result);
        }
        if outcomes.due.is_some() {
            self.note(&mut self.state.lock(), outcomes.due);
        }
        if let Some(payload) = &outcomes.refused {
            self.sink.event(ClientEvent::ServerError { payload });
            is_told = true;
        }
        if !outcomes.gap.is_empty() {
            self.sink.event(ClientEvent::Gap {
                keys: &outcomes.gap,
                dropped: None,
            });
            is_told = true;
        }
        is_told
    }

    /// Ends when nothing waits to be sent.
    pub(super) async fn idle(&self) -> Result<()> {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // Registered before the look, so that nothing is missed.
            idle.as_mut().enable();
            if self.state.lock().is_idle() {
                return Ok(());
            }
            if *self.ended.borrow() {
                return Err(closed());
            }
            idle.await;
        }
    }

    /// Tells those who wait for [`Shared::idle`] to look again.
    pub(super) fn ring_idle(&self) {
        self.idle.notify_waiters();
    }
}

impl Fixed {
    pub(super) fn new(options: ConnectOptions, identity: Identity) -> Self {
        let json = |text: &str| {
            let mut out = Vec::new();
            json_text(&mut out, text);
            String::from_utf8_lossy(&out).into_owned()
        };
        let minted = || format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let instance = options.instance.clone().unwrap_or_else(minted);
        Self {
            instance_json: json(&instance),
            instance,
            from_json: identity
                .producer
                .as_ref()
                .map(|producer| json(&producer.name)),
            options,
            identity,
        }
    }

    /// Whose subscription it is, unless it says.
    pub(super) fn fill_in(&self, subscribe: &mut Subscribe) {
        let consumer = self.identity.consumer.as_ref();
        let producer = self.identity.producer.as_ref();
        let name = consumer
            .map(|consumer| &consumer.name)
            .or(producer.map(|producer| &producer.name));
        let consumer_id = consumer.and_then(|consumer| consumer.consumer_id.as_ref());
        if subscribe.consumer.is_none() {
            subscribe.consumer = name.cloned();
        }
        if subscribe.consumer_id.is_none() {
            subscribe.consumer_id = consumer_id.or(subscribe.consumer.as_ref()).cloned();
        }
    }
}
