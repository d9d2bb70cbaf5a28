//! A bounded map that forgets what was not touched for longest, roughly: two halves, the older one dropped
//! whole when the younger is full. No scan ever. Knows no time. Called by `attempts` and `external`.

use std::collections::HashMap;
use std::hash::Hash;

pub(super) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// For `half` to `2 * half` entries.
    pub(super) fn new(half: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            half,
        }
    }

    /// Looks without touching.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(super) fn take(&mut self, key: &K) -> Option<V> {
        let young = self.young.remove(key);
        let old = self.old.remove(key);
        young.or(old)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_the_latest_and_never_more_than_two_halves() {
        let mut map = Generations::new(4);
        for n in 0..1000 {
            map.insert(n, n);
            assert_eq!(map.get(&n), Some(&n));
            assert!(map.young.len() + map.old.len() <= 8);
        }
        assert!(map.get(&996).is_some() && map.get(&900).is_none());
        map.insert(999, 7);
        assert_eq!(map.take(&999), Some(7));
        assert_eq!(map.get(&999), None);
    }
}
