//! Server options as users write them: a JSON object, snake_case or camelCase, durations as texts.
//!
//! The Node API and the command line share this reading, so that a rule stands once. A wrong value
//! stops the start and names the option (P14, P33); an unknown name is a warning. Knows no file.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::config::{IdleEviction, ServerConfig, TlsFiles};
use super::persistence::Persistence;
use super::settings::Settings;
use crate::auth::AuthSettings;
use crate::store::Overflow;
use crate::tls::Pem;
use crate::transport::Cors;
use crate::{Error, ErrorKind, Result};

use reader::wrong;
pub(super) use reader::{Options, camel};
use storage::Chosen;

/// The database for realms and tokens, if it has no name.
const AUTH_STORE: &str = "restante.auth.sqlite";

/// Parts of later versions: asking for one must not pass in silence.
const LATER: &[&str] = &[
    "cluster",
    "http_api",
    "http_publish",
    "namespaces",
    "remote",
];

impl ServerConfig {
    /// Reads an options object over the defaults, with the settings file and the overrides that it
    /// names. Answers warnings beside the config, one sentence each.
    ///
    /// # Errors
    /// `config` for a wrong value, naming the option; `unsupported` for parts this version does not have.
    pub fn from_options(json: &str) -> Result<(Self, Vec<String>)> {
        Settings::from_options(json)?.read()
    }

    /// Reads options alone.
    pub(super) fn from_map(members: Map<String, Value>) -> Result<(Self, Vec<String>)> {
        let mut options = Options::of(members, "");
        let mut config = Self::default();
        options.refuse_later()?;
        options.security(&mut config)?;
        options.network(&mut config)?;
        options.sizes(&mut config)?;
        options.delivery(&mut config)?;
        options.queues(&mut config)?;
        let chosen = options.storage()?;
        config.storage = chosen.storage;
        config.force_storage = chosen.force;
        config.default_ttl_given = chosen.default_ttl;
        if let Some(ttl) = chosen.default_ttl {
            config.broker.default_ttl = ttl;
        }
        config.limits = Arc::new(options.limits()?);
        config.tls = options.tls()?;
        if let Some(folder) = options.text(&["data_dir"])? {
            config.data_dir = folder.into();
        }
        options.warn_unknown();
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
        let Chosen {
            storage,
            default_ttl,
            ..
        } = options.storage()?;
        let mut force = false;
        options.flag(&["force"], &mut force)?;
        // What the state file says besides.
        options.get(&["moved_from"]);
        options.get(&["settings_file"]);
        options.warn_unknown();
        let wish = Self {
            storage,
            default_ttl,
            force,
        };
        Ok((wish, options.warnings))
    }
}

impl Options {
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

    /// Who may do what, and where that is kept.
    fn security(&mut self, config: &mut ServerConfig) -> Result<()> {
        let value = self.get(&["auth"]).unwrap_or(Value::Null);
        config.auth = AuthSettings::parse(&value)?;
        self.warnings.append(&mut config.auth.warnings);
        config.auth_store = match self.get(&["auth_store"]) {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(AUTH_STORE.into()),
            Some(Value::String(path)) if !path.is_empty() => Some(path.into()),
            Some(Value::Object(_)) => self.auth_store()?,
            Some(_) => return Err(self.wrong("auth_store", "true, or the name of a file")),
        };
        config.storage_paths = self.paths(&["storage_paths"])?;
        Ok(())
    }

    fn auth_store(&mut self) -> Result<Option<PathBuf>> {
        let Some(mut inner) = self.object(&["auth_store"])? else {
            return Ok(None);
        };
        let mut enabled = true;
        inner.flag(&["enabled"], &mut enabled)?;
        let name = inner.text(&["filename", "file", "path"])?;
        let name = name.unwrap_or_else(|| AUTH_STORE.to_owned());
        self.absorb(inner);
        Ok(enabled.then(|| name.into()))
    }

    fn tls(&mut self) -> Result<Option<TlsFiles>> {
        if self.get(&["tls"]) == Some(Value::Bool(false)) {
            return Ok(None);
        }
        let Some(mut inner) = self.object(&["tls"])? else {
            return Ok(None);
        };
        let mut pem = |name: &str| -> Result<Option<Pem>> {
            let text = inner.text(&[name])?.filter(|text| !text.is_empty());
            Ok(text.map(|text| Pem::from(text.as_str())))
        };
        let (cert, key) = (pem("cert")?, pem("key")?);
        let files = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
            (None, Some(_)) => return Err(inner.wrong("cert", "given beside tls.key")),
            (Some(_), None) => return Err(inner.wrong("key", "given beside tls.cert")),
        };
        self.absorb(inner);
        Ok(files)
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
            let mut doors = (**transport.doors.load()).clone();
            doors.cors = cors(&value)?;
            transport.doors.store(Arc::new(doors));
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
        if let Some(value) = self.get(&["strict_from"]) {
            let strict_from = value.as_bool();
            let strict_from = strict_from.ok_or_else(|| wrong("strict_from", "true or false"))?;
            config.strict_from = Some(strict_from);
        }
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
    let mut inner = Options::of(members.clone(), "idle_eviction.");
    inner.flag(&["enabled"], &mut into.enabled)?;
    inner.millis(&["ttl_ms"], &mut into.ttl)?;
    inner.millis(&["interval_ms"], &mut into.interval)?;
    Ok(into)
}

mod limits;
mod reader;
mod storage;
#[cfg(test)]
mod tests;
