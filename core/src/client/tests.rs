//! The connection against a scripted server: what goes out, and what becomes of it under faults.

mod ends;
mod script;
mod streams;

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use script::{Script, Seen, confirm, produce, soon};

use super::*;
use crate::ErrorKind;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_connection_registers_subscribes_and_hands_on_what_comes() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let (id, answer) = client
        .connection
        .subscribe(Subscribe::to("Paid").from("Orders").acked());
    let mut peer = script.accept().await;

    let consumer = peer.event().await;
    let expected = json!({"name": "billing", "id": "billing", "consumer_id": "billing",
        "instance": "me", "gap": true});
    assert_eq!((&*consumer.name, consumer.payload), ("CONSUMER", expected));
    let producer = peer.event().await;
    let expected = json!({"name": "orders", "default_ttl": 60, "instance": "me"});
    assert_eq!((&*producer.name, producer.payload), ("PRODUCER", expected));
    let ping = peer.event().await;
    peer.reply(&ping, json!("{}")).await;
    let subscribe = peer.event().await;
    let expected = json!({"event": "Paid", "producer": "Orders", "consumer": "billing",
        "consumer_id": "billing", "scope": "default", "durable": false, "ack": true,
        "manual_ack": false});
    assert_eq!(
        (&*subscribe.name, &subscribe.payload),
        ("SUBSCRIBE", &expected)
    );
    let taken = json!({"ok": true, "key": "orders-paid", "consume_event": "CONSUME-orders-paid",
        "queued": 3});
    peer.reply(&subscribe, taken).await;
    soon(client.connection.ready()).await.unwrap();
    assert_eq!(soon(answer).await.unwrap().queued, 3);
    assert_eq!(client.connection.socket_id().as_deref(), Some("s1"));

    let payload = json!({"event": "Paid", "message": {"b": 1, "a": 1.0}, "from": "Orders",
        "msgId": "m1", "delivery_attempt": 2});
    peer.emit("CONSUME-orders-paid", payload.clone()).await;
    assert_eq!(client.event("connected").await, "connected true None");
    let delivery = Seen::Delivery {
        subscription: id,
        payload,
        attachments: vec![],
        msg_id: Some("m1".into()),
        attempt: Some(2),
    };
    assert_eq!(client.next().await, delivery);
    client.connection.ack([("m1", Some(2))]);
    let ack = peer.event().await;
    assert_eq!(ack.payload, json!({"msgId": "m1", "delivery_attempt": 2}));
}

#[tokio::test]
async fn acks_are_gathered_and_survive_a_reconnect() {
    let script = Script::start().await;
    let client = script.open(script.options());
    let (_, _answer) = client
        .connection
        .subscribe(Subscribe::to("paid").acked().durable());
    let mut peer = script.first().await;
    let subscribe = peer.event().await;
    peer.reply(&subscribe, json!({"ok": true})).await;
    peer.emit("mark", json!(1)).await;
    let mut client = client;
    client.event("mark").await;
    client
        .connection
        .ack([("a", Some(1)), ("b", Some(1)), ("c", None)]);
    assert_eq!(
        peer.event().await.payload,
        json!({"msgIds": ["a", "b", "c"]})
    );

    peer.kill();
    client.event("disconnected").await;
    client.connection.ack([("d", Some(1)), ("e", Some(1))]);
    let mut peer = script.registered().await;
    let ack = peer.event().await;
    assert_eq!(
        ack.payload,
        json!({"msgIds": ["d", "e"]}),
        "before SUBSCRIBE"
    );
    assert_eq!(peer.event().await.name, "SUBSCRIBE");
}

#[tokio::test]
async fn four_kills_renew_each_subscription_once_each_time_and_tell_the_gap() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    for subscribe in [
        Subscribe::to("paid").from("orders"),
        Subscribe::to("PAID").from("orders"),
        Subscribe::to_topic("a/#").durable(),
    ] {
        let _ = client.connection.subscribe(subscribe);
    }
    let mut peer = script.first().await;
    for round in 0..4 {
        let mut keys = Vec::new();
        for _ in 0..2 {
            let event = peer.event().await;
            assert_eq!(event.name, "SUBSCRIBE");
            keys.push(event.payload["event"].clone());
        }
        assert_eq!(keys, ["PAID", "a/#"]);
        client.connection.produce(&produce("1"), None).unwrap();
        assert_eq!(peer.event().await.name, "PRODUCE", "nothing else was sent");
        if round == 3 {
            break;
        }
        peer.kill();
        client.event("disconnected").await;
        peer = script.registered().await;
        assert_eq!(client.event("connected").await, "connected false None");
        assert_eq!(client.event("gap").await, r#"gap ["orders-paid"] None"#);
    }
}

#[tokio::test]
async fn a_confirmed_message_is_sent_again_under_its_number_until_it_is_answered() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let mut peer = script.first().await;
    soon(client.connection.ready()).await.unwrap();
    let answer = confirm(&client.connection, &produce("1"), 10 * SECOND);
    let first = peer.event().await;
    assert_eq!(first.payload["instance_seq"], json!(["me", 1]));
    peer.kill();
    client.event("disconnected").await;
    let refused = client.connection.produce(&produce("2"), None).unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::Disconnected,
        "plain messages do not wait"
    );

    let mut peer = script.registered().await;
    let again = peer.event().await;
    assert_eq!(again.payload, first.payload);
    let taken = json!({"ok": true, "id": "x", "queued": 1, "duplicate": true});
    peer.reply(&again, taken).await;
    let confirmed = soon(answer).await.unwrap();
    assert_eq!((confirmed.queued, confirmed.duplicate), (1, true));
}

#[tokio::test]
async fn offline_messages_wait_up_to_their_bound_or_are_refused() {
    let script = Script::start().await;
    let offline = Offline {
        max_messages: 100,
        ..Offline::default()
    };
    let client = script.open(ConnectOptions {
        offline,
        ..script.options()
    });
    let answers: Vec<_> = (0..150)
        .map(|n| confirm(&client.connection, &produce(&n.to_string()), 10 * SECOND))
        .collect();
    let mut peer = script.first().await;
    for n in 0..100 {
        let event = peer.event().await;
        assert_eq!(
            event.payload["message"],
            json!(n),
            "in the order of the calls"
        );
        peer.reply(&event, json!({"ok": true})).await;
    }
    let mut results = Vec::new();
    for answer in answers {
        results.push(soon(answer).await.map_err(|error| error.kind()));
    }
    assert!(results[..100].iter().all(Result::is_ok));
    assert!(
        results[100..]
            .iter()
            .all(|result| *result == Err(ErrorKind::QueueFull))
    );

    let policy = OfflinePolicy::Reject;
    let elsewhere = Script::start().await;
    let client = elsewhere.open(ConnectOptions {
        offline: Offline { policy, ..offline },
        ..elsewhere.options()
    });
    for _ in 0..150 {
        let error = soon(confirm(&client.connection, &produce("1"), 10 * SECOND)).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Disconnected);
    }
}

#[tokio::test]
async fn what_outlives_its_ttl_offline_expires_and_the_rest_has_less_left() {
    let script = Script::start().await;
    let client = script.open(script.options());
    let short = Produce {
        ttl: Some(Duration::from_millis(30)),
        ..produce("1")
    };
    let long = Produce {
        ttl: Some(Duration::from_secs(3)),
        ..produce("2")
    };
    let short = confirm(&client.connection, &short, 10 * SECOND);
    let long = confirm(&client.connection, &long, 10 * SECOND);
    assert_eq!(soon(short).await.unwrap_err().kind(), ErrorKind::Expired);
    let mut peer = script.first().await;
    let event = peer.event().await;
    assert_eq!(event.payload["message"], json!(2));
    assert!(event.payload["ttl"].as_f64().unwrap() < 3.0);
    peer.reply(&event, json!({"ok": true})).await;
    soon(long).await.unwrap();
}

#[tokio::test]
async fn confirms_that_never_come_time_out_and_leave_nothing_behind() {
    let script = Script::start().await;
    let client = script.open(script.options());
    let mut peer = script.first().await;
    soon(client.connection.ready()).await.unwrap();
    let answers: Vec<_> = (0..100_000)
        .map(|_| confirm(&client.connection, &produce("1"), SECOND / 4))
        .collect();
    let reader = tokio::spawn(async move { while peer.message().await.is_some() {} });
    for answer in answers {
        assert_eq!(soon(answer).await.unwrap_err().kind(), ErrorKind::Timeout);
    }
    assert_eq!(client.connection.buffered(), 0);
    soon(client.connection.close(SECOND)).await.unwrap();
    reader.abort();
}

#[tokio::test]
async fn large_messages_travel_in_chunks_both_ways() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let (id, _answer) = client.connection.subscribe(Subscribe::to("paid"));
    let mut peer = script.first().await;
    assert_eq!(peer.event().await.name, "SUBSCRIBE");
    let body = "\u{1F600}\"x".repeat(150_000);
    let message = json!(body).to_string();
    let answer = confirm(&client.connection, &produce(&message), 10 * SECOND);
    let mut text = String::new();
    let last = loop {
        let chunk = peer.event().await;
        assert_eq!(chunk.name, "PRODUCE_CHUNK");
        text += chunk.payload["data"].as_str().unwrap();
        let is_last = chunk.payload["index"].as_u64().unwrap() + 1 == chunk.payload["total"];
        assert_eq!(
            chunk.id.is_some(),
            is_last,
            "a reply is asked for with the last"
        );
        if is_last {
            break chunk;
        }
    };
    let sent: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(sent["message"], json!(body));
    peer.reply(&last, json!({"ok": true})).await;
    soon(answer).await.unwrap();

    let delivery = json!({"event": "paid", "message": body, "from": "orders"});
    let text: Vec<char> = delivery.to_string().chars().collect();
    let pieces: Vec<String> = text.chunks(100_000).map(String::from_iter).collect();
    for (index, data) in pieces.iter().enumerate().rev() {
        let chunk = json!({"event": "CONSUME-tyo-mq-all-paid", "transferId": "t",
            "index": index, "total": pieces.len(), "data": data});
        peer.emit("CONSUME_CHUNK", chunk).await;
    }
    loop {
        if let Seen::Delivery {
            subscription,
            payload,
            ..
        } = client.next().await
        {
            assert_eq!((subscription, payload), (id, delivery));
            break;
        }
    }
}

#[tokio::test]
async fn binary_travels_beside_the_text_both_ways() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let (id, _answer) = client.connection.subscribe(Subscribe::to("paid"));
    let mut peer = script.first().await;
    assert_eq!(peer.event().await.name, "SUBSCRIBE");
    soon(client.connection.ready()).await.unwrap();
    let attachments = [
        Bytes::from_static(b"\0\xff"),
        Bytes::new(),
        vec![7; 300_000].into(),
    ];
    let message = r#"[{"_placeholder":true,"num":0},{"_placeholder":true,"num":1},{"_placeholder":true,"num":2}]"#;
    let produce = Produce {
        attachments: &attachments,
        ..produce(message)
    };
    client.connection.produce(&produce, None).unwrap();
    assert_eq!(peer.event().await.attachments, 3);
    for attachment in &attachments {
        let message = peer.message().await.unwrap();
        assert_eq!(message.into_data(), attachment);
    }

    let delivery =
        json!({"event": "paid", "message": {"_placeholder": true, "num": 0}, "from": "o"});
    peer.say(&format!(
        "452-{}",
        json!(["CONSUME-tyo-mq-all-paid", delivery])
    ))
    .await;
    peer.say_bytes(b"\x01\x02").await;
    peer.say_bytes(b"").await;
    client.event("connected").await;
    let seen = Seen::Delivery {
        subscription: id,
        payload: delivery,
        attachments: vec![Bytes::from_static(b"\x01\x02"), Bytes::new()],
        msg_id: None,
        attempt: None,
    };
    assert_eq!(client.next().await, seen);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_the_connection_stays() {
    let script = Script::start().await;
    let client = script.open(ConnectOptions {
        max_message_bytes: 2000,
        ..script.options()
    });
    let mut peer = script.first().await;
    soon(client.connection.ready()).await.unwrap();
    let largest = json!("x".repeat(1998)).to_string();
    client.connection.produce(&produce(&largest), None).unwrap();
    assert_eq!(peer.event().await.name, "PRODUCE");
    let over = json!("x".repeat(1999)).to_string();
    let error = client
        .connection
        .produce(&produce(&over), None)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PayloadTooLarge);
    assert!(error.message().contains("2001") && error.message().contains("2000"));
    let error = soon(confirm(&client.connection, &produce(&over), SECOND)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::PayloadTooLarge);
    let deep = "[".repeat(513) + &"]".repeat(513);
    let error = client
        .connection
        .produce(&produce(&deep), None)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotCarriable);
    client.connection.produce(&produce("2"), None).unwrap();
    assert_eq!(peer.event().await.payload["message"], json!(2));
}

#[tokio::test]
async fn unsubscribing_offline_is_said_at_the_next_connect() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let (id, _answer) = client.connection.subscribe(Subscribe::to("paid").durable());
    let mut peer = script.first().await;
    assert_eq!(peer.event().await.name, "SUBSCRIBE");
    peer.kill();
    client.event("disconnected").await;
    let answer = client.connection.unsubscribe(id, true);
    let mut peer = script.registered().await;
    let goodbye = peer.event().await;
    assert_eq!(goodbye.name, "UNSUBSCRIBE");
    assert_eq!(goodbye.payload["purge"], json!(true));
    peer.reply(&goodbye, json!({"ok": true, "removed": 1, "left": 0}))
        .await;
    assert_eq!(soon(answer).await.unwrap().removed, 1);
    assert_eq!(client.count("gap"), 0);
}

#[tokio::test]
async fn errors_of_the_server_are_told_and_a_takeover_is_recognised() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let mut peer = script.first().await;
    peer.emit("ERROR", json!("The same producer newly joined"))
        .await;
    client.event("error").await;
    client.event("takeover").await;
    peer.emit("ERROR", json!({"code": -5, "message": "bad"}))
        .await;
    client.event("error {").await;
    peer.emit("GAP", json!({"keys": ["orders-paid"], "dropped": 7}))
        .await;
    assert_eq!(client.event("gap").await, r#"gap ["orders-paid"] Some(7)"#);
    peer.emit("SUBSCRIBE-TO-s1", json!({"id": "x"})).await;
    client.event(r#"SUBSCRIBE-TO-s1 {"id":"x"}"#).await;
    peer.emit("CONSUME-Paid", json!({"event": "Paid"})).await;
    client.event("CONSUME-Paid {").await;
    peer.say("2").await;
    assert_eq!(peer.text().await, "3");
}

#[tokio::test]
async fn what_piled_up_for_a_slow_peer_goes_out_without_another_word_from_it() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let mut peer = script.first().await;
    soon(client.connection.ready()).await.unwrap();
    let message = json!("x".repeat(10_000)).to_string();
    let mut count = 0;
    for _ in 0..5 {
        // Far more than socket buffers hold, and more behind it while that is being written.
        for _ in 0..250 {
            count += usize::from(client.connection.produce(&produce(&message), None).is_ok());
        }
        tokio::task::yield_now().await;
    }
    client.connection.produce(&produce("0"), None).unwrap();
    let got = soon(async {
        let mut got = 0;
        while peer.event().await.payload["message"] != json!(0) {
            got += 1;
            // The client's task runs between any two reads.
            tokio::task::yield_now().await;
        }
        got
    });
    assert_eq!(got.await, count);
    assert!(count > 1000);
    soon(client.connection.flush(SECOND)).await.unwrap();
    assert_eq!(client.event("drain").await, "drain");
}
