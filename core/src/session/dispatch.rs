//! The one `match` over what a client can say.

use crate::protocol::inbound::{Answer, Inbound, Refused};
use crate::protocol::outbound;
use crate::transport::Event;
use crate::{Error, ErrorKind};

use super::Session;

/// Bytes of an event, for rates.
pub(super) fn size(event: &Event<'_>) -> usize {
    let attachments = event.attachments.iter().map(|bytes| bytes.len());
    event.args.len() + attachments.sum::<usize>()
}

impl Session {
    pub(super) fn dispatch(&mut self, event: &Event<'_>) {
        if event.attachments.is_empty() && self.produce_again(event) {
            return;
        }
        // Allocates only for a payload that is JSON in a string.
        let mut scratch = String::new();
        let defaults = self.config.defaults;
        match Inbound::parse(event.args, event.attachments, &mut scratch, &defaults) {
            Ok(verb) => {
                if let Inbound::Produce(produce) = &verb {
                    self.envelope
                        .get_or_insert_default()
                        .learn(event.args, produce);
                }
                self.act(verb, event.reply, size(event));
            }
            Err(refused) => self.refuse(&refused, event.reply),
        }
    }

    fn act(&mut self, verb: Inbound<'_>, reply: Option<u64>, size: usize) {
        match verb {
            Inbound::Produce(produce) => self.produce(&produce, reply, size),
            Inbound::Ack(ack) => self.ack(&ack, reply),
            Inbound::Nack(nack) => self.nack(&nack, reply),
            Inbound::Working(working) => self.working(&working, reply),
            Inbound::ProduceChunk(chunk) => self.produce_chunk(&chunk, reply, size),
            Inbound::Consumer(consumer) => self.consumer(consumer, reply),
            Inbound::Producer(producer) => self.producer(producer, reply),
            Inbound::Subscribe(subscribe) => self.identity.subscribe(*subscribe, reply),
            Inbound::Unsubscribe(unsubscribe) => self.identity.unsubscribe(unsubscribe, reply),
            Inbound::Ping(object) => {
                if let Some(id) = reply {
                    let now = self.clock.now();
                    self.replies
                        .push(|out| outbound::pong(out, id, object, now));
                }
            }
            Inbound::Quit(socket_id) => {
                if socket_id == self.link.socket_id() {
                    self.replies.close();
                }
            }
            Inbound::Authentication(_) => self.let_in(reply),
            Inbound::Hello | Inbound::Debug => {}
            Inbound::Other { name, .. } => self.unknown(&name, reply),
        }
    }

    /// Verbs of parts that this server does not have are answered only if the client waits for it.
    fn unknown(&self, name: &str, reply: Option<u64>) {
        tracing::debug!(event = name, "unknown event");
        if let Some(id) = reply {
            let error = Error::new(ErrorKind::Unsupported, format!("this server has no {name}"));
            self.replies
                .push(|out| outbound::reply_error(out, id, &error));
        }
    }

    /// With authentication off everybody is in with every right, whatever was shown.
    fn let_in(&self, reply: Option<u64>) {
        let realm = self.member.realm();
        self.replies
            .push(|out| outbound::auth_ok(out, reply, realm.as_str(), "both"));
    }

    pub(super) fn refuse(&self, refused: &Refused, reply: Option<u64>) {
        match refused.answer {
            Answer::AuthFail => self.let_in(reply),
            Answer::Close => {
                tracing::debug!(socket = self.link.socket_id(), "{}", refused.error);
                self.replies.close();
            }
            Answer::Ignore if reply.is_none() => tracing::debug!("ignored: {}", refused.error),
            _ => self
                .replies
                .push(|out| outbound::refused(out, reply, refused)),
        }
    }

    /// A verb failed further down: the reply if one is awaited, else ERROR.
    pub(super) fn fail(&self, error: &Error, reply: Option<u64>) {
        self.replies.push(|out| match reply {
            Some(id) => outbound::reply_error(out, id, error),
            None => outbound::error(out, error),
        });
    }

    /// A frame or a message of `size` bytes where `limit` are allowed (P21).
    pub(super) fn refuse_size(&self, what: &str, size: u64, limit: u64, reply: Option<u64>) {
        let error = Error::new(
            ErrorKind::PayloadTooLarge,
            format!("a {what} of {size} bytes is over the limit of {limit} bytes"),
        );
        self.replies
            .push(|out| outbound::too_large(out, reply, &error, size, limit));
    }
}
