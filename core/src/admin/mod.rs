//! Management: what an operator orders by a signed command, whichever door it comes through
//! (admin.md §3, §4).
//!
//! [`Admin`] lets an order in by its proof, reads it as a [`Command`] and does it: on [`Auth`], on the
//! broker, or by what its [`Host`] can. Knows no verb of the wire beyond what is signed, no socket and
//! no settings file. Called by `session`; by further doors later.

mod body;
mod command;
mod credentials;
mod host;
mod order;
mod queues;
mod realms;
mod reply;
mod requests;
mod shapes;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::{
    Action, Auth, Authority, Denied, Proofs, Requests, Secret, Signed, SigningSecret,
};
use crate::broker::Broker;
use crate::clock::Clock;
use crate::model::RealmId;
use crate::{ErrorKind, Result};

pub use command::{Command, RealmChange, StoreWish, WhichLetter, WhichSession};
pub use host::{Host, RollCall};
pub use requests::Told;
pub use shapes::{Letter, of_queue, of_realm};

use order::Order;
use reply::{Done, ok};

/// Where an order comes from.
#[derive(Debug, Clone)]
pub struct Caller {
    /// For counting failures.
    pub address: IpAddr,
    /// Whether nobody else can listen: over TLS, or within this machine.
    pub is_private: bool,
    /// The session, for who is to hear a decision.
    pub socket_id: Arc<str>,
}

/// See the module.
pub struct Admin {
    auth: Arc<Auth>,
    broker: Arc<Broker>,
    proofs: Proofs,
    requests: Arc<Requests>,
    host: Arc<dyn Host>,
    clock: Arc<dyn Clock>,
    /// Realms that are being renamed here, by their old names.
    renaming: Mutex<HashSet<RealmId>>,
}

impl Admin {
    /// Management of one server.
    pub fn new(
        auth: Arc<Auth>,
        broker: Arc<Broker>,
        proofs: Proofs,
        requests: Arc<Requests>,
        host: Arc<dyn Host>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            auth,
            broker,
            proofs,
            requests,
            host,
            clock,
            renaming: Mutex::default(),
        }
    }

    /// The authorization requests.
    pub fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    /// `AUTH_MANAGEMENT_COMMAND {body, proof}`: the JSON text of the answer. The proof is used up only by
    /// a command that there is (AF49).
    ///
    /// # Errors
    /// `proof_rejected`, `rate_limited`; then what the command says.
    pub async fn execute(&self, payload: Option<&str>, caller: &Caller) -> Result<String, Denied> {
        let order = Order::read(payload);
        let command = order.needed_body().and_then(Command::parse);
        let realm = command.as_ref().ok().and_then(Command::realm_scope);
        let by = match &command {
            Ok(_) => self.admit(Action::Command, &order, realm, caller).await?,
            Err(error) => {
                let realm = order.body().and_then(body::meant_realm);
                self.look(Action::Command, &order, realm.as_ref(), caller)?;
                return Err(error.clone().into());
            }
        };
        let command = command?;
        let may_be_heard = caller.is_private || self.auth.allows_insecure_management();
        if command.bears_secret() && !may_be_heard {
            let text = "this command carries a secret: send it over TLS or from this machine, or \
                        allow auth.allow_insecure_management";
            return Err(Denied::new(ErrorKind::Forbidden, text));
        }
        Ok(self.run(command, &by).await?)
    }

    /// Who has signed an order; its proof is used up then.
    async fn admit(
        &self,
        action: Action,
        order: &Order<'_>,
        realm: Option<&RealmId>,
        caller: &Caller,
    ) -> Result<Authority, Denied> {
        let secrets = self.secrets(realm);
        let secrets: Vec<_> = secrets.iter().map(signing).collect();
        let signed = signed(action, order, caller);
        let signer = self
            .proofs
            .admit(signed, &secrets, self.clock.now())
            .await?;
        Ok(signer.authority)
    }

    /// Whether an administrator, or the manager of the realm that is meant, has signed an order that there
    /// is not: who has not, learns nothing else.
    fn look(
        &self,
        action: Action,
        order: &Order<'_>,
        realm: Option<&RealmId>,
        caller: &Caller,
    ) -> Result<(), Denied> {
        let secrets = self.secrets(realm);
        let secrets: Vec<_> = secrets.iter().map(signing).collect();
        let signed = signed(action, order, caller);
        self.proofs.look(signed, &secrets, self.clock.now())
    }

    /// The secrets that may sign what concerns a realm.
    fn secrets(&self, realm: Option<&RealmId>) -> Vec<(Authority, Secret)> {
        let global = self.auth.admin_secrets().into_iter();
        let mut secrets: Vec<_> = global.map(|secret| (Authority::Global, secret)).collect();
        let key = realm.and_then(|realm| Some((realm, self.auth.manager_key(realm)?)));
        secrets.extend(key.map(|(realm, key)| (Authority::Realm(realm.clone()), key)));
        secrets
    }

    async fn run(&self, command: Command, by: &Authority) -> Result<String> {
        let done = match command {
            Command::Get => Done::default(),
            Command::ReloadSettings => {
                self.host.reload_settings().await?;
                Done::default()
            }
            Command::SetGlobalAuth { enabled } => {
                let set = self.auth.set_global_auth(enabled);
                self.end_unfounded(set).await?.1
            }
            Command::SetPersistence(wish) => {
                let copied = self.host.set_persistence(wish.0).await?;
                Done::default().migrated(copied)
            }
            Command::AddRealm { realm, new } => self.add_realm(realm, *new).await?,
            Command::RenameRealm { from, to } => self.rename_realm(from, to).await?,
            Command::RemoveRealm { realm } => self.remove_realm(realm).await?,
            Command::SetRealm {
                realm,
                change,
                create,
            } => self.set_realm(realm, change, create, by).await?,
            Command::SetExternalAuth { scope, url, secret } => {
                let set = self.auth.set_external_auth(scope, url, secret);
                self.end_unfounded(set).await?.1
            }
            Command::AddManagementToken { token, bounds } => {
                self.auth.add_management_token(token, bounds).await?;
                Done::default()
            }
            Command::RevokeManagementToken { token } => {
                self.auth.revoke_management_token(token).await?;
                Done::default()
            }
            Command::AddToken(new) => self.add_token(*new).await?,
            Command::RevokeToken {
                which, allow_admin, ..
            } => self.revoke_token(which, allow_admin).await?,
            Command::Disconnect { which, realm } => self.disconnect(&which, realm.as_ref())?,
            Command::DlqPurge { realm } => self.purge_letters(&realm).await?,
            Command::QueueRelease { realm, queue } => self.release_queue(&realm, queue).await?,
            // These are answered with what they ask for, or with the ids they name.
            Command::Stats => return Ok(ok(reply::one("stats", self.host.stats()))),
            Command::AuthorizationList {
                realm,
                status,
                cursor,
                limit,
            } => return self.list_requests(realm, status.as_deref(), cursor, limit),
            Command::ListSessions { realm } => return Ok(self.list_sessions(realm.as_ref())),
            Command::DlqList {
                realm,
                cursor,
                limit,
            } => {
                let cursor = cursor.as_deref();
                return self.list_letters(realm.as_ref(), cursor, limit).await;
            }
            Command::DlqReplay(letter) => return self.requeue(&letter).await,
            Command::DlqDiscard(letter) => return self.discard(&letter).await,
            Command::QueueStats { realm } => return self.queue_stats(realm.as_ref()).await,
        };
        Ok(self.shown(by, done))
    }

    /// Makes a change, then ends the sessions that have lost their right to be there by it.
    async fn end_unfounded<T>(&self, change: impl Future<Output = Result<T>>) -> Result<(T, Done)> {
        let end = self.host.roll_call();
        let changed = change.await?;
        Ok((changed, Done::default().sessions(end())))
    }
}

fn signing((authority, secret): &(Authority, Secret)) -> SigningSecret<'_> {
    SigningSecret { authority, secret }
}

fn signed<'a>(action: Action, order: &Order<'a>, caller: &Caller) -> Signed<'a> {
    Signed {
        action,
        body: order.body(),
        proof: order.proof(),
        address: caller.address,
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
