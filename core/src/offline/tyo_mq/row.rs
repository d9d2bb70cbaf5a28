//! One row of tyo-mq, as found and as read. The text of the message is kept as it is (P20).

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::model::instant;
use crate::model::{ConsumerId, EventName, Extras, Key, Message, MessageId, RealmId};

use super::key;

/// A row as it was found.
pub(super) struct Found<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) realm: Cow<'a, str>,
    pub(super) event: Cow<'a, str>,
    pub(super) consumer: Cow<'a, str>,
    /// The object that its consumer would have got, as JSON text.
    pub(super) delivery: Cow<'a, str>,
    pub(super) producer: Option<Cow<'a, str>>,
    pub(super) created_at: Option<Cow<'a, str>>,
    /// In milliseconds; `None`: never.
    pub(super) expires_at: Option<f64>,
    pub(super) dead: Option<FoundDead<'a>>,
}

/// What a dead letter has besides.
pub(super) struct FoundDead<'a> {
    pub(super) reason: Option<Cow<'a, str>>,
    pub(super) at: Option<Cow<'a, str>>,
}

/// A row that makes sense.
pub(super) struct Row {
    pub(super) realm: RealmId,
    pub(super) key: Key,
    pub(super) name: Arc<str>,
    pub(super) message: Message,
    pub(super) dead: Option<Dead>,
}

/// Why and when a message was given up.
pub(super) struct Dead {
    pub(super) reason: Arc<str>,
    pub(super) at: Timestamp,
}

#[derive(Deserialize)]
struct Delivery<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    from: Option<Cow<'a, str>>,
    #[serde(borrow)]
    enc: Option<&'a RawValue>,
    #[serde(borrow)]
    to: Option<&'a RawValue>,
    #[serde(borrow)]
    content_type: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
}

fn text(raw: Option<&RawValue>) -> Option<Bytes> {
    raw.map(|raw| Bytes::copy_from_slice(raw.get().as_bytes()))
}

fn time(text: Option<&str>, what: &str) -> Result<Timestamp, String> {
    text.and_then(instant::parse)
        .ok_or_else(|| format!("its {what} is no date"))
}

impl Found<'_> {
    /// Reads it; else why that cannot be.
    pub(super) fn read(&self) -> Result<Row, String> {
        let delivery: Delivery<'_> =
            serde_json::from_str(&self.delivery).map_err(|error| error.to_string())?;
        let realm = RealmId::parse(&self.realm).map_err(|error| error.to_string())?;
        ConsumerId::check(&self.consumer).map_err(|error| error.to_string())?;
        EventName::check(&delivery.event).map_err(|error| error.to_string())?;
        let from = delivery.from.or_else(|| self.producer.clone());
        let from = from.ok_or("it has no producer")?;
        let key = key::of(&self.event, &delivery.event, &from);
        let key = key.ok_or_else(|| {
            let (event, key) = (&delivery.event, &self.event);
            format!("its event {event:?} of {from:?} does not fit its key {key:?}")
        })?;
        let dead = self.dead.as_ref().map(FoundDead::read).transpose()?;
        let extras = Extras {
            enc: text(delivery.enc),
            to: text(delivery.to),
            content_type: text(delivery.content_type),
            headers: text(delivery.headers),
            attachments: Vec::new(),
        };
        let message = Message {
            id: MessageId(0),
            event: (*delivery.event).into(),
            from: (*from).into(),
            body: text(delivery.message),
            extras: (!extras.is_empty()).then(|| Box::new(extras)),
            produced: time(self.created_at.as_deref(), "created_at")?,
            expires: self.expires_at.map(|at| Timestamp(at as u64)),
            guaranteed: false,
            key: None,
        };
        Ok(Row {
            realm,
            key,
            name: (*self.consumer).into(),
            message,
            dead,
        })
    }
}

impl FoundDead<'_> {
    fn read(&self) -> Result<Dead, String> {
        Ok(Dead {
            reason: self.reason.as_deref().unwrap_or_default().into(),
            at: time(self.at.as_deref(), "dead_lettered_at")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(delivery: &str) -> Found<'_> {
        Found {
            id: "m".into(),
            realm: "default".into(),
            event: "orders-paid".into(),
            consumer: "billing".into(),
            delivery: delivery.into(),
            producer: Some("orders".into()),
            created_at: Some("2026-01-01T00:00:00.000Z".into()),
            expires_at: Some(5e12),
            dead: None,
        }
    }

    #[test]
    fn the_text_of_a_message_is_kept() {
        let row = found(
            r#"{"event":"Paid","message":{"n":129.0, "s":"\ud83d"},"from":"orders","msgId":"x"}"#,
        );
        let row = row.read().unwrap();
        let body = row.message.body.unwrap();
        assert_eq!(body, r#"{"n":129.0, "s":"\ud83d"}"#);
        assert_eq!(row.message.extras, None);
        assert_eq!(row.message.produced, Timestamp(1_767_225_600_000));
        assert_eq!(row.message.expires, Some(Timestamp(5_000_000_000_000)));
        assert_eq!(row.key.encode(), "e6:orderspaid");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let why = |found: Found<'_>| found.read().err().unwrap();
        assert!(why(found("{")).contains("EOF"));
        assert!(why(found(r#"{"event":"gone","from":"orders"}"#)).contains("does not fit its key"));
        let paid = r#"{"event":"paid","from":"orders"}"#;
        let created_at = Some("yesterday".into());
        let odd = Found {
            created_at,
            ..found(paid)
        };
        assert!(why(odd).contains("created_at"));
    }
}
