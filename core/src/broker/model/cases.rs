//! Lives that once went wrong, each cut down to what it took.

use super::super::{Leave, Verdict};
use super::acts::{Item, Mark};
use super::book::Who;
use super::casts::Cast;
use super::steps::*;
use super::{Op, live, live_in};
use crate::store::{Bounds, Overflow};

#[tokio::test]
async fn a_group_gets_plain_messages_behind_guaranteed_ones_of_the_same_read() {
    let items = [kept(0), plain(0)];
    live(vec![
        connect(0, 0),
        subscribe(0, 0, 0, GROUP, 1),
        produce(0, &items),
    ])
    .await;
}

#[tokio::test]
async fn what_is_never_stored_keeps_its_place_behind_what_is() {
    for how in [DURABLE, (Who::Group, true, false)] {
        let items = [plain(0), short(plain(0), 0)];
        live(vec![
            connect(0, 0),
            subscribe(0, 0, 3, how, 5),
            produce(0, &items),
        ])
        .await;
    }
}

#[tokio::test]
async fn what_an_ended_subscription_left_is_marked_as_a_repeat_when_it_comes_again() {
    let leave = Op::Unsubscribe {
        slot: 0,
        name: 1,
        key: 3,
        purge: false,
    };
    live(vec![
        connect(0, 0),
        subscribe(0, 1, 3, ACKED, 3),
        produce(0, &[kept(0)]),
        produce(0, &[kept(0)]),
        leave,
    ])
    .await;
}

#[tokio::test]
async fn ack_clocks_of_a_session_that_is_not_read_stand_still_in_new_subscriptions_too() {
    live(vec![
        connect(0, 0),
        Op::Pause {
            slot: 0,
            paused: true,
        },
        subscribe(0, 0, 0, ACKED, 1),
        connect(1, 1),
        produce(1, &[plain(0)]),
        pass(12_000),
    ])
    .await;
}

#[tokio::test]
async fn a_nameless_subscription_made_again_keeps_what_awaits_its_ack() {
    live(vec![
        connect(0, 3),
        subscribe(0, 3, 0, ACKED, 2),
        produce(0, &[plain(0), plain(0)]),
        subscribe(0, 3, 0, ACKED, 1),
        produce(0, &[plain(0)]),
        Op::Judge {
            slot: 0,
            nth: 1,
            verdict: Verdict::Ack,
            says_attempt: true,
        },
    ])
    .await;
}

#[tokio::test]
async fn a_plain_copy_that_waits_for_the_store_does_not_outlive_its_ttl() {
    live(vec![
        connect(0, 0),
        subscribe(0, 2, 2, OWN, 1),
        store(true, false),
        connect(1, 1),
        produce(1, &[kept(0), short(plain(0), 500)]),
        pass(5_000),
    ])
    .await;
}

#[tokio::test]
async fn a_subscription_that_the_store_does_not_remember_gets_guaranteed_messages_live() {
    live(vec![
        connect(0, 1),
        subscribe(0, 1, 0, DURABLE, 1),
        store(false, true),
        Op::Leave {
            slot: 0,
            how: Leave::Closed,
        },
        connect(1, 0),
        subscribe(1, 0, 0, OWN, 1),
        store(false, false),
        produce(1, &[kept(0)]),
    ])
    .await;
}

#[tokio::test]
async fn a_group_whose_queue_is_being_opened_gets_a_message_once() {
    live(vec![
        connect(0, 0),
        subscribe(0, 0, 1, OWN, 1),
        store(true, false),
        connect(1, 1),
        subscribe(1, 1, 1, GROUP, 1),
        produce(1, &[kept(1)]),
    ])
    .await;
}

#[tokio::test]
async fn a_claim_that_waited_does_not_throw_out_a_newer_connection_of_its_client() {
    live(vec![
        connect(0, 1),
        instance(1, 1, Some(1)),
        Op::Leave {
            slot: 0,
            how: Leave::Closed,
        },
        instance(0, 1, Some(1)),
        Op::Leave {
            slot: 1,
            how: Leave::Closed,
        },
        pass(200),
        connect(1, 1),
    ])
    .await;
}

#[tokio::test]
async fn a_producer_name_taken_by_producing_is_nobodys_older_connection() {
    let producer = |slot| Op::Producer {
        slot,
        name: 0,
        instance: Some(1),
    };
    live(vec![
        connect(0, 0),
        producer(0),
        Op::Leave {
            slot: 0,
            how: Leave::Closed,
        },
        connect(0, 0),
        produce(0, &[plain(0)]),
        connect(1, 1),
        producer(1),
    ])
    .await;
}

#[tokio::test]
async fn what_a_full_line_refused_goes_out_in_its_order() {
    live(vec![
        connect(0, 1),
        subscribe(0, 1, 1, OWN, 4),
        Op::Limit {
            slot: 0,
            room: Some(0),
        },
        connect(1, 0),
        produce(1, &[kept(1), plain(1), kept(1), plain(1)]),
        Op::Limit {
            slot: 0,
            room: None,
        },
    ])
    .await;
}

#[tokio::test]
async fn live_copies_keep_their_place_while_the_end_of_the_log_is_not_known() {
    live(vec![
        store(true, false),
        connect(0, 0),
        subscribe(0, 0, 3, OWN, 3),
        store(false, true),
        store(false, false),
        produce(0, &[plain(0), kept(0)]),
    ])
    .await;
}

#[tokio::test]
async fn a_group_member_that_left_gets_nothing_that_waited_for_the_store() {
    live(vec![
        connect(0, 0),
        subscribe(0, 0, 1, GROUP, 1),
        store(true, false),
        connect(1, 1),
        produce(1, &[kept(1), plain(1)]),
        Op::Leave {
            slot: 0,
            how: Leave::Closed,
        },
    ])
    .await;
}

#[tokio::test]
async fn a_subscription_that_is_durable_no_more_still_gets_what_it_was_owed() {
    live(vec![
        connect(0, 0),
        subscribe(0, 0, 0, DURABLE, 1),
        connect(1, 1),
        produce(1, &[plain(0), plain(0), plain(0)]),
        subscribe(0, 0, 0, OWN, 1),
        Op::Pong { slot: 0 },
    ])
    .await;
}

#[tokio::test]
async fn an_ack_is_answered_in_time_by_a_store_that_first_refuses_and_then_says_nothing() {
    live(vec![
        connect(0, 0),
        subscribe(0, 0, 0, (Who::Own, true, true), 1),
        connect(1, 1),
        produce(1, &[plain(0)]),
        store(false, true),
        Op::Judge {
            slot: 0,
            nth: 0,
            verdict: Verdict::Ack,
            says_attempt: false,
        },
        store(true, false),
        pass(100),
        pass(4_900),
    ])
    .await;
}

#[tokio::test]
async fn what_was_acked_is_not_brought_back_by_a_read_that_began_before() {
    for _ in 0..30 {
        live(vec![
            connect(1, 1),
            instance(2, 0, Some(1)),
            subscribe(2, 0, 3, ACKED, 1),
            produce(1, &[short(kept(0), 500)]),
            store(true, false),
            instance(1, 0, Some(1)),
            subscribe(1, 0, 3, ACKED, 1),
            Op::Judge {
                slot: 1,
                nth: 0,
                verdict: Verdict::Ack,
                says_attempt: false,
            },
        ])
        .await;
    }
}

#[tokio::test]
async fn what_was_out_when_its_broker_ended_comes_again_from_the_next() {
    for how in [DURABLE, (Who::Own, true, true), (Who::Group, true, true)] {
        for crashed in [true, false] {
            live(vec![
                connect(0, 0),
                subscribe(0, 0, 0, how, 1),
                produce(0, &[plain(0), plain(0)]),
                restart(crashed),
                connect(0, 0),
                produce(0, &[plain(0)]),
                subscribe(0, 0, 0, how, 2),
            ])
            .await;
        }
    }
}

#[tokio::test]
async fn a_held_message_outlives_its_broker_and_is_held_once() {
    for mark in [Mark::Number, Mark::Name] {
        let item = marked(delayed(plain(0), 4_000), mark);
        live(vec![
            connect(0, 0),
            produce(0, &[item]),
            restart(true),
            connect(0, 0),
            subscribe(0, 0, 0, DURABLE, 1),
            Op::Repeat { slot: 0, nth: 0 },
            pass(5_000),
            Op::Repeat { slot: 0, nth: 0 },
        ])
        .await;
    }
}

#[tokio::test]
async fn a_message_sent_again_to_another_broker_is_stored_once() {
    live(vec![
        connect(0, 0),
        subscribe(0, 0, 0, DURABLE, 1),
        produce(
            0,
            &[marked(kept(0), Mark::Number), marked(plain(0), Mark::Name)],
        ),
        restart(true),
        connect(0, 1),
        Op::Repeat { slot: 0, nth: 0 },
        Op::Repeat { slot: 0, nth: 1 },
    ])
    .await;
}

#[tokio::test]
async fn a_full_queue_keeps_nothing_from_others() {
    for overflow in [Overflow::Reject, Overflow::DropOldest] {
        let bounds = Bounds {
            max_queued: 2,
            overflow,
            ..Bounds::default()
        };
        live_in(
            bounds,
            vec![
                connect(0, 0),
                subscribe(0, 0, 0, DURABLE, 1),
                connect(1, 1),
                subscribe(1, 1, 0, OWN, 1),
                produce(1, &[plain(0), kept(0), plain(0), kept(0)]),
                Op::Pong { slot: 0 },
                produce(1, &[plain(0)]),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn a_broadcast_reaches_everybody_at_once_whatever_the_store_does() {
    let casts = [Item::cast(0, Cast::Realm), Item::cast(1, Cast::Group(0))];
    live(vec![
        connect(0, 0),
        subscribe(0, 0, 0, DURABLE, 1),
        connect(1, 1),
        subscribe(1, 1, 0, GROUP, 1),
        store(true, false),
        produce(1, &casts),
    ])
    .await;
}

#[tokio::test]
async fn what_was_stored_for_a_durable_subscription_comes_though_it_is_plain_by_then() {
    let items = [plain(0)];
    live(vec![
        connect(0, 0),
        connect(1, 1),
        subscribe(0, 0, 0, DURABLE, 2),
        produce(1, &items),
        store(true, false),
        produce(1, &items),
        subscribe(0, 0, 0, OWN, 1),
        store(false, false),
    ])
    .await;
}

#[tokio::test]
async fn what_a_full_queue_refuses_lets_no_later_copy_go_before_an_earlier_one() {
    let bounds = Bounds {
        max_queued: 2,
        ..Bounds::default()
    };
    let mut numbered = plain(0);
    numbered.mark = Some(Mark::Number);
    live_in(
        bounds,
        vec![
            connect(2, 0),
            subscribe(2, 1, 3, DURABLE, 1),
            Op::Restart { crashed: false },
            connect(0, 0),
            produce(0, &[plain(0)]),
            subscribe(0, 3, 3, (Who::Own, false, true), 1),
            subscribe(0, 0, 1, OWN, 1),
            produce(0, &[numbered, kept(1)]),
            connect(0, 0),
            connect(0, 0),
        ],
    )
    .await;
}
