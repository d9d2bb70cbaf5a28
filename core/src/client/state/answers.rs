//! How what is open comes to its end: a reply, a deadline, the end of the connection.

use super::super::inbound;
use super::super::request::Subscribed;
use super::*;

impl State {
    /// A reply came: `json` is `[…]`.
    pub(in crate::client) fn reply(&mut self, id: u64, json: &str, now: Elapsed) -> Outcomes {
        let mut outcomes = Outcomes::default();
        if id & 1 == 0 {
            let result = inbound::confirmed(json);
            outcomes.ended.extend(self.produces.answer(id >> 1, result));
            return outcomes;
        }
        match self.requests.remove(&id) {
            None => {}
            Some(Request::Ready(_)) if self.registering == 0 => self.ready(Ok(()), &mut outcomes),
            Some(Request::Ready(_)) => {
                self.await_ready(now, REGISTER_WAIT, &mut outcomes);
            }
            Some(Request::Register) => {
                self.registering = self.registering.saturating_sub(1);
                match inbound::registered(json) {
                    Ok(()) if self.registering > 0 => {}
                    result => self.ready(result, &mut outcomes),
                }
            }
            Some(Request::Reply(waiter)) => outcomes.answer(waiter.settle, Ok(json.to_owned())),
            Some(Request::Unsubscribe(id)) => {
                let goodbye = self.subscriptions.goodbyes.remove(&id);
                if let Some(waiter) = goodbye.and_then(|goodbye| goodbye.waiter) {
                    outcomes.answer(waiter.settle, inbound::unsubscribed(json));
                }
            }
            Some(Request::Subscribe(subscription)) => {
                self.is_ours = true;
                let result = inbound::subscribed(json);
                self.subscribed(subscription, result, json, &mut outcomes);
                self.renewals = self
                    .renewals
                    .saturating_sub(usize::from(id <= self.last_renewal));
                if self.renewals == 0 {
                    outcomes.gap = std::mem::take(&mut self.missed);
                }
            }
        }
        outcomes
    }

    fn ready(&mut self, result: Result<()>, outcomes: &mut Outcomes) {
        self.is_ready = true;
        outcomes.ready = Some(result);
    }

    /// A refused new subscription is forgotten; a refused renewal is tried again at the next
    /// reconnect, since it was fine once.
    fn subscribed(
        &mut self,
        id: u32,
        result: Result<Subscribed>,
        json: &str,
        outcomes: &mut Outcomes,
    ) {
        let Some(entry) = self.subscriptions.entries.get_mut(&id) else {
            return;
        };
        match (entry.waiter.take(), result) {
            (Some(waiter), result) => {
                if result.is_err() {
                    self.subscriptions.remove(id);
                }
                outcomes.answer(waiter.settle, result);
            }
            (None, Err(_)) => {
                let payload = json.strip_prefix('[').and_then(|json| inbound::first(json));
                outcomes.refused = payload.map(|(payload, _)| payload.to_owned());
            }
            (None, Ok(_)) => {}
        }
    }

    /// Ends whatever is past its deadline, and finds the next one.
    pub(in crate::client) fn expire(&mut self, now: Elapsed) -> Outcomes {
        let mut outcomes = Outcomes::default();
        self.produces.expire(now, &mut outcomes.ended);
        let mut next = self.produces.next_due();
        let mut is_late = |deadline: Elapsed| {
            let is_late = deadline <= now;
            if !is_late {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
            is_late
        };
        for entry in self.subscriptions.entries.values_mut() {
            let late = entry.waiter.take_if(|waiter| is_late(waiter.deadline));
            if let Some(waiter) = late {
                outcomes.answer(waiter.settle, Err(unanswered()));
            }
        }
        self.subscriptions.goodbyes.retain(|_, goodbye| {
            let Some(waiter) = goodbye.waiter.take_if(|waiter| is_late(waiter.deadline)) else {
                return true;
            };
            outcomes.answer(waiter.settle, Err(unanswered()));
            // What was never sent still has to be said at the next connect.
            !goodbye.was_sent
        });
        let late = self.requests.extract_if(|_, request| match request {
            Request::Reply(Waiter { deadline, .. }) | Request::Ready(deadline) => {
                is_late(*deadline)
            }
            _ => false,
        });
        let late: Vec<_> = late.collect();
        for (_, request) in late {
            match request {
                Request::Reply(waiter) => outcomes.answer(waiter.settle, Err(unanswered())),
                // A server that does not answer took the registrations all the same.
                _ => self.ready(Ok(()), &mut outcomes),
            }
        }
        self.deadline = next;
        outcomes
    }

    /// The end: everything still open is answered with why.
    pub(in crate::client) fn finish(&mut self) -> Outcomes {
        let error = self
            .end
            .clone()
            .unwrap_or_else(super::super::answer::closed);
        let (mut outcomes, _) = self.link_down();
        let open = self.produces.take().into_iter();
        outcomes
            .ended
            .extend(open.map(|outgoing| outgoing.end(Err(error.clone()))));
        let subscriptions = std::mem::take(&mut self.subscriptions);
        for waiter in subscriptions
            .entries
            .into_values()
            .filter_map(|entry| entry.waiter)
        {
            outcomes.answer(waiter.settle, Err(error.clone()));
        }
        for waiter in subscriptions
            .goodbyes
            .into_values()
            .filter_map(|goodbye| goodbye.waiter)
        {
            outcomes.answer(waiter.settle, Err(error.clone()));
        }
        self.acks = Vec::new();
        outcomes
    }
}

fn unanswered() -> Error {
    Error::new(ErrorKind::Timeout, "the server did not answer in time")
}
