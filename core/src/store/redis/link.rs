//! The connection to Redis that all realms share: made when needed, dropped when it is broken.
//!
//! Repeats nothing by itself: [`super::lane`] knows what may be repeated. Knows no script.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo as _, Pipeline,
    RedisError, RedisResult, TlsCertificates, TlsMode, Value,
};

use crate::{Error, ErrorKind, Result};

use super::given::GivenClient;
use super::options::RedisOptions;
use super::{tls, trouble};

/// A connection takes this long at most.
const CONNECT: Duration = Duration::from_secs(1);

/// A connection; clones share it.
#[derive(Clone)]
pub(super) enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
    Given(GivenClient),
}

impl Link {
    /// Sends commands of one slot; their answers in order, refusals among them.
    pub(super) async fn pipeline(&mut self, pipeline: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = pipeline.cmd_iter().count();
        match self {
            Self::One(link) => link.req_packed_commands(pipeline, 0, count).await,
            Self::Cluster(link) => link.req_packed_commands(pipeline, 0, count).await,
            Self::Given(link) => link.send(pipeline.get_packed_pipeline(), count).await,
        }
    }

    /// Sends one command.
    pub(super) async fn one(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        let value = match self {
            Self::One(link) => link.req_packed_command(cmd).await,
            Self::Cluster(link) => link.req_packed_command(cmd).await,
            Self::Given(link) => {
                let values = link.send(cmd.get_packed_command(), 1).await?;
                Ok(values.into_iter().next().unwrap_or(Value::Nil))
            }
        };
        value?.extract_error()
    }
}

enum Way {
    One(Box<Client>),
    Sentinel(Box<tokio::sync::Mutex<SentinelClient>>),
    Cluster(Box<ClusterClient>),
    Given(GivenClient),
}

/// Makes connections and keeps the present one.
pub(super) struct Links {
    way: Way,
    certificates: Option<TlsCertificates>,
    present: Mutex<(u64, Option<Link>)>,
    /// One connection is made at a time.
    making: tokio::sync::Mutex<()>,
}

fn cannot(error: &RedisError) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("option storage_options.url: {error}"),
    )
}

impl Links {
    pub(super) fn new(options: &RedisOptions) -> Result<Self> {
        options.check()?;
        let certificates = tls::certificates(options)?;
        let way = Way::new(options, certificates.as_ref());
        Ok(Self {
            way: way.map_err(|error| cannot(&error))?,
            certificates,
            present: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        })
    }

    /// The present connection with its number, or a new one.
    pub(super) async fn get(&self) -> Result<(u64, Link)> {
        if let Some(found) = self.present() {
            return Ok(found);
        }
        let _making = self.making.lock().await;
        if let Some(found) = self.present() {
            return Ok(found);
        }
        let link = match tokio::time::timeout(CONNECT, self.way.connect()).await {
            Ok(link) => link.map_err(|error| trouble::said(&error))?,
            Err(_) => {
                let message = "Redis does not take connections";
                return Err(Error::new(ErrorKind::StoreUnavailable, message));
            }
        };
        let mut present = self.present.lock();
        present.0 += 1;
        present.1 = Some(link.clone());
        Ok((present.0, link))
    }

    /// The present connection with its number, if there is one.
    pub(super) fn present(&self) -> Option<(u64, Link)> {
        let present = self.present.lock();
        present.1.clone().map(|link| (present.0, link))
    }

    /// The present connection is of no use any more.
    pub(super) fn drop_present(&self) {
        self.present.lock().1 = None;
    }

    /// The connection of this number is of no use any more.
    pub(super) fn broken(&self, number: u64) {
        let mut present = self.present.lock();
        if present.0 == number {
            present.1 = None;
        }
    }
}

impl Links {
    /// A connection of its own that hears what is published on these channels.
    pub(super) async fn hearing(
        &self,
        options: &RedisOptions,
        channels: &[String],
    ) -> RedisResult<PubSub> {
        let client = match &self.way {
            Way::Given(_) => {
                let why = "a client that was given hears nothing";
                return Err((redis::ErrorKind::Client, why).into());
            }
            Way::One(client) => (**client).clone(),
            Way::Sentinel(client) => client.lock().await.async_get_client().await?,
            // What one node of a cluster is told, all are.
            Way::Cluster(_) => {
                let urls = options.urls();
                let any = urls.get(fastrand::usize(..urls.len().max(1)));
                let any = any.copied().unwrap_or_default();
                client(any, self.certificates.as_ref())?
            }
        };
        let mut link = client.get_async_pubsub().await?;
        for channel in channels {
            link.subscribe(channel).await?;
        }
        Ok(link)
    }
}

impl Way {
    fn new(options: &RedisOptions, certificates: Option<&TlsCertificates>) -> RedisResult<Self> {
        if let Some(client) = &options.client {
            return Ok(Self::Given(client.clone()));
        }
        let urls = options.urls();
        if options.cluster {
            let mut builder = ClusterClientBuilder::new(urls)
                .connection_timeout(CONNECT)
                .response_timeout(options.timeout)
                .retries(0);
            if let Some(certificates) = certificates {
                builder = builder.certs(certificates.clone());
            }
            return Ok(Self::Cluster(Box::new(builder.build()?)));
        }
        if let Some(name) = &options.sentinel {
            let client = sentinel(&urls, name, certificates)?;
            let client = Box::new(tokio::sync::Mutex::new(client));
            return Ok(Self::Sentinel(client));
        }
        let client = client(urls.first().copied().unwrap_or_default(), certificates)?;
        Ok(Self::One(Box::new(client)))
    }

    async fn connect(&self) -> RedisResult<Link> {
        // Nothing is repeated or timed out here: who sends knows how long to wait.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(None);
        Ok(match self {
            Self::One(client) => Link::One(
                client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?,
            ),
            Self::Sentinel(client) => Link::One(
                client
                    .lock()
                    .await
                    .get_async_connection_with_config(&config)
                    .await?,
            ),
            Self::Cluster(client) => Link::Cluster(client.get_async_connection().await?),
            Self::Given(client) => Link::Given(client.clone()),
        })
    }
}

fn client(url: &str, certificates: Option<&TlsCertificates>) -> RedisResult<Client> {
    match certificates {
        Some(certificates) => Client::build_with_tls(url, certificates.clone()),
        None => Client::open(url),
    }
}

/// Sentinels and their master are reached in the same way: by TLS or not, with the same user and
/// password. The database is the master's.
fn sentinel(
    urls: &[&str],
    name: &str,
    certificates: Option<&TlsCertificates>,
) -> RedisResult<SentinelClient> {
    let infos = urls.iter().map(|url| url.into_connection_info());
    let infos = infos.collect::<RedisResult<Vec<_>>>()?;
    let addresses = infos.iter().map(|info| info.addr().clone());
    let mut builder = SentinelClientBuilder::new(addresses, name, SentinelServerType::Master)?;
    if let Some(first) = infos.first() {
        let settings = first.redis_settings();
        builder = builder.set_client_to_redis_db(settings.db());
        if let Some(user) = settings.username() {
            builder = builder
                .set_client_to_redis_username(user)
                .set_client_to_sentinel_username(user);
        }
        if let Some(password) = settings.password() {
            builder = builder
                .set_client_to_redis_password(password)
                .set_client_to_sentinel_password(password);
        }
        if let ConnectionAddr::TcpTls { insecure, .. } = first.addr() {
            let mode = match insecure {
                true => TlsMode::Insecure,
                false => TlsMode::Secure,
            };
            builder = builder.set_client_to_redis_tls_mode(mode);
        }
    }
    if let Some(certificates) = certificates {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates.clone());
    }
    builder.build()
}
