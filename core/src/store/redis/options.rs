//! How a Redis is reached and what of it is ours. Knows no file format.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::{Error, ErrorKind, Result};

use super::given::GivenClient;

/// Below it a hiccup would be a death.
const SHORTEST_LEASE: Duration = Duration::from_millis(500);

/// What a [`RedisStore`](super::RedisStore) needs to know.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisOptions {
    /// `redis://` or `rediss://` (TLS), with user, password and database; several, separated by
    /// commas, for Cluster and Sentinel. `redis://127.0.0.1:6379`.
    pub url: String,
    /// What names of our keys begin with; no braces. `restante`.
    pub prefix: String,
    /// The addresses are nodes of a Redis Cluster; false.
    pub cluster: bool,
    /// The addresses are Sentinels that watch a master of this name; none.
    pub sentinel: Option<String>,
    /// The PEM file of whoever has signed Redis's certificate; none: the authorities of the web.
    pub tls_ca: Option<PathBuf>,
    /// The PEM file of our own certificate, where Redis asks for one; none.
    pub tls_cert: Option<PathBuf>,
    /// That of its key; none.
    pub tls_key: Option<PathBuf>,
    /// Start only if Redis never evicts keys; false (P1).
    pub strict: bool,
    /// Open it even if its messages have moved to another store; false (P28).
    pub force: bool,
    /// A SQLite file that a server begins with if Redis is away then, until it is back; none.
    pub fallback: Option<PathBuf>,
    /// How long such a server waits for Redis before it does; 5 s.
    pub probe_timeout: Duration,
    /// A connection that is used in the place of all addresses; none.
    pub client: Option<GivenClient>,
    /// How long a call waits for Redis, with all repeats; 5 s.
    pub timeout: Duration,
    /// How long what a broker holds is nobody else's after it has died; 15 s (P18).
    pub lease: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".to_owned(),
            prefix: "restante".to_owned(),
            cluster: false,
            sentinel: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            strict: false,
            force: false,
            fallback: None,
            client: None,
            probe_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            lease: Duration::from_secs(15),
        }
    }
}

impl RedisOptions {
    /// Options for this address, else as by default.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }

    /// Checks what can be checked without a connection.
    ///
    /// # Errors
    /// `config`, naming the option.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Config, format!("option {what}")));
        if self.lease < SHORTEST_LEASE {
            return wrong("storage_options.lease must be 500 ms or more");
        }
        let prefix = &self.prefix;
        if prefix.is_empty() || prefix.len() > 255 || prefix.contains(['{', '}']) {
            return wrong("storage_options.prefix must be 1 to 255 bytes without braces");
        }
        if self.cluster && self.sentinel.is_some() {
            return wrong("storage_options.cluster and sentinel exclude each other");
        }
        if self.sentinel.as_deref() == Some("") {
            return wrong("storage_options.sentinel must name a master");
        }
        if self.client.is_some() {
            return match self.cluster || self.sentinel.is_some() {
                true => wrong("storage_options.client excludes cluster and sentinel"),
                false => Ok(()),
            };
        }
        let urls = self.urls();
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return wrong("storage_options.tls_cert and tls_key need each other");
        }
        let has_tls = self.tls_ca.is_some() || self.tls_cert.is_some();
        if has_tls && !urls.iter().all(|url| url.starts_with("rediss://")) {
            return wrong("storage_options.tls_ca and tls_cert need rediss:// addresses");
        }
        if urls.is_empty() {
            return wrong("storage_options.url must be a redis:// or rediss:// address");
        }
        for url in urls {
            if redis::parse_redis_url(url).is_none() {
                // The address may hold a password.
                return wrong("storage_options.url must be a redis:// or rediss:// address");
            }
        }
        Ok(())
    }

    pub(super) fn urls(&self) -> Vec<&str> {
        let urls = self.url.split(',').map(str::trim);
        urls.filter(|url| !url.is_empty()).collect()
    }

    /// The address without user, password and query, which may hold one.
    pub(crate) fn shown(&self) -> String {
        if self.client.is_some() {
            return "a given client".to_owned();
        }
        let hidden = |url: &str| {
            let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
            // A socket's path has no user before it; its query may hold an `@`.
            let place = match scheme.contains("unix") {
                true => rest,
                false => rest.rsplit_once('@').map_or(rest, |(_, host)| host),
            };
            let place = place.split_once('?').map_or(place, |(place, _)| place);
            format!("{scheme}://{place}")
        };
        let urls: Vec<String> = self.urls().into_iter().map(hidden).collect();
        urls.join(",")
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("url", &self.shown())
            .field("prefix", &self.prefix)
            .field("cluster", &self.cluster)
            .field("sentinel", &self.sentinel)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_never_shown() {
        let options = RedisOptions::at("redis://me:secret@a:1/2, rediss://:secret@b:2");
        assert_eq!(options.shown(), "redis://a:1/2,rediss://b:2");
        assert!(!format!("{options:?}").contains("secret"));
        let options =
            RedisOptions::at("unix:///run/r.sock?db=1&pass=se@cret,redis://a?pass=secret");
        assert_eq!(options.shown(), "unix:///run/r.sock,redis://a");
    }

    #[test]
    fn wrong_options_name_themselves() {
        let with = |change: fn(&mut RedisOptions)| {
            let mut options = RedisOptions::default();
            change(&mut options);
            options.check().err().map(|error| error.to_string())
        };
        assert_eq!(with(|_| ()), None);
        let named = |change, name: &str| {
            assert!(
                with(change).is_some_and(|text| text.contains(name)),
                "{name}"
            );
        };
        named(|options| options.url = "http://x".to_owned(), "url");
        named(|options| options.url = " , ".to_owned(), "url");
        named(|options| options.prefix = "a{b}".to_owned(), "prefix");
        named(|options| options.sentinel = Some(String::new()), "sentinel");
        named(|options| options.tls_ca = Some("ca.pem".into()), "tls_ca");
        named(
            |options| {
                options.url = "rediss://x".to_owned();
                options.tls_cert = Some("c.pem".into());
            },
            "tls_key",
        );
        named(
            |options| {
                options.cluster = true;
                options.sentinel = Some("m".to_owned());
            },
            "cluster",
        );
    }
}
