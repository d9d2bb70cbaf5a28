//! What of a queue and of a mark is one value of a row: kinds, settings, marks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::Timestamp;
use crate::model::{Backoff, ConsumerName, GroupName, MessageId, RetryPolicy};

use super::super::state::Mark;
use super::super::types::{QueueKind, QueueSettings};

pub(super) fn kind_number(kind: QueueKind) -> i64 {
    match kind {
        QueueKind::Consumer => 0,
        QueueKind::Group => 1,
        QueueKind::History => 2,
    }
}

pub(super) fn kind(number: i64) -> Option<QueueKind> {
    Some(match number {
        0 => QueueKind::Consumer,
        1 => QueueKind::Group,
        2 => QueueKind::History,
        _ => return None,
    })
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
    put(
        "ack_timeout_ms",
        settings.ack_timeout.map(|time| millis(time).into()),
    );
    let retry = settings.retry.map(|retry| {
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
    put(
        "consumer_meta",
        settings.consumer_meta.as_deref().map(Into::into),
    );
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
            let attempts = retry.get("max_attempts")?.as_u64()?;
            let backoff = match retry.get("exponential")?.as_bool()? {
                true => Backoff::Exponential,
                false => Backoff::Fixed,
            };
            let (delay, most) = (time(retry.get("delay_ms")), time(retry.get("max_delay_ms")));
            let attempts = u32::try_from(attempts).ok();
            Some(RetryPolicy::new(attempts, delay, backoff, most).ok()?)
        }
    };
    let consumer = match text("consumer") {
        None => None,
        Some(name) => ConsumerName::parse(name).ok(),
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

/// A mark's window and ids; `used` has a column of its own.
pub(super) fn mark_bytes(mark: &Mark, out: &mut Vec<u8>) {
    out.clear();
    out.extend(mark.high.to_le_bytes());
    out.extend(mark.bits.iter().flat_map(|bits| bits.to_le_bytes()));
    // Ids ascend nearly always, numbers too: differences are short.
    let (mut last_number, mut last_id) = (mark.high, 0);
    for (number, id) in &mark.ids {
        put_difference(out, number.wrapping_sub(last_number));
        put_difference(out, id.0.wrapping_sub(last_id));
        (last_number, last_id) = (*number, id.0);
    }
}

/// Reads what [`mark_bytes`] wrote; `None` if it is anything else.
pub(super) fn mark(bytes: &[u8], used: Timestamp) -> Option<Mark> {
    let mut mark = Mark::new();
    let (words, mut rest) = bytes.split_at_checked(8 * (1 + mark.bits.len()))?;
    let mut words = words
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    mark.high = words.next()?;
    mark.bits
        .iter_mut()
        .zip(words)
        .for_each(|(to, from)| *to = from);
    let (mut number, mut id) = (mark.high, 0u64);
    while !rest.is_empty() {
        number = number.wrapping_add(take_difference(&mut rest)?);
        id = id.wrapping_add(take_difference(&mut rest)?);
        mark.ids.push_back((number, MessageId(id)));
    }
    mark.used = used;
    Some(mark)
}

/// Small in either direction is short.
fn put_difference(out: &mut Vec<u8>, difference: u64) {
    let signed = difference.cast_signed();
    let mut left = ((signed << 1) ^ (signed >> 63)).cast_unsigned();
    while left >= 0x80 {
        out.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn take_difference(bytes: &mut &[u8]) -> Option<u64> {
    let mut left = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        left |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if *byte < 0x80 {
            return Some((left >> 1) ^ (left & 1).wrapping_neg());
        }
    }
    None
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
            .ok(),
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

    #[test]
    fn a_mark_survives_its_bytes() {
        let mut full = Mark::new();
        full.high = u64::MAX;
        full.bits[3] = 0xF0F0;
        full.used = Timestamp(77);
        let ids = [(1, 5), (u64::MAX, u64::MAX), (3, 4), (4, 1 << 60)];
        full.ids = ids.map(|(number, id)| (number, MessageId(id))).into();
        let mut bytes = Vec::new();
        for each in [full, Mark::new()] {
            let used = each.used;
            mark_bytes(&each, &mut bytes);
            assert_eq!(mark(&bytes, used), Some(each));
        }
        assert_eq!(mark(&[1, 2], Timestamp(0)), None);
    }
}
