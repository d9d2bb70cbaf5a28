//! What of a queue and of a mark is one value of a row: kinds, settings, marks.

use crate::clock::Timestamp;
use crate::model::MessageId;

use super::super::settings as shared;
use super::super::state::Mark;
use super::super::types::QueueKind;

pub(super) use shared::{settings, settings_text};

pub(super) fn kind_number(kind: QueueKind) -> i64 {
    shared::kind_number(kind).into()
}

pub(super) fn kind(number: i64) -> Option<QueueKind> {
    shared::kind(u8::try_from(number).ok()?)
}

/// A mark's window and ids; `used` has a column of its own.
pub(super) fn mark_bytes(mark: &Mark, out: &mut Vec<u8>) {
    out.clear();
    out.extend(mark.high.to_le_bytes());
    out.extend(mark.bits.iter().flat_map(|bits| bits.to_le_bytes()));
    // Ids ascend nearly always, numbers too: differences are short.
    let (mut last_number, mut last_id) = (mark.high, 0);
    for (number, id) in &mark.ids {
        put_difference(out, number.wrapping_sub(last_number));
        put_difference(out, id.0.wrapping_sub(last_id));
        (last_number, last_id) = (*number, id.0);
    }
}

/// Reads what [`mark_bytes`] wrote; `None` if it is anything else.
pub(super) fn mark(bytes: &[u8], used: Timestamp) -> Option<Mark> {
    let mut mark = Mark::new();
    let (words, mut rest) = bytes.split_at_checked(8 * (1 + mark.bits.len()))?;
    let mut words = words
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    mark.high = words.next()?;
    mark.bits
        .iter_mut()
        .zip(words)
        .for_each(|(to, from)| *to = from);
    let (mut number, mut id) = (mark.high, 0u64);
    while !rest.is_empty() {
        number = number.wrapping_add(take_difference(&mut rest)?);
        id = id.wrapping_add(take_difference(&mut rest)?);
        mark.ids.push_back((number, MessageId(id)));
    }
    mark.used = used;
    Some(mark)
}

/// Small in either direction is short.
fn put_difference(out: &mut Vec<u8>, difference: u64) {
    let signed = difference.cast_signed();
    let mut left = ((signed << 1) ^ (signed >> 63)).cast_unsigned();
    while left >= 0x80 {
        out.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn take_difference(bytes: &mut &[u8]) -> Option<u64> {
    let mut left = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        left |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if *byte < 0x80 {
            return Some((left >> 1) ^ (left & 1).wrapping_neg());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_its_bytes() {
        let mut full = Mark::new();
        full.high = u64::MAX;
        full.bits[3] = 0xF0F0;
        full.used = Timestamp(77);
        let ids = [(1, 5), (u64::MAX, u64::MAX), (3, 4), (4, 1 << 60)];
        full.ids = ids.map(|(number, id)| (number, MessageId(id))).into();
        let mut bytes = Vec::new();
        for each in [full, Mark::new()] {
            let used = each.used;
            mark_bytes(&each, &mut bytes);
            assert_eq!(mark(&bytes, used), Some(each));
        }
        assert_eq!(mark(&[1, 2], Timestamp(0)), None);
    }
}
