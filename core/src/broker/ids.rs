//! A set of names that costs no table while it holds one, as it does for most consumers.

use std::collections::HashSet;
use std::sync::Arc;

/// Names, each once.
#[allow(
    clippy::box_collection,
    reason = "few consumers have several, and each has room for this"
)]
#[derive(Default)]
pub(super) enum Ids {
    #[default]
    None,
    One(Arc<str>),
    Many(Box<HashSet<Arc<str>>>),
}

impl Ids {
    pub(super) fn insert(&mut self, id: Arc<str>) {
        match self {
            Self::None => *self = Self::One(id),
            Self::One(first) if **first == *id => {}
            Self::One(first) => *self = Self::Many(Box::new(HashSet::from([first.clone(), id]))),
            Self::Many(ids) => {
                ids.insert(id);
            }
        }
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        match self {
            Self::None => false,
            Self::One(first) => **first == *id,
            Self::Many(ids) => ids.contains(id),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(first) => (Some(first), None),
            Self::Many(ids) => (None, Some(ids.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_it_once_however_often_it_came() {
        let mut ids = Ids::default();
        for id in ["a", "a", "b", "b", "a", "c"] {
            ids.insert(id.into());
        }
        let mut all: Vec<&str> = ids.iter().map(|id| &**id).collect();
        all.sort_unstable();
        assert_eq!(all, ["a", "b", "c"]);
        assert!(ids.contains("c") && !ids.contains("d"));
        assert!(!Ids::default().contains("a"));
    }
}
