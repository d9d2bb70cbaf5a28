//! The `auth` member of the settings, read and checked before anything uses it (P33).
//!
//! Wrong values are refused with their path, `auth.realms.acme.ttl`; what is unknown is a warning. Knows
//! no file: who reads the settings hands over the value. What is dynamic of it (realms, tokens, management
//! tokens, validators) is only what the file says; the registry brings it together with the store's
//! documents. Called by `server` and by tests.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::outside::{ExternalValidator, ValidatorUrl};
use super::reader::{MAX_TTL, Reader, wrong};
use super::realm::RealmConfig;
use super::secret::SHORTEST_SIGNING;
use super::token::{FileToken, ManagementToken, Token};
use super::{Secret, TokenHash};
use crate::Result;
use crate::model::RealmId;

/// Where consumers may enter that show nothing, of realms that want no key (decided 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeylessConsumers {
    /// In realm `default`.
    #[default]
    DefaultRealm,
    /// In every realm, as with tyo-mq.
    Allow,
    /// Nowhere but in open realms.
    Deny,
}

/// `auth` as it was read; the default is authentication switched off.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthSettings {
    /// Whether anybody is asked who they are; false.
    pub enabled: bool,
    /// Whether `enabled` counts over what a command has stored, at the start; false.
    pub enabled_overrules: bool,
    /// Tokens.
    pub tokens: Vec<FileToken<Token>>,
    /// Realms.
    pub realms: BTreeMap<RealmId, RealmConfig>,
    /// Tokens for provisioning realms.
    pub management_tokens: Vec<FileToken<ManagementToken>>,
    /// Tokens that may only look (admin.md §6.1), by hash.
    pub monitor_tokens: Vec<TokenHash>,
    /// Signs JWTs of any realm.
    pub jwt_secret: Option<Secret>,
    /// The longest a JWT may still live; given, `exp` must be there.
    pub jwt_max_ttl: Option<Duration>,
    /// Whether a JWT or a validator may let somebody into realm `*` as `admin`; false.
    pub allow_superadmin_jwt: bool,
    /// Whether commands that carry secrets may go in clear over a network (AF59); false.
    pub allow_insecure_management: bool,
    /// Whether sessions end with their credential; true.
    pub enforce_expiry: bool,
    /// Who is asked about tokens of every realm.
    pub auth_url: Option<ValidatorUrl>,
    /// What shows validators that we ask, where they have no secret of their own.
    pub auth_secret: Option<Secret>,
    /// Who is asked about tokens of realms with a prefix.
    pub external_validators: Vec<(Arc<str>, ExternalValidator)>,
    /// How long ephemeral realms live that do not say; a day.
    pub ephemeral_realm_ttl: Duration,
    /// See there; `default-realm`.
    pub keyless_consumers: KeylessConsumers,
    /// How long a session may be connected without being let in; 10 s.
    pub timeout: Duration,
    /// Where the administrator's secret is written if one is made; `.env`.
    pub env_file: Option<PathBuf>,
    /// The variable that holds it; `RESTANTE_ADMIN_TOKEN`.
    pub admin_token_env: Arc<str>,
    /// Whether one is made if there is none; true.
    pub auto_admin_token: bool,
    /// What was unknown or unwise, one sentence each; for the log.
    pub warnings: Vec<String>,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            enabled_overrules: false,
            tokens: Vec::new(),
            realms: BTreeMap::new(),
            management_tokens: Vec::new(),
            monitor_tokens: Vec::new(),
            jwt_secret: None,
            jwt_max_ttl: None,
            allow_superadmin_jwt: false,
            allow_insecure_management: false,
            enforce_expiry: true,
            auth_url: None,
            auth_secret: None,
            external_validators: Vec::new(),
            ephemeral_realm_ttl: Duration::from_secs(86_400),
            keyless_consumers: KeylessConsumers::default(),
            timeout: Duration::from_secs(10),
            env_file: None,
            admin_token_env: super::bootstrap::ADMIN_TOKEN.into(),
            auto_admin_token: true,
            warnings: Vec::new(),
        }
    }
}

impl AuthSettings {
    /// Reads the value of `auth`; null is the default, `true` and `false` stand for `{enabled}`.
    ///
    /// # Errors
    /// `config`, naming the path of the wrong value; no value is repeated.
    pub fn parse(value: &Value) -> Result<Self> {
        let mut settings = Self::default();
        if value.is_null() {
            return Ok(settings);
        }
        if let Some(enabled) = value.as_bool() {
            settings.enabled = enabled;
            return Ok(settings);
        }
        let mut reader = Reader::new("auth", value)?;
        settings.switches(&mut reader)?;
        settings.entries(&mut reader)?;
        settings.outside(&mut reader)?;
        settings.administrator(&mut reader)?;
        // A convention of tyo-mq's that says nothing.
        reader.get(&["orgs"]);
        reader.finish(&mut settings.warnings);
        settings.warn_unwise();
        Ok(settings)
    }

    fn switches(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        for (name, flag) in [
            ("enabled", &mut self.enabled),
            ("allow_superadmin_jwt", &mut self.allow_superadmin_jwt),
            (
                "allow_insecure_management",
                &mut self.allow_insecure_management,
            ),
            ("enforce_expiry", &mut self.enforce_expiry),
            ("auto_admin_token", &mut self.auto_admin_token),
        ] {
            if let Some(given) = reader.flag(&[name])? {
                *flag = given;
            }
        }
        self.jwt_secret = reader.chosen(&["jwt_secret"], SHORTEST_SIGNING, &mut self.warnings)?;
        self.jwt_max_ttl = reader.ttl(&["jwt_max_ttl"])?;
        if let Some(ttl) = reader.ttl(&["ephemeral_realm_ttl", "temporary_realm_ttl"])? {
            self.ephemeral_realm_ttl = ttl.min(MAX_TTL);
        }
        if let Some(value) = reader.get(&["timeout"]) {
            let millis = value.as_u64().filter(|millis| *millis > 0);
            let millis =
                millis.ok_or_else(|| reader.wrong("timeout", "a whole number of milliseconds"))?;
            self.timeout = Duration::from_millis(millis);
        }
        self.keyless_consumers = match reader.text(&["keyless_consumers"])? {
            None | Some("default-realm") => KeylessConsumers::DefaultRealm,
            Some("allow") => KeylessConsumers::Allow,
            Some("deny") => KeylessConsumers::Deny,
            Some(_) => {
                let wanted = "\"default-realm\", \"allow\" or \"deny\"";
                return Err(reader.wrong("keyless_consumers", wanted));
            }
        };
        Ok(())
    }

    fn entries(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let warnings = &mut self.warnings;
        for (path, name, value) in reader.map(&["realms"])? {
            let realm = RealmId::parse(name)
                .map_err(|error| wrong(&path, &format!("named otherwise: {error}")))?;
            let default_ttl = self.ephemeral_realm_ttl;
            let parsed = RealmConfig::read(&path, &realm, value, default_ttl, warnings)?;
            self.realms.insert(realm, parsed);
        }
        let mut known = HashSet::new();
        for (path, value) in reader.list(&["tokens"])? {
            let token = FileToken::<Token>::parse(&path, value, warnings)?;
            if !known.insert(token.hash) {
                return Err(wrong(&path, "another token: this one is listed already"));
            }
            self.tokens.push(token);
        }
        let mut known = HashSet::new();
        for (path, value) in reader.list(&["management_tokens"])? {
            let token = FileToken::<ManagementToken>::parse(&path, value, warnings)?;
            if !known.insert(token.hash) {
                return Err(wrong(&path, "another token: this one is listed already"));
            }
            self.management_tokens.push(token);
        }
        for (path, value) in reader.list(&["monitor_tokens"])? {
            let text = value.as_str().and_then(|text| Secret::parse(text).ok());
            let secret = text.ok_or_else(|| wrong(&path, "a text"))?;
            self.monitor_tokens.push(secret.hash());
        }
        Ok(())
    }

    fn outside(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.auth_url = ValidatorUrl::read(reader, "auth_url")?;
        self.auth_secret = reader.secret(&["auth_secret"])?;
        let mut known = HashSet::new();
        for (path, value) in reader.list(&["external_validators"])? {
            let mut inner = Reader::new(path, value)?;
            let prefix = inner.name(&["realm_prefix"])?;
            let prefix = prefix.ok_or_else(|| inner.wrong("realm_prefix", "a text"))?;
            if !known.insert(prefix) {
                return Err(inner.wrong("realm_prefix", "another one: it is listed already"));
            }
            let url = ValidatorUrl::read(&mut inner, "auth_url")?;
            let url = url.ok_or_else(|| inner.wrong("auth_url", "an address"))?;
            let secret = inner.secret(&["auth_secret"])?;
            let validator = ExternalValidator { url, secret };
            self.external_validators.push((prefix.into(), validator));
            inner.finish(&mut self.warnings);
        }
        Ok(())
    }

    fn administrator(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.env_file = reader.text(&["env_file"])?.map(PathBuf::from);
        if let Some(name) = reader.text(&["admin_token_env"])? {
            let mut bytes = name.bytes();
            if !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Err(reader.wrong("admin_token_env", "the name of a variable"));
            }
            self.admin_token_env = name.into();
        }
        Ok(())
    }

    fn warn_unwise(&mut self) {
        if self.enabled && self.keyless_consumers == KeylessConsumers::Allow {
            let text = "auth.keyless_consumers is \"allow\": whoever shows nothing may read in every realm without a key";
            self.warnings.push(text.to_owned());
        }
        if self.allow_superadmin_jwt {
            let text = "auth.allow_superadmin_jwt: whoever signs tokens may make one that sees every realm";
            self.warnings.push(text.to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
