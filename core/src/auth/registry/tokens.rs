//! Tokens and management tokens: added and revoked (admin.md §4.2). Their texts are seen once and kept as
//! hashes.

use std::sync::Arc;

use super::super::token::check_role;
use super::super::{Allow, Auth, Inner, ManagementToken, Role, Secret, Token, TokenHash};
use super::realms::refuse_full;
use crate::model::RealmId;
use crate::store::Collection;
use crate::{Error, ErrorKind, Result};

/// The shortest text that somebody may choose for a token.
const SHORTEST: usize = 16;

/// What a new token's text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenText {
    /// One is made: 64 hex digits.
    Mint,
    /// This one, of 16 bytes or more.
    Given(Secret),
    /// Only its hash is known here: it was shown when it was asked for.
    Hash(TokenHash),
}

/// A token to be added (`add_token`, or an approved request).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The realm it is for.
    pub realm: RealmId,
    /// As what; `admin` exactly in `*`.
    pub role: Role,
    /// Whose it is.
    pub client_id: Option<Arc<str>>,
    /// What people call its holder.
    pub client_name: Option<Arc<str>>,
    /// When a request was approved with it, as text.
    pub approved_at: Option<Arc<str>>,
    /// What it narrows.
    pub allow: Allow,
    /// Its text.
    pub text: TokenText,
}

/// A token that was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// What it is known by from now on.
    pub hash: TokenHash,
    /// Its text if it was made here: shown this once.
    pub minted: Option<Secret>,
}

/// Which tokens to revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenChoice {
    /// One, by its hash (of a text: [`TokenHash::of`]).
    Hash(TokenHash),
    /// All of a client in a realm.
    Client {
        /// The realm.
        realm: RealmId,
        /// The client.
        client_id: Arc<str>,
    },
}

fn known() -> Error {
    Error::new(
        ErrorKind::TokenExists,
        "there is a token of this text already",
    )
}

fn unknown() -> Error {
    Error::new(ErrorKind::TokenUnknown, "there is no such token to revoke")
}

fn check_name(what: &str, name: Option<&Arc<str>>) -> Result<()> {
    let is_good =
        |name: &Arc<str>| (1..=255).contains(&name.len()) && !name.chars().any(char::is_control);
    if name.is_none_or(is_good) {
        return Ok(());
    }
    let message = format!("{what} has 1 to 255 bytes without control characters");
    Err(Error::new(ErrorKind::BadCommand, message))
}

fn chosen(secret: &Secret) -> Result<TokenHash> {
    if secret.expose().len() < SHORTEST {
        let message = format!("a token has at least {SHORTEST} bytes");
        return Err(Error::new(ErrorKind::BadCommand, message));
    }
    Ok(secret.hash())
}

impl Inner {
    async fn put_token(&self, hash: TokenHash, token: Token) -> Result<()> {
        {
            let state = self.state.read();
            refuse_full(state.count_tokens())?;
            if state.is_known(&hash) {
                return Err(known());
            }
        }
        let key = hash.to_string();
        let added = self.edit(Collection::Tokens, &key, |entry| match entry {
            Some::<Token>(_) => Err(known()),
            None => Ok(Some(token.clone())),
        });
        let token = added.await?.map(Arc::new);
        self.change(|state| state.set_token(hash, token));
        Ok(())
    }

    /// Removes a token if it is of this realm still.
    pub(super) async fn drop_token(&self, hash: &TokenHash, realm: &RealmId) -> Result<()> {
        let key = hash.to_string();
        let dropped = self.edit(Collection::Tokens, &key, |entry: Option<Token>| {
            Ok(entry.filter(|token| token.realm != *realm))
        });
        let left = dropped.await?.map(Arc::new);
        self.change(|state| state.set_token(*hash, left));
        Ok(())
    }

    async fn revoke(
        &self,
        choice: TokenChoice,
        allow_admin: bool,
    ) -> Result<Vec<(TokenHash, Arc<Token>)>> {
        let chosen: Vec<_> = {
            let state = self.state.read();
            let hashes = match choice {
                TokenChoice::Hash(hash) => vec![hash],
                TokenChoice::Client { realm, client_id } => {
                    state.tokens_of_client(&realm, &client_id)
                }
            };
            let tokens = hashes.into_iter();
            tokens
                .filter_map(|hash| Some((hash, state.token(&hash)?.clone())))
                .filter(|(_, token)| allow_admin || !token.is_admin())
                .collect()
        };
        if chosen.is_empty() {
            return Err(unknown());
        }
        for (hash, token) in &chosen {
            self.drop_token(hash, &token.realm).await?;
        }
        Ok(chosen)
    }
}

impl Auth {
    /// Adds a token. A minted text is in the answer and nowhere else.
    ///
    /// # Errors
    /// `token_exists` whatever kind of token has that text; `bad_command` for a role that does not go with
    /// the realm, a short text or a wrong name; those of the store.
    pub async fn add_token(&self, new: NewToken) -> Result<AddedToken> {
        check_role(&new.realm, new.role)?;
        check_name("client_id", new.client_id.as_ref())?;
        check_name("client_name", new.client_name.as_ref())?;
        let (hash, minted) = match &new.text {
            TokenText::Mint => {
                let secret = Secret::mint()?;
                (secret.hash(), Some(secret))
            }
            TokenText::Given(secret) => (chosen(secret)?, None),
            TokenText::Hash(hash) => (*hash, None),
        };
        let token = Token {
            realm: new.realm,
            role: new.role,
            client_id: new.client_id,
            client_name: new.client_name,
            approved_at: new.approved_at,
            allow: new.allow,
        };
        self.whole(move |inner| async move { inner.put_token(hash, token).await })
            .await?;
        Ok(AddedToken { hash, minted })
    }

    /// Revokes tokens and answers which; super-admins' only if `allow_admin`. Their sessions end.
    ///
    /// # Errors
    /// `token_unknown` if there is none to revoke; those of the store.
    pub async fn revoke_token(
        &self,
        choice: TokenChoice,
        allow_admin: bool,
    ) -> Result<Vec<(TokenHash, Arc<Token>)>> {
        self.whole(move |inner| async move { inner.revoke(choice, allow_admin).await })
            .await
    }

    /// Adds a token for provisioning realms by HTTP.
    ///
    /// # Errors
    /// `token_exists`; `bad_command` for a wrong prefix or a short text; those of the store.
    pub async fn add_management_token(&self, secret: Secret, token: ManagementToken) -> Result<()> {
        token.check()?;
        let hash = chosen(&secret)?;
        self.whole(move |inner| async move {
            {
                let state = inner.state.read();
                refuse_full(state.management.len())?;
                if state.is_known(&hash) {
                    return Err(known());
                }
            }
            let key = hash.to_string();
            let added = inner.edit(Collection::ManagementTokens, &key, |entry| match entry {
                Some::<ManagementToken>(_) => Err(known()),
                None => Ok(Some(token.clone())),
            });
            if let Some(token) = added.await? {
                inner.change(|state| drop(state.management.insert(hash, Arc::new(token))));
            }
            Ok(())
        })
        .await
    }

    /// Revokes a token for provisioning realms.
    ///
    /// # Errors
    /// `token_unknown`; those of the store.
    pub async fn revoke_management_token(&self, hash: TokenHash) -> Result<()> {
        self.whole(move |inner| async move {
            let key = hash.to_string();
            let revoked = inner.edit(Collection::ManagementTokens, &key, |entry| match entry {
                Some::<ManagementToken>(_) => Ok(None),
                None => Err(unknown()),
            });
            revoked.await?;
            inner.change(|state| drop(state.management.remove(&hash)));
            Ok(())
        })
        .await
    }

    /// What a management token of this text may do; `None`: there is none.
    pub fn management_token(&self, text: &str) -> Option<Arc<ManagementToken>> {
        let hash = TokenHash::of(text);
        self.0.state.read().management.get(&hash).cloned()
    }

    /// Whether this text is a monitor token, which may only look (admin.md §6.1).
    pub fn is_monitor_token(&self, text: &str) -> bool {
        let hash = TokenHash::of(text);
        let state = self.0.state.read();
        state
            .settings
            .monitor_tokens
            .iter()
            .any(|known| known.is(&hash))
    }
}
