//! Who outside is asked about tokens: set and cleared by scope (`set_external_auth`, admin.md §4.2).

use super::super::load::{GLOBAL, Global, PREFIX};
use super::super::outside::ExternalValidator;
use super::super::records::{self, Stored};
use super::super::{Auth, Inner, RealmConfig, Secret, ValidatorUrl};
use super::TRIES;
use crate::model::RealmId;
use crate::store::{Collection, Condition};
use crate::{Error, ErrorKind, Result};

/// For whose tokens a validator is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidatorScope {
    /// Those of one realm.
    Realm(RealmId),
    /// Those of realms that start so.
    Prefix(Box<str>),
    /// All others.
    Global,
}

/// What is to become of a validator's secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretChange {
    /// It stays.
    Keep,
    /// There is none.
    Clear,
    /// It is this one.
    Set(Secret),
}

impl SecretChange {
    fn apply(&self, old: Option<Secret>) -> Option<Secret> {
        match self {
            Self::Keep => old,
            Self::Clear => None,
            Self::Set(secret) => Some(secret.clone()),
        }
    }
}

impl Inner {
    async fn set_realm_validator(
        &self,
        realm: &RealmId,
        url: Option<&ValidatorUrl>,
        secret: &SecretChange,
    ) -> Result<()> {
        let edited = self.edit(Collection::Realms, realm.as_str(), |known| {
            let unknown = || Error::new(ErrorKind::RealmUnknown, "there is no such realm");
            let mut config: RealmConfig = known.ok_or_else(unknown)?;
            config.auth_secret = secret.apply(config.auth_secret.take());
            if url.is_none() {
                config.auth_secret = None;
            }
            config.auth_url = url.cloned();
            Ok(Some(config))
        });
        let config = edited.await?.map(std::sync::Arc::new);
        self.change(|state| state.set_realm(realm, config));
        Ok(())
    }

    async fn set_prefix_validator(
        &self,
        prefix: &str,
        url: Option<ValidatorUrl>,
        secret: &SecretChange,
    ) -> Result<()> {
        let key = format!("{PREFIX}{prefix}");
        let edited = self.edit(
            Collection::Settings,
            &key,
            |known: Option<ExternalValidator>| {
                let old = known.and_then(|one| one.secret);
                Ok(url.clone().map(|url| ExternalValidator {
                    url,
                    secret: secret.apply(old),
                }))
            },
        );
        let one = edited.await?;
        self.change(|state| state.validators.set_prefix(prefix, one));
        Ok(())
    }

    async fn set_global_validator(
        &self,
        url: Option<ValidatorUrl>,
        secret: &SecretChange,
    ) -> Result<()> {
        let settings = self.state.read().settings.clone();
        let file = Global {
            url: settings.auth_url.clone(),
            secret: settings.auth_secret.clone(),
        };
        let keeper = &**self.keeper()?;
        let now = self.clock.now();
        let mut tries = TRIES;
        loop {
            let read = records::one::<Global>(keeper, Collection::Settings, GLOBAL, now).await?;
            let old = match (read.unchanged, read.stored.entry.clone()) {
                (Condition::Absent, _) | (_, None) => file.clone(),
                (_, Some(entry)) => entry,
            };
            let entry = Global {
                url: url.clone(),
                secret: secret.apply(old.secret),
            };
            let stored = Stored {
                entry: Some(entry.clone()),
                imported: Some(file.clone()),
                ..Stored::default()
            };
            let change = records::put(Collection::Settings, &read, &stored)?;
            match keeper.change_documents(vec![change], now).await {
                Err(error) if error.kind() == ErrorKind::Conflict && tries > 0 => tries -= 1,
                Err(error) => return Err(error),
                Ok(()) => {
                    self.change(|state| entry.apply(&mut state.validators));
                    return Ok(());
                }
            }
        }
    }
}

impl Auth {
    /// Sets who is asked for a scope, or with no address that nobody is.
    ///
    /// # Errors
    /// `realm_unknown`; `bad_command` for an empty or too long prefix; those of the store.
    pub async fn set_external_auth(
        &self,
        scope: ValidatorScope,
        url: Option<ValidatorUrl>,
        secret: SecretChange,
    ) -> Result<()> {
        if let ValidatorScope::Prefix(prefix) = &scope
            && (prefix.is_empty() || prefix.len() > 255 || prefix.chars().any(char::is_control))
        {
            let message = "realm_prefix has 1 to 255 bytes without control characters";
            return Err(Error::new(ErrorKind::BadCommand, message));
        }
        self.whole(move |inner| async move {
            match scope {
                ValidatorScope::Realm(realm) => {
                    inner
                        .set_realm_validator(&realm, url.as_ref(), &secret)
                        .await
                }
                ValidatorScope::Prefix(prefix) => {
                    inner.set_prefix_validator(&prefix, url, &secret).await
                }
                ValidatorScope::Global => inner.set_global_validator(url, &secret).await,
            }?;
            inner.external.forget();
            Ok(())
        })
        .await
    }
}
