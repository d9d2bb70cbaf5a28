//! Our verbs ⇄ Socket.IO events: parse at the door, typed inside.
//!
//! [`inbound`] turns the JSON text of an event into a verb, [`outbound`] appends whole websocket
//! frames to a buffer, [`chunk`] joins messages that came in pieces. Knows no session, no routing,
//! no socket. Called by `session` and `client`.

pub mod chunk;
pub mod inbound;
pub(crate) mod json;
pub mod names;
pub mod outbound;
mod scan;
