//! Runs the machine until it is at rest: does what it says, and checks that it may say so.

use std::collections::BTreeSet;

use crate::store::Claim;
use crate::{Error, ErrorKind};

use super::super::super::ports::SessionId;
use super::super::super::queue::Mode;
use super::super::entry::Place;
use super::super::maps::Maps;
use super::super::{Effect, Input, Style};
use super::{Bench, Got, Health, TIMEOUT};

impl Bench {
    pub(super) fn run(&mut self, mut inputs: Vec<Input>) {
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 10_000, "the machine spins");
            let mut effects = Vec::new();
            self.state.step(inputs.drain(..), self.now, &mut effects);
            self.notice_timeouts();
            let mut batches = BTreeSet::new();
            for effect in effects {
                self.perform(effect, &mut inputs, &mut batches);
            }
            for seat in batches {
                let position = self.offer(seat);
                inputs.push(Input::Offered { seat, position });
            }
            if inputs.is_empty() {
                return self.check_keys();
            }
        }
    }

    /// What has expired holds no ordering key while it waits for its retry.
    fn check_keys(&self) {
        for held in self.state.held.values() {
            let message = &held.entry.message;
            let waits = matches!(held.place, Place::Waiting { .. }) && message.key.is_some();
            assert!(
                !waits || !message.is_expired(self.now.wall),
                "an expired entry keeps its key"
            );
        }
    }

    fn offer(&mut self, seat: u32) -> Option<u64> {
        let session = self.state.seat(seat).unwrap().session.0;
        let client = self.clients.get_mut(&session).unwrap();
        let batch = std::mem::take(&mut client.log);
        if !client.accepts {
            self.overtaken |= self.clients.len() > 1;
            for got in &batch {
                self.known.get_mut(&got.slot).unwrap().sends -= 1;
            }
            return None;
        }
        client.position += 1;
        for got in batch {
            self.receive(session, got);
        }
        Some(self.clients[&session].position)
    }

    fn receive(&mut self, session: u64, got: Got) {
        let client = self.clients.get_mut(&session).unwrap();
        if client.mode != Mode::Flush {
            client.holds.push(got);
        }
        let held = client.holds.len() as u32;
        assert!(
            held <= client.prefetch,
            "{held} of {} held",
            client.prefetch
        );
        let suspects = client
            .holds
            .iter()
            .filter(|got| self.known[&got.slot].suspect);
        assert!(suspects.count() == 0 || held == 1, "a suspect is not alone");
        if let Some(seq) = got.slot.seq() {
            let key = self.maps.log[seq as usize - 1].key.clone();
            if self.known[&got.slot].sends == 1 && !self.crashed && !self.overtaken {
                let last = self.last_first.insert((session, key), seq).unwrap_or(0);
                assert!(last < seq, "first delivery of {seq} after {last}");
            }
            assert!(seq <= self.maps.sent, "{seq} sent beyond the mark");
        }
    }

    fn notice_timeouts(&mut self) {
        for (session, client) in &mut self.clients {
            // Of large windows only the first few are looked at each time: they are the oldest.
            let large = client.holds.split_off(client.holds.len().min(64));
            let Some(at) = self.state.seats.find(SessionId(*session)) else {
                continue;
            };
            let is_out = |got: &Got| {
                let held = self.state.held.get(&got.slot);
                held.is_some_and(|h| matches!(h.place, Place::Out(out) if out.seat == at))
            };
            client.holds.retain(|got| {
                let known = self.known.get_mut(&got.slot).unwrap();
                let Style::Tracked(_) = got.style else {
                    return true;
                };
                let message = got.slot.seq().map(|seq| &self.maps.log[seq as usize - 1]);
                let is_late = known.sent_at + TIMEOUT <= self.now.elapsed;
                if is_out(got) {
                    assert!(!is_late || client.was_paused, "an ack timeout was missed");
                    return true;
                }
                assert!(is_late, "taken away without a reason");
                if !message.is_some_and(|message| message.is_expired(self.now.wall)) {
                    known.failures += 1;
                }
                false
            });
            client.holds.extend(large);
        }
    }

    fn perform(&mut self, effect: Effect, inputs: &mut Vec<Input>, batches: &mut BTreeSet<u32>) {
        let answer = match effect {
            Effect::Send {
                seat,
                slot,
                message,
                style,
            } => {
                assert!(!message.is_expired(self.now.wall), "expired");
                let known = self.known.entry(slot).or_default();
                known.sends += 1;
                known.sent_at = self.now.elapsed;
                match style {
                    Style::Tracked(attempt) if self.crashed => {
                        assert!(attempt >= known.sends.min(2))
                    }
                    Style::Tracked(attempt) => assert_eq!(attempt, known.sends),
                    Style::Plain => assert_eq!(known.sends, 1, "a repeat that is not marked"),
                    Style::Repeated => assert!(known.sends > 1 || self.crashed),
                }
                let is_dead = slot
                    .seq()
                    .is_some_and(|seq| self.maps.dead.contains_key(&seq));
                assert!(!is_dead, "a dead letter was sent");
                let key = message.key.clone();
                let others = self
                    .clients
                    .values()
                    .flat_map(|c| c.holds.iter().chain(&c.log));
                for other in others {
                    assert_ne!(other.slot, slot, "out twice");
                    if let (Some(seq), Some(_)) = (other.slot.seq(), slot.seq()) {
                        let same = key.is_some() && self.maps.log[seq as usize - 1].key == key;
                        assert!(!same, "two of one ordering key are out");
                    }
                }
                let session = self.state.seat(seat).unwrap().session.0;
                self.clients
                    .get_mut(&session)
                    .unwrap()
                    .log
                    .push(Got { slot, style });
                batches.insert(seat);
                return;
            }
            Effect::Ask(seat) => {
                let session = self.state.seat(seat).unwrap().session.0;
                self.clients.get_mut(&session).unwrap().asked = true;
                return;
            }
            Effect::Taken(_) => return,
            Effect::Lost { count, .. } => return self.lost.push(count),
            Effect::Answer(answer, outcome) => return answer(outcome),
            Effect::Page { after, .. } => {
                let page = self.maps.page(after, self.page);
                Input::Paged(self.or_fail(|_| page))
            }
            // The queues of these tests are one broker's own.
            Effect::Claim(_) => Input::Claimed(Ok(Claim::sole())),
            Effect::Release { .. } => Input::Released,
            Effect::Due(limit) => {
                let due = self.maps.due(limit, self.now.wall);
                Input::Due(self.or_fail(|_| due))
            }
            Effect::Browse { after } => {
                let entries = self.maps.browse(after, self.page);
                Input::Browsed(self.or_fail(|_| entries))
            }
            Effect::Look { seq } => {
                let entries = self.maps.browse(seq.saturating_sub(1), 1);
                Input::Looked(self.or_fail(|_| entries))
            }
            Effect::Write(change) => Input::Written(self.or_fail(|maps| maps.update(change))),
            Effect::Settle(seqs) => Input::Settled(self.or_fail(|maps| maps.settle(&seqs))),
        };
        match self.health {
            Health::Silent => self.unanswered.push_back(answer),
            _ => inputs.push(answer),
        }
    }

    fn or_fail<T>(&mut self, work: impl FnOnce(&mut Maps) -> T) -> crate::Result<T> {
        match self.health {
            Health::Failing => Err(Error::new(ErrorKind::StoreUnavailable, "away")),
            _ => Ok(work(&mut self.maps)),
        }
    }
}
