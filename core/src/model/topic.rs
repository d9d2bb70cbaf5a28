//! Topic patterns: events read as levels split by `/`.
//!
//! `+` stands for one whole level, a final `#` for any number of levels including none; inside a
//! level both are literal. Knows no tree of patterns: that is the broker's.

use std::sync::Arc;

use super::names::fold;

/// A pattern, folded ([`fold`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopicPattern {
    text: Arc<str>,
    never: bool,
}

impl TopicPattern {
    /// Reads a pattern; every text is one.
    pub fn parse(text: &str) -> Self {
        let text: Arc<str> = fold(text).into();
        let mut levels = text.rsplit('/');
        levels.next();
        let never = levels.any(|level| level == "#");
        Self { text, never }
    }

    /// The folded pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has a `#` that is not its last level: such a pattern is kept and matches nothing.
    pub fn never_matches(&self) -> bool {
        self.never
    }

    /// Whether it matches an event, which must be folded already.
    pub fn matches(&self, event: &str) -> bool {
        if self.never {
            return false;
        }
        let mut levels = event.split('/');
        for wanted in self.text.split('/') {
            match (wanted, levels.next()) {
                ("#", _) => return true,
                (_, None) => return false,
                ("+", Some(_)) => {}
                (wanted, Some(level)) if wanted == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, event: &str) -> bool {
        TopicPattern::parse(pattern).matches(&fold(event))
    }

    #[test]
    fn a_plus_is_exactly_one_level_that_may_be_empty() {
        assert!(matches("a/+/c", "a/x/c"));
        assert!(matches("a/+", "a/"));
        assert!(!matches("a/+/c", "a/x/y/c"));
        assert!(!matches("a/+/c", "a/c"));
        assert!(!matches("a/+", "a"));
        assert!(matches("+", "x"));
        assert!(!matches("+", "x/y"));
    }

    #[test]
    fn a_final_hash_is_any_number_of_levels() {
        for event in ["a", "a/", "a/b", "a/b/c"] {
            assert!(matches("a/#", event), "{event}");
        }
        assert!(!matches("a/#", "ab"));
        assert!(matches("#", "anything/at/all"));
        assert!(matches("+/#", "a"));
    }

    #[test]
    fn a_hash_elsewhere_matches_nothing() {
        assert!(TopicPattern::parse("a/#/b").never_matches());
        assert!(!matches("a/#/b", "a/x/b"));
        assert!(!matches("#/b", "b"));
        assert!(!TopicPattern::parse("a/b#").never_matches());
    }

    #[test]
    fn wildcards_inside_a_level_and_dollars_are_literal() {
        assert!(matches("a+", "a+"));
        assert!(!matches("a+", "ab"));
        assert!(matches("b#", "b#"));
        assert!(matches("$sys/#", "$SYS/x"));
        assert!(matches("#", "$SYS/x"));
        assert!(matches("orders", "Orders"));
    }

    proptest! {
        #[test]
        fn an_event_without_wildcards_matches_itself(event in "[a-zA-Z/]{1,20}") {
            prop_assert!(matches(&event, &event));
        }

        #[test]
        fn a_plus_in_any_level_still_matches(
            levels in prop::collection::vec("[a-z]{0,3}", 1..6), at in 0usize..6,
        ) {
            let event = levels.join("/");
            let mut pattern = levels.clone();
            let at = at % pattern.len();
            pattern[at] = "+".into();
            prop_assert!(matches(&pattern.join("/"), &event));
            pattern.truncate(at);
            pattern.push("#".into());
            prop_assert!(matches(&pattern.join("/"), &event));
        }

        #[test]
        fn matching_never_panics(pattern in ".{0,30}", event in ".{0,30}") {
            let _ = matches(&pattern, &event);
        }
    }
}
