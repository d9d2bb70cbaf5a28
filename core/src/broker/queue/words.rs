//! The words that go in and out of a queue: seats, ids, verdicts, outcomes.
//!
//! Plain values; ids as text are read and written here. Used by the broker's verbs and the courier.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Message, RetryPolicy};
use crate::store::{QueueId, Seq};
use crate::{Error, ErrorKind};

use super::super::ports::{Filter, Head, Outbox, SessionId};

/// How deliveries of a session are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By an ACK within `timeout` (P9).
    Ack {
        /// Above zero.
        timeout: Duration,
    },
    /// By a confirmation of receipt (P6).
    Confirm,
    /// When the outbox has taken them.
    Flush,
}

/// A session's place at a queue.
pub(crate) struct Seat {
    /// The session.
    pub(crate) session: SessionId,
    /// Its line of bytes.
    pub(crate) outbox: Arc<dyn Outbox>,
    /// What is constant in its deliveries.
    pub(crate) head: Arc<dyn Head>,
    /// How its deliveries are settled.
    pub(crate) mode: Mode,
    /// Most unsettled entries; at least 1 (P12).
    pub(crate) prefetch: u32,
    /// Most bytes of unsettled entries, or one entry; 8 MiB.
    pub(crate) prefetch_bytes: usize,
    /// What follows a failure.
    pub(crate) retry: RetryPolicy,
    /// What it may see of what is stored; `None`: all (P30).
    pub(crate) filter: Option<Arc<dyn Filter>>,
    /// The end of the log when it came: live copies go behind that (P5).
    pub(crate) floor: Seq,
    /// Hears how many live copies for it were dropped because too many waited, once there is room
    /// again (P23).
    pub(crate) lost: Arc<dyn Fn(u64) + Send + Sync>,
    /// Hears that somebody has come to another broker for the queue.
    pub(crate) taken: Arc<dyn Fn() + Send + Sync>,
}

/// How a session left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It closed, or we did: gives back without a failure.
    Closed,
    /// Heartbeat loss, takeover or cut: gives back without a failure, 25 times (P10).
    Returned,
    /// Its socket ended without a close: a failure of what it held with ack.
    Failed,
    /// It does not want more: gives back without a failure.
    Unsubscribed,
}

/// Which entry of which queue an id names. As text `<queue>-<seq>` for stored ones, `~<queue>-<n>`
/// for live copies, numbers in base 36; at most 28 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// A stored entry.
    Stored {
        /// The queue; it has this id wherever it is kept.
        queue: QueueId,
        /// The position in its log.
        seq: Seq,
    },
    /// A live copy.
    Volatile {
        /// [`Queue::number`].
        queue: u64,
        /// Which of its copies.
        n: u64,
    },
}

impl Item {
    /// Appends the id as text.
    pub(crate) fn write(self, text: &mut String) {
        let (head, tail) = match self {
            Self::Stored { queue, seq } => (queue.0, seq),
            Self::Volatile { queue, n } => {
                text.push('~');
                (queue, n)
            }
        };
        write_base36(head, text);
        text.push('-');
        write_base36(tail, text);
    }
}

fn write_base36(mut number: u64, text: &mut String) {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut digits = [b'0'; 13];
    let mut first = digits.len() - 1;
    loop {
        digits[first] = DIGITS[(number % 36) as usize];
        number /= 36;
        if number == 0 || first == 0 {
            break;
        }
        first -= 1;
    }
    text.extend(digits[first..].iter().map(|digit| char::from(*digit)));
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(28);
        self.write(&mut text);
        f.write_str(&text)
    }
}

impl FromStr for Item {
    type Err = Error;

    /// Reads what `Display` writes; anything else is `DeliveryUnknown`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |digits: &str| {
            let canonical = |c: &u8| c.is_ascii_digit() || c.is_ascii_lowercase();
            let is_number = digits.bytes().all(|c| canonical(&c))
                && (digits.len() == 1 || !digits.starts_with('0'));
            is_number
                .then(|| u64::from_str_radix(digits, 36).ok())
                .flatten()
        };
        let live = text.strip_prefix('~');
        let item = live
            .unwrap_or(text)
            .split_once('-')
            .and_then(|(head, tail)| {
                let (head, tail) = (number(head)?, number(tail)?);
                Some(match live {
                    Some(_) => Self::Volatile {
                        queue: head,
                        n: tail,
                    },
                    None => Self::Stored {
                        queue: QueueId(head),
                        seq: tail,
                    },
                })
            });
        item.ok_or_else(|| Error::new(ErrorKind::DeliveryUnknown, "no such delivery is known"))
    }
}

/// What somebody says of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// Done.
    Ack,
    /// Not done.
    Nack {
        /// Wait so long instead of what the retry policy says; at most 24 h.
        delay: Option<Duration>,
        /// `false`: a dead letter now.
        requeue: bool,
        /// Kept as the error.
        reason: Option<Arc<str>>,
    },
    /// Not done yet: the ack timeout starts anew.
    Working,
}

/// Takes the outcome of a verdict.
pub(crate) type Answer = Box<dyn FnOnce(Outcome) + Send>;

/// ACK, NACK or WORKING. That the session owns the queue has been checked (P9).
pub(crate) struct Verdict {
    /// Which delivery.
    pub(crate) item: Item,
    /// `delivery_attempt`, if it was said.
    pub(crate) attempt: Option<u32>,
    /// What of it.
    pub(crate) what: What,
    /// Is called once.
    pub(crate) answer: Answer,
}

/// What became of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done, and written.
    Ok {
        /// It was settled before.
        duplicate: bool,
    },
    /// No such delivery (404).
    Unknown,
    /// A newer attempt has been delivered (409).
    Stale,
    /// The store did not take it in time; it is kept and written later (503).
    Kept,
    /// It cannot be done.
    Failed(Error),
}

/// An entry of the log from the commit that made it.
#[derive(Debug, Clone)]
pub(crate) struct Fed {
    /// Its position.
    pub(crate) seq: Seq,
    /// The message.
    pub(crate) message: Arc<Message>,
}

/// What stats show of a queue (the store knows its depth).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueSnapshot {
    /// Attached sessions.
    pub(crate) sessions: usize,
    /// Entries that are out.
    pub(crate) in_flight: u64,
    /// Entries in memory that wait for a retry.
    pub(crate) retrying: usize,
    /// Entries that are to go out alone (P11).
    pub(crate) suspects: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_no_other_spelling_does() {
        let (queue, max) = (QueueId(u64::MAX), u64::MAX);
        let items = [
            Item::Stored { queue, seq: max },
            Item::Stored {
                queue: QueueId(0),
                seq: 35,
            },
            Item::Volatile { queue: 36, n: 1 },
        ];
        for item in items {
            let text = item.to_string();
            assert!(text.len() <= 64);
            assert_eq!(text.parse::<Item>(), Ok(item));
        }
        assert_eq!(items[2].to_string(), "~10-1");
        for text in [
            "", "-", "1", "1-", "-1", "01-1", "+1-1", "A-1", "~~1-1", "1-2-3", "é-1",
        ] {
            let error = text.parse::<Item>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeliveryUnknown, "{text}");
        }
    }
}
