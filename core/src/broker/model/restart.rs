//! A broker that ends and another one over what it has stored (P1, P4).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::book::*;
use super::life::{ANONYMOUS, Life, NAMES, SHARED, open};
use super::link::{Journal, keys};
use crate::store::faulty::FaultyStore;
use crate::store::{QueueKind, QueueRecord};

impl Life {
    /// The broker ends: with a word to its sessions, or `crashed`. What it knew alone is gone, what
    /// was confirmed is there.
    pub(super) async fn restart(&mut self, crashed: bool) {
        let is_shaky = !self.is_well();
        for session in self.book.alive.clone() {
            match crashed {
                true => self.left(session, false),
                false => self.leave(session, Leave::Returned),
            }
        }
        if !crashed {
            self.observe().await;
        }
        // Whatever is left of it reaches neither the store nor a client.
        self.store.refuse(Some(ErrorKind::StoreUnavailable));
        self.journal = Journal::default();
        self.replies = Arc::default();
        self.forget_the_unanswered(is_shaky);
        self.clock.advance(Duration::from_millis(2));
        self.store = FaultyStore::new(self.inner.clone());
        self.broker = open(&self.store, &self.clock).await;
        (self.is_stalled, self.is_refusing) = (false, false);
        self.trouble = is_shaky.then(|| self.clock.elapsed());
        let records = self.inner.queues().await.unwrap();
        self.recall(&records, is_shaky);
    }

    fn forget_the_unanswered(&mut self, is_shaky: bool) {
        for judged in std::mem::take(&mut self.judged) {
            self.book.waver(&judged.qid, judged.got.n);
        }
        self.claims.clear();
        self.openings.clear();
        self.holders.clear();
        self.producers.clear();
        // The store was asked to hold them or not.
        for n in self.unanswered.keys().chain(self.unasked.keys()) {
            let sent = &mut self.book.sent[*n];
            sent.is_loose |= sent.is_delayed;
            self.marked.retain(|marked| marked.n != *n);
        }
        self.unanswered.clear();
        self.unasked.clear();
        self.granted.clear();
        for repeated in self.repeats.values_mut() {
            repeated.since = None;
        }
        self.book.recall(is_shaky);
    }

    /// What is remembered is what was subscribed to, and it begins again with a name (P4).
    fn recall(&mut self, records: &[QueueRecord], is_shaky: bool) {
        let keys = keys();
        let mut known = BTreeMap::new();
        let before = std::mem::take(&mut self.registry);
        let mut by_attach: Vec<&QueueRecord> = records.iter().collect();
        by_attach.sort_by_key(|record| record.seen);
        for record in by_attach {
            let key = keys.iter().position(|key| **key == record.spec.key);
            let key = key.unwrap();
            let qid = (key, record.spec.name.to_string());
            let settings = &record.spec.settings;
            known.insert(qid.clone(), settings.durable);
            let who = match (record.spec.kind, &*record.spec.name) {
                (QueueKind::Group, _) => Who::Group,
                (_, SHARED) => Who::Shared,
                _ => Who::Own,
            };
            let (names, has_more) = remembered::users(settings);
            assert!(!has_more, "there are four names");
            let names = names.iter().map(|name| {
                let at = NAMES.iter().position(|other| *other == name.as_str());
                at.unwrap()
            });
            let names: Vec<usize> = names.collect();
            for ((name, _), wish) in &before {
                let is_user = self.qid(0, wish).as_ref() == Some(&qid) && *name != ANONYMOUS;
                assert!(
                    !is_user || is_shaky || names.contains(name),
                    "{name} was a user of {qid:?}, which are {names:?} (P4)"
                );
            }
            for name in names {
                let wish = Wish {
                    name,
                    key,
                    who,
                    durable: settings.durable,
                    ack: settings.ack,
                    prefetch: 1_024,
                };
                self.registry.insert((name, key), wish);
            }
        }
        self.book.queues.retain(|qid, _| !qid.1.starts_with('~'));
        for (qid, queue) in &mut self.book.queues {
            let durable = known.remove(qid);
            let every = match durable {
                Some(true) => Tri::Yes,
                _ => Tri::No,
            };
            let guaranteed = durable.map_or(Tri::No, |_| Tri::Yes);
            let fits = |was: Tri, is: Tri| is_shaky || was == Tri::Maybe || was == is;
            assert!(
                fits(queue.is_known(), guaranteed) && fits(queue.every, every),
                "{qid:?} is remembered as {durable:?} and was {:?}, {:?} (P4)",
                queue.every,
                queue.guaranteed
            );
            (queue.every, queue.guaranteed) = (every, guaranteed);
            queue.is_promised = false;
        }
        assert!(known.is_empty() || is_shaky, "nobody's: {known:?}");
        for (qid, durable) in known {
            let queue = self.book.queues.entry(qid).or_default();
            queue.every = if durable { Tri::Yes } else { Tri::No };
            queue.guaranteed = Tri::Yes;
        }
    }
}

impl Book {
    /// Nobody knows any more what has become of it, or how often it was sent.
    pub(super) fn waver(&mut self, qid: &Qid, n: usize) {
        self.doubtful.insert((qid.clone(), n));
        let queue = self.queues.get_mut(qid);
        if let Some(entry) = queue.and_then(|queue| queue.entries.get_mut(&n)) {
            entry.must = false;
        }
    }

    /// What a broker knew alone is gone with it.
    fn recall(&mut self, is_shaky: bool) {
        let mut wavering = Vec::new();
        for (qid, queue) in &mut self.queues {
            for (n, entry) in &mut queue.entries {
                let was_received = entry.end == Some(End::Settled) && entry.was_received;
                let was_sent = entry.attempts > 0 || entry.failures > 0;
                if was_received || (is_shaky && was_sent) {
                    wavering.push((qid.clone(), *n));
                }
                if entry.end.is_none() {
                    entry.was_left = true;
                    entry.was_recalled = true;
                }
            }
        }
        for (qid, n) in wavering {
            self.waver(&qid, n);
        }
        self.live.clear();
        self.moved.clear();
        self.just_left.clear();
    }
}
