//! A request as it is kept: one document. Knows no rule.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::model::{RealmId, instant};
use crate::store::{Collection, Condition, Document, DocumentChange};
use crate::{Error, ErrorKind, Result};

use super::super::{Role, TokenHash};
use super::{DECIDED, PENDING, PublicRequest, Status};

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) id: Arc<str>,
    /// Of the document; 0: it is not written yet.
    pub(super) version: u64,
    pub(super) status: Status,
    pub(super) realm: RealmId,
    /// As what; once approved as what it was.
    pub(super) role: Role,
    pub(super) client_id: Arc<str>,
    pub(super) client_name: Arc<str>,
    pub(super) token: TokenHash,
    pub(super) challenge: Option<Arc<RawValue>>,
    pub(super) address: IpAddr,
    /// The hash of the session that asks: the id itself would let others into it.
    pub(super) session: TokenHash,
    pub(super) created: Timestamp,
    pub(super) decided: Option<Timestamp>,
    pub(super) reason: Option<Arc<str>>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    status: Status,
    realm: String,
    role: String,
    client_id: Arc<str>,
    client_name: Arc<str>,
    token_hash: TokenHash,
    challenge_response: Option<Box<RawValue>>,
    address: IpAddr,
    session: TokenHash,
    created_at: u64,
    decided_at: Option<u64>,
    reason: Option<Arc<str>>,
}

impl Kept {
    /// Reads a document; `None` for what [`Kept::put`] did not write.
    pub(super) fn read(document: &Document) -> Option<Self> {
        let text: Text = serde_json::from_str(&document.text).ok()?;
        Some(Self {
            id: Arc::clone(&document.key),
            version: document.version,
            status: text.status,
            realm: RealmId::parse(&text.realm).ok()?,
            role: Role::parse(&text.role)?,
            client_id: text.client_id,
            client_name: text.client_name,
            token: text.token_hash,
            challenge: text.challenge_response.map(Arc::from),
            address: text.address,
            session: text.session,
            created: Timestamp(text.created_at),
            decided: text.decided_at.map(Timestamp),
            reason: text.reason,
        })
    }

    /// The change that writes it in the place of what was read.
    ///
    /// # Errors
    /// `internal` for what cannot be written.
    pub(super) fn put(&self) -> Result<DocumentChange> {
        let text = Text {
            status: self.status,
            realm: self.realm.as_str().to_owned(),
            role: self.role.as_str().to_owned(),
            client_id: Arc::clone(&self.client_id),
            client_name: Arc::clone(&self.client_name),
            token_hash: self.token,
            challenge_response: self.challenge.as_deref().map(ToOwned::to_owned),
            address: self.address,
            session: self.session,
            created_at: self.created.0,
            decided_at: self.decided.map(|at| at.0),
            reason: self.reason.clone(),
        };
        let text = serde_json::to_string(&text)
            .map_err(|_| Error::new(ErrorKind::Internal, "a request cannot be written"))?;
        Ok(DocumentChange {
            collection: Collection::Requests,
            key: Arc::clone(&self.id),
            text: Some(text.into()),
            expires: Some(self.expires()),
            only_if: match self.version {
                0 => Condition::Absent,
                version => Condition::Version(version),
            },
        })
    }

    fn expires(&self) -> Timestamp {
        match self.decided {
            Some(at) => at.plus(DECIDED),
            None => self.created.plus(PENDING),
        }
    }

    /// Whether its time is over.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.expires() <= now
    }

    /// Whether it waits for a decision.
    pub(super) fn is_pending(&self, now: Timestamp) -> bool {
        self.status == Status::Pending && !self.is_over(now)
    }

    /// As managers see it.
    pub(super) fn public(&self) -> PublicRequest {
        PublicRequest {
            request_id: Arc::clone(&self.id),
            status: self.status,
            realm: self.realm.as_str().into(),
            role: self.role.as_str(),
            client_id: Arc::clone(&self.client_id),
            client_name: Arc::clone(&self.client_name),
            client_token_hash: self.token,
            challenge_response: self.challenge.clone(),
            created_at: instant::format(self.created),
            decided_at: self.decided.map(instant::format),
            decision_reason: self.reason.clone(),
        }
    }
}
