//! The commands' side of this room: changes of realms, tokens, validators and the switch (admin.md §4.2).
//!
//! Every change goes into the documents first, on the condition that nobody else has changed the same, then
//! into memory, then [`changes`](super::Auth::changes) tells the sessions. One change at a time; a change
//! whose caller has gone away is finished. Typed arguments in, typed results out: `admin` reads commands and
//! proofs. Knows no command, no session and no queue.

mod external;
mod lifetime;
mod realms;
mod renames;
mod tokens;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::load::{self, TRIES};
use super::records::{self, Stored};
use super::state::State;
use super::{Auth, AuthSettings, Inner, Secret, TokenHash, bootstrap};
use crate::model::RealmId;
use crate::store::{Collection, Documents};
use crate::{Error, ErrorKind, Result};

pub use external::{SecretChange, ValidatorScope};
pub use lifetime::{Lifetime, clamp};
pub use realms::{Caller, NewRealm};
pub use tokens::{AddedToken, NewToken, TokenChoice, TokenText};

/// Most realms, and most tokens of each kind: all of them are in memory.
const MAX_ENTRIES: usize = 100_000;

impl Inner {
    pub(super) fn keeper(&self) -> Result<&Arc<dyn Documents>> {
        let message = "this server keeps no realms and tokens";
        let none = || Error::new(ErrorKind::Unsupported, message);
        self.documents.as_ref().ok_or_else(none)
    }

    /// Reads everything anew and puts it in force as a whole; answers which realms are there no more.
    async fn load(&self, settings: Arc<AuthSettings>) -> Result<Vec<RealmId>> {
        let keeper = self.keeper()?;
        let mut state = load::load(&**keeper, &settings, self.clock.now()).await?;
        state.bootstrap = self.find_bootstrap(&state).await?;
        let mut gone = Vec::new();
        self.change(|known| {
            let realms = known.realms().map(|(realm, _)| realm);
            gone.extend(realms.filter(|realm| state.realm(realm).is_none()).cloned());
            *known = state;
        });
        self.external.forget();
        Ok(gone)
    }

    /// The administrator's secret as it is to be; reads and may write a file.
    async fn find_bootstrap(&self, state: &State) -> Result<Option<Secret>> {
        // A token of which only the hash is known signs nothing.
        let must_have = state.enabled && state.admin_secrets().is_empty();
        let settings = state.settings.clone();
        let environment = self.environment.clone();
        let find = move || bootstrap::find(&settings, &*environment, must_have);
        let found = tokio::task::spawn_blocking(find).await;
        found.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?
    }

    /// Stores whether authentication is on, and what the settings said of it then.
    async fn keep_enabled(&self, enabled: bool, imported: bool) -> Result<()> {
        let stored = Stored {
            entry: Some(enabled),
            imported: Some(imported),
            ..Stored::default()
        };
        let written = self.rewrite(Collection::Settings, load::ENABLED, |_| Ok(stored.clone()));
        written.await.map(drop)
    }

    /// Changes one document by what it says now; answers what it says then. `None` from `edit` removes it.
    async fn edit<T>(
        &self,
        collection: Collection,
        key: &str,
        mut edit: impl FnMut(Option<T>) -> Result<Option<T>>,
    ) -> Result<Option<T>>
    where
        T: Clone + Serialize + DeserializeOwned,
    {
        let stored = self.rewrite(collection, key, |known: &Stored<T>| {
            let entry = edit(known.entry.clone())?;
            if entry.is_some() && known.moved_to.is_some() {
                let message = "this name was given up and its tokens are still to follow: reload";
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            Ok(Stored {
                removed_at: known.removed_at.filter(|_| entry.is_none()),
                entry,
                imported: known.imported.clone(),
                moved_to: None,
            })
        });
        Ok(stored.await?.entry)
    }

    /// Writes one document anew by all that is stored of it, again if somebody was faster.
    async fn rewrite<T>(
        &self,
        collection: Collection,
        key: &str,
        mut anew: impl FnMut(&Stored<T>) -> Result<Stored<T>>,
    ) -> Result<Stored<T>>
    where
        T: Clone + Serialize + DeserializeOwned,
    {
        let keeper = &**self.keeper()?;
        let now = self.clock.now();
        let mut tries = TRIES;
        loop {
            let read = records::one::<T>(keeper, collection, key, now).await?;
            let stored = anew(&read.stored)?;
            let change = records::put(collection, &read, &stored)?;
            match keeper.change_documents(vec![change], now).await {
                Err(error) if error.kind() == ErrorKind::Conflict && tries > 0 => tries -= 1,
                Err(error) => return Err(error),
                Ok(()) => return Ok(stored),
            }
        }
    }
}

impl Auth {
    /// Does a change as a whole, one at a time, whether or not the caller waits for it.
    async fn whole<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let inner = self.0.clone();
        let task = tokio::spawn(async move {
            let Ok(_turn) = inner.turn.acquire().await else {
                return Err(Error::new(
                    ErrorKind::ShuttingDown,
                    "the server is stopping",
                ));
            };
            work(inner.clone()).await
        });
        task.await
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?
    }

    /// Puts other settings in force as a whole: what is static becomes as they say, what is dynamic of them
    /// is taken in beside what is there (admin.md §5.2). Nothing changes on an error. Answers which realms
    /// are there no more: their sessions end.
    ///
    /// # Errors
    /// Those of the store; `config` if the env file cannot be read or written.
    pub async fn reload(&self, settings: AuthSettings) -> Result<Vec<RealmId>> {
        self.whole(move |inner| async move { inner.load(Arc::new(settings)).await })
            .await
    }

    /// Takes over what another broker has changed in the documents; answers as [`Auth::reload`].
    ///
    /// # Errors
    /// Those of the store.
    pub async fn reload_documents(&self) -> Result<Vec<RealmId>> {
        self.whole(|inner| async move {
            let settings = inner.state.read().settings.clone();
            inner.load(settings).await
        })
        .await
    }

    /// Switches authentication on or off (`set_global_auth`); a later edit of `auth.enabled` in the
    /// settings file wins. Sessions that would not be let in any more end.
    ///
    /// # Errors
    /// Those of the store; `config` if an administrator's secret has to be made and cannot be written.
    pub async fn set_global_auth(&self, enabled: bool) -> Result<()> {
        self.whole(move |inner| async move {
            let settings = inner.state.read().settings.clone();
            inner.keep_enabled(enabled, settings.enabled).await?;
            inner.load(settings).await.map(drop)
        })
        .await
    }

    /// Lets what the operator says at the start take the place of what a command has stored.
    pub(super) async fn overrule(&self, enabled: bool) -> Result<()> {
        let inner = &self.0;
        let (keeper, key) = (&**inner.keeper()?, load::ENABLED);
        let now = inner.clock.now();
        let read = records::one::<bool>(keeper, Collection::Settings, key, now).await?;
        if read.stored.entry != Some(!enabled) {
            return Ok(());
        }
        tracing::warn!(
            "authentication is {}, as the command line or the environment says, and not {}, as a command has said",
            super::on_or_off(enabled),
            super::on_or_off(!enabled)
        );
        inner.keep_enabled(enabled, enabled).await
    }

    /// What signs management commands as an administrator (admin.md §2.8): the bootstrap secret and the
    /// super-admins' tokens of the settings file. Of other tokens only hashes are known: they cannot sign.
    pub fn admin_secrets(&self) -> Vec<Secret> {
        self.0.state.read().admin_secrets()
    }

    /// What signs commands of one realm; `None`: it has none, or is gone.
    pub fn manager_key(&self, realm: &RealmId) -> Option<Secret> {
        let state = self.0.state.read();
        if state.is_gone(realm, self.0.clock.now()) {
            return None;
        }
        state.realm(realm)?.manager_key.clone()
    }

    /// Whether there is a configuration of this realm.
    pub fn is_configured(&self, realm: &RealmId) -> bool {
        self.0.state.read().realm(realm).is_some()
    }

    /// Whether a realm ends by itself one day, or has.
    pub fn is_ephemeral(&self, realm: &RealmId) -> bool {
        let state = self.0.state.read();
        state
            .realm(realm)
            .is_some_and(|config| config.expires_at.is_some())
    }

    /// Whether a realm's end has come: nothing is taken there any more.
    pub fn has_ended(&self, realm: &RealmId) -> bool {
        self.0.state.read().is_gone(realm, self.0.clock.now())
    }

    /// Whether a token of this hash exists, of whatever kind: another may not have the same text.
    pub fn is_token_known(&self, hash: &TokenHash) -> bool {
        self.0.state.read().is_known(hash)
    }
}

impl State {
    pub(super) fn is_known(&self, hash: &TokenHash) -> bool {
        let is_bootstrap = self.bootstrap.as_ref();
        self.token(hash).is_some()
            || self.management.contains_key(hash)
            || self
                .settings
                .monitor_tokens
                .iter()
                .any(|known| known.is(hash))
            || is_bootstrap.is_some_and(|secret| secret.hash().is(hash))
    }
}

#[cfg(test)]
mod tests;
