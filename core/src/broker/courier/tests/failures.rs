//! Retries, lost sessions, suspects, ordering keys and expiry (P8, P10, P11, P15).

use std::time::Duration;

use crate::clock::Timestamp;

use super::super::super::queue::{Leave, Mode, Outcome, What};
use super::super::bench::{Bench, DELAY, TIMEOUT, message};
use super::super::{Input, Slot, Style};

const OK: Outcome = Outcome::Ok { duplicate: false };

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_late_ack_during_the_retry_pause_is_accepted() {
    let mut bench = Bench::new();
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.advance(TIMEOUT);
    bench.verdict(Slot::stored(1), Some(1), What::Ack, "late");
    bench.advance(seconds(60));
    assert_eq!(bench.outcomes(), [OK]);
    assert!(bench.held(1).is_empty() && bench.maps.is_settled(1));
}

#[test]
fn a_retry_does_not_hold_up_later_messages() {
    let mut bench = Bench::new();
    bench.backlog(3);
    bench.ack_session(1, 1);
    bench.nack(1, 0, true);
    assert_eq!(bench.held(1), [2]);
    bench.advance(DELAY);
    bench.ack(1, 0);
    bench.ack(1, 0);
    bench.ack(1, 0);
    assert_eq!(bench.maps.low, 3);
}

#[test]
fn due_retries_and_ready_messages_take_turns() {
    let mut bench = Bench::new();
    bench.max_attempts = 1000;
    bench.backlog(200);
    bench.ack_session(1, 200);
    while bench.nack(1, 0, true).is_some() {}
    bench.ack_session(1, 1);
    bench.backlog(3);
    bench.tell(Input::Wake);
    bench.advance(DELAY);
    let mut order = Vec::new();
    for _ in 0..8 {
        order.push(bench.held(1)[0] > 200);
        bench.nack(1, 0, true);
        bench.advance(DELAY);
    }
    assert!(
        order[..6].iter().filter(|is_ready| **is_ready).count() >= 3,
        "{order:?}"
    );
    assert!(
        order.iter().filter(|is_ready| !**is_ready).count() >= 3,
        "{order:?}"
    );
}

#[test]
fn what_a_session_held_goes_back_to_the_front_in_its_order() {
    let mut bench = Bench::new();
    bench.backlog(10);
    bench.ack_session(1, 4);
    bench.leave(1, Leave::Closed);
    bench.ack_session(2, 6);
    assert_eq!(bench.held(2), [1, 2, 3, 4, 5, 6]);
    assert_eq!(bench.attempts(2), [2, 2, 2, 2, 1, 1]);
    bench.leave(2, Leave::Closed);
    bench.restart();
    bench.ack_session(3, 10);
    assert_eq!(bench.held(3), (1..=10).collect::<Vec<_>>());
    assert_eq!(bench.attempts(3), [3, 3, 3, 3, 2, 2, 1, 1, 1, 1]);
}

#[test]
fn what_a_lost_member_held_goes_to_the_others_at_once() {
    let mut bench = Bench::new();
    bench.backlog(6);
    for member in 1..=3 {
        bench.ack_session(member, 5);
    }
    let lost = bench.leave(1, Leave::Failed);
    assert!(!lost.is_empty());
    let mut all = [bench.held(2), bench.held(3)].concat();
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn twenty_five_returns_make_a_dead_letter_and_clean_closes_none() {
    let mut bench = Bench::new();
    bench.backlog(1);
    for session in 0..40 {
        bench.ack_session(session, 10);
        bench.leave(session, Leave::Closed);
    }
    for session in 40..65 {
        assert!(bench.maps.dead.is_empty());
        bench.ack_session(session, 10);
        bench.leave(session, Leave::Returned);
        bench.restart();
    }
    let burial = &bench.maps.dead[&1];
    assert_eq!((&*burial.reason, burial.attempts), ("redelivery_limit", 65));
}

#[test]
fn without_ack_a_lost_link_never_makes_a_dead_letter_and_repeats_are_marked() {
    let mut bench = Bench::new();
    bench.backlog(1);
    for session in 0..60 {
        bench.attach(session, Mode::Confirm, 10);
        let holds = bench.leave(
            session,
            [Leave::Failed, Leave::Returned][session as usize % 2],
        );
        let style = if session == 0 {
            Style::Plain
        } else {
            Style::Repeated
        };
        assert_eq!(holds[0].style, style);
    }
    assert!(bench.maps.dead.is_empty());
}

#[test]
fn a_message_that_kills_its_consumer_is_buried_after_max_attempts() {
    let mut bench = Bench::new();
    bench.backlog(1);
    for session in 0..3 {
        bench.ack_session(session, 10);
        assert_eq!(bench.attempts(session), [session as u32 + 1]);
        bench.leave(session, Leave::Failed);
        bench.restart();
    }
    assert_eq!((bench.maps.dead[&1].attempts, bench.maps.low), (3, 1));
}

#[test]
fn neighbours_of_a_poison_message_are_not_buried_with_it() {
    let mut bench = Bench::new();
    bench.backlog(6);
    // Whoever holds number 3 dies.
    for session in 0..30 {
        bench.ack_session(session, 10);
        while let Some(nth) = bench.held(session).iter().position(|seq| *seq != 3) {
            if bench.held(session).contains(&3) {
                break;
            }
            bench.ack(session, nth);
        }
        if bench.held(session).contains(&3) {
            bench.leave(session, Leave::Failed);
        } else {
            bench.leave(session, Leave::Closed);
        }
    }
    assert_eq!(bench.maps.dead.keys().copied().collect::<Vec<_>>(), [3]);
    assert!((1..=6).all(|seq| bench.maps.is_settled(seq)));
}

#[test]
fn a_suspect_waits_until_one_session_is_empty_while_the_others_go_on() {
    let mut bench = Bench::new();
    bench.max_attempts = 1;
    bench.backlog(3);
    bench.ack_session(1, 2);
    bench.leave(1, Leave::Failed);
    // 1 and 2 are suspects now. 3 is not; it is first, as long as anything else is ready.
    bench.ack_session(2, 2);
    bench.ack_session(3, 2);
    let held = [bench.held(2), bench.held(3)];
    assert!(held.contains(&vec![1]), "{held:?}");
    for _ in 0..20 {
        bench.publish(message(None, None, 10), true);
        for session in [2, 3] {
            if bench.held(session).first().is_some_and(|seq| *seq > 2) {
                bench.ack(session, 0);
            }
        }
    }
    let mut rounds = 0;
    while bench.maps.low < 23 {
        bench.ack(2, 0);
        bench.ack(3, 0);
        rounds += 1;
        assert!(rounds < 100);
    }
}

#[test]
fn of_an_ordering_key_one_is_out_until_it_is_settled_or_dead() {
    let mut bench = Bench::new();
    for key in ["A", "A", "A", "B"] {
        bench.publish(message(Some(key), None, 10), false);
    }
    bench.ack_session(1, 10);
    assert_eq!(bench.held(1), [1, 4]);
    bench.nack(1, 0, true);
    bench.ack(1, 0);
    assert!(bench.held(1).is_empty());
    bench.advance(DELAY);
    assert_eq!(bench.held(1), [1]);
    bench.nack(1, 0, false);
    assert_eq!(bench.held(1), [2]);
    bench.ack(1, 0);
    assert_eq!(bench.held(1), [3]);
}

#[test]
fn an_ordering_key_holds_across_a_restart_while_its_first_waits_for_a_retry() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.publish(message(Some("A"), None, 10), false);
    }
    bench.ack_session(1, 10);
    bench.nack(1, 0, true);
    bench.crash();
    bench.ack_session(2, 10);
    assert!(bench.held(2).is_empty());
    bench.advance(DELAY);
    assert_eq!((bench.held(2), bench.attempts(2)), (vec![1], vec![2]));
    bench.ack(2, 0);
    assert_eq!(bench.held(2), [2]);
}

#[test]
fn beyond_ten_thousand_of_a_busy_key_the_queue_waits() {
    let mut bench = Bench::new();
    for _ in 0..10_300 {
        bench.publish(message(Some("A"), None, 1), false);
    }
    bench.publish(message(None, None, 1), false);
    bench.ack_session(1, 10);
    assert_eq!(bench.held(1), [1]);
    assert!(bench.state.held.len() <= 10_001);
    for _ in 0..298 {
        bench.ack(1, 0);
    }
    assert_eq!(bench.held(1), [299]);
    for _ in 0..2 {
        bench.ack(1, 0);
    }
    assert_eq!(bench.held(1), [10_301, 301]);
}

#[test]
fn expired_messages_are_not_delivered_first_or_again() {
    let mut bench = Bench::new();
    let soon = Some(Timestamp(bench.now.wall.0 + 10_500));
    bench.publish(message(None, Some(Timestamp(5)), 10), false);
    bench.publish(message(None, soon, 10), false);
    bench.ack_session(1, 10);
    assert_eq!(bench.held(1), [2]);
    bench.advance(seconds(60));
    assert_eq!(bench.known[&Slot::stored(2)].sends, 1);
    assert_eq!((bench.maps.low, bench.maps.dead.len()), (2, 0));
    assert_eq!(bench.state.take_tally().expired, 2);
}

#[test]
fn many_waiting_retries_are_left_to_the_store_and_come_back_in_time() {
    let mut bench = Bench::new();
    bench.backlog(1300);
    bench.ack_session(1, 1300);
    while bench.held(1).len() > 1 {
        let slot = bench.clients.get_mut(&1).unwrap().holds.remove(0).slot;
        let what = What::Nack {
            delay: Some(seconds(30)),
            requeue: true,
            reason: None,
        };
        bench.known.get_mut(&slot).unwrap().failures += 1;
        bench.verdict(slot, None, what, "nack");
    }
    assert!(bench.state.held.len() < 1100, "{}", bench.state.held.len());
    bench.ack(1, 0);
    bench.advance(seconds(31));
    let mut rounds = 0;
    while bench.ack(1, 0).is_some() {
        rounds += 1;
    }
    assert_eq!(
        (rounds, bench.maps.low, bench.maps.rows.len()),
        (1299, 1300, 0)
    );
}

#[test]
fn the_wall_clock_does_not_move_waits() {
    let mut bench = Bench::new();
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.nack(1, 0, true);
    bench.now.wall = Timestamp(5);
    bench.advance(DELAY);
    assert_eq!(bench.attempts(1), [2]);
    bench.now.wall = Timestamp(u64::MAX / 2);
    bench.advance(TIMEOUT - seconds(1));
    assert_eq!(bench.held(1), [1]);
}

#[test]
fn an_entry_that_expires_while_it_waits_for_its_retry_frees_its_ordering_key() {
    let mut bench = Bench::new();
    let soon = bench.now.wall.plus(DELAY / 2);
    bench.publish(message(Some("A"), Some(soon), 10), true);
    bench.publish(message(Some("A"), None, 10), true);
    bench.ack_session(1, 10);
    bench.nack(1, 0, true).unwrap();
    assert!(bench.held(1).is_empty());
    bench.advance(DELAY / 2);
    assert_eq!(bench.held(1), [2]);
    assert_eq!(bench.state.take_tally().expired, 1);
}
