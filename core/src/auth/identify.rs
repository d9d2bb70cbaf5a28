//! Who a session is: the decision on AUTHENTICATION and on a session that shows nothing (admin.md §2.2,
//! 2.5, 2.7; decided 6).
//!
//! Pure: reads one [`State`] and a time; what has to be asked outside it answers as [`Decision::Ask`] and
//! goes on in [`vouched`]. Knows no session, no socket and no count of failures. Called by `Auth`.

use std::sync::Arc;

use super::claims::Claims;
use super::outside::Asked;
use super::state::State;
use super::{
    Allow, Attempt, Credential, Denied, EVERY_REALM, KeylessConsumers, MAX_SECRET, Need, Principal,
    Role, TokenHash, jwt,
};
use crate::ErrorKind;
use crate::clock::Timestamp;
use crate::model::RealmId;

/// What is to become of an attempt.
pub(super) enum Decision {
    /// It is known.
    Known(Result<Principal, Denied>),
    /// Somebody else has to vouch; then [`vouched`].
    Ask {
        /// The desired realm.
        desired: Option<RealmId>,
        /// What a validator is told of the realm.
        hint: Option<RealmId>,
        /// Who.
        whom: Whom,
    },
}

/// Who vouches.
pub(super) enum Whom {
    /// The embedding program.
    Program,
    /// Somebody at an address.
    Outside(Asked),
}

pub(super) fn unauthenticated(message: &str) -> Denied {
    Denied::new(ErrorKind::Unauthenticated, message)
}

fn forbidden(message: &str) -> Denied {
    Denied::new(ErrorKind::Forbidden, message)
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// Decides on AUTHENTICATION; `has_program`: the embedding program vouches for tokens.
pub(super) fn decide(
    state: &State,
    attempt: &Attempt,
    has_program: bool,
    now: Timestamp,
) -> Decision {
    if !state.enabled {
        return Decision::Known(Ok(Principal::everybody()));
    }
    let desired = match given(attempt.realm.as_ref())
        .map(RealmId::parse)
        .transpose()
    {
        Ok(desired) => desired,
        Err(error) => return Decision::Known(Err(error.into())),
    };
    match given(attempt.token.as_ref()) {
        None => Decision::Known(without_token(state, attempt, desired, now)),
        Some(token) => with_token(state, token, desired, has_program, now),
    }
}

fn without_token(
    state: &State,
    attempt: &Attempt,
    desired: Option<RealmId>,
    now: Timestamp,
) -> Result<Principal, Denied> {
    let (role, key) = (given(attempt.role.as_ref()), given(attempt.key.as_ref()));
    let role = match role {
        Some("manager") => return Err(unauthenticated("a manager needs a token")),
        Some("producer") => Role::Producer,
        Some("consumer") => Role::Consumer,
        _ => Role::Both,
    };
    let is_declared = given(attempt.role.as_ref()).is_some() || key.is_some();
    if desired.is_none() && !is_declared {
        return Err(unauthenticated("a token is missing"));
    }
    let entry = Entry {
        realm: desired.unwrap_or_default(),
        role,
        key: key.map(TokenHash::of),
        is_declared,
    };
    entry.decide(state, now)
}

/// Entering a realm without a token.
pub(super) struct Entry {
    pub(super) realm: RealmId,
    pub(super) role: Role,
    /// The pre-shared key that was shown.
    pub(super) key: Option<TokenHash>,
    /// Whether a role or a key was sent at all.
    pub(super) is_declared: bool,
}

impl Entry {
    /// Table 2.7: the key, then acceptance, then where keyless consumers may be.
    pub(super) fn decide(self, state: &State, now: Timestamp) -> Result<Principal, Denied> {
        if self.realm.as_str() == EVERY_REALM {
            return Err(forbidden("realm * is for administrators"));
        }
        if state.is_gone(&self.realm, now) {
            return Err(unauthenticated("the realm is gone"));
        }
        let rules = state.rules(&self.realm);
        if !rules.auth_required {
            return Ok(self.principal(None));
        }
        if !self.is_declared {
            return Err(unauthenticated("a token is missing"));
        }
        let known = state.realm(&self.realm).and_then(|config| config.key);
        let shown = known.filter(|known| self.key.is_some_and(|key| key.is(known)));
        let consumes = self.role.covers(Need::Consume);
        if consumes && rules.key_required && shown.is_none() {
            return Err(unauthenticated("the realm's key is missing or wrong"));
        }
        if self.role.covers(Need::Produce) && rules.acceptance_required {
            return Err(forbidden("producers need a token here"));
        }
        if consumes && shown.is_none() && !admits_keyless(state, &self.realm) {
            return Err(unauthenticated("consumers need a token here"));
        }
        let shown = shown.filter(|_| consumes);
        Ok(self.principal(shown))
    }

    fn principal(self, key: Option<TokenHash>) -> Principal {
        Principal {
            owner: key.map(|_| format!("realm:{}", self.realm).into()),
            realm: self.realm,
            role: self.role,
            credential: key.map_or(Credential::None, Credential::Key),
            allow: Allow::default(),
            expires: None,
        }
    }
}

/// Whether consumers that show nothing may be in a closed realm that wants no key (decided 6).
fn admits_keyless(state: &State, realm: &RealmId) -> bool {
    match state.settings.keyless_consumers {
        KeylessConsumers::Allow => true,
        KeylessConsumers::DefaultRealm => *realm == RealmId::default(),
        KeylessConsumers::Deny => false,
    }
}

fn with_token(
    state: &State,
    token: &str,
    desired: Option<RealmId>,
    has_program: bool,
    now: Timestamp,
) -> Decision {
    if token.len() > MAX_SECRET {
        return Decision::Known(Err(unknown()));
    }
    let hash = TokenHash::of(token);
    if let Some(bootstrap) = &state.bootstrap
        && bootstrap.hash().is(&hash)
    {
        return Decision::Known(Ok(administrator(hash)));
    }
    if has_program {
        return Decision::Ask {
            hint: desired.clone(),
            desired,
            whom: Whom::Program,
        };
    }
    let named = jwt::peek_realm(token);
    if let Some(realm) = &named
        && let Some((claims, credential)) = signed(state, token, realm, now)
    {
        return Decision::Known(vouched(state, claims, credential, desired.as_ref(), now));
    }
    if let Some(known) = state.token(&hash) {
        let principal = Principal {
            realm: known.realm.clone(),
            role: known.role,
            owner: Some(known.owner(&hash)),
            credential: Credential::Token(hash),
            allow: known.allow.clone(),
            expires: None,
        };
        return Decision::Known(admitted(state, principal, desired.as_ref(), now));
    }
    outside(state, desired, named, now)
}

/// Nobody here knows the token: somebody outside may. It is shown to nobody of a realm that it does not
/// name itself (F15).
fn outside(
    state: &State,
    desired: Option<RealmId>,
    named: Option<RealmId>,
    now: Timestamp,
) -> Decision {
    if let (Some(desired), Some(named)) = (&desired, &named)
        && desired != named
    {
        return Decision::Known(Err(unknown()));
    }
    let hint = desired.clone().or(named);
    if hint.as_ref().is_some_and(|realm| state.is_gone(realm, now)) {
        return Decision::Known(Err(unauthenticated("the realm is gone")));
    }
    let config = hint.as_ref().and_then(|realm| state.realm(realm));
    let asked = state
        .validators
        .select(hint.as_ref(), config.map(|config| &**config));
    match asked {
        None => Decision::Known(Err(unknown())),
        Some(asked) => Decision::Ask {
            desired,
            hint,
            whom: Whom::Outside(asked),
        },
    }
}

fn unknown() -> Denied {
    unauthenticated("the token is unknown, wrong or has ended")
}

fn administrator(hash: TokenHash) -> Principal {
    // `*` is a name like any other to the type.
    let realm = RealmId::parse(EVERY_REALM).unwrap_or_default();
    Principal {
        owner: Some(format!("realm:{realm}").into()),
        realm,
        role: Role::Admin,
        credential: Credential::Bootstrap(hash),
        allow: Allow::default(),
        expires: None,
    }
}

/// What a JWT says, by the key of the realm it names, else by the global one.
fn signed(
    state: &State,
    token: &str,
    realm: &RealmId,
    now: Timestamp,
) -> Option<(Claims, Credential)> {
    let own = state.realm(realm).and_then(|config| config.jwt_key());
    let global = state.settings.jwt_secret.as_ref();
    let keys = [
        own.map(|key| (key, Credential::RealmJwt(key.hash()))),
        global.map(|key| (key, Credential::GlobalJwt(key.hash()))),
    ];
    keys.into_iter().flatten().find_map(|(key, credential)| {
        let claims = jwt::verify(token, key, state.settings.jwt_max_ttl, now)?;
        let is_good =
            claims.realm == *realm && claims.is_permitted(state.settings.allow_superadmin_jwt);
        is_good.then_some((claims, credential))
    })
}

/// Lets in whom somebody has vouched for, if they may say so.
pub(super) fn vouched(
    state: &State,
    claims: Claims,
    credential: Credential,
    desired: Option<&RealmId>,
    now: Timestamp,
) -> Result<Principal, Denied> {
    let has_ended = claims.expires.is_some_and(|end| end <= now);
    if has_ended || !claims.is_permitted(state.settings.allow_superadmin_jwt) {
        return Err(unknown());
    }
    let principal = Principal {
        owner: Some(claims.owner()),
        realm: claims.realm,
        role: claims.role,
        credential,
        allow: claims.allow,
        expires: claims.expires,
    };
    admitted(state, principal, desired, now)
}

/// The last word: the realm is there still, and is the one that was desired (F12).
fn admitted(
    state: &State,
    principal: Principal,
    desired: Option<&RealmId>,
    now: Timestamp,
) -> Result<Principal, Denied> {
    if state.is_gone(&principal.realm, now) {
        return Err(unauthenticated("the realm is gone"));
    }
    let is_every = principal.realm.as_str() == EVERY_REALM;
    match desired {
        Some(desired) if *desired != principal.realm && !is_every => {
            Err(forbidden("the token is of another realm"))
        }
        _ => Ok(principal),
    }
}

/// What a validator has answered to an attempt; nothing is a no.
pub(super) fn answered(
    state: &State,
    whom: &Whom,
    claims: Option<Claims>,
    desired: Option<&RealmId>,
    now: Timestamp,
) -> Result<Arc<Principal>, Denied> {
    let claims = claims.ok_or_else(unknown)?;
    let credential = match whom {
        Whom::Program => Credential::Validator,
        Whom::Outside(asked) if asked.scope.covers(&claims.realm) => {
            Credential::External(asked.url.clone())
        }
        Whom::Outside(_) => return Err(unknown()),
    };
    vouched(state, claims, credential, desired, now).map(Arc::new)
}

/// Lets a session in that has shown nothing, to realm `default`, as far as its first verb needs
/// (admin.md §2.5).
pub(super) fn admit(state: &State, need: Need, now: Timestamp) -> Result<Principal, Denied> {
    if !state.enabled {
        return Ok(Principal::everybody());
    }
    let realm = RealmId::default();
    let is_open = !state.rules(&realm).auth_required;
    let role = match need {
        _ if is_open => Role::Both,
        Need::Consume => Role::Consumer,
        Need::Produce => Role::Producer,
        Need::Any => return Err(unauthenticated("authenticate first")),
    };
    let entry = Entry {
        realm,
        role,
        key: None,
        is_declared: true,
    };
    let admitted = entry.decide(state, now);
    admitted.map_err(|_| unauthenticated("authenticate first"))
}
