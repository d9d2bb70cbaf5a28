//! Where Rust users begin: options once, then producers and consumers, a connection each.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::consumer::{Consumer, Inboxes};
use super::options::{Auth, ConnectOptions, ConsumerIdentity, Identity, ProducerIdentity};
use super::producer::Producer;
use super::sink::ClientEvent;
use crate::Result;
use crate::model::{ConsumerName, ProducerName};
use crate::tls::Pem;

/// Called with every event of a connection, on its task.
pub(super) type Observer = Arc<dyn Fn(&ClientEvent<'_>) + Send + Sync>;

/// Makes producers and consumers of one server.
///
/// ```no_run
/// # async fn example() -> restante::Result<()> {
/// use restante::client::{Client, Subscribe};
/// use futures_util::StreamExt;
///
/// let client = Client::builder().host("localhost").token("secret").build();
///
/// let orders = client.producer("orders").await?;
/// let answer = orders.confirm("paid", &serde_json::json!({"id": 7})).await?;
/// assert!(!answer.duplicate);
///
/// let billing = client.consumer("billing").await?;
/// let mut paid = billing
///     .subscribe(Subscribe::to("paid").from("orders").durable().acked())
///     .await?;
/// while let Some(message) = paid.next().await {
///     let order: serde_json::Value = message.body()?;
///     println!("{order}");
///     message.ack();
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    options: ConnectOptions,
    observer: Option<Observer>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// All defaults: `localhost:17352`, no login.
    pub fn builder() -> ClientBuilder {
        ClientBuilder(Self {
            options: ConnectOptions::default(),
            observer: None,
        })
    }

    /// A producer, once it is connected and registered.
    ///
    /// # Errors
    /// `bad_name`, and those of [`Connection::ready`].
    pub async fn producer(&self, name: &str) -> Result<Producer> {
        ProducerName::check(name)?;
        let identity = Identity {
            producer: Some(ProducerIdentity {
                name: name.to_owned(),
                default_ttl: None,
            }),
            consumer: None,
        };
        let inboxes = Inboxes::new(self.observer.clone());
        let connection = Connection::open(self.options.clone(), identity, inboxes);
        connection.ready().await?;
        Ok(Producer::new(connection))
    }

    /// A consumer, once it is connected and registered; its consumer id is its name.
    ///
    /// # Errors
    /// `bad_name`, and those of [`Connection::ready`]: a name has one live session (P22).
    pub async fn consumer(&self, name: &str) -> Result<Consumer> {
        ConsumerName::check(name)?;
        let identity = Identity {
            consumer: Some(ConsumerIdentity {
                name: name.to_owned(),
                id: None,
                consumer_id: None,
            }),
            producer: None,
        };
        let inboxes = Inboxes::new(self.observer.clone());
        let connection = Connection::open(self.options.clone(), identity, inboxes.clone());
        connection.ready().await?;
        Ok(Consumer::new(connection, inboxes))
    }
}

/// Says what differs from the defaults.
#[derive(Debug, Clone)]
pub struct ClientBuilder(Client);

impl ClientBuilder {
    /// Host name or address.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.0.options.host = host.into();
        self
    }

    /// `http`, or `https` for TLS.
    #[must_use]
    pub fn protocol(mut self, protocol: impl Into<String>) -> Self {
        self.0.options.protocol = protocol.into();
        self
    }

    /// Whose signature the server's certificate must have under TLS: PEM, or its file.
    #[must_use]
    pub fn ca(mut self, ca: Pem) -> Self {
        self.0.options.ca = Some(ca);
        self
    }

    /// TCP port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.0.options.port = port;
        self
    }

    /// Log in with a token.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        self.auth(Auth {
            token: Some(token.into()),
            ..Auth::default()
        })
    }

    /// Log in.
    #[must_use]
    pub fn auth(mut self, auth: Auth) -> Self {
        self.0.options.auth = Some(auth);
        self
    }

    /// Give up if there is no connection after this long.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.0.options.connect_timeout = Some(timeout);
        self
    }

    /// Everything else.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut ConnectOptions)) -> Self {
        change(&mut self.0.options);
        self
    }

    /// Hears every event of every connection: disconnects, gaps, awareness, errors. Must not block.
    #[must_use]
    pub fn on_event(mut self, observer: impl Fn(&ClientEvent<'_>) + Send + Sync + 'static) -> Self {
        self.0.observer = Some(Arc::new(observer));
        self
    }

    /// Done; connects to nothing yet.
    pub fn build(self) -> Client {
        self.0
    }
}
