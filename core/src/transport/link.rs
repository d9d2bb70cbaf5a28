//! The handle to one connection that rooms above keep: push frames, pause, confirm, close.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::conn::{CALL, Conn};
use super::permits::{Permit, Permits};

/// One connection, cheap to clone, usable from every thread.
#[derive(Debug, Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    conn: Arc<Conn>,
    socket_id: Box<str>,
    confirms: AtomicBool,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("id", &self.conn.id)
            .field("socket_id", &self.socket_id)
            .field("remote", &self.conn.caller.remote)
            .finish()
    }
}

impl Link {
    pub(super) fn new(conn: Arc<Conn>, socket_id: &str) -> Self {
        Self(Arc::new(Inner {
            conn,
            socket_id: socket_id.into(),
            confirms: AtomicBool::new(false),
        }))
    }

    pub(super) fn conn(&self) -> &Arc<Conn> {
        &self.0.conn
    }

    /// Whether this link ever asked for a confirmation.
    pub(super) fn has_asked(&self) -> bool {
        self.0.confirms.load(Ordering::Relaxed)
    }

    /// A number unique among the connections of this process.
    pub fn id(&self) -> u64 {
        self.0.conn.id
    }

    /// The Socket.IO id.
    pub fn socket_id(&self) -> &str {
        &self.0.socket_id
    }

    /// The client's address: the peer's, or what a trusted proxy says.
    pub fn remote(&self) -> SocketAddr {
        self.0.conn.caller.remote
    }

    /// Whether nobody on the way can read along: TLS here, or at a trusted proxy that says so.
    pub fn is_secure(&self) -> bool {
        self.0.conn.caller.is_secure
    }

    /// Whether nobody else can listen: over TLS, or within this machine, by the peer's own address.
    pub fn is_private(&self) -> bool {
        self.0.conn.caller.is_private()
    }

    /// The number of the I/O thread that owns the connection, from 0.
    pub fn thread(&self) -> usize {
        self.0.conn.thread.index
    }

    /// Appends whole websocket frames (server frames: unmasked) to the line, unless that would
    /// take the line over its bound (16 MiB, or one message when empty). Never waits.
    /// Returns the position after these frames, for [`super::Handler::confirmed`]; `None`: full, and
    /// [`super::Handler::writable`] will be called, or the connection is closing.
    pub fn offer(&self, frames: Bytes) -> Option<u64> {
        self.0.conn.offer(frames)
    }

    /// Like [`Link::offer`] but never refuses: for replies to what this connection has sent.
    /// A connection whose line is over its bound is not read, so replies stay bounded too.
    /// On a closing connection the frames are dropped.
    pub fn reply(&self, frames: Bytes) -> u64 {
        self.0.conn.push(frames)
    }

    /// Bytes the line would still take by [`Link::offer`].
    pub fn room(&self) -> usize {
        self.0.conn.room()
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.0.conn.waiting()
    }

    /// Asks for [`super::Handler::confirmed`] for everything pushed so far (P6): a ping behind it,
    /// at most one out at a time; asked again while one is out, another follows after its pong.
    pub fn confirm(&self) {
        self.0.confirms.store(true, Ordering::Relaxed);
        self.0.conn.confirm();
    }

    /// Stops reading from the peer until [`Link::resume_reading`]; its heartbeat clock stands still
    /// meanwhile (P24). Calls nest by count. What has been read already is still handed over.
    pub fn pause_reading(&self) {
        self.0.conn.hold();
    }

    /// Undoes one [`Link::pause_reading`].
    pub fn resume_reading(&self) {
        self.0.conn.release();
    }

    /// Time since the last byte arrived from the peer, not counting paused time.
    pub fn silence(&self) -> Duration {
        self.0.conn.silence()
    }

    /// Writes a ping now unless one is out, to see whether the peer still lives (P22).
    pub fn probe(&self) {
        self.0.conn.probe();
    }

    /// Whether the peer's TCP has acknowledged everything written; `None` where the system does not tell
    /// or the connection is polling. Slow (it reads a table of the system): for probes only.
    pub fn acknowledged(&self) -> Option<bool> {
        let socket = self.0.conn.socket()?;
        if self.0.conn.waiting() > 0 {
            return Some(false);
        }
        socket.acknowledged()
    }

    /// Whether the connection is on long polling now.
    pub fn is_polling(&self) -> bool {
        self.0.conn.socket().is_none()
    }

    /// Says whether the peer has shown a credential, or needs none because authentication is off.
    /// Until then its large frames share what one address may have under way (P25), and it is read
    /// in pieces of at most 64 KiB.
    pub fn set_trusted(&self, trusted: bool) {
        self.0.conn.set_trusted(trusted);
    }

    /// Larger frames are not read from now on (P25); `None`: those of the settings are. One of up to twice
    /// as much is thrown away as it comes, a larger one ends the connection.
    pub fn limit_frames(&self, most: Option<usize>) {
        self.0.conn.limit_frames(most);
    }

    /// A permit for `bytes` that this peer is about to have held for it (P25); `None`: not now.
    pub fn permit(&self, bytes: usize) -> Option<Permit> {
        self.permits().try_take(self.0.conn.charged(), bytes)
    }

    /// The pool of permits that frames and transfers share.
    pub fn permits(&self) -> &Permits {
        &self.0.conn.thread.shared.permits
    }

    /// Has the handler called on its own thread, soon: [`super::Handler::called`].
    pub fn call(&self) {
        self.0.conn.signal(CALL);
    }

    /// Closes after what is queued has been written, at most 5 s later; ends as [`super::Ending::Ours`].
    /// Sends Socket.IO `41` first, so that stock clients know that the server wanted it. Frames
    /// pushed after this are dropped.
    pub fn close(&self) {
        self.0.conn.close();
    }
}
