//! Messages in pieces: joins PRODUCE_CHUNKs, and cuts deliveries.
//!
//! A piece may end between the halves of a surrogate pair, so pieces are kept as WTF-8 and checked
//! as UTF-8 once they are joined. Knows no clock: it is told the elapsed time. [`Assembler`] is
//! called by `session` (one per session), the cutting by [`super::outbound`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Visitor};

use crate::clock::{Elapsed, Timestamp};
use crate::model::checksum;
use crate::{Error, ErrorKind, Result};

use super::inbound::ProduceChunk;
use super::json;

/// Most pieces of a message.
const MAX_TOTAL: u64 = 4096;
/// Most open transfers of a session, unless something else is said.
const MAX_OPEN: usize = 16;
/// Most bytes of all open transfers of a session.
const MAX_HELD: usize = 64 * 1024 * 1024;
/// A transfer without a new piece for this long is dropped.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// Ended transfers that are remembered, so that late pieces do not open them again.
const REMEMBERED: usize = 16;
/// What a piece costs beside its bytes.
const PIECE_COST: usize = 64;

/// What became of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// More are needed.
    Partial,
    /// It belongs to a transfer that was completed.
    Repeated,
    /// The transfer has at least this many bytes, which is more than allowed; it is gone.
    TooLarge(u64),
    /// It belongs to a transfer that was dropped before, for its size (in bytes) if that is given.
    Late(Option<u64>),
    /// The whole text, for [`super::inbound::Produce::parse_joined`].
    Complete(String),
}

/// The open transfers of one session.
#[derive(Debug)]
pub struct Assembler {
    max_bytes: usize,
    max_open: usize,
    open: HashMap<Box<str>, Transfer>,
    ended: VecDeque<Ended>,
    held: usize,
}

/// A transfer that is over.
#[derive(Debug)]
struct Ended {
    id: Box<str>,
    fate: Fate,
}

#[derive(Debug)]
enum Fate {
    /// Completed; the checksums of its pieces by index tell a repeated piece from a new transfer
    /// under an old id.
    Joined(Box<[u64]>),
    Dropped,
    /// Dropped with so many bytes.
    TooLarge(u64),
}

impl Ended {
    /// What a piece is to this transfer; `None`: it begins another one.
    fn step(&self, chunk: &ProduceChunk<'_>) -> Option<Step> {
        let pieces = match &self.fate {
            Fate::Joined(pieces) => pieces,
            Fate::Dropped => return Some(Step::Late(None)),
            Fate::TooLarge(size) => return Some(Step::Late(Some(*size))),
        };
        let index = chunk.index.and_then(|index| usize::try_from(index).ok());
        let known = index.and_then(|index| pieces.get(index));
        let piece = chunk.data.and_then(|data| serde_json::from_str(data).ok());
        let is_known = chunk.total == Some(pieces.len() as u64)
            && known
                .is_some_and(|known| piece.is_some_and(|Wtf8(piece)| checksum(&piece) == *known));
        is_known.then_some(Step::Repeated)
    }
}

/// What a piece made of its transfer.
enum Taken {
    More,
    Whole,
    /// Too large, with at least so many bytes.
    Over(u64),
}

#[derive(Debug)]
struct Transfer {
    total: u64,
    pieces: BTreeMap<u64, Box<[u8]>>,
    bytes: usize,
    last: Elapsed,
}

impl Transfer {
    fn held(&self) -> usize {
        self.bytes + self.pieces.len() * PIECE_COST
    }
}

fn dropped(why: impl fmt::Display) -> Error {
    Error::new(
        ErrorKind::ChunkDropped,
        format!("the chunk transfer was dropped: {why}"),
    )
}

impl Assembler {
    /// No transfers; a joined text, envelope and all, may have `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            max_open: MAX_OPEN,
            open: HashMap::new(),
            ended: VecDeque::new(),
            held: 0,
        }
    }

    /// As many transfers may be open; 16.
    #[must_use]
    pub fn with_open(mut self, max_open: usize) -> Self {
        self.max_open = max_open;
        self
    }

    /// Bytes held by open transfers; compare before and after a call to take or give back permits.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether no transfer is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a piece, in any order.
    ///
    /// # Errors
    /// [`ErrorKind::ChunkDropped`], once per transfer: it is gone, and its later pieces are
    /// [`Step::Late`].
    pub fn add(&mut self, chunk: &ProduceChunk<'_>, now: Elapsed) -> Result<Step> {
        let id = &*chunk.transfer;
        if let Some(at) = self.ended.iter().position(|ended| *ended.id == *id) {
            if let Some(step) = self.ended[at].step(chunk) {
                return Ok(step);
            }
            self.ended.remove(at);
        }
        match self.take(chunk, now) {
            Ok(Taken::More) => Ok(Step::Partial),
            Ok(Taken::Whole) => self.join(id),
            Ok(Taken::Over(size)) => {
                self.close(id);
                self.remember(id, Fate::TooLarge(size));
                Ok(Step::TooLarge(size))
            }
            Err(error) => {
                self.drop_transfer(id);
                Err(error)
            }
        }
    }

    /// Drops a transfer, for one that was rate limited; its later pieces are [`Step::Late`].
    pub fn drop_transfer(&mut self, id: &str) {
        self.close(id);
        self.remember(id, Fate::Dropped);
    }

    /// Drops transfers that had no piece for 30 s; one error for each, to be sent as ERROR.
    pub fn sweep(&mut self, now: Elapsed) -> Vec<Error> {
        let idle = |transfer: &Transfer| now.saturating_sub(transfer.last) >= MAX_IDLE;
        let ids: Vec<Box<str>> = self
            .open
            .iter()
            .filter(|(_, transfer)| idle(transfer))
            .map(|(id, _)| id.clone())
            .collect();
        ids.iter()
            .map(|id| {
                self.drop_transfer(id);
                dropped("no piece came for 30 seconds")
            })
            .collect()
    }

    fn take(&mut self, chunk: &ProduceChunk<'_>, now: Elapsed) -> Result<Taken> {
        let total = chunk
            .total
            .filter(|total| (1..=MAX_TOTAL).contains(total))
            .ok_or_else(|| dropped("total must be 1 to 4096"))?;
        let index = chunk
            .index
            .filter(|index| *index < total)
            .ok_or_else(|| dropped("index must be below total"))?;
        let data = chunk.data.ok_or_else(|| dropped("data must be a text"))?;
        if !self.open.contains_key(&*chunk.transfer) {
            if self.open.len() >= self.max_open {
                let open = self.open.len();
                return Err(dropped(format_args!("{open} transfers are open already")));
            }
            let transfer = Transfer {
                total,
                pieces: BTreeMap::new(),
                bytes: 0,
                last: now,
            };
            self.open.insert((&*chunk.transfer).into(), transfer);
        }
        let Some(transfer) = self.open.get_mut(&*chunk.transfer) else {
            return Ok(Taken::More);
        };
        if transfer.total != total {
            return Err(dropped("total has changed"));
        }
        if transfer.pieces.contains_key(&index) {
            return Ok(Taken::More);
        }
        let Ok(Wtf8(piece)) = serde_json::from_str(data) else {
            return Err(dropped("data cannot be read"));
        };
        let size = transfer.bytes + piece.len();
        if size > self.max_bytes {
            return Ok(Taken::Over(size as u64));
        }
        if self.held + piece.len() + PIECE_COST > MAX_HELD {
            return Err(dropped("open transfers hold 64 MiB already"));
        }
        self.held += piece.len() + PIECE_COST;
        transfer.bytes = size;
        transfer.last = now;
        transfer.pieces.insert(index, piece);
        if transfer.pieces.len() as u64 == total {
            return Ok(Taken::Whole);
        }
        Ok(Taken::More)
    }

    fn join(&mut self, id: &str) -> Result<Step> {
        let Some(transfer) = self.close(id) else {
            return Ok(Step::Repeated);
        };
        let pieces = transfer.pieces.values();
        self.remember(
            id,
            Fate::Joined(pieces.clone().map(|piece| checksum(piece)).collect()),
        );
        let mut text = Vec::with_capacity(transfer.bytes);
        for piece in pieces {
            append(&mut text, piece);
        }
        String::from_utf8(text)
            .map(Step::Complete)
            .map_err(|_| dropped("half a surrogate pair is missing"))
    }

    fn close(&mut self, id: &str) -> Option<Transfer> {
        let transfer = self.open.remove(id)?;
        self.held -= transfer.held();
        Some(transfer)
    }

    fn remember(&mut self, id: &str, fate: Fate) {
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended {
            id: id.into(),
            fate,
        });
    }
}

/// Appends `piece`, both WTF-8; halves of a surrogate pair at the joint become one character.
fn append(text: &mut Vec<u8>, piece: &[u8]) {
    // WTF-8 has surrogates as three bytes: ED A0–AF xx the first half, ED B0–BF xx the second.
    if let (
        Some(&[0xed, first_high @ 0xa0..=0xaf, first_low]),
        Some((&[0xed, second_high @ 0xb0..=0xbf, second_low], rest)),
    ) = (text.last_chunk::<3>(), piece.split_first_chunk::<3>())
    {
        let bits = |high: u8, low: u8| u32::from(high & 0x0f) << 6 | u32::from(low & 0x3f);
        let point = 0x1_0000 + (bits(first_high, first_low) << 10) + bits(second_high, second_low);
        if let Some(joined) = char::from_u32(point) {
            text.truncate(text.len() - 3);
            text.extend_from_slice(joined.encode_utf8(&mut [0; 4]).as_bytes());
            text.extend_from_slice(rest);
            return;
        }
    }
    text.extend_from_slice(piece);
}

/// A JSON string as bytes: lone halves of surrogate pairs are kept.
struct Wtf8(Box<[u8]>);

impl<'de> Deserialize<'de> for Wtf8 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Wtf8Visitor)
    }
}

struct Wtf8Visitor;

impl Visitor<'_> for Wtf8Visitor {
    type Value = Wtf8;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Wtf8(bytes.into()))
    }
}

/// Cuts UTF-8 text into pieces of at most `threshold` UTF-16 units (but at least one character),
/// on code-point boundaries.
pub(crate) fn split(text: &[u8], threshold: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut units = 0;
        let end = rest.iter().enumerate().position(|(at, byte)| {
            units += json::utf16_units(std::slice::from_ref(byte));
            units > threshold && at > 0 && byte & 0xc0 != 0x80
        });
        let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(piece)
    })
}

/// Whether text is to be cut: more than `threshold` UTF-16 units.
pub(crate) fn is_large(text: &[u8], threshold: usize) -> bool {
    // Never more units than bytes.
    text.len() > threshold && json::utf16_units(text) > threshold
}

/// A new transfer id: base-36 milliseconds, `-`, 8 random base-36 digits.
pub(super) fn transfer_id(now: Timestamp) -> String {
    let mut digits = Vec::new();
    let mut rest = now.0;
    while rest > 0 {
        digits.extend(char::from_digit((rest % 36) as u32, 36));
        rest /= 36;
    }
    let time = digits.into_iter().rev();
    let random = std::iter::repeat_with(|| fastrand::digit(36)).take(8);
    time.chain(std::iter::once('-')).chain(random).collect()
}

#[cfg(test)]
mod tests;
