//! Who may do what, assembled: where it is kept, who decides it, who manages it, and what follows from
//! changes that other brokers make. Decides nothing itself. Called by the server's start.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::config::{ServerConfig, Storage};
use crate::admin::{Admin, Host, Told};
use crate::auth::{Auth, Nonces, Proofs, Requests};
use crate::broker::{Broker, HeldRealms};
use crate::clock::Clock;
use crate::model::RealmId;
use crate::session::Sessions;
use crate::store::{
    Collection, Documents, Durability, FileDocuments, MemoryStore, News, Store as _, SwapStore,
};
use crate::{ErrorKind, Result};

/// What could not be read is read again after this long; P30 gives what a broker has changed 5 s.
const AGAIN: Duration = Duration::from_secs(1);
/// A rename of another broker that takes longer is nobody's any more; one takes a second.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct Security {
    pub(super) auth: Arc<Auth>,
    pub(super) requests: Arc<Requests>,
    nonces: Nonces,
    keeper: Keeper,
    clock: Arc<dyn Clock>,
}

/// Where realms, tokens, requests and nonces are kept.
enum Keeper {
    /// Where messages wait, too.
    Store(Arc<dyn Documents>),
    /// A file of its own.
    File(Arc<FileDocuments>),
    /// A database of its own.
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<crate::store::SqliteStore>),
    /// Nowhere that lasts.
    Memory(Arc<MemoryStore>),
}

impl Keeper {
    async fn open(config: &ServerConfig, store: &Arc<SwapStore>) -> Result<Self> {
        #[cfg(feature = "sqlite")]
        if let Some(path) = &config.auth_store {
            return Self::database(config, path).await;
        }
        let is_elsewhere = config.store.is_some() || matches!(config.storage, Storage::Memory);
        if is_elsewhere && let Some(settings) = config.settings_file() {
            let file = FileDocuments::open(&beside(settings))?;
            return Ok(Self::File(Arc::new(file)));
        }
        // A store of the user's own may have no place for them.
        let asked = store.documents(Collection::Realms, None, 1, config.clock.now());
        match asked.await {
            Ok(_) => Ok(Self::Store(store.clone())),
            Err(error) if error.kind() == ErrorKind::StoreUnsupported => {
                let store = MemoryStore::new(config.bounds.clone());
                Ok(Self::Memory(Arc::new(store)))
            }
            Err(error) => Err(error),
        }
    }

    #[cfg(feature = "sqlite")]
    async fn database(config: &ServerConfig, path: &Path) -> Result<Self> {
        let options = crate::store::SqliteOptions {
            path: Some(path.to_owned()),
            ..Default::default()
        };
        let (bounds, clock) = (config.bounds.clone(), config.clock.clone());
        let store = crate::store::SqliteStore::open(options, bounds, clock).await?;
        Ok(Self::Sqlite(Arc::new(store)))
    }

    fn documents(&self) -> Arc<dyn Documents> {
        match self {
            Self::Store(store) => store.clone(),
            Self::File(file) => file.clone(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.clone(),
            Self::Memory(store) => store.clone(),
        }
    }

    /// Whether what is kept is there after a restart.
    fn lasts(&self, store: &SwapStore) -> bool {
        match self {
            Self::Store(_) => store.durability() > Durability::Memory,
            Self::Memory(_) => false,
            _ => true,
        }
    }

    async fn close(&self) -> Result<()> {
        match self {
            Self::Store(_) | Self::Memory(_) => Ok(()),
            Self::File(file) => file.close().await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.close().await,
        }
    }
}

/// `<settings>.auth.json`.
fn beside(settings: &Path) -> PathBuf {
    let mut name = settings.as_os_str().to_owned();
    name.push(".auth.json");
    name.into()
}

impl Security {
    /// Reads what is kept, and what the settings have new.
    ///
    /// # Errors
    /// `config` for a wrong setting; what the keeper says.
    pub(super) async fn open(config: &ServerConfig, store: &Arc<SwapStore>) -> Result<Self> {
        let settings = config.auth.clone();
        let keeper = Keeper::open(config, store).await?;
        let (documents, clock) = (keeper.documents(), config.clock.clone());
        let auth = match &config.authority {
            Some(auth) => auth.clone(),
            None => Auth::open(documents.clone(), settings, clock.clone()).await?,
        };
        if let Some(validator) = &config.validator {
            auth.set_validator(Some(validator.clone()));
        }
        let most = config.limits.max_pending_authorization_requests;
        let now = clock.now();
        let requests = Requests::open(documents.clone(), auth.clone(), most, now).await?;
        let nonces = match keeper.lasts(store) {
            true => Nonces::lasting(documents),
            false => Nonces::in_memory(documents, now),
        };
        Ok(Self {
            auth,
            requests: Arc::new(requests),
            nonces,
            keeper,
            clock,
        })
    }

    /// Management, and what goes on as long as the server runs: `spawn` runs that.
    ///
    /// # Errors
    /// What the store says of realms that have ended while nobody served them, and of renames that were
    /// cut short.
    pub(super) async fn manage(
        self,
        broker: &Arc<Broker>,
        store: &SwapStore,
        sessions: &Arc<Sessions>,
        host: Arc<dyn Host>,
        spawn: impl Fn(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
    ) -> Result<Kept> {
        let proofs = Proofs::new(self.nonces, self.auth.clone(), None);
        let (auth, requests) = (self.auth.clone(), self.requests.clone());
        let admin = Arc::new(Admin::new(
            auth.clone(),
            broker.clone(),
            proofs,
            requests.clone(),
            host,
            self.clock.clone(),
        ));
        admin.finish_renames().await?;
        for realm in auth.ended_realms() {
            admin.dispose(realm).await?;
        }
        sessions.manage_by(admin.clone());
        spawn(Box::pin(admin.clone().dispose_of_ended()));
        let follow = Follow {
            auth,
            requests,
            admin,
            broker: broker.clone(),
            sessions: sessions.clone(),
            clock: self.clock,
            held: HashMap::new(),
        };
        let changed = Arc::new(Notify::new());
        let bell = changed.clone();
        store.listen(Arc::new(move |news| {
            if concerns(&news) {
                bell.notify_one();
            }
        }));
        spawn(Box::pin(follow.run(changed)));
        Ok(Kept(self.keeper))
    }
}

/// What outlives the assembly: it is closed with the server.
pub(super) struct Kept(Keeper);

impl Kept {
    pub(super) async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}

/// Whether realms, tokens or requests may be other ones; a nonce is asked for where it is kept.
fn concerns(news: &News) -> bool {
    match news {
        News::Documents(collection) => *collection != Collection::Nonces,
        news => *news == News::Missed,
    }
}

/// Takes over what other brokers have changed.
struct Follow {
    auth: Arc<Auth>,
    requests: Arc<Requests>,
    admin: Arc<Admin>,
    broker: Arc<Broker>,
    sessions: Arc<Sessions>,
    clock: Arc<dyn Clock>,
    /// Realms that another broker is renaming: nobody joins them until it is done.
    held: HashMap<[RealmId; 2], HeldRealms>,
}

impl Follow {
    async fn run(mut self, changed: Arc<Notify>) {
        loop {
            self.wait(&changed).await;
            let mut is_told = false;
            while let Err(error) = self.read().await {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!("what another broker has changed of realms and tokens: {error}");
                }
                let again = self.clock.elapsed() + AGAIN;
                self.clock.sleep_until(again).await;
            }
        }
    }

    /// Until something has changed. A rename that nobody ends meanwhile is finished here.
    async fn wait(&mut self, changed: &Notify) {
        if self.held.is_empty() {
            return changed.notified().await;
        }
        let given_up = self.clock.elapsed() + GIVEN_UP;
        tokio::select! {
            () = changed.notified() => {}
            () = self.clock.sleep_until(given_up) => {
                self.held.clear();
                if let Err(error) = self.admin.finish_renames().await {
                    tracing::warn!("a rename that another broker has not finished: {error}");
                }
            }
        }
    }

    /// Renames first: nobody comes in by a name whose messages have not followed yet.
    async fn read(&mut self) -> Result<()> {
        let open = self.admin.renames_elsewhere().await?;
        for realms in &open {
            let hold = || self.broker.hold_realms(realms.clone());
            self.held.entry(realms.clone()).or_insert_with(hold);
        }
        self.auth.reload_documents().await?;
        self.held.retain(|realms, _| open.contains(realms));
        let decided = self.requests.reload(self.clock.now()).await?;
        let told = decided.iter().filter_map(Told::of);
        told.for_each(|told| self.sessions.tell(&told));
        Ok(())
    }
}
