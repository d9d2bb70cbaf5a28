//! Which keys a message matches: exact ones by hash, patterns by trie.
//!
//! Knows nothing of who listens. Looking up never inserts; a key is in here exactly as long as the
//! realm keeps it (P25). Events match folded, producers exactly (P19).

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::listen::KeyEntry;
use super::trie::Trie;
use crate::model::{Key, ProducerName, Spelling, TopicPattern, fold};

/// The keys of one realm.
pub(super) struct Routes {
    keys: HashMap<Arc<Key>, Arc<KeyEntry>>,
    topics: Trie<Arc<KeyEntry>>,
    /// How many keys have a wire name, by the hash of the folded name.
    names: HashMap<u64, u32>,
    hasher: RandomState,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self {
            keys: HashMap::new(),
            topics: Trie::new(),
            names: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<KeyEntry>> {
        self.keys.get(key)
    }

    pub(super) fn insert(&mut self, entry: Arc<KeyEntry>) {
        if let Key::Topic { producer, pattern } = &*entry.key
            && !TopicPattern::parse(pattern).never_matches()
        {
            self.topics
                .insert(pattern, producer.as_ref(), entry.clone());
        }
        let name = self.name(&entry.key.wire_name());
        if self.keys.insert(entry.key.clone(), entry).is_none() {
            *self.names.entry(name).or_default() += 1;
        }
    }

    fn name(&self, text: &str) -> u64 {
        self.hasher.hash_one(fold(text))
    }

    /// Whether a key has this wire name, in whatever case.
    pub(super) fn has_name(&self, text: &str) -> bool {
        self.names.contains_key(&self.name(text))
    }

    pub(super) fn remove(&mut self, key: &Key) {
        if self.keys.remove(key).is_some() {
            let name = self.name(&key.wire_name());
            if let Some(count) = self.names.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    self.names.remove(&name);
                }
            }
        }
        if let Key::Topic { producer, pattern } = key {
            self.topics.remove(pattern, producer.as_ref());
        }
        if self.keys.is_empty() {
            // A realm that was large once does not keep its memory.
            self.keys = HashMap::new();
            self.names = HashMap::new();
        }
    }

    /// All keys of a message, in the order in which a group takes them (P18): exact, all events,
    /// any producer, then patterns by age. `event` is folded.
    pub(super) fn matches(&self, producer: &ProducerName, event: &Arc<str>) -> Vec<Arc<KeyEntry>> {
        let mut found = Vec::new();
        let all = |spelling| Key::All {
            producer: producer.clone(),
            spelling,
        };
        let everything = |spelling| Key::Everything { spelling };
        let exact = [
            Key::Event {
                producer: producer.clone(),
                event: event.clone(),
            },
            all(Spelling::Scope),
            all(Spelling::Plain),
            Key::Any {
                event: event.clone(),
            },
            everything(Spelling::Scope),
            everything(Spelling::Plain),
        ];
        found.extend(exact.iter().filter_map(|key| self.keys.get(key).cloned()));
        let exact = found.len();
        self.topics.matches(event, producer.as_str(), |entry| {
            found.push(entry.clone());
        });
        found[exact..].sort_unstable_by_key(|entry| entry.age);
        found
    }

    /// Every key, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<KeyEntry>> {
        self.keys.values()
    }
}
