//! What the packets of a link mean: heartbeat, login, replies, deliveries, everything else.
//!
//! No `Value` is built: payloads go to the sink as the checked text they came in.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::inbound::{self, Envelope, Text};
use super::super::sink::Delivery;
use super::super::socket::Incoming;
use super::super::verbs;
use super::*;
use crate::protocol::chunk::Step;
use crate::protocol::inbound::ProduceChunk;
use crate::protocol::names;
use crate::wire::{engine, socket};

/// A binary packet that waits for its attachments.
pub(super) struct Partial {
    /// The reply id of a binary reply; none for an event.
    reply: Option<u64>,
    json: String,
    missing: u32,
    bytes: usize,
    attachments: Vec<Bytes>,
}

/// CONSUME_CHUNK.
#[derive(Deserialize)]
struct ConsumeChunk<'a> {
    #[serde(borrow)]
    event: Text<'a>,
    #[serde(borrow, rename = "transferId")]
    transfer: Text<'a>,
    index: u64,
    total: u64,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl Link<'_> {
    /// Takes one websocket message.
    pub(super) fn take(&mut self, incoming: Incoming) -> Result<()> {
        match incoming {
            Incoming::Text(text) => self.text(&text),
            Incoming::Binary(bytes) => self.binary(bytes),
        }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        use engine::Packet;
        match Packet::parse(text)? {
            Packet::Message(message) => self.packet(message),
            Packet::Ping(data) => {
                self.sweep();
                frames::text(self.socket.output(), &format!("3{data}"));
                Ok(())
            }
            Packet::Open(json) if self.stage == Stage::Open => self.opened(json),
            Packet::Close => Err(gone("the server closed the session")),
            _ => Ok(()),
        }
    }

    fn opened(&mut self, json: &str) -> Result<()> {
        let open: inbound::Open = serde_json::from_str(json)
            .map_err(|error| gone(format!("the open packet makes no sense: {error}")))?;
        self.interval = Duration::from_millis(open.ping_interval);
        self.silence = self
            .interval
            .saturating_add(Duration::from_millis(open.ping_timeout));
        frames::text(self.socket.output(), "40");
        self.enter(Stage::Join, STEP);
        Ok(())
    }

    fn enter(&mut self, stage: Stage, within: Duration) {
        self.stage = stage;
        self.stage_end = self.shared.clock.elapsed().saturating_add(within);
    }

    fn packet(&mut self, message: &str) -> Result<()> {
        use socket::Kind;
        let packet = socket::Packet::parse(message)?;
        if packet.namespace != "/" {
            return Ok(());
        }
        let missing = match packet.kind {
            Kind::Connect if self.stage == Stage::Join => return self.joined(packet.json),
            Kind::Connect => return Ok(()),
            Kind::Disconnect => return Err(gone("the server disconnected")),
            Kind::ConnectError => {
                let error = inbound::refusal(packet.json, ErrorKind::Disconnected);
                return Err(gone(error.message()));
            }
            Kind::Event => return self.event(packet.json, &[]),
            Kind::Ack => return self.reply(packet.id, packet.json),
            Kind::BinaryEvent(missing) | Kind::BinaryAck(missing) => missing,
        };
        let partial = Partial {
            reply: packet
                .id
                .filter(|_| matches!(packet.kind, Kind::BinaryAck(_))),
            json: packet.json.to_owned(),
            missing,
            bytes: 0,
            attachments: Vec::new(),
        };
        self.partial = Some(partial);
        self.complete()
    }

    fn binary(&mut self, bytes: Bytes) -> Result<()> {
        let Some(partial) = &mut self.partial else {
            return Err(gone("an attachment came without its event"));
        };
        partial.bytes += bytes.len();
        if partial.bytes > self.shared.fixed.options.max_message_bytes {
            return Err(gone("the attachments of one event are too large"));
        }
        partial.missing -= 1;
        partial.attachments.push(bytes);
        self.complete()
    }

    /// Goes on with a binary packet whose attachments are all there.
    fn complete(&mut self) -> Result<()> {
        let Some(partial) = self.partial.take_if(|partial| partial.missing == 0) else {
            return Ok(());
        };
        match partial.reply {
            Some(id) => self.reply(Some(id), &partial.json),
            None => self.event(&partial.json, &partial.attachments),
        }
    }

    fn reply(&mut self, id: Option<u64>, json: &str) -> Result<()> {
        let Some(id) = id else { return Ok(()) };
        let now = self.shared.clock.elapsed();
        let outcomes = self.shared.state.lock().reply(id, json, now);
        self.was_told |= self.shared.tell(outcomes);
        Ok(())
    }

    fn joined(&mut self, json: &str) -> Result<()> {
        let joined: inbound::Joined = serde_json::from_str(json)
            .map_err(|error| gone(format!("the answer to CONNECT makes no sense: {error}")))?;
        self.socket_id = joined.sid;
        match &self.shared.fixed.options.auth {
            Some(auth) if auth.is_given() => {
                verbs::authentication(self.socket.output(), auth);
                self.enter(Stage::Auth, auth.timeout);
            }
            _ => self.up(None),
        }
        Ok(())
    }

    /// Registers. All of it goes out in one write.
    fn up(&mut self, auth: Option<&str>) {
        let shared = self.shared;
        let now = shared.clock.elapsed();
        let outcomes = shared
            .state
            .lock()
            .link_up(&self.socket_id, now, &shared.fixed);
        self.stage = Stage::Up;
        self.up_since = Some(now);
        let socket_id = std::mem::take(&mut self.socket_id);
        self.tell(ClientEvent::Connected {
            socket_id: &socket_id,
            first: self.is_first,
            auth,
        });
        shared.tell(outcomes);
    }

    fn event(&mut self, json: &str, attachments: &[Bytes]) -> Result<()> {
        let Some((name, args)) = inbound::split(json) else {
            return Err(gone("an event has no name"));
        };
        if name.starts_with(CONSUME)
            && self.stage == Stage::Up
            && self.deliver(&name, args, attachments)
        {
            return Ok(());
        }
        let payload = match args {
            "" => "null",
            args => {
                inbound::first(args)
                    .ok_or_else(|| gone("an event is no JSON"))?
                    .0
            }
        };
        match (&*name, self.stage) {
            (names::AUTH_OK, Stage::Auth) => self.up(Some(payload)),
            (names::AUTH_FAIL, Stage::Auth) => {
                let error = inbound::refusal(payload, ErrorKind::Unauthenticated);
                // Who was in before may be again, when only the moment was wrong.
                let may_try_again = !self.is_first && error.kind().is_retryable();
                return Err(match may_try_again {
                    true => error,
                    false => self.stay_down(error),
                });
            }
            (names::ERROR, _) => return self.error(payload),
            (names::RATE_LIMITED, stage) => return self.rate_limited(stage, payload),
            (_, Stage::Open | Stage::Join | Stage::Auth) => {}
            (names::CONSUME_CHUNK, _) => self.chunk(payload),
            (names::GAP, _) => self.gap(payload),
            (name, _) => self.tell(ClientEvent::Named {
                name,
                payload,
                attachments,
            }),
        }
        Ok(())
    }

    /// RATE_LIMITED: a notice, or the end of a session that is one too many; who was in before comes
    /// back when there is room.
    fn rate_limited(&mut self, stage: Stage, payload: &str) -> Result<()> {
        if let Some(error) = inbound::turned_away(payload) {
            return Err(match self.is_first {
                true => self.stay_down(error),
                false => error,
            });
        }
        if stage == Stage::Up {
            self.tell(ClientEvent::Named {
                name: names::RATE_LIMITED,
                payload,
                attachments: &[],
            });
        }
        Ok(())
    }

    /// Hands a delivery on; false if it is none.
    fn deliver(&mut self, name: &str, args: &str, attachments: &[Bytes]) -> bool {
        let Some(envelope) = Envelope::parse(args) else {
            return false;
        };
        let delivery = Delivery {
            payload: args,
            attachments,
            msg_id: envelope.msg_id.as_deref(),
            attempt: envelope.attempt,
        };
        let key = name.strip_prefix(CONSUME).unwrap_or(name);
        match self.names.find(key, &envelope) {
            Some(subscription) => self.shared.sink.delivery(subscription, delivery),
            None => self
                .shared
                .sink
                .event(ClientEvent::Broadcast { name, delivery }),
        }
        self.was_told = true;
        true
    }

    /// ERROR: the ones that no reconnect would change end the connection.
    fn error(&mut self, payload: &str) -> Result<()> {
        self.tell(ClientEvent::ServerError { payload });
        if inbound::text(payload).as_deref() == Some(names::PRODUCER_TAKEN_OVER) {
            self.tell(ClientEvent::Takeover);
            return Ok(());
        }
        let error = inbound::refusal(payload, ErrorKind::Internal);
        match error.kind() {
            ErrorKind::DuplicateConsumer | ErrorKind::AnonymousRefused => {
                Err(self.stay_down(error))
            }
            // Only a registration is answered so; before we are ready it is ours.
            ErrorKind::BadName if self.shared.ready.borrow().is_none() => {
                Err(self.stay_down(error))
            }
            _ => Ok(()),
        }
    }

    fn stay_down(&mut self, error: Error) -> Error {
        self.down = Some(error.clone());
        error
    }

    fn chunk(&mut self, payload: &str) {
        let now = self.shared.clock.elapsed();
        let Ok(chunk) = serde_json::from_str::<ConsumeChunk<'_>>(payload) else {
            return tracing::warn!("a chunk makes no sense and was dropped");
        };
        let Text(Some(name)) = chunk.event else {
            return tracing::warn!("a chunk says no event and was dropped");
        };
        let piece = ProduceChunk {
            transfer: chunk.transfer.0.unwrap_or_default(),
            index: Some(chunk.index),
            total: Some(chunk.total),
            data: Some(chunk.data.get()),
        };
        match self.assembler.add(&piece, now) {
            Ok(Step::Complete(text)) => {
                if !self.deliver(&name, &text, &[]) {
                    self.missed(&name, 1);
                }
            }
            Ok(Step::Partial | Step::Repeated | Step::Late(_)) => {}
            Ok(Step::TooLarge(size)) => {
                tracing::warn!(size, "a delivery was lost: it is too large");
                self.missed(&name, 1);
            }
            Err(error) => {
                tracing::warn!(%error, "a delivery was lost");
                self.missed(&name, 1);
            }
        }
    }

    /// Gives up transfers whose pieces stopped coming.
    fn sweep(&mut self) {
        let lost = self.assembler.sweep(self.shared.clock.elapsed());
        if !lost.is_empty() {
            self.missed("", lost.len() as u64);
        }
    }

    fn missed(&mut self, name: &str, dropped: u64) {
        let key = name.strip_prefix(CONSUME).map(str::to_owned);
        self.tell(ClientEvent::Gap {
            keys: &Vec::from_iter(key),
            dropped: Some(dropped),
        });
    }

    fn gap(&mut self, payload: &str) {
        if let Ok(gap) = serde_json::from_str::<inbound::Gap>(payload) {
            self.tell(ClientEvent::Gap {
                keys: &gap.keys,
                dropped: gap.dropped,
            });
        }
    }
}

/// Before a delivery's key.
const CONSUME: &str = "CONSUME-";
