//! An ordered set that costs no tree while it is small: most logs have one or two queues.

use std::collections::BTreeSet;

/// Beyond this many a tree is faster than moving.
const SMALL: usize = 16;

/// Like [`BTreeSet`], in one exact allocation up to 16 elements.
#[derive(Debug)]
pub(crate) enum SmallSet<T> {
    /// Sorted.
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<T: Ord + Copy> SmallSet<T> {
    pub(crate) fn insert(&mut self, value: T) -> bool {
        let few = match self {
            Self::Many(many) => return many.insert(value),
            Self::Few(few) => few,
        };
        let Err(at) = few.binary_search(&value) else {
            return false;
        };
        if few.len() < SMALL {
            few.reserve_exact(1);
            few.insert(at, value);
        } else {
            let mut many: BTreeSet<T> = few.drain(..).collect();
            many.insert(value);
            *self = Self::Many(many);
        }
        true
    }

    pub(crate) fn remove(&mut self, value: &T) -> bool {
        match self {
            Self::Many(many) => {
                let was = many.remove(value);
                if many.is_empty() {
                    *self = Self::default();
                }
                was
            }
            Self::Few(few) => match few.binary_search(value) {
                Ok(at) => {
                    few.remove(at);
                    if few.is_empty() {
                        *few = Vec::new();
                    }
                    true
                }
                Err(_) => false,
            },
        }
    }

    pub(crate) fn first(&self) -> Option<&T> {
        match self {
            Self::Many(many) => many.first(),
            Self::Few(few) => few.first(),
        }
    }

    /// The elements below `end`.
    pub(crate) fn below(&self, end: &T) -> Vec<T> {
        match self {
            Self::Many(many) => many.range(..end).copied().collect(),
            Self::Few(few) => few
                .iter()
                .take_while(|value| *value < end)
                .copied()
                .collect(),
        }
    }

    pub(crate) fn pop_first(&mut self) -> Option<T> {
        let first = *self.first()?;
        self.remove(&first);
        Some(first)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Many(many) => many.len(),
            Self::Few(few) => few.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0u8..40), 0..200)) {
            let (mut small, mut set) = (SmallSet::default(), BTreeSet::new());
            for (inserts, value) in steps {
                match inserts {
                    true => prop_assert_eq!(small.insert(value), set.insert(value)),
                    false => prop_assert_eq!(small.remove(&value), set.remove(&value)),
                }
                prop_assert_eq!(small.first(), set.first());
                let below: Vec<u8> = set.range(..value).copied().collect();
                prop_assert_eq!(small.below(&value), below);
                prop_assert_eq!(small.len(), set.len());
            }
            while let Some(first) = set.pop_first() {
                prop_assert_eq!(small.pop_first(), Some(first));
            }
            prop_assert_eq!(small.pop_first(), None);
        }
    }
}
