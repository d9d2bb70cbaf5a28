//! All that is known of who may do what, at one moment, in memory: what the settings say and what the
//! documents say, with the indexes that questions need. Decides nothing and writes nothing. Called by
//! `identify` and `check` to read, by the registry to change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::outside::Validators;
use super::records::remembered_until;
use super::{AuthSettings, E2ee, ManagementToken, RealmConfig, Rules, Secret, Token, TokenHash};
use crate::clock::Timestamp;
use crate::model::RealmId;

/// Most removed realms that are known to be gone, the latest ones.
const MAX_REMOVED: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What only the settings say.
    pub(super) settings: Arc<AuthSettings>,
    /// Whether authentication is on.
    pub(super) enabled: bool,
    realms: BTreeMap<RealmId, Arc<RealmConfig>>,
    /// Since when realms of these names are gone.
    removed: HashMap<RealmId, Timestamp>,
    tokens: HashMap<TokenHash, Arc<Token>>,
    by_realm: HashMap<RealmId, BTreeSet<TokenHash>>,
    by_client: HashMap<(RealmId, Arc<str>), BTreeSet<TokenHash>>,
    ends: BTreeSet<(Timestamp, RealmId)>,
    encrypted: usize,
    /// Management tokens, by hash.
    pub(super) management: BTreeMap<TokenHash, Arc<ManagementToken>>,
    /// External validators but those of single realms.
    pub(super) validators: Validators,
    /// The administrator's secret of this process.
    pub(super) bootstrap: Option<Secret>,
}

impl State {
    /// Nothing but what only the settings say.
    pub(super) fn of(settings: Arc<AuthSettings>) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    pub(super) fn realm(&self, realm: &RealmId) -> Option<&Arc<RealmConfig>> {
        self.realms.get(realm)
    }

    pub(super) fn realms(&self) -> impl Iterator<Item = (&RealmId, &Arc<RealmConfig>)> {
        self.realms.iter()
    }

    pub(super) fn count_realms(&self) -> usize {
        self.realms.len()
    }

    /// What holds in a realm, configured or not.
    pub(super) fn rules(&self, realm: &RealmId) -> Rules {
        Rules::of(self.realm(realm).map(|config| &**config))
    }

    /// Whether a realm's end has come, disposed of or not. One that was removed is there again once it is
    /// configured anew or a token is for it: all it had were dropped (admin.md §1.6).
    pub(super) fn is_gone(&self, realm: &RealmId, now: Timestamp) -> bool {
        match self.realm(realm) {
            Some(config) => config.is_expired(now),
            None if self.by_realm.contains_key(realm) => false,
            None => {
                let removed = self.removed.get(realm);
                removed.is_some_and(|at| now < remembered_until(*at))
            }
        }
    }

    /// A realm of this name was removed: until it is configured anew nothing that names it is let in.
    pub(super) fn set_removed(&mut self, realm: &RealmId, at: Timestamp) {
        if self.realms.contains_key(realm) {
            return;
        }
        if self.removed.len() >= MAX_REMOVED {
            let oldest = self.removed.iter().min_by_key(|(_, at)| **at);
            let oldest = oldest.map(|(realm, _)| realm.clone());
            oldest.map(|oldest| self.removed.remove(&oldest));
        }
        self.removed.insert(realm.clone(), at);
    }

    /// Puts or removes a realm.
    pub(super) fn set_realm(&mut self, realm: &RealmId, config: Option<Arc<RealmConfig>>) {
        if let Some(old) = self.realms.remove(realm) {
            if let Some(end) = old.expires_at {
                self.ends.remove(&(end, realm.clone()));
            }
            self.encrypted -= usize::from(old.e2ee == E2ee::Required);
        }
        let Some(config) = config else {
            return;
        };
        if config.ephemeral
            && let Some(end) = config.expires_at
        {
            self.ends.insert((end, realm.clone()));
        }
        self.encrypted += usize::from(config.e2ee == E2ee::Required);
        self.removed.remove(realm);
        self.realms.insert(realm.clone(), config);
    }

    /// When the next realm ends.
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Realms whose end has come, the earliest first.
    pub(super) fn ended(&self, now: Timestamp) -> Vec<RealmId> {
        let ended = self.ends.iter().take_while(|(end, _)| *end <= now);
        ended.map(|(_, realm)| realm.clone()).collect()
    }

    /// Whether any realm takes encrypted bodies only.
    pub(super) fn has_encrypted(&self) -> bool {
        self.encrypted > 0
    }

    pub(super) fn token(&self, hash: &TokenHash) -> Option<&Arc<Token>> {
        self.tokens.get(hash)
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = (&TokenHash, &Arc<Token>)> {
        self.tokens.iter()
    }

    pub(super) fn count_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens of a realm.
    pub(super) fn tokens_of(&self, realm: &RealmId) -> Vec<TokenHash> {
        let hashes = self.by_realm.get(realm).into_iter().flatten();
        hashes.copied().collect()
    }

    /// The tokens of a client in a realm.
    pub(super) fn tokens_of_client(&self, realm: &RealmId, client_id: &str) -> Vec<TokenHash> {
        let key = (realm.clone(), Arc::from(client_id));
        let hashes = self.by_client.get(&key).into_iter().flatten();
        hashes.copied().collect()
    }

    /// Puts or removes a token.
    pub(super) fn set_token(&mut self, hash: TokenHash, token: Option<Arc<Token>>) {
        if let Some(old) = self.tokens.remove(&hash) {
            unlink(&mut self.by_realm, old.realm.clone(), &hash);
            if let Some(id) = &old.client_id {
                unlink(&mut self.by_client, (old.realm.clone(), id.clone()), &hash);
            }
        }
        let Some(token) = token else {
            return;
        };
        let realm = token.realm.clone();
        if let Some(id) = &token.client_id {
            let key = (realm.clone(), id.clone());
            self.by_client.entry(key).or_default().insert(hash);
        }
        self.by_realm.entry(realm).or_default().insert(hash);
        self.tokens.insert(hash, token);
    }

    /// What signs commands as an administrator: the bootstrap secret, and the super-admins' tokens of the
    /// settings file that are still in force. Of other tokens the text is not known.
    pub(super) fn admin_secrets(&self) -> Vec<Secret> {
        let listed = self.settings.tokens.iter().filter_map(|token| {
            let known = self.token(&token.hash)?;
            token.secret.clone().filter(|_| known.is_admin())
        });
        self.bootstrap.iter().cloned().chain(listed).collect()
    }
}

fn unlink<K: std::hash::Hash + Eq>(
    index: &mut HashMap<K, BTreeSet<TokenHash>>,
    key: K,
    hash: &TokenHash,
) {
    if let Some(hashes) = index.get_mut(&key) {
        hashes.remove(hash);
        if hashes.is_empty() {
            index.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Allow, Role};
    use super::*;

    fn token(realm: &str, client: Option<&str>) -> Option<Arc<Token>> {
        Some(Arc::new(Token {
            realm: RealmId::parse(realm).unwrap(),
            role: Role::Both,
            client_id: client.map(Arc::from),
            client_name: None,
            approved_at: None,
            allow: Allow::default(),
        }))
    }

    #[test]
    fn indexes_follow_what_is_put_changed_and_removed() {
        let mut state = State::default();
        let (acme, other) = (
            RealmId::parse("acme").unwrap(),
            RealmId::parse("b").unwrap(),
        );
        let hash = TokenHash::of("t");
        state.set_token(hash, token("acme", Some("c")));
        assert_eq!(state.tokens_of(&acme), [hash]);
        assert_eq!(state.tokens_of_client(&acme, "c"), [hash]);
        state.set_token(hash, token("b", None));
        assert!(state.tokens_of(&acme).is_empty() && state.by_client.is_empty());
        assert_eq!(state.tokens_of(&other), [hash]);
        state.set_token(hash, None);
        assert!(state.by_realm.is_empty() && state.count_tokens() == 0);
    }

    #[test]
    fn realms_that_end_are_known_by_their_end() {
        let mut state = State::default();
        let acme = RealmId::parse("acme").unwrap();
        let config = |end| {
            Some(Arc::new(RealmConfig {
                ephemeral: true,
                expires_at: Some(Timestamp(end)),
                e2ee: E2ee::Required,
                ..RealmConfig::default()
            }))
        };
        state.set_realm(&acme, config(10));
        state.set_realm(&acme, config(20));
        assert_eq!(state.next_end(), Some(Timestamp(20)));
        assert!(state.ended(Timestamp(19)).is_empty() && state.has_encrypted());
        assert_eq!(state.ended(Timestamp(20)), std::slice::from_ref(&acme));
        assert!(state.is_gone(&acme, Timestamp(20)));
        state.set_realm(&acme, None);
        assert_eq!(state.next_end(), None);
        assert!(!state.has_encrypted());
    }
}
