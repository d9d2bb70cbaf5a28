//! What the memory store lets go of; the tests of `state` check what it does.

use std::sync::Arc;

use super::super::state::tests::{MemorySubject, exception, now, realm, spec};
use super::super::types::Overflow;
use super::*;
use crate::model::Message;

/// Appends `count` messages that the queue 1 settles at once; how many bodies are held in the end.
fn held_beside_a_fast_reader(bounds: Bounds, prepare: impl Fn(&MemoryStore, QueueId)) -> usize {
    let store = MemoryStore::new(bounds);
    let idle = now(store.open(spec(0, true), Timestamp(0))).unwrap();
    let fast = now(store.open(spec(1, true), Timestamp(0))).unwrap();
    let mut held = Vec::new();
    for seq in 1..=3000 {
        let message = Arc::new(Message {
            id: MessageId(seq),
            event: "k".into(),
            from: "p".into(),
            body: None,
            extras: None,
            produced: Timestamp(0),
            expires: None,
            guaranteed: false,
            key: None,
        });
        held.push(Arc::downgrade(&message));
        let item = Append::new(realm(), message, vec![idle.log]);
        now(store.append(vec![item])).unwrap().remove(0).unwrap();
        if seq == 10 {
            prepare(&store, idle.queue);
        }
        let low = Some(seq);
        let change = QueueChange {
            low,
            ..QueueChange::default()
        };
        now(store.update(fast.queue, change, Timestamp(0))).unwrap();
    }
    let pieces = store.state.lock().logs[&idle.log].entries.held();
    assert!(pieces <= 8, "{pieces} pieces are held");
    held.iter()
        .filter(|message| message.strong_count() > 0)
        .count()
}

#[test]
fn a_full_queue_holds_its_own_entries_only() {
    for (overflow, most) in [(Overflow::Reject, 20), (Overflow::DropOldest, 20)] {
        let bounds = Bounds {
            max_queued: 20,
            overflow,
            ..Bounds::default()
        };
        let held = held_beside_a_fast_reader(bounds, |_, _| ());
        assert_eq!(held, most, "{overflow:?}");
    }
}

#[test]
fn a_left_over_holds_its_own_entries_only() {
    let held = held_beside_a_fast_reader(Bounds::default(), |store, idle| {
        assert_eq!(now(store.forget(idle, false)), Ok(10));
    });
    assert_eq!(held, 10);
}

#[test]
fn an_exception_holds_its_own_entry_only() {
    let held = held_beside_a_fast_reader(Bounds::default(), |store, idle| {
        let change = QueueChange {
            low: Some(u64::MAX),
            except: vec![exception(5, Timestamp(9))],
            ..QueueChange::default()
        };
        now(store.update(idle, change, Timestamp(0))).unwrap();
        assert_eq!(now(store.forget(idle, false)), Ok(1));
    });
    assert_eq!(held, 1);
}

impl MemorySubject for MemoryStore {
    fn queued(&self) -> u64 {
        let state = self.state.lock();
        state.realms.get(&realm()).map_or(0, |realm| realm.queued)
    }

    fn logs_and_wakes(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.logs.len(), state.wakes.len())
    }

    fn kept(&self) -> (u64, u64) {
        let state = self.state.lock();
        let counted = state.realms.values().map(|realm| realm.kept.bytes()).sum();
        let entries = state.logs.values().map(|log| log.entries.weigh());
        let exceptions = state
            .queues
            .keys()
            .filter_map(|id| state.keep.exceptions(*id));
        let exceptions = exceptions.map(|exceptions| exceptions.bytes());
        (counted, entries.chain(exceptions).sum())
    }
}
