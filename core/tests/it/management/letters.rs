//! Dead letters by command (scenario 36; P37, M06, N04), on every store.

use serde_json::{Value, json};

use super::{ACME_KEY, Managed, assert_refused, bury};
use crate::harness::{On, on_each_store};

/// A server with `count` dead letters in each of `acme` and `beta`, of which `{realm, n}` say which.
async fn buried(on: On, count: usize) -> Managed {
    let managed = Managed::start(on).await;
    for realm in ["acme", "beta"] {
        let mut client = managed.client(&format!("{realm}-token"), "c").await;
        for n in 0..count {
            let message = json!({ "realm": realm, "n": n });
            managed.ticking(bury(&mut client, "e", message)).await;
        }
        client.leave().await;
    }
    managed
}

async fn list(managed: &Managed, wanted: Value) -> Value {
    let mut order = json!({ "command": "dlq_list" });
    let members = wanted.as_object().unwrap().clone();
    order.as_object_mut().unwrap().extend(members);
    let listed = managed.order(order).await;
    assert_eq!(listed["ok"], true, "{listed}");
    listed
}

fn messages(listed: &Value) -> Vec<Value> {
    let entries = listed["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| entry["message"]["message"].clone())
        .collect()
}

async fn are_listed_over_all_realms_page_by_page(on: On) {
    let managed = buried(on, 3).await;
    let whole = list(&managed, json!({})).await;
    assert_eq!(messages(&whole).len(), 6);
    assert_eq!(whole["cursor"], Value::Null);
    let entry = &whole["entries"][0];
    assert_eq!(
        (&entry["realm"], &entry["producer"]),
        (&json!("acme"), &json!("c"))
    );
    assert_eq!(
        (&entry["consumer"], &entry["attempts"]),
        (&json!("c"), &json!(1))
    );
    let mut paged = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let page = list(&managed, json!({ "limit": 2, "cursor": cursor })).await;
        assert!(page["entries"].as_array().unwrap().len() <= 2);
        paged.extend(messages(&page));
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(paged, messages(&whole));
    let of_beta = messages(&list(&managed, json!({ "realm": "beta" })).await);
    assert_eq!(of_beta, paged[3..]);
    managed.house.close().await;
}

async fn are_not_changed_by_being_looked_at_nor_is_who_works(on: On) {
    let managed = buried(on, 2).await;
    let mut client = managed.client("acme-token", "c").await;
    client.subscribe(super::durable("work")).await;
    for n in 0..10 {
        client.produce("work", json!(n), json!({})).await;
    }
    let first = list(&managed, json!({})).await;
    let mut taken = Vec::new();
    for n in 0..10 {
        let delivery = client.delivery().await;
        for _ in 0..5 {
            assert_eq!(list(&managed, json!({})).await, first);
            let stats = managed.order(json!({ "command": "queue_stats" })).await;
            assert_eq!(stats["ok"], true, "{stats}");
        }
        taken.push(delivery["message"].clone());
        assert_eq!(delivery["delivery_attempt"], 1, "{delivery}");
        if n % 2 == 0 {
            client.ack(&delivery).await;
        }
    }
    assert_eq!(taken, (0..10).map(|n| json!(n)).collect::<Vec<_>>());
    assert_eq!(client.rest().await, 0);
    managed.house.close().await;
}

async fn are_replayed_one_at_a_time(on: On) {
    let managed = buried(on, 3).await;
    let listed = list(&managed, json!({ "realm": "acme" })).await;
    let id = &listed["entries"][1]["id"];
    let answer = managed
        .order(json!({ "command": "dlq_replay", "msg_id": id }))
        .await;
    let ids = (&answer["ok"], &answer["msg_id"], &answer["new_msg_id"]);
    assert_eq!(ids, (&json!(true), id, id), "{answer}");
    let mut client = managed.client("acme-token", "c").await;
    client.subscribe(super::durable("e")).await;
    let delivery = managed.ticking(client.delivery()).await;
    assert_eq!(delivery["message"], json!({ "realm": "acme", "n": 1 }));
    assert_eq!(delivery["delivery_attempt"], 2);
    client.ack(&delivery).await;
    assert_eq!(client.rest().await, 0);
    assert_eq!(
        messages(&list(&managed, json!({ "realm": "acme" })).await).len(),
        2
    );
    let again = managed
        .order(json!({ "command": "dlq_replay", "id": id }))
        .await;
    assert_refused(&again, 404, "dead_letter_unknown");
    managed.house.close().await;
}

async fn are_discarded_once_and_only_in_their_realm(on: On) {
    let managed = buried(on, 2).await;
    let listed = list(&managed, json!({ "realm": "beta" })).await;
    let id = listed["entries"][0]["id"].clone();
    for command in ["dlq_discard", "dlq_replay"] {
        let wrong = json!({ "command": command, "msgId": id, "realm": "acme" });
        assert_refused(
            &managed.order(wrong.clone()).await,
            404,
            "dead_letter_unknown",
        );
        let by_acme = managed.order_by(ACME_KEY, wrong).await;
        assert_refused(&by_acme, 404, "dead_letter_unknown");
        let nowhere = json!({ "command": command, "msgId": id, "realm": "nowhere" });
        assert_refused(&managed.order(nowhere).await, 404, "dead_letter_unknown");
    }
    let discard = json!({ "command": "dlq_discard", "msgId": id });
    let answer = managed.order(discard.clone()).await;
    assert_eq!((&answer["ok"], &answer["msg_id"]), (&json!(true), &id));
    assert_refused(&managed.order(discard).await, 404, "dead_letter_unknown");
    assert_eq!(
        messages(&list(&managed, json!({ "realm": "beta" })).await).len(),
        1
    );
    assert_eq!(
        messages(&list(&managed, json!({ "realm": "acme" })).await).len(),
        2
    );
    managed.house.close().await;
}

async fn are_purged_in_one_realm_only(on: On) {
    let managed = buried(on, 2).await;
    let answer = managed
        .order(json!({ "command": "dlq_purge", "realm": "acme" }))
        .await;
    assert_eq!(answer["purged"], 2, "{answer}");
    assert_eq!(messages(&list(&managed, json!({})).await).len(), 2);
    managed.house.close().await;
}

async fn of_a_realm_whose_clients_are_all_gone_are_listed(on: On) {
    let managed = buried(on, 1).await;
    let mut client = managed.client("acme-token", "c").await;
    let mut end = super::durable("e");
    (end["consumer"], end["purge"]) = (json!("c"), json!(true));
    let answer = client.call("UNSUBSCRIBE", &end).await;
    assert_eq!(answer["ok"], true, "{answer}");
    client.leave().await;
    assert_eq!(messages(&list(&managed, json!({})).await).len(), 2);
    managed.house.close().await;
}

on_each_store!(
    are_listed_over_all_realms_page_by_page,
    are_not_changed_by_being_looked_at_nor_is_who_works,
    are_replayed_one_at_a_time,
    are_discarded_once_and_only_in_their_realm,
    are_purged_in_one_realm_only,
    of_a_realm_whose_clients_are_all_gone_are_listed,
);
