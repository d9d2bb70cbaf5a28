//! One JSON object of options, read member by member: both spellings, null is absent, each wrong
//! value is refused by its path, and what nobody asked for is told at the end.
//!
//! Knows no option by name. Called by the readers beside it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::model::{duration_from_number, duration_from_text};
use crate::{Error, ErrorKind, Result};

/// See the module.
pub(in crate::server) struct Options {
    members: Map<String, Value>,
    known: BTreeSet<String>,
    /// One sentence each.
    pub(super) warnings: Vec<String>,
    /// What stands before a name in errors: empty, or `limits.` …
    path: String,
}

/// `option PATH must be …`.
pub(super) fn wrong(option: &str, wanted: &str) -> Error {
    let text = format!("option {option} must be {wanted}");
    Error::new(ErrorKind::Config, text)
}

/// The other spelling of a snake_case name.
pub(in crate::server) fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut text, part| {
        let mut chars = part.chars();
        text.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        text.push_str(chars.as_str());
        text
    })
}

impl Options {
    pub(super) fn read(json: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(json)
            .map_err(|error| wrong("options", &format!("an object ({error})")))?;
        match value {
            Value::Object(members) => Ok(Self::of(members, "")),
            _ => Err(wrong("options", "an object")),
        }
    }

    /// The options of an object that stands at `path`.
    pub(super) fn of(members: Map<String, Value>, path: impl Into<String>) -> Self {
        Self {
            members,
            known: BTreeSet::new(),
            warnings: Vec::new(),
            path: path.into(),
        }
    }

    /// An object among the options; `None` if there is none of this name.
    pub(super) fn object(&mut self, names: &[&str]) -> Result<Option<Self>> {
        match self.get(names) {
            None => Ok(None),
            Some(Value::Object(members)) => {
                let path = format!("{}{}.", self.path, names[0]);
                Ok(Some(Self::of(members, path)))
            }
            Some(_) => Err(self.wrong(names[0], "an object")),
        }
    }

    /// An object that was read to its end: what it warns of is warned of here.
    pub(super) fn absorb(&mut self, mut inner: Self) {
        inner.warn_unknown();
        self.warnings.append(&mut inner.warnings);
    }

    /// The names of all members as they are spelt.
    pub(super) fn names(&self) -> Vec<String> {
        self.members.keys().cloned().collect()
    }

    /// An error that names this option with its path.
    pub(super) fn wrong(&self, name: &str, wanted: &str) -> Error {
        wrong(&format!("{}{name}", self.path), wanted)
    }

    /// The value of an option under any of its names; null is absent.
    pub(super) fn get(&mut self, names: &[&str]) -> Option<Value> {
        let mut found = None;
        for name in names {
            for spelling in [(*name).to_owned(), camel(name)] {
                let value = self.members.get(&spelling).filter(|value| !value.is_null());
                found = found.or_else(|| value.cloned());
                self.known.insert(spelling);
            }
        }
        found
    }

    pub(super) fn duration(&mut self, names: &[&str], into: &mut Duration) -> Result<()> {
        if let Some(value) = self.get(names) {
            *into = duration(&format!("{}{}", self.path, names[0]), &value)?;
        }
        Ok(())
    }

    /// Socket.IO's own options and a few others are milliseconds (P14).
    pub(super) fn millis(&mut self, names: &[&str], into: &mut Duration) -> Result<()> {
        if let Some(value) = self.get(names) {
            let millis = value.as_u64().filter(|millis| *millis > 0);
            let wanted = "a whole number of milliseconds";
            let millis = millis.ok_or_else(|| self.wrong(names[0], wanted))?;
            *into = Duration::from_millis(millis);
        }
        Ok(())
    }

    pub(super) fn number(&mut self, names: &[&str], least: u64) -> Result<Option<u64>> {
        let Some(value) = self.get(names) else {
            return Ok(None);
        };
        let number = value.as_u64().filter(|number| *number >= least);
        number
            .map(Some)
            .ok_or_else(|| self.wrong(names[0], &format!("a whole number from {least}")))
    }

    pub(super) fn size(&mut self, names: &[&str], least: u64, into: &mut usize) -> Result<()> {
        if let Some(number) = self.number(names, least)? {
            *into = usize::try_from(number).unwrap_or(usize::MAX);
        }
        Ok(())
    }

    pub(super) fn flag(&mut self, names: &[&str], into: &mut bool) -> Result<()> {
        if let Some(value) = self.get(names) {
            let flag = value.as_bool();
            *into = flag.ok_or_else(|| self.wrong(names[0], "true or false"))?;
        }
        Ok(())
    }

    pub(super) fn text(&mut self, names: &[&str]) -> Result<Option<String>> {
        match self.get(names) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(names[0], "a text")),
        }
    }

    pub(super) fn paths(&mut self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let Some(value) = self.get(names) else {
            return Ok(Vec::new());
        };
        let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let texts = list.iter().filter_map(Value::as_str);
        let paths: Vec<_> = texts.filter(|path| !path.is_empty()).collect();
        if !value.is_array() || paths.len() != list.len() {
            return Err(self.wrong(names[0], "a list of paths"));
        }
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }

    pub(super) fn warn_unknown(&mut self) {
        for name in self.members.keys() {
            if !self.known.contains(name) {
                let path = &self.path;
                self.warnings
                    .push(format!("option {path}{name} is unknown and ignored"));
            }
        }
    }
}

fn duration(option: &str, value: &Value) -> Result<Duration> {
    let read = match value {
        Value::Number(number) => duration_from_number(option, number.as_f64().unwrap_or(-1.0)),
        Value::String(text) => duration_from_text(option, text),
        _ => duration_from_text(option, ""),
    };
    read.map_err(|error| Error::new(ErrorKind::Config, format!("option {}", error.message())))
}
