//! The client against the server: what goes in comes out, whatever happens on the way.

use std::time::Duration;

use futures_util::StreamExt;
use restante::client::{Client, Confirmed, Messages, Nack, Produce, Producer, Subscribe};
use restante::server::{Server, ServerConfig};
use restante::{ErrorKind, Result};
use serde_json::json;
use serde_json::value::RawValue;

const SECOND: Duration = Duration::from_secs(1);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(90 * SECOND, what)
        .await
        .expect("in time")
}

async fn server_on(port: u16) -> Result<Server> {
    let mut config = ServerConfig::default();
    config.host = Some("127.0.0.1".into());
    config.port = port;
    Server::start(config).await
}

async fn server() -> (Server, Client) {
    let server = server_on(0).await.unwrap();
    let client = client(&server);
    (server, client)
}

fn client(server: &Server) -> Client {
    Client::builder()
        .host("127.0.0.1")
        .port(server.local_addr().port())
        .connect_timeout(10 * SECOND)
        .options(|options| options.reconnect.min = Duration::from_millis(10))
        .build()
}

async fn stop(server: Server) {
    soon(server.close(5 * SECOND)).await.unwrap();
}

async fn send(producer: &Producer, message: &str) -> Confirmed {
    let produce = Produce {
        event: "paid",
        message: Some(message),
        ..Produce::default()
    };
    // Ten megabytes take their time in an unoptimised build on a busy machine.
    soon(producer.send(&produce, 60 * SECOND)).await.unwrap()
}

/// The text of the next message's body.
async fn body(messages: &mut Messages) -> String {
    let message = soon(messages.next()).await.unwrap();
    message.body::<&RawValue>().unwrap().get().to_owned()
}

#[tokio::test]
async fn a_durable_message_waits_until_its_consumer_comes_back() {
    let (server, client) = server().await;
    let orders = client.producer("orders").await.unwrap();
    let subscribe = || Subscribe::to("paid").from("orders").durable().acked();
    let billing = client.consumer("billing").await.unwrap();
    drop(soon(billing.subscribe(subscribe())).await.unwrap());
    soon(billing.connection().close(SECOND)).await.unwrap();
    for n in 0..3 {
        assert_eq!(send(&orders, &n.to_string()).await.queued, 1);
    }

    let billing = client.consumer("billing").await.unwrap();
    let mut messages = soon(billing.subscribe(subscribe())).await.unwrap();
    for n in 0..3 {
        let message = soon(messages.next()).await.unwrap();
        assert_eq!(message.body::<u64>().unwrap(), n);
        assert_eq!(message.attempt(), Some(1));
        message.ack();
    }
    send(&orders, "3").await;
    let last = soon(messages.next()).await.unwrap();
    let again = Nack {
        delay: Some(Duration::ZERO),
        ..Nack::default()
    };
    last.nack(again);
    let last = soon(messages.next()).await.unwrap();
    assert_eq!((last.body::<u64>().unwrap(), last.attempt()), (3, Some(2)));
    last.ack();
    let ended = soon(messages.unsubscribe(false)).await.unwrap();
    assert_eq!(ended.removed, 1);
    stop(server).await;
}

#[tokio::test]
async fn a_dropped_stream_leaves_what_comes_next_to_a_later_one() {
    let (server, client) = server().await;
    let orders = client.producer("orders").await.unwrap();
    let billing = client.consumer("billing").await.unwrap();
    let subscribe = || Subscribe::to("paid").from("orders").durable().acked();
    drop(soon(billing.subscribe(subscribe())).await.unwrap());
    // Another round trip of the same connection: the server has read what was said before.
    let other = soon(billing.subscribe(Subscribe::to("other"))).await;
    assert_eq!(send(&orders, "1").await.queued, 1);
    let mut messages = soon(billing.subscribe(subscribe())).await.unwrap();
    let message = soon(messages.next()).await.unwrap();
    assert_eq!(message.attempt(), Some(1), "it was not sent before (P5)");
    message.ack();
    drop(other);
    stop(server).await;
}

#[tokio::test]
async fn bodies_around_the_chunk_border_arrive_once_and_equal() {
    let (server, client) = server().await;
    let orders = client.producer("orders").await.unwrap();
    let billing = client.consumer("billing").await.unwrap();
    let subscribe = || Subscribe::to("paid").from("orders").durable();
    let mut messages = soon(billing.subscribe(subscribe())).await.unwrap();
    for character in ["x", "\u{20ac}", "\u{1F600}"] {
        for units in [262_143, 262_144, 262_145, 524_288, 524_289] {
            let count = (units - 2) / character.encode_utf16().count();
            let text = format!("\"{}\"", character.repeat(count));
            send(&orders, &text).await;
            assert!(body(&mut messages).await == text, "{units} of {character}");
        }
    }
    let large = format!("\"{}\"", "x".repeat(10 << 20));
    send(&orders, &large).await;
    assert!(body(&mut messages).await == large);
    stop(server).await;
}

#[tokio::test]
async fn small_and_large_messages_keep_the_order_of_the_calls() {
    let (server, client) = server().await;
    let orders = client.producer("orders").await.unwrap();
    let billing = client.consumer("billing").await.unwrap();
    let subscribe = Subscribe::to("paid").from("orders").durable();
    let mut messages = soon(billing.subscribe(subscribe)).await.unwrap();
    let large = "y".repeat(1 << 20);
    let reader = async {
        for n in 0..30 {
            let text = body(&mut messages).await;
            assert_eq!(text.len() > 1000, n % 3 == 1, "message {n}");
        }
    };
    let writer = async {
        let mut answers = Vec::new();
        for n in 0..30 {
            let text = match n % 3 {
                1 => format!("\"{large}\""),
                _ => n.to_string(),
            };
            let produce = Produce {
                event: "paid",
                message: Some(&text),
                ..Produce::default()
            };
            answers.push(orders.send(&produce, 10 * SECOND));
        }
        for answer in answers {
            soon(answer).await.unwrap();
        }
    };
    soon(async { tokio::join!(reader, writer) }).await;
    stop(server).await;
}

#[tokio::test]
async fn binary_arrives_byte_equal_live_and_stored() {
    let (server, client) = server().await;
    let orders = client.producer("orders").await.unwrap();
    let subscribe = || Subscribe::to("paid").from("orders").durable();
    let billing = client.consumer("billing").await.unwrap();
    let mut messages = soon(billing.subscribe(subscribe())).await.unwrap();
    let attachments = [
        b"\0\xff\x80".as_slice().into(),
        bytes::Bytes::new(),
        vec![0xa5; 5 << 20].into(),
    ];
    let produce = Produce {
        event: "paid",
        message: Some(
            r#"{"a":{"_placeholder":true,"num":0},"b":[{"_placeholder":true,"num":1},{"_placeholder":true,"num":2}]}"#,
        ),
        attachments: &attachments,
        ..Produce::default()
    };
    soon(orders.send(&produce, 10 * SECOND)).await.unwrap();
    let live = soon(messages.next()).await.unwrap();
    assert!(live.attachments() == attachments);

    drop(messages);
    soon(billing.connection().close(SECOND)).await.unwrap();
    soon(orders.send(&produce, 10 * SECOND)).await.unwrap();
    let billing = client.consumer("billing").await.unwrap();
    let mut messages = soon(billing.subscribe(subscribe())).await.unwrap();
    loop {
        let stored = soon(messages.next()).await.unwrap();
        assert!(stored.attachments() == attachments);
        let is_repeat = stored.payload().contains("\"redelivered\":true");
        if !is_repeat {
            break;
        }
    }
    stop(server).await;
}

#[tokio::test]
async fn a_second_consumer_of_a_live_name_is_refused_and_the_first_goes_on() {
    let (server, client) = server().await;
    let orders = client.producer("orders").await.unwrap();
    let billing = client.consumer("billing").await.unwrap();
    let subscribe = Subscribe::to("paid").from("orders");
    let mut messages = soon(billing.subscribe(subscribe)).await.unwrap();
    let error = soon(client.consumer("billing")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateConsumer);
    orders.produce("paid", &json!(7)).unwrap();
    assert_eq!(body(&mut messages).await, "7");
    stop(server).await;
}

#[tokio::test]
async fn a_restart_of_the_server_is_survived_and_what_waited_goes_out() {
    let (server, client) = server().await;
    let port = server.local_addr().port();
    let orders = client.producer("orders").await.unwrap();
    let billing = client.consumer("billing").await.unwrap();
    let subscribe = Subscribe::to("paid").from("orders").durable();
    let mut messages = soon(billing.subscribe(subscribe)).await.unwrap();
    stop(server).await;
    let produce = Produce {
        event: "paid",
        message: Some("1"),
        guaranteed: true,
        ..Produce::default()
    };
    let waiting = orders.send(&produce, 20 * SECOND);
    let server = server_on(port).await.unwrap();
    soon(waiting).await.unwrap();
    // Its subscription is renewed by itself, whichever of the two came back first.
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let repeat = async {
        loop {
            pace.tick().await;
            send(&orders, "1").await;
        }
    };
    let got = tokio::select! {
        got = body(&mut messages) => got,
        () = repeat => String::new(),
    };
    assert_eq!(got, "1");
    stop(server).await;
}
