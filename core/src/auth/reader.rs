//! Reads one JSON object of the settings, or of claims: both spellings of a name, null is absent, a wrong
//! value is named by its path, what nobody asked for is a warning. Values are never repeated in errors:
//! they may be secrets. Knows no meaning of any member. Called by `settings`, `realm`, `token` and `claims`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::Secret;
use crate::model::{duration_from_number, duration_from_text};
use crate::{Error, ErrorKind, Result};

/// Longest lifetime that can be asked for: a hundred years.
pub(super) const MAX_TTL: Duration = Duration::from_secs(36_500 * 86_400);

pub(super) struct Reader<'a> {
    path: String,
    members: &'a Map<String, Value>,
    known: BTreeSet<String>,
}

/// A `config` error that names where.
pub(super) fn wrong(path: &str, wanted: &str) -> Error {
    Error::new(ErrorKind::Config, format!("{path} must be {wanted}"))
}

/// A lifetime in the grammar of P14, more than zero.
///
/// # Errors
/// `config`, naming `path`.
pub(super) fn ttl(path: &str, value: &Value) -> Result<Duration> {
    let read = match value {
        Value::Number(number) => duration_from_number(path, number.as_f64().unwrap_or(-1.0)),
        Value::String(text) => duration_from_text(path, text),
        _ => duration_from_text(path, ""),
    };
    let ttl = read.map_err(|error| Error::new(ErrorKind::Config, error.message()))?;
    // Time is kept in milliseconds.
    if ttl < Duration::from_millis(1) || ttl > MAX_TTL {
        return Err(wrong(path, "more than zero and at most 36500d"));
    }
    Ok(ttl)
}

fn camel(name: &str) -> String {
    let mut upper = false;
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if c == '_' {
            upper = true;
        } else if std::mem::take(&mut upper) {
            text.push(c.to_ascii_uppercase());
        } else {
            text.push(c);
        }
    }
    text
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: impl Into<String>, value: &'a Value) -> Result<Self> {
        let path = path.into();
        match value {
            Value::Object(members) => Ok(Self::over(path, members)),
            _ => Err(wrong(&path, "an object")),
        }
    }

    pub(super) fn over(path: impl Into<String>, members: &'a Map<String, Value>) -> Self {
        Self {
            path: path.into(),
            members,
            known: BTreeSet::new(),
        }
    }

    /// The path of a member.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    pub(super) fn wrong(&self, name: &str, wanted: &str) -> Error {
        wrong(&self.at(name), wanted)
    }

    /// The value of a member under any of its names.
    pub(super) fn get(&mut self, names: &[&str]) -> Option<&'a Value> {
        let mut found = None;
        for name in names {
            for spelling in [(*name).to_owned(), camel(name)] {
                let value = self.members.get(&spelling).filter(|value| !value.is_null());
                found = found.or(value);
                self.known.insert(spelling);
            }
        }
        found
    }

    pub(super) fn flag(&mut self, names: &[&str]) -> Result<Option<bool>> {
        let Some(value) = self.get(names) else {
            return Ok(None);
        };
        let flag = value.as_bool();
        flag.map(Some)
            .ok_or_else(|| self.wrong(names[0], "true or false"))
    }

    /// A text; an empty one is absent.
    pub(super) fn text(&mut self, names: &[&str]) -> Result<Option<&'a str>> {
        match self.get(names) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.wrong(names[0], "a text")),
        }
    }

    /// A text that is a name: at most 255 bytes without control characters.
    pub(super) fn name(&mut self, names: &[&str]) -> Result<Option<&'a str>> {
        let text = self.text(names)?;
        if text.is_some_and(|text| text.len() > 255 || text.chars().any(char::is_control)) {
            let wanted = "a text of at most 255 bytes without control characters";
            return Err(self.wrong(names[0], wanted));
        }
        Ok(text)
    }

    pub(super) fn secret(&mut self, names: &[&str]) -> Result<Option<Secret>> {
        let Some(text) = self.text(names)? else {
            return Ok(None);
        };
        match Secret::parse(text) {
            Ok(secret) => Ok(Some(secret)),
            Err(_) => Err(self.wrong(names[0], "a text of at most 8 KiB")),
        }
    }

    /// A secret that somebody chose; one that is too short works, with a warning.
    pub(super) fn chosen(
        &mut self,
        names: &[&str],
        shortest: usize,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Secret>> {
        let secret = self.secret(names)?;
        if secret
            .as_ref()
            .is_some_and(|secret| secret.is_short(shortest))
        {
            let at = self.at(names[0]);
            warnings.push(format!("{at} should have at least {shortest} characters"));
        }
        Ok(secret)
    }

    pub(super) fn ttl(&mut self, names: &[&str]) -> Result<Option<Duration>> {
        let value = self.get(names);
        value
            .map(|value| ttl(&self.at(names[0]), value))
            .transpose()
    }

    /// The items of a list with their paths; absent: none.
    pub(super) fn list(&mut self, names: &[&str]) -> Result<Vec<(String, &'a Value)>> {
        let items = match self.get(names) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.wrong(names[0], "a list")),
        };
        let path = self.at(names[0]);
        let items = items.iter().enumerate();
        Ok(items
            .map(|(index, item)| (format!("{path}[{index}]"), item))
            .collect())
    }

    /// The members of a map with their paths; absent: none.
    pub(super) fn map(&mut self, names: &[&str]) -> Result<Vec<(String, &'a str, &'a Value)>> {
        let members = match self.get(names) {
            None => return Ok(Vec::new()),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(self.wrong(names[0], "an object")),
        };
        let path = self.at(names[0]);
        let members = members.iter();
        Ok(members
            .map(|(name, value)| (format!("{path}.{name}"), name.as_str(), value))
            .collect())
    }

    /// Warns of members that nobody asked for.
    pub(super) fn finish(self, warnings: &mut Vec<String>) {
        for name in self
            .members
            .keys()
            .filter(|name| !self.known.contains(*name))
        {
            warnings.push(format!("{} is unknown and ignored", self.at(name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_spellings_are_read_and_what_nobody_asked_for_is_a_warning() {
        let value = json!({"require_key": true, "managerKey": "k", "other": 1, "key": null});
        let mut reader = Reader::new("auth.realms.acme", &value).unwrap();
        assert_eq!(reader.flag(&["require_key"]), Ok(Some(true)));
        assert!(reader.secret(&["manager_key"]).unwrap().is_some());
        assert_eq!(reader.text(&["key"]), Ok(None));
        let mut warnings = Vec::new();
        reader.finish(&mut warnings);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("auth.realms.acme.other"));
    }

    #[test]
    fn a_wrong_value_is_named_by_its_path_and_never_repeated() {
        let value = json!({"ttl": "s3cret", "manager_key": ["s3cret"], "required": "s3cret"});
        let mut reader = Reader::new("auth.realms.acme", &value).unwrap();
        for error in [
            reader.ttl(&["ttl"]).unwrap_err(),
            reader.secret(&["manager_key"]).unwrap_err(),
            reader.flag(&["required"]).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.message().contains("auth.realms.acme."));
            assert!(!error.message().contains("s3cret"));
        }
    }

    #[test]
    fn a_lifetime_is_seconds_or_a_text_with_a_unit_and_never_zero() {
        let read = |value| ttl("ttl", &value).ok();
        assert_eq!(read(json!(90)), Some(Duration::from_secs(90)));
        assert_eq!(read(json!("1.5H")), Some(Duration::from_secs(5400)));
        assert_eq!(read(json!("250ms")), Some(Duration::from_millis(250)));
        for bad in [
            json!(0),
            json!("0s"),
            json!(-1),
            json!("soon"),
            json!(true),
            json!([1]),
            json!("99999999d"),
        ] {
            assert_eq!(read(bad.clone()), None, "{bad}");
        }
    }
}
