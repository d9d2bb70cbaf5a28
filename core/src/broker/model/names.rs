//! Who holds which name in a life (P22): consumers keep theirs while they live, producers do not.

use std::time::Duration;

use super::super::*;
use super::book::Wish;
use super::life::{Cell, Claim, Life, NAMES, PRODUCERS, run};
use super::link::Event;
use crate::model::*;

impl Life {
    /// CONSUMER by a new session.
    pub(super) fn connect(
        &mut self,
        name: usize,
        instance: Option<u8>,
        acked: Option<bool>,
    ) -> usize {
        let session = self.join(acked);
        let hello = ConsumerHello {
            name: ConsumerName::parse(NAMES[name]).unwrap(),
            id: None,
            instance: instance.map(|instance| instance.to_string().into()),
            gap: true,
        };
        let member = &self.sessions[session].member;
        let answer = run(self.broker.consumer(member, hello));
        self.claim(session, name, instance, None, answer);
        session
    }

    /// Waits for a name.
    pub(super) fn claim(
        &mut self,
        session: usize,
        name: usize,
        instance: Option<u8>,
        wish: Option<Wish>,
        answer: Cell<crate::Result<()>>,
    ) {
        let held = self.holders.get(&name).copied();
        let is_same = held.is_some_and(|(_, of)| of.is_some() && of == instance);
        self.sessions[session].is_waiting = true;
        self.claims.push(Claim {
            session,
            name,
            instance,
            since: self.clock.elapsed(),
            holder: held.map(|(holder, _)| holder),
            is_same,
            wish,
            answer,
        });
    }

    pub(super) fn produce_as(&mut self, session: usize, name: usize, instance: Option<u8>) {
        let hello = ProducerHello {
            name: ProducerName::parse(PRODUCERS[name]).unwrap(),
            id: None,
            default_ttl: None,
            instance: instance.map(|instance| instance.to_string().into()),
        };
        let member = self.sessions[session].member.clone();
        self.broker.producer(&member, hello).unwrap();
        let before = self.producers.insert(name, (session, instance));
        let mut replaced = None;
        if let Some((older, of)) = before
            && older != session
            && self.book.alive.contains(&older)
            && (of.is_none() || of != instance)
        {
            replaced = Some(older);
        }
        let told: Vec<usize> = self
            .journal
            .lock()
            .iter()
            .filter_map(|event| match event {
                Event::Replaced(session) => Some(*session),
                _ => None,
            })
            .collect();
        assert_eq!(
            told,
            Vec::from_iter(replaced),
            "who hears of the takeover (P22)"
        );
    }

    /// What became of the claims to names, and what must not have.
    pub(super) fn claimed(&mut self, lost: &[usize]) {
        let done = |claim: &mut Claim| claim.answer.lock().is_some();
        let mut done: Vec<Claim> = self.claims.extract_if(.., done).collect();
        // Who got the name before who did not.
        done.sort_by_key(|claim| claim.answer.lock().as_ref().is_some_and(Result::is_err));
        // Of several claims the first one counts: a name may go from hand to hand at once.
        let first = done.iter().map(|claim| claim.since).min();
        let mut refused = Vec::new();
        let gone = self.gone_by(&done, lost);
        for claim in done {
            let answer = claim.answer.lock().take().unwrap();
            let waited = self.clock.elapsed() - first.unwrap_or(claim.since);
            match answer {
                Ok(()) => {
                    // Its holder may have gone for another of its names, and left this one free.
                    let is_other = |(holder, name): &(usize, usize)| {
                        Some(*holder) == claim.holder && *name != claim.name
                    };
                    let is_left = gone.iter().any(is_other);
                    self.taken(&claim, waited, lost, is_left);
                }
                Err(error) if error.kind() == ErrorKind::DuplicateConsumer => {
                    let holder = self.holders.get(&claim.name).map(|(holder, _)| *holder);
                    // One that lost another of its names since held this one when it was asked for.
                    let before = claim.holder.filter(|holder| lost.contains(holder));
                    let holder = holder.or(before);
                    let holder = holder.expect("refused a name that nobody holds (P22)");
                    assert_ne!(holder, claim.session);
                    let heard = self.sessions[holder].line.last_byte() > claim.since;
                    assert!(
                        heard || claim.holder != Some(holder),
                        "a silent holder keeps its name (P22)"
                    );
                    refused.push(claim.session);
                }
                Err(error) => assert!(!self.book.alive.contains(&claim.session), "{error}"),
            }
        }
        for session in refused {
            self.leave(session, Leave::Closed);
        }
        self.claims
            .retain(|claim| self.book.alive.contains(&claim.session));
        for claim in &self.claims {
            let waited = self.clock.elapsed() - claim.since;
            let same = claim.holder == self.holders.get(&claim.name).map(|(holder, _)| *holder);
            let Some(holder) = claim.holder.filter(|_| same) else {
                continue;
            };
            let line = &self.sessions[holder].line;
            let patience = match line.acknowledges() == Some(false) {
                true => Duration::from_millis(1_100),
                false => Duration::from_secs(5),
            };
            assert!(
                waited < patience,
                "nobody answers the claim to {} (P22)",
                claim.name
            );
        }
    }

    /// Holders that were rightly ended for a name, with that name.
    fn gone_by(&self, done: &[Claim], lost: &[usize]) -> Vec<(usize, usize)> {
        let mut gone = Vec::new();
        for claim in done {
            let is_won = matches!(&*claim.answer.lock(), Some(Ok(())));
            let Some(holder) = claim
                .holder
                .filter(|holder| is_won && lost.contains(holder))
            else {
                continue;
            };
            let is_silent = self.sessions[holder].line.last_byte() <= claim.since;
            if claim.is_same || is_silent {
                gone.push((holder, claim.name));
            }
        }
        gone
    }

    fn taken(&mut self, claim: &Claim, waited: Duration, lost: &[usize], is_left: bool) {
        if let Some(holder) = claim.holder
            && holder != claim.session
            && lost.contains(&holder)
        {
            let told = self.journal.lock().iter().any(|event| {
                matches!(event, Event::Error(session, code) if *session == holder && code == "duplicate_consumer")
            });
            assert!(told, "who lost the name is not told (P22)");
            if !claim.is_same && !is_left {
                let silent = self.sessions[holder].line.last_byte() <= claim.since;
                assert!(silent, "a live holder lost its name (P22)");
                // A probe goes on for the next newcomer.
                let silence = self.clock.elapsed() - self.sessions[holder].line.last_byte();
                assert!(
                    waited.max(silence) >= Duration::from_secs(1),
                    "the holder had no time (P22)"
                );
            }
        }
        if !self.book.alive.contains(&claim.session) {
            return; // it had it and lost it already
        }
        let before = self
            .holders
            .insert(claim.name, (claim.session, claim.instance));
        assert!(
            before.is_none_or(|(holder, _)| holder == claim.session),
            "two live holders of a name (P22): {before:?}, {}",
            claim.session
        );
        self.sessions[claim.session].is_waiting = false;
        let granted = claim.wish.clone().map(|wish| (claim.session, wish));
        self.granted.extend(granted);
        let again: Vec<Wish> = self
            .registry
            .values()
            .filter(|wish| {
                let is_held = self
                    .book
                    .subs
                    .contains_key(&(claim.session, wish.name, wish.key));
                wish.name == claim.name && !wish.durable && !is_held
            })
            .cloned()
            .collect();
        for wish in again {
            self.enlist(claim.session, &wish, false);
        }
    }
}
