//! What time ends: entries, exceptions, dead letters, marks, left-overs. By index, in bites.

use crate::clock::Timestamp;

use super::super::types::{LogId, Maintained, QueueId};
use super::changes::Touched;
use super::keep::{Entries, Held as _, Keep};
use super::log::{Log, Totals};
use super::runs::Runs;
use super::state::State;

/// Runs of expired entries times readers that one bite may visit.
const VISITS: usize = 100_000;

impl<K: Keep> State<K> {
    /// Looks at about `budget` rows.
    pub(crate) fn maintain(&mut self, budget: usize, now: Timestamp) -> Maintained {
        let mut left = budget.max(1);
        let mut done = Maintained::default();
        while left > 0
            && let Some(&(wake, id)) = self.wakes.first()
            && wake <= now
        {
            left = left.saturating_sub(self.sweep_log(id, left, now, &mut done).max(1));
        }
        while left > 0
            && let Some((id, seq)) = self.keep.expired_exception(now)
        {
            left -= 1;
            let taken = self.change_any(id, |change| change.end_exception(seq));
            if taken != Ok(true) {
                // A row without its queue is no exception any more.
                self.keep.drop_exceptions(id);
                continue;
            }
            let log = self.queues.get(&id).map(|queue| queue.log);
            self.count_expired(log, 1, &mut done);
            self.end_left(id);
        }
        left = self.sweep_documents(left, now);
        left = self.sweep_realms(left, now);
        self.sample();
        done.more = left == 0;
        done
    }

    fn count_expired(&mut self, log: Option<LogId>, lost: u64, done: &mut Maintained) {
        self.counters.expired += lost;
        if let Some(log) = log.and_then(|id| self.logs.get(&id)).filter(|_| lost > 0) {
            *done.expired.entry(log.realm.clone()).or_default() += lost;
        }
    }

    /// Dead letters and marks. Goes through the realms, each a glance at its oldest.
    fn sweep_realms(&mut self, mut left: usize, now: Timestamp) -> usize {
        let before = now
            .0
            .checked_sub(u64::try_from(self.bounds.dlq_ttl.as_millis()).unwrap_or(u64::MAX));
        let keep = &mut self.keep;
        for (name, realm) in &mut self.realms {
            if realm.marks.sweep(now, &self.bounds) {
                keep.note_marks(name);
            }
            if let Some(before) = before.filter(|_| realm.dead > 0 && left > 0) {
                let ended = keep.end_letters(realm.id, left, Timestamp(before));
                self.counters.dead_letters_expired += ended.len() as u64;
                realm.dead -= ended.len().min(realm.dead);
                left -= ended.len().min(left);
                for id in ended {
                    keep.note(|| Touched::Letter(realm.id, id));
                }
            }
        }
        self.realms.retain(|name, realm| {
            let is_kept = !realm.is_empty();
            if !is_kept {
                keep.realm_gone(realm.id, name);
                keep.note(|| Touched::Realm(realm.id));
            }
            is_kept
        });
        left
    }

    /// Takes expired entries out of a log, for all its readers at once; how many.
    fn sweep_log(
        &mut self,
        id: LogId,
        budget: usize,
        now: Timestamp,
        done: &mut Maintained,
    ) -> usize {
        let Some(log) = self.logs.get_mut(&id) else {
            self.wakes.pop_first();
            return 0;
        };
        let max_runs = (VISITS / log.queues.max(1)).max(1);
        let (mut every, mut guaranteed, mut taken) = (Runs::default(), Runs::default(), 0);
        while taken < budget
            && every.pieces() <= max_runs
            && let Some((seq, number)) = log.take_expired(now)
        {
            taken += 1;
            every.insert(seq);
            number.map(|number| guaranteed.insert(number));
        }
        let wake = log.next_expiry();
        let readers = if taken > 0 {
            readers_before(log, &every, &guaranteed)
        } else {
            Vec::new()
        };
        if let Some(old) = std::mem::replace(&mut log.wake, wake) {
            self.wakes.remove(&(old, id));
        }
        if let Some(wake) = wake {
            self.wakes.insert((wake, id));
        }
        let lost = self.lose(id, &readers, &every, &guaranteed);
        self.count_expired(Some(id), lost, done);
        readers.iter().for_each(|reader| self.end_left(*reader));
        taken
    }

    /// Takes one entry out of a log, for all its readers at once: its message cannot be read (P7).
    pub(crate) fn lose_entry(&mut self, id: LogId, totals: Totals) {
        let Some(log) = self.logs.get_mut(&id) else {
            return;
        };
        let Some(held) = log.get(totals.seq) else {
            return;
        };
        let (mut every, mut guaranteed) = (Runs::default(), Runs::default());
        every.insert(totals.seq);
        if held.is_guaranteed() {
            guaranteed.insert(totals.guaranteed);
        }
        log.entries
            .clear_between(totals.seq.saturating_sub(1), totals.seq);
        let readers = readers_before(log, &every, &guaranteed);
        let lost = self.lose(id, &readers, &every, &guaranteed);
        self.counters.damaged += lost;
        readers.iter().for_each(|reader| self.end_left(*reader));
    }

    /// Takes these entries from the readers; how many there were, one per reader.
    fn lose(&mut self, id: LogId, readers: &[QueueId], every: &Runs, guaranteed: &Runs) -> u64 {
        let Some(log) = self.logs.get_mut(&id) else {
            return 0;
        };
        let mut lost = 0;
        for reader in readers {
            if let Some(queue) = self.queues.get_mut(reader) {
                queue.begin(log, self.bounds.overflow);
                lost += queue.lose(every, guaranteed, log);
            }
        }
        every
            .iter()
            .for_each(|(first, last)| log.gone.insert_run(first, last));
        guaranteed
            .iter()
            .for_each(|(first, last)| log.gone_guaranteed.insert_run(first, last));
        for reader in readers {
            if let Some(queue) = self.queues.get_mut(reader) {
                queue.end_change(log, self.bounds.overflow);
                self.keep.note_queue(*reader);
            }
        }
        log.trim();
        self.keep.note_log(id);
        if let Some(realm) = self.realms.get_mut(&log.realm) {
            realm.queued = realm.queued.saturating_sub(lost);
        }
        lost
    }

    /// Ends a left-over of which nothing is left.
    pub(crate) fn end_left(&mut self, id: QueueId) {
        let is_over = self.queues.get(&id).is_some_and(|queue| {
            let depth = self.logs.get(&queue.log).map_or(0, |log| queue.depth(log));
            queue.is_left && depth == 0
        });
        if is_over {
            self.remove_queue(id);
        }
    }
}

/// The readers whose low is before the last of these entries.
fn readers_before<E: Entries>(log: &Log<E>, every: &Runs, guaranteed: &Runs) -> Vec<QueueId> {
    let last = |runs: &Runs| runs.iter().next_back().map_or(0, |(_, last)| last);
    let mut ids = Vec::new();
    for (readers, last) in [
        (&log.every, last(every)),
        (&log.guaranteed, last(guaranteed)),
    ] {
        let end = (last, QueueId(0));
        ids.extend(readers.open.below(&end).into_iter().map(|(_, id)| id));
        ids.extend(readers.shut.range(..end).map(|(_, id)| *id));
        ids.extend(readers.slack.iter().map(|(_, id)| *id));
    }
    ids
}
