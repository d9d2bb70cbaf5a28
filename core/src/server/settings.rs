//! Where a server's options come from: what the program says, the settings file over it, and over
//! both what the environment and the command line say (P33).
//!
//! Reads, merges and checks; the file is never rewritten, only made when it is not there. Does not
//! know what an option means (`options` does) nor when to read again (`reload` does).

mod merge;

use std::fs::{self, File};
use std::io::{ErrorKind as IoKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::config::ServerConfig;
use super::persistence::absolute;
use crate::{Error, ErrorKind, Result};

pub use crate::env_file::{parse as parse_env_file, quote as quote_env_value};
pub(super) use merge::{merge, same_option};

/// What a variable or a flag says of a switch: 1, true, yes or on, 0, false, no or off, in any case.
///
/// # Errors
/// `config` for everything else, naming the variable and repeating nothing of it.
pub fn parse_switch(name: &str, text: &str) -> Result<bool> {
    switch(text).ok_or_else(|| {
        config(format!(
            "{name} must be true (or 1, yes, on) or false (or 0, no, off)"
        ))
    })
}

/// What is no word for a switch may be something else, such as a path.
pub fn switch(text: &str) -> Option<bool> {
    match &*text.trim().to_ascii_lowercase() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A file above this is a mistake.
const MAX_FILE: u64 = 16 << 20;

/// What a new settings file says: clients without a credential keep working in realm `default` when
/// authentication is switched on.
const SEED: &str = r#"{
  "auth": {
    "realms": {
      "default": {
        "required": false
      }
    }
  }
}
"#;

/// Options and where they come from, weakest first.
#[derive(Clone, Default, PartialEq)]
pub struct Settings {
    base: Map<String, Value>,
    file: Option<PathBuf>,
    over: Map<String, Value>,
}

/// Options may hold secrets.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// What was read, and what it came from.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) settings: Settings,
    /// All options in force.
    pub(super) options: Map<String, Value>,
    /// What the file alone says.
    pub(super) file: Map<String, Value>,
}

impl Source {
    /// The settings file, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.settings.file()
    }

    /// What the file says of the store; `None`: there is no file.
    pub(super) fn storage(&self) -> Option<Value> {
        self.settings.file.as_ref()?;
        let of = |name: &str| merge::find(&self.file, name).cloned();
        Some(match of("storage") {
            None => Value::Null,
            Some(storage) => serde_json::json!({
                "storage": storage,
                "storage_options": of("storage_options"),
            }),
        })
    }

    /// The names of options that differ, as they are spelt here or there.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.options.keys().chain(other.options.keys()) {
            let is_known = names.iter().any(|known| same_option(known, name));
            let (old, new) = (&self.options, &other.options);
            if !is_known && merge::find(old, name) != merge::find(new, name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Takes over the value that `other` has of an option.
    pub(super) fn keep(&mut self, name: &str, other: &Self) {
        self.options.retain(|key, _| !same_option(key, name));
        let spelt = other
            .options
            .iter()
            .filter(|(key, _)| same_option(key, name));
        self.options
            .extend(spelt.map(|(key, value)| (key.clone(), value.clone())));
    }
}

fn config(text: impl Into<Box<str>>) -> Error {
    Error::new(ErrorKind::Config, text)
}

impl Settings {
    /// Takes an options object apart: `settings_file` names the file that counts over it, `overrides`
    /// are options that count over the file.
    ///
    /// # Errors
    /// `config` for what is no object, and for a `settings_file` or `overrides` of another type.
    pub fn from_options(json: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(json)
            .map_err(|error| config(format!("option options must be an object ({error})")))?;
        let Value::Object(mut base) = value else {
            return Err(config("option options must be an object"));
        };
        let mut take = |name: &str| {
            let spelt = [name.to_owned(), super::options::camel(name)];
            let taken: Vec<Value> = spelt.iter().filter_map(|name| base.remove(name)).collect();
            taken.into_iter().find(|value| !value.is_null())
        };
        let file = match take("settings_file") {
            None => None,
            Some(Value::String(path)) if !path.is_empty() => Some(absolute(Path::new(&path))),
            Some(_) => return Err(config("option settings_file must be a path")),
        };
        let over = match take("overrides") {
            None => Map::new(),
            Some(Value::Object(over)) => over,
            Some(_) => return Err(config("option overrides must be an object")),
        };
        Ok(Self { base, file, over })
    }

    /// The same without its file.
    #[must_use]
    pub fn without_file(mut self) -> Self {
        self.file = None;
        self
    }

    /// The same with another file.
    #[must_use]
    pub fn with_file(mut self, path: &Path) -> Self {
        self.file = Some(absolute(path));
        self
    }

    /// The settings file, absolute.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads and checks everything; a file that is not there is made, for its owner alone. Answers
    /// warnings beside the config, one sentence each.
    ///
    /// # Errors
    /// `config` for a file that cannot be read or is no JSON object, and for a wrong value, named by
    /// its path; `unsupported` for parts this version does not have.
    pub fn read(&self) -> Result<(ServerConfig, Vec<String>)> {
        if let Some(path) = &self.file {
            create(path)?;
        }
        self.read_again()
    }

    /// As [`Settings::read`], for a file that must be there.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn read_again(&self) -> Result<(ServerConfig, Vec<String>)> {
        let file = match &self.file {
            None => Map::new(),
            Some(path) => self.checked(path, load(path)?)?,
        };
        self.assemble(file)
    }

    /// As [`Settings::read`] and then the start, but makes nothing. Answers the warnings.
    ///
    /// # Errors
    /// As [`Settings::read`] and [`ServerConfig::check`].
    pub fn check(&self) -> Result<Vec<String>> {
        let Some(path) = self.file.as_deref().filter(|path| is_to_be_made(path)) else {
            let (config, warnings) = self.read_again()?;
            return config.check().map(|()| warnings);
        };
        could_be_made(path)?;
        let seed = parse(path, SEED)?;
        let (config, mut warnings) = self.assemble(self.checked(path, seed)?)?;
        config.check()?;
        let text = "is not there; the server makes it when it starts";
        warnings.push(format!("settings file {} {text}", path.display()));
        Ok(warnings)
    }

    fn assemble(&self, file: Map<String, Value>) -> Result<(ServerConfig, Vec<String>)> {
        let mut options = self.base.clone();
        merge(&mut options, &file);
        merge(&mut options, &self.over);
        let read = ServerConfig::from_map(options.clone());
        let (mut config, warnings) = read.map_err(|error| match &self.file {
            Some(path) => within(path, &error),
            None => error,
        })?;
        config.auth.enabled_overrules = self.says_enabled();
        config.source = Some(Source {
            settings: self.clone(),
            options,
            file,
        });
        Ok((config, warnings))
    }

    /// Whether the environment or the command line switches authentication.
    fn says_enabled(&self) -> bool {
        match merge::find(&self.over, "auth") {
            Some(Value::Bool(_)) => true,
            Some(Value::Object(auth)) => auth.get("enabled").is_some_and(Value::is_boolean),
            _ => false,
        }
    }

    /// What the file says, which makes sense by itself: so an error that only the file can be blamed
    /// for names it.
    fn checked(&self, path: &Path, file: Map<String, Value>) -> Result<Map<String, Value>> {
        for name in ["settings_file", "overrides"] {
            if file.keys().any(|key| same_option(key, name)) {
                let error = config(format!("option {name} cannot be set by the file itself"));
                return Err(within(path, &error));
            }
        }
        ServerConfig::from_map(file.clone()).map_err(|error| within(path, &error))?;
        Ok(file)
    }
}

fn within(path: &Path, error: &Error) -> Error {
    let text = format!("settings file {}: {}", path.display(), error.message());
    Error::new(error.kind(), text)
}

/// Makes the file if there is none. Nobody else may read it: secrets will stand there.
fn create(path: &Path) -> Result<()> {
    let mut making = File::options();
    making.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut making, 0o600);
    let made = making.open(path).and_then(|mut file| {
        file.write_all(SEED.as_bytes())?;
        file.sync_all()
    });
    match made {
        Ok(()) => {
            tracing::info!("settings file {} was not there and is made", path.display());
            Ok(())
        }
        Err(error) if error.kind() == IoKind::AlreadyExists => Ok(()),
        // A file that is there may lie where nothing can be made.
        Err(_) if path.exists() => Ok(()),
        Err(error) => {
            let why = config(format!("cannot be made: {error}"));
            Err(within(path, &why))
        }
    }
}

/// Whether nothing stands there, not even a link that leads nowhere.
fn is_to_be_made(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == IoKind::NotFound)
}

/// Refuses what [`create`] would fail at, as far as that can be seen.
fn could_be_made(path: &Path) -> Result<()> {
    let refused = |why: &str| within(path, &config(format!("cannot be made: {why}")));
    let folder = path.parent().unwrap_or(path);
    let there = fs::metadata(folder).map_err(|error| refused(&error.to_string()))?;
    match (there.is_dir(), there.permissions().readonly()) {
        (false, _) => Err(refused("its folder is none")),
        (true, true) => Err(refused("its folder cannot be written")),
        (true, false) => Ok(()),
    }
}

fn load(path: &Path) -> Result<Map<String, Value>> {
    let refused = |why: String| within(path, &config(why));
    let unreadable = |error: std::io::Error| refused(format!("cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE {
        return Err(refused("is larger than 16 MiB".to_owned()));
    }
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Map<String, Value>> {
    let refused = |why: String| within(path, &config(why));
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(refused("must hold a JSON object".to_owned())),
        Err(error) => Err(refused(format!("is no valid JSON: {error}"))),
    }
}

/// The bytes of a file, or that there are none: whether it has changed.
pub(super) fn content(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests;
