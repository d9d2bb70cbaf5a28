//! A set of numbers kept as runs, so that neighbours cost nothing. Knows no queue.

use std::collections::BTreeMap;

/// Numbers as inclusive runs, never touching or overlapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// First number → last number.
    runs: BTreeMap<u64, u64>,
    len: u64,
    /// First numbers of runs that came, went or grew, where somebody writes them down.
    #[allow(
        clippy::box_collection,
        reason = "absent in memory, where most runs are"
    )]
    touched: Option<Box<Vec<u64>>>,
}

impl Runs {
    /// An empty set; with `is_noted` it notes its changes for [`take_touched`](Self::take_touched).
    pub(crate) fn new(is_noted: bool) -> Self {
        Self {
            touched: is_noted.then(Box::default),
            ..Self::default()
        }
    }

    /// The runs that have changed since the last call: first number, and last number if it is there still.
    #[cfg(feature = "sqlite")]
    pub(crate) fn take_touched(&mut self) -> Vec<(u64, Option<u64>)> {
        let mut touched = self
            .touched
            .as_deref_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        touched.sort_unstable();
        touched.dedup();
        let run = |first: u64| (first, self.runs.get(&first).copied());
        touched.into_iter().map(run).collect()
    }

    /// Adds a run that is known to touch no other, as it was written down.
    #[cfg(feature = "sqlite")]
    pub(crate) fn restore(&mut self, first: u64, last: u64) {
        if first <= last && self.runs.insert(first, last).is_none() {
            self.len += last - first + 1;
        }
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) {
        self.remove_run(0, u64::MAX);
    }

    fn put(&mut self, first: u64, last: u64) {
        self.touch(first);
        self.runs.insert(first, last);
        self.len += last - first + 1;
    }

    fn take(&mut self, first: u64, last: u64) {
        self.touch(first);
        self.runs.remove(&first);
        self.len -= last - first + 1;
    }

    fn touch(&mut self, first: u64) {
        if let Some(touched) = &mut self.touched
            && touched.last() != Some(&first)
        {
            touched.push(first);
        }
    }

    /// How many numbers are in it.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// How many runs are in it.
    pub(crate) fn pieces(&self) -> usize {
        self.runs.len()
    }

    /// The runs in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&first, &last)| (first, last))
    }

    /// The last number of the run that holds `number`.
    pub(crate) fn end_of(&self, number: u64) -> Option<u64> {
        let (_, &last) = self.runs.range(..=number).next_back()?;
        (last >= number).then_some(last)
    }

    /// The first run that starts after `number`.
    pub(crate) fn next_start(&self, number: u64) -> Option<u64> {
        let after = number.checked_add(1)?;
        self.runs.range(after..).next().map(|(&first, _)| first)
    }

    /// The runs that end at `number` or later, in order.
    #[cfg(feature = "sqlite")]
    pub(crate) fn from(&self, number: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.runs.range(..=number).next_back();
        let first = first.filter(|(_, last)| **last >= number);
        let rest = self.runs.range(number.saturating_add(1)..);
        let runs = first.into_iter().chain(rest);
        runs.map(|(&first, &last)| (first, last))
    }

    /// Adds a number; whether it is new.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        let before = self.len;
        self.insert_run(number, number);
        self.len > before
    }

    /// Adds all of `first..=last`.
    pub(crate) fn insert_run(&mut self, mut first: u64, mut last: u64) {
        if first > last {
            return;
        }
        // Swallow every run that overlaps or touches.
        while let Some((&start, &end)) = self.runs.range(..=last.saturating_add(1)).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            self.take(start, end);
            first = first.min(start);
            last = last.max(end);
        }
        self.put(first, last);
    }

    /// Takes all of `first..=last` out; how many were in.
    pub(crate) fn remove_run(&mut self, first: u64, last: u64) -> u64 {
        if first > last {
            return 0;
        }
        let before = self.len;
        while let Some((&start, &end)) = self.runs.range(..=last).next_back() {
            if end < first {
                break;
            }
            self.take(start, end);
            let keep = [(start, first.wrapping_sub(1)), (last.wrapping_add(1), end)];
            for (start, end) in [(start < first, keep[0]), (end > last, keep[1])]
                .into_iter()
                .filter_map(|(is_kept, run)| is_kept.then_some(run))
            {
                self.put(start, end);
            }
        }
        before - self.len
    }

    /// The runs within `first..=last`, clipped to it, last one first.
    pub(crate) fn within(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let runs = self.runs.range(..=last).rev();
        runs.map(move |(&start, &end)| (start.max(first), end.min(last)))
            .take_while(|(start, end)| start <= end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_a_set_of_numbers(steps in prop::collection::vec((0u8..3, 0u64..40, 0u64..8), 1..60)) {
            let mut runs = Runs::default();
            let mut set = BTreeSet::new();
            for (what, first, width) in steps {
                let last = first + width;
                match what {
                    0 => {
                        runs.insert_run(first, last);
                        set.extend(first..=last);
                    }
                    1 => prop_assert_eq!(runs.insert(first), set.insert(first)),
                    _ => {
                        let removed = (first..=last).filter(|n| set.remove(n)).count() as u64;
                        prop_assert_eq!(runs.remove_run(first, last), removed);
                    }
                }
                prop_assert_eq!(runs.len(), set.len() as u64);
                let all: Vec<u64> = runs.iter().flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(all, set.iter().copied().collect::<Vec<_>>());
                let within = runs.within(first, last).flat_map(|(first, last)| first..=last);
                prop_assert_eq!(within.count(), set.range(first..=last).count());
                prop_assert_eq!(runs.end_of(first).is_some(), set.contains(&first));
                let gaps = runs.iter().zip(runs.iter().skip(1));
                prop_assert!(gaps.map(|(a, b)| b.0 - a.1).all(|gap| gap > 1), "runs touch");
                prop_assert_eq!(runs.pieces(), runs.iter().count());
            }
        }
    }

    #[test]
    fn the_last_number_there_is_can_be_held() {
        let mut runs = Runs::default();
        runs.insert_run(u64::MAX - 1, u64::MAX);
        assert_eq!(runs.end_of(u64::MAX), Some(u64::MAX));
        assert_eq!(runs.next_start(u64::MAX), None);
        assert_eq!(runs.remove_run(u64::MAX, u64::MAX), 1);
        assert_eq!(runs.len(), 1);
    }
}
