//! The connection to Redis that all realms share: made when needed, dropped when it is broken.
//!
//! Repeats nothing by itself: [`super::lane`] knows what may be repeated. Knows no script.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo as _, Pipeline,
    RedisError, RedisResult, TlsMode, Value,
};

use crate::{Error, ErrorKind, Result};

use super::given::GivenClient;
use super::options::RedisOptions;
use super::trouble;

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
        Ok(Self {
            way: Way::new(options).map_err(|error| cannot(&error))?,
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

impl Way {
    fn new(options: &RedisOptions) -> RedisResult<Self> {
        if let Some(client) = &options.client {
            return Ok(Self::Given(client.clone()));
        }
        let urls = options.urls();
        if options.cluster {
            let builder = ClusterClientBuilder::new(urls)
                .connection_timeout(CONNECT)
                .response_timeout(options.timeout)
                .retries(0);
            return Ok(Self::Cluster(Box::new(builder.build()?)));
        }
        if let Some(name) = &options.sentinel {
            let client = SentinelClient::build(
                urls.clone(),
                name.clone(),
                Some(node(urls.first().copied().unwrap_or_default())?),
                SentinelServerType::Master,
            )?;
            let client = Box::new(tokio::sync::Mutex::new(client));
            return Ok(Self::Sentinel(client));
        }
        let client = Client::open(urls.first().copied().unwrap_or_default())?;
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

/// How a Sentinel's master is reached: like the Sentinel itself.
fn node(url: &str) -> RedisResult<SentinelNodeConnectionInfo> {
    let info = url.into_connection_info()?;
    let node = SentinelNodeConnectionInfo::default();
    let node = node.set_redis_connection_info(info.redis_settings().clone());
    Ok(match info.addr() {
        ConnectionAddr::TcpTls { insecure, .. } => node.set_tls_mode(match insecure {
            true => TlsMode::Insecure,
            false => TlsMode::Secure,
        }),
        _ => node,
    })
}
