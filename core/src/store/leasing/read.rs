//! Reading a queue: pages, due exceptions, a look. What is not here is asked of the store first.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::Result;
use crate::clock::Timestamp;
use crate::model::Message;

use super::super::simple::RowPage;
use super::super::types::{Due, Entry, Page, PageLimit, QueueId, Seq};
use super::line::Op;
use super::queue::{Cell, Queue};
use super::state::State;

/// A page looks at most at this many expired entries for each one it may return.
const LOOKS: usize = 16;

/// What looking at a queue found.
pub(super) enum Look<T> {
    Found(T),
    /// Rows must come from the store first.
    Wait(oneshot::Receiver<Result<()>>),
}

/// How much still fits into an answer.
struct Room {
    entries: usize,
    bytes: u64,
    is_empty: bool,
}

impl Room {
    fn new(limit: PageLimit) -> Self {
        Self {
            entries: limit.entries.max(1),
            bytes: limit.bytes as u64,
            is_empty: true,
        }
    }

    /// Whether so much fits; if so its room is taken. The first always does.
    fn take(&mut self, size: u64) -> bool {
        let fits = self.is_empty || (self.entries > 0 && self.bytes >= size);
        if fits {
            self.entries = self.entries.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(size);
            self.is_empty = false;
        }
        fits
    }
}

fn waiting_entry(queue: &Queue, seq: Seq, message: &Arc<Message>) -> Entry {
    Entry {
        seq,
        message: Arc::clone(message),
        attempts: u32::from(seq <= queue.sent),
        failures: 0,
        returns: 0,
        due: None,
        first_error: None,
        last_error: None,
        suspect: false,
    }
}

impl State {
    pub(super) fn page(
        &mut self,
        id: QueueId,
        after: Seq,
        limit: PageLimit,
        now: Timestamp,
    ) -> Result<Look<Page>> {
        let queue = self.live(id)?;
        let committed = self.log_of(queue)?.committed();
        let mut page = Page {
            entries: Vec::new(),
            next: committed.max(after),
            expired: 0,
            end: true,
        };
        let mut room = Room::new(limit);
        let mut looks = limit.entries.max(1).saturating_mul(LOOKS);
        let mut expired = Vec::new();
        let mut looked = after;
        let mut missing = None;
        for (seq, entry) in queue.waiting.range(after.saturating_add(1)..) {
            if *seq > committed {
                break;
            }
            let is_expired = entry.expires.is_some_and(|expires| expires <= now);
            if looks == 0 || (!is_expired && !room.take(entry.size)) {
                page.next = looked;
                page.end = false;
                break;
            }
            looks -= 1;
            looked = *seq;
            match &entry.message {
                _ if is_expired => expired.push(*seq),
                Some(message) => page.entries.push(waiting_entry(queue, *seq, message)),
                None => {
                    missing = Some(*seq);
                    break;
                }
            }
        }
        if let Some(seq) = missing {
            return Ok(Look::Wait(self.fetch(id, seq)));
        }
        page.expired = self.expire(id, expired);
        Ok(Look::Found(page))
    }

    /// Settles what has expired; how many.
    pub(super) fn expire(&mut self, id: QueueId, seqs: Vec<Seq>) -> u64 {
        if seqs.is_empty() {
            return 0;
        }
        let cells = self.change(id, |queue, _, expiry| {
            let cells = seqs
                .into_iter()
                .filter_map(|seq| queue.take(id, seq, expiry));
            cells.collect::<Vec<Cell>>()
        });
        let cells = cells.unwrap_or_default();
        let count = cells.len() as u64;
        self.counters.expired += count;
        self.ack(id, cells, None);
        count
    }

    pub(super) fn due(&mut self, id: QueueId, limit: PageLimit, now: Timestamp) -> Result<Due> {
        let queue = self.live(id)?;
        let mut due = Due {
            entries: Vec::new(),
            next: None,
            expired: 0,
        };
        let mut room = Room::new(limit);
        let mut expired = Vec::new();
        for (at, seq) in queue.exceptions.by_due() {
            let Some(row) = queue.exceptions.get(seq) else {
                continue;
            };
            if at <= now && row.held.is_expired(now) {
                expired.push(seq);
            } else if at <= now && room.take(row.held.size() as u64) {
                due.entries.push(row.entry());
            } else {
                due.next = Some(at);
                break;
            }
        }
        due.expired = self.expire(id, expired);
        Ok(due)
    }

    pub(super) fn browse(
        &mut self,
        id: QueueId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Look<Vec<Entry>>> {
        let queue = self.any(id)?;
        let committed = self.log_of(queue)?.committed();
        let (entries, missing) = look(queue, after, committed, limit);
        match missing {
            Some(seq) => Ok(Look::Wait(self.fetch(id, seq))),
            None => Ok(Look::Found(entries)),
        }
    }

    /// Gets the messages from this entry on again; when they are here.
    pub(super) fn fetch(&mut self, id: QueueId, from: Seq) -> oneshot::Receiver<Result<()>> {
        let (reader, waits) = oneshot::channel();
        let Some(queue) = self.queues.get_mut(&id) else {
            return waits;
        };
        queue.readers.push(reader);
        if queue.is_fetching {
            return waits;
        }
        queue.is_fetching = true;
        // Behind the last row before it that is still there.
        let waiting = queue.waiting.range(..from).next_back();
        let waiting = waiting.map(|(seq, entry)| (*seq, &entry.cell));
        let exception = queue
            .cells
            .range(..from)
            .next_back()
            .map(|(seq, cell)| (*seq, cell));
        let before = waiting
            .into_iter()
            .chain(exception)
            .max_by_key(|(seq, _)| *seq);
        let after = before.and_then(|(_, cell)| cell.id().cloned());
        let limit = Some(super::load::PAGE);
        let (place, page) = (Arc::clone(&queue.place), RowPage { limit, after });
        self.lines.push(id, Op::Fetch { place, from, page });
        waits
    }
}

/// Unsettled entries after `after` by seq, up to the first whose message is not here.
fn look(queue: &Queue, after: Seq, committed: Seq, limit: PageLimit) -> (Vec<Entry>, Option<Seq>) {
    let waiting = queue.waiting.range(after.saturating_add(1)..);
    let mut waiting = waiting.take_while(|(seq, _)| **seq <= committed).peekable();
    let mut rows = queue.exceptions.after(after).peekable();
    let mut room = Room::new(limit);
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let is_row_first = match (rows.peek(), waiting.peek()) {
            (Some(row), Some((seq, _))) => row.state.seq < **seq,
            (row, _) => row.is_some(),
        };
        let entry = if is_row_first {
            rows.next().map(|row| row.entry())
        } else if let Some((seq, entry)) = waiting.next() {
            match &entry.message {
                Some(message) => Some(waiting_entry(queue, *seq, message)),
                None => return (entries, Some(*seq)),
            }
        } else {
            None
        };
        match entry {
            Some(entry) if room.take(entry.message.size() as u64) => entries.push(entry),
            _ => return (entries, None),
        }
    }
}
