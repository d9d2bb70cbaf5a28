//! From bytes of a websocket to messages: the plain case in place, the rest by tungstenite.
//!
//! A plain frame (whole, masked, FIN, text or binary, no fragment open, within the limit) is
//! unmasked and checked where it lies. Fragments and control frames go, frame by frame, to a
//! `WebSocketContext` that exists only while it is needed. Only an unfinished frame stays here.
//! Knows no packets and does no I/O.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig, WebSocketContext};

use super::engine::Stop;
use super::permits::{FREE, Permit};
use crate::wire::frame::{Header, Opcode, unmask};

const PROTOCOL: u16 = 1002;
const UTF8: u16 = 1007;
const SIZE: u16 = 1009;

/// Where messages go.
pub(super) trait Sink {
    fn text(&mut self, text: &str) -> Result<(), Stop>;
    fn binary(&mut self, bytes: &[u8]) -> Result<(), Stop>;
    /// A frame that must be written: pong, or the answer to a close.
    fn reply(&mut self, frame: Bytes);
    /// A frame above the limit was thrown away.
    fn oversize(&mut self, binary: bool, size: u64);
    /// The largest message that is taken now; the reader's own limit holds in any case.
    fn most(&self) -> usize {
        usize::MAX
    }
    /// Bytes that the sink holds for a message of several frames.
    fn held(&self) -> usize;
    /// Whether `bytes` may be held in sum; takes or grows the permit.
    fn may_hold(&mut self, permit: &mut Option<Permit>, bytes: usize) -> bool;
}

/// See the module.
pub(super) struct Reader {
    limit: usize,
    /// An unfinished frame; while a permit is missing, all that was read.
    pending: Vec<u8>,
    /// Bytes that `pending` must reach before it is worth a look.
    need: usize,
    /// Bytes still to be thrown away of a frame above the limit.
    skip: u64,
    skipped: (bool, u64),
    /// Payload of the open fragments, if any.
    open: Option<usize>,
    odd: Option<Box<WebSocketContext>>,
    permit: Option<Permit>,
    starving: bool,
}

impl Reader {
    /// A reader that delivers messages up to `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            pending: Vec::new(),
            need: 0,
            skip: 0,
            skipped: (false, 0),
            open: None,
            odd: None,
            permit: None,
            starving: false,
        }
    }

    /// Whether a permit is missing: feed nothing more until [`Reader::retry`] has got one.
    pub(super) fn is_starving(&self) -> bool {
        self.starving
    }

    /// Takes the bytes of one read; what they complete goes to `sink`.
    pub(super) fn feed(&mut self, mut bytes: &mut [u8], sink: &mut impl Sink) -> Result<(), Stop> {
        loop {
            let skipped = self.discard(bytes.len(), sink);
            bytes = &mut bytes[skipped..];
            if bytes.is_empty() {
                return Ok(());
            }
            if self.pending.is_empty() {
                let done = self.walk(bytes, sink)?;
                self.keep(&bytes[done..]);
                return Ok(());
            }
            let missing = self.need.saturating_sub(self.pending.len());
            let (more, rest) = bytes.split_at_mut(missing.min(bytes.len()));
            self.keep(more);
            bytes = rest;
            if self.pending.len() < self.need {
                return Ok(());
            }
            self.retry(sink)?;
            if self.starving {
                self.keep(bytes);
                return Ok(());
            }
        }
    }

    /// Looks again at what is kept.
    pub(super) fn retry(&mut self, sink: &mut impl Sink) -> Result<(), Stop> {
        let mut pending = std::mem::take(&mut self.pending);
        let done = self.walk(&mut pending, sink)?;
        if done < pending.len() {
            pending.drain(..done);
            self.pending = pending;
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.need > FREE && !self.starving {
            let missing = self.need.saturating_sub(self.pending.len());
            self.pending.reserve_exact(missing);
        }
        self.pending.extend_from_slice(bytes);
    }

    fn discard(&mut self, there: usize, sink: &mut impl Sink) -> usize {
        if self.skip == 0 {
            return 0;
        }
        let now = usize::try_from(self.skip).map_or(there, |skip| skip.min(there));
        self.skip -= now as u64;
        if self.skip == 0 {
            sink.oversize(self.skipped.0, self.skipped.1);
        }
        now
    }

    /// Delivers the whole frames at the start of `bytes`; how many bytes they took.
    fn walk(&mut self, bytes: &mut [u8], sink: &mut impl Sink) -> Result<usize, Stop> {
        self.starving = false;
        self.need = 0;
        let mut at = 0;
        while at < bytes.len() {
            let rest = &mut bytes[at..];
            let header = match Header::parse(rest) {
                Ok(header) => header,
                Err(need) => {
                    self.need = need;
                    break;
                }
            };
            self.check(&header)?;
            let plain = header.fin && self.open.is_none() && header.opcode != Opcode::Control;
            let Some(payload) = self.within_limit(&header, plain, sink.most())? else {
                at += header.len;
                at += self.discard(bytes.len() - at, sink);
                continue;
            };
            let len = header.len + payload;
            let whole = rest.len() >= len;
            // What lies whole in the thread's buffer holds no memory; the rest needs a permit.
            let held = sink.held();
            let joins = held > 0 && header.opcode == Opcode::Binary;
            if !whole || !plain || joins {
                let sum = held + self.open.unwrap_or(0) + payload;
                if sum > FREE && !sink.may_hold(&mut self.permit, sum) {
                    self.starving = true;
                    self.need = len;
                    break;
                }
            }
            if !whole {
                self.need = len;
                break;
            }
            self.deliver(&header, plain, &mut rest[..len], sink)?;
            if self.permit.is_some() && self.open.is_none() && sink.held() == 0 {
                self.permit = None;
            }
            at += len;
        }
        Ok(at)
    }

    /// What can be refused before the payload is there.
    fn check(&self, header: &Header) -> Result<(), Stop> {
        let reason = match header.opcode {
            _ if header.reserved_bits => "reserved bits",
            _ if header.mask.is_none() => "an unmasked frame",
            Opcode::Reserved => "unknown opcode",
            Opcode::Control if !header.fin || header.payload > 125 => "bad control frame",
            Opcode::Continue if self.open.is_none() => "nothing to continue",
            Opcode::Text | Opcode::Binary if self.open.is_some() => "a fragment is open",
            _ => return Ok(()),
        };
        Err(Stop::Violation(PROTOCOL, reason))
    }

    /// The payload's length, or `None` if it is too much and shall be thrown away.
    fn within_limit(
        &mut self,
        header: &Header,
        plain: bool,
        most: usize,
    ) -> Result<Option<usize>, Stop> {
        let limit = self.limit.min(most) as u64;
        let open = match header.opcode {
            Opcode::Control => 0,
            _ => self.open.unwrap_or(0),
        };
        if header.payload <= limit.saturating_sub(open as u64) {
            return Ok(usize::try_from(header.payload).ok());
        }
        if !plain || header.payload > limit.saturating_mul(2) {
            return Err(Stop::Violation(SIZE, "message too large"));
        }
        self.skip = header.payload;
        self.skipped = (header.opcode == Opcode::Binary, header.payload);
        Ok(None)
    }

    #[inline]
    fn deliver(
        &mut self,
        header: &Header,
        plain: bool,
        frame: &mut [u8],
        sink: &mut impl Sink,
    ) -> Result<(), Stop> {
        if !plain {
            return self.deliver_odd(header, frame, sink);
        }
        let payload = &mut frame[header.len..];
        unmask(payload, header.mask.unwrap_or_default());
        if header.opcode == Opcode::Binary {
            return sink.binary(payload);
        }
        match simdutf8::basic::from_utf8(payload) {
            Ok(text) => sink.text(text),
            Err(_) => Err(Stop::Violation(UTF8, "not UTF-8")),
        }
    }

    /// Fragments and control frames.
    fn deliver_odd(
        &mut self,
        header: &Header,
        frame: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Stop> {
        let context = self
            .odd
            .get_or_insert_with(|| Box::new(context(self.limit)));
        let mut tape = Tape {
            input: frame,
            output: Vec::new(),
        };
        let outcome = loop {
            match context.read(&mut tape) {
                Ok(Message::Text(text)) => sink.text(&text)?,
                Ok(Message::Binary(bytes)) => sink.binary(&bytes)?,
                // Pings are answered by the next read, pongs mean nothing: heartbeats are packets.
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(stop(&error)),
            }
        };
        if !tape.output.is_empty() {
            sink.reply(tape.output.into());
        }
        outcome?;
        if header.opcode != Opcode::Control {
            let sum = self.open.unwrap_or(0) + frame.len() - header.len;
            self.open = (!header.fin).then_some(sum);
        }
        if self.open.is_none() {
            self.odd = None;
        }
        Ok(())
    }
}

/// A server's context with small buffers and our limit.
fn context(limit: usize) -> WebSocketContext {
    let config = WebSocketConfig::default()
        .read_buffer_size(512)
        .write_buffer_size(0)
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit));
    WebSocketContext::new(Role::Server, Some(config))
}

fn stop(error: &Error) -> Stop {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => Stop::PeerClosed,
        Error::Capacity(_) => Stop::Violation(SIZE, "message too large"),
        Error::Utf8(_) => Stop::Violation(UTF8, "not UTF-8"),
        _ => Stop::Violation(PROTOCOL, "websocket protocol error"),
    }
}

/// Feeds a context from memory and collects what it wants written.
struct Tape<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl Read for Tape<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.input.read(into)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read),
        }
    }
}

impl Write for Tape<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
