//! Orders about realms (admin.md §1.6, §1.7, §4.2).

use std::sync::Arc;

use super::Admin;
use super::command::RealmChange;
use super::reply::Done;
use crate::auth::{Authority, Caller, NewRealm};
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

/// Whether a change was refused before anything of it was done.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BadCommand
            | ErrorKind::BadName
            | ErrorKind::RealmUnknown
            | ErrorKind::RealmExists
    )
}

/// A realm that is being renamed here, until it is dropped.
struct Ours<'a>(&'a Admin, &'a RealmId);

impl<'a> Ours<'a> {
    fn note(admin: &'a Admin, realm: &'a RealmId) -> Self {
        admin.renaming.lock().insert(realm.clone());
        Self(admin, realm)
    }
}

impl Drop for Ours<'_> {
    fn drop(&mut self) {
        self.0.renaming.lock().remove(self.1);
    }
}

impl Admin {
    pub(super) async fn add_realm(&self, realm: RealmId, new: NewRealm) -> Result<Done> {
        let ends = self.auth.add_realm(realm, new).await?;
        Ok(match ends {
            Some(end) => Done::default().with("expires_at", end.0),
            None => Done::default(),
        })
    }

    pub(super) async fn set_realm(
        &self,
        realm: RealmId,
        change: RealmChange,
        create: bool,
        by: &Authority,
    ) -> Result<Done> {
        let caller = match by {
            Authority::Global => Caller::Administrator,
            Authority::Realm(_) => Caller::RealmKey,
        };
        let auth = &self.auth;
        let set = async {
            use RealmChange as To;
            match change {
                To::Required(required) => auth.set_realm_auth(realm, required, create).await,
                To::Acceptance(required) => {
                    auth.set_realm_acceptance(realm, required, create).await
                }
                To::E2ee(policy) => auth.set_realm_e2ee(realm, policy, create).await,
                To::Anonymous(allowed) => auth.set_realm_anonymous(realm, allowed, create).await,
                To::ManagerKey(key) => auth.set_realm_manager_key(realm, key).await,
                To::JwtKey(key) => auth.set_realm_jwt_key(realm, key).await,
                To::Key(key, must_show) => auth.set_realm_key(realm, key, must_show).await,
                To::Lifetime(lifetime) => {
                    let set = auth.set_realm_lifetime(realm, lifetime, caller);
                    set.await.map(drop)
                }
            }
        };
        self.end_unfounded(set).await.map(|(_, done)| done)
    }

    pub(super) async fn rename_realm(&self, from: RealmId, to: RealmId) -> Result<Done> {
        let _ours = Ours::note(self, &from);
        let auth = &self.auth;
        let before = self.broker.sessions_of(Some(&from)).len();
        auth.begin_rename(&from, &to).await?;
        let renamed = async {
            // A refusal leaves everything as it is, sessions too.
            if !auth.is_configured(&to) {
                self.broker.check_rename(&to).await?;
            }
            auth.rename_realm(from.clone(), to.clone()).await
        };
        if let Err(error) = renamed.await {
            // What was begun of it is finished at the next reading, and then it is looked at again.
            if is_refusal(&error) {
                auth.end_rename(&from).await?;
            }
            return Err(error);
        }
        if let Err(error) = self.broker.rename_realm(&from, &to).await {
            // What waits keeps the old name, and so must its realm.
            match auth.rename_realm(to, from.clone()).await {
                Ok(()) => auth.end_rename(&from).await?,
                Err(second) => {
                    tracing::error!("a realm that was half renamed keeps its new name: {second}");
                }
            }
            return Err(error);
        }
        let now = self.clock.now();
        self.requests.rename_realm(&from, &to, now).await?;
        auth.end_rename(&from).await?;
        Ok(Done::default().sessions(before))
    }

    /// Renames that other brokers on the store have begun and not ended: from which name to which.
    ///
    /// # Errors
    /// What the store says.
    pub async fn renames_elsewhere(&self) -> Result<Vec<[RealmId; 2]>> {
        let open = self.auth.open_renames().await?.into_iter();
        let ours = self.renaming.lock();
        let others = open.filter(|(from, ..)| !ours.contains(from));
        Ok(others.map(|(from, to, _)| [from, to]).collect())
    }

    /// Finishes renames that a crash has cut short.
    ///
    /// # Errors
    /// What the stores say.
    pub async fn finish_renames(&self) -> Result<()> {
        for (from, to, has_it) in self.auth.open_renames().await? {
            if has_it {
                tracing::info!(%from, %to, "a rename that was cut short is finished");
                match self.broker.rename_realm(&from, &to).await {
                    // All that is stored has followed before.
                    Err(error) if error.kind() == ErrorKind::BadName => {}
                    renamed => drop(renamed?),
                }
                let now = self.clock.now();
                self.requests.rename_realm(&from, &to, now).await?;
            }
            self.auth.end_rename(&from).await?;
        }
        Ok(())
    }

    pub(super) async fn remove_realm(&self, realm: RealmId) -> Result<Done> {
        let before = self.broker.sessions_of(Some(&realm)).len();
        self.auth.close_realm(realm.clone()).await?;
        let tokens = self.dispose(realm).await?;
        let done = Done::default().with("removed_tokens", tokens);
        Ok(done.sessions(before))
    }

    /// Ends a closed realm: its sessions, what is stored of it, its requests, its tokens, then its
    /// settings (admin.md §1.6); how many tokens those were. What fails is begun anew by the next call.
    ///
    /// # Errors
    /// What the stores say.
    pub async fn dispose(&self, realm: RealmId) -> Result<usize> {
        // They hear why before they are closed.
        self.host.roll_call()();
        self.broker.remove_realm(&realm).await?;
        self.requests.drop_realm(&realm, self.clock.now()).await?;
        match self.auth.remove_realm(realm).await {
            Ok(tokens) => Ok(tokens.len()),
            // Somebody else was quicker.
            Err(error) if error.kind() == ErrorKind::RealmUnknown => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Disposes of realms when their end has come, as long as the server runs.
    pub async fn dispose_of_ended(self: Arc<Self>) {
        loop {
            for realm in self.auth.next_ended().await {
                tracing::info!(%realm, "a realm has come to its end");
                if let Err(error) = self.dispose(realm.clone()).await {
                    tracing::warn!(%realm, "a realm that has ended could not be disposed of: {error}");
                }
            }
        }
    }
}
