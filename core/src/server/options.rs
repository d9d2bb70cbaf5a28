//! Server options as users write them: a JSON object, snake_case or camelCase, durations as texts.
//!
//! The Node API and the command line share this reading, so that a rule stands once. A wrong value
//! stops the start and names the option (P14, P33); an unknown name is a warning. Knows no file.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::config::{IdleEviction, ServerConfig};
use super::persistence::Persistence;
use crate::model::{duration_from_number, duration_from_text};
use crate::store::Overflow;
use crate::transport::Cors;
use crate::{Error, ErrorKind, Result};

/// Parts of later versions: asking for one must not pass in silence.
const LATER: &[&str] = &[
    "auth",
    "auth_store",
    "cluster",
    "http_api",
    "http_publish",
    "limits",
    "namespaces",
    "remote",
    "tls",
];

impl ServerConfig {
    /// Reads an options object over the defaults. Answers warnings beside the config, one sentence each.
    ///
    /// # Errors
    /// `config` for a wrong value, naming the option; `unsupported` for parts this version does not have.
    pub fn from_options(json: &str) -> Result<(Self, Vec<String>)> {
        let mut options = Options::read(json)?;
        let mut config = Self::default();
        options.refuse_later()?;
        options.network(&mut config)?;
        options.sizes(&mut config)?;
        options.delivery(&mut config)?;
        options.queues(&mut config)?;
        let (storage, default_ttl) = options.storage()?;
        config.storage = storage;
        if let Some(ttl) = default_ttl {
            config.broker.default_ttl = ttl;
        }
        if let Some(folder) = options.text(&["data_dir"])? {
            config.data_dir = folder.into();
        }
        options.warn_unknown("");
        Ok((config, options.warnings))
    }
}

impl Persistence {
    /// Reads `{storage, storage_options, force}`. Answers warnings beside it, one sentence each.
    ///
    /// # Errors
    /// As [`ServerConfig::from_options`]; `config` if it names no store.
    pub fn from_options(json: &str) -> Result<(Self, Vec<String>)> {
        let mut options = Options::read(json)?;
        if options.get(&["storage", "store"]).is_none() {
            return Err(wrong("storage", "given"));
        }
        let (storage, default_ttl) = options.storage()?;
        let mut force = false;
        options.flag(&["force"], &mut force)?;
        // What the state file says besides.
        options.get(&["moved_from"]);
        options.warn_unknown("");
        let wish = Self {
            storage,
            default_ttl,
            force,
        };
        Ok((wish, options.warnings))
    }
}

struct Options {
    members: Map<String, Value>,
    known: BTreeSet<String>,
    warnings: Vec<String>,
}

fn wrong(option: &str, wanted: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("option {option} must be {wanted}"),
    )
}

fn camel(name: &str) -> String {
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
    fn read(json: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(json)
            .map_err(|error| wrong("options", &format!("an object ({error})")))?;
        let Value::Object(members) = value else {
            return Err(wrong("options", "an object"));
        };
        Ok(Self {
            members,
            known: BTreeSet::new(),
            warnings: Vec::new(),
        })
    }

    /// The value of an option under any of its names; null is absent.
    fn get(&mut self, names: &[&str]) -> Option<Value> {
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

    fn duration(&mut self, names: &[&str], into: &mut Duration) -> Result<()> {
        if let Some(value) = self.get(names) {
            *into = duration(names[0], &value)?;
        }
        Ok(())
    }

    /// Socket.IO's own options and a few others are milliseconds (P14).
    fn millis(&mut self, names: &[&str], into: &mut Duration) -> Result<()> {
        if let Some(value) = self.get(names) {
            let millis = value.as_u64().filter(|millis| *millis > 0);
            let millis = millis.ok_or_else(|| wrong(names[0], "a whole number of milliseconds"))?;
            *into = Duration::from_millis(millis);
        }
        Ok(())
    }

    fn number(&mut self, names: &[&str], least: u64) -> Result<Option<u64>> {
        let Some(value) = self.get(names) else {
            return Ok(None);
        };
        let number = value.as_u64().filter(|number| *number >= least);
        number
            .map(Some)
            .ok_or_else(|| wrong(names[0], &format!("a whole number from {least}")))
    }

    fn size(&mut self, names: &[&str], least: u64, into: &mut usize) -> Result<()> {
        if let Some(number) = self.number(names, least)? {
            *into = usize::try_from(number).unwrap_or(usize::MAX);
        }
        Ok(())
    }

    fn flag(&mut self, names: &[&str], into: &mut bool) -> Result<()> {
        if let Some(value) = self.get(names) {
            *into = value
                .as_bool()
                .ok_or_else(|| wrong(names[0], "true or false"))?;
        }
        Ok(())
    }

    fn text(&mut self, names: &[&str]) -> Result<Option<String>> {
        match self.get(names) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(names[0], "a text")),
        }
    }

    fn refuse_later(&mut self) -> Result<()> {
        for name in LATER {
            let Some(value) = self.get(&[name]) else {
                continue;
            };
            let is_off = value == Value::Bool(false)
                || value.get("enabled") == Some(&Value::Bool(false))
                || value.as_object().is_some_and(Map::is_empty);
            if !is_off {
                let message = format!("option {name}: this version does not have it yet");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        Ok(())
    }

    fn network(&mut self, config: &mut ServerConfig) -> Result<()> {
        config.host = self.text(&["host"])?;
        if let Some(port) = self.number(&["port"], 0)? {
            config.port = u16::try_from(port).map_err(|_| wrong("port", "at most 65535"))?;
        }
        let transport = &mut config.transport;
        if let Some(path) = self.text(&["path"])? {
            transport.path = path;
        }
        self.millis(&["ping_interval"], &mut transport.ping_interval)?;
        self.millis(&["ping_timeout"], &mut transport.ping_timeout)?;
        self.millis(&["connect_timeout"], &mut transport.connect_timeout)?;
        self.millis(&["upgrade_timeout"], &mut transport.upgrade_timeout)?;
        self.size(&["threads"], 1, &mut transport.threads)?;
        self.size(&["max_connections"], 1, &mut transport.max_connections)?;
        if let Some(value) = self.get(&["transports"]) {
            let names: Vec<&str> = value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            transport.polling = names.contains(&"polling");
            transport.websocket = names.contains(&"websocket");
            if !transport.polling && !transport.websocket {
                return Err(wrong(
                    "transports",
                    "a list of \"polling\" and \"websocket\"",
                ));
            }
        }
        if let Some(value) = self.get(&["cors"]) {
            transport.cors = cors(&value)?;
        }
        for (name, note) in [
            ("perMessageDeflate", "messages are not compressed"),
            ("allowEIO3", "clients of Engine.IO 3 are refused"),
            ("serveClient", "no client script is served"),
        ] {
            if self
                .get(&[name])
                .is_some_and(|value| value != Value::Bool(false))
            {
                self.warnings
                    .push(format!("option {name} is ignored: {note}"));
            }
        }
        Ok(())
    }

    fn sizes(&mut self, config: &mut ServerConfig) -> Result<()> {
        let transport = &mut config.transport;
        let sizes = &["max_message_bytes", "max_http_buffer_size"];
        self.size(sizes, 1024, &mut transport.max_message_bytes)?;
        self.size(
            &["max_outbound_bytes"],
            65_536,
            &mut transport.max_outbound_bytes,
        )?;
        self.size(
            &["max_outbound_total"],
            65_536,
            &mut transport.max_outbound_total,
        )?;
        self.size(
            &["max_inflight_bytes"],
            65_536,
            &mut transport.max_inflight_bytes,
        )?;
        let threshold = &["delivery_chunk_threshold"];
        self.size(threshold, 1024, &mut config.delivery_chunk_threshold)
    }

    fn delivery(&mut self, config: &mut ServerConfig) -> Result<()> {
        self.duration(&["ack_timeout"], &mut config.defaults.ack_timeout)?;
        if config.defaults.ack_timeout > crate::model::MAX_ACK_TIMEOUT {
            return Err(wrong("ack_timeout", "at most 24h"));
        }
        if config.defaults.ack_timeout.is_zero() {
            config.defaults.ack_timeout = ServerConfig::default().defaults.ack_timeout;
        }
        if let Some(prefetch) = self.number(&["prefetch"], 1)? {
            config.defaults.prefetch = u32::try_from(prefetch).unwrap_or(u32::MAX);
        }
        self.flag(&["strict_from"], &mut config.strict_from)?;
        self.flag(&["allow_anonymous"], &mut config.allow_anonymous)?;
        let broker = &mut config.broker;
        self.duration(&["store_timeout"], &mut broker.store_timeout)?;
        self.duration(
            &["durable_subscription_ttl"],
            &mut broker.durable_subscription_ttl,
        )?;
        self.duration(
            &["guaranteed_subscription_ttl"],
            &mut broker.guaranteed_subscription_ttl,
        )?;
        self.millis(&["duplicate_probe_ms"], &mut broker.duplicate_probe)?;
        match self.text(&["durable_confirm"])?.as_deref() {
            None | Some("pong") => {}
            Some("flush") => broker.confirm_on_flush = true,
            Some(_) => return Err(wrong("durable_confirm", "\"pong\" or \"flush\"")),
        }
        if let Some(value) = self.get(&["idle_eviction"]) {
            config.idle_eviction = idle_eviction(&value, config.idle_eviction)?;
        }
        Ok(())
    }

    fn queues(&mut self, config: &mut ServerConfig) -> Result<()> {
        let bounds = &mut config.bounds;
        if let Some(most) = self.number(&["max_queued"], 1)? {
            bounds.max_queued = most;
        }
        bounds.max_queued_per_realm = self.number(&["max_queued_per_realm"], 1)?;
        match self.text(&["overflow"])?.as_deref() {
            None | Some("reject") => {}
            Some("drop_oldest") => bounds.overflow = Overflow::DropOldest,
            Some(_) => return Err(wrong("overflow", "\"reject\" or \"drop_oldest\"")),
        }
        self.duration(&["dedupe_window"], &mut bounds.dedupe_window)?;
        self.size(&["dedupe_max"], 0, &mut bounds.dedupe_max)?;
        self.size(&["dlq_max_per_realm"], 0, &mut bounds.dlq_max_per_realm)?;
        self.duration(&["dlq_ttl"], &mut bounds.dlq_ttl)
    }

    /// `of`: what their names begin with.
    fn warn_unknown(&mut self, of: &str) {
        for name in self
            .members
            .keys()
            .filter(|name| !self.known.contains(*name))
        {
            self.warnings
                .push(format!("option {of}{name} is unknown and ignored"));
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

/// `true` or `"*"`: every origin; a text, a list, or Socket.IO's object of them.
fn cors(value: &Value) -> Result<Option<Cors>> {
    let texts = |value: &Value| -> Vec<String> {
        match value {
            Value::Bool(true) => vec!["*".to_owned()],
            Value::String(text) => vec![text.clone()],
            Value::Array(list) => list
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            _ => Vec::new(),
        }
    };
    match value {
        Value::Bool(false) => Ok(None),
        Value::Object(members) => {
            let origins = members.get("origin").or_else(|| members.get("origins"));
            let methods = members.get("methods").map(texts).unwrap_or_default();
            Ok(Some(Cors {
                origins: origins.map(texts).unwrap_or_default(),
                methods: methods
                    .iter()
                    .flat_map(|m| m.split(','))
                    .map(|m| m.trim().to_owned())
                    .collect(),
                credentials: members.get("credentials") == Some(&Value::Bool(true)),
            }))
        }
        Value::Bool(true) | Value::String(_) | Value::Array(_) => Ok(Some(Cors {
            origins: texts(value),
            ..Cors::default()
        })),
        _ => Err(wrong(
            "cors",
            "an object with origin, methods and credentials",
        )),
    }
}

/// `false` switches it off; times are milliseconds.
fn idle_eviction(value: &Value, mut into: IdleEviction) -> Result<IdleEviction> {
    if let Some(enabled) = value.as_bool() {
        into.enabled = enabled;
        return Ok(into);
    }
    let Value::Object(members) = value else {
        return Err(wrong("idle_eviction", "an object or false"));
    };
    let mut inner = Options {
        members: members.clone(),
        known: BTreeSet::new(),
        warnings: Vec::new(),
    };
    inner.flag(&["enabled"], &mut into.enabled)?;
    inner.millis(&["ttl_ms"], &mut into.ttl)?;
    inner.millis(&["interval_ms"], &mut into.interval)?;
    Ok(into)
}

mod storage;
#[cfg(test)]
mod tests;
