//! What this connection listens to, and under which event names it arrives.
//!
//! Keyed: the same key subscribed again replaces. Knows no socket; the state under whose lock this
//! lives sends the frames. The names are shared with the link, which looks them up without a lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::answer::Settle;
use super::inbound::Envelope;
use super::request::{Subscribe, Subscribed, Unsubscribed};
use crate::Result;
use crate::clock::Elapsed;
use crate::model::{EventName, Key, ProducerName, Spelling, fold};

/// Somebody who waits for an answer, until a deadline.
#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) settle: Settle<T>,
    pub(super) deadline: Elapsed,
}

/// One subscription.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) subscribe: Subscribe,
    pub(super) key: Key,
    pub(super) waiter: Option<Waiter<Subscribed>>,
    /// It has been sent at least once.
    pub(super) was_sent: bool,
}

/// A subscription that ended and that the server has not been told of yet.
#[derive(Debug)]
pub(super) struct Goodbye {
    pub(super) subscribe: Subscribe,
    pub(super) purge: bool,
    pub(super) waiter: Option<Waiter<Unsubscribed>>,
    pub(super) was_sent: bool,
}

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    last_id: u32,
    pub(super) entries: BTreeMap<u32, Entry>,
    ids: HashMap<Key, u32>,
    pub(super) goodbyes: BTreeMap<u32, Goodbye>,
    names: Arc<Names>,
}

impl Subscriptions {
    /// Adds or replaces; the id of a replaced one stays.
    pub(super) fn put(&mut self, entry: Entry) -> (u32, Option<Entry>) {
        if let Some(id) = self.ids.get(&entry.key) {
            return (*id, self.entries.insert(*id, entry));
        }
        self.last_id = self.last_id.wrapping_add(1);
        let id = self.last_id;
        self.ids.insert(entry.key.clone(), id);
        Arc::make_mut(&mut self.names).insert(&entry.key, id);
        self.entries.insert(id, entry);
        (id, None)
    }

    /// Removes one; its deliveries are no longer known.
    pub(super) fn remove(&mut self, id: u32) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.ids.remove(&entry.key);
        Arc::make_mut(&mut self.names).remove(&entry.key, id);
        Some(entry)
    }

    /// The link is gone: those that are not renewed end.
    pub(super) fn link_down(&mut self) {
        let once = |(id, entry): (&u32, &Entry)| {
            (entry.was_sent && !entry.subscribe.resubscribe).then_some(*id)
        };
        let over: Vec<u32> = self.entries.iter().filter_map(once).collect();
        for id in over {
            self.remove(id);
        }
    }

    pub(super) fn names(&self) -> Arc<Names> {
        self.names.clone()
    }
}

/// The key of a subscription, its names checked.
pub(super) fn key_of(subscribe: &Subscribe) -> Result<Key> {
    let producer = match &subscribe.producer {
        Some(name) => Some(ProducerName::parse(name)?),
        None => None,
    };
    let is_all = !subscribe.topic && subscribe.event.eq_ignore_ascii_case("TM-ALL");
    if subscribe.all || is_all {
        let spelling = match subscribe.all {
            true => Spelling::Scope,
            false => Spelling::Plain,
        };
        return Ok(match producer {
            Some(producer) => Key::All { producer, spelling },
            None => Key::Everything { spelling },
        });
    }
    let event = EventName::parse(&subscribe.event)?.folded();
    Ok(match (subscribe.topic, producer) {
        (true, producer) => Key::Topic {
            producer,
            pattern: event,
        },
        (false, Some(producer)) => Key::Event { producer, event },
        (false, None) => Key::Any { event },
    })
}

/// Delivery event names, without `CONSUME-`, to subscriptions.
///
/// Joined names are ambiguous (`a-b`+`c` is `a`+`b-c`), so a name may stand for several.
#[derive(Debug, Default, Clone)]
pub(super) struct Names(HashMap<Box<str>, Vec<(u32, Key)>>);

impl Names {
    fn insert(&mut self, key: &Key, id: u32) {
        let name = key.wire_name().into_boxed_str();
        self.0.entry(name).or_default().push((id, key.clone()));
    }

    fn remove(&mut self, key: &Key, id: u32) {
        let name = key.wire_name();
        if let Some(same) = self.0.get_mut(&*name) {
            same.retain(|(other, _)| *other != id);
            if same.is_empty() {
                self.0.remove(&*name);
            }
        }
    }

    /// The subscription that a delivery under `name` is for.
    pub(super) fn find(&self, name: &str, envelope: &Envelope<'_>) -> Option<u32> {
        match self.0.get(name).map(Vec::as_slice) {
            Some([(id, _)]) => Some(*id),
            Some(same) => {
                let fits = |(_, key): &&(u32, Key)| fits(key, envelope);
                same.iter().find(fits).map(|(id, _)| *id)
            }
            None => None,
        }
    }
}

fn fits(key: &Key, envelope: &Envelope<'_>) -> bool {
    let from = envelope.from.as_deref();
    let producer = key.producer().map(ProducerName::as_str);
    let event = envelope.event.as_deref().map(fold);
    (producer.is_none() || producer == from)
        && match key {
            Key::Event { event: own, .. } | Key::Any { event: own } => {
                event.as_deref() == Some(&**own)
            }
            Key::All { .. } | Key::Everything { .. } | Key::Topic { .. } => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(subscribe: Subscribe) -> Entry {
        Entry {
            key: key_of(&subscribe).unwrap(),
            subscribe,
            waiter: None,
            was_sent: false,
        }
    }

    fn envelope(text: &str) -> Envelope<'_> {
        Envelope::parse(text).unwrap()
    }

    #[test]
    fn the_same_key_replaces_and_keeps_its_id() {
        let mut subscriptions = Subscriptions::default();
        let first = subscriptions
            .put(entry(Subscribe::to("Paid").from("orders")))
            .0;
        let again = subscriptions
            .put(entry(Subscribe::to("PAID").from("orders").durable()))
            .0;
        assert_eq!(first, again);
        assert_eq!(subscriptions.entries.len(), 1);
        assert!(subscriptions.entries[&first].subscribe.durable);
        for other in [
            Subscribe::to("paid").from("Orders"),
            Subscribe::to("paid"),
            Subscribe::to_topic("paid"),
            Subscribe::to_all_of("orders"),
        ] {
            assert_ne!(subscriptions.put(entry(other)).0, first);
        }
    }

    #[test]
    fn every_kind_is_found_under_its_delivery_name() {
        let mut subscriptions = Subscriptions::default();
        let delivery = envelope(r#"{"event":"Paid","from":"Orders"}"#);
        for (subscribe, name) in [
            (Subscribe::to("Paid").from("Orders"), "orders-paid"),
            (Subscribe::to("Paid"), "tyo-mq-all-paid"),
            (Subscribe::to_topic("Fleet/+/cmd"), "tyo-mq-all-fleet/+/cmd"),
            (Subscribe::to_all_of("Orders"), "orders-TM-ALL"),
        ] {
            let id = subscriptions.put(entry(subscribe)).0;
            assert_eq!(subscriptions.names().find(name, &delivery), Some(id));
            subscriptions.remove(id);
            assert_eq!(subscriptions.names().find(name, &delivery), None);
        }
    }

    #[test]
    fn an_ambiguous_name_goes_to_whom_the_delivery_is_for() {
        let mut subscriptions = Subscriptions::default();
        let ab_c = subscriptions.put(entry(Subscribe::to("c").from("a-b"))).0;
        let a_bc = subscriptions.put(entry(Subscribe::to("b-c").from("a"))).0;
        let names = subscriptions.names();
        let find = |text| names.find("a-b-c", &envelope(text));
        assert_eq!(find(r#"{"event":"C","from":"a-b"}"#), Some(ab_c));
        assert_eq!(find(r#"{"event":"b-c","from":"a"}"#), Some(a_bc));
        assert_eq!(find(r#"{"event":"x","from":"a"}"#), None);
    }

    #[test]
    fn subscriptions_that_are_not_renewed_end_with_the_link() {
        let mut subscriptions = Subscriptions::default();
        let stays = subscriptions.put(entry(Subscribe::to("a"))).0;
        let mut once = entry(Subscribe::to("b"));
        once.subscribe.resubscribe = false;
        once.was_sent = true;
        subscriptions.put(once);
        subscriptions.link_down();
        assert_eq!(subscriptions.entries.keys().collect::<Vec<_>>(), [&stays]);
    }

    #[test]
    fn bad_names_are_refused() {
        assert!(key_of(&Subscribe::to("")).is_err());
        assert!(key_of(&Subscribe::to("a").from("")).is_err());
        assert!(key_of(&Subscribe::to("a").from("x".repeat(256))).is_err());
    }
}
