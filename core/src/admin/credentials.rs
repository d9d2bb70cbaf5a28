//! Orders about tokens and sessions (admin.md §4.2).

use serde_json::{Map, Value, json};

use super::Admin;
use super::command::WhichSession;
use super::reply::{Done, named, ok};
use crate::auth::{NewToken, TokenChoice, token_view};
use crate::broker::SessionInfo;
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

impl Admin {
    /// The minted text is told this once.
    pub(super) async fn add_token(&self, new: NewToken) -> Result<Done> {
        let added = self.auth.add_token(new).await?;
        let done = Done::default().with("token_hash", added.hash.to_string());
        Ok(match added.minted {
            Some(token) => done.with("token", token.expose()),
            None => done,
        })
    }

    pub(super) async fn revoke_token(&self, which: TokenChoice, allow_admin: bool) -> Result<Done> {
        let revoking = self.auth.revoke_token(which, allow_admin);
        let (revoked, done) = self.end_unfounded(revoking).await?;
        let revoked = revoked.iter().map(|(hash, token)| token_view(hash, token));
        Ok(done.with("revoked", revoked.collect::<Vec<_>>()))
    }

    pub(super) fn list_sessions(&self, realm: Option<&RealmId>) -> String {
        let sessions = self.broker.sessions_of(realm);
        let sessions: Vec<_> = sessions.iter().map(session).collect();
        let mut reply = Map::new();
        reply.insert("realm".to_owned(), named(realm));
        reply.insert("sessions".to_owned(), sessions.into());
        ok(reply)
    }

    /// Ends sessions; with a realm only there.
    pub(super) fn disconnect(&self, which: &WhichSession, realm: Option<&RealmId>) -> Result<Done> {
        let why = Error::new(
            ErrorKind::Forbidden,
            "an administrator has ended this session",
        );
        let is_meant = |one: &SessionInfo| match which {
            WhichSession::Socket(socket) => *one.socket_id == **socket,
            WhichSession::All => true,
            WhichSession::Client(id) => {
                let owner = one.owner.as_deref();
                owner.and_then(|owner| owner.strip_prefix("client:")) == Some(&**id)
            }
        };
        let sessions = self.broker.sessions_of(realm);
        let meant = sessions.iter().filter(|one| is_meant(one));
        let ended = meant.filter(|one| self.broker.disconnect(&one.socket_id, Some(&why)));
        let count = ended.count();
        if count == 0 {
            let text = "no such session is connected";
            return Err(Error::new(ErrorKind::SessionUnknown, text));
        }
        Ok(Done::default().sessions(count))
    }
}

fn session(info: &SessionInfo) -> Value {
    let consumers: Vec<&str> = info.consumers.iter().map(AsRef::as_ref).collect();
    let producers: Vec<&str> = info.producers.iter().map(AsRef::as_ref).collect();
    json!({
        "socket_id": &*info.socket_id,
        "realm": info.realm.as_str(),
        "role": info.role,
        "owner": info.owner.as_deref(),
        "consumers": consumers,
        "producers": producers,
        "address": info.remote.map(|remote| remote.to_string()),
        "since": info.since.0,
    })
}
