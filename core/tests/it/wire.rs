//! What a client on the wire is told: every reply that is owed comes, and says what is true.

use serde_json::{Value, json};

use crate::harness::{Client, House};

fn text(value: &Value) -> Value {
    json!(value.to_string())
}

/// The pieces of a PRODUCE of `object` under one transfer.
fn pieces(transfer: &str, object: &Value) -> Vec<Value> {
    let text: Vec<char> = object.to_string().chars().collect();
    let pieces: Vec<String> = text.chunks(8).map(String::from_iter).collect();
    let total = pieces.len();
    let piece = |(index, data)| json!({ "transferId": transfer, "index": index, "total": total, "data": data });
    pieces.into_iter().enumerate().map(piece).collect()
}

/// Sends all pieces and waits for the answer to the last.
async fn transfer(client: &mut Client, transfer: &str, object: &Value) -> Value {
    let mut pieces = pieces(transfer, object);
    let last = pieces.pop().unwrap();
    for piece in &pieces {
        client.say("PRODUCE_CHUNK", piece).await;
    }
    client.call("PRODUCE_CHUNK", &last).await
}

#[tokio::test]
async fn a_payload_that_is_a_text_without_json_is_refused_to_who_asked_for_a_reply() {
    let house = House::plain().await;
    let mut c = house.consumer("c").await;
    for verb in [
        "PRODUCE",
        "PRODUCE_CHUNK",
        "CONSUMER",
        "PRODUCER",
        "SUBSCRIBE",
        "ACK",
        "NACK",
        "WORKING",
    ] {
        let answer = c.call(verb, &json!("no json")).await;
        assert_eq!(answer["ok"], false, "{verb}: {answer}");
        assert_eq!(answer["error"], "bad_command", "{verb}: {answer}");
    }
    let subscribe = json!({ "event": "e", "consumer": "c" });
    assert_eq!(c.call("SUBSCRIBE", &text(&subscribe)).await["ok"], true);
    house.close().await;
}

#[tokio::test]
async fn with_authentication_off_whatever_is_shown_lets_in() {
    let house = House::plain().await;
    let mut c = house.consumer("c").await;
    let nested = json!({ "token": {}, "role": [1] });
    for shown in [json!({ "token": 5 }), json!("no json"), json!(7), nested] {
        let answer = c.call("AUTHENTICATION", &shown).await;
        let said = (&answer["ok"], &answer["realm"], &answer["role"]);
        let expected = (&json!(true), &json!("default"), &json!("both"));
        assert_eq!(said, expected, "{shown}: {answer}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_transfer_that_comes_again_is_answered_as_a_duplicate_and_stored_once() {
    let house = House::plain().await;
    let mut c = house.consumer("c").await;
    c.subscribe(json!({ "event": "e", "producer": "p", "durable": true }))
        .await;
    c.leave().await;
    let mut p = house.producer("p").await;
    let object = json!({ "event": "e", "message": "some text", "from": "p" });
    let first = transfer(&mut p, "t", &object).await;
    assert_eq!((&first["ok"], &first["queued"]), (&json!(true), &json!(1)));
    let again = transfer(&mut p, "t", &object).await;
    assert_eq!(
        (&again["ok"], &again["duplicate"], &again["id"]),
        (&json!(true), &json!(true), &first["id"])
    );
    assert_eq!(again["queued"], 0);
    assert_eq!(house.depth().await, 1);
    let refused = json!({ "event": "", "message": "some text", "from": "p" });
    assert_eq!(
        transfer(&mut p, "u", &refused).await["error"],
        "bad_command"
    );
    assert_eq!(
        transfer(&mut p, "u", &refused).await["error"],
        "chunk_dropped"
    );
    house.close().await;
}

#[tokio::test]
async fn a_repeat_of_a_delayed_message_says_that_it_is_still_held() {
    let house = House::plain().await;
    let mut p = house.producer("p").await;
    let fields = json!({ "delay": "1h", "msg_uid": "u", "instance_seq": ["i", 1] });
    let first = p.produce("e", json!(1), fields.clone()).await;
    assert_eq!(
        (&first["delayed"], &first["duplicate"]),
        (&json!(true), &json!(false))
    );
    let mut other = house.producer("p").await;
    let again = other.produce("e", json!(1), fields).await;
    assert_eq!(
        (&again["delayed"], &again["duplicate"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(again["id"], first["id"]);
    house.close().await;
}

#[tokio::test]
async fn unsubscribe_takes_a_key_in_any_case_and_nobody_elses() {
    let house = House::plain().await;
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
