//! Asking to be let in: what a request holds, and when it takes the place of another one. Called by
//! `session`.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

use super::super::attempts::counted;
use super::super::{Denied, Role, Secret, TokenHash};
use super::kept::Kept;
use super::{MOST_OF_ADDRESS, Requests, Waiting};

/// Most bytes of an id and of a name.
const MAX_NAME: usize = 255;
/// Fewest and most characters of a token that a client brings.
const TOKEN: std::ops::RangeInclusive<usize> = 32..=512;
/// Most bytes of a challenge response as JSON.
const MAX_CHALLENGE: usize = 4 << 10;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits for a decision.
    Pending,
    /// Its token holds.
    Approved,
    /// It was refused.
    Rejected,
    /// Its client has candidate again.
    Superseded,
}

impl Status {
    /// The status of this name; `None`: there is none.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pending" => Self::Pending,
            "approved" => Self::Approved,
            "rejected" => Self::Rejected,
            "superseded" => Self::Superseded,
            _ => return None,
        })
    }
}

/// A request as managers see it (admin.md §3.1); serialises as that object.
#[derive(Debug, Clone, Serialize)]
pub struct PublicRequest {
    /// `authreq-…`.
    pub request_id: Arc<str>,
    /// What became of it.
    pub status: Status,
    /// The realm.
    pub realm: Box<str>,
    /// As what; once approved as what it was.
    pub role: &'static str,
    /// The client's id.
    pub client_id: Arc<str>,
    /// What it calls itself.
    pub client_name: Arc<str>,
    /// The SHA-256 of its token, whoever made it.
    pub client_token_hash: TokenHash,
    /// What it answered to a challenge, as it came.
    pub challenge_response: Option<Arc<RawValue>>,
    /// When it candidate, as ISO text.
    pub created_at: String,
    /// When that was decided.
    pub decided_at: Option<String>,
    /// Why.
    pub decision_reason: Option<Arc<str>>,
}

/// What a client asks for, checked.
#[derive(Clone)]
pub struct Candidate {
    realm: RealmId,
    role: Role,
    client_id: Arc<str>,
    client_name: Arc<str>,
    token: Option<TokenHash>,
    challenge: Option<Arc<RawValue>>,
}

/// A request as it came.
#[derive(Clone)]
pub struct Submission {
    /// What is candidate for.
    pub candidate: Candidate,
    /// Where it comes from.
    pub address: IpAddr,
    /// The session that asks, and that is to hear the decision.
    pub session: Arc<str>,
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::BadCommand, why)
}

fn name(what: &str, text: &str) -> Result<Arc<str>> {
    let is_name = (1..=MAX_NAME).contains(&text.len()) && !text.chars().any(char::is_control);
    is_name.then(|| text.into()).ok_or_else(|| {
        refused(&format!(
            "{what} has 1 to {MAX_NAME} bytes and no control characters"
        ))
    })
}

impl Candidate {
    /// Checks what a client sent. A role that there is not is `both`; without a token the broker makes
    /// one; `challenge_response` is JSON text.
    ///
    /// # Errors
    /// `bad_command` or `bad_name`, naming the field; a token is never repeated.
    pub fn new(
        realm: &str,
        role: Option<&str>,
        (client_id, client_name): (&str, &str),
        client_token: Option<&str>,
        challenge_response: Option<&str>,
    ) -> Result<Self> {
        let token = client_token.map(|token| match TOKEN.contains(&token.chars().count()) {
            true => Ok(TokenHash::of(token)),
            false => Err(refused("client_token has 32 to 512 characters")),
        });
        let challenge = challenge_response.map(|text| {
            if text.len() > MAX_CHALLENGE {
                return Err(refused(
                    "challenge_response has at most 4,096 bytes as JSON",
                ));
            }
            let raw = RawValue::from_string(text.trim().to_owned());
            raw.map(Arc::from)
                .map_err(|_| refused("challenge_response is no JSON"))
        });
        Ok(Self {
            realm: RealmId::parse(realm)?,
            role: role.and_then(Role::parse).unwrap_or(Role::Both),
            client_id: name("client_id", client_id)?,
            client_name: name("client_name", client_name)?,
            token: token.transpose()?,
            challenge: challenge.transpose()?,
        })
    }
}

fn too_many(why: &str) -> Error {
    Error::new(ErrorKind::RateLimited, why)
}

impl Requests {
    /// Takes a request in; its id. One of the same realm and client id that waits already is superseded
    /// if it came from the same session or with the same token; else both wait, and the manager sees
    /// that (AF10). A token that is refused, and one in the place of another that waits, count as failures
    /// of the address: nobody guesses tokens by asking.
    ///
    /// # Errors
    /// `token_exists` if the token is known already, or waits in another request; `rate_limited` after too
    /// many failures of this address, or if too many wait, in sum or of it; what the keeper says.
    pub async fn submit(&self, submission: Submission, now: Timestamp) -> Result<Arc<str>, Denied> {
        let _changing = self.changing.lock().await;
        // Another broker may change what is superseded at the same time.
        match self.try_submit(&submission, now).await {
            Err(denied) if denied.error.kind() == ErrorKind::Conflict => {
                self.try_submit(&submission, now).await
            }
            submitted => submitted,
        }
    }

    async fn try_submit(
        &self,
        submission: &Submission,
        now: Timestamp,
    ) -> Result<Arc<str>, Denied> {
        let Submission {
            candidate,
            address,
            session,
        } = submission;
        self.grants.may_try(*address)?;
        let said = TokenHash::of(session);
        let superseded = self.admit(candidate, *address, said, now)?;
        let (token, minted) = match candidate.token {
            Some(token) => (token, None),
            None => {
                let secret = Secret::mint()?;
                (secret.hash(), Some(secret))
            }
        };
        let request = Kept {
            id: new_id(now),
            version: 0,
            status: super::Status::Pending,
            realm: candidate.realm.clone(),
            role: candidate.role,
            client_id: Arc::clone(&candidate.client_id),
            client_name: Arc::clone(&candidate.client_name),
            token,
            challenge: candidate.challenge.clone(),
            address: *address,
            session: said,
            created: now,
            decided: None,
            reason: None,
        };
        let mut changes = self.trimmed(superseded.len());
        changes.push(request.put()?);
        let (id, mut requests) = (Arc::clone(&request.id), vec![request]);
        for mut old in superseded {
            (old.status, old.decided) = (Status::Superseded, Some(now));
            changes.push(old.put()?);
            requests.push(old);
        }
        let ids: Vec<_> = requests.iter().map(|one| Arc::clone(&one.id)).collect();
        self.write(changes, requests, now).await?;
        let mut waiting = self.waiting.lock();
        for id in &ids {
            waiting.remove(id);
        }
        let session = Arc::clone(session);
        waiting.insert(Arc::clone(&id), Waiting { session, minted });
        Ok(id)
    }

    /// Whether there is room for it; what it supersedes.
    fn admit(
        &self,
        candidate: &Candidate,
        address: IpAddr,
        session: TokenHash,
        now: Timestamp,
    ) -> Result<Vec<Kept>> {
        let shows = |request: &Kept| candidate.token == Some(request.token);
        let (mut superseded, mut pending, mut of_address) = (Vec::new(), 0, 0);
        let mut is_taken = candidate
            .token
            .is_some_and(|token| self.grants.is_known(&token));
        let kept = self.kept.lock();
        for request in kept.values().filter(|request| request.is_pending(now)) {
            let is_same =
                request.realm == candidate.realm && request.client_id == candidate.client_id;
            if is_same && (request.session == session || shows(request)) {
                superseded.push(request.clone());
                continue;
            }
            is_taken |= shows(request);
            pending += 1;
            of_address += usize::from(counted(request.address) == counted(address));
        }
        // Before anything is said of the token: who may not ask learns nothing of it.
        if of_address >= MOST_OF_ADDRESS {
            return Err(too_many(
                "too many requests of this address wait for a decision",
            ));
        }
        if pending >= self.most_pending.load(Ordering::Relaxed) {
            return Err(too_many("too many requests wait for a decision"));
        }
        if is_taken || superseded.iter().any(|old| !shows(old)) {
            self.grants.failed(address);
        }
        if is_taken {
            return Err(token_exists());
        }
        // What one call may change is bounded; nobody has so many.
        superseded.truncate(MOST_OF_ADDRESS);
        Ok(superseded)
    }
}

pub(super) fn token_exists() -> Error {
    Error::new(
        ErrorKind::TokenExists,
        "a token of this text is known already",
    )
}

/// `authreq-`, milliseconds in base 36, `-`, 12 hex digits: in the order of time.
fn new_id(now: Timestamp) -> Arc<str> {
    let (mut digits, mut left) = (Vec::new(), now.0);
    while left > 0 || digits.is_empty() {
        digits.push(char::from_digit(u32::try_from(left % 36).unwrap_or(0), 36).unwrap_or('0'));
        left /= 36;
    }
    let millis: String = digits.into_iter().rev().collect();
    format!("authreq-{millis}-{:012x}", fastrand::u64(..1 << 48)).into()
}
