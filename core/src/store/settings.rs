//! The settings of a queue as one text, for stores that keep rows. Knows no store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::types::{QueueKind, QueueSettings};
use crate::model::{Backoff, ConsumerName, GroupName, RetryPolicy};
use crate::{Error, ErrorKind, Result};

/// A kind as a number that never changes.
pub(super) fn kind_number(kind: QueueKind) -> u8 {
    match kind {
        QueueKind::Consumer => 0,
        QueueKind::Group => 1,
        QueueKind::History => 2,
    }
}

/// Reads what [`kind_number`] gave; `None` if it is anything else.
pub(super) fn kind(number: u8) -> Option<QueueKind> {
    Some(match number {
        0 => QueueKind::Consumer,
        1 => QueueKind::Group,
        2 => QueueKind::History,
        _ => return None,
    })
}

/// What is there belongs to somebody else (P30).
pub(super) fn owned() -> Error {
    Error::new(
        ErrorKind::ConsumerIdTaken,
        "this consumer id or group belongs to another credential, and what waits there until its ttl is over",
    )
}

/// Whether a queue may be opened with other settings: by no other owner, and what one has left by nobody
/// else. An owner is taken away by opening it without one.
pub(super) fn check_owner(
    known: &QueueSettings,
    is_left: bool,
    asked: &QueueSettings,
) -> Result<()> {
    let is_other = known.owner.is_some() && known.owner != asked.owner;
    match is_other && (is_left || asked.owner.is_some()) {
        true => Err(owned()),
        false => Ok(()),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Settings as JSON text; what is absent is absent.
pub(super) fn settings_text(settings: &QueueSettings) -> String {
    let mut members = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            members.insert(name.to_owned(), value);
        }
    };
    put("durable", settings.durable.then_some(Value::Bool(true)));
    put("ack", settings.ack.then_some(Value::Bool(true)));
    let ack_timeout = settings.ack_timeout.map(|time| millis(time).into());
    put("ack_timeout_ms", ack_timeout);
    let retry = settings.retry.as_deref().map(|retry| {
        json!({
            "max_attempts": retry.max_attempts(),
            "delay_ms": millis(retry.first_delay()),
            "exponential": retry.backoff() == Backoff::Exponential,
            "max_delay_ms": millis(retry.max_delay()),
        })
    });
    put("retry", retry);
    let consumer = settings.consumer.as_ref();
    put("consumer", consumer.map(|name| name.as_str().into()));
    let meta = settings.consumer_meta.as_deref();
    put("consumer_meta", meta.map(Into::into));
    let group = settings.group.as_ref();
    put("group", group.map(|name| name.as_str().into()));
    put("owner", settings.owner.as_deref().map(Into::into));
    Value::Object(members).to_string()
}

/// Reads what [`settings_text`] wrote; `None` if it is anything else.
pub(super) fn settings(text: &str) -> Option<QueueSettings> {
    let value: Value = serde_json::from_str(text).ok()?;
    let is = |name: &str| value.get(name) == Some(&Value::Bool(true));
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let time = |value: Option<&Value>| value.and_then(Value::as_u64).map(Duration::from_millis);
    let retry = match value.get("retry") {
        None => None,
        Some(retry) => {
            let attempts = u32::try_from(retry.get("max_attempts")?.as_u64()?).ok()?;
            let backoff = match retry.get("exponential")?.as_bool()? {
                true => Backoff::Exponential,
                false => Backoff::Fixed,
            };
            let (delay, most) = (time(retry.get("delay_ms")), time(retry.get("max_delay_ms")));
            let policy = RetryPolicy::new(Some(attempts), delay, backoff, most);
            Some(Box::new(policy.ok()?))
        }
    };
    let consumer = match text("consumer") {
        None => None,
        Some(name) => Some(ConsumerName::parse(name).ok()?),
    };
    let group = match text("group") {
        None => None,
        Some(name) => Some(GroupName::parse(name).ok()?),
    };
    Some(QueueSettings {
        durable: is("durable"),
        ack: is("ack"),
        ack_timeout: time(value.get("ack_timeout_ms")),
        retry,
        consumer,
        consumer_meta: text("consumer_meta").map(Arc::from),
        group,
        owner: text("owner").map(Arc::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_text() {
        let full = QueueSettings {
            durable: true,
            ack: true,
            ack_timeout: Some(Duration::from_millis(1500)),
            retry: RetryPolicy::new(
                Some(7),
                Some(Duration::from_millis(250)),
                Backoff::Exponential,
                Some(Duration::from_secs(9)),
            )
            .ok()
            .map(Box::new),
            consumer: ConsumerName::parse("a \"b\"").ok(),
            consumer_meta: Some("{\"a\":1}".into()),
            group: GroupName::parse("g").ok(),
            owner: Some("é".into()),
        };
        for each in [full, QueueSettings::default()] {
            assert_eq!(settings(&settings_text(&each)), Some(each));
        }
        assert_eq!(settings("{"), None);
    }
}
