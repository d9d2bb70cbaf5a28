//! Brings together what the documents say and what the settings file says (admin.md §5.2): entries of the
//! file are taken into the documents by their key and delete nothing there; what was edited in the file
//! since it was read last wins, all else stays as commands have left it. Called by the registry at start and
//! at every reload.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::outside::{ExternalValidator, ValidatorUrl, Validators};
use super::records::{self, Read, Stored};
use super::secret::stored;
use super::state::State;
use super::{AuthSettings, ManagementToken, RealmConfig, Secret, Token, TokenHash};
use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::store::{Collection, Condition, DocumentChange, Documents};
use crate::{ErrorKind, Result};

/// The document that says whether authentication is on, once a command has said so.
pub(super) const ENABLED: &str = "enabled";
/// The document of the validator of every realm, once a command has set one.
pub(super) const GLOBAL: &str = "validator";
/// Before the prefix: the document of a validator of realms with it.
pub(super) const PREFIX: &str = "validator:";
/// Before the old name: the document of a rename under way.
pub(super) const RENAME: &str = "rename:";
/// How often to begin anew when another broker changes the same.
pub(super) const TRIES: usize = 5;

/// The validator of every realm; its secret may stand without it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(default)]
pub(super) struct Global {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<ValidatorUrl>,
    #[serde(skip_serializing_if = "Option::is_none", with = "stored")]
    pub(super) secret: Option<Secret>,
}

impl Global {
    pub(super) fn apply(self, validators: &mut Validators) {
        validators.global = self.url.map(|url| ExternalValidator {
            url,
            secret: self.secret.clone(),
        });
        validators.secret = self.secret;
    }
}

/// Everything that is known, with what the file has new written into the documents.
pub(super) async fn load(
    documents: &dyn Documents,
    settings: &Arc<AuthSettings>,
    now: Timestamp,
) -> Result<State> {
    let mut tries = TRIES;
    loop {
        let mut merge = Merge {
            now,
            state: State::of(settings.clone()),
            changes: Vec::new(),
            last: Vec::new(),
        };
        let moved = merge.realms(records::all(documents, Collection::Realms, now).await?)?;
        merge.tokens(
            records::all(documents, Collection::Tokens, now).await?,
            &moved,
        )?;
        let management = records::all(documents, Collection::ManagementTokens, now).await?;
        merge.management(management)?;
        merge.settings(documents).await?;
        merge.changes.append(&mut merge.last);
        match records::write(documents, merge.changes, now).await {
            Err(error) if error.kind() == ErrorKind::Conflict && tries > 0 => tries -= 1,
            Err(error) => return Err(error),
            Ok(()) => return Ok(merge.state),
        }
    }
}

struct Merge {
    now: Timestamp,
    state: State,
    changes: Vec<DocumentChange>,
    /// What is to be written after them.
    last: Vec<DocumentChange>,
}

impl Merge {
    /// One entry of the file with its document; answers what holds.
    fn entry<T: Clone + PartialEq + Serialize>(
        &mut self,
        collection: Collection,
        read: &Read<T>,
        file: Option<&T>,
        merged: impl FnOnce(T, &T, &T) -> T,
        begun: impl FnOnce(T) -> T,
    ) -> Result<Option<T>> {
        let Some(file) = file else {
            return Ok(read.stored.entry.clone());
        };
        let entry = match (&read.stored.entry, &read.stored.imported) {
            (_, Some(before)) if before == file => return Ok(read.stored.entry.clone()),
            (Some(entry), Some(before)) => merged(entry.clone(), before, file),
            _ => begun(file.clone()),
        };
        let stored = Stored {
            entry: Some(entry.clone()),
            imported: Some(file.clone()),
            ..Stored::default()
        };
        self.changes.push(records::put(collection, read, &stored)?);
        Ok(Some(entry))
    }

    /// Answers which realms have another name now.
    fn realms(&mut self, reads: Vec<Read<RealmConfig>>) -> Result<HashMap<RealmId, RealmId>> {
        let now = self.now;
        let settings = self.state.settings.clone();
        let mut moved = HashMap::new();
        let mut reads = by_key(reads);
        for (realm, file) in &settings.realms {
            let read = reads.remove(realm.as_str());
            let read = read.unwrap_or_else(|| absent(realm.as_str()));
            let entry = self.entry(
                Collection::Realms,
                &read,
                Some(file),
                |entry, before, file| entry.merged(before, file, now),
                |file| file.begun(now),
            )?;
            if let Some(to) = &read.stored.moved_to {
                moved.insert(realm.clone(), RealmId::parse(to)?);
                if entry.is_none() {
                    self.arrived(&read)?;
                }
            }
            let removed = read.stored.removed_at.filter(|_| entry.is_none());
            self.state.set_realm(realm, entry.map(Arc::new));
            if let Some(at) = removed {
                self.state.set_removed(realm, at);
            }
        }
        for (key, read) in reads {
            let realm = RealmId::parse(&key)?;
            if let Some(to) = &read.stored.moved_to {
                moved.insert(realm.clone(), RealmId::parse(to)?);
                self.arrived(&read)?;
            }
            self.state
                .set_realm(&realm, read.stored.entry.map(Arc::new));
            if let Some(at) = read.stored.removed_at {
                self.state.set_removed(&realm, at);
            }
        }
        Ok(moved)
    }

    /// The old name of a renamed realm points nowhere any more, once its tokens have followed.
    fn arrived(&mut self, read: &Read<RealmConfig>) -> Result<()> {
        let stored = Stored {
            moved_to: None,
            ..read.stored.clone()
        };
        let change = records::put(Collection::Realms, read, &stored)?;
        self.last.push(change);
        Ok(())
    }

    fn tokens(&mut self, reads: Vec<Read<Token>>, moved: &HashMap<RealmId, RealmId>) -> Result<()> {
        let settings = self.state.settings.clone();
        let mut reads = by_key(reads);
        for file in &settings.tokens {
            let key = file.hash.to_string();
            let read = reads.remove(&*key).unwrap_or_else(|| absent(&key));
            if read.stored.imported.as_ref() == Some(&file.entry) {
                self.token(file.hash, read, moved)?;
                continue;
            }
            let entry = self.entry(
                Collection::Tokens,
                &read,
                Some(&file.entry),
                |_, _, file| file.clone(),
                |file| file,
            )?;
            self.state.set_token(file.hash, entry.map(Arc::new));
        }
        for (key, read) in reads {
            self.token(key.parse()?, read, moved)?;
        }
        Ok(())
    }

    /// A token as its document has it; a rename that was not finished is.
    fn token(
        &mut self,
        hash: TokenHash,
        mut read: Read<Token>,
        moved: &HashMap<RealmId, RealmId>,
    ) -> Result<()> {
        if let Some(token) = &mut read.stored.entry
            && let Some(to) = moved.get(&token.realm)
        {
            token.realm = to.clone();
            let change = records::put(Collection::Tokens, &read, &read.stored)?;
            self.changes.push(change);
        }
        self.state.set_token(hash, read.stored.entry.map(Arc::new));
        Ok(())
    }

    fn management(&mut self, reads: Vec<Read<ManagementToken>>) -> Result<()> {
        let settings = self.state.settings.clone();
        let mut reads = by_key(reads);
        for file in &settings.management_tokens {
            let key = file.hash.to_string();
            let read = reads.remove(&*key).unwrap_or_else(|| absent(&key));
            let entry = self.entry(
                Collection::ManagementTokens,
                &read,
                Some(&file.entry),
                |_, _, file| file.clone(),
                |file| file,
            )?;
            if let Some(entry) = entry {
                self.state.management.insert(file.hash, Arc::new(entry));
            }
        }
        for (key, read) in reads {
            if let Some(entry) = read.stored.entry {
                self.state.management.insert(key.parse()?, Arc::new(entry));
            }
        }
        Ok(())
    }

    async fn settings(&mut self, documents: &dyn Documents) -> Result<()> {
        let settings = self.state.settings.clone();
        self.state.enabled = self.single(documents, ENABLED, &settings.enabled).await?;
        let file = Global {
            url: settings.auth_url.clone(),
            secret: settings.auth_secret.clone(),
        };
        let global = self.single(documents, GLOBAL, &file).await?;
        global.apply(&mut self.state.validators);
        let mut known = HashSet::new();
        for (prefix, file) in &settings.external_validators {
            let key = format!("{PREFIX}{prefix}");
            let read = records::one(documents, Collection::Settings, &key, self.now).await?;
            let entry = self.entry(
                Collection::Settings,
                &read,
                Some(file),
                |_, _, file| file.clone(),
                |file| file,
            )?;
            self.state.validators.set_prefix(prefix, entry);
            known.insert(key);
        }
        let reads = records::all::<serde_json::Value>(documents, Collection::Settings, self.now);
        for read in reads.await? {
            let Some(prefix) = read.key.strip_prefix(PREFIX) else {
                continue;
            };
            if known.contains(&*read.key) {
                continue;
            }
            let one: Read<ExternalValidator> =
                records::one(documents, Collection::Settings, &read.key, self.now).await?;
            self.state.validators.set_prefix(prefix, one.stored.entry);
        }
        Ok(())
    }

    /// What the file says, unless a command has said otherwise since.
    async fn single<T: Clone + PartialEq + Serialize + DeserializeOwned>(
        &mut self,
        documents: &dyn Documents,
        key: &str,
        file: &T,
    ) -> Result<T> {
        let read = records::one(documents, Collection::Settings, key, self.now).await?;
        if read.unchanged == Condition::Absent {
            return Ok(file.clone());
        }
        let entry = self.entry(
            Collection::Settings,
            &read,
            Some(file),
            |_, _, file| file.clone(),
            |file| file,
        )?;
        Ok(entry.unwrap_or_else(|| file.clone()))
    }
}

fn by_key<T>(reads: Vec<Read<T>>) -> HashMap<Arc<str>, Read<T>> {
    let reads = reads.into_iter();
    reads.map(|read| (read.key.clone(), read)).collect()
}

fn absent<T>(key: &str) -> Read<T> {
    Read {
        key: key.into(),
        stored: Stored::default(),
        unchanged: Condition::Absent,
    }
}
