//! A connection for one order: opened, asked, closed. It is not restored: whoever waits is told.
//!
//! Tells apart who was not reached ([`Failed::Unreachable`]) and who said no ([`Failed::Refused`]).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::proof::Signer;
use crate::auth::Action;
use crate::client::{ClientEvent, ConnectOptions, Connection, Delivery, Identity, Sink};
use crate::{Error, ErrorKind};

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The command line is wrong.
    Usage(Error),
    /// No broker answered.
    Unreachable(Error),
    /// The broker has taken a request, and nobody has decided it in time.
    Late(Value),
    /// The broker said no: its whole answer.
    Refused(Value),
}

impl Failed {
    /// The broker's code, if it was the broker.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(answer) => answer["error"].as_str(),
            _ => None,
        }
    }
}

pub(super) type Answer<T = Value> = std::result::Result<T, Failed>;

/// What the broker says unasked to somebody who waits to be let in.
#[derive(Debug, Clone)]
pub(super) enum News {
    /// The payload of AUTHORIZATION_APPROVED.
    Approved(Value),
    /// The payload of AUTHORIZATION_REJECTED.
    Rejected(Value),
    /// The connection has ended.
    Lost,
}

/// Keeps the latest news; there is one decision a connection.
#[derive(Default)]
struct Inbox {
    news: Mutex<Option<News>>,
    came: Notify,
}

impl Inbox {
    fn put(&self, news: News) {
        let mut kept = self.news.lock();
        // What was decided stays decided when the connection ends.
        if kept.is_none() || matches!(*kept, Some(News::Lost)) {
            *kept = Some(news);
        }
        self.came.notify_one();
    }
}

impl Sink for Inbox {
    fn delivery(&self, _: u32, _: Delivery<'_>) {}

    fn batch_end(&self) {}

    fn event(&self, event: ClientEvent<'_>) {
        let read = |payload| serde_json::from_str(payload).unwrap_or_default();
        match event {
            ClientEvent::Named { name, payload, .. } => match name {
                "AUTHORIZATION_APPROVED" => self.put(News::Approved(read(payload))),
                "AUTHORIZATION_REJECTED" => self.put(News::Rejected(read(payload))),
                _ => {}
            },
            ClientEvent::Disconnected { .. } | ClientEvent::Closed => self.put(News::Lost),
            _ => {}
        }
    }
}

/// See the module.
pub(super) struct Link {
    connection: Connection,
    inbox: Arc<Inbox>,
    timeout: Duration,
}

impl Link {
    /// Connects, within `timeout`.
    pub(super) async fn open(options: &ConnectOptions, timeout: Duration) -> Answer<Self> {
        let inbox = Arc::new(Inbox::default());
        let options = ConnectOptions {
            once: true,
            connect_timeout: Some(timeout),
            ..options.clone()
        };
        let connection = Connection::open(options, Identity::default(), inbox.clone());
        let link = Self {
            connection,
            inbox,
            timeout,
        };
        match link.connection.ready().await {
            Ok(()) => Ok(link),
            Err(error) => Err(Failed::Unreachable(error)),
        }
    }

    /// Sends an event and waits for its answer.
    pub(super) async fn ask(&self, event: &str, payload: &Value) -> Answer {
        let payload = payload.to_string();
        let asked = self.connection.request(event, &payload, &[], self.timeout);
        let text = asked.await.map_err(Failed::Unreachable)?;
        let answers: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        let answer = answers.into_iter().next().unwrap_or_default();
        match answer["ok"].as_bool() {
            Some(true) => Ok(answer),
            Some(false) => Err(Failed::Refused(answer)),
            None => {
                let text = "what answers there is no broker of this kind";
                Err(Failed::Unreachable(Error::new(
                    ErrorKind::Disconnected,
                    text,
                )))
            }
        }
    }

    /// Sends a signed order and waits for its answer.
    pub(super) async fn order(&self, action: Action, body: &Value, signer: &Signer) -> Answer {
        let proof = signer.sign(action, body).map_err(Failed::Usage)?;
        self.ask(action.as_str(), &json!({ "body": body, "proof": proof }))
            .await
    }

    /// Waits for what the broker says unasked.
    pub(super) async fn news(&self) -> News {
        loop {
            let came = self.inbox.came.notified();
            if let Some(news) = self.inbox.news.lock().clone() {
                return news;
            }
            came.await;
        }
    }

    /// Says goodbye; what fails then concerns nobody.
    pub(super) async fn close(self) {
        if let Err(error) = self.connection.close(GOODBYE).await {
            tracing::debug!(%error, "the connection did not end in time");
        }
    }
}
