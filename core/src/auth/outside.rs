//! Who outside is asked about tokens that we do not know ourselves, and who of them is asked about which
//! (admin.md §2.4). Sends nothing: that is `external`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::reader::Reader;
use super::secret::stored;
use super::{RealmConfig, Secret};
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

/// Where an external validator answers: `https`, or `http` on this machine, without user and password.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ValidatorUrl(Arc<str>);

impl ValidatorUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// `bad_command`; the text is not repeated.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |what: &str| Error::new(ErrorKind::BadCommand, what);
        let url = Url::parse(text).map_err(|_| wrong("auth_url is no address"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("auth_url holds a password: use auth_secret"));
        }
        let is_here = match url.host_str() {
            None => return Err(wrong("auth_url names no host")),
            Some("localhost") => true,
            Some(host) => {
                let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
                address.is_ok_and(|address| address.is_loopback())
            }
        };
        match url.scheme() {
            "https" => {}
            "http" if is_here => {}
            _ => return Err(wrong("auth_url must be https, or http on this machine")),
        }
        if text.len() > 2048 {
            return Err(wrong("auth_url has more than 2048 bytes"));
        }
        Ok(Self(url.as_str().into()))
    }

    /// The same from a member of the settings.
    pub(super) fn read(reader: &mut Reader<'_>, name: &str) -> Result<Option<Self>> {
        let Some(text) = reader.text(&[name])? else {
            return Ok(None);
        };
        let url = Self::parse(text);
        url.map(Some).map_err(|error| {
            let message = format!("{}: {}", reader.at(name), error.message());
            Error::new(ErrorKind::Config, message)
        })
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address for people and logs: whatever stands in its query may be a secret.
    pub fn shown(&self) -> String {
        match self.0.split_once('?') {
            Some((before, _)) => format!("{before}?<configured>"),
            None => self.0.to_string(),
        }
    }
}

impl fmt::Debug for ValidatorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shown(), f)
    }
}

impl TryFrom<String> for ValidatorUrl {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<ValidatorUrl> for String {
    fn from(url: ValidatorUrl) -> Self {
        url.as_str().to_owned()
    }
}

/// One external validator, of every realm or of those with a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalValidator {
    /// Where it answers.
    pub url: ValidatorUrl,
    /// What shows it that we ask.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "stored")]
    pub secret: Option<Secret>,
}

/// Which realms an external validator may speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// One.
    Realm(RealmId),
    /// Those that start so.
    Prefix(Arc<str>),
    /// All.
    All,
}

impl Scope {
    /// Whether it may.
    pub(super) fn covers(&self, realm: &RealmId) -> bool {
        match self {
            Self::Realm(own) => own == realm,
            Self::Prefix(prefix) => realm.as_str().starts_with(&**prefix),
            Self::All => true,
        }
    }
}

/// A validator that is to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// Where.
    pub(super) url: ValidatorUrl,
    /// What shows it that we ask.
    pub(super) secret: Option<Secret>,
    /// What it may say.
    pub(super) scope: Scope,
}

/// Every external validator but those of single realms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Validators {
    /// For every realm; its secret stands in for those that have none.
    pub(super) global: Option<ExternalValidator>,
    /// The secret that stands in though nobody is asked for every realm.
    pub(super) secret: Option<Secret>,
    /// By prefix, longest first.
    pub(super) prefixes: Vec<(Arc<str>, ExternalValidator)>,
}

impl Validators {
    /// Who is asked about a token for which a realm is hinted at, and that realm's configuration.
    pub(super) fn select(
        &self,
        hint: Option<&RealmId>,
        config: Option<&RealmConfig>,
    ) -> Option<Asked> {
        let fallback = || self.global.as_ref().and_then(|one| one.secret.clone());
        let fallback = || fallback().or_else(|| self.secret.clone());
        if let Some(realm) = hint {
            if let Some(config) = config
                && let Some(url) = &config.auth_url
            {
                return Some(Asked {
                    url: url.clone(),
                    secret: config.auth_secret.clone().or_else(fallback),
                    scope: Scope::Realm(realm.clone()),
                });
            }
            let mut prefixes = self.prefixes.iter();
            let found = prefixes.find(|(prefix, _)| realm.as_str().starts_with(&**prefix));
            if let Some((prefix, one)) = found {
                return Some(Asked {
                    url: one.url.clone(),
                    secret: one.secret.clone().or_else(fallback),
                    scope: Scope::Prefix(prefix.clone()),
                });
            }
        }
        self.global.as_ref().map(|one| Asked {
            url: one.url.clone(),
            secret: fallback(),
            scope: Scope::All,
        })
    }

    /// Puts, or removes, the validator of a prefix.
    pub(super) fn set_prefix(&mut self, prefix: &str, one: Option<ExternalValidator>) {
        self.prefixes.retain(|(other, _)| **other != *prefix);
        if let Some(one) = one {
            self.prefixes.push((prefix.into(), one));
            self.prefixes
                .sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Credential;

    fn one(url: &str) -> ExternalValidator {
        ExternalValidator {
            url: ValidatorUrl::parse(url).unwrap(),
            secret: None,
        }
    }

    fn realm(name: &str) -> RealmId {
        RealmId::parse(name).unwrap()
    }

    #[test]
    fn an_address_is_https_or_on_this_machine_and_holds_no_password() {
        for good in [
            "https://auth.example/check?x=1",
            "http://localhost:9/a",
            "http://127.0.0.2/",
            "http://[::1]:8080/",
        ] {
            assert!(ValidatorUrl::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "http://auth.example/",
            "http://localhost.evil.example/",
            "https://u:hunter2@auth.example/",
            "ftp://localhost/",
            "file:///etc/passwd",
            "auth.example",
            "",
        ] {
            let error = ValidatorUrl::parse(bad).unwrap_err();
            assert!(!error.message().contains("hunter2"), "{bad}");
        }
    }

    #[test]
    fn what_stands_in_a_query_is_shown_to_nobody() {
        let url = ValidatorUrl::parse("https://auth.example/check?key=hunter2#hunter2").unwrap();
        assert!(url.as_str().contains("hunter2"));
        assert_eq!(url.shown(), "https://auth.example/check?<configured>");
        assert!(!format!("{:?}", Credential::External(url)).contains("hunter2"));
        let plain = ValidatorUrl::parse("https://auth.example/check").unwrap();
        assert_eq!(plain.shown(), plain.as_str());
    }

    #[test]
    fn the_realms_own_validator_goes_before_the_longest_prefix_and_that_before_the_global_one() {
        let mut all = Validators {
            global: Some(ExternalValidator {
                secret: Some(Secret::parse("global").unwrap()),
                ..one("https://a.example/global")
            }),
            ..Validators::default()
        };
        all.set_prefix("org:", Some(one("https://a.example/org")));
        all.set_prefix("org:acme", Some(one("https://a.example/acme")));
        let own = RealmConfig {
            auth_url: Some(ValidatorUrl::parse("https://a.example/own").unwrap()),
            ..RealmConfig::default()
        };
        let acme = realm("org:acme:prod");
        let asked = |hint: Option<&RealmId>, config| {
            let asked = all.select(hint, config).unwrap();
            assert_eq!(asked.secret.unwrap().expose(), "global");
            (
                asked.url.as_str().rsplit('/').next().unwrap().to_owned(),
                asked.scope,
            )
        };
        assert_eq!(
            asked(Some(&acme), Some(&own)),
            ("own".into(), Scope::Realm(acme.clone()))
        );
        assert_eq!(
            asked(Some(&acme), None),
            ("acme".into(), Scope::Prefix("org:acme".into()))
        );
        assert_eq!(
            asked(Some(&realm("org:b")), None),
            ("org".into(), Scope::Prefix("org:".into()))
        );
        assert_eq!(
            asked(Some(&realm("x")), None),
            ("global".into(), Scope::All)
        );
        assert_eq!(asked(None, Some(&own)), ("global".into(), Scope::All));
        all.set_prefix("org:acme", None);
        all.global = None;
        assert!(all.select(None, None).is_none());
    }

    #[test]
    fn a_scope_covers_its_realms_only() {
        assert!(Scope::Realm(realm("a")).covers(&realm("a")));
        assert!(!Scope::Realm(realm("a")).covers(&realm("ab")));
        assert!(Scope::Prefix("a".into()).covers(&realm("ab")));
        assert!(!Scope::Prefix("ab".into()).covers(&realm("a")));
    }
}
