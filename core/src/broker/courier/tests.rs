//! The promises of the courier, one by one, on the pure machine.

mod failures;
mod settling;

use std::sync::Arc;
use std::time::Duration;

use super::super::ports::SessionId;
use super::super::queue::{Leave, Mode, Outcome, What};
use super::bench::{Bench, DELAY, Health, message};
use super::{Input, Slot};
use crate::model::Message;

const OK: Outcome = Outcome::Ok { duplicate: false };

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_backlog_comes_first_and_live_entries_after_it_in_one_order() {
    let mut bench = Bench::new();
    bench.page = 4;
    bench.backlog(10);
    bench.ack_session(1, 100);
    for _ in 0..5 {
        bench.publish(message(None, None, 10), true);
    }
    assert_eq!(bench.held(1), (1..=15).collect::<Vec<_>>());
    assert_eq!(bench.attempts(1), vec![1; 15]);
}

#[test]
fn a_gap_in_the_feed_is_read_from_the_store() {
    let mut bench = Bench::new();
    bench.ack_session(1, 100);
    bench.publish(message(None, None, 10), false);
    bench.publish(message(None, None, 10), true);
    assert_eq!(bench.held(1), [1, 2]);
}

#[test]
fn never_more_than_the_window_is_out_whatever_the_backlog() {
    let mut bench = Bench::new();
    bench.backlog(3000);
    bench.ack_session(1, 50);
    for _ in 0..3000 {
        assert!(bench.held(1).len() <= 50);
        bench.ack(1, 0).unwrap();
    }
    assert_eq!((bench.maps.low, bench.held(1).len()), (3000, 0));
    assert!(bench.state.held.is_empty() && bench.state.timers.len() < 200);
}

#[test]
fn what_the_courier_keeps_does_not_grow_with_the_backlog() {
    const BACKLOG: usize = 50_000;
    let mut bench = Bench::new();
    bench.backlog(BACKLOG);
    bench.attach(1, Mode::Confirm, 64);
    while bench.maps.low < BACKLOG as u64 {
        let state = &bench.state;
        let kept = state.held.len() + state.fresh.len() + state.ledger.len();
        let lines = state.timers.len() + state.skip.len() + state.again.len();
        assert!(kept + lines < 1_000, "{kept} and {lines}");
        bench.confirm(1);
    }
    assert!(bench.held(1).is_empty());
}

#[test]
fn a_message_larger_than_the_window_of_bytes_goes_out_alone() {
    let mut bench = Bench::new();
    for size in [9 << 20, 10, 10] {
        bench.publish(message(None, None, size), false);
    }
    bench.ack_session(1, 10);
    assert_eq!(bench.held(1), [1]);
    bench.ack(1, 0);
    assert_eq!(bench.held(1), [2, 3]);
}

#[test]
fn a_first_attach_marks_nothing_as_a_repeat_and_the_mark_moves_in_blocks() {
    let mut bench = Bench::new();
    bench.backlog(2000);
    bench.attach(1, Mode::Flush, 100);
    assert!(bench.known.values().all(|known| known.sends == 1));
    assert_eq!(bench.known.len(), 2000);
    assert!(bench.maps.writes < 60, "{}", bench.maps.writes);
}

#[test]
fn what_may_have_been_sent_before_a_crash_is_a_repeat() {
    let mut bench = Bench::new();
    bench.backlog(3);
    bench.attach(1, Mode::Confirm, 10);
    bench.crash();
    bench.ack_session(2, 10);
    assert_eq!(bench.attempts(2), [2, 2, 2]);
    // Nothing can have been sent of what came after the crash, whatever the mark says.
    bench.publish(message(None, None, 10), true);
    assert_eq!(bench.attempts(2), [2, 2, 2, 1]);
}

#[test]
fn attaching_again_sends_nothing_again() {
    let mut bench = Bench::new();
    bench.backlog(3);
    bench.ack_session(1, 2);
    bench.ack_session(1, 2);
    assert_eq!(bench.held(1), [1, 2]);
    bench.ack_session(1, 3);
    assert_eq!(
        (bench.held(1), bench.attempts(1)),
        (vec![1, 2, 3], vec![1, 1, 1])
    );
}

#[test]
fn the_next_entry_goes_to_the_member_with_most_room() {
    let mut bench = Bench::new();
    bench.ack_session(1, 2);
    bench.ack_session(2, 4);
    for _ in 0..4 {
        bench.publish(message(None, None, 10), true);
    }
    assert_eq!((bench.held(1).len(), bench.held(2).len()), (1, 3));
}

#[test]
fn a_full_outbox_pauses_its_session_only() {
    let mut bench = Bench::new();
    bench.ack_session(1, 10);
    bench.ack_session(2, 3);
    bench.clients.get_mut(&1).unwrap().accepts = false;
    for _ in 0..5 {
        bench.publish(message(None, None, 10), true);
    }
    assert_eq!((bench.held(1), bench.held(2)), (vec![], vec![1, 2, 3]));
    bench.clients.get_mut(&1).unwrap().accepts = true;
    bench.tell(Input::Writable(SessionId(1)));
    assert_eq!((bench.held(1), bench.attempts(1)), (vec![4, 5], vec![1, 1]));
}

#[test]
fn pages_that_fail_are_read_again() {
    let mut bench = Bench::new();
    bench.backlog(3);
    bench.health = Health::Failing;
    bench.ack_session(1, 10);
    bench.advance(seconds(20));
    assert!(bench.held(1).is_empty());
    bench.heal();
    bench.advance(seconds(5));
    assert_eq!(bench.held(1), [1, 2, 3]);
}

#[test]
fn an_entry_that_outlives_many_others_does_not_pin_low() {
    let mut bench = Bench::new();
    bench.backlog(6000);
    bench.ack_session(1, 2);
    for _ in 0..5500 {
        bench.ack(1, 1).unwrap();
    }
    assert!(bench.maps.low > 1000 && bench.maps.rows.contains_key(&1));
    assert!(!bench.maps.is_settled(1));
    bench.ack(1, 0).unwrap();
    assert!(bench.maps.is_settled(1) && bench.maps.rows.is_empty());
}

#[test]
fn an_entry_that_outlives_others_by_seconds_does_not_pin_low() {
    let mut bench = Bench::new();
    bench.backlog(3);
    bench.ack_session(1, 10);
    bench.ack(1, 1);
    bench.advance(seconds(6));
    assert_eq!((bench.maps.low, bench.maps.rows.len()), (2, 1));
    bench.ack(1, 0);
    bench.ack(1, 0);
    assert_eq!((bench.maps.low, bench.maps.rows.len()), (3, 0));
}

#[test]
fn a_live_copy_waits_behind_stored_ones_and_later_stored_ones_behind_it() {
    let mut bench = Bench::new();
    bench.backlog(2);
    // The end of the log is not known when the first copy comes.
    bench.health = Health::Silent;
    bench.ack_session(1, 1);
    let first = bench.live(1, message(None, None, 10));
    assert!(bench.state.has_ahead());
    bench.heal();
    bench.publish(message(None, None, 10), true);
    let second = bench.live(1, message(None, None, 10));
    let stored = Slot::stored;
    for expected in [stored(1), stored(2), first, stored(3), second] {
        assert_eq!(bench.clients[&1].holds[0].slot, expected);
        bench.ack(1, 0);
    }
    assert!(bench.held(1).is_empty() && !bench.state.has_ahead());
}

#[test]
fn stored_entries_and_live_copies_share_their_ordering_keys() {
    let mut bench = Bench::new();
    bench.ack_session(1, 10);
    bench.ack_session(2, 10);
    let key = || message(Some("A"), None, 10);
    let one = bench.live(1, key());
    // Another session's copy is of another subscription.
    let two = bench.live(2, key());
    let slots = |bench: &Bench, session| -> Vec<Slot> {
        let holds = bench.clients[&session].holds.iter();
        holds.map(|got| got.slot).collect()
    };
    assert_eq!((slots(&bench, 1), slots(&bench, 2)), (vec![one], vec![two]));
    let seq = bench.publish(key(), true);
    let third = bench.live(1, key());
    bench.publish(message(None, None, 10), true);
    assert!(bench.state.has_ahead());
    let out = [slots(&bench, 1), slots(&bench, 2)].concat();
    assert_eq!(out.len(), 3, "what has no key goes on: {out:?}");
    let ack = |bench: &mut Bench, slot| {
        for client in bench.clients.values_mut() {
            client.holds.retain(|got| got.slot != slot);
        }
        bench.verdict(slot, None, What::Ack, "ack");
    };
    let is_out = |bench: &Bench, slot| [slots(bench, 1), slots(bench, 2)].concat().contains(&slot);
    let stored = Slot::stored(seq);
    ack(&mut bench, one);
    assert!(!is_out(&bench, stored));
    ack(&mut bench, two);
    assert!(is_out(&bench, stored) && !is_out(&bench, third));
    ack(&mut bench, stored);
    assert!(is_out(&bench, third));
}

#[test]
fn a_purge_frees_the_keys_that_live_copies_wait_for() {
    let mut bench = Bench::new();
    bench.ack_session(1, 10);
    bench.publish(message(Some("A"), None, 10), true);
    let live = bench.live(1, message(Some("A"), None, 10));
    bench.maps.low = 1;
    bench.clients.get_mut(&1).unwrap().holds.clear();
    bench.tell(Input::Purged);
    assert_eq!(bench.clients[&1].holds[0].slot, live);
}

#[test]
fn a_tracked_live_copy_is_tried_again_and_goes_with_its_session() {
    let mut bench = Bench::new();
    bench.ack_session(1, 10);
    let slot = bench.live(1, message(None, None, 10));
    bench.nack(1, 0, true);
    bench.advance(DELAY);
    assert_eq!(bench.attempts(1), [2]);
    bench.live(1, message(None, None, 10));
    bench.verdict(slot, Some(1), What::Ack, "old");
    assert_eq!(bench.outcomes(), [OK, Outcome::Stale]);
    bench.leave(1, Leave::Closed);
    assert_eq!(bench.state.take_tally().dropped, 2);
    assert!(bench.state.held.is_empty() && bench.state.is_finished());
}

#[test]
fn a_session_is_told_once_of_the_live_copies_it_lost_when_there_is_room_again() {
    let mut bench = Bench::new();
    bench.ack_session(1, 1);
    for _ in 0..super::MOST_LIVE + 6 {
        bench.live(1, message(None, None, 10));
    }
    bench.tell(Input::Lost(SessionId(1), 4));
    assert_eq!(
        (bench.state.take_tally().dropped, &*bench.lost),
        (4, &[][..])
    );
    for _ in 0..super::MOST_LIVE / 2 + 10 {
        bench.ack(1, 0).unwrap();
    }
    assert_eq!(bench.lost, [8]);
}

#[test]
fn a_live_copy_does_not_wait_behind_an_entry_that_has_expired() {
    let mut bench = Bench::new();
    bench.ack_session(1, 1);
    bench.publish(message(None, None, 10), true);
    let soon = bench.now.wall.plus(seconds(2));
    bench.publish(message(None, Some(soon), 10), true);
    let live = bench.live(1, message(None, None, 10));
    bench.advance(seconds(3));
    bench.ack(1, 0).unwrap();
    assert_eq!(bench.clients[&1].holds[0].slot, live);
}

#[test]
fn after_a_purge_nothing_of_the_backlog_goes_out() {
    let mut bench = Bench::new();
    bench.backlog(5);
    bench.ack_session(1, 2);
    bench.maps.low = 5;
    bench.clients.get_mut(&1).unwrap().holds.clear();
    bench.tell(Input::Purged);
    assert!(bench.held(1).is_empty());
    bench.publish(message(None, None, 10), true);
    assert_eq!(bench.held(1), [6]);
}

#[test]
fn what_came_before_a_queue_gave_up_being_durable_is_its_own_whenever_it_is_fed() {
    let mut bench = Bench::new();
    bench.ack_session(1, 10);
    bench.tell(Input::TakesAll {
        takes_all: false,
        after: 1,
    });
    let plain = Arc::new(Message {
        guaranteed: false,
        ..Message::clone(&message(None, None, 10))
    });
    bench.publish(plain.clone(), true);
    bench.publish(plain, true);
    assert_eq!(bench.held(1), [1]);
}
