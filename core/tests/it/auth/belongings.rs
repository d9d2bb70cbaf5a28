//! What a credential has made is its own (P9, P30; TC-M06, TC-M07, TC-M09; scenario 16).

use restante::ErrorKind;
use restante::model::RealmId;
use serde_json::json;

use super::{Guarded, shown, with};

#[tokio::test]
async fn a_queue_is_its_credentials_and_no_one_elses() {
    let guarded = Guarded::start().await;
    let wish =
        json!({ "event": "e", "producer": "p", "durable": true, "ack": true, "consumer": "c" });
    let mut owner = guarded.named("closed-both", "c").await;
    assert_eq!(owner.call("SUBSCRIBE", &wish).await["ok"], true);
    let mut producer = guarded.named("closed-producer", "p").await;
    producer.produce("e", json!(1), json!({})).await;
    let delivery = owner.delivery().await;
    owner.leave().await;
    let mut thief = guarded.named("closed-manager", "c").await;
    let told = thief.call("SUBSCRIBE", &wish).await;
    assert_eq!(
        (&told["code"], &told["error"]),
        (&json!(403), &json!("consumer_id_taken"))
    );
    for verb in ["ACK", "NACK", "WORKING"] {
        assert_eq!(
            thief.settle(verb, &delivery, json!({})).await["code"],
            403,
            "{verb}"
        );
    }
    let ended = with(&wish, json!({ "purge": true }));
    assert_eq!(thief.call("UNSUBSCRIBE", &ended).await["removed"], 0);
    let mut keyless = guarded.stranger().await;
    keyless.call("CONSUMER", &json!({ "name": "k" })).await;
    assert_eq!(
        keyless.settle("ACK", &delivery, json!({})).await["code"],
        404
    );
    thief.leave().await;
    let mut owner = guarded.named("closed-both", "c").await;
    assert_eq!(owner.call("SUBSCRIBE", &wish).await["queued"], 1);
    guarded.house.close().await;
}

/// TC-M06.
#[tokio::test]
async fn what_is_in_another_realm_is_not_there() {
    let guarded = Guarded::start().await;
    let wish = json!({ "event": "e", "producer": "p", "durable": true, "ack": true, "group": "g",
        "consumer": "c" });
    let mut here = guarded.named("closed-both", "c").await;
    let mut there = guarded.named("other-both", "c").await;
    for client in [&mut here, &mut there] {
        assert_eq!(client.call("SUBSCRIBE", &wish).await["ok"], true);
    }
    let mut producer = guarded.named("closed-producer", "p").await;
    producer.produce("e", json!(1), json!({})).await;
    let delivery = here.delivery().await;
    for verb in ["ACK", "NACK", "WORKING"] {
        let told = there.settle(verb, &delivery, json!({})).await;
        assert_eq!(told["code"], 404, "{verb}");
    }
    let bury = json!({ "requeue": false });
    assert_eq!(here.settle("NACK", &delivery, bury).await["ok"], true);
    let broker = guarded.house.server.broker();
    let (own, foreign) = (
        RealmId::parse("closed").unwrap(),
        RealmId::parse("other").unwrap(),
    );
    let letters = broker.dead_letters(&own, None, 10).await.unwrap();
    assert!(
        broker
            .dead_letters(&foreign, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
    let stolen = broker.requeue(&foreign, letters[0].id).await;
    assert_eq!(stolen.unwrap_err().kind(), ErrorKind::DeadLetterUnknown);
    broker.requeue(&own, letters[0].id).await.unwrap();
    assert_eq!(here.messages(1).await, [json!(1)]);
    producer
        .produce("e", json!(2), json!({ "method": "broadcast" }))
        .await;
    assert_eq!(there.rest().await, 0);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_keyless_consumer_never_touches_what_a_credential_made() {
    let guarded = Guarded::start().await;
    let durable = json!({ "event": "e", "producer": "p", "durable": true, "consumer": "c" });
    let group = json!({ "event": "e", "producer": "p", "group": "g", "consumer": "c" });
    let mut owner = guarded.named("default-both", "c").await;
    assert_eq!(owner.call("SUBSCRIBE", &durable).await["ok"], true);
    let second = with(&group, json!({ "event": "f" }));
    assert_eq!(owner.call("SUBSCRIBE", &second).await["ok"], true);
    owner.leave().await;
    let mut keyless = guarded.stranger().await;
    for wish in [&durable, &group] {
        let told = keyless.call("SUBSCRIBE", wish).await;
        assert_eq!(told["error"], "consumer_id_taken", "{wish}");
    }
    guarded.house.close().await;
}

#[tokio::test]
async fn a_released_queue_goes_to_the_next_owner() {
    let guarded = Guarded::start().await;
    let wish = json!({ "event": "e", "producer": "p", "durable": true, "consumer": "c" });
    let mut owner = guarded.named("closed-both", "c").await;
    assert_eq!(owner.call("SUBSCRIBE", &wish).await["ok"], true);
    owner.leave().await;
    let (broker, realm) = (
        guarded.house.server.broker(),
        RealmId::parse("closed").unwrap(),
    );
    let unknown = broker
        .release_queue(&realm, restante::store::QueueId(u64::MAX))
        .await;
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::DeliveryUnknown);
    let queues = broker.store().queues().await.unwrap();
    broker.release_queue(&realm, queues[0].queue).await.unwrap();
    let mut next = guarded.named("closed-manager", "c").await;
    assert_eq!(next.call("SUBSCRIBE", &wish).await["ok"], true);
    assert_eq!(shown(&mut next, &json!({})).await, 403);
    guarded.house.close().await;
}

#[tokio::test]
async fn the_same_names_in_two_realms_do_not_meet_and_admins_see_both() {
    let guarded = Guarded::start().await;
    let mut admin = guarded.named("*-admin", "p").await;
    admin
        .subscribe(json!({ "event": "e", "producer": "p" }))
        .await;
    for realm in ["closed", "other"] {
        let mut client = guarded.named(&format!("{realm}-both"), "p").await;
        client
            .subscribe(json!({ "event": "e", "producer": "p" }))
            .await;
        client.produce("e", json!(realm), json!({})).await;
        assert_eq!(client.messages(1).await, [json!(realm)]);
        assert_eq!(client.rest().await, 0);
        admin.produce("e", json!("from above"), json!({})).await;
        assert_eq!(client.rest().await, 0, "{realm}");
    }
    let all = admin.messages(4).await;
    let above = json!("from above");
    assert_eq!(all, [json!("closed"), above.clone(), json!("other"), above]);
    guarded.house.close().await;
}
