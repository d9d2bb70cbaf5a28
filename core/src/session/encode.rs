//! The broker's [`Encode`] over `protocol::outbound`: what the broker has to say as frames.
//!
//! Made once per server and shared; keeps nothing of a session.

use std::sync::Arc;

use bytes::Bytes;

use crate::broker::{self, Encode, Head, Notice};
use crate::clock::Clock;
use crate::model::Key;
use crate::protocol::names;
use crate::protocol::outbound::{self, Content, DeliveryHead, Stamp};

/// Turns deliveries and notices into websocket frames.
pub(crate) struct Frames {
    settings: Arc<Settings>,
}

struct Settings {
    /// UTF-16 units of JSON text above which a delivery goes out in chunks.
    threshold: usize,
    clock: Arc<dyn Clock>,
}

impl Frames {
    /// Deliveries with more than `threshold` UTF-16 units of JSON text go out in chunks.
    pub(crate) fn new(threshold: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            settings: Arc::new(Settings { threshold, clock }),
        })
    }
}

impl Encode for Frames {
    fn head(&self, key: &Key) -> Arc<dyn Head> {
        Arc::new(KeyFrames {
            head: DeliveryHead::of_key(key),
            settings: self.settings.clone(),
        })
    }

    fn broadcast(&self, what: &broker::Content<'_>, out: &mut Vec<u8>) {
        let head = DeliveryHead::new(&names::broadcast(what.event));
        self.settings.write(&head, what, Stamp::Plain, out);
    }

    fn notice(&self, notice: &Notice<'_>) -> Bytes {
        let mut out = Vec::new();
        write_notice(&mut out, notice);
        Bytes::from(out)
    }
}

/// The deliveries of one key.
struct KeyFrames {
    head: DeliveryHead,
    settings: Arc<Settings>,
}

impl Head for KeyFrames {
    fn plain(&self, what: &broker::Content<'_>, out: &mut Vec<u8>) {
        self.settings.write(&self.head, what, Stamp::Plain, out);
    }

    fn tracked(&self, what: &broker::Content<'_>, msg_id: &str, attempt: u32, out: &mut Vec<u8>) {
        self.settings
            .write(&self.head, what, Stamp::Tracked { msg_id, attempt }, out);
    }

    fn repeated(&self, what: &broker::Content<'_>, out: &mut Vec<u8>) {
        self.settings
            .write(&self.head, what, Stamp::Redelivered, out);
    }
}

impl Settings {
    fn write(
        &self,
        head: &DeliveryHead,
        what: &broker::Content<'_>,
        stamp: Stamp<'_>,
        out: &mut Vec<u8>,
    ) {
        let content = Content {
            event: what.event,
            from: what.from,
            body: what.body.map(str::as_bytes),
            enc: what.enc.map(str::as_bytes),
            to: what.to.map(str::as_bytes),
            content_type: what.content_type.map(str::as_bytes),
            headers: what.headers.map(str::as_bytes),
            attachments: what.attachments,
        };
        head.write(out, &content, stamp, self.threshold, || self.clock.now());
    }
}

fn write_notice(out: &mut Vec<u8>, notice: &Notice<'_>) {
    match *notice {
        Notice::Subscribed {
            producer_id,
            subscriber,
        } => with_subscriber(&subscriber, |subscriber| {
            outbound::subscribe_to(out, Some(producer_id), subscriber);
        }),
        Notice::Unsubscribed {
            producer_id,
            event,
            subscriber,
        } => {
            with_subscriber(&subscriber, |subscriber| {
                outbound::unsubscribed_from(out, producer_id, event, subscriber);
            });
        }
        Notice::ConsumerOnline {
            producer_id,
            socket,
            id,
            consumer,
        } => {
            outbound::consumer_connected(out, producer_id, socket, id, consumer);
        }
        Notice::ConsumerOffline {
            producer_id,
            socket,
            id,
            consumer,
        } => {
            outbound::consumer_disconnected(out, producer_id, socket, id, consumer);
        }
        Notice::ProducerOnline {
            consumer_id,
            socket,
            producer,
            ..
        } => {
            outbound::producer_connected(out, consumer_id, socket, producer);
            outbound::producer_online(out, socket, producer);
        }
        Notice::ProducerOffline {
            consumer_id,
            socket,
            producer,
            ..
        } => {
            outbound::producer_disconnected(out, consumer_id, socket, producer);
        }
        Notice::ProducerReplaced => {
            outbound::event_text(out, names::ERROR, names::PRODUCER_TAKEN_OVER);
        }
        Notice::Failed(error) => outbound::error(out, error),
        Notice::Denied(error) => outbound::auth_fail(out, None, error),
        Notice::Gap { keys, dropped } => {
            let names: Vec<_> = keys.iter().map(|key| key.wire_name()).collect();
            outbound::gap(out, &names, dropped);
        }
    }
}

fn with_subscriber(
    subscriber: &broker::Subscriber<'_>,
    write: impl FnOnce(&outbound::Subscriber<'_>),
) {
    // In these lists all-events keys are spelled in lower case (wire §3.4).
    let events: Vec<String> = subscriber
        .events
        .iter()
        .map(|key| key.wire_name().to_lowercase())
        .collect();
    write(&outbound::Subscriber {
        name: subscriber.name,
        id: subscriber.id,
        socket: subscriber.socket,
        events: &events,
        online: subscriber.online,
    });
}
