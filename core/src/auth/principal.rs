//! Who a session has shown to be, and how it is told no.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Allow, Role, ValidatorUrl};
use crate::clock::Timestamp;
use crate::model::{RealmId, fold};
use crate::{Error, ErrorKind};

/// What a verb needs of a role (admin.md §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `producer`.
    Produce,
    /// `consumer`.
    Consume,
    /// Either.
    Any,
}

/// SHA-256 of a token's text: the only form in which tokens are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash(pub [u8; 32]);

/// What let a session in; tells whether it still would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Authentication was off.
    Off,
    /// Nothing was shown: an open realm, a keyless consumer, a producer where acceptance is waived.
    None,
    /// A token that is known.
    Token(TokenHash),
    /// The administrator's secret of this process.
    Bootstrap(TokenHash),
    /// The realm's pre-shared key, by its hash.
    Key(TokenHash),
    /// A JWT signed with a key of its realm, by that key's hash.
    RealmJwt(TokenHash),
    /// A JWT signed with the global key, by that key's hash.
    GlobalJwt(TokenHash),
    /// An external validator said yes, at this address.
    External(ValidatorUrl),
    /// The embedding program's validator said yes.
    Validator,
}

/// Who a session has shown to be (P30). Immutable: a session that authenticates gets another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The realm all its verbs are in.
    pub realm: RealmId,
    /// What it may do there.
    pub role: Role,
    /// Whose queues it may use and make its own (P30): `client:<client_id>`, `token:<hash>`,
    /// `sub:<sub>` or `realm:<realm>`; `None`: keyless.
    pub owner: Option<Arc<str>>,
    /// What let it in.
    pub credential: Credential,
    /// What the credential narrows.
    pub allow: Allow,
    /// When the credential ends; `None`: it does not by itself.
    pub expires: Option<Timestamp>,
}

impl Principal {
    /// Everybody while authentication is off: realm `default`, every right (admin.md §2.1).
    pub fn everybody() -> Self {
        Self {
            realm: RealmId::default(),
            role: Role::Both,
            owner: None,
            credential: Credential::Off,
            allow: Allow::default(),
            expires: None,
        }
    }

    /// Whether it may produce this event, in the producer's case (P30).
    pub fn may_produce(&self, event: &str) -> bool {
        self.role.covers(Need::Produce)
            && (self.allow.produce.is_none() || self.allow.may_produce(&fold(event)))
    }

    /// Whether it may receive this event (P30).
    pub fn may_consume(&self, event: &str) -> bool {
        self.role.covers(Need::Consume)
            && (self.allow.consume.is_none() || self.allow.may_consume(&fold(event)))
    }

    /// Whether a subscription of it has to look at each event.
    pub fn is_narrow(&self) -> bool {
        self.allow.consume.is_some()
    }
}

/// A refusal as a client is told: `AUTH_FAIL {code, message}` and replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Unauthenticated (401), Forbidden (403), RateLimited (429) or BadName (400).
    pub error: Error,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// The session ends.
    pub closes: bool,
}

impl Denied {
    /// A refusal after which the session stays.
    pub fn new(kind: ErrorKind, message: impl Into<Box<str>>) -> Self {
        Self {
            error: Error::new(kind, message),
            retry_after: None,
            closes: false,
        }
    }
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        Self {
            error,
            retry_after: None,
            closes: false,
        }
    }
}

impl TokenHash {
    /// Reads 64 hex digits of either case; `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
