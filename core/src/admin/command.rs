//! The catalogue of management commands (admin.md §4.2) as typed values. Knows nobody who does them.

mod parse;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::auth::{
    E2ee, Lifetime, ManagementToken, NewRealm, NewToken, Secret, SecretChange, TokenChoice,
    TokenHash, ValidatorScope, ValidatorUrl, is_fixed,
};
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
    AddRealm {
        /// Its name.
        realm: RealmId,
        /// How it is to be.
        new: Box<NewRealm>,
    },
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
    SetExternalAuth {
        /// Whose tokens.
        scope: ValidatorScope,
        /// Where; `None`: nowhere any more.
        url: Option<ValidatorUrl>,
        /// What is shown there.
        secret: SecretChange,
    },
    /// A token for creating realms over HTTP.
    AddManagementToken {
        /// The token.
        token: Secret,
        /// What it may do.
        bounds: ManagementToken,
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
        which: TokenChoice,
        /// It was named by its text.
        by_text: bool,
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
    Disconnect {
        /// Which.
        which: WhichSession,
        /// Of this realm only.
        realm: Option<RealmId>,
    },
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
        ["@", "pass=", "\"password\""]
            .iter()
            .any(|sign| text.contains(sign))
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
    /// Permanent, or disposable from now on.
    Lifetime(Lifetime),
}

/// Which sessions are closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichSession {
    /// The one with this socket id.
    Socket(String),
    /// All.
    All,
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
                    | RealmChange::Lifetime(_),
                create: false,
            }
            | Self::DlqPurge { realm } => Some(realm),
            Self::DlqList { realm, .. }
            | Self::AuthorizationList { realm, .. }
            | Self::DlqReplay(WhichLetter { realm, .. })
            | Self::DlqDiscard(WhichLetter { realm, .. }) => realm.as_ref(),
            _ => None,
        };
        realm.filter(|realm| !is_fixed(realm))
    }

    /// Whether it, or its answer, carries a secret that must not go in clear over a network (AF59).
    pub fn bears_secret(&self) -> bool {
        match self {
            Self::AddRealm { new, .. } => {
                new.manager_key.is_some() || new.jwt_key.is_some() || new.key.is_some()
            }
            Self::SetRealm { change, .. } => matches!(
                change,
                RealmChange::ManagerKey(Some(_))
                    | RealmChange::JwtKey(Some(_))
                    | RealmChange::Key(Some(_), _)
            ),
            Self::SetExternalAuth { url, secret, .. } => {
                let has_query = |url: &ValidatorUrl| url.as_str().contains('?');
                url.as_ref().is_some_and(has_query) || matches!(secret, SecretChange::Set(_))
            }
            Self::AddManagementToken { .. } | Self::AddToken(_) => true,
            Self::RevokeToken { by_text, .. } => *by_text,
            Self::SetPersistence(wish) => wish.bears_secret(),
            _ => false,
        }
    }
}
