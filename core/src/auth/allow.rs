//! What a credential narrows: events to produce, events to consume, names to take. Knows no realm.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reader::Reader;
use crate::model::TopicPattern;
#[cfg(test)]
use crate::model::fold;
use crate::{Error, ErrorKind, Result};

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

/// Most patterns of one list, and bytes of all of them: what a document of the store can hold.
const MAX_PATTERNS: usize = 256;
const MAX_BYTES: usize = 8 << 10;

impl Allow {
    /// Reads the values of `allow` and `names` of a token, as they stand in a command.
    ///
    /// # Errors
    /// `bad_command`, naming the member.
    pub fn parse(allow: Option<&Value>, names: Option<&Value>) -> Result<Self> {
        let mut members = serde_json::Map::new();
        for (name, value) in [("allow", allow), ("names", names)] {
            members.extend(value.map(|value| (name.to_owned(), value.clone())));
        }
        let read = Self::read(&mut Reader::new("token", &Value::Object(members))?);
        read.map_err(|error| Error::new(ErrorKind::BadCommand, error.message()))
    }

    /// Reads the members `allow: {produce, consume}` and `names` of a token or of claims.
    ///
    /// # Errors
    /// `config`, naming the path.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let names = patterns(reader, "names", NamePattern::parse)?;
        let Some(value) = reader.get(&["allow"]) else {
            return Ok(Self {
                names,
                ..Self::default()
            });
        };
        let mut inner = Reader::new(reader.at("allow"), value)?;
        let allow = Self {
            produce: patterns(&mut inner, "produce", TopicPattern::parse)?,
            consume: patterns(&mut inner, "consume", TopicPattern::parse)?,
            names,
        };
        // A misspelt member would allow everything.
        let mut unknown = Vec::new();
        inner.finish(&mut unknown);
        if !unknown.is_empty() {
            return Err(reader.wrong("allow", "an object with produce and consume only"));
        }
        Ok(allow)
    }
}

fn patterns<T>(
    reader: &mut Reader<'_>,
    name: &str,
    parse: fn(&str) -> T,
) -> Result<Option<Arc<[T]>>> {
    let Some(value) = reader.get(&[name]) else {
        return Ok(None);
    };
    let texts: Option<Vec<&str>> = value
        .as_array()
        .filter(|list| list.len() <= MAX_PATTERNS)
        .and_then(|list| list.iter().map(Value::as_str).collect());
    match texts {
        Some(texts)
            if texts.iter().map(|text| text.len()).sum::<usize>() <= MAX_BYTES
                && !texts.concat().contains(char::is_control) =>
        {
            Ok(Some(texts.into_iter().map(parse).collect()))
        }
        _ => Err(reader.wrong(name, "a list of at most 256 texts, 8 KiB in sum")),
    }
}

/// How it stands in a document of the store.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredAllow {
    #[serde(skip_serializing_if = "Option::is_none")]
    produce: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consume: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
}

impl From<&Allow> for StoredAllow {
    fn from(allow: &Allow) -> Self {
        let events = |list: &Option<Arc<[TopicPattern]>>| {
            let list = list.as_deref()?.iter();
            Some(list.map(|pattern| pattern.as_str().to_owned()).collect())
        };
        let names = allow.names.as_deref().map(|list| {
            let list = list.iter();
            list.map(|pattern| pattern.as_str().to_owned()).collect()
        });
        Self {
            produce: events(&allow.produce),
            consume: events(&allow.consume),
            names,
        }
    }
}

impl From<StoredAllow> for Allow {
    fn from(stored: StoredAllow) -> Self {
        let events = |list: Option<Vec<String>>| {
            Some(list?.iter().map(|text| TopicPattern::parse(text)).collect())
        };
        let names = stored.names.map(|list| {
            let list = list.iter();
            list.map(|text| NamePattern::parse(text)).collect()
        });
        Self {
            produce: events(stored.produce),
            consume: events(stored.consume),
            names,
        }
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
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<Allow> {
        Allow::read(&mut Reader::new("t", value).unwrap())
    }

    #[test]
    fn what_is_narrowed_is_read_strictly_and_kept_as_it_was_read() {
        let value = json!({"allow": {"produce": ["a/#"], "consume": []}, "names": ["w-*"]});
        let allow = read(&value).unwrap();
        assert!(allow.may_produce("a/b") && !allow.may_produce("b"));
        assert!(!allow.may_consume("a") && !allow.may_take("x"));
        let stored = serde_json::to_string(&StoredAllow::from(&allow)).unwrap();
        let again: StoredAllow = serde_json::from_str(&stored).unwrap();
        assert_eq!(Allow::from(again), allow);
        for bad in [
            json!({"allow": []}),
            json!({"allow": {"produces": ["a"]}}),
            json!({"allow": {"produce": "a"}}),
            json!({"allow": {"produce": [1]}}),
            json!({"names": [null]}),
            json!({"names": vec!["x"; 257]}),
            json!({"names": ["x".repeat(8193)]}),
            json!({"names": ["a\n"]}),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }

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
