//! The Rust API over a scripted server.

use futures_util::StreamExt;
use serde_json::json;

use super::script::{self, Script, soon};
use super::*;

/// A consumer of the Rust API with one acked subscription to `paid`, and its server.
async fn streaming(script: &Script) -> (Consumer, Messages, script::Peer) {
    let options = script.options();
    let client = Client::builder()
        .host(options.host)
        .port(options.port)
        .build();
    let subscribed = Box::pin(async {
        let consumer = client.consumer("billing").await.unwrap();
        let subscribe = Subscribe::to("paid").durable().acked();
        let messages = consumer.subscribe(subscribe).await.unwrap();
        (consumer, messages)
    });
    let served = Box::pin(async {
        let mut peer = script.accept().await;
        let consumer = peer.event().await;
        peer.reply(&consumer, json!({"ok": true})).await;
        let ping = peer.event().await;
        peer.reply(&ping, json!("{}")).await;
        let subscribe = peer.event().await;
        peer.reply(&subscribe, json!({"ok": true})).await;
        peer
    });
    let ((consumer, messages), peer) = soon(async { tokio::join!(subscribed, served) }).await;
    (consumer, messages, peer)
}

#[tokio::test]
async fn a_stream_yields_messages_that_can_be_settled_and_ends_with_the_connection() {
    let script = Script::start().await;
    let (consumer, mut messages, mut peer) = streaming(&script).await;
    for n in 1..=2 {
        let delivery = json!({"event": "Paid", "message": n, "from": "orders",
            "msgId": format!("m{n}"), "delivery_attempt": 1});
        peer.emit("CONSUME-tyo-mq-all-paid", delivery).await;
    }
    let first = soon(messages.next()).await.unwrap();
    assert_eq!((&*first.event(), &*first.from()), ("Paid", "orders"));
    assert_eq!(first.body::<u64>().unwrap(), 1);
    assert_eq!(first.attempt(), Some(1));
    first.ack();
    assert_eq!(peer.event().await.payload["msgId"], json!("m1"));
    let second = soon(messages.next()).await.unwrap();
    second.working();
    assert_eq!(peer.event().await.name, "WORKING");
    second.nack(Nack::default());
    assert_eq!(peer.event().await.name, "NACK");

    let closing = tokio::spawn(async move { consumer.connection().close(SECOND).await });
    assert_eq!(peer.text().await, "41");
    drop(peer);
    assert!(soon(messages.next()).await.is_none());
    soon(closing).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_dropped_stream_detaches_a_durable_subscription_and_ends_a_plain_one() {
    let script = Script::start().await;
    let (consumer, mut messages, mut peer) = streaming(&script).await;
    let delivery = json!({"event": "paid", "message": 1, "from": "orders", "msgId": "m",
        "delivery_attempt": 1});
    peer.emit("CONSUME-tyo-mq-all-paid", delivery).await;
    soon(messages.next()).await.unwrap().ack();
    drop(messages);
    assert_eq!(peer.event().await.name, "ACK", "before its queue is left");
    let detach = peer.event().await;
    let expected = json!({"event": "paid", "producer": "TYO-MQ-ALL", "consumer": "billing",
        "consumer_id": "billing", "scope": "default", "detach": true});
    assert_eq!((&*detach.name, detach.id), ("UNSUBSCRIBE", None));
    assert_eq!(detach.payload, expected);

    let subscribing = consumer.subscribe(Subscribe::to("late"));
    let serving = async {
        let subscribe = peer.event().await;
        peer.reply(&subscribe, json!({"ok": true})).await;
    };
    let (messages, ()) = soon(async { tokio::join!(subscribing, serving) }).await;
    drop(messages.unwrap());
    let end = peer.event().await;
    assert_eq!((&*end.name, end.id.is_some()), ("UNSUBSCRIBE", true));
    assert_eq!(end.payload["purge"], json!(false));
    assert_eq!(end.payload.get("detach"), None);
}

#[tokio::test]
async fn a_stream_that_is_not_read_stops_the_socket_and_a_dropped_one_lets_it_go_on() {
    let script = Script::start().await;
    let (consumer, messages, mut peer) = streaming(&script).await;
    let body = "x".repeat(200_000);
    let delivery = json!({"event": "paid", "message": body, "from": "orders"});
    let (progress, mut sent) = tokio::sync::watch::channel(0);
    let flood = tokio::spawn(async move {
        for n in 1..=300 {
            peer.emit("CONSUME-tyo-mq-all-paid", delivery.clone()).await;
            progress.send_replace(n);
        }
        peer.say("2").await;
        peer
    });
    // 60 MB do not fit into the stream, so the flood comes to a halt.
    while let Ok(Ok(())) = tokio::time::timeout(SECOND / 2, sent.changed()).await {}
    assert!(*sent.borrow() < 300);
    drop(messages);
    let mut peer = soon(flood).await.unwrap();
    assert_eq!(peer.event().await.name, "UNSUBSCRIBE");
    assert_eq!(peer.text().await, "3", "the connection has stayed");
    assert!(consumer.connection().is_connected());
}
