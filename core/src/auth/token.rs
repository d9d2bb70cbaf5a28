//! Tokens and management tokens as they are kept: never their texts, only what they are for. Their keys
//! are hashes. Knows no document and no session.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::allow::StoredAllow;
use super::reader::{Reader, wrong};
use super::realm::EVERY_REALM;
use super::{Allow, Role, Secret, TokenHash};
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

/// What a token lets its holder be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredToken", into = "StoredToken")]
pub struct Token {
    /// The realm it is for.
    pub realm: RealmId,
    /// As what.
    pub role: Role,
    /// Whose it is: queues belong to this id, whatever token shows it (P30).
    pub client_id: Option<Arc<str>>,
    /// What people call its holder.
    pub client_name: Option<Arc<str>>,
    /// When an authorization request was approved with it, as text.
    pub approved_at: Option<Arc<str>>,
    /// What it narrows.
    pub allow: Allow,
}

#[derive(Serialize, Deserialize)]
struct StoredToken {
    realm: String,
    role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_id: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_name: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approved_at: Option<Arc<str>>,
    #[serde(default, flatten)]
    allow: StoredAllow,
}

impl From<Token> for StoredToken {
    fn from(token: Token) -> Self {
        Self {
            realm: token.realm.as_str().to_owned(),
            role: token.role.as_str().to_owned(),
            client_id: token.client_id,
            client_name: token.client_name,
            approved_at: token.approved_at,
            allow: StoredAllow::from(&token.allow),
        }
    }
}

impl TryFrom<StoredToken> for Token {
    type Error = Error;

    fn try_from(stored: StoredToken) -> Result<Self> {
        let role = Role::parse(&stored.role);
        let role = role.ok_or_else(|| Error::new(ErrorKind::StoreCorrupt, "an unknown role"))?;
        Ok(Self {
            realm: RealmId::parse(&stored.realm)?,
            role,
            client_id: stored.client_id,
            client_name: stored.client_name,
            approved_at: stored.approved_at,
            allow: stored.allow.into(),
        })
    }
}

/// Whether a role may be had in a realm by a token: `admin` exactly in `*` (F01).
///
/// # Errors
/// `bad_command`.
pub fn check_role(realm: &RealmId, role: Role) -> Result<()> {
    if (role == Role::Admin) == (realm.as_str() == EVERY_REALM) {
        return Ok(());
    }
    let message = "role admin goes with realm * and no other role does";
    Err(Error::new(ErrorKind::BadCommand, message))
}

impl Token {
    /// Whether it is a super-admin's.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin && self.realm.as_str() == EVERY_REALM
    }

    /// Whose queues its holder may use (P30).
    pub fn owner(&self, hash: &TokenHash) -> Arc<str> {
        match &self.client_id {
            Some(id) => format!("client:{id}").into(),
            None => format!("token:{hash}").into(),
        }
    }
}

/// What a token for provisioning realms by HTTP may do (admin.md §6.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagementToken {
    /// Realms that start so, and are longer.
    pub realm_prefix: Arc<str>,
    /// Whether its realms end by themselves.
    #[serde(default)]
    pub ephemeral_only: bool,
    /// How long they live at most.
    #[serde(default)]
    pub max_ttl: Option<Duration>,
}

impl ManagementToken {
    /// What a command asks for.
    ///
    /// # Errors
    /// As [`ManagementToken::check`].
    pub fn new(
        realm_prefix: &str,
        ephemeral_only: bool,
        max_ttl: Option<Duration>,
    ) -> Result<Self> {
        let token = Self {
            realm_prefix: realm_prefix.into(),
            ephemeral_only,
            max_ttl,
        };
        token.check()?;
        Ok(token)
    }

    /// Whether it may make this realm, or owns it.
    pub fn owns(&self, realm: &RealmId) -> bool {
        let name = realm.as_str();
        name.len() > self.realm_prefix.len() && name.starts_with(&*self.realm_prefix)
    }

    /// Checks the prefix.
    ///
    /// # Errors
    /// `bad_command`.
    pub fn check(&self) -> Result<()> {
        let prefix = &*self.realm_prefix;
        let is_good = !prefix.is_empty() && prefix.len() < 255 && prefix != EVERY_REALM;
        if is_good && !prefix.chars().any(char::is_control) && prefix.trim_start() == prefix {
            return Ok(());
        }
        let message = "realm_prefix has 1 to 254 bytes and is not *";
        Err(Error::new(ErrorKind::BadCommand, message))
    }
}

/// A token of either kind as the settings file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileToken<T> {
    /// What it is known by.
    pub hash: TokenHash,
    /// Its text, where the file has it: a super-admin's signs commands.
    pub secret: Option<Secret>,
    /// What it is for.
    pub entry: T,
}

fn known_by(reader: &mut Reader<'_>) -> Result<(TokenHash, Option<Secret>)> {
    if let Some(secret) = reader.secret(&["token"])? {
        reader.get(&["token_hash"]);
        return Ok((secret.hash(), Some(secret)));
    }
    let hash = reader.text(&["token_hash"])?.map(str::parse);
    match hash {
        Some(Ok(hash)) => Ok((hash, None)),
        Some(Err(_)) => Err(reader.wrong("token_hash", "64 hex digits")),
        None => Err(reader.wrong("token", "a text")),
    }
}

impl FileToken<Token> {
    /// Reads one item of `auth.tokens`.
    ///
    /// # Errors
    /// `config`, naming the path.
    pub(super) fn parse(path: &str, value: &Value, warnings: &mut Vec<String>) -> Result<Self> {
        let mut reader = Reader::new(path, value)?;
        let (hash, secret) = known_by(&mut reader)?;
        let realm = match reader.text(&["realm"])? {
            None => RealmId::default(),
            Some(name) => RealmId::parse(name)
                .map_err(|error| wrong(&reader.at("realm"), &format!("a name: {error}")))?,
        };
        let role = match reader.text(&["role"])? {
            None => Role::Both,
            Some(text) => Role::parse(text).ok_or_else(|| {
                reader.wrong("role", "producer, consumer, both, manager or admin")
            })?,
        };
        check_role(&realm, role)
            .map_err(|_| reader.wrong("role", "admin in realm *, and not admin elsewhere"))?;
        let entry = Token {
            client_id: reader.name(&["client_id"])?.map(Arc::from),
            client_name: reader.name(&["client_name"])?.map(Arc::from),
            approved_at: reader.name(&["approved_at"])?.map(Arc::from),
            allow: Allow::read(&mut reader)?,
            realm,
            role,
        };
        reader.finish(warnings);
        Ok(Self {
            hash,
            secret,
            entry,
        })
    }
}

impl FileToken<ManagementToken> {
    /// Reads one item of `auth.management_tokens`.
    ///
    /// # Errors
    /// `config`, naming the path.
    pub(super) fn parse(path: &str, value: &Value, warnings: &mut Vec<String>) -> Result<Self> {
        let mut reader = Reader::new(path, value)?;
        let (hash, _) = known_by(&mut reader)?;
        let entry = ManagementToken {
            realm_prefix: reader.text(&["realm_prefix"])?.unwrap_or_default().into(),
            ephemeral_only: reader.flag(&["ephemeral_only"])?.unwrap_or(false),
            max_ttl: reader.ttl(&["max_ttl"])?,
        };
        let checked = entry.check();
        checked.map_err(|_| reader.wrong("realm_prefix", "1 to 254 bytes and not *"))?;
        reader.finish(warnings);
        Ok(Self {
            hash,
            secret: None,
            entry,
        })
    }
}
