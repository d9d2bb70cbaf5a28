//! Buffers for joined frames, used again: a burst fills tens of kilobytes, and giving them back to
//! the system after every read would cost a page fault for every page of the next one.
//!
//! Knows nothing of frames. A buffer comes back when the last line that holds its bytes is done.

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes up to this are copied into a piece of their own, so that a lone message in a slow line
/// does not hold a large buffer.
const SMALL: usize = 4 << 10;
/// Larger buffers are not kept: what a read of the transport's size turns into fits.
const LARGE: usize = 1 << 20;
/// Bytes of all that are kept, at most.
const KEPT: usize = 8 << 20;

static FREE: Mutex<Free> = Mutex::new(Free {
    buffers: Vec::new(),
    bytes: 0,
});

struct Free {
    buffers: Vec<Vec<u8>>,
    /// Their capacity in sum.
    bytes: usize,
}

/// An empty buffer.
pub(super) fn take() -> Vec<u8> {
    let mut free = FREE.lock();
    let buffer = free.buffers.pop().unwrap_or_default();
    free.bytes -= buffer.capacity();
    buffer
}

/// What was written, to be shared.
pub(super) fn freeze(buffer: Vec<u8>) -> Bytes {
    if buffer.len() > SMALL {
        return Bytes::from_owner(Kept(buffer));
    }
    let bytes = Bytes::copy_from_slice(&buffer);
    drop(Kept(buffer));
    bytes
}

/// Goes back among the free ones at its end.
struct Kept(Vec<u8>);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        let capacity = buffer.capacity();
        if capacity <= LARGE && capacity > 0 {
            buffer.clear();
            let mut free = FREE.lock();
            if free.bytes + capacity <= KEPT {
                free.bytes += capacity;
                free.buffers.push(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_is_kept_and_nothing_larger_than_a_large_buffer() {
        let many: Vec<Bytes> = (0..12)
            .map(|_| freeze(vec![7; LARGE]))
            .chain([freeze(vec![7; LARGE + 1])])
            .collect();
        drop(many);
        let free = FREE.lock();
        let capacities = free.buffers.iter().map(Vec::capacity);
        assert_eq!(capacities.clone().sum::<usize>(), free.bytes);
        assert!(free.bytes <= KEPT);
        assert!(capacities.max() <= Some(LARGE));
    }

    #[test]
    fn what_is_frozen_stays_as_it_was_while_buffers_are_used_again() {
        let mut held = Vec::new();
        for round in 0..100u8 {
            let mut buffer = take();
            assert!(buffer.is_empty());
            buffer.resize(if round % 2 == 0 { 10 } else { 10_000 }, round);
            held.push(freeze(buffer));
            if round % 3 == 0 {
                held.remove(0);
            }
        }
        for bytes in held {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            assert_eq!(
                bytes.len(),
                if bytes[0].is_multiple_of(2) {
                    10
                } else {
                    10_000
                }
            );
        }
    }
}
