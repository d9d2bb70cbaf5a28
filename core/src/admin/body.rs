//! The body of a management command: members under any of their names, read once each. Knows no command.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::auth::{Secret, TokenHash, is_fixed};
use crate::model::{RealmId, duration_from_number, duration_from_text};
use crate::{Error, ErrorKind, Result};

/// The largest text of a member, in bytes.
const MAX_TEXT: usize = 8 << 10;

/// See the module.
pub(super) struct Body(Map<String, Value>);

fn wrong(name: &str, wanted: &str) -> Error {
    let text = format!("{name} must be {wanted}");
    Error::new(ErrorKind::BadCommand, text)
}

/// The realm that a body names, whatever else is wrong with it: its manager may have signed that.
pub(super) fn meant_realm(text: &str) -> Option<RealmId> {
    let realm = Body::read(text).ok()?.any_realm().ok()??;
    (!is_fixed(&realm)).then_some(realm)
}

impl Body {
    /// Reads an object; of duplicate members the last wins.
    pub(super) fn read(text: &str) -> Result<Self> {
        match serde_json::from_str(text) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            _ => Err(wrong("body", "an object")),
        }
    }

    /// The same of an object that may come as a text that holds it (admin.md, encoding notes).
    pub(super) fn read_either(text: &str) -> Result<Self> {
        match serde_json::from_str::<String>(text) {
            Ok(inner) => Self::read(&inner),
            Err(_) => Self::read(text),
        }
    }

    /// The member under the first of its names that is there; null is absent.
    pub(super) fn get(&self, names: &[&str]) -> Option<&Value> {
        let mut values = names.iter().filter_map(|name| self.0.get(*name));
        values.find(|value| !value.is_null())
    }

    /// Whether a member is there at all, null or not.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains_key(*name))
    }

    pub(super) fn text(&self, names: &[&str]) -> Result<Option<String>> {
        match self.get(names) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= MAX_TEXT => Ok(Some(text.clone())),
            Some(Value::String(_)) => Err(wrong(names[0], "at most 8192 bytes")),
            Some(_) => Err(wrong(names[0], "a text")),
        }
    }

    /// A text that must be there and not be empty.
    pub(super) fn needed(&self, names: &[&str]) -> Result<String> {
        let text = self.text(names)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| wrong(names[0], "given"))
    }

    pub(super) fn flag(&self, names: &[&str]) -> Result<Option<bool>> {
        match self.get(names) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(wrong(names[0], "true or false")),
        }
    }

    pub(super) fn needed_flag(&self, names: &[&str]) -> Result<bool> {
        let flag = self.flag(names)?;
        flag.ok_or_else(|| wrong(names[0], "true or false"))
    }

    /// A flag as existing clients send it: anything but `false`, `0` and `""` is a yes.
    pub(super) fn truthy(&self, names: &[&str]) -> Option<bool> {
        let value = self.get(names)?;
        Some(match value {
            Value::Bool(flag) => *flag,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            _ => true,
        })
    }

    pub(super) fn count(&self, names: &[&str], default: usize, most: usize) -> Result<usize> {
        let Some(value) = self.get(names) else {
            return Ok(default);
        };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| (1..=most).contains(count));
        count.ok_or_else(|| wrong(names[0], &format!("a whole number from 1 to {most}")))
    }

    /// How long a realm lives: more than nothing (admin.md §1.5).
    pub(super) fn ttl(&self) -> Result<Option<Duration>> {
        self.lifetime("ttl")
    }

    pub(super) fn lifetime(&self, name: &str) -> Result<Option<Duration>> {
        let read = match self.get(&[name]) {
            None => return Ok(None),
            Some(Value::Number(number)) => {
                duration_from_number(name, number.as_f64().unwrap_or(-1.0))
            }
            Some(Value::String(text)) => duration_from_text(name, text),
            Some(_) => Err(wrong(name, "a duration")),
        };
        let ttl = read.ok().filter(|ttl| !ttl.is_zero());
        ttl.map(Some)
            .ok_or_else(|| wrong(name, "a duration such as 30m, more than nothing"))
    }

    pub(super) fn realm(&self) -> Result<RealmId> {
        self.named_realm("realm")
    }

    pub(super) fn named_realm(&self, name: &str) -> Result<RealmId> {
        RealmId::parse(&self.needed(&[name])?)
    }

    /// A realm that need not be named.
    pub(super) fn any_realm(&self) -> Result<Option<RealmId>> {
        let text = self.text(&["realm"])?.filter(|text| !text.is_empty());
        text.map(|text| RealmId::parse(&text)).transpose()
    }

    /// A text; an empty one is absent.
    pub(super) fn filled(&self, names: &[&str]) -> Result<Option<String>> {
        Ok(self.text(names)?.filter(|text| !text.is_empty()))
    }

    /// A secret that is set, or cleared by an empty text, null or nothing.
    pub(super) fn secret(&self, names: &[&str]) -> Result<Option<Secret>> {
        let text = self.filled(names)?;
        text.map(|text| Secret::parse(&text)).transpose()
    }

    pub(super) fn needed_secret(&self, names: &[&str]) -> Result<Secret> {
        Secret::parse(&self.needed(names)?)
    }

    pub(super) fn token_hash(&self) -> Result<Option<TokenHash>> {
        let Some(text) = self.text(&["token_hash", "tokenHash"])? else {
            return Ok(None);
        };
        let hash = TokenHash::parse(&text);
        hash.map(Some)
            .ok_or_else(|| wrong("token_hash", "64 hex digits"))
    }

    /// The body as it is, for a command that has a reader of its own.
    pub(super) fn into_members(self) -> Map<String, Value> {
        self.0
    }
}
