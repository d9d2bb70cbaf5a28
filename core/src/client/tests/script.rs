//! A scripted server for faults that a good server does not have, and a sink that writes down.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::client::*;

/// No test waits longer for anything.
const DEADLINE: Duration = Duration::from_secs(10);

pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("in time")
}

/// What the sink was told.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    Delivery {
        subscription: u32,
        payload: Value,
        attachments: Vec<Bytes>,
        msg_id: Option<String>,
        attempt: Option<u32>,
    },
    Event(String),
}

struct Recorder(mpsc::UnboundedSender<Seen>);

impl Sink for Recorder {
    fn delivery(&self, subscription: u32, delivery: Delivery<'_>) {
        let seen = Seen::Delivery {
            subscription,
            payload: serde_json::from_str(delivery.payload).expect("checked JSON"),
            attachments: delivery.attachments.to_vec(),
            msg_id: delivery.msg_id.map(str::to_owned),
            attempt: delivery.attempt,
        };
        let _ = self.0.send(seen);
    }

    fn batch_end(&self) {}

    fn event(&self, event: ClientEvent<'_>) {
        let text = match event {
            ClientEvent::Connected { first, auth, .. } => format!("connected {first} {auth:?}"),
            ClientEvent::Disconnected { .. } => "disconnected".into(),
            ClientEvent::ServerError { payload } => format!("error {payload}"),
            ClientEvent::ProduceFailed { error } => format!("failed {}", error.code()),
            ClientEvent::Named { name, payload, .. } => format!("{name} {payload}"),
            ClientEvent::Broadcast { name, delivery } => format!("{name} {}", delivery.payload),
            ClientEvent::Gap { keys, dropped } => format!("gap {keys:?} {dropped:?}"),
            ClientEvent::Takeover => "takeover".into(),
            ClientEvent::Drain => "drain".into(),
            ClientEvent::Waiting { error } => format!("waiting {} {error}", error.code()),
            ClientEvent::Closed => "closed".into(),
            ClientEvent::Down { error } => format!("down {}", error.code()),
        };
        let _ = self.0.send(Seen::Event(text));
    }
}

/// A connection under test, and what its sink sees.
pub(super) struct Client {
    pub(super) connection: Connection,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Client {
    pub(super) async fn next(&mut self) -> Seen {
        soon(self.seen.recv()).await.expect("the sink lives")
    }

    /// Waits for an event, past everything else.
    pub(super) async fn event(&mut self, start: &str) -> String {
        loop {
            if let Seen::Event(text) = self.next().await
                && text.starts_with(start)
            {
                return text;
            }
        }
    }

    /// How often an event was told by now.
    pub(super) fn count(&mut self, start: &str) -> usize {
        let mut count = 0;
        while let Ok(seen) = self.seen.try_recv() {
            count += usize::from(matches!(seen, Seen::Event(text) if text.starts_with(start)));
        }
        count
    }
}

pub(super) struct Script {
    listener: TcpListener,
    port: u16,
}

impl Script {
    pub(super) async fn start() -> Self {
        Self::at(0).await
    }

    /// The same at a port.
    pub(super) async fn at(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port }
    }

    /// Options that find this server and come back quickly.
    pub(super) fn options(&self) -> ConnectOptions {
        let millis = Duration::from_millis;
        ConnectOptions {
            host: "127.0.0.1".into(),
            port: self.port,
            instance: Some("me".into()),
            reconnect: Reconnect {
                min: millis(5),
                max: millis(20),
                stable: millis(1000),
            },
            ..ConnectOptions::default()
        }
    }

    pub(super) fn open(&self, options: ConnectOptions) -> Client {
        let identity = Identity {
            consumer: Some(ConsumerIdentity {
                name: "billing".into(),
                id: None,
                consumer_id: None,
            }),
            producer: Some(ProducerIdentity {
                name: "orders".into(),
                default_ttl: Some(Duration::from_secs(60)),
            }),
        };
        let (tell, seen) = mpsc::unbounded_channel();
        let connection = Connection::open(options, identity, Arc::new(Recorder(tell)));
        Client { connection, seen }
    }

    /// A link up to CONNECT, nothing read beyond.
    pub(super) async fn accept(&self) -> Peer {
        let (stream, _) = soon(self.listener.accept()).await.unwrap();
        let mut peer = Peer(soon(tokio_tungstenite::accept_async(stream)).await.unwrap());
        peer.say(
            r#"0{"sid":"e","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1}"#,
        )
        .await;
        assert_eq!(peer.text().await, "40");
        peer.say(r#"40{"sid":"s1"}"#).await;
        peer
    }

    /// A link whose registrations have been read and taken.
    pub(super) async fn registered(&self) -> Peer {
        let mut peer = self.accept().await;
        for name in ["CONSUMER", "PRODUCER"] {
            let event = peer.event().await;
            assert_eq!(event.name, name);
            if event.id.is_some() {
                peer.reply(&event, json!({"ok": true})).await;
            }
        }
        peer
    }

    /// The same for the first link, whose PING is answered.
    pub(super) async fn first(&self) -> Peer {
        let mut peer = self.registered().await;
        let ping = peer.event().await;
        assert_eq!(ping.name, "PING");
        peer.reply(&ping, json!("{}")).await;
        peer
    }

    /// Whether somebody tries to connect within a moment.
    pub(super) async fn is_tried(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.listener.accept())
            .await
            .is_ok()
    }
}

/// The server's side of a link.
pub(super) struct Peer(WebSocketStream<TcpStream>);

/// An event that came in.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    pub(super) payload: Value,
    pub(super) attachments: usize,
}

impl Peer {
    pub(super) async fn say(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    pub(super) async fn say_bytes(&mut self, bytes: &[u8]) {
        let message = Message::binary(bytes.to_vec());
        self.0.send(message).await.unwrap();
    }

    pub(super) async fn emit(&mut self, name: &str, payload: Value) {
        self.say(&format!("42{}", json!([name, payload]))).await;
    }

    pub(super) async fn reply(&mut self, event: &Event, payload: Value) {
        let id = event.id.expect("a reply is asked for");
        self.say(&format!("43{id}{}", json!([payload]))).await;
    }

    pub(super) async fn message(&mut self) -> Option<Message> {
        soon(self.0.next()).await.and_then(Result::ok)
    }

    pub(super) async fn text(&mut self) -> String {
        let message = self.message().await.expect("the link is there");
        message.into_text().unwrap().as_str().to_owned()
    }

    pub(super) async fn event(&mut self) -> Event {
        let text = self.text().await;
        let (attachments, rest) = match text.strip_prefix("45") {
            Some(rest) => rest.split_once('-').unwrap(),
            None => (
                "0",
                text.strip_prefix("42").unwrap_or_else(|| panic!("{text}")),
            ),
        };
        let start = rest.find('[').unwrap();
        let mut args: Vec<Value> = serde_json::from_str(&rest[start..]).unwrap();
        Event {
            id: rest[..start].parse().ok(),
            name: args[0].as_str().unwrap().to_owned(),
            payload: if args.len() > 1 {
                args.remove(1)
            } else {
                Value::Null
            },
            attachments: attachments.parse().unwrap(),
        }
    }

    /// Ends the TCP connection as a crash would.
    pub(super) fn kill(self) {
        drop(self);
    }
}

/// A produce of `message`.
pub(super) fn produce(message: &str) -> Produce<'_> {
    Produce {
        event: "paid",
        message: Some(message),
        ..Produce::default()
    }
}

/// Produces with confirm.
pub(super) fn confirm(
    connection: &Connection,
    produce: &Produce<'_>,
    timeout: Duration,
) -> Answer<Confirmed> {
    let (settle, answer) = Answer::pair();
    let confirm = Confirm { timeout, settle };
    connection.produce(produce, Some(confirm)).unwrap();
    answer
}
