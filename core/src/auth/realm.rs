//! What is configured of a realm, and what follows from it (admin.md §1.3). Its keys stay as they are
//! where something is signed with them, else as hashes. Knows no other realm and no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reader::Reader;
use super::secret::{SHORTEST_SHARED, SHORTEST_SIGNING, stored};
use super::{Secret, TokenHash, ValidatorUrl};
use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::{Error, Result};

/// The realm of whoever sees every realm (admin.md §1.4).
pub const EVERY_REALM: &str = "*";

/// Whether commands may touch a realm's lifetime and name: not `default`, not `*`.
pub fn is_fixed(realm: &RealmId) -> bool {
    *realm == RealmId::default() || realm.as_str() == EVERY_REALM
}

/// What a realm asks of bodies (decided 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum E2ee {
    /// Nothing.
    #[default]
    Off,
    /// Encrypted ones are welcome.
    Opportunistic,
    /// Plain ones are refused (-6).
    Required,
}

impl E2ee {
    /// Reads its name; `None`: there is none such.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "off" => Self::Off,
            "opportunistic" => Self::Opportunistic,
            "required" => Self::Required,
            _ => return None,
        })
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Opportunistic => "opportunistic",
            Self::Required => "required",
        }
    }
}

/// One realm as it is configured; absent members follow from the others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RealmConfig {
    /// False: an open realm. Absent: a credential is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Signs management of this realm, and its JWTs unless there is a [`jwt_key`](Self::jwt_key).
    #[serde(skip_serializing_if = "Option::is_none", with = "stored")]
    pub manager_key: Option<Secret>,
    /// Signs its JWTs instead (F14).
    #[serde(skip_serializing_if = "Option::is_none", with = "stored")]
    pub jwt_key: Option<Secret>,
    /// The consumers' pre-shared key, by its hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<TokenHash>,
    /// Forces or waives the key; absent: as there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_key: Option<bool>,
    /// Whether producers need a credential; absent: as the realm does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_acceptance: Option<bool>,
    /// Whether producers and consumers may go without a name; absent: in `default` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_anonymous: Option<bool>,
    /// What it asks of bodies.
    #[serde(skip_serializing_if = "is_off")]
    pub e2ee: E2ee,
    /// Whether it ends by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// When an ephemeral one ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// How long an ephemeral one was to live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// Who outside is asked about its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_url: Option<ValidatorUrl>,
    /// What shows them that we ask.
    #[serde(skip_serializing_if = "Option::is_none", with = "stored")]
    pub auth_secret: Option<Secret>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_off(e2ee: &E2ee) -> bool {
    *e2ee == E2ee::Off
}

impl RealmConfig {
    /// Whether its end has come.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.ephemeral && self.expires_at.is_some_and(|end| end <= now)
    }

    /// The key that signs its JWTs.
    pub fn jwt_key(&self) -> Option<&Secret> {
        self.jwt_key.as_ref().or(self.manager_key.as_ref())
    }
}

/// What holds in a realm while authentication is on, configured or not (admin.md §1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether it is closed.
    pub auth_required: bool,
    /// Whether consumers have to show its key.
    pub key_required: bool,
    /// Whether producers have to show a credential.
    pub acceptance_required: bool,
}

impl Rules {
    /// What follows from a realm's configuration.
    pub fn of(config: Option<&RealmConfig>) -> Self {
        let auth_required = config.and_then(|config| config.required).unwrap_or(true);
        Self {
            auth_required,
            key_required: config
                .is_some_and(|config| config.require_key.unwrap_or(config.key.is_some())),
            acceptance_required: config
                .and_then(|config| config.require_acceptance)
                .unwrap_or(auth_required),
        }
    }
}

impl RealmConfig {
    /// Reads one member of `auth.realms`; `expires_at` is not counted from `ttl` yet.
    ///
    /// # Errors
    /// `config`, naming the path.
    pub(super) fn read(
        path: &str,
        realm: &RealmId,
        value: &Value,
        default_ttl: Duration,
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let mut reader = Reader::new(path, value)?;
        let mut config = Self {
            required: reader.flag(&["required"])?,
            manager_key: reader.chosen(&["manager_key"], SHORTEST_SIGNING, warnings)?,
            jwt_key: reader.chosen(&["jwt_key"], SHORTEST_SIGNING, warnings)?,
            key: reader
                .chosen(&["key", "preshared_key"], SHORTEST_SHARED, warnings)?
                .map(|key| key.hash()),
            require_key: reader.flag(&["require_key"])?,
            require_acceptance: reader.flag(&["require_acceptance"])?,
            allow_anonymous: reader.flag(&["allow_anonymous"])?,
            auth_url: ValidatorUrl::read(&mut reader, "auth_url")?,
            auth_secret: reader.secret(&["auth_secret"])?,
            ..Self::default()
        };
        if let Some(text) = reader.text(&["e2ee"])? {
            let wanted = "\"off\", \"opportunistic\" or \"required\"";
            config.e2ee = E2ee::parse(text).ok_or_else(|| reader.wrong("e2ee", wanted))?;
        }
        config.read_lifetime(&mut reader, default_ttl)?;
        if config.ephemeral && is_fixed(realm) {
            return Err(reader.wrong("ephemeral", "absent: this realm stays"));
        }
        reader.finish(warnings);
        Ok(config)
    }

    fn read_lifetime(&mut self, reader: &mut Reader<'_>, default_ttl: Duration) -> Result<()> {
        let ttl = reader.ttl(&["ttl"])?;
        let flag = reader.flag(&["ephemeral", "temporary", "disposable"])?;
        let end = match reader.get(&["expires_at"]).map(Value::as_u64) {
            None => None,
            Some(Some(millis)) => Some(Timestamp(millis)),
            Some(None) => return Err(reader.wrong("expires_at", "milliseconds since 1970")),
        };
        self.ephemeral = flag.unwrap_or(ttl.is_some() || end.is_some());
        if self.ephemeral {
            self.expires_at = end;
            self.ttl = end.is_none().then(|| ttl.unwrap_or(default_ttl));
        }
        Ok(())
    }

    /// As the file has it, for the first time: its life begins.
    pub(super) fn begun(mut self, now: Timestamp) -> Self {
        if let Some(ttl) = self.ttl {
            self.expires_at = Some(now.plus(ttl));
        }
        self
    }

    /// What it is from now on if the file said `before` and says `file`: what was changed there, and of the
    /// rest what commands have made of it.
    pub(super) fn merged(self, before: &Self, file: &Self, now: Timestamp) -> Self {
        let mut merged = self;
        macro_rules! take {
            ($($member:ident),*) => {$(
                if before.$member != file.$member {
                    merged.$member = file.$member.clone();
                }
            )*};
        }
        take!(
            required,
            manager_key,
            jwt_key,
            key,
            require_key,
            require_acceptance,
            allow_anonymous,
            e2ee,
            auth_url,
            auth_secret
        );
        let life = |config: &Self| (config.ephemeral, config.ttl, config.expires_at);
        if life(before) != life(file) {
            let begun = file.clone().begun(now);
            (merged.ephemeral, merged.ttl, merged.expires_at) = life(&begun);
        }
        merged
    }
}

/// The refusal of commands that would touch `default` or `*`.
pub(super) fn refuse_fixed(realm: &RealmId) -> Result<()> {
    if is_fixed(realm) {
        let message = "realms default and * cannot be removed, renamed or given a lifetime";
        return Err(Error::new(crate::ErrorKind::BadCommand, message));
    }
    Ok(())
}
