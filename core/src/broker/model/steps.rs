//! The steps of a life in short, for lives that are written down.
//!
//! Used by [`super::cases`] and [`super::again`].

use super::super::Verdict;
use super::Op;
use super::acts::{Item, Mark};
use super::book::{Who, Wish};

pub(super) const OWN: (Who, bool, bool) = (Who::Own, false, false);
pub(super) const ACKED: (Who, bool, bool) = (Who::Own, false, true);
pub(super) const DURABLE: (Who, bool, bool) = (Who::Own, true, false);
pub(super) const GROUP: (Who, bool, bool) = (Who::Group, false, false);
pub(super) const SHARED: (Who, bool, bool) = (Who::Shared, false, false);
pub(super) const SHARED_ACKED: (Who, bool, bool) = (Who::Shared, false, true);

pub(super) fn connect(slot: usize, name: usize) -> Op {
    instance(slot, name, None)
}

pub(super) fn instance(slot: usize, name: usize, instance: Option<u8>) -> Op {
    Op::Connect {
        slot,
        name,
        instance,
        acked: None,
    }
}

pub(super) fn subscribe(
    slot: usize,
    name: usize,
    key: usize,
    how: (Who, bool, bool),
    prefetch: u32,
) -> Op {
    let (who, durable, ack) = how;
    let wish = Wish {
        name,
        key,
        who,
        durable,
        ack,
        prefetch,
    };
    Op::Subscribe { slot, wish }
}

pub(super) fn plain(event: usize) -> Item {
    Item {
        event,
        guaranteed: false,
        ttl: None,
        key: None,
        confirm: true,
        delay: None,
        mark: None,
        cast: None,
    }
}

pub(super) fn kept(event: usize) -> Item {
    Item {
        guaranteed: true,
        ..plain(event)
    }
}

pub(super) fn short(item: Item, millis: u64) -> Item {
    Item {
        ttl: Some(millis),
        ..item
    }
}

pub(super) fn produce(slot: usize, items: &[Item]) -> Op {
    Op::Produce {
        slot,
        from: 0,
        items: items.to_vec(),
    }
}

pub(super) fn store(stalled: bool, refusing: bool) -> Op {
    Op::Store { stalled, refusing }
}

pub(super) fn pass(millis: u64) -> Op {
    Op::Advance { millis }
}

pub(super) fn delayed(item: Item, millis: u64) -> Item {
    Item {
        delay: Some(millis),
        ..item
    }
}

pub(super) fn marked(item: Item, mark: Mark) -> Item {
    Item {
        mark: Some(mark),
        ..item
    }
}

pub(super) fn restart(crashed: bool) -> Op {
    Op::Restart { crashed }
}

pub(super) fn judge(slot: usize, nth: usize, verdict: Verdict) -> Op {
    Op::Judge {
        slot,
        nth,
        verdict,
        says_attempt: false,
    }
}

pub(super) fn keyed(item: Item) -> Item {
    Item {
        key: Some(0),
        ..item
    }
}
