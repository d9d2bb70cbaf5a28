//! Socket.IO 5 on an Engine.IO session: namespaces, CONNECT, events, attachments.
//!
//! Knows the [`Service`] of each namespace and hands events to its [`Handler`]; what an event means
//! is not its business. Strict about the start: nothing is delivered before CONNECT, nothing goes
//! out before its reply.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::engine::{EngineHandler, EngineService, Violation};
use super::thread::new_id;
use super::{Ending, Event, Handler, Hello, Link, Service};
use crate::wire::attachment::Reassembler;
use crate::wire::socket::{Head, Kind, Packet, put_frame};

/// Namespaces and their services; few, so searched in order.
/// The largest frame of who has joined no namespace: nothing large is said before.
const LARGEST_BEFORE: usize = 128 << 10;

type Services = Arc<[(Box<str>, Arc<dyn Service>)]>;

/// The namespaces and their services.
pub(super) struct SocketIo {
    services: Services,
    connect_timeout: Duration,
    max_bytes: usize,
}

impl SocketIo {
    pub(super) fn new(
        services: Vec<(String, Arc<dyn Service>)>,
        connect_timeout: Duration,
        max_bytes: usize,
    ) -> Self {
        let services = services
            .into_iter()
            .map(|(name, service)| (name.into(), service));
        Self {
            services: services.collect(),
            connect_timeout,
            max_bytes,
        }
    }
}

impl EngineService for SocketIo {
    fn open(&self, link: Link) -> Box<dyn EngineHandler> {
        link.limit_frames(Some(LARGEST_BEFORE));
        Box::new(Client {
            services: self.services.clone(),
            connect_timeout: self.connect_timeout,
            max_bytes: self.max_bytes,
            lonely_since: link.conn().thread.now(),
            link,
            members: Vec::new(),
            partial: None,
        })
    }
}

/// A namespace that this client has joined.
struct Member {
    namespace: Box<str>,
    link: Link,
    handler: Box<dyn Handler>,
}

/// A binary packet in the making, and whether it is an event (replies are swallowed).
struct Partial {
    packet: Reassembler,
    is_event: bool,
}

struct Client {
    services: Services,
    connect_timeout: Duration,
    max_bytes: usize,
    link: Link,
    /// Usually one; searched in order.
    members: Vec<Member>,
    /// Since when no namespace is joined.
    lonely_since: Duration,
    partial: Option<Box<Partial>>,
}

impl Client {
    fn connect(&mut self, packet: &Packet<'_>) {
        let namespace = packet.namespace;
        if self
            .members
            .iter()
            .any(|member| &*member.namespace == namespace)
        {
            return;
        }
        let known = self.services.iter().find(|(name, _)| &**name == namespace);
        let Some((_, service)) = known else {
            self.link.reply(refusal(namespace, "Invalid namespace"));
            return;
        };
        let socket_id = new_id();
        let conn = self.link.conn();
        let link = Link::new(conn.clone(), &socket_id);
        let hello = Hello {
            socket_id: &socket_id,
            auth: (!packet.json.is_empty()).then_some(packet.json),
            remote: conn.caller.remote,
            is_secure: conn.caller.is_secure,
        };
        // The reply is in the line before the service can push anything; nothing is written until
        // this thread comes to it, so a refusal can still take its place.
        let place = conn.push_replaceable(welcome(namespace, &socket_id));
        if self.members.is_empty() {
            link.limit_frames(None);
        }
        match service.connect(link.clone(), &hello) {
            Ok(handler) => {
                self.members.push(Member {
                    namespace: namespace.into(),
                    link,
                    handler,
                });
                conn.start_heartbeat();
            }
            Err(refused) => {
                conn.replace(place, refusal(namespace, &refused.message));
                if self.members.is_empty() {
                    self.link.limit_frames(Some(LARGEST_BEFORE));
                }
            }
        }
    }

    fn disconnect(&mut self, namespace: &str) {
        let found = self
            .members
            .iter()
            .position(|member| &*member.namespace == namespace);
        if let Some(at) = found {
            self.members.remove(at).handler.closed(Ending::Closed);
            if self.members.is_empty() {
                self.lonely_since = self.link.conn().thread.now();
            }
        }
    }

    fn event(&mut self, namespace: &str, event: Event<'_>) {
        let member = self
            .members
            .iter_mut()
            .find(|member| &*member.namespace == namespace);
        if let Some(member) = member {
            member.handler.event(event);
        } else if !self.services.iter().any(|(name, _)| &**name == namespace) {
            self.link.reply(refusal(namespace, "Invalid namespace"));
        }
        // Else an event before CONNECT: dropped.
    }

    fn finish_partial(&mut self) {
        let Some(partial) = self.partial.take() else {
            return;
        };
        if let Some(whole) = partial.packet.finish()
            && partial.is_event
        {
            let event = Event {
                reply: whole.id,
                args: &whole.json,
                attachments: &whole.attachments,
            };
            self.event(&whole.namespace, event);
        }
    }

    fn start_partial(&mut self, packet: &Packet<'_>, wanted: u32, is_event: bool) {
        self.partial = Some(Box::new(Partial {
            packet: Reassembler::new(packet, wanted, self.max_bytes),
            is_event,
        }));
        if wanted == 0 {
            self.finish_partial();
        }
    }
}

impl EngineHandler for Client {
    #[inline]
    fn text(&mut self, text: &str) -> Result<(), Violation> {
        if self.partial.is_some() {
            return Err(Violation("a packet between attachments"));
        }
        let packet = Packet::parse(text).map_err(|malformed| Violation(malformed.0))?;
        match packet.kind {
            Kind::Event => {
                let event = Event {
                    reply: packet.id,
                    args: packet.json,
                    attachments: &[],
                };
                self.event(packet.namespace, event);
            }
            Kind::BinaryEvent(wanted) => self.start_partial(&packet, wanted, true),
            Kind::BinaryAck(wanted) => self.start_partial(&packet, wanted, false),
            // The server never asks for a reply.
            Kind::Ack => {}
            Kind::Connect => self.connect(&packet),
            Kind::Disconnect => self.disconnect(packet.namespace),
            Kind::ConnectError => return Err(Violation("CONNECT_ERROR from a client")),
        }
        Ok(())
    }

    fn binary(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let Some(partial) = &mut self.partial else {
            return Err(Violation("an attachment without its packet"));
        };
        let complete = partial
            .packet
            .push(bytes)
            .map_err(|malformed| Violation(malformed.0))?;
        if complete {
            self.finish_partial();
        }
        Ok(())
    }

    fn held(&self) -> usize {
        self.partial
            .as_ref()
            .map_or(0, |partial| partial.packet.held())
    }

    fn read_done(&mut self) {
        for member in &mut self.members {
            member.handler.read_done();
        }
    }

    fn confirmed(&mut self, position: u64) {
        for member in &mut self.members {
            if member.link.has_asked() {
                member.handler.confirmed(position);
            }
        }
    }

    fn writable(&mut self) {
        for member in &mut self.members {
            member.handler.writable();
        }
    }

    fn oversize(&mut self, binary: bool, size: u64, limit: u64) {
        if binary
            && let Some(partial) = &mut self.partial
            && partial.packet.spoil()
        {
            self.finish_partial();
        }
        for member in &mut self.members {
            member.handler.oversize(size, limit);
        }
    }

    fn tick(&mut self) -> Result<(), Violation> {
        if self.members.is_empty() {
            let alone = self
                .link
                .conn()
                .thread
                .now()
                .saturating_sub(self.lonely_since);
            if alone >= self.connect_timeout {
                return Err(Violation("no namespace joined in time"));
            }
        }
        for member in &mut self.members {
            member.handler.tick();
        }
        Ok(())
    }

    fn called(&mut self) {
        for member in &mut self.members {
            member.handler.called();
        }
    }

    fn goodbye(&mut self) -> Bytes {
        let mut frames = BytesMut::new();
        for member in &self.members {
            let head = head(Kind::Disconnect, &member.namespace);
            put_frame(&head, &[], &mut frames);
        }
        frames.freeze()
    }

    fn closed(&mut self, ending: Ending) {
        for mut member in self.members.drain(..) {
            member.handler.closed(ending);
        }
    }
}

fn head(kind: Kind, namespace: &str) -> Head<'_> {
    Head {
        kind,
        namespace,
        id: None,
    }
}

fn welcome(namespace: &str, socket_id: &str) -> Bytes {
    let mut frame = BytesMut::new();
    let json = [b"{\"sid\":\"".as_slice(), socket_id.as_bytes(), b"\"}"];
    put_frame(&head(Kind::Connect, namespace), &json, &mut frame);
    frame.freeze()
}

fn refusal(namespace: &str, message: &str) -> Bytes {
    let mut frame = BytesMut::new();
    let message = serde_json::Value::from(message).to_string();
    let json = [b"{\"message\":".as_slice(), message.as_bytes(), b"}"];
    put_frame(&head(Kind::ConnectError, namespace), &json, &mut frame);
    frame.freeze()
}
