//! Lives in which a subscription is made again with other options, a message is sent again, or a name is asked
//! for that is being lost.
//!
//! Made of [`super::steps`]; run by `cargo test` alone.

use super::super::Verdict;
use super::acts::Mark;
use super::steps::*;
use super::{Op, live};

#[tokio::test]
async fn live_copies_without_ack_wait_behind_a_window_full_of_what_awaits_one() {
    for anonymous in [3, 0] {
        live(vec![
            connect(0, anonymous),
            subscribe(0, anonymous, 0, SHARED_ACKED, 1),
            produce(0, &[plain(0), plain(0)]),
            subscribe(0, anonymous, 0, SHARED, 1),
            produce(0, &[plain(0)]),
            judge(0, 0, Verdict::Ack),
        ])
        .await;
    }
}

#[tokio::test]
async fn a_live_copy_without_ack_waits_for_the_one_of_its_key_that_awaits_one() {
    live(vec![
        connect(0, 3),
        subscribe(0, 3, 0, SHARED_ACKED, 3),
        produce(0, &[keyed(plain(0))]),
        subscribe(0, 3, 0, SHARED, 3),
        produce(0, &[keyed(plain(0)), plain(0)]),
        judge(0, 0, Verdict::Ack),
    ])
    .await;
}

#[tokio::test]
async fn a_live_copy_without_ack_waits_for_the_one_of_its_key_that_is_tried_again() {
    let again = Verdict::Nack {
        delay: None,
        requeue: true,
        reason: None,
    };
    live(vec![
        connect(0, 3),
        subscribe(0, 3, 0, SHARED_ACKED, 1),
        produce(0, &[keyed(plain(0))]),
        judge(0, 0, again),
        subscribe(0, 3, 0, SHARED, 1),
        produce(0, &[keyed(plain(0))]),
        pass(3_000),
    ])
    .await;
}

#[tokio::test]
async fn who_holds_two_names_may_refuse_one_in_the_moment_in_which_the_other_is_taken() {
    let silent = Op::Silent {
        slot: 0,
        silent: true,
    };
    // Who asks first is chance: the other name is refused, or free already.
    for _ in 0..20 {
        live(vec![
            connect(0, 0),
            subscribe(0, 1, 1, OWN, 1),
            connect(1, 0),
            pass(50),
            silent.clone(),
            connect(2, 1),
            pass(7_900),
        ])
        .await;
    }
}

/// What a queue that has ended since has taken is sent again.
fn sent_again(mark: Mark) -> Vec<Op> {
    let end = Op::Unsubscribe {
        slot: 0,
        name: 0,
        key: 0,
        purge: false,
    };
    vec![
        connect(0, 0),
        subscribe(0, 0, 0, DURABLE, 1),
        produce(0, &[marked(plain(0), mark)]),
        Op::Pong { slot: 0 },
        end,
        connect(1, 1),
        subscribe(1, 3, 0, OWN, 1),
        Op::Repeat { slot: 1, nth: 0 },
    ]
}

#[tokio::test]
async fn what_was_stored_is_known_again_though_nothing_would_store_it_now() {
    for mark in [Mark::Number, Mark::Name] {
        live(sent_again(mark)).await;
    }
}
