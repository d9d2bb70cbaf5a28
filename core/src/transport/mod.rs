//! Sockets: Engine.IO 4 over websocket and long polling, and Socket.IO 5 on top of it.
//!
//! Knows frames, packets, heartbeats and limits. Does not know what a message, a realm or a
//! subscription is: the room above hands in a [`Service`] and is told what arrived. Everything
//! runs on the I/O thread that owns the connection; nothing here is called from two threads at
//! once for one connection, except the methods of [`Link`], which anybody may call.

use std::net::SocketAddr;

use bytes::Bytes;

mod body;
mod caller;
mod config;
mod conn;
mod engine;
mod http;
mod line;
mod link;
mod listener;
mod permits;
mod polling;
mod probe;
mod reader;
mod socket;
mod socketio;
mod stream;
mod thread;
mod websocket;

pub use config::{Config, Cors, Doors, SharedDoors, SharedTls};
pub use engine::{EngineHandler, EngineService, Violation};
pub use http::{Body, Fallback, Peer, refuse_all, respond};
pub use link::Link;
pub use listener::{Stats, Transport, bind};
pub use permits::{Permit, Permits};

/// What the room above offers to the transport: one per namespace, shared by all connections.
pub trait Service: Send + Sync + 'static {
    /// A client has sent CONNECT for this namespace. The transport answers `40{"sid":…}` right
    /// after this returns, and only then calls the handler. Frames pushed from inside follow the
    /// reply.
    ///
    /// # Errors
    /// A refusal becomes CONNECT_ERROR `44{"message":…}`.
    fn connect(&self, link: Link, hello: &Hello<'_>) -> Result<Box<dyn Handler>, Refusal>;
}

/// What is known of a client when it connects.
#[derive(Debug)]
pub struct Hello<'a> {
    /// The Socket.IO id (20 url-safe characters), unlike the Engine.IO `sid`.
    pub socket_id: &'a str,
    /// The `auth` object of the CONNECT packet as JSON text, if there was one.
    pub auth: Option<&'a str>,
    /// The client's address: the peer's, or what a trusted proxy says.
    pub remote: SocketAddr,
    /// Nobody on the way can read along: TLS here, or at a trusted proxy that says so.
    pub is_secure: bool,
}

/// Why a CONNECT was refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Becomes `message` of the CONNECT_ERROR packet.
    pub message: String,
}

/// One connected client as the room above sees it. Called on the connection's own thread, in the
/// order of arrival. A panic inside ends this connection only.
pub trait Handler: Send {
    /// An EVENT or BINARY_EVENT packet.
    fn event(&mut self, event: Event<'_>);
    /// All packets of one read have been handed over: send what was gathered.
    fn read_done(&mut self);
    /// The peer has confirmed receipt of everything pushed up to `position` (P6): the pong to a
    /// ping that was written after it, or on polling the next GET. Only after [`Link::confirm`].
    fn confirmed(&mut self, position: u64);
    /// The line, after it had refused something, has drained to half of its bound.
    fn writable(&mut self);
    /// A frame above the message limit was read and thrown away; the connection stays (P21).
    fn oversize(&mut self, size: u64, limit: u64);
    /// The transport's clock tick, about four times a second or less; for time limits of the room above.
    fn tick(&mut self);
    /// [`Link::call`] was called since the last time, on this link or on another one of the connection.
    fn called(&mut self) {}
    /// The connection has ended; nothing is called after this.
    fn closed(&mut self, ending: Ending);
}

/// One Socket.IO event as it arrived.
#[derive(Debug)]
pub struct Event<'a> {
    /// The acknowledgement id, if the client wants a reply.
    pub reply: Option<u64>,
    /// The JSON array text, checked as UTF-8 but not as JSON: `["NAME",arg,…]`.
    pub args: &'a str,
    /// Binary attachments in the order of their placeholders; empty for plain events.
    pub attachments: &'a [Bytes],
}

/// How a connection ended. Only [`Ending::Broken`] counts as a failure of what the client held (P10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client said goodbye: Socket.IO `41`, Engine.IO `1`, or a websocket close frame.
    Closed,
    /// The socket ended by FIN or RST without a goodbye.
    Broken,
    /// No byte arrived for pingInterval + pingTimeout (P6).
    Silent,
    /// We closed it: kicked, replaced, stuck reader, protocol violation, or shutdown.
    Ours,
}
