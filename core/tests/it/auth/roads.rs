//! Rights on the concrete event on every road (P30, P37; TC-M01, TC-M03, TC-M07).

use std::time::Duration;

use restante::clock::Clock;
use restante::model::RealmId;
use serde_json::{Value, json};

use super::{Guarded, with};
use crate::harness::Client;

/// Produces on a road; the answer.
async fn produce(client: &mut Client, road: &str, event: &str) -> Value {
    let name = client.name.clone();
    let object = |fields: Value| {
        let mut object = json!({ "event": event, "message": 1, "from": name });
        object
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        object
    };
    match road {
        "socket" => client.call("PRODUCE", &object(json!({}))).await,
        "text" => {
            client
                .call("PRODUCE", &json!(object(json!({})).to_string()))
                .await
        }
        "guaranteed" => {
            client
                .call("PRODUCE", &object(json!({ "guaranteed": true })))
                .await
        }
        "delayed" => {
            client
                .call("PRODUCE", &object(json!({ "delay": "1m" })))
                .await
        }
        "broadcast" => {
            client
                .call("PRODUCE", &object(json!({ "method": "broadcast" })))
                .await
        }
        "group broadcast" => {
            let to = json!({ "method": "broadcast", "broadcast": "group", "group": "ng" });
            client.call("PRODUCE", &object(to)).await
        }
        "chunk" => {
            let data = object(json!({})).to_string();
            let transfer = format!("t-{event}");
            let piece = json!({ "transferId": transfer, "index": 0, "total": 1, "data": data });
            client.call("PRODUCE_CHUNK", &piece).await
        }
        _ => panic!("no such road: {road}"),
    }
}

const ROADS: &[&str] = &[
    "socket",
    "text",
    "guaranteed",
    "delayed",
    "broadcast",
    "group broadcast",
    "chunk",
];

#[tokio::test]
async fn an_event_that_may_not_be_produced_is_refused_on_every_road() {
    let guarded = Guarded::start().await;
    let mut watch = guarded.named("closed-both", "watch").await;
    let all = json!({ "event": "#", "mode": "topic", "producer": "TYO-MQ-ALL", "durable": true });
    watch.subscribe(all).await;
    let mut client = guarded.named("narrow", "n").await;
    for road in ROADS {
        for event in ["b/1", "B", "ab"] {
            let told = produce(&mut client, road, event).await;
            assert_eq!(told["error"], "forbidden", "{road} {event}: {told}");
            assert_eq!(told["code"], 403);
        }
        // Asked twice, of the cache and without it.
        for event in ["a/1", "A/1", "a/1"] {
            let told = produce(&mut client, road, event).await;
            let is_repeated = *road == "chunk" && told["duplicate"] == true;
            assert!(told["ok"] == true || is_repeated, "{road} {event}: {told}");
        }
    }
    guarded.house.clock.advance(Duration::from_secs(61));
    loop {
        let seen = watch.delivery().await["event"].clone();
        assert!(
            seen.as_str().unwrap().to_lowercase().starts_with("a/"),
            "{seen}"
        );
        if seen == "end" || watch.rest().await == 0 {
            break;
        }
    }
    guarded.house.close().await;
}

#[tokio::test]
async fn a_binary_message_is_held_to_the_same() {
    let guarded = Guarded::start().await;
    let mut client = guarded.named("narrow", "n").await;
    let frame = |id: u64, event: &str| {
        let bytes = json!({ "_placeholder": true, "num": 0 });
        let object = json!({ "event": event, "message": bytes, "from": "n" });
        format!("451-{id}{}", json!(["PRODUCE", object]))
    };
    for (id, event, is_allowed) in [(901, "b", false), (902, "a/1", true)] {
        client.raw(&frame(id, event)).await;
        client.raw_binary(&[1, 2, 3]).await;
        assert_eq!(client.answer(id).await["ok"], is_allowed, "{event}");
    }
    guarded.house.close().await;
}

#[tokio::test]
async fn a_producer_is_who_it_registered_as() {
    let guarded = Guarded::start().await;
    let mut honest = guarded.named("closed-both", "honest").await;
    let mut thief = guarded.named("closed-producer", "thief").await;
    for road in ROADS {
        thief.name = "honest".to_owned();
        let told = produce(&mut thief, road, "e").await;
        assert_eq!(told["error"], "forbidden", "{road}: {told}");
        thief.name = "nobody".to_owned();
        let told = produce(&mut thief, road, "e").await;
        assert_eq!(told["error"], "forbidden", "{road}: {told}");
    }
    let missing = json!({ "event": "e", "message": 1 });
    assert_eq!(thief.call("PRODUCE", &missing).await["code"], 403);
    assert_eq!(produce(&mut honest, "socket", "e").await["ok"], true);
    let sessions = guarded.house.server.broker().sessions_of(None);
    let names: Vec<&str> = sessions
        .iter()
        .flat_map(|session| session.producers.iter().map(|name| name.as_str()))
        .collect();
    assert_eq!(names, ["honest", "thief"]);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_credential_takes_only_names_of_its_patterns() {
    let guarded = Guarded::start().await;
    let mut client = guarded.named("narrow", "n").await;
    for verb in ["CONSUMER", "PRODUCER"] {
        let told = client.call(verb, &json!({ "name": "other" })).await;
        assert_eq!(told["error"], "forbidden", "{verb}");
    }
    for fields in [
        json!({ "consumer": "other" }),
        json!({ "consumer_id": "other" }),
        json!({ "group": "other" }),
    ] {
        let mut wish = json!({ "event": "a/1", "consumer": "n" });
        wish.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let told = client.call("SUBSCRIBE", &wish).await;
        assert_eq!(told["error"], "forbidden", "{wish}");
    }
    let fine = json!({ "event": "a/1", "consumer": "n2", "consumer_id": "n3", "group": "ng" });
    assert_eq!(client.call("SUBSCRIBE", &fine).await["ok"], true);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_realm_that_takes_encrypted_bodies_takes_nothing_else() {
    let guarded = Guarded::start().await;
    let mut client = guarded.named("sealed", "s").await;
    for road in ROADS {
        let told = produce(&mut client, road, "e").await;
        assert_eq!(
            (&told["code"], &told["error"]),
            (&json!(-6), &json!("e2ee_required")),
            "{road}"
        );
    }
    let sealed = json!({ "event": "e", "message": "x", "from": "s", "enc": { "v": 1 } });
    assert_eq!(client.call("PRODUCE", &sealed).await["ok"], true);
    guarded.house.close().await;
}

/// The ways in which an event may reach a session that may not see all.
#[tokio::test]
async fn a_narrow_consumer_receives_on_every_road_what_it_may() {
    let guarded = Guarded::start().await;
    let mut producer = guarded.named("closed-both", "p").await;
    for (fields, road) in [
        (json!({}), "live"),
        (json!({ "ack": true }), "tracked"),
        (json!({ "durable": true }), "stored"),
        (json!({ "durable": true, "ack": true }), "stored, tracked"),
        (json!({ "group": "ng" }), "group"),
        (json!({ "group": "ng2", "durable": true }), "durable group"),
    ] {
        for key in [
            json!({ "event": "#", "mode": "topic", "producer": "TYO-MQ-ALL" }),
            json!({ "producer": "p", "scope": "all" }),
        ] {
            let mut client = guarded.named("narrow", "n").await;
            let mut wish = key.clone();
            wish.as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            let subscribed = client
                .call("SUBSCRIBE", &with(&wish, json!({ "consumer": "n" })))
                .await;
            assert_eq!(subscribed["ok"], true, "{road} {key}: {subscribed}");
            for event in ["b", "a/1", "b/1", "a/2"] {
                producer
                    .produce(event, json!(event), json!({ "guaranteed": true }))
                    .await;
                producer
                    .produce(event, json!(event), json!({ "ttl": 0 }))
                    .await;
            }
            for _ in 0..4 {
                let delivery = client.delivery().await;
                let seen = delivery["event"].as_str().unwrap();
                assert!(seen.starts_with("a/"), "{road} {key}: {seen}");
                if delivery["msgId"].is_string() {
                    client.ack(&delivery).await;
                }
            }
            assert_eq!(client.rest().await, 0, "{road} {key}");
            let all = with(&key, json!({ "consumer": "n", "purge": true }));
            client.call("UNSUBSCRIBE", &all).await;
            client.leave().await;
        }
    }
    guarded.house.close().await;
}

#[tokio::test]
async fn an_exact_event_that_may_not_be_received_is_refused() {
    let guarded = Guarded::start().await;
    let mut client = guarded.named("narrow", "n").await;
    for wish in [
        json!({ "event": "b", "producer": "p" }),
        json!({ "event": "b", "producer": "TYO-MQ-ALL" }),
        json!({ "event": "b", "producer": "p", "durable": true }),
        json!({ "event": "b", "producer": "p", "group": "ng" }),
    ] {
        let told = client
            .call("SUBSCRIBE", &with(&wish, json!({ "consumer": "n" })))
            .await;
        assert_eq!(
            (&told["code"], &told["error"]),
            (&json!(403), &json!("forbidden")),
            "{wish}"
        );
    }
    guarded.house.close().await;
}

#[tokio::test]
async fn a_broadcast_reaches_who_may_see_its_event() {
    let guarded = Guarded::start().await;
    let mut producer = guarded.named("closed-both", "p").await;
    let mut client = guarded.named("narrow", "n").await;
    let mut mute = guarded.named("closed-producer", "mute").await;
    let group = json!({ "event": "a/1", "consumer": "n", "group": "ng" });
    assert_eq!(client.call("SUBSCRIBE", &group).await["ok"], true);
    for event in ["b", "a/9"] {
        producer
            .produce(event, json!(event), json!({ "method": "broadcast" }))
            .await;
        let to = json!({ "method": "broadcast", "broadcast": "group", "group": "ng" });
        producer.produce(event, json!(event), to).await;
    }
    assert_eq!(client.messages(2).await, [json!("a/9"), json!("a/9")]);
    assert_eq!((client.rest().await, mute.rest().await), (0, 0));
    guarded.house.close().await;
}

#[tokio::test]
async fn a_dead_letter_comes_back_only_to_who_may_see_it() {
    let guarded = Guarded::start().await;
    let mut producer = guarded.named("closed-both", "p").await;
    let mut wide = guarded.named("wide", "n").await;
    let wish = json!({ "event": "#", "mode": "topic", "producer": "TYO-MQ-ALL", "durable": true,
        "ack": true, "consumer": "n" });
    assert_eq!(wide.call("SUBSCRIBE", &wish).await["ok"], true);
    for event in ["b", "a/1"] {
        producer.produce(event, json!(event), json!({})).await;
        let delivery = wide.delivery().await;
        wide.settle("NACK", &delivery, json!({ "requeue": false }))
            .await;
    }
    wide.leave().await;
    let mut narrow = guarded.named("narrow", "n").await;
    assert_eq!(narrow.call("SUBSCRIBE", &wish).await["ok"], true);
    let (broker, realm) = (
        guarded.house.server.broker(),
        RealmId::parse("closed").unwrap(),
    );
    let letters = broker.dead_letters(&realm, None, 10).await.unwrap();
    assert_eq!(letters.len(), 2);
    for letter in letters {
        broker.requeue(&realm, letter.id).await.unwrap();
    }
    let delivery = narrow.delivery().await;
    assert_eq!(delivery["event"], "a/1");
    narrow.ack(&delivery).await;
    assert_eq!(narrow.rest().await, 0);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_delayed_message_goes_out_by_the_rights_of_when_it_is_due() {
    let guarded = Guarded::start().await;
    let mut consumer = guarded.named("closed-consumer", "c").await;
    consumer
        .subscribe(json!({ "event": "e", "producer": "TYO-MQ-ALL", "durable": true }))
        .await;
    let due = guarded.house.clock.now().0 + 60_000;
    for token in ["closed-producer", "closed-both"] {
        let mut producer = guarded.client(token).await;
        let told = producer
            .produce("e", json!(token), json!({ "deliver_at": due }))
            .await;
        assert_eq!(told["delayed"], true, "{told}");
        producer.leave().await;
    }
    let choice =
        restante::auth::TokenChoice::Hash(restante::auth::TokenHash::of("closed-producer"));
    guarded.auth.revoke_token(choice, false).await.unwrap();
    guarded.house.clock.advance(Duration::from_secs(61));
    assert_eq!(consumer.messages(1).await, [json!("closed-both")]);
    assert_eq!(consumer.rest().await, 0);
    guarded.house.close().await;
}
