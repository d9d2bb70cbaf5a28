//! Feeds the state machine and does what it says: frames to outboxes, calls to the store, answers.
//!
//! Decides nothing. One task per queue that has somebody attached or something to write; it ends
//! when neither is the case.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::Result;
use crate::model::Message;
use crate::store::{Claim, Due, Entry, Page, PageLimit, Pending, QueueId, Settled};

use super::super::engine::Counters;
use super::super::ports::Content;
use super::super::queue::Queue;
use super::{Effect, Input, Now, Slot, Start, State, Style, Tally};

/// Rounds without a pause for others.
const MOST_ROUNDS: u32 = 32;

/// Runs the courier of `queue` until nobody needs it.
pub(crate) async fn run(queue: Arc<Queue>, start: Start) {
    let _running = queue.engine().runs();
    let mut task = Task {
        state: State::new(start, moment(&queue)),
        inputs: Vec::new(),
        effects: Vec::new(),
        batches: Vec::new(),
        begun: Vec::new(),
        id: String::new(),
        calls: Calls::default(),
        queue,
    };
    let mut rounds = 0;
    loop {
        task.round();
        if !task.inputs.is_empty() {
            rounds += 1;
            if rounds % MOST_ROUNDS == 0 {
                tokio::task::yield_now().await;
            }
            continue;
        }
        if task.state.is_finished() && task.calls.is_empty() {
            if let Some(effect) = task.state.release() {
                task.perform(effect, moment(&task.queue));
                continue;
            }
            match task.queue.end(task.state) {
                None => return,
                Some(state) => task.state = state,
            }
            continue;
        }
        task.wait().await;
    }
}

fn moment(queue: &Queue) -> Now {
    let clock = &queue.engine().clock;
    Now {
        wall: clock.now(),
        elapsed: clock.elapsed(),
    }
}

/// Calls to the store that are under way, one of each kind at most.
#[derive(Default)]
struct Calls {
    page: Option<Pending<Page>>,
    due: Option<Pending<Due>>,
    browse: Option<Pending<Vec<Entry>>>,
    look: Option<Pending<Vec<Entry>>>,
    write: Option<Pending<()>>,
    settle: Option<Pending<Vec<Settled>>>,
    claim: Option<Pending<Claim>>,
    release: Option<Pending<()>>,
}

impl Calls {
    fn is_empty(&self) -> bool {
        self.page.is_none()
            && self.due.is_none()
            && self.browse.is_none()
            && self.look.is_none()
            && self.write.is_none()
            && self.settle.is_none()
            && self.claim.is_none()
            && self.release.is_none()
    }

    /// Takes what has been answered.
    fn poll(&mut self, context: &mut Context<'_>, inputs: &mut Vec<Input>) {
        poll_one(&mut self.release, context, inputs, released);
        poll_one(&mut self.claim, context, inputs, Input::Claimed);
        poll_one(&mut self.write, context, inputs, Input::Written);
        poll_one(&mut self.settle, context, inputs, Input::Settled);
        poll_one(&mut self.browse, context, inputs, Input::Browsed);
        poll_one(&mut self.look, context, inputs, Input::Looked);
        poll_one(&mut self.due, context, inputs, Input::Due);
        poll_one(&mut self.page, context, inputs, Input::Paged);
    }
}

fn poll_one<T>(
    call: &mut Option<Pending<T>>,
    context: &mut Context<'_>,
    inputs: &mut Vec<Input>,
    input: fn(Result<T>) -> Input,
) {
    if let Some(pending) = call
        && let Poll::Ready(answer) = Pin::new(pending).poll(context)
    {
        *call = None;
        inputs.push(input(answer));
    }
}

/// Keeps a call that is under way, or its answer if it is there already.
fn keep<T>(
    mut pending: Pending<T>,
    call: &mut Option<Pending<T>>,
    inputs: &mut Vec<Input>,
    input: fn(Result<T>) -> Input,
) {
    match pending.take_ready() {
        Some(answer) => inputs.push(input(answer)),
        None => *call = Some(pending),
    }
}

/// What has not been let go now is so with the lease.
fn released(_: Result<()>) -> Input {
    Input::Released
}

struct Task {
    queue: Arc<Queue>,
    state: State,
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    /// Frames of this round by seat.
    batches: Vec<Option<Vec<u8>>>,
    /// Which of them there are, in the order they were begun.
    begun: Vec<u32>,
    id: String,
    calls: Calls,
}

impl Task {
    /// One step of the machine, and what it asks for.
    fn round(&mut self) {
        self.queue.take_inputs(&mut self.inputs);
        let now = moment(&self.queue);
        self.state
            .step(self.inputs.drain(..), now, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.perform(effect, now);
        }
        self.effects = effects;
        self.offer();
        self.count();
        self.queue
            .show(self.state.snapshot(), self.state.has_ahead());
    }

    fn perform(&mut self, effect: Effect, now: Now) {
        let inputs = &mut self.inputs;
        let (store, id) = match effect {
            Effect::Send {
                seat,
                slot,
                message,
                style,
            } => return self.encode(seat, slot, &message, style),
            Effect::Ask(seat) => {
                if let Some(seat) = self.state.seat(seat) {
                    seat.outbox.confirm();
                }
                return;
            }
            Effect::Lost { seat, count } => {
                if let Some(seat) = self.state.seat(seat) {
                    (seat.lost)(count);
                }
                return;
            }
            Effect::Taken(seat) => {
                if let Some(seat) = self.state.seat(seat) {
                    (seat.taken)();
                }
                return;
            }
            Effect::Answer(answer, outcome) => return answer(outcome),
            // The machine of a queue without a store asks for none of the others.
            _ => match self.queue.id() {
                Some(id) => (self.queue.engine().store(), id),
                None => return,
            },
        };
        let id: QueueId = id;
        let calls = &mut self.calls;
        match effect {
            Effect::Claim(wish) => {
                let claim = store.claim(id, wish);
                keep(claim, &mut calls.claim, inputs, Input::Claimed);
            }
            Effect::Release { sent } => {
                let release = store.release(id, sent);
                keep(release, &mut calls.release, inputs, released);
            }
            Effect::Page { after, limit } => {
                let page = store.page(id, after, limit, now.wall);
                keep(page, &mut calls.page, inputs, Input::Paged);
            }
            Effect::Due(limit) => {
                let due = store.due(id, limit, now.wall);
                keep(due, &mut calls.due, inputs, Input::Due);
            }
            Effect::Browse { after } => {
                let entries = store.browse(id, after, PageLimit::default());
                keep(entries, &mut calls.browse, inputs, Input::Browsed);
            }
            Effect::Look { seq } => {
                let limit = PageLimit {
                    entries: 1,
                    bytes: 0,
                };
                let entries = store.browse(id, seq.saturating_sub(1), limit);
                keep(entries, &mut calls.look, inputs, Input::Looked);
            }
            Effect::Write(change) => {
                let written = store.update(id, change, now.wall);
                keep(written, &mut calls.write, inputs, Input::Written);
            }
            Effect::Settle(seqs) => {
                let settled = store.settle(id, seqs);
                keep(settled, &mut calls.settle, inputs, Input::Settled);
            }
            Effect::Send { .. }
            | Effect::Ask(_)
            | Effect::Lost { .. }
            | Effect::Taken(_)
            | Effect::Answer(..) => {}
        }
    }

    /// Appends the frames of one delivery to the batch of its seat.
    fn encode(&mut self, seat: u32, slot: Slot, message: &Message, style: Style) {
        let Some(at) = self.state.seat(seat) else {
            return;
        };
        let place = seat as usize;
        if self.batches.len() <= place {
            self.batches.resize_with(place + 1, || None);
        }
        let frames = self.batches[place].get_or_insert_with(|| {
            self.begun.push(seat);
            Vec::new()
        });
        let content = Content::of(message);
        match style {
            Style::Plain => at.head.plain(&content, frames),
            Style::Repeated => at.head.repeated(&content, frames),
            Style::Tracked(attempt) => {
                self.id.clear();
                self.queue.item(slot).write(&mut self.id);
                at.head.tracked(&content, &self.id, attempt, frames);
            }
        }
    }

    /// Offers each batch; the machine learns whether it was taken.
    fn offer(&mut self) {
        for seat in self.begun.drain(..) {
            let frames = self.batches[seat as usize].take().unwrap_or_default();
            let position = match self.state.seat(seat) {
                Some(at) => at.outbox.offer(Bytes::from(frames)),
                None => None,
            };
            self.inputs.push(Input::Offered { seat, position });
        }
    }

    fn count(&mut self) {
        let counters = &self.queue.engine().counters;
        let tally: Tally = self.state.take_tally();
        for (counter, more) in [
            (&counters.sent, tally.sent),
            (&counters.repeated, tally.repeated),
            (&counters.settled, tally.settled),
            (&counters.failed, tally.failed),
            (&counters.buried, tally.buried),
            (&counters.expired, tally.expired),
            (&counters.hidden, tally.hidden),
            (&counters.dropped, tally.dropped),
            (&counters.store_failures, tally.store_failures),
        ] {
            Counters::add(counter, more);
        }
        let metrics = self.queue.metrics();
        for (counter, more) in [
            (&metrics.delivered, tally.stored),
            (&metrics.dead_letters, tally.buried),
            (&metrics.ack_timeouts, tally.timeouts),
            (&metrics.expired, tally.expired),
            (&metrics.hidden, tally.hidden),
            (&metrics.dropped, tally.dropped),
        ] {
            if more > 0 {
                counter.add(more);
            }
        }
    }

    /// Waits for the bell, an answer of the store, or the next deadline.
    async fn wait(&mut self) {
        let queue = Arc::clone(&self.queue);
        let mut bell = pin!(queue.bell().notified());
        let mut sleep = self
            .state
            .deadline()
            .map(|at| queue.engine().clock.sleep_until(at));
        poll_fn(|context| {
            self.calls.poll(context, &mut self.inputs);
            let woken = bell.as_mut().poll(context).is_ready();
            let due = sleep
                .as_mut()
                .is_some_and(|sleep| sleep.as_mut().poll(context).is_ready());
            match woken || due || !self.inputs.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests;
