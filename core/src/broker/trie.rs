//! Topic patterns by their levels, so that a publish costs the patterns that match.
//!
//! The rules are those of [`TopicPattern`](crate::model::TopicPattern); a pattern with `#` before its
//! end is kept by the routes but never put in here. Events and patterns are folded already.

use std::collections::HashMap;

use crate::model::ProducerName;

/// What stands at the end of a pattern: one value per producer filter.
struct Leaf<V> {
    any: Option<V>,
    of: HashMap<ProducerName, V>,
}

struct Node<V> {
    levels: HashMap<Box<str>, Node<V>>,
    plus: Option<Box<Node<V>>>,
    /// Patterns that end here.
    here: Leaf<V>,
    /// Patterns that end here with one more `#`.
    hash: Leaf<V>,
}

/// See the module.
pub(super) struct Trie<V> {
    root: Node<V>,
}

impl<V> Leaf<V> {
    fn new() -> Self {
        Self {
            any: None,
            of: HashMap::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.any.is_none() && self.of.is_empty()
    }

    fn set(&mut self, producer: Option<&ProducerName>, value: V) {
        match producer {
            None => self.any = Some(value),
            Some(producer) => {
                self.of.insert(producer.clone(), value);
            }
        }
    }

    fn unset(&mut self, producer: Option<&ProducerName>) {
        match producer {
            None => self.any = None,
            Some(producer) => {
                self.of.remove(producer);
            }
        }
    }

    fn collect(&self, producer: &str, found: &mut impl FnMut(&V)) {
        if let Some(value) = &self.any {
            found(value);
        }
        if let Some(value) = self.of.get(producer) {
            found(value);
        }
    }
}

impl<V> Node<V> {
    fn new() -> Self {
        Self {
            levels: HashMap::new(),
            plus: None,
            here: Leaf::new(),
            hash: Leaf::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.levels.is_empty()
            && self.plus.is_none()
            && self.here.is_empty()
            && self.hash.is_empty()
    }

    fn leaf(&mut self, pattern: Option<&str>) -> &mut Leaf<V> {
        let Some(pattern) = pattern else {
            return &mut self.here;
        };
        let (level, rest) = split(pattern);
        match level {
            "#" if rest.is_none() => &mut self.hash,
            "+" => self
                .plus
                .get_or_insert_with(|| Box::new(Node::new()))
                .leaf(rest),
            level => self
                .levels
                .entry(level.into())
                .or_insert_with(Node::new)
                .leaf(rest),
        }
    }

    fn remove(&mut self, pattern: Option<&str>, producer: Option<&ProducerName>) {
        let Some(pattern) = pattern else {
            return self.here.unset(producer);
        };
        let (level, rest) = split(pattern);
        match level {
            "#" if rest.is_none() => self.hash.unset(producer),
            "+" => {
                if let Some(node) = &mut self.plus {
                    node.remove(rest, producer);
                    if node.is_empty() {
                        self.plus = None;
                    }
                }
            }
            level => {
                if let Some(node) = self.levels.get_mut(level) {
                    node.remove(rest, producer);
                    if node.is_empty() {
                        self.levels.remove(level);
                    }
                }
            }
        }
    }

    fn matches(&self, event: Option<&str>, producer: &str, found: &mut impl FnMut(&V)) {
        self.hash.collect(producer, found);
        let Some(event) = event else {
            return self.here.collect(producer, found);
        };
        let (level, rest) = split(event);
        if let Some(node) = self.levels.get(level) {
            node.matches(rest, producer, found);
        }
        if let Some(node) = &self.plus {
            node.matches(rest, producer, found);
        }
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('/') {
        Some((level, rest)) => (level, Some(rest)),
        None => (text, None),
    }
}

impl<V> Trie<V> {
    pub(super) fn new() -> Self {
        Self { root: Node::new() }
    }

    /// Adds or replaces the value of a pattern and producer filter.
    pub(super) fn insert(&mut self, pattern: &str, producer: Option<&ProducerName>, value: V) {
        self.root.leaf(Some(pattern)).set(producer, value);
    }

    /// Removes it with all levels that are not needed any more.
    pub(super) fn remove(&mut self, pattern: &str, producer: Option<&ProducerName>) {
        self.root.remove(Some(pattern), producer);
    }

    /// Calls `found` for each pattern that matches, each once, in no promised order.
    pub(super) fn matches(&self, event: &str, producer: &str, mut found: impl FnMut(&V)) {
        self.root.matches(Some(event), producer, &mut found);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::TopicPattern;

    fn found(trie: &Trie<String>, event: &str, producer: &str) -> Vec<String> {
        let mut all = Vec::new();
        trie.matches(event, producer, |value| all.push(value.clone()));
        all.sort();
        all
    }

    #[test]
    fn a_producer_filter_keeps_other_producers_out() {
        let mut trie = Trie::new();
        let orders = ProducerName::parse("orders").unwrap();
        trie.insert("a/+", Some(&orders), "mine".to_owned());
        trie.insert("a/+", None, "all".to_owned());
        assert_eq!(found(&trie, "a/b", "orders"), ["all", "mine"]);
        assert_eq!(found(&trie, "a/b", "Orders"), ["all"]);
        trie.remove("a/+", None);
        trie.remove("a/+", Some(&orders));
        assert!(trie.is_empty());
    }

    proptest! {
        #[test]
        fn the_trie_agrees_with_the_pattern(
            patterns in prop::collection::btree_set("([ab+]?/){0,3}[ab+#]?", 1..20),
            event in "([ab]?/){0,3}[ab]?",
        ) {
            let mut trie = Trie::new();
            for pattern in &patterns {
                if !TopicPattern::parse(pattern).never_matches() {
                    trie.insert(pattern, None, pattern.clone());
                }
            }
            let wanted: Vec<String> = patterns
                .iter()
                .filter(|pattern| TopicPattern::parse(pattern).matches(&event))
                .cloned()
                .collect();
            prop_assert_eq!(found(&trie, &event, "p"), wanted);
            for pattern in &patterns {
                trie.remove(pattern, None);
            }
            prop_assert!(trie.is_empty());
        }
    }
}
