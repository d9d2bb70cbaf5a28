//! The task of a session on long polling, up to the websocket that takes over.
//!
//! Requests may come in on any I/O thread; they are handed to the thread that owns the session.
//! Its frames wait in the same line as those of a websocket and become a body at the poll. Knows
//! no HTTP: [`super::http`] asks and turns the [`Answer`]s into responses.

use std::collections::hash_map;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::caller::Caller;
use super::conn::{BROKEN, Conn, TICK};
use super::engine::{Session, Stop, Violation};
use super::permits::Permit;
use super::probe::{Offer, Probe, Progress};
use super::reader::Sink;
use super::thread::{Shared, Thread, new_id};
use super::websocket::{LINGER, WebSocket};
use crate::wire::frame;
use crate::wire::payload::{self, Item};

/// About how many bytes one poll takes.
const POLL_BYTES: usize = 1 << 20;
/// Requests that may wait for the session's task.
const INBOX: usize = 8;
const NOOP: &[u8] = b"6";

/// A session on polling, or one that began there, as HTTP requests find it.
pub(super) struct Entry {
    pub conn: Arc<Conn>,
    pub inbox: mpsc::Sender<Request>,
    /// A POST is being read or worked on.
    posting: AtomicBool,
    /// A websocket has taken over: HTTP is refused from now on.
    pub upgraded: AtomicBool,
}

impl Entry {
    /// Claims the only place for a POST.
    pub(super) fn claim(&self) -> Option<Claim<'_>> {
        let is_free = !self.posting.swap(true, Ordering::AcqRel);
        is_free.then(|| Claim {
            entry: self,
            kept: false,
        })
    }
}

/// The place for a POST while its body is read. Dropped with its request, it means that the client
/// went away in the middle of the body.
pub(super) struct Claim<'a> {
    entry: &'a Entry,
    kept: bool,
}

impl Claim<'_> {
    /// The body has been read, or refused: the session's task decides from now on.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.entry.conn.signal(BROKEN);
        }
    }
}

/// Keeps an [`Entry`] in the table; takes it out when dropped.
pub(super) struct Named {
    shared: Arc<Shared>,
    sid: Box<str>,
}

impl Drop for Named {
    fn drop(&mut self) {
        self.shared.polled.lock().remove(&self.sid);
    }
}

/// What HTTP asks of a session.
pub(super) enum Request {
    Poll(oneshot::Sender<Answer>),
    Post(Post),
    Upgrade(Offer),
}

/// A POST whose body has been read.
pub(super) struct Post {
    pub body: Body,
    pub permit: Option<Permit>,
    pub answer: oneshot::Sender<Answer>,
}

/// The body of a POST.
pub(super) enum Body {
    Packets(Vec<u8>),
    /// It was over the limit and has been thrown away.
    Oversize(u64),
    /// It is over twice the limit: the session ends.
    Refused,
}

/// What HTTP answers.
pub(super) enum Answer {
    Packets(Vec<u8>),
    Taken,
    BadRequest,
}

/// What the task has waited for.
enum Woken {
    Request(Request),
    Signals(u32),
    /// The client has given up its poll.
    Gone,
    Probe,
}

struct Polling {
    session: Session,
    entry: Arc<Entry>,
    inbox: mpsc::Receiver<Request>,
    poll: Option<oneshot::Sender<Answer>>,
    /// A POST that waits until reading goes on (P24).
    parked: Option<Post>,
    probe: Option<Probe>,
}

/// Opens a session on polling; the body of the answer. `None` if there is no room for it.
pub(super) fn open(thread: &Arc<Thread>, caller: Caller) -> Option<String> {
    let sid = new_id();
    let mut session = Session::open(thread, caller, &sid, None)?;
    let (sender, inbox) = mpsc::channel(INBOX);
    let entry = Arc::new(Entry {
        conn: session.conn.clone(),
        inbox: sender,
        posting: AtomicBool::new(false),
        upgraded: AtomicBool::new(false),
    });
    let shared = &thread.shared;
    match shared.polled.lock().entry(sid.as_str().into()) {
        // Two equal ids of 120 random bits: refuse rather than mix two sessions.
        hash_map::Entry::Occupied(_) => return None,
        hash_map::Entry::Vacant(place) => place.insert(entry.clone()),
    };
    session.name(Named {
        shared: shared.clone(),
        sid: sid.as_str().into(),
    });
    let polling = Polling {
        session,
        entry,
        inbox,
        poll: None,
        parked: None,
        probe: None,
    };
    tokio::spawn(polling.run());
    Some(shared.open_packet(&sid, true))
}

impl Polling {
    async fn run(mut self) {
        loop {
            let woken = self.woken().await;
            match self.step(woken) {
                Ok(false) => {}
                Ok(true) => return self.hand_over(),
                Err(stop) => return self.finish(stop).await,
            }
        }
    }

    async fn woken(&mut self) -> Woken {
        let conn = self.session.conn.clone();
        tokio::select! {
            biased;
            Some(request) = self.inbox.recv() => Woken::Request(request),
            signals = poll_fn(|cx| conn.poll_signals(cx)) => Woken::Signals(signals),
            () = gone(&mut self.poll) => Woken::Gone,
            () = readable(self.probe.as_ref()) => Woken::Probe,
        }
    }

    /// One step; true when a websocket has taken over. A panic of the handler in it is caught.
    fn step(&mut self, woken: Woken) -> Result<bool, Stop> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.act(woken)))
            .unwrap_or_else(|_| Err(self.session.panicked()))
    }

    fn act(&mut self, woken: Woken) -> Result<bool, Stop> {
        // What the websocket has said came before what HTTP asks now.
        if matches!(woken, Woken::Request(_) | Woken::Probe) && self.on_probe()? {
            if let Woken::Request(Request::Poll(answer) | Request::Post(Post { answer, .. })) =
                woken
            {
                // Fails if the client does not wait for it: it knows of the upgrade.
                let _ = answer.send(Answer::BadRequest);
            }
            return Ok(true);
        }
        match woken {
            Woken::Request(Request::Poll(answer)) => self.on_poll(answer)?,
            Woken::Request(Request::Post(post)) => {
                self.is_alive()?;
                if self.session.conn.is_held() {
                    self.parked = Some(post);
                } else {
                    self.on_post(post)?;
                }
            }
            // A second websocket beside one that is trying is dropped, which closes it.
            Woken::Request(Request::Upgrade(offer)) if self.probe.is_none() => {
                return self.on_offer(offer);
            }
            Woken::Request(Request::Upgrade(_)) => {}
            Woken::Signals(signals) => self.on_signals(signals)?,
            Woken::Gone => return Err(Stop::Broken),
            Woken::Probe => {}
        }
        self.respond()?;
        Ok(false)
    }

    /// A request is a sign of life, unless it comes too late.
    fn is_alive(&self) -> Result<(), Stop> {
        let conn = &self.session.conn;
        conn.check()?;
        conn.beat(conn.thread.now());
        Ok(())
    }

    fn on_poll(&mut self, answer: oneshot::Sender<Answer>) -> Result<(), Stop> {
        self.is_alive()?;
        if let Some(hanging) = &self.poll {
            let _ = answer.send(Answer::BadRequest);
            return Err(match hanging.is_closed() {
                true => Stop::Broken,
                false => Violation("overlapping polls").into(),
            });
        }
        self.poll = Some(answer);
        if let Some(position) = self.session.conn.polled() {
            self.session.confirmed(position);
            self.session.read_done();
        }
        Ok(())
    }

    fn on_post(&mut self, post: Post) -> Result<(), Stop> {
        let outcome = match post.body {
            Body::Packets(body) => self.read(&body),
            Body::Oversize(size) => {
                self.session.oversize(false, size);
                Ok(())
            }
            Body::Refused => Err(Stop::Violation(1009, "message too large")),
        };
        self.session.read_done();
        self.entry.posting.store(false, Ordering::Release);
        // The client may be gone already; its polls will show it.
        let _ = post.answer.send(match outcome {
            Ok(()) | Err(Stop::Goodbye) => Answer::Taken,
            Err(_) => Answer::BadRequest,
        });
        drop(post.permit);
        outcome
    }

    fn read(&mut self, body: &[u8]) -> Result<(), Stop> {
        let body =
            simdutf8::basic::from_utf8(body).map_err(|_| Stop::Violation(1007, "not UTF-8"))?;
        for item in payload::decode(body) {
            match item.map_err(|malformed| Violation(malformed.0))? {
                Item::Text(text) => self.session.text(text)?,
                Item::Binary(bytes) => self.session.binary(&bytes)?,
            }
        }
        Ok(())
    }

    fn on_signals(&mut self, signals: u32) -> Result<(), Stop> {
        self.session.on_signals(signals)?;
        if !self.session.conn.is_held()
            && let Some(post) = self.parked.take()
        {
            self.on_post(post)?;
        }
        if let Some(position) = self.session.conn.unreported() {
            self.session.confirmed(position);
            self.session.read_done();
        }
        let now = self.session.conn.thread.now();
        if signals & TICK != 0
            && self
                .probe
                .as_ref()
                .is_some_and(|probe| now >= probe.deadline)
        {
            self.probe = None;
        }
        Ok(())
    }

    fn on_offer(&mut self, offer: Offer) -> Result<bool, Stop> {
        let thread = &self.session.conn.thread;
        let config = &thread.shared.config;
        let deadline = thread.now() + config.upgrade_timeout;
        // A socket that is gone already simply does not take over.
        let Ok((probe, early)) = Probe::start(offer, deadline, config.max_frame_bytes()) else {
            return Ok(false);
        };
        let mut early = early;
        let progress = self.probe.insert(probe).feed(&mut early, &mut self.session);
        self.on_progress(progress)
    }

    fn on_probe(&mut self) -> Result<bool, Stop> {
        let Some(probe) = &mut self.probe else {
            return Ok(false);
        };
        let progress = probe.read(&mut self.session);
        self.on_progress(progress)
    }

    fn on_progress(&mut self, progress: Result<Progress, Stop>) -> Result<bool, Stop> {
        match progress? {
            Progress::TakenOver => return Ok(true),
            Progress::Failed => self.probe = None,
            Progress::Waiting => {}
        }
        self.respond()?;
        Ok(false)
    }

    /// Answers the hanging poll if there is something for it.
    fn respond(&mut self) -> Result<(), Stop> {
        let answered = self.probe.as_ref().is_some_and(|probe| probe.is_answered());
        let body = match &self.poll {
            None => return Ok(()),
            // The client waits for its poll to end before it lets the websocket take over; what
            // waits in the line waits for the websocket.
            Some(_) if answered => NOOP.to_vec(),
            Some(_) => {
                let mut body = Vec::new();
                for frames in self.session.conn.take_frames(POLL_BYTES) {
                    payload::encode(&frames, &mut body);
                }
                body
            }
        };
        if body.is_empty() {
            return Ok(());
        }
        match self
            .poll
            .take()
            .map(|poll| poll.send(Answer::Packets(body)))
        {
            Some(Err(_)) => Err(Stop::Broken),
            _ => Ok(()),
        }
    }

    /// The websocket takes over.
    fn hand_over(mut self) {
        self.entry.upgraded.store(true, Ordering::Release);
        if let Some(poll) = self.poll.take() {
            let _ = poll.send(Answer::Packets(NOOP.to_vec()));
        }
        let Some(probe) = self.probe.take() else {
            return;
        };
        self.session.conn.install(probe.socket.clone());
        let websocket = WebSocket::new(self.session, probe.socket, probe.reader, probe.seat);
        tokio::spawn(websocket.run(Vec::new()));
    }

    /// Ends the handler at once, then lets the client fetch what waits, if it should.
    async fn finish(mut self, stop: Stop) {
        self.session.end(stop);
        (self.probe, self.parked) = (None, None);
        match stop {
            Stop::Goodbye => {
                if let Some(poll) = self.poll.take() {
                    let _ = poll.send(Answer::Packets(NOOP.to_vec()));
                }
            }
            Stop::Asked => {
                let clock = self.session.conn.thread.shared.clock.clone();
                let deadline = clock.sleep_until(clock.elapsed() + LINGER);
                tokio::select! {
                    () = self.say_goodbye() => {}
                    () = deadline => {}
                }
            }
            Stop::Violation(..) => {
                self.push_close();
                // Fails if the client has just given up its poll: it will not come again.
                let _ = self.respond();
            }
            Stop::PeerClosed | Stop::Broken | Stop::Silent | Stop::Cut(_) => {}
        }
    }

    /// The last words and the close, in payloads of their own: clients forget what came right before
    /// their connection ended.
    async fn say_goodbye(&mut self) {
        if self.drain().await {
            self.push_close();
            self.drain().await;
        }
    }

    fn push_close(&self) {
        let mut close = Vec::new();
        frame::text(&[b"1"], &mut close);
        self.session.conn.push_last(Bytes::from(close));
    }

    /// Lets the client fetch what waits; false if it has gone before.
    async fn drain(&mut self) -> bool {
        if self.respond().is_err() {
            return false;
        }
        while self.session.conn.waiting() > 0 {
            match self.inbox.recv().await {
                Some(Request::Poll(answer)) => {
                    self.poll = Some(answer);
                    if self.respond().is_err() {
                        return false;
                    }
                }
                // What it still says nobody hears, but that it goes.
                Some(Request::Post(post)) => {
                    let _ = post.answer.send(Answer::Taken);
                    if matches!(&post.body, Body::Packets(body) if body[..] == *b"1") {
                        return false;
                    }
                }
                Some(Request::Upgrade(_)) => {}
                None => return false,
            }
        }
        true
    }
}

/// Ends when the client has given up its poll.
async fn gone(poll: &mut Option<oneshot::Sender<Answer>>) {
    match poll {
        Some(poll) => poll.closed().await,
        None => std::future::pending().await,
    }
}

/// Ends when the websocket that wants to take over has something to read, or has ended.
async fn readable(probe: Option<&Probe>) {
    match probe {
        Some(probe) => {
            // An error shows again in the read that follows.
            let _: io::Result<()> = super::socket::readable(&*probe.socket).await;
        }
        None => std::future::pending().await,
    }
}
