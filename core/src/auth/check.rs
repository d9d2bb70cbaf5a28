//! Whether what let a session in still does, and whether what somebody published earlier may still go out
//! (P30, F08). When it cannot be told the answer is no. Pure, as `identify` is. Called by `Auth`.

use std::sync::Arc;

use super::identify::{Entry, unauthenticated};
use super::outside::ValidatorUrl;
use super::state::State;
use super::{Credential, Denied, EVERY_REALM, Principal, TokenHash};
use crate::clock::Timestamp;
use crate::model::RealmId;

/// Whether a session may stay.
pub(super) fn check(
    state: &State,
    principal: &Principal,
    has_program: bool,
    now: Timestamp,
) -> Result<(), Denied> {
    if !state.enabled {
        return Ok(());
    }
    let has_ended = principal.expires.is_some_and(|end| end <= now);
    if has_ended && state.settings.enforce_expiry {
        return Err(ends("what let this session in has ended"));
    }
    if state.is_gone(&principal.realm, now) {
        return Err(ends("the realm is gone"));
    }
    if holds(state, principal, has_program, now) {
        return Ok(());
    }
    Err(ends("what let this session in does not any more"))
}

fn ends(message: &str) -> Denied {
    Denied {
        closes: true,
        ..unauthenticated(message)
    }
}

fn holds(state: &State, principal: &Principal, has_program: bool, now: Timestamp) -> bool {
    let realm = &principal.realm;
    let config = state.realm(realm);
    let same = |known: Option<&TokenHash>, shown: &TokenHash| known.is_some_and(|k| k.is(shown));
    match &principal.credential {
        // Whoever came in while nobody was asked stays where nobody is asked.
        Credential::Off | Credential::None => enters(state, principal, None, now),
        Credential::Key(hash) => enters(state, principal, Some(*hash), now),
        Credential::Token(hash) => state.token(hash).is_some_and(|token| {
            token.realm == *realm
                && token.role == principal.role
                && token.allow == principal.allow
                && Some(&token.owner(hash)) == principal.owner.as_ref()
        }),
        Credential::Bootstrap(hash) => {
            let known = state.bootstrap.as_ref().map(super::Secret::hash);
            same(known.as_ref(), hash)
        }
        Credential::RealmJwt(hash) => {
            let known = config.and_then(|config| config.jwt_key().map(super::Secret::hash));
            same(known.as_ref(), hash) && may_be_everywhere(state, principal)
        }
        Credential::GlobalJwt(hash) => {
            let known = state.settings.jwt_secret.as_ref().map(super::Secret::hash);
            same(known.as_ref(), hash) && may_be_everywhere(state, principal)
        }
        Credential::External(url) => {
            speaks_for(state, url, realm) && may_be_everywhere(state, principal)
        }
        Credential::Validator => has_program && may_be_everywhere(state, principal),
    }
}

fn enters(state: &State, principal: &Principal, key: Option<TokenHash>, now: Timestamp) -> bool {
    let entry = Entry {
        realm: principal.realm.clone(),
        role: principal.role,
        key,
        is_declared: true,
    };
    entry
        .decide(state, now)
        .is_ok_and(|again| key.is_none() || again.owner == principal.owner)
}

/// Whoever a JWT or a validator let into `*` stays while that is allowed.
fn may_be_everywhere(state: &State, principal: &Principal) -> bool {
    state.settings.allow_superadmin_jwt || principal.realm.as_str() != EVERY_REALM
}

/// Whether a validator at this address would still be asked about tokens of the realm.
fn speaks_for(state: &State, url: &ValidatorUrl, realm: &RealmId) -> bool {
    let config = state.realm(realm).map(|config| &**config);
    let hinted = state.validators.select(Some(realm), config);
    let unhinted = state.validators.select(None, None);
    [hinted, unhinted]
        .into_iter()
        .flatten()
        .any(|asked| asked.url == *url)
}

/// Whether what `owner` published earlier may go out under a folded event.
pub(super) fn may_still_publish(
    state: &State,
    realm: &RealmId,
    owner: Option<&str>,
    event: &str,
    has_program: bool,
    now: Timestamp,
) -> bool {
    if !state.enabled {
        return true;
    }
    if state.is_gone(realm, now) {
        return false;
    }
    let rules = state.rules(realm);
    if !rules.acceptance_required || !rules.auth_required {
        // Anybody may produce here.
        return true;
    }
    let Some(owner) = owner else {
        return false;
    };
    let hashes = match owner.split_once(':') {
        Some(("client", id)) => state.tokens_of_client(realm, id),
        Some(("token", hash)) => hash.parse().into_iter().collect(),
        Some(("sub" | "realm", _)) => return has_vouchers(state, realm, has_program),
        _ => return false,
    };
    hashes.iter().any(|hash| {
        state.token(hash).is_some_and(|token: &Arc<_>| {
            token.realm == *realm
                && token.role.covers(super::Need::Produce)
                && token.allow.may_produce(event)
        })
    })
}

/// Whether anybody is left who could vouch for somebody in a realm: a JWT or a validator's answer is not
/// kept, so that is all that can be asked again.
fn has_vouchers(state: &State, realm: &RealmId, has_program: bool) -> bool {
    let config = state.realm(realm);
    has_program
        || config.is_some_and(|config| config.jwt_key().is_some())
        || state.settings.jwt_secret.is_some()
        || state
            .validators
            .select(Some(realm), config.map(|config| &**config))
            .is_some()
        || (state.bootstrap.is_some() && realm.as_str() == EVERY_REALM)
}
