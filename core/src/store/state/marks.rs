//! What a realm remembers of messages it has stored, so that a resend is stored once (P16).
//!
//! Knows no log. Times are those of the messages; nothing here reads a clock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::MessageId;

use super::super::types::Bounds;
use super::keep::Uids;

/// Numbers remembered below the highest one of an instance.
const WINDOW: u64 = 1024;
/// Ids remembered per instance.
const IDS: usize = 128;

/// A message that was stored before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// The id of the first copy, if it is still known.
    pub(crate) id: Option<MessageId>,
}

/// Marks of producer instances and of users' own ids of one realm.
#[derive(Debug)]
pub(crate) struct Marks<U> {
    instances: HashMap<Arc<str>, Box<Mark>>,
    /// Every instance once, by when it was last looked at here; those used since go round again.
    idle_line: VecDeque<(Timestamp, Arc<str>)>,
    pub(crate) uids: U,
    /// Instances that were marked or dropped, where somebody writes them down.
    touched: Option<Vec<Arc<str>>>,
}

/// What is remembered of one instance.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) high: u64,
    pub(crate) bits: [u64; (WINDOW / 64) as usize],
    pub(crate) ids: VecDeque<(u64, MessageId)>,
    pub(crate) used: Timestamp,
}

impl Mark {
    pub(crate) fn new() -> Self {
        Self {
            high: 0,
            bits: [0; (WINDOW / 64) as usize],
            ids: VecDeque::new(),
            used: Timestamp::default(),
        }
    }

    fn place(number: u64) -> (usize, u64) {
        let bit = number % WINDOW;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn find(&self, number: u64) -> Option<Known> {
        let below = number.saturating_add(WINDOW) <= self.high;
        let (word, bit) = Self::place(number);
        let is_known = below || (number <= self.high && self.bits[word] & bit != 0);
        is_known.then(|| Known {
            id: self
                .ids
                .iter()
                .rev()
                .find(|(n, _)| *n == number)
                .map(|(_, id)| *id),
        })
    }

    fn set(&mut self, number: u64, id: MessageId, now: Timestamp) {
        if number.saturating_sub(self.high) >= WINDOW {
            self.bits = [0; (WINDOW / 64) as usize];
        } else {
            for passed in self.high..number {
                let (word, bit) = Self::place(passed + 1);
                self.bits[word] &= !bit;
            }
        }
        self.high = self.high.max(number);
        let (word, bit) = Self::place(number);
        self.bits[word] |= bit;
        if self.ids.len() == IDS {
            self.ids.pop_front();
        }
        self.ids.push_back((number, id));
        self.used = self.used.max(now);
    }
}

impl<U: Uids> Marks<U> {
    pub(crate) fn new(uids: U, is_noted: bool) -> Self {
        Self {
            instances: HashMap::new(),
            idle_line: VecDeque::new(),
            uids,
            touched: is_noted.then(Vec::new),
        }
    }

    /// Puts a mark back that was written down; the least recently used first.
    pub(crate) fn restore(&mut self, instance: Arc<str>, mark: Mark) {
        self.idle_line.push_back((mark.used, Arc::clone(&instance)));
        self.instances.insert(instance, Box::new(mark));
    }

    /// Every instance, the least recently used first.
    pub(crate) fn instances(&self) -> impl Iterator<Item = Arc<str>> + '_ {
        self.idle_line
            .iter()
            .map(|(_, instance)| Arc::clone(instance))
    }

    /// The mark of an instance.
    pub(crate) fn get(&self, instance: &Arc<str>) -> Option<&Mark> {
        self.instances.get(instance).map(|mark| &**mark)
    }

    /// Puts a mark in that comes from another store, in the place of an older one.
    pub(crate) fn put(&mut self, instance: Arc<str>, mark: Mark) {
        self.touch(&instance);
        match self.instances.get_mut(&instance) {
            Some(older) => **older = mark,
            None => self.restore(instance, mark),
        }
    }

    /// The instances whose mark has changed since the last call, with the mark if it is there still.
    #[cfg(feature = "sqlite")]
    pub(crate) fn take_touched(&mut self) -> Vec<(Arc<str>, Option<&Mark>)> {
        let mut touched = self
            .touched
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        touched.sort_unstable();
        touched.dedup();
        let mark = |instance: Arc<str>| {
            let mark = self.instances.get(&instance).map(|mark| &**mark);
            (instance, mark)
        };
        touched.into_iter().map(mark).collect()
    }

    fn touch(&mut self, instance: &Arc<str>) {
        if let Some(touched) = &mut self.touched
            && touched.last() != Some(instance)
        {
            touched.push(Arc::clone(instance));
        }
    }

    /// Whether a message with this mark or uid was stored.
    pub(crate) fn find(
        &self,
        mark: Option<&(Arc<str>, u64)>,
        uid: Option<&Arc<str>>,
        now: Timestamp,
        bounds: &Bounds,
    ) -> Option<Known> {
        let by_number = mark.and_then(|(instance, number)| {
            let mark = self.instances.get(instance)?;
            (now.since(mark.used) < bounds.mark_idle).then(|| mark.find(*number))?
        });
        by_number.or_else(|| {
            let (id, at) = self.uids.find(uid?)?;
            (now.since(at) < bounds.dedupe_window).then_some(Known { id: Some(id) })
        })
    }

    /// Remembers a stored message.
    pub(crate) fn set(
        &mut self,
        mark: Option<(Arc<str>, u64)>,
        uid: Option<Arc<str>>,
        id: MessageId,
        now: Timestamp,
        bounds: &Bounds,
    ) {
        if let Some((instance, number)) = mark {
            self.touch(&instance);
            if let Some(mark) = self.instances.get_mut(&instance) {
                if now.since(mark.used) >= bounds.mark_idle {
                    **mark = Mark::new();
                }
                mark.set(number, id, now);
            } else {
                let mut mark = Box::new(Mark::new());
                mark.set(number, id, now);
                self.idle_line.push_back((now, Arc::clone(&instance)));
                self.instances.insert(instance, mark);
                self.end_instances(now, bounds);
            }
        }
        if let Some(uid) = uid {
            self.uids.set(uid, id, now);
            self.uids.end(now, bounds);
        }
    }

    /// Forgets what is past its time or beyond the bounds; whether a mark went.
    pub(crate) fn sweep(&mut self, now: Timestamp, bounds: &Bounds) -> bool {
        let before = self.instances.len();
        self.end_instances(now, bounds);
        self.uids.end(now, bounds);
        self.instances.len() < before
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.uids.is_empty()
    }

    fn end_instances(&mut self, now: Timestamp, bounds: &Bounds) {
        // Every mark goes round at most once a call, so this ends.
        for _ in 0..self.idle_line.len() {
            let is_idle = |at: Timestamp| now.since(at) >= bounds.mark_idle;
            let is_over = self.instances.len() > bounds.marks_per_realm;
            let Some((looked, _)) = self.idle_line.front() else {
                return;
            };
            if !is_over && !is_idle(*looked) {
                return;
            }
            let Some((looked, instance)) = self.idle_line.pop_front() else {
                return;
            };
            let used = self.instances.get(&instance).map(|mark| mark.used);
            match used {
                Some(used) if used > looked && !is_idle(used) => {
                    self.idle_line.push_back((used, instance));
                }
                _ => {
                    self.touch(&instance);
                    self.instances.remove(&instance);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::memory::MemoryUids;
    use super::*;

    type Marks = super::Marks<MemoryUids>;

    fn empty() -> Marks {
        Marks::new(MemoryUids::default(), false)
    }

    fn stored(marks: &mut Marks, instance: &str, number: u64, at: u64, bounds: &Bounds) {
        let mark = Some((Arc::from(instance), number));
        marks.set(mark, None, MessageId(number), Timestamp(at), bounds);
    }

    fn finds(
        marks: &Marks,
        instance: &str,
        number: u64,
        at: u64,
        bounds: &Bounds,
    ) -> Option<Known> {
        let mark = (Arc::from(instance), number);
        marks.find(Some(&mark), None, Timestamp(at), bounds)
    }

    #[test]
    fn the_least_recently_used_instance_is_dropped_beyond_the_bound() {
        let bounds = Bounds {
            marks_per_realm: 2,
            ..Bounds::default()
        };
        let mut marks = empty();
        stored(&mut marks, "a", 1, 1, &bounds);
        stored(&mut marks, "b", 1, 2, &bounds);
        stored(&mut marks, "a", 2, 3, &bounds);
        stored(&mut marks, "c", 1, 4, &bounds);
        assert!(finds(&marks, "a", 2, 5, &bounds).is_some());
        assert!(finds(&marks, "b", 1, 5, &bounds).is_none());
        assert_eq!(marks.instances.len(), marks.idle_line.len());
    }

    #[test]
    fn a_silent_instance_is_dropped_after_its_idle_time() {
        let bounds = Bounds {
            mark_idle: Duration::from_millis(100),
            ..Bounds::default()
        };
        let mut marks = empty();
        stored(&mut marks, "a", 1, 0, &bounds);
        stored(&mut marks, "a", 2, 90, &bounds);
        marks.sweep(Timestamp(150), &bounds);
        assert!(finds(&marks, "a", 1, 150, &bounds).is_some());
        assert!(finds(&marks, "a", 1, 190, &bounds).is_none());
        marks.sweep(Timestamp(190), &bounds);
        assert!(marks.is_empty() && marks.idle_line.is_empty());
    }

    #[test]
    fn a_jump_beyond_the_window_forgets_the_old_bits() {
        let bounds = Bounds::default();
        let mut marks = empty();
        for number in [1, 5000, 4999] {
            assert!(number == 1 || finds(&marks, "a", number, 1, &bounds).is_none());
            stored(&mut marks, "a", number, 1, &bounds);
        }
        assert!(
            finds(&marks, "a", 3976, 1, &bounds).is_some(),
            "below the window"
        );
        assert!(
            finds(&marks, "a", 3977, 1, &bounds).is_none(),
            "in the window"
        );
        assert_eq!(
            finds(&marks, "a", 4999, 1, &bounds),
            Some(Known {
                id: Some(MessageId(4999))
            })
        );
    }
}
