//! Orders about tokens, validators and sessions (admin.md §4.2).

use std::sync::Arc;

use serde_json::{Value, json};

use super::Admin;
use super::command::{ExternalAuth, NewToken, Scope, WhichSession, WhichToken};
use super::reply::{Done, named, ok};
use crate::auth::{
    self, Allow, ManagementToken, Secret, SecretChange, TokenChoice, TokenHash, TokenText,
    ValidatorScope, token_view,
};
use crate::broker::SessionInfo;
use crate::model::RealmId;
use crate::{Error, ErrorKind, Result};

impl Admin {
    pub(super) async fn set_global_auth(&self, enabled: bool) -> Result<Done> {
        let end_unfounded = self.host.roll_call();
        self.auth.set_global_auth(enabled).await?;
        Ok(Done::default().sessions(end_unfounded()))
    }

    pub(super) async fn set_external_auth(&self, external: ExternalAuth) -> Result<Done> {
        let scope = match external.scope {
            Scope::Global => ValidatorScope::Global,
            Scope::Realm(realm) => ValidatorScope::Realm(realm),
            Scope::Prefix(prefix) => ValidatorScope::Prefix(prefix.into()),
        };
        let secret = match external.secret {
            None => SecretChange::Keep,
            Some(None) => SecretChange::Clear,
            Some(Some(secret)) => SecretChange::Set(secret),
        };
        let end_unfounded = self.host.roll_call();
        let auth = &self.auth;
        auth.set_external_auth(scope, external.url, secret).await?;
        Ok(Done::default().sessions(end_unfounded()))
    }

    /// The minted text is told this once.
    pub(super) async fn add_token(&self, new: NewToken) -> Result<Done> {
        let shared = |text: Option<String>| text.map(Arc::from);
        let added = auth::NewToken {
            realm: new.realm,
            role: new.role,
            client_id: shared(new.client_id),
            client_name: shared(new.client_name),
            approved_at: None,
            allow: Allow::parse(new.allow.as_ref(), new.names.as_ref())?,
            text: new.token.map_or(TokenText::Mint, TokenText::Given),
        };
        let added = self.auth.add_token(added).await?;
        let done = Done::default().with("token_hash", added.hash.to_string());
        Ok(match added.minted {
            Some(token) => done.with("token", token.expose()),
            None => done,
        })
    }

    pub(super) async fn revoke_token(&self, which: WhichToken, allow_admin: bool) -> Result<Done> {
        let choice = match which {
            WhichToken::Text(text) => TokenChoice::Hash(text.hash()),
            WhichToken::Hash(hash) => TokenChoice::Hash(hash),
            WhichToken::Client(realm, client_id) => TokenChoice::Client {
                realm,
                client_id: client_id.into(),
            },
        };
        let end_unfounded = self.host.roll_call();
        let revoked = self.auth.revoke_token(choice, allow_admin).await?;
        let revoked = revoked.iter().map(|(hash, token)| token_view(hash, token));
        let done = Done::default().with("revoked", revoked.collect::<Vec<_>>());
        Ok(done.sessions(end_unfounded()))
    }

    pub(super) async fn add_management_token(
        &self,
        secret: Secret,
        token: ManagementToken,
    ) -> Result<Done> {
        self.auth.add_management_token(secret, token).await?;
        Ok(Done::default())
    }

    pub(super) async fn revoke_management_token(&self, hash: TokenHash) -> Result<Done> {
        self.auth.revoke_management_token(hash).await?;
        Ok(Done::default())
    }

    pub(super) fn list_sessions(&self, realm: Option<&RealmId>) -> String {
        let sessions = self.broker.sessions_of(realm);
        let sessions: Vec<_> = sessions.iter().map(session).collect();
        let reply = [
            ("realm".to_owned(), named(realm)),
            ("sessions".to_owned(), sessions.into()),
        ];
        ok(reply.into_iter().collect::<serde_json::Map<_, _>>())
    }

    pub(super) fn disconnect(&self, which: &WhichSession) -> Result<Done> {
        let why = Error::new(
            ErrorKind::Forbidden,
            "an administrator has ended this session",
        );
        let end = |socket: &str| usize::from(self.broker.disconnect(socket, Some(&why)));
        let owner = |id: &String| format!("client:{id}");
        let count = match which {
            WhichSession::Socket(socket) => end(socket),
            WhichSession::Realm(realm) => {
                let sessions = self.broker.sessions_of(Some(realm));
                sessions.iter().map(|one| end(&one.socket_id)).sum()
            }
            WhichSession::Client(id) => {
                let owner = owner(id);
                let sessions = self.broker.sessions_of(None);
                let own = sessions
                    .iter()
                    .filter(|one| one.owner.as_deref() == Some(&*owner));
                own.map(|one| end(&one.socket_id)).sum()
            }
        };
        if count == 0 {
            let text = "no such session is connected";
            return Err(Error::new(ErrorKind::SessionUnknown, text));
        }
        Ok(Done::default().sessions(count))
    }
}

fn session(info: &SessionInfo) -> Value {
    let names = |names: &[&str]| names.iter().map(|name| json!(name)).collect::<Vec<_>>();
    let consumers: Vec<&str> = info.consumers.iter().map(AsRef::as_ref).collect();
    let producers: Vec<&str> = info.producers.iter().map(AsRef::as_ref).collect();
    json!({
        "socket_id": &*info.socket_id,
        "realm": info.realm.as_str(),
        "role": info.role,
        "owner": info.owner.as_deref(),
        "consumers": names(&consumers),
        "producers": names(&producers),
        "address": info.remote.map(|remote| remote.to_string()),
        "since": info.since.0,
    })
}
