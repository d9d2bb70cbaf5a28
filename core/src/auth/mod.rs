//! Who is this, and what may they do: realms, credentials, roles, proofs.
//!
//! Answers from memory, but for what asks somebody outside; what must last goes into the store's
//! [documents](crate::store::Documents). Knows no socket, no verb of the wire and no message: whoever
//! opens a door (`session`, `admin`) asks here first and hands the broker the [`Principal`]'s filter.

mod allow;
mod attempts;
mod bootstrap;
mod canonical;
mod check;
mod claims;
mod env_file;
mod external;
mod generations;
mod grants;
mod identify;
mod jwt;
mod load;
mod nonces;
mod outside;
mod principal;
mod proof;
mod reader;
mod realm;
mod records;
mod registry;
mod requests;
mod role;
mod secret;
mod settings;
mod sign;
mod state;
#[cfg(test)]
mod testing;
mod token;
mod validator;
mod views;

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};

use self::external::External;
use self::identify::Whom;
use self::state::State;
use self::validator::Program;
use crate::Result;
use crate::clock::{Clock, SystemClock};
use crate::model::RealmId;
use crate::store::Documents;

pub use allow::{Allow, NamePattern};
pub use attempts::{Attempts, MAX_SESSION_FAILURES};
pub use bootstrap::{ADMIN_TOKEN, ENV_FILE, Environment, process_environment};
pub use claims::Claims;
pub use env_file::{append_env_file, read_env_file};
pub use nonces::Nonces;
pub use outside::{ExternalValidator, ValidatorUrl};
pub use principal::{Credential, Denied, Need, Principal, TokenHash};
pub use proof::{Action, Authority, Failures, Proof, Proofs, Signed, Signer, SigningSecret};
pub use realm::{E2ee, EVERY_REALM, RealmConfig, Rules, is_fixed};
pub use registry::{
    AddedToken, Caller, Lifetime, NewRealm, NewToken, SecretChange, TokenChoice, TokenText,
    ValidatorScope, clamp,
};
pub use requests::{
    Candidate, Decided, Decision, Grants, MOST_PENDING, PublicRequest, Requests, Status,
    Submission, Wanted,
};
pub use role::Role;
pub use secret::{MAX_SECRET, Secret};
pub use settings::{AuthSettings, KeylessConsumers};
pub use sign::{new_nonce, sign};
pub use token::{FileToken, ManagementToken, Token, check_role};
pub use validator::{Answer, Validator};
pub use views::token_view;

/// AUTHENTICATION as a client sent it (admin.md §2.2).
#[derive(Clone, PartialEq, Eq)]
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

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("has_token", &self.token.is_some())
            .field("realm", &self.realm)
            .field("role", &self.role)
            .field("has_key", &self.key.is_some())
            .field("address", &self.address)
            .field("failures", &self.failures)
            .finish()
    }
}

fn on_or_off(is_on: bool) -> &'static str {
    match is_on {
        true => "on",
        false => "off",
    }
}

/// Whether an attempt was good: known at once, or after somebody outside was asked.
pub enum Outcome {
    /// Known.
    Now(Result<Arc<Principal>, Denied>),
    /// To be awaited; verbs of the session wait behind it (admin.md §2.2 iii).
    Later(Pin<Box<dyn Future<Output = Result<Arc<Principal>, Denied>> + Send>>),
}

/// All that is known of who may do what; shared by every session of a server.
pub struct Auth(Arc<Inner>);

struct Inner {
    documents: Option<Arc<dyn Documents>>,
    clock: Arc<dyn Clock>,
    environment: Arc<Environment>,
    state: RwLock<State>,
    /// What every message asks, without the lock.
    enabled: AtomicBool,
    encrypted: AtomicBool,
    /// One change at a time.
    turn: Semaphore,
    changes: watch::Sender<u64>,
    attempts: Attempts,
    external: External,
    program: RwLock<Option<Program>>,
}

impl Inner {
    fn new(
        documents: Option<Arc<dyn Documents>>,
        clock: Arc<dyn Clock>,
        environment: Arc<Environment>,
    ) -> Self {
        Self {
            documents,
            clock,
            environment,
            state: RwLock::default(),
            enabled: AtomicBool::new(false),
            encrypted: AtomicBool::new(false),
            turn: Semaphore::new(1),
            changes: watch::Sender::new(0),
            attempts: Attempts::new(),
            external: External::new(),
            program: RwLock::new(None),
        }
    }

    /// Changes what is in memory, then tells the sessions.
    fn change(&self, change: impl FnOnce(&mut State)) {
        {
            let mut state = self.state.write();
            change(&mut state);
            self.enabled.store(state.enabled, Ordering::Release);
            self.encrypted
                .store(state.has_encrypted(), Ordering::Release);
        }
        self.tell();
    }

    fn tell(&self) {
        self.changes
            .send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    fn has_program(&self) -> bool {
        self.program.read().is_some()
    }

    fn failed(&self, address: IpAddr) {
        self.attempts.failed(address, self.clock.elapsed());
    }

    /// Asks whoever has to vouch, and decides by what is in force when the answer is there.
    async fn ask(
        &self,
        whom: Whom,
        token: String,
        desired: Option<RealmId>,
        hint: Option<RealmId>,
    ) -> Result<Arc<Principal>, Denied> {
        let claims = match &whom {
            Whom::Program => {
                let program = self.program.read().clone();
                match program {
                    Some(program) => program.ask(token, self.clock.clone()).await,
                    None => None,
                }
            }
            Whom::Outside(asked) => {
                let asking = self
                    .external
                    .ask(asked, &token, hint.as_ref(), &*self.clock);
                asking.await
            }
        };
        let now = self.clock.now();
        let has_program = self.has_program();
        let state = self.state.read();
        if !state.enabled {
            return Ok(Arc::new(Principal::everybody()));
        }
        let principal = identify::answered(&state, &whom, claims, desired.as_ref(), now)?;
        check::check(&state, &principal, has_program, now)?;
        Ok(principal)
    }
}

impl Auth {
    /// Everybody is in, with every right, in realm `default`; nothing can be changed.
    pub fn off() -> Arc<Self> {
        let clock = Arc::new(SystemClock::new());
        let environment: Arc<Environment> = Arc::from(process_environment());
        Arc::new(Self(Arc::new(Inner::new(None, clock, environment))))
    }

    /// Reads what is kept in the documents and takes in what the settings have new; the administrator's
    /// secret comes from the environment or the env file, or is made (admin.md §2.8).
    ///
    /// # Errors
    /// `store_corrupt` for a document that cannot be read; `config` for an env file; those of the store.
    pub async fn open(
        documents: Arc<dyn Documents>,
        settings: AuthSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        Self::open_with(documents, settings, clock, process_environment().into()).await
    }

    /// The same with an environment of its own.
    ///
    /// # Errors
    /// As [`Auth::open`].
    pub async fn open_with(
        documents: Arc<dyn Documents>,
        mut settings: AuthSettings,
        clock: Arc<dyn Clock>,
        environment: Arc<Environment>,
    ) -> Result<Arc<Self>> {
        let inner = Inner::new(Some(documents), clock, environment);
        let auth = Arc::new(Self(Arc::new(inner)));
        let wanted = settings.enabled;
        if std::mem::take(&mut settings.enabled_overrules) {
            auth.overrule(wanted).await?;
        }
        auth.reload(settings).await?;
        if auth.is_enabled() != wanted {
            tracing::warn!(
                "authentication is {}, as a command has said, and not {}, as the settings say",
                on_or_off(!wanted),
                on_or_off(wanted)
            );
        }
        Ok(auth)
    }

    /// Whether anybody is asked who they are.
    pub fn is_enabled(&self) -> bool {
        self.0.enabled.load(Ordering::Acquire)
    }

    /// How long a session may be connected without being let in; 10 s.
    pub fn timeout(&self) -> Duration {
        self.0.state.read().settings.timeout
    }

    /// The embedding program answers for tokens from now on, and nobody else; `None`: not any more.
    pub fn set_validator(&self, validator: Option<Arc<dyn Validator>>) {
        *self.0.program.write() = validator.map(Program::new);
        self.0.tell();
    }

    /// The count of failed attempts, for other doors (HTTP, proofs).
    pub fn attempts(&self) -> &Attempts {
        &self.0.attempts
    }

    /// Decides on AUTHENTICATION. Failures are counted by address (admin.md §2.2 iv).
    pub fn authenticate(&self, attempt: &Attempt) -> Outcome {
        let inner = &self.0;
        if !self.is_enabled() {
            return Outcome::Now(Ok(Arc::new(Principal::everybody())));
        }
        let address = attempt.address;
        let elapsed = inner.clock.elapsed();
        if let Err(denied) = inner.attempts.check(address, attempt.failures, elapsed) {
            return Outcome::Now(Err(denied));
        }
        let has_program = inner.has_program();
        let now = inner.clock.now();
        let decision = identify::decide(&inner.state.read(), attempt, has_program, now);
        match decision {
            identify::Decision::Known(result) => {
                if result.is_err() {
                    inner.failed(address);
                }
                Outcome::Now(result.map(Arc::new))
            }
            identify::Decision::Ask {
                desired,
                hint,
                whom,
            } => {
                let inner = inner.clone();
                let token = attempt.token.clone().unwrap_or_default();
                Outcome::Later(Box::pin(async move {
                    let result = inner.ask(whom, token, desired, hint).await;
                    if result.is_err() {
                        inner.failed(address);
                    }
                    result
                }))
            }
        }
    }

    /// Lets a session in that has shown nothing and does its first verb: to realm `default` only
    /// (admin.md §2.5).
    ///
    /// # Errors
    /// `unauthenticated`.
    pub fn admit(&self, need: Need) -> Result<Arc<Principal>, Denied> {
        let now = self.0.clock.now();
        identify::admit(&self.0.state.read(), need, now).map(Arc::new)
    }

    /// Whether what let a session in still does: asked of every live session after each change, and
    /// when it [expires](Principal::expires).
    ///
    /// # Errors
    /// `unauthenticated` or `forbidden`, as the client is told before it is closed.
    pub fn check(&self, principal: &Principal) -> Result<(), Denied> {
        let inner = &self.0;
        let has_program = inner.has_program();
        check::check(
            &inner.state.read(),
            principal,
            has_program,
            inner.clock.now(),
        )
    }

    /// Changes whenever a session may have lost its right to be there.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Whether consumers and producers may go without a name in the realm (wire §2.3).
    pub fn allows_anonymous(&self, realm: &RealmId) -> bool {
        let state = self.0.state.read();
        let said = state.realm(realm).and_then(|config| config.allow_anonymous);
        said.unwrap_or_else(|| *realm == RealmId::default())
    }

    /// Whether commands that carry secrets may go in clear over a network (AF59).
    pub fn allows_insecure_management(&self) -> bool {
        self.0.state.read().settings.allow_insecure_management
    }

    /// Whether the realm takes encrypted bodies only (decided 10).
    pub fn needs_e2ee(&self, realm: &RealmId) -> bool {
        let is_it = |config: &Arc<RealmConfig>| config.e2ee == E2ee::Required;
        self.0.encrypted.load(Ordering::Acquire)
            && self.0.state.read().realm(realm).is_some_and(is_it)
    }

    /// Whether what `owner` published earlier may go out under this event, folded: asked when a
    /// delay is over (P17).
    pub fn may_still_publish(&self, realm: &RealmId, owner: Option<&str>, event: &str) -> bool {
        let inner = &self.0;
        let has_program = inner.has_program();
        let now = inner.clock.now();
        check::may_still_publish(&inner.state.read(), realm, owner, event, has_program, now)
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("enabled", &self.is_enabled())
            .field("attempts", &self.0.attempts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
