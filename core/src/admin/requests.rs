//! Authorization requests over the wire (admin.md §3.1): who asks, what managers see and decide.

use serde::Serialize;
use serde_json::{Map, Value};

use super::body::Body;
use super::order::Order;
use super::reply::{ok, ok_raw};
use super::{Admin, Caller};
use crate::auth::{Action, Candidate, Decided, Decision, Denied, PublicRequest, Role, Status};
use crate::auth::{Submission, Wanted};
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

#[derive(Serialize)]
struct One {
    request: Option<PublicRequest>,
}

#[derive(Serialize)]
struct Many {
    requests: Vec<PublicRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<std::sync::Arc<str>>,
}

/// What a requester has to hear, over its own session.
#[derive(Debug)]
pub struct Told {
    /// The session.
    pub socket_id: std::sync::Arc<str>,
    /// Whether it was approved.
    pub is_approved: bool,
    /// Its payload as JSON text.
    pub payload: String,
}

impl Told {
    /// What was decided, if its requester is here.
    pub fn of(decided: &Decided) -> Option<Self> {
        let request = &decided.request;
        let mut payload = Map::new();
        let mut put = |name: &str, value: Value| payload.insert(name.to_owned(), value);
        put("request_id", (*request.request_id).into());
        let is_approved = request.status == Status::Approved;
        if is_approved {
            put("realm", (*request.realm).into());
            put("role", request.role.into());
            if let Some(token) = &decided.token {
                put("client_token", token.expose().into());
            }
        } else {
            put("reason", request.decision_reason.as_deref().into());
        }
        Some(Self {
            socket_id: decided.tell.clone()?,
            is_approved,
            payload: Value::Object(payload).to_string(),
        })
    }
}

fn bad(text: &str) -> Error {
    Error::new(ErrorKind::BadCommand, text)
}

impl Admin {
    /// `AUTHORIZATION_REQUEST`: the JSON text of the answer.
    ///
    /// # Errors
    /// `bad_command`, `bad_name`, `token_exists`, `rate_limited`; what the store says.
    pub async fn request(&self, payload: Option<&str>, caller: &Caller) -> Result<String, Denied> {
        let body = Body::read_either(payload.unwrap_or_default())?;
        let challenge = body.get(&["challenge_response", "challengeResponse"]);
        let challenge = challenge.map(Value::to_string);
        let role = body.text(&["role"]).ok().flatten();
        let candidate = Candidate::new(
            &body.needed(&["realm"])?,
            role.as_deref(),
            (
                &body.needed(&["client_id"])?,
                &body.needed(&["client_name"])?,
            ),
            body.text(&["client_token"])?.as_deref(),
            challenge.as_deref(),
        )?;
        let submission = Submission {
            candidate,
            address: caller.address,
            session: caller.socket_id.clone(),
        };
        let id = self.requests.submit(submission, self.clock.now()).await?;
        let mut reply = Map::new();
        reply.insert("request_id".to_owned(), (*id).into());
        reply.insert("status".to_owned(), "pending".into());
        Ok(ok(reply))
    }

    /// `AUTHORIZATION_NEXT {body: {realm?}, proof}`: the JSON text of the answer.
    ///
    /// # Errors
    /// `proof_rejected`, `rate_limited`, `bad_name`.
    pub async fn next(&self, payload: Option<&str>, caller: &Caller) -> Result<String, Denied> {
        let order = Order::read(payload);
        let realm = Body::read(order.body().unwrap_or("{}")).and_then(|body| body.any_realm());
        let scope = realm.as_ref().ok().and_then(Option::as_ref);
        self.admit(Action::Next, &order, scope, caller).await?;
        let request = self.requests.next(realm?.as_ref(), self.clock.now());
        Ok(ok_raw(&One { request })?)
    }

    /// `AUTHORIZATION_DECIDE {body: {request_id, approved, role?, reason?}, proof}`: the JSON text of
    /// the answer, and what the requester has to hear.
    ///
    /// # Errors
    /// `proof_rejected`, `rate_limited`; what [`Requests::decide`](crate::auth::Requests::decide) says.
    pub async fn decide(
        &self,
        payload: Option<&str>,
        caller: &Caller,
    ) -> Result<(String, Option<Told>), Denied> {
        let order = Order::read(payload);
        let decision = order.needed_body().and_then(decision);
        let now = self.clock.now();
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                let meant = order.body().and_then(meant_request);
                let realm = meant.and_then(|id| self.requests.pending_realm(&id, now));
                self.look(Action::Decide, &order, realm.as_ref(), caller)?;
                return Err(error.into());
            }
        };
        let realm = self.requests.pending_realm(&decision.request, now);
        let authority = self
            .admit(Action::Decide, &order, realm.as_ref(), caller)
            .await?;
        let decided = self.requests.decide(&decision, &authority, now).await?;
        let told = Told::of(&decided);
        let request = Some(decided.request);
        Ok((ok_raw(&One { request })?, told))
    }

    pub(super) fn list_requests(
        &self,
        realm: Option<RealmId>,
        status: Option<&str>,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<String> {
        let status = status.map(|text| {
            Status::parse(text)
                .ok_or_else(|| bad("status must be pending, approved, rejected or superseded"))
        });
        let wanted = Wanted {
            realm,
            status: status.transpose()?,
            cursor: cursor.map(Into::into),
            limit: Some(limit),
        };
        let (requests, cursor) = self.requests.list(&wanted, self.clock.now());
        ok_raw(&Many { requests, cursor })
    }
}

const REQUEST_ID: &[&str] = &["request_id", "requestId"];

/// The request that a body names, whatever else is wrong with it.
fn meant_request(body: &str) -> Option<String> {
    Body::read(body).ok()?.needed(REQUEST_ID).ok()
}

fn decision(body: &str) -> Result<Decision> {
    let body = Body::read(body)?;
    let role = body.text(&["role"])?.filter(|role| !role.is_empty());
    let role = role.map(|role| {
        let known = Role::parse(&role);
        known.ok_or_else(|| bad("role must be producer, consumer, both, manager or admin"))
    });
    Ok(Decision {
        request: body.needed(REQUEST_ID)?.into(),
        approved: body.needed_flag(&["approved"])?,
        role: role.transpose()?,
        reason: body.text(&["reason"])?.map(Into::into),
    })
}
