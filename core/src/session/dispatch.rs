//! The one `match` over what a client that is in can say.

use crate::auth::Denied;
use crate::protocol::inbound::{Answer, Inbound, Refused};
use crate::protocol::outbound;
use crate::transport::Event;
use crate::{Error, ErrorKind};

use super::login::Shown;
use super::{Session, guard, manage};

/// An attempt to come in as somebody else, and its acknowledgement id.
pub(super) type Again = (Shown, Option<u64>);

/// Bytes of an event, for rates.
pub(super) fn size(event: &Event<'_>) -> usize {
    let attachments = event.attachments.iter().map(|bytes| bytes.len());
    event.args.len() + attachments.sum::<usize>()
}

impl Session {
    /// Acts on an event. `Some`: the session, which had to show nothing so far, wants to show who it is.
    pub(super) fn dispatch(&mut self, event: &Event<'_>) -> Option<Again> {
        if event.attachments.is_empty() && self.produce_again(event) {
            return None;
        }
        // Allocates only for a payload that is JSON in a string.
        let mut scratch = String::new();
        let defaults = self.config.defaults;
        match Inbound::parse(event.args, event.attachments, &mut scratch, &defaults) {
            Ok(Inbound::Authentication(said)) => self.login(said.into(), event.reply),
            Ok(verb) => {
                if let Inbound::Produce(produce) = &verb {
                    self.envelope
                        .get_or_insert_default()
                        .learn(event.args, produce);
                }
                self.act(verb, event.reply, size(event));
                None
            }
            Err(refused) if refused.answer == Answer::AuthFail => {
                self.login(Shown::default(), event.reply)
            }
            Err(refused) => {
                self.refuse(&refused, event.reply);
                None
            }
        }
    }

    fn act(&mut self, verb: Inbound<'_>, reply: Option<u64>, size: usize) {
        if let Some(guard) = &self.guard
            && let Some(need) = guard::need_of(&verb)
            && let Err(error) = guard.covers(need)
        {
            return self.replies.deny(&error.into(), reply);
        }
        match verb {
            Inbound::Produce(produce) => self.produce(&produce, reply, size),
            Inbound::Ack(ack) => self.ack(&ack, reply),
            Inbound::Nack(nack) => self.nack(&nack, reply),
            Inbound::Working(working) => self.working(&working, reply),
            Inbound::ProduceChunk(chunk) => self.produce_chunk(&chunk, reply, size),
            Inbound::Consumer(consumer) => self.consumer(consumer, reply),
            Inbound::Producer(producer) => self.producer(producer, reply),
            Inbound::Subscribe(subscribe) => self.subscribe(*subscribe, reply),
            Inbound::Unsubscribe(unsubscribe) => self.identity.unsubscribe(unsubscribe, reply),
            Inbound::Ping(object) => {
                if let Some(id) = reply {
                    let now = self.shared.clock.now();
                    self.replies
                        .push(|out| outbound::pong(out, id, object, now));
                }
            }
            Inbound::Quit(socket_id) => {
                if socket_id == self.link.socket_id() {
                    self.replies.close();
                }
            }
            Inbound::Authentication(_) | Inbound::Hello | Inbound::Debug => {}
            Inbound::Other { name, payload } => {
                let order = manage::Order {
                    name: &name,
                    payload,
                    reply,
                };
                self.shared.other(&self.link, &self.replies, order);
            }
        }
    }

    /// With authentication off everybody is in with every right, whatever was shown. Else a session is
    /// who it has shown to be; one that was let in for nothing may show it as long as nothing is
    /// registered on it (admin.md §2.2 v).
    fn login(&self, shown: Shown, reply: Option<u64>) -> Option<Again> {
        let (realm, role) = (self.member.realm().as_str(), self.principal.role.as_str());
        if self.is_open() {
            self.replies
                .push(|out| outbound::auth_ok(out, reply, realm, role));
            return None;
        }
        let is_new = self.member.registrations() + self.member.subscriptions() == 0;
        if self.is_implicit && is_new && self.identity.is_idle() {
            return Some((shown, reply));
        }
        let text = "this session is authenticated already";
        let denied = Denied::new(ErrorKind::Forbidden, text);
        self.replies.deny(&denied, reply);
        None
    }

    fn refuse(&self, refused: &Refused, reply: Option<u64>) {
        self.replies.refuse(refused, reply);
    }

    /// A verb failed further down: the reply if one is awaited, else ERROR.
    pub(super) fn fail(&self, error: &Error, reply: Option<u64>) {
        self.replies.fail(error, reply);
    }
}
