//! ACK, NACK, WORKING: to the broker, and its answer back as event and reply.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::{Settled, Verdict};
use crate::protocol::inbound::{Ack, Nack, Working};
use crate::protocol::outbound::{self, Settle};
use crate::{Error, Result};

use super::Session;
use super::replies::Replies;

impl Session {
    pub(super) fn ack(&self, ack: &Ack<'_>, reply: Option<u64>) {
        match ack {
            Ack::One { id, attempt } => {
                self.settle_one(id, *attempt, Verdict::Ack, Settle::Ack, reply);
            }
            Ack::Many(ids) => {
                let together = Together::new(self.replies.clone(), ids.len(), reply);
                for id in ids {
                    let answer = together.clone();
                    let id_owned: Arc<str> = Arc::from(&**id);
                    let settled: Settled = Box::new(move |outcome| answer.one(id_owned, outcome));
                    self.shared
                        .broker
                        .settle(&self.member, id, None, Verdict::Ack, settled);
                }
            }
        }
    }

    pub(super) fn nack(&self, nack: &Nack<'_>, reply: Option<u64>) {
        let verdict = Verdict::Nack {
            delay: nack.delay,
            requeue: nack.requeue,
            reason: nack.reason.as_deref().map(Arc::from),
        };
        self.settle_one(&nack.id, nack.attempt, verdict, Settle::Nack, reply);
    }

    pub(super) fn working(&self, working: &Working<'_>, reply: Option<u64>) {
        let (id, attempt) = (&working.id, working.attempt);
        self.settle_one(id, attempt, Verdict::Working, Settle::Working, reply);
    }

    fn settle_one(
        &self,
        id: &str,
        attempt: Option<u32>,
        verdict: Verdict,
        verb: Settle,
        reply: Option<u64>,
    ) {
        let replies = self.replies.clone();
        let owned: Box<str> = id.into();
        let answer: Settled = Box::new(move |outcome| {
            replies.push(|out| match outcome {
                Ok(duplicate) => outbound::settle_ok(out, reply, verb, &owned, duplicate),
                Err(error) => outbound::settle_fail(out, reply, verb, Some(&owned), &error),
            });
        });
        self.shared
            .broker
            .settle(&self.member, id, attempt, verdict, answer);
    }
}

/// The one answer to an ACK of many ids, written when the last is known.
struct Together {
    replies: Arc<Replies>,
    reply: Option<u64>,
    open: Mutex<Open>,
}

struct Open {
    missing: usize,
    settled: Vec<Arc<str>>,
    duplicates: Vec<Arc<str>>,
    failed: Vec<(Arc<str>, Error)>,
}

impl Together {
    fn new(replies: Arc<Replies>, count: usize, reply: Option<u64>) -> Arc<Self> {
        let open = Open {
            missing: count,
            settled: Vec::with_capacity(count),
            duplicates: Vec::new(),
            failed: Vec::new(),
        };
        let together = Arc::new(Self {
            replies,
            reply,
            open: Mutex::new(open),
        });
        if count == 0 {
            together.answer(&together.open.lock());
        }
        together
    }

    fn one(&self, id: Arc<str>, outcome: Result<bool>) {
        let mut open = self.open.lock();
        match outcome {
            Ok(duplicate) => {
                if duplicate {
                    open.duplicates.push(id.clone());
                }
                open.settled.push(id);
            }
            Err(error) => open.failed.push((id, error)),
        }
        open.missing -= 1;
        if open.missing == 0 {
            self.answer(&open);
        }
    }

    fn answer(&self, open: &Open) {
        self.replies.push(|out| {
            outbound::ack_many(
                out,
                self.reply,
                &open.settled,
                &open.duplicates,
                &open.failed,
            );
        });
    }
}
