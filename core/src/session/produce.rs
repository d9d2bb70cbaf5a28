//! PRODUCE and its chunks: from the parsed verb to the broker's publish, and the answer back.

use crate::auth::Need;
use crate::broker::{self, Content, PublishRequest};
use crate::model::ANONYMOUS;
use crate::protocol::chunk::Step;
use crate::protocol::inbound::{Broadcast, Hold, Produce, ProduceChunk};
use crate::protocol::outbound::{self, Produced};
use crate::{Error, ErrorKind};

use crate::transport::Event;

use super::transfers::{Outcome, Transfers};
use super::{Session, dispatch};

/// What may surround a message of the largest size in a transfer.
const ENVELOPE: usize = 1 << 20;

impl Session {
    /// A message whose event had `size` bytes.
    pub(super) fn produce(&mut self, produce: &Produce<'_>, reply: Option<u64>, size: usize) {
        if self.admit(size, reply, produce.guaranteed) {
            self.publish(produce, reply, None);
        }
    }

    /// `outcome`: where to note that it was taken.
    fn publish(&mut self, produce: &Produce<'_>, reply: Option<u64>, outcome: Option<Outcome>) {
        let from = produce.from.as_deref().unwrap_or(ANONYMOUS);
        if let Some(guard) = &mut self.guard {
            if let Err(error) = guard.covers(Need::Produce) {
                return self.replies.deny(&error.into(), reply);
            }
            if let Err(error) = guard.produce(produce, from) {
                return self.fail(&error, reply);
            }
        }
        let size = size(produce);
        if size > self.config.max_message_bytes {
            let limit = self.config.max_message_bytes as u64;
            self.replies
                .refuse_size("message", size as u64, limit, reply);
            return;
        }
        let due = produce.hold.map(|hold| match hold {
            Hold::For(delay) => self.shared.clock.now().plus(delay),
            Hold::Until(at) => at,
        });
        let request = PublishRequest {
            content: Content {
                event: &produce.event,
                from,
                body: produce.message,
                attachments: produce.attachments,
                enc: produce.enc,
                to: produce.to,
                content_type: produce.content_type,
                headers: produce.headers,
            },
            producer_id: produce.id.as_deref(),
            ttl: produce.ttl,
            guaranteed: produce.guaranteed,
            broadcast: produce.broadcast.as_ref().map(|broadcast| match broadcast {
                Broadcast::Realm => broker::Broadcast::Realm,
                Broadcast::Group(group) => broker::Broadcast::Group(group.as_str()),
            }),
            uid: produce.msg_uid.as_deref(),
            instance_seq: produce
                .instance_seq
                .as_ref()
                .map(|(text, number)| (&**text, *number)),
            ordering_key: produce.key.as_deref(),
            due,
        };
        let reply = (reply.is_some() || outcome.is_some()).then(|| self.answer(reply, outcome));
        let batch = self.batch.get_or_insert_default();
        self.shared
            .broker
            .publish(&self.member, batch, request, reply);
    }

    fn answer(&self, id: Option<u64>, outcome: Option<Outcome>) -> broker::Reply {
        let replies = self.replies.clone();
        Box::new(move |result| {
            if let (Some(outcome), Ok(published)) = (outcome, &result) {
                // Called once.
                let _ = outcome.set(*published);
            }
            replies.push(|out| match (&result, id) {
                (Ok(published), Some(id)) => write_published(out, id, published),
                (Ok(_), None) => {}
                (Err(error), Some(id)) => outbound::reply_error(out, id, error),
                (Err(error), None) => outbound::error(out, error),
            });
        })
    }

    /// A PRODUCE that differs from the last in its body alone; false: it is something else.
    pub(super) fn produce_again(&mut self, event: &Event<'_>) -> bool {
        // Taken out so that what is read from it may be used beside `self`.
        let envelope = self.envelope.take();
        let produce = envelope
            .as_ref()
            .and_then(|envelope| envelope.read(event.args));
        let is_same = produce.is_some();
        if let Some(produce) = &produce {
            self.produce(produce, event.reply, dispatch::size(event));
        }
        drop(produce);
        self.envelope = envelope;
        is_same
    }

    /// One piece; the last one makes the message, and a reply awaited by it is the message's.
    pub(super) fn produce_chunk(
        &mut self,
        chunk: &ProduceChunk<'_>,
        reply: Option<u64>,
        size: usize,
    ) {
        let now = self.shared.clock.elapsed();
        let is_admitted = self.admit(size, reply, true);
        let max_open = self.config.limits.max_transfers_per_socket;
        let transfers = self.transfers.get_or_insert_with(|| {
            let max_bytes = self.config.max_message_bytes.saturating_add(ENVELOPE);
            Box::new(Transfers::new(max_bytes, max_open, self.link.clone()))
        });
        if !is_admitted {
            // Without this piece there will be no message.
            transfers.end(&chunk.transfer);
            return;
        }
        match transfers.add(chunk, now) {
            Ok(Step::Partial) => {}
            Ok(Step::Repeated) => {
                let known = transfers.outcome(&chunk.transfer);
                self.repeated(known, reply);
            }
            Ok(Step::TooLarge(size)) => self.refuse_transfer(Some(size), reply),
            // Its ERROR was written when it was dropped; a reply is owed all the same (P2).
            Ok(Step::Late(size)) if reply.is_some() => self.refuse_transfer(size, reply),
            Ok(Step::Late(_)) => {}
            Ok(Step::Complete(text)) => {
                let outcome = transfers.joined(&chunk.transfer);
                match Produce::parse_joined(&text) {
                    Ok(produce) => self.publish(&produce, reply, Some(outcome)),
                    Err(error) => self.fail(&error, reply),
                }
            }
            Err(error) => self.fail(&error, reply),
        }
    }

    /// A piece of a message that was joined before; a reply is owed all the same (P2).
    fn repeated(&self, known: Option<broker::Published>, reply: Option<u64>) {
        let Some(id) = reply else { return };
        match known {
            Some(published) => {
                let repeat = broker::Published {
                    queued: 0,
                    delivered: 0,
                    refused: 0,
                    duplicate: true,
                    ..published
                };
                self.replies.push(|out| write_published(out, id, &repeat));
            }
            None => {
                let message = "a message that came under this transferId was refused or is still \
                               under way, take another one to send it again";
                self.fail(&Error::new(ErrorKind::ChunkDropped, message), reply);
            }
        }
    }

    /// A transfer that was dropped, for its `size` if that is given.
    fn refuse_transfer(&self, size: Option<u64>, reply: Option<u64>) {
        match size {
            Some(size) => {
                let limit = self.config.max_message_bytes as u64;
                self.replies.refuse_size("message", size, limit, reply);
            }
            None => {
                let message = "the chunk transfer was dropped before this piece";
                self.fail(&Error::new(ErrorKind::ChunkDropped, message), reply);
            }
        }
    }

    /// Drops transfers without a new piece for 30 s, and says so.
    pub(super) fn sweep_transfers(&mut self) {
        let now = self.shared.clock.elapsed();
        let errors = self
            .transfers
            .as_mut()
            .map(|transfers| transfers.sweep(now));
        for error in errors.into_iter().flatten() {
            self.fail(&error, None);
        }
    }
}

/// Bytes of the message itself: the body, encrypted or not, and its binary parts.
fn size(produce: &Produce<'_>) -> usize {
    let texts = [produce.message, produce.enc].into_iter().flatten();
    let attachments = produce.attachments.iter().map(|bytes| bytes.len());
    texts.map(str::len).chain(attachments).sum()
}

fn write_published(out: &mut Vec<u8>, id: u64, published: &broker::Published) {
    let message_id = published.id.to_string();
    let produced = Produced {
        id: &message_id,
        queued: u64::from(published.queued),
        delivered: u64::from(published.delivered),
        refused: u64::from(published.refused),
        duplicate: published.duplicate,
        delayed: published.delayed,
    };
    outbound::produced(out, id, &produced);
}
