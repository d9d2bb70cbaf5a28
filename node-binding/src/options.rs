//! Options as JavaScript sends them: JSON texts whose keys are spelt in snake_case and whose
//! values have the right type (`lib/options.js` sees to both). Durations are read here, by the
//! core's grammar (P14). Called by `client`.

use std::time::Duration;

use napi_derive::napi;
use restante::client::{
    Auth, ConnectOptions, ConsumerIdentity, Identity, OfflinePolicy, ProducerIdentity, Subscribe,
};
use restante::model::{Backoff, RetryPolicy, duration_from_number, duration_from_text};
use restante::tls::Pem;
use restante::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::thrown;

/// A duration as a user wrote it.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Span {
    Seconds(f64),
    Text(String),
}

impl Span {
    /// # Errors
    /// `bad_command`, naming `option`.
    pub(crate) fn read(span: Option<&Self>, option: &str) -> Result<Option<Duration>> {
        match span {
            None => Ok(None),
            Some(Self::Seconds(seconds)) => duration_from_number(option, *seconds).map(Some),
            Some(Self::Text(text)) => duration_from_text(option, text).map(Some),
        }
    }
}

/// The milliseconds of a duration given as a text, for timers of JavaScript.
#[napi(catch_unwind)]
pub fn duration_ms(text: String, option: String) -> crate::error::Result<f64> {
    let duration = duration_from_text(&option, &text).map_err(|error| thrown(&error))?;
    Ok(duration.as_secs_f64() * 1000.0)
}

fn millis(value: Option<u64>) -> Option<Duration> {
    value.map(Duration::from_millis)
}

/// Where and as whom to connect.
#[derive(Deserialize)]
pub(crate) struct Connect {
    host: String,
    port: u16,
    protocol: String,
    /// PEM, or a file of it.
    ca: Option<String>,
    path: Option<String>,
    auth: Option<Credentials>,
    connect_timeout_ms: Option<u64>,
    #[serde(default)]
    reconnect: Pauses,
    #[serde(default)]
    offline: Waiting,
    max_message_bytes: Option<usize>,
    #[serde(default)]
    once: bool,
    consumer: Option<Consumer>,
    producer: Option<Producer>,
}

#[derive(Deserialize)]
struct Credentials {
    token: Option<String>,
    realm: Option<String>,
    role: Option<String>,
    key: Option<String>,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize, Default)]
struct Pauses {
    min: Option<Span>,
    max: Option<Span>,
}

#[derive(Deserialize, Default)]
struct Waiting {
    policy: Option<String>,
    max_messages: Option<usize>,
    max_bytes: Option<usize>,
}

#[derive(Deserialize)]
struct Consumer {
    name: String,
    consumer_id: Option<String>,
}

#[derive(Deserialize)]
struct Producer {
    name: String,
    default_ttl: Option<Span>,
}

impl Connect {
    /// # Errors
    /// `bad_command` for a duration, `config` for an unknown policy.
    pub(crate) fn into_options(self) -> Result<(ConnectOptions, Identity)> {
        let mut options = ConnectOptions {
            host: self.host,
            port: self.port,
            protocol: self.protocol,
            ca: self.ca.as_deref().map(Pem::from),
            connect_timeout: millis(self.connect_timeout_ms),
            once: self.once,
            ..ConnectOptions::default()
        };
        if let Some(path) = self.path {
            options.path = path;
        }
        if let Some(bytes) = self.max_message_bytes {
            options.max_message_bytes = bytes;
        }
        options.auth = self.auth.map(|auth| Auth {
            token: auth.token,
            realm: auth.realm,
            role: auth.role,
            key: auth.key,
            timeout: millis(auth.timeout_ms).unwrap_or(Auth::default().timeout),
        });
        let pauses = &mut options.reconnect;
        if let Some(min) = Span::read(self.reconnect.min.as_ref(), "reconnect.min")? {
            pauses.min = min;
        }
        if let Some(max) = Span::read(self.reconnect.max.as_ref(), "reconnect.max")? {
            pauses.max = max;
        }
        let offline = &mut options.offline;
        offline.policy = match self.offline.policy.as_deref() {
            None | Some("queue") => OfflinePolicy::Queue,
            Some("reject") => OfflinePolicy::Reject,
            Some(other) => {
                let message = format!("offline must be 'queue' or 'reject', not '{other}'");
                return Err(Error::new(ErrorKind::Config, message));
            }
        };
        offline.max_messages = self.offline.max_messages.unwrap_or(offline.max_messages);
        offline.max_bytes = self.offline.max_bytes.unwrap_or(offline.max_bytes);

        let consumer = self.consumer.map(|consumer| ConsumerIdentity {
            name: consumer.name,
            id: None,
            consumer_id: consumer.consumer_id,
        });
        let producer = match self.producer {
            None => None,
            Some(producer) => Some(ProducerIdentity {
                name: producer.name,
                default_ttl: Span::read(producer.default_ttl.as_ref(), "default_ttl")?,
            }),
        };
        Ok((options, Identity { consumer, producer }))
    }
}

/// One subscription.
#[derive(Deserialize)]
pub(crate) struct Subscription {
    event: String,
    producer: Option<String>,
    consumer: Option<String>,
    consumer_id: Option<String>,
    scope: Option<String>,
    mode: Option<String>,
    group: Option<String>,
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    ack: bool,
    #[serde(default)]
    manual_ack: bool,
    ack_timeout: Option<Span>,
    retry: Option<Retry>,
    prefetch: Option<u32>,
    resubscribe: bool,
    timeout: Option<Span>,
}

#[derive(Deserialize)]
struct Retry {
    max_attempts: Option<u32>,
    delay: Option<Span>,
    backoff: Option<String>,
    max_delay: Option<Span>,
}

impl Retry {
    fn into_policy(self) -> Result<RetryPolicy> {
        let backoff = match self.backoff.as_deref() {
            None | Some("fixed") => Backoff::Fixed,
            Some("exponential") => Backoff::Exponential,
            Some(other) => {
                let message =
                    format!("retry.backoff must be 'fixed' or 'exponential', not '{other}'");
                return Err(Error::new(ErrorKind::BadCommand, message));
            }
        };
        let delay = Span::read(self.delay.as_ref(), "retry.delay")?;
        let max_delay = Span::read(self.max_delay.as_ref(), "retry.max_delay")?;
        RetryPolicy::new(self.max_attempts, delay, backoff, max_delay)
    }
}

impl Subscription {
    /// # Errors
    /// `bad_command`, naming the option.
    pub(crate) fn into_subscribe(self) -> Result<Subscribe> {
        let plain = Subscribe::to(self.event);
        Ok(Subscribe {
            producer: self.producer,
            all: self.scope.as_deref() == Some("all"),
            topic: self.mode.as_deref() == Some("topic"),
            consumer: self.consumer,
            consumer_id: self.consumer_id,
            durable: self.durable,
            ack: self.ack,
            manual_ack: self.manual_ack,
            ack_timeout: Span::read(self.ack_timeout.as_ref(), "ack_timeout")?,
            retry: self.retry.map(Retry::into_policy).transpose()?,
            group: self.group,
            prefetch: self.prefetch,
            resubscribe: self.resubscribe,
            timeout: Span::read(self.timeout.as_ref(), "timeout")?.unwrap_or(plain.timeout),
            ..plain
        })
    }
}

/// What may stand beside a message.
#[derive(Deserialize, Default)]
pub(crate) struct Extras<'a> {
    pub(crate) to: Option<String>,
    #[serde(borrow)]
    pub(crate) enc: Option<&'a RawValue>,
    pub(crate) ttl: Option<Span>,
    pub(crate) lifespan: Option<Span>,
    #[serde(default)]
    pub(crate) guaranteed: bool,
    pub(crate) broadcast: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) id: Option<String>,
    #[serde(borrow)]
    pub(crate) headers: Option<&'a RawValue>,
    pub(crate) key: Option<String>,
    pub(crate) delay: Option<Span>,
    #[serde(borrow)]
    pub(crate) deliver_at: Option<&'a RawValue>,
    pub(crate) timeout: Option<Span>,
}

/// How a delivery is given back.
#[derive(Deserialize, Default)]
pub(crate) struct Return {
    pub(crate) delay: Option<Span>,
    pub(crate) requeue: Option<bool>,
    pub(crate) reason: Option<String>,
}
