//! Realms: made, renamed, changed, closed and removed (admin.md §1.5–1.7, 4.2, 4.4). What becomes of their
//! sessions and messages is their caller's business, in the order of §1.6.

use std::sync::Arc;
use std::time::Duration;

use super::super::realm::refuse_fixed;
use super::super::records::{self, Stored};
use super::super::secret::{SHORTEST_SHARED, SHORTEST_SIGNING, warn_of_short};
use super::super::{Auth, E2ee, EVERY_REALM, Inner, RealmConfig, Secret, TokenHash, is_fixed};
use super::lifetime::{Lifetime, clamp};
use super::{MAX_ENTRIES, TRIES};
use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::store::Collection;
use crate::{Error, ErrorKind, Result};

/// Who asks for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Who holds an administrator's secret: may do anything.
    Administrator,
    /// Who holds the realm's `manager_key`: is held to what its management tokens say.
    RealmKey,
}

/// A realm to be made (`add_realm`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRealm {
    /// Whether it is closed; `None`: as authentication is on.
    pub required: Option<bool>,
    /// Signs its management and JWTs.
    pub manager_key: Option<Secret>,
    /// Signs its JWTs instead.
    pub jwt_key: Option<Secret>,
    /// Its consumers' pre-shared key.
    pub key: Option<Secret>,
    /// Whether the key must be shown; `None`: if there is one.
    pub require_key: Option<bool>,
    /// Whether producers need a credential.
    pub require_acceptance: Option<bool>,
    /// Whether clients may go without a name.
    pub allow_anonymous: Option<bool>,
    /// What it asks of bodies.
    pub e2ee: E2ee,
    /// How long it lives.
    pub lifetime: Lifetime,
}

fn unknown(realm: &RealmId) -> Error {
    Error::new(
        ErrorKind::RealmUnknown,
        format!("there is no realm {realm:?}"),
    )
}

fn exists(realm: &RealmId) -> Error {
    Error::new(
        ErrorKind::RealmExists,
        format!("there is a realm {realm:?} already"),
    )
}

impl RealmConfig {
    fn live(&mut self, lifetime: Lifetime, default_ttl: Duration, now: Timestamp) {
        let ttl = match lifetime {
            Lifetime::Permanent => None,
            Lifetime::Ephemeral(ttl) => Some(ttl.unwrap_or(default_ttl)),
        };
        self.ephemeral = ttl.is_some();
        self.ttl = ttl;
        self.expires_at = ttl.map(|ttl| now.plus(ttl));
    }
}

impl Inner {
    fn default_ttl(&self) -> Duration {
        self.state.read().settings.ephemeral_realm_ttl
    }

    fn put_realm(&self, realm: &RealmId, config: Option<RealmConfig>) {
        let config = config.map(Arc::new);
        self.change(|state| state.set_realm(realm, config));
    }

    /// Changes a realm; `default` is always there, others only if they are or `create` says so.
    async fn edit_realm(
        &self,
        realm: &RealmId,
        create: bool,
        edit: impl Fn(&mut RealmConfig),
    ) -> Result<()> {
        if realm.as_str() == EVERY_REALM {
            let message = "realm * has no settings";
            return Err(Error::new(ErrorKind::BadCommand, message));
        }
        let now = self.clock.now();
        let is_full = self.state.read().count_realms() >= MAX_ENTRIES;
        let edited = self.edit(
            Collection::Realms,
            realm.as_str(),
            |known: Option<RealmConfig>| {
                let mut config = match known {
                    Some(config) if config.is_expired(now) => return Err(unknown(realm)),
                    Some(config) => config,
                    None if is_full => return Err(full()),
                    None if create || is_fixed(realm) => RealmConfig::default(),
                    None => return Err(unknown(realm)),
                };
                edit(&mut config);
                Ok(Some(config))
            },
        );
        let config = edited.await?;
        self.put_realm(realm, config);
        Ok(())
    }

    async fn rename(&self, from: &RealmId, to: &RealmId) -> Result<()> {
        let keeper = &**self.keeper()?;
        let now = self.clock.now();
        let mut tries = TRIES;
        let config = loop {
            let source = records::one(keeper, Collection::Realms, from.as_str(), now).await?;
            let target = records::one(keeper, Collection::Realms, to.as_str(), now).await?;
            let config: RealmConfig = source.stored.entry.clone().ok_or_else(|| unknown(from))?;
            if config.is_expired(now) {
                return Err(unknown(from));
            }
            if target.stored.entry.is_some() || target.stored.moved_to.is_some() {
                return Err(exists(to));
            }
            let new = Stored {
                entry: Some(config.clone()),
                imported: target.stored.imported.clone(),
                ..Stored::default()
            };
            // Until the last token has followed, the old name points to the new one.
            let old = Stored {
                entry: None,
                imported: source.stored.imported.clone(),
                moved_to: Some(to.as_str().into()),
                removed_at: Some(now),
            };
            let changes = vec![
                records::put(Collection::Realms, &source, &old)?,
                records::put(Collection::Realms, &target, &new)?,
            ];
            match keeper.change_documents(changes, now).await {
                Err(error) if error.kind() == ErrorKind::Conflict && tries > 0 => tries -= 1,
                Err(error) => return Err(error),
                Ok(()) => break config,
            }
        };
        let tokens = self.state.read().tokens_of(from);
        self.change(|state| {
            state.set_realm(from, None);
            state.set_removed(from, now);
            state.set_realm(to, Some(Arc::new(config)));
            for hash in &tokens {
                if let Some(mut token) = state.token(hash).map(|token| (**token).clone()) {
                    token.realm = to.clone();
                    state.set_token(*hash, Some(Arc::new(token)));
                }
            }
        });
        for hash in tokens {
            let key = hash.to_string();
            let moved = self.edit(Collection::Tokens, &key, |token| {
                Ok(token.map(|mut token: super::super::Token| {
                    if token.realm == *from {
                        token.realm = to.clone();
                    }
                    token
                }))
            });
            moved.await?;
        }
        let clear = |known: Option<RealmConfig>| Ok(known);
        self.edit(Collection::Realms, from.as_str(), clear).await?;
        Ok(())
    }

    async fn remove(&self, realm: &RealmId) -> Result<Vec<TokenHash>> {
        if self.state.read().realm(realm).is_none() {
            return Err(unknown(realm));
        }
        let tokens = self.state.read().tokens_of(realm);
        // The realm goes last: what fails in between is begun anew.
        for hash in &tokens {
            self.drop_token(hash, realm).await?;
        }
        let now = self.clock.now();
        self.forget_realm(realm, now).await?;
        self.change(|state| {
            state.set_realm(realm, None);
            state.set_removed(realm, now);
        });
        Ok(tokens)
    }

    async fn forget_realm(&self, realm: &RealmId, now: Timestamp) -> Result<()> {
        let forgotten = self.rewrite(
            Collection::Realms,
            realm.as_str(),
            |known: &Stored<RealmConfig>| {
                Ok(Stored {
                    imported: known.imported.clone(),
                    removed_at: Some(now),
                    ..Stored::default()
                })
            },
        );
        forgotten.await.map(drop)
    }
}

fn full() -> Error {
    let message = format!("there are {MAX_ENTRIES} realms or tokens, which is all there can be");
    Error::new(ErrorKind::StoreFull, message)
}

pub(super) fn refuse_full(count: usize) -> Result<()> {
    if count >= MAX_ENTRIES {
        Err(full())
    } else {
        Ok(())
    }
}

impl Auth {
    /// Makes a realm; answers when it ends, if it does.
    ///
    /// # Errors
    /// `realm_exists`, also while one that has ended is not disposed of; `bad_command` for `*`, and for
    /// `default` with a lifetime; those of the store.
    pub async fn add_realm(&self, realm: RealmId, new: NewRealm) -> Result<Option<Timestamp>> {
        if realm.as_str() == EVERY_REALM || new.lifetime != Lifetime::Permanent {
            refuse_fixed(&realm)?;
        }
        for (what, key, shortest) in [
            ("manager_key", &new.manager_key, SHORTEST_SIGNING),
            ("jwt_key", &new.jwt_key, SHORTEST_SIGNING),
            ("key", &new.key, SHORTEST_SHARED),
        ] {
            warn_of_short(&realm, what, key.as_ref(), shortest);
        }
        self.whole(move |inner| async move {
            refuse_full(inner.state.read().count_realms())?;
            let mut config = RealmConfig {
                required: new.required,
                manager_key: new.manager_key,
                jwt_key: new.jwt_key,
                key: new.key.map(|key| key.hash()),
                require_key: new.require_key,
                require_acceptance: new.require_acceptance,
                allow_anonymous: new.allow_anonymous,
                e2ee: new.e2ee,
                ..RealmConfig::default()
            };
            config.live(new.lifetime, inner.default_ttl(), inner.clock.now());
            let end = config.expires_at;
            let added = inner.edit(Collection::Realms, realm.as_str(), |known| match known {
                Some::<RealmConfig>(_) => Err(exists(&realm)),
                None => Ok(Some(config.clone())),
            });
            let config = added.await?;
            inner.put_realm(&realm, config);
            Ok(end)
        })
        .await
    }

    /// Gives a realm and its tokens another name (admin.md §1.7); JWTs of the old name stop working.
    ///
    /// # Errors
    /// `bad_command` for `default` and `*`; `realm_unknown`; `realm_exists`; those of the store: what was
    /// begun is finished at the next reading.
    pub async fn rename_realm(&self, from: RealmId, to: RealmId) -> Result<()> {
        refuse_fixed(&from)?;
        refuse_fixed(&to)?;
        self.whole(move |inner| async move { inner.rename(&from, &to).await })
            .await
    }

    /// Ends a realm now: nobody is let in any more and its sessions end. It is there until
    /// [`remove_realm`](Auth::remove_realm), also after a crash: then [`ended_realms`](Auth::ended_realms)
    /// tells of it.
    ///
    /// # Errors
    /// `bad_command` for `default` and `*`; `realm_unknown`; those of the store.
    pub async fn close_realm(&self, realm: RealmId) -> Result<()> {
        refuse_fixed(&realm)?;
        self.whole(move |inner| async move {
            let now = inner.clock.now();
            let closed = inner.edit(Collection::Realms, realm.as_str(), |known| {
                let mut config: RealmConfig = known.ok_or_else(|| unknown(&realm))?;
                config.ephemeral = true;
                config.expires_at = Some(config.expires_at.map_or(now, |end| end.min(now)));
                Ok(Some(config))
            });
            let config = closed.await?;
            inner.put_realm(&realm, config);
            Ok(())
        })
        .await
    }

    /// Drops a realm's configuration and its tokens; answers which. Its sessions and what is stored of it
    /// must be gone before (admin.md §1.6).
    ///
    /// # Errors
    /// `bad_command` for `default` and `*`; `realm_unknown`; those of the store.
    pub async fn remove_realm(&self, realm: RealmId) -> Result<Vec<TokenHash>> {
        refuse_fixed(&realm)?;
        self.whole(move |inner| async move { inner.remove(&realm).await })
            .await
    }

    /// Whether a realm is closed or open (`set_realm_auth`).
    ///
    /// # Errors
    /// `realm_unknown` unless it is there or `create`; `bad_command` for `*`; those of the store. So for
    /// all that change a realm.
    pub async fn set_realm_auth(&self, realm: RealmId, required: bool, create: bool) -> Result<()> {
        self.whole(move |inner| async move {
            let edit = |config: &mut RealmConfig| config.required = Some(required);
            inner.edit_realm(&realm, create, edit).await
        })
        .await
    }

    /// Whether producers need a credential (`set_realm_acceptance`).
    ///
    /// # Errors
    /// As [`set_realm_auth`](Auth::set_realm_auth).
    pub async fn set_realm_acceptance(
        &self,
        realm: RealmId,
        required: bool,
        create: bool,
    ) -> Result<()> {
        self.whole(move |inner| async move {
            let edit = |config: &mut RealmConfig| config.require_acceptance = Some(required);
            inner.edit_realm(&realm, create, edit).await
        })
        .await
    }

    /// What a realm asks of bodies (`set_realm_e2ee`).
    ///
    /// # Errors
    /// As [`set_realm_auth`](Auth::set_realm_auth).
    pub async fn set_realm_e2ee(&self, realm: RealmId, e2ee: E2ee, create: bool) -> Result<()> {
        self.whole(move |inner| async move {
            let edit = |config: &mut RealmConfig| config.e2ee = e2ee;
            inner.edit_realm(&realm, create, edit).await
        })
        .await
    }

    /// Sets or clears a realm's manager key (`set_realm_manager_key`); sessions of JWTs that the old one
    /// signed end.
    ///
    /// # Errors
    /// As [`set_realm_auth`](Auth::set_realm_auth).
    pub async fn set_realm_manager_key(&self, realm: RealmId, key: Option<Secret>) -> Result<()> {
        warn_of_short(&realm, "manager_key", key.as_ref(), SHORTEST_SIGNING);
        self.whole(move |inner| async move {
            let edit = |config: &mut RealmConfig| config.manager_key.clone_from(&key);
            inner.edit_realm(&realm, false, edit).await
        })
        .await
    }

    /// Sets or clears the key that signs a realm's JWTs instead of its manager key (AF14); sessions of
    /// JWTs that the old one signed end.
    ///
    /// # Errors
    /// As [`set_realm_auth`](Auth::set_realm_auth).
    pub async fn set_realm_jwt_key(&self, realm: RealmId, key: Option<Secret>) -> Result<()> {
        warn_of_short(&realm, "jwt_key", key.as_ref(), SHORTEST_SIGNING);
        self.whole(move |inner| async move {
            let edit = |config: &mut RealmConfig| config.jwt_key.clone_from(&key);
            inner.edit_realm(&realm, false, edit).await
        })
        .await
    }

    /// Whether clients may go without a name in a realm.
    ///
    /// # Errors
    /// As [`set_realm_auth`](Auth::set_realm_auth).
    pub async fn set_realm_anonymous(
        &self,
        realm: RealmId,
        allowed: bool,
        create: bool,
    ) -> Result<()> {
        self.whole(move |inner| async move {
            let edit = |config: &mut RealmConfig| config.allow_anonymous = Some(allowed);
            inner.edit_realm(&realm, create, edit).await
        })
        .await
    }

    /// Sets or clears a realm's pre-shared key, and whether it is asked for if said (`set_realm_key`);
    /// sessions of the old key end.
    ///
    /// # Errors
    /// As [`set_realm_auth`](Auth::set_realm_auth).
    pub async fn set_realm_key(
        &self,
        realm: RealmId,
        key: Option<Secret>,
        require_key: Option<bool>,
    ) -> Result<()> {
        warn_of_short(&realm, "key", key.as_ref(), SHORTEST_SHARED);
        self.whole(move |inner| async move {
            let hash = key.map(|key| key.hash());
            let edit = |config: &mut RealmConfig| {
                config.key = hash;
                config.require_key = require_key.or(config.require_key);
            };
            inner.edit_realm(&realm, false, edit).await
        })
        .await
    }

    /// Gives a realm another lifetime from now on (`set_realm_lifetime`); answers when it ends, if it does.
    ///
    /// # Errors
    /// `bad_command` for `default` and `*`; `realm_unknown`; those of the store.
    pub async fn set_realm_lifetime(
        &self,
        realm: RealmId,
        lifetime: Lifetime,
        caller: Caller,
    ) -> Result<Option<Timestamp>> {
        refuse_fixed(&realm)?;
        self.whole(move |inner| async move {
            let default_ttl = inner.default_ttl();
            let lifetime = match caller {
                Caller::Administrator => lifetime,
                Caller::RealmKey => {
                    let state = inner.state.read();
                    let owners = state.management.values().filter(|token| token.owns(&realm));
                    clamp(lifetime, owners.map(|token| &**token), default_ttl)
                }
            };
            let now = inner.clock.now();
            let edit = |config: &mut RealmConfig| config.live(lifetime, default_ttl, now);
            inner.edit_realm(&realm, false, edit).await?;
            let state = inner.state.read();
            Ok(state.realm(&realm).and_then(|config| config.expires_at))
        })
        .await
    }

    /// Realms whose end has come and that are not removed yet, the earliest first: to be disposed of, at the
    /// start before the port opens.
    pub fn ended_realms(&self) -> Vec<RealmId> {
        self.0.state.read().ended(self.0.clock.now())
    }

    /// Waits until realms have ended, at least a second, and answers which. Their sessions are told by
    /// [`changes`](Auth::changes); whoever waits disposes of them and waits again.
    pub async fn next_ended(&self) -> Vec<RealmId> {
        const LEAST: Duration = Duration::from_secs(1);
        // The wall clock may be set.
        const MOST: Duration = Duration::from_secs(60);
        let mut changes = self.changes();
        let clock = &self.0.clock;
        clock.sleep_until(clock.elapsed() + LEAST).await;
        loop {
            changes.mark_unchanged();
            let ended = self.ended_realms();
            if !ended.is_empty() {
                self.0.tell();
                return ended;
            }
            let end = self.0.state.read().next_end();
            let wait = end.map_or(MOST, |end| end.since(clock.now()).clamp(LEAST, MOST));
            tokio::select! {
                () = clock.sleep_until(clock.elapsed() + wait) => {}
                // The sender lives as long as this.
                _ = changes.changed() => {}
            }
        }
    }
}
