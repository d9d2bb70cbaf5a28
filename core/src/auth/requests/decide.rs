//! Deciding on a request: who may grant what, and what happens in one step. Called by `session` and
//! `admin`, which have seen the proof.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::instant;
use crate::{Error, ErrorKind, Result};

use super::super::{Allow, Authority, EVERY_REALM, Role, Secret, Token, check_role};
use super::candidate::token_exists;
use super::kept::Kept;
use super::{PublicRequest, Requests, Status, unknown};

/// Most bytes of a reason.
const MAX_REASON: usize = 1024;

/// What a manager says of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Which one.
    pub request: Box<str>,
    /// Yes or no.
    pub approved: bool,
    /// As what it is approved; `None`: as what it asks for.
    pub role: Option<Role>,
    /// Why, at most 1,024 bytes.
    pub reason: Option<Box<str>>,
}

/// What was decided, and who has to hear it.
#[derive(Debug, Clone)]
pub struct Decided {
    /// The request as it is now.
    pub request: PublicRequest,
    /// The session of this process that asked; `None`: it is gone, or elsewhere.
    pub tell: Option<Arc<str>>,
    /// The token, if this broker has made it and approved it is: kept by nobody, for the requester alone.
    pub token: Option<Secret>,
}

impl Requests {
    /// Approves or rejects a request that waits. An approval stores the token and the decision in one
    /// step.
    ///
    /// # Errors
    /// `request_unknown` if none waits by this id, for a realm's key `proof_rejected`, of another realm
    /// too; `forbidden` if that key may not grant it; `bad_command` for a role that does not go with the
    /// realm, or one that must be said and is not; `token_exists` if the token has become known
    /// meanwhile; what the keeper says.
    pub async fn decide(
        &self,
        decision: &Decision,
        authority: &Authority,
        now: Timestamp,
    ) -> Result<Decided> {
        if decision
            .reason
            .as_ref()
            .is_some_and(|reason| reason.len() > MAX_REASON)
        {
            let why = "a reason has at most 1,024 bytes";
            return Err(Error::new(ErrorKind::BadCommand, why));
        }
        let _changing = self.changing.lock().await;
        // Another broker may have changed it without our knowing.
        match self.try_decide(decision, authority, now).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let decided = self.try_decide(decision, authority, now).await;
                decided.map_err(|error| match error.kind() {
                    ErrorKind::Conflict => unknown(),
                    _ => error,
                })
            }
            decided => decided,
        }
    }

    async fn try_decide(
        &self,
        decision: &Decision,
        authority: &Authority,
        now: Timestamp,
    ) -> Result<Decided> {
        let mut request = self.found(&decision.request, authority, now)?;
        request.decided = Some(now);
        request.reason = decision.reason.as_deref().map(Arc::from);
        let mut granted = None;
        if decision.approved {
            request.role = granted_role(&request, decision.role, authority)?;
            request.status = Status::Approved;
            granted = Some((request.token, token_of(&request, now)));
        } else {
            request.status = Status::Rejected;
        }
        let mut changes = self.trimmed(1);
        changes.push(request.put()?);
        if let Some((hash, token)) = &granted {
            changes.push(self.grants.change(hash, token)?);
        }
        if let Err(error) = self.write(changes, vec![request.clone()], now).await {
            let is_conflict = error.kind() == ErrorKind::Conflict;
            // It waits as before: so it was the token.
            return Err(match is_conflict && self.is_as_before(&request, now) {
                true => token_exists(),
                false => error,
            });
        }
        if let Some((hash, token)) = granted {
            self.grants.granted(hash, token);
        }
        let (waits, request) = (self.waiting.lock().remove(&request.id), request.public());
        Ok(match waits {
            Some(waits) => waits.decided(request),
            None => Decided {
                request,
                tell: None,
                token: None,
            },
        })
    }

    fn found(&self, id: &str, authority: &Authority, now: Timestamp) -> Result<Kept> {
        let kept = self.kept.lock();
        let found = kept.get(id).filter(|request| request.is_pending(now));
        match (authority, found) {
            (Authority::Global, Some(request)) => Ok(request.clone()),
            (Authority::Realm(realm), Some(request)) if request.realm == *realm => {
                Ok(request.clone())
            }
            (Authority::Global, None) => Err(unknown()),
            (Authority::Realm(_), _) => {
                let why = "the proof is not good for this request";
                Err(Error::new(ErrorKind::ProofRejected, why))
            }
        }
    }

    fn is_as_before(&self, request: &Kept, now: Timestamp) -> bool {
        let kept = self.kept.lock();
        let found = kept.get(&request.id);
        found.is_some_and(|found| found.is_pending(now) && found.version == request.version)
    }
}

/// As what it is approved (AF47).
fn granted_role(request: &Kept, said: Option<Role>, authority: &Authority) -> Result<Role> {
    let role = said.unwrap_or(request.role);
    let is_high =
        request.realm.as_str() == EVERY_REALM || request.role == Role::Admin || role == Role::Admin;
    if is_high && *authority != Authority::Global {
        let why = "only a global administrator grants this";
        return Err(Error::new(ErrorKind::Forbidden, why));
    }
    if is_high && said.is_none() {
        let why = "for realm * and for role admin the role must be said";
        return Err(Error::new(ErrorKind::BadCommand, why));
    }
    check_role(&request.realm, role)?;
    Ok(role)
}

fn token_of(request: &Kept, now: Timestamp) -> Token {
    Token {
        realm: request.realm.clone(),
        role: request.role,
        client_id: Some(Arc::clone(&request.client_id)),
        client_name: Some(Arc::clone(&request.client_name)),
        approved_at: Some(instant::format(now).into()),
        allow: Allow::default(),
    }
}
