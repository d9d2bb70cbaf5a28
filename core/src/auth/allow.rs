//! What a credential narrows: events to produce, events to consume, names to take. Knows no realm.

use std::sync::Arc;

use crate::model::TopicPattern;
#[cfg(test)]
use crate::model::fold;

/// `allow: {produce, consume}` and `names` of a token or of claims (P30). What is not said is not
/// narrowed; an empty list allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    /// Events that may be produced, as topic patterns; `None`: all.
    pub produce: Option<Arc<[TopicPattern]>>,
    /// Events that may be received; `None`: all.
    pub consume: Option<Arc<[TopicPattern]>>,
    /// Producer and consumer names, consumer ids and groups that may be taken; `None`: all.
    pub names: Option<Arc<[NamePattern]>>,
}

impl Allow {
    /// Whether this event, folded, may be produced.
    pub fn may_produce(&self, event: &str) -> bool {
        any(self.produce.as_deref(), |pattern| pattern.matches(event))
    }

    /// Whether this event, folded, may be received.
    pub fn may_consume(&self, event: &str) -> bool {
        any(self.consume.as_deref(), |pattern| pattern.matches(event))
    }

    /// Whether this name may be taken.
    pub fn may_take(&self, name: &str) -> bool {
        any(self.names.as_deref(), |pattern| pattern.matches(name))
    }
}

fn any<T>(patterns: Option<&[T]>, matches: impl Fn(&T) -> bool) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(matches))
}

/// A pattern for names: literal, `*` stands for any run of characters. Names are exact (P19).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(Arc<str>);

impl NamePattern {
    /// Reads a pattern; every text is one.
    pub fn parse(text: &str) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches the whole name; linear in both.
    pub fn matches(&self, name: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else {
            return *self.0 == *name;
        };
        let Some(mut left) = name.strip_prefix(start) else {
            return false;
        };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*').filter(|part| !part.is_empty()) {
            match left.find(part) {
                Some(at) => left = &left[at + part.len()..],
                None => return false,
            }
        }
        left.ends_with(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        NamePattern::parse(pattern).matches(name)
    }

    #[test]
    fn a_star_in_a_name_pattern_stands_for_any_run() {
        assert!(matches("worker-*", "worker-7"));
        assert!(matches("*", ""));
        assert!(matches("a*b*c", "a-b-b-c"));
        assert!(matches("*-eu", "x-eu"));
        assert!(!matches("worker-*", "Worker-7"));
        assert!(!matches("a*a", "a"));
        assert!(!matches("a*b*c", "acb"));
        assert!(!matches("worker", "worker-7"));
    }

    #[test]
    fn what_is_not_said_is_not_narrowed_and_an_empty_list_allows_nothing() {
        let mut allow = Allow::default();
        assert!(allow.may_produce("x") && allow.may_consume("x") && allow.may_take("x"));
        allow.produce = Some(Arc::new([]));
        allow.consume = Some(Arc::new([TopicPattern::parse("A/#")]));
        assert!(!allow.may_produce("x"));
        assert!(allow.may_consume(&fold("a/B/c")) && !allow.may_consume("b"));
    }
}
