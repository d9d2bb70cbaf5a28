//! Reading a queue: pages, due exceptions, a look.

use crate::Result;
use crate::clock::Timestamp;

use super::super::state::{self, Change, LOOKS, Room, no_queue, waiting_entry};
use super::super::types::{Due, Entry, Page, PageLimit, QueueId, Seq};
use super::keep::MemoryKeep;

type State = state::State<MemoryKeep>;

impl State {
    pub(super) fn page(
        &mut self,
        id: QueueId,
        after: Seq,
        limit: PageLimit,
        now: Timestamp,
    ) -> Result<Page> {
        self.change(id, |change| {
            let Change { queue, log, .. } = change;
            let mut room = Room::new(limit);
            let mut looks = limit.entries.max(1).saturating_mul(LOOKS);
            let mut page = Page {
                entries: Vec::new(),
                next: log.head().seq,
                expired: 0,
                end: true,
            };
            let mut number = queue.reading_from(after, log);
            let mut looked = after;
            while let Some(next) = queue.next_waiting(number, log) {
                let seq = queue.seq_of(next, log);
                let Some(message) = log.get(seq) else {
                    break;
                };
                let is_expired = message.is_expired(now);
                if looks == 0 || (!is_expired && !room.take(message.size())) {
                    page.next = looked;
                    page.end = false;
                    break;
                }
                looks -= 1;
                if is_expired {
                    page.expired += 1;
                    queue.settle_waiting(seq, log);
                } else {
                    page.entries.push(waiting_entry(queue.sent, seq, message));
                }
                number = next;
                looked = seq;
            }
            change.counters.expired += page.expired;
            page
        })
    }

    pub(super) fn due(&mut self, id: QueueId, limit: PageLimit, now: Timestamp) -> Result<Due> {
        self.change(id, |change| {
            let mut due = Due {
                entries: Vec::new(),
                next: None,
                expired: 0,
            };
            let Some(rows) = change.keep.exceptions(id) else {
                return due;
            };
            let mut room = Room::new(limit);
            let mut expired = Vec::new();
            for (at, seq) in rows.by_due() {
                let Some(row) = rows.get(seq) else {
                    continue;
                };
                if at <= now && row.held.is_expired(now) {
                    expired.push(seq);
                } else if at <= now && room.take(row.held.size()) {
                    due.entries.push(row.entry());
                } else {
                    due.next = Some(at);
                    break;
                }
            }
            for seq in expired {
                due.expired += u64::from(change.end_exception(seq));
            }
            change.counters.expired += due.expired;
            due
        })
    }

    pub(super) fn browse(
        &mut self,
        id: QueueId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Entry>> {
        // What a full queue missed or dropped is settled by any change; that shows nowhere else.
        self.change_any(id, |_| ())?;
        let queue = self.queues.get(&id).ok_or_else(no_queue)?;
        let log = self.logs.get(&queue.log).ok_or_else(no_queue)?;
        let mut number = queue.reading_from(after, log);
        let mut waiting = std::iter::from_fn(|| {
            number = queue.next_waiting(number, log)?;
            let seq = queue.seq_of(number, log);
            Some(waiting_entry(queue.sent, seq, log.get(seq)?))
        })
        .peekable();
        let rows = self.keep.exceptions(id).map(|rows| rows.after(after));
        let mut rows = rows.into_iter().flatten().peekable();
        let mut room = Room::new(limit);
        let mut entries = Vec::new();
        loop {
            let is_row_first = match (rows.peek(), waiting.peek()) {
                (Some(row), Some(entry)) => row.state.seq < entry.seq,
                (row, _) => row.is_some(),
            };
            let next = match is_row_first {
                true => rows.next().map(|row| row.entry()),
                false => waiting.next(),
            };
            match next {
                Some(entry) if room.take(entry.message.size()) => entries.push(entry),
                _ => return Ok(entries),
            }
        }
    }
}
