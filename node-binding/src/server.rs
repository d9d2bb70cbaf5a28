//! A broker as free functions over a handle: start, stop, ask. Converts and calls; the server
//! brings threads of its own, here only its start, its stop and slow answers are waited for.
//!
//! What takes time is answered through the server's port, under the token that JavaScript gave.
//! Called by `lib/server.js`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{Buffer, External};
use napi_derive::napi;
use parking_lot::Mutex;
use restante::admin::{Letter, of_queue};
use restante::model::RealmId;
use restante::server::{
    Emit, Persistence, Server, ServerConfig, Settings, Storage, parse_env_file, parse_switch,
    switch,
};
use restante::store::{DeadLetterId, GivenClient, LeasingOptions, SharedStore};
use restante::{Error, ErrorKind};
use serde::Serialize;
use serde_json::json;

use crate::client::copied;
use crate::error::{Result, thrown};
use crate::numbers;
use crate::port::Port;
use crate::redis::JsRedis;
use crate::runtime::Runtime;
use crate::store::Custom;
use crate::validator::JsValidator;

/// One broker: not started, running, or stopped.
pub struct Broker {
    port: Arc<Port>,
    config: ServerConfig,
    /// What is odd about its options and its settings file.
    warnings: Vec<String>,
    /// A store in JavaScript, if it was given one.
    custom: Mutex<Option<Custom>>,
    /// A Redis client of the user's, if it was given one.
    redis: Mutex<Option<Arc<JsRedis>>>,
    /// A function of the user's that says whose token it is, if it was given one.
    validator: Mutex<Option<Arc<JsValidator>>>,
    running: Arc<Mutex<Option<Running>>>,
}

#[derive(Clone)]
struct Running {
    server: Arc<Server>,
    runtime: Arc<Runtime>,
}

impl Broker {
    /// Where it tells things.
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Gives it a store in JavaScript.
    pub(crate) fn set_custom(&self, custom: Custom) {
        *self.custom.lock() = Some(custom);
    }

    /// The store in JavaScript.
    pub(crate) fn custom(&self) -> Option<Custom> {
        self.custom.lock().clone()
    }

    /// Gives it a Redis client of the user's.
    pub(crate) fn set_redis(&self, redis: Arc<JsRedis>) {
        *self.redis.lock() = Some(redis);
    }

    /// The Redis client of the user's.
    pub(crate) fn redis(&self) -> Option<Arc<JsRedis>> {
        self.redis.lock().clone()
    }

    /// Gives it a function that says whose token it is.
    pub(crate) fn set_validator(&self, validator: Arc<JsValidator>) {
        *self.validator.lock() = Some(validator);
    }

    /// That function.
    pub(crate) fn validator(&self) -> Option<Arc<JsValidator>> {
        self.validator.lock().clone()
    }

    fn running(&self) -> Result<Running> {
        let running = self.running.lock().clone();
        running.ok_or_else(|| {
            thrown(&Error::new(
                ErrorKind::ShuttingDown,
                "the server is not running",
            ))
        })
    }

    /// Answers `token` when `ask` has its answer.
    fn answer_later<F, T>(&self, token: u32, ask: impl FnOnce(Arc<Server>) -> F) -> Result<()>
    where
        F: Future<Output = restante::Result<T>> + Send + 'static,
        T: Serialize,
    {
        let running = self.running()?;
        let asked = ask(running.server.clone());
        let port = self.port.clone();
        let handle = running.runtime.handle().clone();
        handle.spawn(async move {
            port.answer(token, asked.await);
            drop(running);
        });
        Ok(())
    }
}

/// What is odd about these options; throws what is wrong with them.
#[napi(catch_unwind)]
pub fn check_server_options(options: String) -> Result<Vec<String>> {
    let settings = Settings::from_options(&options).map_err(|error| thrown(&error))?;
    // What the file says is read when the server starts.
    let read = settings.without_file().read();
    let (_, warnings) = read.map_err(|error| thrown(&error))?;
    Ok(warnings)
}

/// A broker that is not started yet.
#[napi(catch_unwind)]
pub fn open_server(port: &External<Arc<Port>>, options: String) -> Result<External<Broker>> {
    let (config, warnings) =
        ServerConfig::from_options(&options).map_err(|error| thrown(&error))?;
    Ok(External::new(Broker {
        port: Arc::clone(port),
        config,
        warnings,
        custom: Mutex::default(),
        redis: Mutex::default(),
        validator: Mutex::default(),
        running: Arc::default(),
    }))
}

/// What is odd about the options and the settings file of a broker.
#[napi(catch_unwind)]
pub fn server_warnings(broker: &External<Broker>) -> Vec<String> {
    broker.warnings.clone()
}

/// Whether the settings file, and not the program, says which store there is.
#[napi(catch_unwind)]
pub fn store_is_of_settings(broker: &External<Broker>) -> bool {
    broker.config.is_store_of_settings()
}

/// Reads a settings file with nothing around it and answers what is odd about it; throws what is
/// wrong with it.
#[napi(catch_unwind)]
pub fn check_settings(options: String) -> Result<Vec<String>> {
    let checked = Settings::from_options(&options).and_then(|settings| settings.check());
    checked.map_err(|error| thrown(&error))
}

/// What a variable or a flag says of a switch; throws for what is none.
#[napi(catch_unwind)]
pub fn read_switch(name: String, text: String) -> Result<bool> {
    parse_switch(&name, &text).map_err(|error| thrown(&error))
}

/// The same of one that may say something else: null.
#[napi(catch_unwind)]
pub fn switch_of(text: String) -> Option<bool> {
    switch(&text)
}

/// The variables of the text of an environment file.
#[napi(catch_unwind)]
pub fn read_env_file(text: String) -> Result<HashMap<String, String>> {
    let variables = parse_env_file(&text).map_err(|line| {
        // What stands in the line may be a secret.
        let text = format!("line {line} of the environment file is not KEY=VALUE");
        thrown(&Error::new(ErrorKind::Config, text))
    })?;
    Ok(variables.into_iter().collect())
}

/// Answers `token` with what has changed when the settings file was read again.
#[napi(catch_unwind)]
pub fn reload_settings(broker: &External<Broker>, token: u32) -> Result<()> {
    broker.answer_later(token, |server| async move {
        let reloaded = server.reload_settings().await?;
        Ok(numbers::of_reload(&reloaded))
    })
}

/// Answers `token` with what has changed when this settings file took the place of the one before.
#[napi(catch_unwind)]
pub fn load_settings(broker: &External<Broker>, path: String, token: u32) -> Result<()> {
    broker.answer_later(token, |server| async move {
        let reloaded = server.load_settings(&path).await?;
        Ok(numbers::of_reload(&reloaded))
    })
}

/// Answers `token` with where it listens.
#[napi(catch_unwind)]
pub fn start_server(broker: &External<Broker>, token: u32) -> Result<()> {
    let runtime = Runtime::shared().map_err(|error| thrown(&error))?;
    let mut config = broker.config.clone();
    let custom = broker.custom();
    if let (Some(redis), Storage::Redis(options)) = (broker.redis(), &mut config.storage) {
        options.client = Some(GivenClient::new(redis));
    }
    if let Some(validator) = broker.validator() {
        config.validator = Some(validator);
    }
    let slot = broker.running.clone();
    let port = broker.port.clone();
    let handle = runtime.handle().clone();
    handle.spawn(async move {
        let lifted = custom.map_or(Ok(None), |custom| {
            let options = LeasingOptions {
                bounds: config.bounds.clone(),
                timeout: config.broker.store_timeout,
                clock: config.clock.clone(),
                ..LeasingOptions::default()
            };
            custom
                .lift(options)
                .map(|store| Some(Arc::new(store) as SharedStore))
        });
        let started = match lifted {
            Ok(lifted) => {
                config.store = lifted;
                Server::start(config).await
            }
            Err(error) => Err(error),
        };
        let started = started.map(|server| {
            let address = server.local_addr();
            let warnings = server.warnings().to_vec();
            let server = Arc::new(server);
            *slot.lock() = Some(Running { server, runtime });
            let (host, port) = (address.ip().to_string(), address.port());
            (json!({ "host": host, "port": port }), warnings)
        });
        port.answer(token, started);
    });
    Ok(())
}

/// Answers `token` when everything is closed and its threads have ended.
#[napi(catch_unwind)]
pub fn stop_server(broker: &External<Broker>, timeout_ms: u32, token: u32) {
    let port = broker.port.clone();
    let Some(running) = broker.running.lock().take() else {
        return port.answer(token, Ok(()));
    };
    let handle = running.runtime.handle().clone();
    let timeout = Duration::from_millis(timeout_ms.into());
    handle.spawn(async move {
        port.answer(token, running.server.close(timeout).await);
        drop(running);
    });
}

/// Numbers of this moment, as JSON text.
#[napi(catch_unwind)]
pub fn server_stats(broker: &External<Broker>) -> Result<String> {
    Ok(broker.running()?.server.stats().to_string())
}

/// Sends an event to one session or, without `to`, to all; how many have taken it.
#[napi(catch_unwind)]
pub fn server_emit(
    broker: &External<Broker>,
    to: Option<String>,
    event: String,
    payload: String,
    attachments: Option<Vec<Buffer>>,
    volatile: bool,
) -> Result<u32> {
    let attachments = copied(attachments);
    let emit = Emit {
        event: &event,
        payload: &payload,
        attachments: &attachments,
        volatile,
    };
    let server = broker.running()?.server;
    let reached = server.emit(to.as_deref(), &emit);
    let reached = reached.map_err(|error| thrown(&error))?;
    Ok(u32::try_from(reached).unwrap_or(u32::MAX))
}

/// Takes idle names out of the tables; how many.
#[napi(catch_unwind)]
pub fn sweep_idle(broker: &External<Broker>) -> Result<u32> {
    let swept = broker.running()?.server.broker().sweep_idle();
    Ok(u32::try_from(swept).unwrap_or(u32::MAX))
}

/// Idle names stay from now on, unless they are swept.
#[napi(catch_unwind)]
pub fn stop_idle_eviction(broker: &External<Broker>) -> Result<()> {
    broker.running()?.server.broker().stop_idle_eviction();
    Ok(())
}

/// Answers `token` with every remembered queue of every realm.
#[napi(catch_unwind)]
pub fn queue_stats(broker: &External<Broker>, token: u32) -> Result<()> {
    broker.answer_later(token, |server| async move {
        let mut queues = Vec::new();
        for (realm, _) in server.broker().stats() {
            let stats = server.broker().queue_stats(&realm).await?;
            queues.extend(stats.iter().map(|queue| of_queue(&realm, queue)));
        }
        Ok(queues)
    })
}

/// Answers `token` with one page of dead letters, oldest first.
#[napi(catch_unwind)]
pub fn dead_letters(
    broker: &External<Broker>,
    realm: String,
    after: Option<String>,
    limit: u32,
    token: u32,
) -> Result<()> {
    let realm = realm_of(&realm)?;
    let after = after.as_deref().map(letter_of).transpose()?;
    broker.answer_later(token, |server| async move {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let letters = server.broker().dead_letters(&realm, after, limit).await?;
        let letters: Vec<_> = letters.iter().map(Letter::from).collect();
        // Written here: it borrows from the letters.
        serde_json::value::to_raw_value(&letters)
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
    })
}

/// Puts a dead letter back into its queue.
#[napi(catch_unwind)]
pub fn requeue_dead_letter(
    broker: &External<Broker>,
    realm: String,
    id: String,
    token: u32,
) -> Result<()> {
    let (realm, id) = (realm_of(&realm)?, letter_of(&id)?);
    broker.answer_later(token, |server| async move {
        server.broker().requeue(&realm, id).await
    })
}

/// Drops a dead letter.
#[napi(catch_unwind)]
pub fn discard_dead_letter(
    broker: &External<Broker>,
    realm: String,
    id: String,
    token: u32,
) -> Result<()> {
    let (realm, id) = (realm_of(&realm)?, letter_of(&id)?);
    broker.answer_later(token, |server| async move {
        server.broker().discard(&realm, id).await
    })
}

/// Drops all dead letters of a realm and answers how many those were.
#[napi(catch_unwind)]
pub fn purge_dead_letters(broker: &External<Broker>, realm: String, token: u32) -> Result<()> {
    let realm = realm_of(&realm)?;
    broker.answer_later(token, |server| async move {
        server.broker().purge_dead_letters(&realm).await
    })
}

/// Answers `token` when a copy of the store is whole at `path`.
#[napi(catch_unwind)]
pub fn backup(broker: &External<Broker>, path: String, token: u32) -> Result<()> {
    broker.answer_later(token, |server| async move { server.backup(path).await })
}

/// Answers `token` when another store has taken the place of the one in force.
#[napi(catch_unwind)]
pub fn set_persistence(broker: &External<Broker>, options: String, token: u32) -> Result<()> {
    let (wish, _) = Persistence::from_options(&options).map_err(|error| thrown(&error))?;
    broker.answer_later(token, |server| async move {
        let done = server.set_persistence(wish).await?;
        Ok(numbers::of_change(&done))
    })
}

fn realm_of(text: &str) -> Result<RealmId> {
    RealmId::parse(text).map_err(|error| thrown(&error))
}

fn letter_of(text: &str) -> Result<DeadLetterId> {
    text.parse().map_err(|error| thrown(&error))
}
