//! Acks, nacks and confirmations (P6, P9, P13, P27).

use std::time::Duration;

use super::super::super::ports::SessionId;
use super::super::super::queue::{Leave, Mode, Outcome, What};
use super::super::bench::{Bench, DELAY, Health, STORE_TIMEOUT, TIMEOUT, message};
use super::super::{Input, Slot};

const OK: Outcome = Outcome::Ok { duplicate: false };
const DUPLICATE: Outcome = Outcome::Ok { duplicate: true };

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn an_ack_settles_and_a_second_one_is_a_duplicate() {
    let mut bench = Bench::new();
    bench.backlog(1);
    bench.ack_session(1, 10);
    let slot = bench.ack(1, 0).unwrap();
    bench.verdict(slot, None, What::Ack, "again");
    bench.verdict(Slot::stored(99), None, What::Ack, "unknown");
    assert_eq!(bench.outcomes(), [OK, DUPLICATE, Outcome::Unknown]);
    assert_eq!(bench.maps.low, 1);
}

#[test]
fn an_ack_timeout_is_a_failure_and_the_last_one_a_dead_letter() {
    let mut bench = Bench::new();
    bench.max_attempts = 2;
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.advance(TIMEOUT);
    assert!(bench.held(1).is_empty());
    bench.advance(DELAY);
    assert_eq!(bench.attempts(1), [2]);
    bench.advance(TIMEOUT);
    let burial = &bench.maps.dead[&1];
    assert_eq!(&*burial.reason, "ack timeout after 2 attempt(s)");
    assert_eq!(
        burial.first_error.as_deref(),
        Some("ack timeout after 1 attempt(s)")
    );
    assert_eq!((burial.attempts, bench.maps.low), (2, 1));
}

#[test]
fn an_ack_of_an_older_attempt_than_the_delivered_one_is_stale() {
    let mut bench = Bench::new();
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.advance(TIMEOUT + DELAY);
    bench.verdict(Slot::stored(1), Some(1), What::Ack, "old");
    assert_eq!(bench.held(1), [1]);
    bench.clients.get_mut(&1).unwrap().holds.clear();
    bench.verdict(Slot::stored(1), Some(2), What::Ack, "new");
    assert_eq!(bench.outcomes(), [Outcome::Stale, OK]);
}

#[test]
fn an_ack_on_a_new_session_is_accepted_and_nothing_is_delivered_again() {
    let mut bench = Bench::new();
    bench.backlog(5);
    bench.ack_session(1, 10);
    let held = bench.leave(1, Leave::Returned);
    for got in &held {
        bench.verdict(got.slot, Some(1), What::Ack, "early");
    }
    bench.ack_session(2, 10);
    assert_eq!(bench.outcomes(), vec![OK; 5]);
    assert!(bench.held(2).is_empty());
}

#[test]
fn acks_before_the_subscription_reach_what_an_earlier_courier_left() {
    let mut bench = Bench::new();
    bench.backlog(5);
    bench.ack_session(1, 10);
    bench.leave(1, Leave::Returned);
    bench.restart();
    bench.verdict(Slot::stored(2), Some(1), What::Ack, "early");
    bench.ack_session(2, 1);
    bench.verdict(Slot::stored(4), Some(1), What::Ack, "ahead");
    assert_eq!(bench.outcomes(), [OK, OK]);
    let mut got = Vec::new();
    while let Some(slot) = bench.ack(2, 0) {
        got.push(slot.number());
    }
    assert_eq!(got, [1, 3, 5]);
}

#[test]
fn working_starts_the_ack_timeout_anew() {
    let mut bench = Bench::new();
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.clients.get_mut(&1).unwrap().was_paused = true;
    for _ in 0..5 {
        bench.advance(TIMEOUT - seconds(1));
        bench.verdict(Slot::stored(1), None, What::Working, "working");
    }
    bench.ack(1, 0);
    assert_eq!(bench.outcomes(), vec![OK; 6]);
    assert_eq!(bench.known[&Slot::stored(1)].sends, 1);
}

#[test]
fn ack_clocks_stand_still_while_the_session_is_not_read() {
    let mut bench = Bench::new();
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.clients.get_mut(&1).unwrap().was_paused = true;
    bench.advance(seconds(4));
    bench.tell(Input::Pause(SessionId(1)));
    bench.advance(seconds(100));
    assert_eq!(bench.held(1), [1]);
    bench.tell(Input::Resume(SessionId(1)));
    bench.advance(seconds(5));
    assert_eq!(bench.held(1), [1]);
    bench.advance(seconds(1));
    assert!(bench.held(1).is_empty());
}

#[test]
fn a_nack_waits_as_long_as_it_asks_and_without_requeue_buries_at_once() {
    let mut bench = Bench::new();
    bench.backlog(2);
    bench.ack_session(1, 10);
    bench.nack(1, 1, false);
    assert_eq!(&*bench.maps.dead[&2].reason, "no");
    bench.clients.get_mut(&1).unwrap().holds.clear();
    let delay = Some(seconds(30));
    let what = What::Nack {
        delay,
        requeue: true,
        reason: None,
    };
    bench.verdict(Slot::stored(1), None, what, "nack");
    bench.advance(seconds(29));
    assert!(bench.held(1).is_empty());
    bench.advance(seconds(1));
    assert_eq!(bench.attempts(1), [2]);
    assert_eq!(bench.outcomes(), [OK, OK]);
}

#[test]
fn without_ack_receipt_settles_and_the_window_grows_with_quick_confirms() {
    let mut bench = Bench::new();
    bench.backlog(2000);
    bench.attach(1, Mode::Confirm, 1024);
    assert_eq!((bench.held(1).len(), bench.maps.low), (64, 0));
    bench.confirm(1);
    assert_eq!((bench.held(1).len(), bench.maps.low), (128, 64));
    bench.advance(seconds(6));
    bench.confirm(1);
    assert_eq!(bench.held(1).len(), 64);
    for _ in 0..20 {
        bench.confirm(1);
    }
    assert_eq!(bench.maps.low, 2000);
}

#[test]
fn a_close_confirms_nothing_more() {
    let mut bench = Bench::new();
    bench.backlog(20);
    bench.attach(1, Mode::Confirm, 100);
    bench.leave(1, Leave::Closed);
    bench.tell(Input::Confirmed(SessionId(1), 99));
    bench.attach(2, Mode::Confirm, 100);
    assert_eq!((bench.held(2).len(), bench.maps.low), (20, 0));
}

#[test]
fn acks_that_cannot_be_written_are_kept_and_written_later() {
    let mut bench = Bench::new();
    bench.backlog(2);
    bench.ack_session(1, 10);
    bench.health = Health::Failing;
    bench.ack(1, 0);
    bench.ack(1, 0);
    bench.advance(STORE_TIMEOUT);
    assert_eq!(bench.outcomes(), [Outcome::Kept, Outcome::Kept]);
    assert!(bench.state.take_tally().store_failures > 1);
    bench.advance(seconds(60));
    bench.heal();
    bench.advance(STORE_TIMEOUT);
    assert_eq!(bench.maps.low, 2);
    bench.publish(message(None, None, 10), true);
    bench.ack(1, 0);
    assert_eq!((bench.outcomes(), bench.maps.low), (vec![OK], 3));
}

#[test]
fn a_store_that_does_not_answer_keeps_acks_and_the_late_answer_settles_them() {
    let mut bench = Bench::new();
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.health = Health::Silent;
    bench.ack(1, 0);
    bench.verdict(Slot::stored(77), None, What::Ack, "lookup");
    bench.advance(STORE_TIMEOUT);
    assert_eq!(bench.outcomes(), [Outcome::Kept, Outcome::Kept]);
    bench.heal();
    bench.leave(1, Leave::Closed);
    assert!(bench.state.is_finished() && bench.maps.low == 1);
}

#[test]
fn a_dead_letter_made_after_a_restart_counts_the_attempt_before_it() {
    let mut bench = Bench::new();
    bench.publish(message(Some("A"), None, 10), false);
    bench.publish(message(Some("A"), None, 10), false);
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.ack(1, 1);
    // Its row is written while it waits for its key.
    bench.advance(seconds(6));
    bench.nack(1, 0, false);
    assert_eq!((bench.held(1), bench.maps.rows[&2].attempts), (vec![2], 0));
    bench.crash();
    let no = What::Nack {
        delay: None,
        requeue: false,
        reason: None,
    };
    bench.verdict(Slot::stored(2), Some(1), no, "late");
    assert_eq!(bench.outcomes(), [OK; 3]);
    assert_eq!(bench.maps.dead[&2].attempts, 1);
}

#[test]
fn a_revived_dead_letter_comes_after_a_wake() {
    let mut bench = Bench::new();
    bench.backlog(2);
    bench.ack_session(1, 10);
    bench.nack(1, 0, false);
    let burial = bench.maps.dead.remove(&1).unwrap();
    bench.maps.settled.remove(&1);
    bench.known.get_mut(&Slot::stored(1)).unwrap().failures = 0;
    let row = crate::store::Exception {
        seq: 1,
        attempts: burial.attempts,
        failures: 0,
        returns: 0,
        due: bench.now.wall,
        first_error: None,
        last_error: None,
        suspect: false,
    };
    bench.maps.rows.insert(1, row);
    bench.tell(Input::Wake);
    assert_eq!((bench.held(1), bench.attempts(1)), (vec![2, 1], vec![1, 2]));
    bench.ack(1, 1);
    assert!(bench.maps.is_settled(1));
}

#[test]
fn an_ack_while_a_changed_row_is_still_to_be_written_settles_it_in_the_store() {
    let mut bench = Bench::new();
    bench.backlog(2);
    bench.ack_session(1, 10);
    bench.advance(TIMEOUT);
    bench.health = Health::Silent;
    bench.ack_session(2, 1);
    bench.advance(DELAY);
    bench.leave(2, Leave::Closed);
    while bench.ack(1, 0).is_some() {}
    bench.heal();
    assert_eq!((bench.maps.low, bench.maps.rows.len()), (2, 0));
}

#[test]
fn an_ack_of_a_guessed_id_does_not_make_a_later_message_disappear() {
    let mut bench = Bench::new();
    bench.backlog(1);
    bench.ack_session(1, 10);
    bench.health = Health::Silent;
    bench.verdict(Slot::stored(2), None, What::Ack, "guess");
    bench.publish(message(None, None, 10), true);
    assert_eq!(bench.held(1), [1, 2]);
    bench.heal();
    assert_eq!(bench.outcomes(), [Outcome::Unknown]);
}

#[test]
fn a_verdict_on_an_entry_that_is_back_in_the_store_is_taken_while_it_is_unsettled() {
    let mut bench = Bench::new();
    bench.backlog(3);
    bench.ack_session(1, 10);
    bench.leave(1, Leave::Closed);
    bench.restart();
    let nack = |requeue| What::Nack {
        delay: None,
        requeue,
        reason: Some("no".into()),
    };
    bench.verdict(Slot::stored(1), None, What::Working, "working");
    bench.verdict(Slot::stored(1), None, nack(true), "again");
    bench.verdict(Slot::stored(2), None, nack(false), "never");
    bench.verdict(Slot::stored(2), None, nack(false), "twice");
    bench.verdict(Slot::stored(9), None, What::Working, "unknown");
    let unknown = Outcome::Unknown;
    let outcomes = [DUPLICATE, DUPLICATE, OK, unknown.clone(), unknown];
    assert_eq!(bench.outcomes(), outcomes);
    assert_eq!(bench.maps.dead[&2].last_error.as_deref(), Some("no"));
    bench.ack_session(2, 10);
    assert_eq!((bench.held(2), bench.attempts(2)), (vec![1, 3], vec![2, 2]));
}

#[test]
fn a_verdict_that_the_store_must_be_asked_about_is_answered_in_time() {
    for what in [What::Ack, What::Working] {
        let mut bench = Bench::new();
        bench.backlog(2);
        bench.ack_session(1, 10);
        bench.leave(1, Leave::Closed);
        bench.restart();
        bench.health = Health::Silent;
        bench.verdict(Slot::stored(1), None, what.clone(), "first");
        bench.advance(seconds(1));
        bench.verdict(Slot::stored(2), None, what, "second");
        bench.advance(STORE_TIMEOUT);
        assert_eq!(bench.outcomes(), [Outcome::Kept, Outcome::Kept]);
        bench.heal();
        assert!(bench.state.is_finished());
    }
}
