//! Who listens, who is there, who is gone: what producers and consumers are told of each other.
//!
//! Does not know who has to be told. Ids are those of CONSUMER and PRODUCER, else socket ids.

use crate::protocol::names;

use super::object::{Object, event};

/// A consumer as a producer is told of it.
#[derive(Debug, Clone, Copy)]
pub struct Subscriber<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its id; clients keep their list by it.
    pub id: &'a str,
    /// Its socket id while it is connected.
    pub socket: Option<&'a str>,
    /// Wire names of the keys it listens to.
    pub events: &'a [String],
    /// Whether it is connected; `None` if it was never seen.
    pub online: Option<bool>,
}

impl Subscriber<'_> {
    fn put(&self, object: &mut Object<'_>) {
        object
            .text("name", self.name)
            .text("id", self.id)
            .text_or_null("socket", self.socket)
            .texts("events", self.events);
        if let Some(online) = self.online {
            object.flag("online", online);
        }
    }
}

/// `SUBSCRIBE-TO-<pid>`: a producer is told of a subscription.
pub fn subscribe_to(out: &mut Vec<u8>, producer_id: Option<&str>, subscriber: &Subscriber<'_>) {
    event(out, &names::subscribe_to(producer_id), &|object| {
        subscriber.put(object);
    });
}

/// A producer is told that a subscription has ended: `UNSUBSCRIBE-<pid>` and
/// `UNSUBSCRIBE-<event>-<pid>`, two frames. `event_name` is the subscription's event.
pub fn unsubscribed_from(
    out: &mut Vec<u8>,
    producer_id: &str,
    event_name: &str,
    subscriber: &Subscriber<'_>,
) {
    let members = |object: &mut Object<'_>| {
        subscriber.put(object);
        object
            .text("event", "UNSUBSCRIBE")
            .text("consumer", subscriber.name);
    };
    event(out, &names::unsubscribe(producer_id), &members);
    let name = names::unsubscribe_event(event_name, producer_id);
    event(out, &name, &members);
}

/// `CONNECT-<pid>`: a producer is told that a consumer is back.
pub fn consumer_connected(
    out: &mut Vec<u8>,
    producer_id: &str,
    socket: &str,
    id: &str,
    consumer: &str,
) {
    consumer_event(
        out,
        &names::connect(producer_id),
        "CONNECT",
        socket,
        id,
        consumer,
    );
}

/// `DISCONNECT-<pid>`: a producer is told that a consumer is gone.
pub fn consumer_disconnected(
    out: &mut Vec<u8>,
    producer_id: &str,
    socket: &str,
    id: &str,
    consumer: &str,
) {
    let name = names::disconnect(producer_id);
    consumer_event(out, &name, "DISCONNECT", socket, id, consumer);
}

fn consumer_event(
    out: &mut Vec<u8>,
    name: &str,
    what: &str,
    socket: &str,
    id: &str,
    consumer: &str,
) {
    event(out, name, &|object| {
        object
            .text("event", what)
            .text("socket", socket)
            .text("id", id)
            .text("consumer", consumer);
    });
}

/// `CONNECT-<cid>`: a consumer is told that a producer is there.
pub fn producer_connected(out: &mut Vec<u8>, consumer_id: &str, socket: &str, producer: &str) {
    producer_event(
        out,
        &names::connect(consumer_id),
        "CONNECT",
        socket,
        producer,
    );
}

/// `DISCONNECT-<cid>`: a consumer is told that a producer is gone.
pub fn producer_disconnected(out: &mut Vec<u8>, consumer_id: &str, socket: &str, producer: &str) {
    let name = names::disconnect(consumer_id);
    producer_event(out, &name, "DISCONNECT", socket, producer);
}

/// `<producer>-ONLINE`: the same as `CONNECT-<cid>` under the name Node clients listen on.
pub fn producer_online(out: &mut Vec<u8>, socket: &str, producer: &str) {
    producer_event(out, &names::online(producer), "CONNECT", socket, producer);
}

fn producer_event(out: &mut Vec<u8>, name: &str, what: &str, socket: &str, producer: &str) {
    event(out, name, &|object| {
        object
            .text("event", what)
            .text("socket", socket)
            .text("producer", producer);
    });
}
