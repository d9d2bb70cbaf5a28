//! The arguments of a call, flat in one buffer. Knows what scripts read, not what they do.

use std::io::Write as _;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::model::{Message, RealmId};

use super::super::types::{Append, Bounds, Overflow, QueueChange};

/// Numbers of scripts are exact up to here.
pub(super) const LARGEST: u64 = (1 << 53) - 1;

/// What records of entries have room for: about the year 10889.
const LARGEST_TIME: u64 = (1 << 48) - 1;

/// Arguments one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Args {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// A number that a script can keep exactly.
pub(super) fn exact(number: u64) -> u64 {
    number.min(LARGEST)
}

pub(super) fn millis(duration: Duration) -> u64 {
    exact(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

impl Args {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.ends.len() * 8
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.bytes[start..*end])
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self.end();
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// As it is: for ids, which scripts treat as texts.
    pub(super) fn id(&mut self, id: u64) -> &mut Self {
        // Writing to a buffer cannot fail.
        let _ = write!(self.bytes, "{id}");
        self.end();
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.id(exact(number))
    }

    pub(super) fn size(&mut self, size: usize) -> &mut Self {
        self.number(size as u64)
    }

    pub(super) fn time(&mut self, at: Timestamp) -> &mut Self {
        self.number(at.0)
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.text(if flag { "1" } else { "0" })
    }

    /// `-`, or `+` and the text.
    pub(super) fn optional(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => {
                self.bytes.push(b'+');
                self.text(text)
            }
            None => self.text("-"),
        }
    }

    fn list(&mut self, ids: impl Iterator<Item = u64>) -> &mut Self {
        for id in ids {
            let _ = write!(self.bytes, "{id},");
        }
        self.end();
        self
    }

    /// Whether full queues drop their oldest.
    pub(super) fn overflow(&mut self, bounds: &Bounds) -> &mut Self {
        self.flag(bounds.overflow == Overflow::DropOldest)
    }

    /// How long and how many marks and users' ids are kept.
    pub(super) fn memory(&mut self, bounds: &Bounds) -> &mut Self {
        self.number(millis(bounds.mark_idle))
            .size(bounds.marks_per_realm)
            .number(millis(bounds.dedupe_window))
            .size(bounds.dedupe_max)
    }

    /// What an `append` begins with.
    pub(super) fn append_head(&mut self, bounds: &Bounds, realm: &RealmId) {
        let quota = bounds.quota(realm);
        self.overflow(bounds)
            // It is added to other numbers, so it must leave place for them.
            .number(quota.queue.clamp(1, LARGEST >> 2))
            .number(quota.queued)
            .number(quota.bytes)
            .memory(bounds);
    }

    /// Adds another's arguments behind these.
    pub(super) fn join(&mut self, other: &Self) {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| base + end));
    }

    /// What an entry's record is made of.
    pub(super) fn head(&mut self, message: &Message, flags: u8) -> &mut Self {
        let expires = message.expires.map_or(0, |at| at.0.clamp(1, LARGEST_TIME));
        self.bytes.extend_from_slice(&expires.to_le_bytes()[..6]);
        let produced = message.produced.0.min(LARGEST_TIME);
        self.bytes.extend_from_slice(&produced.to_le_bytes()[..6]);
        let size = u32::try_from(message.size()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&size.to_le_bytes());
        self.bytes(&[flags])
    }

    /// A message as it is kept.
    pub(super) fn message(&mut self, message: &Message) -> &mut Self {
        message.encode(&mut self.bytes);
        self.end();
        self
    }

    /// An item of `append`.
    pub(super) fn item(&mut self, item: &Append) -> &mut Self {
        let message = &item.message;
        // A number that scripts cannot keep apart from its neighbours dedupes nothing.
        let mark = item.mark.as_ref().filter(|(_, number)| *number < LARGEST);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(message.guaranteed, 1)
            | flag(!item.skip.is_empty(), 2)
            | flag(mark.is_some(), 4)
            | flag(item.uid.is_some(), 8)
            | flag(item.due.is_some(), 16)
            | flag(item.release.is_some(), 32);
        self.head(message, flags);
        self.list(item.logs.iter().map(|log| log.0));
        self.message(message);
        if flags < 2 {
            return self;
        }
        if !item.skip.is_empty() {
            self.list(item.skip.iter().map(|queue| queue.0));
        }
        if let Some((instance, number)) = mark {
            self.text(instance).number(*number);
        }
        if let Some(uid) = &item.uid {
            self.text(uid);
        }
        if let Some(due) = item.due {
            let _ = write!(self.bytes, "{} ", exact(due.0));
            self.optional(item.owner.as_deref());
        }
        if let Some(id) = item.release {
            self.id(id.0);
        }
        self.id(message.id.0)
    }

    /// The parts of an `update`.
    pub(super) fn change(&mut self, change: &QueueChange) -> &mut Self {
        for at in [change.low, change.sent] {
            match at {
                Some(seq) => self.number(seq),
                None => self.text("-"),
            };
        }
        self.size(change.except.len())
            .size(change.clear.len())
            .size(change.done.len())
            .size(change.bury.len());
        for except in &change.except {
            self.number(except.seq)
                .number(except.attempts.into())
                .number(except.failures.into())
                .number(except.returns.into())
                .time(except.due)
                .optional(except.first_error.as_deref())
                .optional(except.last_error.as_deref())
                .flag(except.suspect);
        }
        for seq in change.clear.iter().chain(&change.done) {
            self.number(*seq);
        }
        for burial in &change.bury {
            self.number(burial.seq)
                .number(burial.attempts.into())
                .text(&burial.reason)
                .optional(burial.first_error.as_deref())
                .optional(burial.last_error.as_deref());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_arguments_stay_apart() {
        let (mut one, mut two) = (Args::new(), Args::new());
        one.text("a").optional(None).number(u64::MAX);
        two.optional(Some("")).text("").id(7);
        one.join(&two);
        let all: Vec<&[u8]> = one.iter().collect();
        let expected: [&[u8]; 6] = [b"a", b"-", b"9007199254740991", b"+", b"", b"7"];
        assert_eq!(all, expected);
    }
}
