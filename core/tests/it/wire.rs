//! What a client on the wire is told: every reply that is owed comes, and says what is true.

use restante::store::Bounds;
use serde_json::json;

use crate::harness::House;

#[tokio::test]
async fn unsubscribe_takes_a_key_in_any_case_and_nobody_elses() {
    let house = House::start(Bounds::default(), |_| {}).await;
    let mut c = house.consumer("c").await;
    let mut other = house.consumer("other").await;
    c.subscribe(json!({ "event": "Paid", "producer": "Orders" }))
        .await;
    c.subscribe(json!({ "producer": "Orders", "scope": "all" }))
        .await;
    c.subscribe(json!({ "event": "TM-ALL", "producer": "Orders" }))
        .await;
    for mine in [
        json!("Orders-PAID"),
        json!({ "event": "PAID", "producer": "Orders" }),
    ] {
        let refused = other.call("UNSUBSCRIBE", &mine).await;
        assert_eq!(refused["code"], 403, "{refused}");
    }
    let unknown = other.call("UNSUBSCRIBE", &json!("orders-open")).await;
    assert_eq!(
        (&unknown["ok"], &unknown["removed"]),
        (&json!(true), &json!(0))
    );
    let own = json!({ "event": "paid", "producer": "Orders", "consumer": "other" });
    let unknown = other.call("UNSUBSCRIBE", &own).await;
    assert_eq!(
        (&unknown["ok"], &unknown["removed"]),
        (&json!(true), &json!(0))
    );
    for (key, removed) in [
        ("Orders-PAID", 1),
        ("Orders-Paid", 0),
        ("orders-TM-ALL", 1),
        ("ORDERS-tm-all", 1),
        ("orders-tm-all", 0),
    ] {
        let answer = c.call("UNSUBSCRIBE", &json!(key)).await;
        assert_eq!(answer["removed"], removed, "{key}: {answer}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_verb_without_an_event_is_refused_under_its_own_name() {
    let house = House::plain().await;
    let mut c = house.consumer("c").await;
    for verb in ["SUBSCRIBE", "UNSUBSCRIBE"] {
        let answer = c.call(verb, &json!({})).await;
        assert_eq!(answer["ok"], false);
        let message = answer["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{verb} ")), "{message}");
    }
    house.close().await;
}
