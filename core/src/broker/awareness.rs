//! What producers hear of their consumers and consumers of their producers (wire §7).
//!
//! A producer hears of subscriptions to its own events: by its name, or to any producer (decided 7).
//! Consumers hear of producers they named. Notices are collected under the realm's lock and written
//! after it. Knows no event names: those are the encoder's.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Broker;
use super::member::Member;
use super::ports::{Notice, Outbox, Subscriber};
use super::realm::{Consumer, Producer, State};
use crate::model::{ConsumerName, Key, ProducerName};

/// Keys named in one notice.
const MAX_KEYS: usize = 1_000;
/// Producers that one any-producer subscription is told to.
const MAX_TOLD: usize = 1_000;
/// Notices written at once when a producer with many consumers joins; the rest is paced.
const BURST: usize = 256;
/// Between two bursts.
const PACE: Duration = Duration::from_millis(20);

/// Notices on their way, in order per line.
#[derive(Default)]
pub(super) struct Mail(Vec<(Arc<dyn Outbox>, Bytes)>);

impl Mail {
    pub(super) fn add(&mut self, to: &Member, bytes: Bytes) {
        self.0.push((to.outbox().clone(), bytes));
    }

    /// Writes all; to be called without a lock.
    pub(super) fn send(self) {
        for (outbox, bytes) in self.0 {
            outbox.notice(bytes);
        }
    }

    /// Writes the first burst now and the rest in steps, for as long as `to` stays.
    pub(super) fn send_paced(mut self, broker: &Arc<Broker>, to: &Arc<Member>) {
        let rest = self.0.split_off(self.0.len().min(BURST));
        self.send();
        if rest.is_empty() {
            return;
        }
        let (broker, to) = (broker.clone(), to.clone());
        let round = to.next_list();
        tokio::spawn(async move {
            let mut rest = rest.into_iter().peekable();
            while rest.peek().is_some() {
                let clock = broker.clock();
                clock.sleep_until(clock.elapsed() + PACE).await;
                // A newer list of the same producer replaces this one.
                if to.has_left() || !to.is_list(round) {
                    return;
                }
                if to.outbox().room() > 0 {
                    rest.by_ref().take(BURST).for_each(|(outbox, bytes)| {
                        outbox.notice(bytes);
                    });
                }
            }
        });
    }
}

fn concerns(key: &Key, producer: &ProducerName) -> bool {
    key.producer().is_none_or(|name| name == producer)
}

/// The keys of a consumer that concern a producer, the newest last.
fn keys(consumer: &Consumer, producer: &ProducerName) -> Vec<Arc<Key>> {
    let keys = consumer.subscriptions.keys();
    let mut keys: Vec<_> = keys
        .filter(|key| concerns(key, producer))
        .cloned()
        .collect();
    keys.drain(..keys.len().saturating_sub(MAX_KEYS));
    keys
}

fn subscriber<'a>(
    name: &'a ConsumerName,
    consumer: &'a Consumer,
    events: &'a [Arc<Key>],
) -> Subscriber<'a> {
    Subscriber {
        name: name.as_str(),
        id: &consumer.id,
        socket: consumer.holder.as_ref().map(|holder| &**holder.socket_id()),
        events,
        online: (!consumer.is_unseen).then_some(consumer.holder.is_some()),
    }
}

/// The connected producers that a key concerns, other than one of the consumer's own name.
fn producers<'a>(
    state: &'a State,
    consumer: &'a ConsumerName,
    key: &'a Key,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Member>)> {
    let one = key
        .producer()
        .and_then(|name| state.producers.get_key_value(name));
    let all = match key.producer() {
        Some(_) => None,
        None => Some(state.producers.iter().take(MAX_TOLD)),
    };
    let is_named = one.is_some();
    one.into_iter()
        .chain(all.into_iter().flatten())
        .filter(move |(name, _)| is_named || name.as_str() != consumer.as_str())
        .filter_map(|(_, producer)| Some((&producer.id, producer.holder.as_ref()?)))
}

/// A SUBSCRIBE: its producers get `SUBSCRIBE-TO`.
pub(super) fn subscribed(
    broker: &Broker,
    state: &State,
    name: &ConsumerName,
    key: &Arc<Key>,
) -> Mail {
    let mut mail = Mail::default();
    let Some(consumer) = state.consumers.get(name) else {
        return mail;
    };
    let events = [key.clone()];
    for (id, holder) in producers(state, name, key) {
        let notice = Notice::Subscribed {
            producer_id: id,
            subscriber: subscriber(name, consumer, &events),
        };
        mail.add(holder, broker.encode().notice(&notice));
    }
    mail
}

/// An UNSUBSCRIBE.
pub(super) fn unsubscribed(
    broker: &Broker,
    state: &State,
    name: &ConsumerName,
    key: &Arc<Key>,
) -> Mail {
    let mut mail = Mail::default();
    let Some(consumer) = state.consumers.get(name) else {
        return mail;
    };
    let event = match &**key {
        Key::Event { event, .. } | Key::Any { event } => event.to_string(),
        Key::Topic { pattern, .. } => pattern.to_string(),
        Key::All { .. } | Key::Everything { .. } => "TM-ALL".to_owned(),
    };
    let events = [key.clone()];
    for (id, holder) in producers(state, name, key) {
        let notice = Notice::Unsubscribed {
            producer_id: id,
            event: &event,
            subscriber: subscriber(name, consumer, &events),
        };
        mail.add(holder, broker.encode().notice(&notice));
    }
    mail
}

/// A CONSUMER with subscriptions from before: `CONNECT-<pid>` to the producers it named.
pub(super) fn consumer_online(broker: &Broker, state: &State, name: &ConsumerName) -> Mail {
    named(state, name, |id, consumer, socket| {
        broker.encode().notice(&Notice::ConsumerOnline {
            producer_id: id,
            socket,
            id: &consumer.id,
            consumer: name.as_str(),
        })
    })
}

/// A consumer's session has ended; call while it still holds the name.
pub(super) fn consumer_offline(broker: &Broker, state: &State, name: &ConsumerName) -> Mail {
    named(state, name, |id, consumer, socket| {
        broker.encode().notice(&Notice::ConsumerOffline {
            producer_id: id,
            socket,
            id: &consumer.id,
            consumer: name.as_str(),
        })
    })
}

/// One notice to each connected producer that a connected consumer has named.
fn named(
    state: &State,
    name: &ConsumerName,
    notice: impl Fn(&str, &Consumer, &str) -> Bytes,
) -> Mail {
    let mut mail = Mail::default();
    let Some(consumer) = state.consumers.get(name) else {
        return mail;
    };
    let Some(holder) = &consumer.holder else {
        return mail;
    };
    let mut told: HashSet<&ProducerName> = HashSet::new();
    for key in consumer.subscriptions.keys() {
        let Some(producer) = key.producer() else {
            continue;
        };
        if !told.insert(producer) {
            continue;
        }
        if let Some(entry) = state.producers.get(producer)
            && let Some(to) = &entry.holder
        {
            mail.add(to, notice(&entry.id, consumer, holder.socket_id()));
        }
    }
    mail
}

/// The entry of a producer and who holds the name, if somebody does.
fn held<'a>(state: &'a State, name: &ProducerName) -> Option<(&'a Producer, &'a Arc<Member>)> {
    let producer = state.producers.get(name)?;
    Some((producer, producer.holder.as_ref()?))
}

/// A PRODUCER: the list of its subscribers, each followed by that consumer's `CONNECT-<cid>`.
pub(super) fn producer_online(broker: &Broker, state: &State, name: &ProducerName) -> Mail {
    let mut mail = Mail::default();
    let Some((producer, holder)) = held(state, name) else {
        return mail;
    };
    let watchers = state.watchers.get(name);
    let any = state.watch_all.keys().filter(|consumer| {
        consumer.as_str() != name.as_str()
            && watchers.is_none_or(|watchers| !watchers.contains_key(*consumer))
    });
    let any = any.map(|consumer| (consumer, false));
    let named = watchers.into_iter().flat_map(|watchers| watchers.keys());
    for (consumer_name, is_named) in named.map(|consumer| (consumer, true)).chain(any) {
        let Some(consumer) = state.consumers.get(consumer_name) else {
            continue;
        };
        let events = keys(consumer, name);
        let notice = Notice::Subscribed {
            producer_id: &producer.id,
            subscriber: subscriber(consumer_name, consumer, &events),
        };
        mail.add(holder, broker.encode().notice(&notice));
        if let Some(to) = consumer.holder.as_ref().filter(|_| is_named) {
            let notice = Notice::ProducerOnline {
                consumer_id: &consumer.id,
                socket: holder.socket_id(),
                id: &producer.id,
                producer: name.as_str(),
            };
            mail.add(to, broker.encode().notice(&notice));
        }
    }
    mail
}

/// A producer's session has ended; call while it still holds the name.
pub(super) fn producer_offline(broker: &Broker, state: &State, name: &ProducerName) -> Mail {
    let mut mail = Mail::default();
    let Some((producer, holder)) = held(state, name) else {
        return mail;
    };
    let watchers = state.watchers.get(name).into_iter();
    let watchers = watchers.flat_map(|watchers| watchers.keys());
    for consumer in watchers.filter_map(|watcher| state.consumers.get(watcher)) {
        if let Some(to) = &consumer.holder {
            let notice = Notice::ProducerOffline {
                consumer_id: &consumer.id,
                socket: holder.socket_id(),
                id: &producer.id,
                producer: name.as_str(),
            };
            mail.add(to, broker.encode().notice(&notice));
        }
    }
    mail
}
