//! Broadcasts: everybody who is connected has one at once, once, whatever the store does (wire §8.3).

use super::acts::Item;
use super::book::*;
use super::life::Life;

/// Whom a broadcast is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cast {
    Realm,
    /// The group of this key.
    Group(usize),
}

impl Cast {
    pub(super) fn group(self) -> Option<String> {
        match self {
            Self::Realm => None,
            Self::Group(key) => Some(format!("g{key}")),
        }
    }
}

impl Item {
    pub(super) fn cast(event: usize, cast: Cast) -> Self {
        Self {
            event,
            guaranteed: false,
            ttl: None,
            key: None,
            confirm: true,
            delay: None,
            mark: None,
            cast: Some(cast),
        }
    }
}

/// A broadcast and who must have it, by session and key; without a key: under its event.
pub(super) struct Casting {
    n: usize,
    to: Vec<(usize, Option<usize>)>,
}

impl Life {
    pub(super) fn expect_cast(&mut self, n: usize, sent: &Sent, cast: Cast) {
        let mut to = Vec::new();
        if cast == Cast::Realm {
            let holders = self.holders.values().map(|(session, _)| (*session, None));
            to.extend(holders);
        }
        for ((session, _, key), sub) in &self.book.subs {
            let is_group = sub.wish.who == Who::Group;
            let is_meant = match cast {
                Cast::Realm => matches(*key, sent),
                Cast::Group(of) => is_group && *key == of,
            };
            // Where it goes by no queue and behind nothing stored, it is there at once.
            let is_plain = !sub.wish.ack && sub.qid.is_none() && self.is_well();
            let is_direct = is_group || sub.is_durable || is_plain;
            if is_meant && is_direct && sub.enrolled == Tri::Yes {
                to.push((*session, Some(*key)));
            }
        }
        self.casting.push(Casting { n, to });
    }

    /// Whoever was there has what was broadcast.
    pub(super) fn casts_are_there(&mut self) {
        for Casting { n, to } in std::mem::take(&mut self.casting) {
            for (session, key) in to {
                let is_there = self.book.casts.contains(&(session, key, n));
                let is_excused =
                    !self.book.alive.contains(&session) || self.sessions[session].was_limited;
                assert!(
                    is_there || is_excused,
                    "{session} has not got the broadcast {n} on {key:?}"
                );
            }
        }
    }
}

impl Book {
    pub(super) fn cast(&mut self, session: usize, key: Option<usize>, n: usize) {
        let is_new = self.casts.insert((session, key, n));
        assert!(is_new, "{session} has the broadcast {n} twice on {key:?}");
    }
}
