//! What may be done to a store, in any order.

use proptest::prelude::*;

use super::super::super::types::Seq;

const QUEUES: usize = 4;

#[derive(Debug, Clone)]
pub(super) enum Op {
    Append {
        guaranteed: bool,
        ttl: u64,
        size: usize,
        skip: Option<usize>,
    },
    Open {
        queue: usize,
        durable: bool,
    },
    Forget {
        queue: usize,
        purge: bool,
    },
    Low {
        queue: usize,
        nth: usize,
    },
    Done {
        queue: usize,
        nth: usize,
    },
    Except {
        queue: usize,
        nth: usize,
    },
    Bury {
        queue: usize,
        nth: usize,
    },
    Revive {
        nth: usize,
    },
    Settle {
        queue: usize,
        seq: Seq,
    },
    Page {
        queue: usize,
    },
    Due {
        queue: usize,
    },
    Purge {
        queue: usize,
    },
    /// Other numbers may wait from now on.
    Bound {
        queue: u64,
        queued: Option<u64>,
    },
    Maintain,
    /// Closes the store and opens it again, where it keeps anything.
    Reopen,
    /// A command fails: what the store has in memory is read anew.
    Fail,
    /// A few more rows go to another store.
    Copy,
    /// All that is left goes there, and it takes the place of the first.
    Move,
    Wait {
        ms: u64,
    },
}

pub(super) fn ops() -> impl Strategy<Value = Op> {
    let (queue, nth) = (0..QUEUES, 0..6usize);
    prop_oneof![
        12 => (any::<bool>(), 1..60u64, 0..50usize, prop::option::weighted(0.2, 0..QUEUES)).prop_map(
            |(guaranteed, ttl, size, skip)| Op::Append { guaranteed, ttl, size, skip }
        ),
        3 => (queue.clone(), any::<bool>()).prop_map(|(queue, durable)| Op::Open { queue, durable }),
        1 => (queue.clone(), any::<bool>()).prop_map(|(queue, purge)| Op::Forget { queue, purge }),
        2 => (queue.clone(), nth.clone()).prop_map(|(queue, nth)| Op::Low { queue, nth }),
        3 => (queue.clone(), nth.clone()).prop_map(|(queue, nth)| Op::Done { queue, nth }),
        2 => (queue.clone(), nth.clone()).prop_map(|(queue, nth)| Op::Except { queue, nth }),
        1 => (queue.clone(), nth.clone()).prop_map(|(queue, nth)| Op::Bury { queue, nth }),
        1 => nth.clone().prop_map(|nth| Op::Revive { nth }),
        2 => (queue.clone(), 0..60u64).prop_map(|(queue, seq)| Op::Settle { queue, seq }),
        1 => queue.clone().prop_map(|queue| Op::Page { queue }),
        1 => queue.clone().prop_map(|queue| Op::Due { queue }),
        1 => queue.prop_map(|queue| Op::Purge { queue }),
        1 => (1..9u64, prop::option::weighted(0.2, 5..20u64)).prop_map(
            |(queue, queued)| Op::Bound { queue, queued }
        ),
        1 => Just(Op::Maintain),
        1 => Just(Op::Reopen),
        1 => Just(Op::Fail),
        6 => Just(Op::Copy),
        1 => Just(Op::Move),
        2 => (1..30u64).prop_map(|ms| Op::Wait { ms }),
    ]
}
