//! Coming in: what is shown, what is asked of a first verb, and what is heard of strangers
//! (scenarios 1–9, 11, 15, 17; F01, F03, F04, F31).

use std::time::Duration;

use serde_json::{Value, json};

use super::{Guarded, shown};
use crate::harness::Client;

/// Every verb with what it needs.
const VERBS: &[(&str, &str)] = &[
    ("PRODUCER", "produce"),
    ("PRODUCE", "produce"),
    ("PRODUCE_CHUNK", "produce"),
    ("CONSUMER", "consume"),
    ("SUBSCRIBE", "consume"),
    ("UNSUBSCRIBE", "consume"),
    ("ACK", "consume"),
    ("NACK", "consume"),
    ("WORKING", "consume"),
    ("KEY_LOOKUP", "any"),
    ("PUSH_REGISTER", "any"),
    ("SEALED_DELIVER", "any"),
    ("PING", "any"),
];

fn payload(verb: &str, name: &str) -> Value {
    match verb {
        "PRODUCE" => json!({ "event": "e", "message": 1, "from": name }),
        "PRODUCE_CHUNK" => json!({ "transferId": "t", "index": 0, "total": 1,
            "data": json!({ "event": "e", "message": 1, "from": name }).to_string() }),
        "SUBSCRIBE" => json!({ "event": "e", "consumer": name }),
        "UNSUBSCRIBE" => json!({ "event": "e", "producer": "p", "consumer": name }),
        "ACK" | "NACK" | "WORKING" => json!({ "msgId": "msg-0-0" }),
        _ => json!({ "name": name }),
    }
}

/// Whether a verb was refused for the role: by AUTH_FAIL 403, and the same in the reply.
async fn is_refused(client: &mut Client, verb: &str) -> bool {
    let name = client.name.clone();
    let answer = client.call(verb, &payload(verb, &name)).await;
    if !client.has("AUTH_FAIL") {
        return false;
    }
    let told = client.event("AUTH_FAIL").await.unwrap();
    assert_eq!(told["code"], 403, "{verb}: {told}");
    assert_eq!(answer["ok"], false, "{verb}: {answer}");
    assert_eq!(answer["code"], 403, "{verb}: {answer}");
    assert_eq!(answer["error"], "forbidden", "{verb}: {answer}");
    true
}

#[tokio::test]
async fn a_role_covers_the_verbs_of_its_row_in_realms_of_every_kind() {
    let guarded = Guarded::start().await;
    for realm in ["default", "open", "keyed", "closed", "*"] {
        let roles: &[&str] = match realm {
            "*" => &["admin"],
            _ => &["producer", "consumer", "both", "manager"],
        };
        for role in roles {
            let mut client = guarded.client(&format!("{realm}-{role}")).await;
            for (verb, need) in VERBS {
                let is_denied = matches!(
                    (*role, *need),
                    ("producer", "consume") | ("consumer", "produce")
                );
                let is_refused = is_refused(&mut client, verb).await;
                assert_eq!(is_refused, is_denied, "{realm} {role} {verb}");
            }
        }
    }
    guarded.house.close().await;
}

/// TC-M01.
#[tokio::test]
async fn before_it_is_known_who_asks_nothing_works() {
    let guarded = Guarded::with(|settings| settings["keyless_consumers"] = json!("deny")).await;
    let mut client = guarded.stranger().await;
    for round in ["at first", "after an attempt that failed"] {
        for (verb, _) in VERBS {
            let told = client.call(verb, &payload(verb, "x")).await;
            let code = (&told["ok"], &told["code"], &told["error"]);
            let denied = (&json!(false), &json!(401), &json!("unauthenticated"));
            assert_eq!(code, denied, "{round} {verb}");
            assert_eq!(client.event("AUTH_FAIL").await.unwrap()["code"], 401);
        }
        let bytes = json!({ "_placeholder": true, "num": 0 });
        let produce = json!(["PRODUCE", { "event": "e", "message": bytes, "from": "x" }]);
        client.raw(&format!("451-999{produce}")).await;
        client.raw_binary(&[1]).await;
        assert_eq!(client.answer(999).await["code"], 401, "{round}");
        client.event("AUTH_FAIL").await;
        let wrong = json!({ "realm": "closed", "role": "consumer", "token": "wrong" });
        assert_eq!(shown(&mut client, &wrong).await, 401);
        client.event("AUTH_FAIL").await;
    }
    let server = &guarded.house.server;
    assert!(server.broker().sessions_of(None).is_empty());
    let stats = server.broker().stats();
    assert!(
        stats
            .iter()
            .all(|(_, realm)| realm.consumers + realm.producers == 0)
    );
    assert!(server.broker().store().queues().await.unwrap().is_empty());
    guarded.house.close().await;
}

#[tokio::test]
async fn a_declared_role_counts_in_an_open_realm_too() {
    let guarded = Guarded::start().await;
    for (role, verb) in [("consumer", "PRODUCER"), ("producer", "CONSUMER")] {
        let mut client = guarded.stranger().await;
        let said = shown(&mut client, &json!({ "realm": "open", "role": role })).await;
        assert_eq!(said, json!(["open", role]));
        assert!(is_refused(&mut client, verb).await);
    }
    guarded.house.close().await;
}

#[tokio::test]
async fn what_is_shown_decides_once() {
    let guarded = Guarded::start().await;
    let mut client = guarded.stranger().await;
    for (wrong, code) in [
        (json!({}), 401),
        (json!("no json"), 401),
        (Value::Null, 401),
        (json!({ "token": 7 }), 401),
        (json!({ "token": "unknown" }), 401),
        (json!({ "role": "manager", "realm": "open" }), 401),
        (json!({ "token": "closed-both", "realm": "other" }), 403),
    ] {
        assert_eq!(shown(&mut client, &wrong).await, code, "{wrong}");
        let told = client.event("AUTH_FAIL").await.unwrap();
        assert_eq!(told["code"], code, "{wrong}");
        assert!(told.get("ok").is_none());
    }
    let good = json!({ "token": "closed-producer" });
    let as_text = json!(good.to_string());
    assert_eq!(
        shown(&mut client, &as_text).await,
        json!(["closed", "producer"])
    );
    let told = client.event("AUTH_OK").await.unwrap();
    assert_eq!(told, json!({ "realm": "closed", "role": "producer" }));
    assert_eq!(shown(&mut client, &good).await, 403);
    guarded.house.close().await;
}

#[tokio::test]
async fn nobody_without_an_admins_token_gets_into_the_realm_that_sees_all() {
    let guarded = Guarded::start().await;
    let mut victim = guarded.client("closed-both").await;
    let mut client = guarded.stranger().await;
    for role in ["consumer", "both", "admin"] {
        let wish = json!({ "realm": "*", "role": role });
        let said = shown(&mut client, &wish).await;
        assert!(said.is_number(), "{said}");
    }
    // It is let into `default` by its first verb, and no further.
    client.call("CONSUMER", &json!({ "name": "spy" })).await;
    let all = json!({ "event": "#", "mode": "topic", "producer": "TYO-MQ-ALL", "consumer": "spy" });
    assert_eq!(client.call("SUBSCRIBE", &all).await["ok"], true);
    victim.produce("secret", json!(1), json!({})).await;
    assert_eq!(client.rest().await, 0);
    let mut admin = guarded.client("*-admin").await;
    let all = json!({ "event": "#", "mode": "topic", "producer": "TYO-MQ-ALL" });
    admin.subscribe(all).await;
    victim.produce("secret", json!(2), json!({})).await;
    assert_eq!(admin.messages(1).await, [json!(2)]);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_first_verb_lets_in_to_default_alone_whatever_was_tried_before() {
    let guarded = Guarded::start().await;
    let mut client = guarded.stranger().await;
    let wish = json!({ "realm": "closed", "token": "unknown" });
    assert_eq!(shown(&mut client, &wish).await, 401);
    let told = client.call("PRODUCER", &json!({ "name": "p" })).await;
    assert_eq!((&told["ok"], &told["code"]), (&json!(false), &json!(401)));
    client.call("CONSUMER", &json!({ "name": "c" })).await;
    client
        .subscribe(json!({ "event": "e", "producer": "TYO-MQ-ALL", "consumer": "c" }))
        .await;
    guarded
        .client("closed-both")
        .await
        .produce("e", json!("closed"), json!({}))
        .await;
    guarded
        .client("default-both")
        .await
        .produce("e", json!("default"), json!({}))
        .await;
    assert_eq!(client.messages(1).await, [json!("default")]);
    let listed = guarded.house.server.broker().sessions_of(None);
    let own = listed
        .iter()
        .find(|session| *session.socket_id == *client.socket_id);
    assert_eq!(own.unwrap().realm.as_str(), "default");
    guarded.house.close().await;
}

#[tokio::test]
async fn who_was_let_in_for_nothing_may_show_who_it_is_until_it_has_a_name() {
    let guarded = Guarded::with(|settings| {
        settings["realms"]["default"] = json!({ "required": false });
    })
    .await;
    let mut client = guarded.stranger().await;
    client.sync().await;
    let good = json!({ "token": "closed-both" });
    assert_eq!(shown(&mut client, &good).await, json!(["closed", "both"]));
    let sessions = guarded.house.server.broker().sessions_of(None);
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].realm.as_str(), "closed");
    let mut late = guarded.stranger().await;
    late.call("CONSUMER", &json!({ "name": "c" })).await;
    assert_eq!(shown(&mut late, &good).await, 403);
    guarded.house.close().await;
}

#[tokio::test]
async fn a_realms_key_lets_consumers_in_and_counts_wrong_ones() {
    let guarded = Guarded::start().await;
    let mut client = guarded.stranger().await;
    let key = |key: &str| json!({ "realm": "keyed", "role": "consumer", "key": key });
    for _ in 0..10 {
        assert_eq!(shown(&mut client, &key("wrong")).await, 401);
    }
    client.say("AUTHENTICATION", &key("wrong")).await;
    let mut last = Value::Null;
    while let Some(told) = client.event("AUTH_FAIL").await {
        last = told;
    }
    assert_eq!(
        (&last["code"], &last["error"]),
        (&json!(429), &json!("rate_limited"))
    );
    assert!(last["retry_after"].as_u64().unwrap() >= 1);
    let mut other = guarded.stranger().await;
    let said = shown(&mut other, &key("the key of the realm")).await;
    assert_eq!(said, json!(["keyed", "consumer"]));
    guarded.house.close().await;
}

#[tokio::test]
async fn anonymous_names_are_the_realms_business() {
    let guarded = Guarded::with(|settings| {
        settings["realms"]["other"] = json!({ "allow_anonymous": true });
    })
    .await;
    for (token, is_allowed) in [
        ("closed-both", false),
        ("other-both", true),
        ("default-both", true),
    ] {
        for verb in ["CONSUMER", "PRODUCER"] {
            let mut client = guarded.stranger().await;
            shown(&mut client, &json!({ "token": token })).await;
            client.say(verb, &json!({ "name": "ANONYMOUS-1" })).await;
            if is_allowed {
                client.sync().await;
                assert!(!client.has("ERROR"), "{token} {verb}");
                continue;
            }
            let told = client.event("ERROR").await.unwrap();
            assert_eq!(told["code"], -4, "{token} {verb}");
            client.ended().await;
        }
    }
    guarded.house.close().await;
}

#[tokio::test]
async fn names_that_mean_something_elsewhere_are_names_here() {
    let guarded = Guarded::start().await;
    for realm in ["__proto__", "constructor", "toString"] {
        let mut client = guarded.stranger().await;
        let wish = json!({ "realm": realm, "role": "consumer" });
        assert!(shown(&mut client, &wish).await.is_number(), "{realm}");
        let told = client
            .call("CONSUMER", &json!({ "name": "__proto__" }))
            .await;
        assert_eq!(told["ok"], true, "{told}");
        client.leave().await;
    }
    guarded.house.close().await;
}

#[tokio::test]
async fn a_stranger_is_heard_for_ten_seconds_and_no_longer() {
    let guarded = Guarded::start().await;
    let mut silent = guarded.stranger().await;
    let mut inside = guarded.client("closed-both").await;
    guarded.house.clock.advance(Duration::from_secs(11));
    let told = silent.event("AUTH_FAIL").await.unwrap();
    assert_eq!(told["code"], 401);
    silent.ended().await;
    inside.sync().await;
    guarded.house.close().await;
}

#[tokio::test]
async fn twenty_malformed_frames_end_a_strangers_connection_alone() {
    let guarded = Guarded::start().await;
    let mut stranger = guarded.stranger().await;
    let mut inside = guarded.client("closed-both").await;
    for _ in 0..20 {
        stranger.raw("42[\"CONSUMER\",null]").await;
        inside.raw("42[\"CONSUMER\",null]").await;
    }
    stranger.ended().await;
    inside.sync().await;
    guarded.house.close().await;
}

#[tokio::test]
async fn a_large_frame_of_a_stranger_is_refused() {
    let guarded = Guarded::start().await;
    let mut client = guarded.stranger().await;
    let large = json!({ "token": "x".repeat(65_536) });
    let told = client.call("AUTHENTICATION", &large).await;
    assert_eq!(told["error"], "payload_too_large");
    assert_eq!(told["limit"], 65_536);
    let good = json!({ "token": "closed-both" });
    assert_eq!(shown(&mut client, &good).await, json!(["closed", "both"]));
    client.call("PRODUCER", &json!({ "name": "p" })).await;
    let large = json!({ "event": "e", "message": "x".repeat(65_536), "from": "p" });
    assert_eq!(client.call("PRODUCE", &large).await["ok"], true);
    guarded.house.close().await;
}

#[tokio::test]
async fn what_a_stranger_sends_is_thrown_away_as_it_comes_until_it_is_in() {
    let guarded = Guarded::start().await;
    let mut client = guarded.stranger().await;
    let large = json!(["AUTHENTICATION", { "token": "x".repeat(200_000) }]);
    client.raw(&format!("42{large}")).await;
    let told = client.event("ERROR").await.unwrap();
    assert_eq!(told["error"], "payload_too_large");
    assert_eq!(told["limit"], 131_072);
    let good = json!({ "token": "closed-both" });
    assert_eq!(shown(&mut client, &good).await, json!(["closed", "both"]));
    client.call("PRODUCER", &json!({ "name": "p" })).await;
    let large = json!({ "event": "e", "message": "x".repeat(200_000), "from": "p" });
    assert_eq!(client.call("PRODUCE", &large).await["ok"], true);
    guarded.house.close().await;
}

#[tokio::test]
async fn verbs_of_parts_that_are_not_here_are_answered() {
    let guarded = Guarded::start().await;
    let mut client = guarded.client("closed-consumer").await;
    for verb in [
        "KEY_PUBLISH",
        "PREKEY_PUBLISH",
        "SEALED_CERT_REQUEST",
        "SEALED_UAK_SET",
        "SEALED_DELIVER",
        "SEALED_SUBSCRIBE",
        "PUSH_REGISTER",
        "PUSH_UNREGISTER",
        "REMOTE_TICKET_REQUEST",
    ] {
        let told = client.call(verb, &json!({})).await;
        assert_eq!(
            (&told["ok"], &told["code"]),
            (&json!(false), &json!(501)),
            "{verb}"
        );
    }
    let keys = client.call("KEY_LOOKUP", &json!({ "identity": "x" })).await;
    assert_eq!(keys, json!({ "keys": [] }));
    let taken = client
        .call("PREKEY_TAKE", &json!({ "identity": "x" }))
        .await;
    assert_eq!(taken, json!({ "found": false }));
    let ticket = client.event("REMOTE_TICKET_FAIL").await.unwrap();
    assert_eq!(
        (&ticket["ok"], &ticket["code"]),
        (&json!(false), &json!(501))
    );
    let mut stranger = guarded.stranger().await;
    let told = stranger
        .call("KEY_LOOKUP", &json!({ "identity": "x" }))
        .await;
    assert_eq!(told["code"], 401);
    guarded.house.close().await;
}
