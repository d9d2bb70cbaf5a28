//! The catalogue of management commands (admin.md §4.2) as typed values. Knows nobody who does them.

mod parse;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::auth::{E2ee, Role, Secret, TokenHash, ValidatorUrl};
use crate::model::RealmId;
use crate::store::{DeadLetterId, QueueId};

/// What an operator orders.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The management view.
    Get,
    /// Live numbers.
    Stats,
    /// Read the settings file now.
    ReloadSettings,
    /// Switch authentication on or off.
    SetGlobalAuth {
        /// On.
        enabled: bool,
    },
    /// Change the store (P28); the members of `new Server(options)` that say which.
    SetPersistence(StoreWish),
    /// Configure a realm.
    AddRealm(Box<NewRealm>),
    /// Give a realm another name.
    RenameRealm {
        /// Its name.
        from: RealmId,
        /// Its new name.
        to: RealmId,
    },
    /// End a realm and all that is in it.
    RemoveRealm {
        /// Which.
        realm: RealmId,
    },
    /// Change one setting of a realm.
    SetRealm {
        /// Which.
        realm: RealmId,
        /// What.
        change: RealmChange,
        /// Configure it if it is not.
        create: bool,
    },
    /// Where a scope's tokens are asked after.
    SetExternalAuth(ExternalAuth),
    /// A token for creating realms over HTTP.
    AddManagementToken {
        /// The token.
        token: Secret,
        /// What its realms' names begin with.
        realm_prefix: String,
        /// It makes disposable realms only.
        ephemeral_only: bool,
        /// The longest that they live.
        max_ttl: Option<Duration>,
    },
    /// The end of one.
    RevokeManagementToken {
        /// Which.
        token: TokenHash,
    },
    /// A client's token; minted if none is given.
    AddToken(Box<NewToken>),
    /// The end of tokens, and of the sessions they let in.
    RevokeToken {
        /// Which.
        which: WhichToken,
        /// Administrators' too.
        allow_admin: bool,
    },
    /// Authorization requests, the oldest first.
    AuthorizationList {
        /// Of one realm.
        realm: Option<RealmId>,
        /// Of one status.
        status: Option<String>,
        /// Where the page before ended.
        cursor: Option<String>,
        /// At most so many.
        limit: usize,
    },
    /// Who is connected.
    ListSessions {
        /// To one realm.
        realm: Option<RealmId>,
    },
    /// Closes sessions.
    Disconnect(WhichSession),
    /// Dead letters, the oldest first.
    DlqList {
        /// Of one realm; else of all.
        realm: Option<RealmId>,
        /// Where the page before ended.
        cursor: Option<String>,
        /// At most so many.
        limit: usize,
    },
    /// Puts a dead letter back into its queue (P37).
    DlqReplay(WhichLetter),
    /// Drops a dead letter.
    DlqDiscard(WhichLetter),
    /// Drops all dead letters of a realm.
    DlqPurge {
        /// Which.
        realm: RealmId,
    },
    /// What queues are doing.
    QueueStats {
        /// Of one realm; else of all.
        realm: Option<RealmId>,
    },
    /// Takes a queue from its owner: whoever attaches next owns it (P30).
    QueueRelease {
        /// The realm.
        realm: RealmId,
        /// The queue.
        queue: QueueId,
    },
}

/// Which store, as members of `new Server(options)`; there may be a password among them.
#[derive(Clone, PartialEq)]
pub struct StoreWish(pub Map<String, Value>);

impl StoreWish {
    fn bears_secret(&self) -> bool {
        let text = Value::Object(self.0.clone()).to_string();
        text.contains('@') || text.contains("\"password\"")
    }
}

impl std::fmt::Debug for StoreWish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let storage = self.0.get("storage");
        f.debug_struct("StoreWish")
            .field("storage", &storage)
            .finish_non_exhaustive()
    }
}

/// A realm to configure.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRealm {
    /// Its name.
    pub realm: RealmId,
    /// Whether a credential is needed; yes.
    pub required: bool,
    /// Signs what concerns the realm.
    pub manager_key: Option<Secret>,
    /// Signs JWTs of the realm; else `manager_key` does.
    pub jwt_key: Option<Secret>,
    /// What keyless consumers show.
    pub key: Option<Secret>,
    /// Whether the key must be shown.
    pub require_key: Option<bool>,
    /// Whether producers must be accepted.
    pub require_acceptance: Option<bool>,
    /// Whether clients may go without a name.
    pub allow_anonymous: Option<bool>,
    /// Encrypted bodies: `None` is off.
    pub e2ee: Option<E2ee>,
    /// It is disposable.
    pub ephemeral: bool,
    /// How long it lives then.
    pub ttl: Option<Duration>,
}

/// One setting of a realm.
#[derive(Debug, Clone, PartialEq)]
pub enum RealmChange {
    /// Whether a credential is needed.
    Required(bool),
    /// Set, or cleared.
    ManagerKey(Option<Secret>),
    /// Set, or cleared.
    JwtKey(Option<Secret>),
    /// Set, or cleared; and whether it must be shown.
    Key(Option<Secret>, Option<bool>),
    /// Whether producers must be accepted.
    Acceptance(bool),
    /// Encrypted bodies.
    E2ee(E2ee),
    /// Whether clients may go without a name.
    Anonymous(bool),
    /// Permanent, or disposable from now on with this ttl (`None`: the default).
    Lifetime {
        /// Disposable.
        ephemeral: bool,
        /// For how long.
        ttl: Option<Duration>,
    },
}

/// `set_external_auth`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalAuth {
    /// Whose tokens.
    pub scope: Scope,
    /// Where they are asked after; `None`: nowhere any more.
    pub url: Option<ValidatorUrl>,
    /// What is shown there; outer `None`: as before, inner: nothing.
    pub secret: Option<Option<Secret>>,
}

/// Which tokens a validator is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All that nobody else is asked about.
    Global,
    /// Of one realm.
    Realm(RealmId),
    /// Of realms whose names begin so.
    Prefix(String),
}

/// A token to add.
#[derive(Debug, Clone, PartialEq)]
pub struct NewToken {
    /// Its realm.
    pub realm: RealmId,
    /// Its role.
    pub role: Role,
    /// Whose it is; names the owner of its queues (P30).
    pub client_id: Option<String>,
    /// For people.
    pub client_name: Option<String>,
    /// The token; minted if none is given.
    pub token: Option<Secret>,
    /// `allow` as in the settings file.
    pub allow: Option<Value>,
    /// `names` as in the settings file.
    pub names: Option<Value>,
}

/// Which tokens are revoked.
#[derive(Debug, Clone, PartialEq)]
pub enum WhichToken {
    /// The one with this text.
    Text(Secret),
    /// The one with this hash.
    Hash(TokenHash),
    /// All of a client in a realm.
    Client(RealmId, String),
}

/// Which sessions are closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichSession {
    /// The one with this socket id.
    Socket(String),
    /// All of a realm.
    Realm(RealmId),
    /// All that a client's credential has let in.
    Client(String),
}

/// Which dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhichLetter {
    /// Its id.
    pub id: DeadLetterId,
    /// Its realm; `None`: whichever it is in.
    pub realm: Option<RealmId>,
}

impl Command {
    /// The realm whose manager key may sign it too; `None`: administrators only (admin.md §4.2).
    pub fn realm_scope(&self) -> Option<&RealmId> {
        let realm = match self {
            Self::SetRealm {
                realm,
                change:
                    RealmChange::Key(..)
                    | RealmChange::Acceptance(_)
                    | RealmChange::E2ee(_)
                    | RealmChange::Lifetime { .. },
                create: false,
            }
            | Self::DlqPurge { realm } => Some(realm),
            Self::DlqList { realm, .. }
            | Self::AuthorizationList { realm, .. }
            | Self::DlqReplay(WhichLetter { realm, .. })
            | Self::DlqDiscard(WhichLetter { realm, .. }) => realm.as_ref(),
            _ => None,
        };
        realm.filter(|realm| !matches!(realm.as_str(), "*" | "default"))
    }

    /// Whether it changes something: its proof must then count once, whatever happens (§3.2).
    pub fn is_change(&self) -> bool {
        !matches!(
            self,
            Self::Get
                | Self::Stats
                | Self::AuthorizationList { .. }
                | Self::ListSessions { .. }
                | Self::DlqList { .. }
                | Self::QueueStats { .. }
        )
    }

    /// Whether it, or its answer, carries a secret that must not go in clear over a network (AF59).
    pub fn bears_secret(&self) -> bool {
        match self {
            Self::AddRealm(new) => {
                new.manager_key.is_some() || new.jwt_key.is_some() || new.key.is_some()
            }
            Self::SetRealm { change, .. } => matches!(
                change,
                RealmChange::ManagerKey(Some(_))
                    | RealmChange::JwtKey(Some(_))
                    | RealmChange::Key(Some(_), _)
            ),
            Self::SetExternalAuth(external) => {
                let url = external.url.as_ref();
                let has_query = url.is_some_and(|url| url.as_str().contains('?'));
                has_query || matches!(external.secret, Some(Some(_)))
            }
            Self::AddManagementToken { .. } | Self::AddToken(_) => true,
            Self::RevokeToken { which, .. } => matches!(which, WhichToken::Text(_)),
            Self::SetPersistence(wish) => wish.bears_secret(),
            _ => false,
        }
    }
}
