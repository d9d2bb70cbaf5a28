//! Cases of `docs/` whose clock must move or whose outcome only the operator sees; the others are in
//! `__test__/cases`. Each name begins with the case.

use std::time::Duration;

use restante::model::RealmId;
use restante::store::{Bounds, Overflow};
use serde_json::{Value, json};

use crate::harness::{House, On, on_each_store, size};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

on_each_store! {
    a12_every_produce_is_answered_or_its_connection_ended_when_the_realm_goes_p2,
    a14_of_short_and_long_lived_messages_only_the_long_ones_wait_p15,
    b02_a_handler_that_says_it_works_keeps_its_delivery_past_the_ack_timeout_p13,
    b02_a_handler_that_says_nothing_loses_its_delivery_after_the_ack_timeout_p10,
    c05_of_an_ordering_key_the_rest_waits_while_its_first_is_retried_p8,
    e01_sessions_that_came_and_went_are_in_no_count_p25,
    e06_a_durable_consumer_that_never_returns_costs_a_bounded_amount_and_ends_p4_p25,
    e08_a_full_queue_refuses_or_drops_its_oldest_and_counts_both_p2_p25,
    e10_dead_letters_are_bounded_in_number_and_age_oldest_first_p25_p37,
    f05_a_message_that_kills_its_consumer_three_times_is_a_dead_letter_with_its_story_p10,
    f15_members_that_all_timed_out_once_work_on_and_none_is_counted_twice_p18,
}

fn durable() -> Value {
    json!({ "event": "e", "producer": "p", "durable": true })
}

fn acked() -> Value {
    json!({ "event": "e", "producer": "p", "durable": true, "ack": true })
}

fn with(mut fields: Value, more: Value) -> Value {
    let Value::Object(more) = more else {
        panic!("an object")
    };
    fields.as_object_mut().unwrap().extend(more);
    fields
}

fn numbers(range: std::ops::Range<usize>) -> Vec<Value> {
    range.map(|n| json!(n)).collect()
}

async fn a12_every_produce_is_answered_or_its_connection_ended_when_the_realm_goes_p2(on: On) {
    let house = House::on(on).await;
    let mut c = house.consumer("c").await;
    c.subscribe(with(durable(), json!({ "producer": "TYO-MQ-ALL" })))
        .await;
    c.leave().await;
    for round in 0..3 {
        let mut p = house.producer("p").await;
        for n in 0..50 {
            p.send("e", json!(n), json!({})).await;
        }
        p.sync().await;
        let dropped = house.server.broker().purge_realm(&RealmId::default()).await;
        assert_eq!(dropped.unwrap(), if round == 0 { 50 } else { 0 });
        p.ended().await;
        assert_eq!(house.depth().await, 0);
    }
    let mut p = house.producer("p").await;
    assert_eq!(p.produce("e", json!(1), json!({})).await["ok"], true);
    house.close().await;
}

async fn a14_of_short_and_long_lived_messages_only_the_long_ones_wait_p15(on: On) {
    let house = House::on(on).await;
    let mut p = house.producer("p").await;
    let mut c = house.consumer("c").await;
    c.subscribe(durable()).await;
    c.leave().await;
    for n in 0..5 {
        for ttl in ["1s", "60s"] {
            let answer = p.produce("e", json!([n, ttl]), json!({ "ttl": ttl })).await;
            assert_eq!(answer["queued"], 1, "{answer}");
        }
    }
    assert_eq!(
        p.produce("e", json!("now"), json!({ "ttl": 0 })).await["queued"],
        0
    );
    for ttl in [
        json!(-1),
        json!("soon"),
        json!("5 minutes"),
        json!({}),
        json!(true),
    ] {
        let answer = p.produce("e", json!("no"), json!({ "ttl": ttl })).await;
        assert_eq!(
            (&answer["ok"], &answer["code"]),
            (&json!(false), &json!(-5)),
            "{ttl}"
        );
    }
    house.clock.advance(2 * SECOND);
    let mut back = house.consumer("c").await;
    back.subscribe(durable()).await;
    let long: Vec<Value> = (0..5).map(|n| json!([n, "60s"])).collect();
    assert_eq!(back.messages(5).await, long);
    p.send("e", json!("after"), json!({})).await;
    assert_eq!(back.messages(1).await, [json!("after")]);
    assert_eq!(back.rest().await, 0);
    house
        .until("five are counted", |house| {
            house.server.metrics().expired.total() == 5
        })
        .await;
    house.close().await;
}

async fn b02_a_handler_that_says_it_works_keeps_its_delivery_past_the_ack_timeout_p13(on: On) {
    let house = House::on(on).await;
    let mut p = house.producer("p").await;
    let mut c = house.consumer("c").await;
    let wish = with(
        acked(),
        json!({ "ack_timeout": "1s", "retry": { "delay": "10ms" } }),
    );
    c.subscribe(wish).await;
    p.produce("e", json!("long"), json!({})).await;
    let delivery = c.delivery().await;
    for _ in 0..10 {
        house.clock.advance(SECOND / 2);
        let answer = c.settle("WORKING", &delivery, json!({})).await;
        assert_eq!(answer["ok"], true, "{answer}");
    }
    c.ack(&delivery).await;
    house.clock.advance(HOUR);
    p.produce("e", json!("next"), json!({})).await;
    assert_eq!(c.messages(1).await, [json!("next")]);
    assert_eq!(house.server.metrics().ack_timeouts.total(), 0);
    house.close().await;
}

async fn b02_a_handler_that_says_nothing_loses_its_delivery_after_the_ack_timeout_p10(on: On) {
    let house = House::on(on).await;
    let mut p = house.producer("p").await;
    let mut c = house.consumer("c").await;
    let wish = with(
        acked(),
        json!({ "ack_timeout": "1s", "retry": { "delay": "10ms" } }),
    );
    c.subscribe(wish).await;
    p.produce("e", json!("long"), json!({})).await;
    let first = c.delivery().await;
    house.clock.advance(SECOND);
    house
        .until("a timeout", |house| {
            house.server.metrics().ack_timeouts.total() == 1
        })
        .await;
    house.clock.advance(SECOND / 100);
    let second = c.delivery().await;
    assert_eq!(
        (&second["msgId"], &second["delivery_attempt"]),
        (&first["msgId"], &json!(2))
    );
    house.close().await;
}

async fn c05_of_an_ordering_key_the_rest_waits_while_its_first_is_retried_p8(on: On) {
    for succeeds in [true, false] {
        let house = House::on(on).await;
        let mut p = house.producer("p").await;
        let mut c = house.consumer("c").await;
        let attempts = if succeeds { 9 } else { 2 };
        let retry = json!({ "retry": { "delay": "1s", "max_attempts": attempts } });
        c.subscribe(with(acked(), retry)).await;
        for (message, key) in [("A1", "A"), ("A2", "A"), ("A3", "A"), ("B1", "B")] {
            p.produce("e", json!(message), json!({ "key": key })).await;
        }
        let first = c.delivery().await;
        assert_eq!(first["message"], "A1");
        let other = c.delivery().await;
        assert_eq!(other["message"], "B1", "another key is not held up");
        c.ack(&other).await;
        c.settle("NACK", &first, json!({})).await;
        assert_eq!(c.rest().await, 0);
        house.clock.advance(SECOND);
        let second = c.delivery().await;
        assert_eq!(
            (&second["message"], &second["delivery_attempt"]),
            (&json!("A1"), &json!(2))
        );
        c.settle("NACK", &second, json!({})).await;
        if succeeds {
            house.clock.advance(SECOND);
            let third = c.delivery().await;
            assert_eq!(
                (&third["message"], &third["delivery_attempt"]),
                (&json!("A1"), &json!(3))
            );
            assert_eq!(c.rest().await, 0);
            c.ack(&third).await;
        }
        for expected in ["A2", "A3"] {
            let next = c.delivery().await;
            assert_eq!(
                (&next["message"], &next["delivery_attempt"]),
                (&json!(expected), &json!(1))
            );
            assert_eq!(c.rest().await, 0, "one of a key is out");
            c.ack(&next).await;
        }
        let dead = house.dead_letters(10).await;
        assert_eq!(dead.len(), usize::from(!succeeds));
        house.close().await;
    }
}

async fn e01_sessions_that_came_and_went_are_in_no_count_p25(on: On) {
    let house = House::on(on).await;
    let rounds = size(200, 2_000);
    for n in 0..rounds {
        let mut c = house.consumer(&format!("c{n}")).await;
        c.subscribe(json!({ "event": format!("e{n}"), "producer": format!("p{n}") }))
            .await;
        c.leave().await;
        house.producer(&format!("p{n}")).await.leave().await;
    }
    house
        .until("all are offline", |house| {
            house.server.broker().sessions() == 0
        })
        .await;
    let stats = |house: &House| house.server.broker().stats()[1].1;
    let before = stats(&house);
    assert_eq!((before.consumers, before.consumers_online), (rounds, 0));
    assert_eq!((before.producers, before.producers_online), (rounds, 0));
    house
        .until("connections end", |house| {
            house.server.connections().sessions == 0
        })
        .await;
    // Idle names leave after five minutes, plain subscriptions after a day without a message.
    house.clock.advance(HOUR);
    house.server.broker().sweep().await;
    let idle = stats(&house);
    assert_eq!(
        (idle.consumers, idle.producers, idle.queues),
        (0, 0, rounds)
    );
    house.clock.advance(DAY);
    house.server.broker().sweep().await;
    let gone = stats(&house);
    assert_eq!((gone.queues, gone.subscriptions, gone.sessions), (0, 0, 0));
    house.close().await;
}

async fn e06_a_durable_consumer_that_never_returns_costs_a_bounded_amount_and_ends_p4_p25(on: On) {
    let most = 1_000;
    let bounds = Bounds {
        max_queued: most,
        overflow: Overflow::DropOldest,
        ..Bounds::default()
    };
    let house = House::start(on, bounds, |_| {}).await;
    let mut p = house.producer("p").await;
    let mut c = house.consumer("c").await;
    c.subscribe(durable()).await;
    c.leave().await;
    let count = size(20_000, 1_000_000);
    for n in 0..count {
        p.send("e", json!(n), json!({ "ttl": 60 })).await;
        if n % 500 == 499 {
            p.sync().await;
            assert!(house.depth().await <= most);
        }
    }
    let queues = || async {
        let realm = RealmId::default();
        house.server.broker().queue_stats(&realm).await.unwrap()
    };
    assert_eq!(
        queues()
            .await
            .iter()
            .map(|queue| queue.waiting)
            .collect::<Vec<_>>(),
        [most]
    );
    let dropped = count as u64 - most;
    house
        .until("all are stored", |house| {
            house.counters().dropped_oldest == dropped
        })
        .await;
    house.clock.advance(61 * SECOND);
    house.server.broker().sweep().await;
    assert_eq!(house.depth().await, 0);
    assert_eq!(house.counters().expired, most);
    house.clock.advance(30 * DAY);
    house.server.broker().sweep().await;
    assert_eq!(queues().await.len(), 0);
    assert_eq!(house.server.metrics().forgotten.total(), 1);
    assert_eq!(p.produce("e", json!(1), json!({})).await["queued"], 0);
    house.close().await;
}

async fn e08_a_full_queue_refuses_or_drops_its_oldest_and_counts_both_p2_p25(on: On) {
    for overflow in [Overflow::Reject, Overflow::DropOldest] {
        let bounds = Bounds {
            max_queued: 100,
            overflow,
            ..Bounds::default()
        };
        let house = House::start(on, bounds, |_| {}).await;
        let mut p = house.producer("p").await;
        let mut c = house.consumer("c").await;
        c.subscribe(durable()).await;
        c.leave().await;
        let mut refused = 0;
        for n in 0..150 {
            let answer = p.produce("e", json!(n), json!({})).await;
            if answer["ok"] == true {
                assert_eq!(answer["queued"], 1);
                continue;
            }
            assert_eq!(answer["error"], "queue_full");
            refused += 1;
        }
        let mut back = house.consumer("c").await;
        assert_eq!(back.subscribe(durable()).await["queued"], 100);
        let counters = house.counters();
        match overflow {
            Overflow::Reject => {
                assert_eq!(
                    (refused, counters.refused, counters.dropped_oldest),
                    (50, 50, 0)
                );
                assert_eq!(back.messages(100).await, numbers(0..100));
                assert_eq!(house.server.metrics().refused.total(), 50);
            }
            Overflow::DropOldest => {
                assert_eq!(
                    (refused, counters.refused, counters.dropped_oldest),
                    (0, 0, 50)
                );
                assert_eq!(back.messages(100).await, numbers(50..150));
            }
        }
        assert_eq!(back.rest().await, 0);
        house.close().await;
    }
}

async fn e10_dead_letters_are_bounded_in_number_and_age_oldest_first_p25_p37(on: On) {
    let most = size(100, 10_000);
    let count = size(2_000, 200_000);
    let bounds = Bounds {
        dlq_max_per_realm: most,
        dlq_ttl: HOUR,
        ..Bounds::default()
    };
    let house = House::start(on, bounds, |_| {}).await;
    let mut p = house.producer("p").await;
    let mut c = house.consumer("c").await;
    c.subscribe(acked()).await;
    for n in 0..count {
        p.send("e", json!(n), json!({})).await;
        let delivery = c.delivery().await;
        assert_eq!(delivery["message"], n);
        c.settle(
            "NACK",
            &delivery,
            json!({ "requeue": false, "reason": "no" }),
        )
        .await;
    }
    let dead = house.dead_letters(2 * most).await;
    let bodies: Vec<String> = dead
        .iter()
        .map(|dead| String::from_utf8(dead.message.body.clone().unwrap().to_vec()).unwrap())
        .collect();
    let newest: Vec<String> = (count - most..count).map(|n| n.to_string()).collect();
    assert_eq!(bodies, newest);
    assert!(
        dead.iter()
            .all(|dead| &*dead.reason == "no" && dead.attempts == 1)
    );
    let counters = house.counters();
    assert_eq!(counters.buried, count as u64);
    assert_eq!(counters.dead_letters_dropped, (count - most) as u64);
    house.clock.advance(HOUR + SECOND);
    house.server.broker().sweep().await;
    assert_eq!(house.dead_letters(2 * most).await.len(), 0);
    assert_eq!(house.counters().dead_letters_expired, most as u64);
    house.close().await;
}

async fn f05_a_message_that_kills_its_consumer_three_times_is_a_dead_letter_with_its_story_p10(
    on: On,
) {
    let house = House::on(on).await;
    let mut p = house.producer("p").await;
    let wish = with(
        acked(),
        json!({ "prefetch": 1, "retry": { "max_attempts": 3, "delay": "1s" } }),
    );
    let mut c = house.consumer("c").await;
    c.subscribe(wish.clone()).await;
    p.produce("e", json!("poison"), json!({})).await;
    p.produce("e", json!("good"), json!({})).await;
    for attempt in 1..=3 {
        let delivery = c.delivery().await;
        assert_eq!(
            (&delivery["message"], &delivery["delivery_attempt"]),
            (&json!("poison"), &json!(attempt))
        );
        c.cut();
        house
            .until("the cut is seen", |house| {
                house.server.broker().sessions() == 1
            })
            .await;
        c = house.consumer("c").await;
        c.subscribe(wish.clone()).await;
    }
    let good = c.delivery().await;
    assert_eq!(good["message"], "good");
    c.ack(&good).await;
    let dead = house.dead_letters(10).await;
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].attempts, dead[0].rounds), (3, 1));
    let reason = "the consumer's connection ended while it held the message";
    assert_eq!(&*dead[0].reason, reason);
    assert_eq!(dead[0].first_error.as_deref(), Some(reason));
    assert_eq!(dead[0].last_error.as_deref(), Some(reason));
    assert_eq!(dead[0].message.body.as_deref(), Some(&br#""poison""#[..]));
    house.close().await;
}

async fn f15_members_that_all_timed_out_once_work_on_and_none_is_counted_twice_p18(on: On) {
    let house = House::on(on).await;
    let mut p = house.producer("p").await;
    let wish = with(
        acked(),
        json!({ "group": "g", "ack_timeout": "1s", "prefetch": 1, "retry": { "delay": "1s", "max_attempts": 9 } }),
    );
    let mut members = [house.consumer("one").await, house.consumer("two").await];
    for member in &mut members {
        member.subscribe(wish.clone()).await;
    }
    for n in 0..2 {
        p.produce("e", json!(n), json!({})).await;
    }
    for member in &mut members {
        assert_eq!(member.delivery().await["delivery_attempt"], 1);
    }
    house.clock.advance(SECOND);
    house
        .until("both timed out", |house| {
            house.server.metrics().ack_timeouts.total() == 2
        })
        .await;
    house.clock.advance(SECOND);
    let mut seen = Vec::new();
    for member in &mut members {
        let delivery = member.delivery().await;
        assert_eq!(delivery["delivery_attempt"], 2);
        seen.push(delivery["message"].as_u64().unwrap());
        member.ack(&delivery).await;
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1]);
    for n in 2..10 {
        p.produce("e", json!(n), json!({})).await;
    }
    let [one, two] = &mut members;
    for _ in 0..4 {
        let (a, b) = tokio::join!(one.delivery(), two.delivery());
        one.ack(&a).await;
        two.ack(&b).await;
    }
    let realm = RealmId::default();
    let queues = house.server.broker().queue_stats(&realm).await.unwrap();
    assert_eq!(queues.len(), 1);
    assert_eq!(
        (queues[0].sessions, queues[0].waiting, queues[0].in_flight),
        (2, 0, 0)
    );
    assert_eq!(house.dead_letters(10).await.len(), 0);
    house.close().await;
}
