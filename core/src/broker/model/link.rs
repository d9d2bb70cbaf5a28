//! The lines of the model's sessions: bounded, frozen and silent at will. Whatever any of them takes
//! or refuses goes into one journal, in the order in which the broker did it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::super::{Content, Encode, Head, Notice, Outbox};
use crate::clock::{Clock, Elapsed, TestClock};
use crate::model::{Key, ProducerName, Spelling, fold};

/// The keys of the model: event `x`, event `y`, `x` of producer `p0`, everything.
pub(super) fn keys() -> Vec<Arc<Key>> {
    let event = |text: &str| fold(text).into();
    let producer = ProducerName::parse("p0").unwrap();
    let spelling = Spelling::Scope;
    let keys = [
        Key::Any { event: event("x") },
        Key::Any { event: event("y") },
        Key::Event {
            producer,
            event: event("x"),
        },
        Key::Everything { spelling },
    ];
    keys.into_iter().map(Arc::new).collect()
}

/// How a delivery was marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Repeated,
    Tracked(u32),
}

#[derive(Debug, Clone)]
pub(super) struct Got {
    pub(super) session: usize,
    pub(super) key: usize,
    pub(super) n: usize,
    pub(super) style: Style,
    pub(super) id: String,
    /// Behind it in its line.
    pub(super) position: u64,
}

impl Got {
    pub(super) fn is_live(&self) -> bool {
        self.id.starts_with('~')
    }
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    Got(Got),
    /// A broadcast under its event.
    Cast(usize, usize),
    /// Offered to a full line.
    Refused(Got),
    /// An `ERROR` with this code.
    Error(usize, String),
    /// Another session has the producer's name.
    Replaced(usize),
    /// So many plain messages were dropped.
    Gap(usize, u64),
}

pub(super) type Journal = Arc<Mutex<Vec<Event>>>;

#[derive(Default)]
struct State {
    /// Bytes it still takes; `None`: any.
    room: Option<usize>,
    position: u64,
    /// The position behind which a ping is out, and whether another one is wanted.
    asked: Option<u64>,
    asks_again: bool,
    is_closed: bool,
    pauses: u32,
    paused: Elapsed,
    stood: Elapsed,
    /// When the last byte came, if none comes now.
    silent: Option<Elapsed>,
}

pub(super) struct Line {
    session: usize,
    journal: Journal,
    clock: Arc<TestClock>,
    acknowledged: Option<bool>,
    state: Mutex<State>,
}

impl Line {
    pub(super) fn new(
        session: usize,
        journal: &Journal,
        clock: &Arc<TestClock>,
        acknowledged: Option<bool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            session,
            journal: journal.clone(),
            clock: clock.clone(),
            acknowledged,
            state: Mutex::default(),
        })
    }

    /// Takes so many bytes more; `None`: all.
    pub(super) fn limit(&self, room: Option<usize>) {
        self.state.lock().room = room;
    }

    pub(super) fn is_limited(&self) -> bool {
        self.state.lock().room.is_some()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.lock().pauses > 0
    }

    /// The peer answers the ping: the position that is confirmed.
    pub(super) fn pong(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let confirmed = state.asked.take()?;
        if std::mem::take(&mut state.asks_again) {
            state.asked = Some(state.position);
        }
        Some(confirmed)
    }

    pub(super) fn set_silent(&self, silent: bool) {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        state.silent = silent.then(|| state.silent.unwrap_or(now));
    }

    pub(super) fn last_byte(&self) -> Elapsed {
        let silent = self.state.lock().silent;
        silent.unwrap_or_else(|| self.clock.elapsed())
    }

    pub(super) fn acknowledges(&self) -> Option<bool> {
        self.acknowledged
    }

    /// Its own time, which stands still while it is not read.
    pub(super) fn time(&self) -> Elapsed {
        let state = self.state.lock();
        let now = match state.pauses {
            0 => self.clock.elapsed(),
            _ => state.paused,
        };
        now - state.stood
    }

    fn parse(&self, frames: &Bytes, position: u64) -> Vec<Event> {
        let text = std::str::from_utf8(frames).unwrap();
        let parse = |line: &str| {
            let words: Vec<&str> = line.split('|').collect();
            match words[0] {
                "F" => Some(Event::Error(self.session, words[1].to_owned())),
                "B" => Some(Event::Cast(self.session, words[1].parse().unwrap())),
                "R" => Some(Event::Replaced(self.session)),
                "G" => Some(Event::Gap(self.session, words[1].parse().unwrap())),
                "D" => Some(Event::Got(Got {
                    session: self.session,
                    key: words[1].parse().unwrap(),
                    n: words[2].parse().unwrap(),
                    style: match words[3] {
                        "P" => Style::Plain,
                        "A" => Style::Repeated,
                        attempt => Style::Tracked(attempt.parse().unwrap()),
                    },
                    id: words.get(4).copied().unwrap_or_default().to_owned(),
                    position,
                })),
                _ => None,
            }
        };
        text.lines().filter_map(parse).collect()
    }
}

impl Outbox for Line {
    fn offer(&self, frames: Bytes) -> Option<u64> {
        let mut state = self.state.lock();
        let after = state.position + frames.len() as u64;
        let events = self.parse(&frames, after);
        if state.room.is_some_and(|room| room < frames.len()) {
            let refused = events.into_iter().filter_map(|event| match event {
                Event::Got(got) => Some(Event::Refused(got)),
                Event::Cast(..) => None,
                other => Some(other),
            });
            self.journal.lock().extend(refused);
            return None;
        }
        if let Some(room) = &mut state.room {
            *room -= frames.len();
        }
        state.position = after;
        self.journal.lock().extend(events);
        Some(after)
    }

    fn notice(&self, frames: Bytes) {
        let mut state = self.state.lock();
        state.position += frames.len() as u64;
        let events = self.parse(&frames, state.position);
        self.journal.lock().extend(events);
    }

    fn room(&self) -> usize {
        self.state.lock().room.unwrap_or(1 << 20)
    }

    fn confirm(&self) {
        let mut state = self.state.lock();
        state.asks_again = state.asked.is_some();
        let position = state.position;
        state.asked.get_or_insert(position);
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
    }

    fn probe(&self) {}

    fn silence(&self) -> Duration {
        self.clock.elapsed() - self.last_byte()
    }

    fn acknowledged(&self) -> Option<bool> {
        self.acknowledged
    }

    fn is_polling(&self) -> bool {
        false
    }

    fn pause(&self) {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        if state.pauses == 0 {
            state.paused = now;
        }
        state.pauses += 1;
    }

    fn resume(&self) {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        state.pauses -= 1;
        if state.pauses == 0 {
            let stood = now - state.paused;
            state.stood += stood;
        }
    }
}

/// One text line for each delivery and notice.
pub(super) struct Text;

struct TextHead(usize);

impl TextHead {
    fn write(&self, what: &Content<'_>, mark: &str, out: &mut Vec<u8>) {
        let body = what.body.unwrap();
        out.extend_from_slice(format!("D|{}|{body}|{mark}\n", self.0).as_bytes());
    }
}

impl Head for TextHead {
    fn plain(&self, what: &Content<'_>, out: &mut Vec<u8>) {
        self.write(what, "P", out);
    }
    fn tracked(&self, what: &Content<'_>, msg_id: &str, attempt: u32, out: &mut Vec<u8>) {
        self.write(what, &format!("{attempt}|{msg_id}"), out);
    }
    fn repeated(&self, what: &Content<'_>, out: &mut Vec<u8>) {
        self.write(what, "A", out);
    }
}

impl Encode for Text {
    fn head(&self, key: &Key) -> Arc<dyn Head> {
        let at = keys().iter().position(|other| **other == *key);
        Arc::new(TextHead(at.unwrap()))
    }
    fn broadcast(&self, what: &Content<'_>, out: &mut Vec<u8>) {
        let body = what.body.unwrap();
        out.extend_from_slice(format!("B|{body}\n").as_bytes());
    }
    fn notice(&self, notice: &Notice<'_>) -> Bytes {
        let text = match notice {
            Notice::ProducerReplaced => "R\n".to_owned(),
            Notice::Failed(error) => format!("F|{}\n", error.code()),
            Notice::Gap { dropped, .. } => format!("G|{dropped}\n"),
            _ => "-\n".to_owned(),
        };
        Bytes::from(text)
    }
}
