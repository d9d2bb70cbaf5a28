//! Who is this, and what may they do: realms, credentials, roles, proofs.
//!
//! Answers from memory, but for what asks somebody outside; what must last goes into the store's
//! [documents](crate::store::Documents). Knows no socket, no verb of the wire and no message: whoever
//! opens a door (`session`, `admin`) asks here first and hands the broker the [`Principal`]'s filter.

mod allow;
mod bootstrap;
mod env_file;
mod outside;
mod principal;
mod reader;
mod realm;
mod role;
mod secret;
mod settings;
mod token;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

use crate::model::RealmId;

pub use allow::{Allow, NamePattern};
pub use bootstrap::{ADMIN_TOKEN, ENV_FILE, Environment, process_environment};
pub use env_file::{append_env_file, read_env_file};
pub use outside::{ExternalValidator, ValidatorUrl};
pub use principal::{Credential, Denied, Need, Principal, TokenHash};
pub use reader::parse_realm;
pub use realm::{E2ee, EVERY_REALM, FileRealm, RealmConfig, Rules, is_fixed};
pub use role::Role;
pub use secret::{MAX_SECRET, Secret};
pub use settings::{AuthSettings, KeylessConsumers};
pub use token::{FileToken, ManagementToken, Token, check_role};

/// AUTHENTICATION as a client sent it (admin.md §2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// An opaque token or a JWT.
    pub token: Option<String>,
    /// The desired realm.
    pub realm: Option<String>,
    /// The desired role.
    pub role: Option<String>,
    /// A realm's pre-shared key.
    pub key: Option<String>,
    /// Where it comes from, for counting failures.
    pub address: IpAddr,
    /// Failed attempts on this session before this one.
    pub failures: u32,
}

/// Whether an attempt was good: known at once, or after somebody outside was asked.
pub enum Outcome {
    /// Known.
    Now(Result<Arc<Principal>, Denied>),
    /// To be awaited; verbs of the session wait behind it (admin.md §2.2 iii).
    Later(Pin<Box<dyn Future<Output = Result<Arc<Principal>, Denied>> + Send>>),
}

/// All that is known of who may do what; shared by every session of a server.
#[derive(Debug)]
pub struct Auth {
    changes: watch::Sender<u64>,
}

impl Auth {
    /// Everybody is in, with every right, in realm `default`.
    pub fn off() -> Arc<Self> {
        Arc::new(Self {
            changes: watch::Sender::new(0),
        })
    }

    /// Whether anybody is asked who they are.
    pub fn is_enabled(&self) -> bool {
        false
    }

    /// Decides on AUTHENTICATION. Failures are counted by address (admin.md §2.2 iv).
    pub fn authenticate(&self, attempt: &Attempt) -> Outcome {
        let _ = attempt;
        Outcome::Now(Ok(Arc::new(Principal::everybody())))
    }

    /// Lets a session in that has shown nothing and does its first verb: to realm `default` only
    /// (admin.md §2.5).
    ///
    /// # Errors
    /// `unauthenticated`.
    pub fn admit(&self, need: Need) -> Result<Arc<Principal>, Denied> {
        let _ = need;
        Ok(Arc::new(Principal::everybody()))
    }

    /// Whether what let a session in still does: asked of every live session after each change, and
    /// when it [expires](Principal::expires).
    ///
    /// # Errors
    /// `unauthenticated` or `forbidden`, as the client is told before it is closed.
    pub fn check(&self, principal: &Principal) -> Result<(), Denied> {
        let _ = principal;
        Ok(())
    }

    /// Changes whenever a session may have lost its right to be there.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether consumers and producers may go without a name in the realm (wire §2.3).
    pub fn allows_anonymous(&self, realm: &RealmId) -> bool {
        *realm == RealmId::default()
    }

    /// Whether the realm takes encrypted bodies only (decided 10).
    pub fn needs_e2ee(&self, realm: &RealmId) -> bool {
        let _ = realm;
        false
    }

    /// Whether what `owner` published earlier may go out under this event, folded: asked when a
    /// delay is over (P17).
    pub fn may_still_publish(&self, realm: &RealmId, owner: Option<&str>, event: &str) -> bool {
        let _ = (realm, owner, event);
        true
    }
}
