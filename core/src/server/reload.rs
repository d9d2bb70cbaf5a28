//! Settings that change while the server runs: read again as a whole, checked, then in force at once
//! and together, or not at all (P33).
//!
//! Called when the file has changed ([`super::watch`]), when the program asks, and by SIGHUP. Knows
//! which options can change and who goes by them; what they mean is elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use serde_json::Value;

use super::config::{ServerConfig, Storage, TlsFiles};
use super::persistence::{Persistence, absolute};
use super::security::Security;
use super::settings::{Source, same_option};
use super::stores::Stores;
use super::watch::Watch;
use crate::auth::{Auth, Requests};

use crate::metrics::{Counter, Metrics};
use crate::session::Rules;
use crate::tls::{Pem, ServerTls};
use crate::transport::{SharedDoors, SharedTls};
use crate::{Error, ErrorKind, Result};

/// Options that count at once.
const HOT: &[&str] = &[
    "ack_timeout",
    "allow_anonymous",
    "auth",
    "cors",
    "limits",
    "max_queued",
    "max_queued_per_realm",
    "prefetch",
    "storage",
    "storage_options",
    "strict_from",
    "tls",
];

/// What goes by settings while the server runs.
#[derive(Clone)]
pub(super) struct Hot {
    pub(super) rules: Arc<Rules>,
    pub(super) doors: SharedDoors,
    pub(super) tls: SharedTls,
    pub(super) auth: Arc<Auth>,
    pub(super) requests: Arc<Requests>,
}

impl Hot {
    /// As the server starts.
    ///
    /// # Errors
    /// `config` for certificate and key.
    pub(super) fn new(
        config: &ServerConfig,
        rules: Arc<Rules>,
        security: &Security,
    ) -> Result<Self> {
        let tls = config.load_tls()?;
        Ok(Self {
            rules,
            doors: super::doors(config).shared(),
            tls: Arc::new(ArcSwapOption::from(tls)),
            auth: security.auth.clone(),
            requests: security.requests.clone(),
        })
    }
}

/// What [`Server::reload_settings`](super::Server::reload_settings) has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reloaded {
    /// Options that have changed and count now.
    pub changed: Vec<String>,
    /// Options that have changed and count from the next start on.
    pub needs_restart: Vec<String>,
    /// One sentence each.
    pub warnings: Vec<String>,
}

/// See the module.
pub(super) struct Reloader {
    stores: Arc<Stores>,
    hot: Hot,
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
    /// What is in force; `None`: nothing was read.
    source: parking_lot::Mutex<Option<Source>>,
    /// Certificate and key: they are read again with the settings.
    files: parking_lot::Mutex<Vec<PathBuf>>,
    error: parking_lot::Mutex<Option<Error>>,
    failures: Counter,
    watch: parking_lot::Mutex<Option<Watch>>,
    has_stopped: AtomicBool,
}

impl Reloader {
    /// Watches the settings file, if there is one.
    pub(super) fn start(
        stores: Arc<Stores>,
        hot: Hot,
        metrics: &Metrics,
        config: &mut ServerConfig,
    ) -> Arc<Self> {
        let source = config.source.take();
        let this = Arc::new(Self {
            stores,
            hot,
            turn: tokio::sync::Mutex::default(),
            source: parking_lot::Mutex::new(source),
            files: parking_lot::Mutex::new(certificate_files(config)),
            error: parking_lot::Mutex::default(),
            failures: metrics.settings_failures.counter(&[]),
            watch: parking_lot::Mutex::default(),
            has_stopped: AtomicBool::new(false),
        });
        this.watch();
        this
    }

    /// Reads again.
    ///
    /// # Errors
    /// See [`Server::reload_settings`](super::Server::reload_settings).
    pub(super) async fn reload(self: &Arc<Self>) -> Result<Reloaded> {
        let this = self.clone();
        // There, so that it comes to its end whoever asked.
        let housekeeping = self.stores.housekeeping.clone();
        housekeeping
            .run(async move { this.take_turn(None).await })
            .await
    }

    /// Reads another file, and that one again from now on.
    ///
    /// # Errors
    /// See [`Server::load_settings`](super::Server::load_settings).
    pub(super) async fn load(self: &Arc<Self>, path: &Path) -> Result<Reloaded> {
        let (this, path) = (self.clone(), path.to_owned());
        let housekeeping = self.stores.housekeeping.clone();
        housekeeping
            .run(async move { this.take_turn(Some(path)).await })
            .await
    }

    async fn take_turn(self: Arc<Self>, file: Option<PathBuf>) -> Result<Reloaded> {
        let _turn = self.turn.lock().await;
        let outcome = self.attempt(file.as_deref()).await;
        match &outcome {
            Ok(reloaded) => {
                *self.error.lock() = None;
                tell(reloaded);
                self.watch();
            }
            Err(error) => {
                self.failures.add(1);
                tracing::error!("settings stay as they were: {error}");
                *self.error.lock() = Some(error.clone());
            }
        }
        outcome
    }

    async fn attempt(&self, file: Option<&Path>) -> Result<Reloaded> {
        let none = |why: &str| Error::new(ErrorKind::Config, why);
        let old = self.source.lock().clone();
        let old = old.ok_or_else(|| none("the options of this server were made in a program"))?;
        let (mut config, warnings) = match (file, old.settings.file()) {
            (Some(file), _) => old.settings.clone().with_file(file).read()?,
            (None, Some(_)) => old.settings.read_again()?,
            (None, None) => {
                let why = "there is no settings file: the server was started without one";
                return Err(none(why));
            }
        };
        let Some(mut new) = config.source.take() else {
            return Ok(Reloaded::default());
        };
        let differing = old.differences(&new);
        let is_hot = |name: &String| HOT.iter().any(|hot| same_option(hot, name));
        let (mut changed, mut needs_restart): (Vec<_>, Vec<_>) =
            differing.into_iter().partition(is_hot);
        let tls = config.load_tls()?;
        // What may fail by now goes first: the store, then what is kept of realms and tokens. Should the
        // second fail, the next reading finds the store changed already and goes on from there.
        let is_store =
            |name: &String| same_option(name, "storage") || same_option(name, "storage_options");
        if changed.iter().any(is_store) && !self.change_store(&config, &new).await? {
            let (stays, counts) = changed.into_iter().partition(is_store);
            changed = counts;
            needs_restart.extend::<Vec<_>>(stays);
        }
        self.hot.auth.reload(config.auth.clone()).await?;
        self.apply(&config, tls);
        *self.files.lock() = certificate_files(&config);
        for name in &needs_restart {
            new.keep(name, &old);
        }
        *self.source.lock() = Some(new);
        Ok(Reloaded {
            changed,
            needs_restart,
            warnings,
        })
    }

    /// Changes the store to what is configured now; false: it is in force already, and what else
    /// is said of it counts from the next start on.
    async fn change_store(&self, config: &ServerConfig, new: &Source) -> Result<bool> {
        let in_force = self.stores.storage.lock().clone();
        if let Some(in_force) = in_force
            && in_force.place() == config.storage.place()
        {
            let is_same = in_force.told() == config.storage.told();
            self.set_default_ttl(config);
            return Ok(is_same || matches!(in_force, Storage::Memory));
        }
        let wish = Persistence {
            storage: config.storage.clone(),
            default_ttl: config.default_ttl_given,
            force: config.force_storage,
        };
        self.stores.change(wish, new.storage()).await?;
        self.set_default_ttl(config);
        Ok(true)
    }

    fn set_default_ttl(&self, config: &ServerConfig) {
        self.stores
            .broker
            .set_default_ttl(config.broker.default_ttl);
    }

    /// Nothing in here fails.
    fn apply(&self, config: &ServerConfig, tls: Option<Arc<ServerTls>>) {
        super::apply_realm_bounds(config, &self.stores.bounds.realms);
        self.hot.tls.store(tls);
        self.hot.doors.store(Arc::new(super::doors(config)));
        self.hot.rules.set(super::session_config(config));
        let most = config.limits.max_pending_authorization_requests;
        self.hot.requests.set_most_pending(most);
    }

    /// What the settings file says of the store; `None`: there is no file.
    pub(super) fn written(&self) -> Option<Value> {
        self.source.lock().as_ref().and_then(Source::storage)
    }

    /// What the last attempt has failed by.
    pub(super) fn error(&self) -> Option<Error> {
        self.error.lock().clone()
    }

    /// Watches what is in force now.
    fn watch(self: &Arc<Self>) {
        let file = {
            let source = self.source.lock();
            let file = source.as_ref().and_then(|source| source.settings.file());
            file.map(ToOwned::to_owned)
        };
        // Without a settings file nothing is read again.
        let Some(file) = file else { return };
        let mut files = vec![file];
        files.extend(self.files.lock().iter().cloned());
        if self.has_stopped.load(Ordering::Acquire) {
            return;
        }
        let mut watch = self.watch.lock();
        if watch.as_ref().is_some_and(|watch| watch.is_of(&files)) {
            return;
        }
        *watch = Watch::start(self, &self.stores, files);
    }

    /// Nothing is read again by itself any more.
    pub(super) fn stop(&self) {
        self.has_stopped.store(true, Ordering::Release);
        *self.watch.lock() = None;
    }
}

fn certificate_files(config: &ServerConfig) -> Vec<PathBuf> {
    let Some(TlsFiles { cert, key }) = &config.tls else {
        return Vec::new();
    };
    let files = [cert, key].into_iter().filter_map(Pem::file);
    files.map(absolute).collect()
}

fn tell(reloaded: &Reloaded) {
    for warning in &reloaded.warnings {
        tracing::warn!("{warning}");
    }
    for name in &reloaded.needs_restart {
        tracing::warn!("option {name} has changed: it needs a restart");
    }
    if !reloaded.changed.is_empty() {
        tracing::info!(
            changed = reloaded.changed.join(", "),
            "settings were read again"
        );
    }
}
