//! What the client can say and hear: small messages through one connection, to and from a peer
//! that does nothing but count bytes and repeat frames.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use restante::client::{
    ClientEvent, ConnectOptions, Connection, Delivery, Identity, Produce, Sink, Subscribe,
};
use tokio_tungstenite::tungstenite::{Message, WebSocket, accept};

/// Counts deliveries.
#[derive(Default)]
struct Counter(AtomicU64);

impl Sink for Counter {
    fn delivery(&self, _subscription: u32, _delivery: Delivery<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn batch_end(&self) {}

    fn event(&self, _event: ClientEvent<'_>) {}
}

/// A link that is up, and the server's bare socket.
fn link(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    let mut socket: WebSocket<TcpStream> = accept(stream).unwrap();
    // Nobody pings here, and a busy machine may take long.
    let open = r#"0{"sid":"e","upgrades":[],"pingInterval":3600000,"pingTimeout":20000}"#;
    socket.send(Message::text(open)).unwrap();
    assert_eq!(socket.read().unwrap().into_text().unwrap().as_str(), "40");
    socket.send(Message::text(r#"40{"sid":"s"}"#)).unwrap();
    socket.get_ref().try_clone().unwrap()
}

/// A connection whose task has a thread of its own, as in the addon.
fn connect(sink: Arc<Counter>) -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ConnectOptions {
        host: "127.0.0.1".into(),
        port: listener.local_addr().unwrap().port(),
        ..ConnectOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let guard = runtime.enter();
    let connection = Connection::open(options, Identity::default(), sink);
    drop(guard);
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    let stream = link(&listener);
    while !connection.is_connected() {
        std::thread::yield_now();
    }
    (connection, stream)
}

fn produces(criterion: &mut Criterion) {
    let (connection, mut stream) = connect(Arc::default());
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 20];
        while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    let message = format!(r#"{{"id":12345,"text":"{}"}}"#, "x".repeat(100));
    let produce = Produce {
        event: "paid",
        message: Some(&message),
        from: Some("orders"),
        ..Produce::default()
    };
    let mut group = criterion.benchmark_group("client");
    group.throughput(Throughput::Elements(1));
    group.bench_function("produce 128 B", |bencher| {
        bencher.iter_custom(|count| {
            let start = Instant::now();
            for _ in 0..count {
                // False: too much waits, the task has to catch up.
                if !connection.produce(&produce, None).unwrap() {
                    while connection.buffered() > 1 << 19 {
                        std::thread::yield_now();
                    }
                }
            }
            start.elapsed()
        });
    });
    group.finish();
}

fn deliveries(criterion: &mut Criterion) {
    let counter = Arc::new(Counter::default());
    let (connection, mut stream) = connect(counter.clone());
    let _ = connection.subscribe(Subscribe::to("paid").from("orders"));
    let body = format!(
        r#"42["CONSUME-orders-paid",{{"event":"paid","message":{{"id":1,"text":"{}"}},"from":"orders"}}]"#,
        "x".repeat(60)
    );
    let mut frame = vec![0x81, 126];
    frame.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(body.as_bytes());
    let burst = frame.repeat(256);
    let mut group = criterion.benchmark_group("client");
    group.throughput(Throughput::Elements(256));
    group.bench_function("deliver 128 B", |bencher| {
        bencher.iter_custom(|count| {
            let before = counter.0.load(Ordering::Relaxed);
            let start = Instant::now();
            for _ in 0..count {
                stream.write_all(&burst).unwrap();
            }
            while counter.0.load(Ordering::Relaxed) < before + 256 * count {
                assert!(
                    start.elapsed() < Duration::from_secs(60),
                    "deliveries are lost"
                );
                std::thread::yield_now();
            }
            start.elapsed()
        });
    });
    group.finish();
}

criterion_group!(benches, produces, deliveries);
criterion_main!(benches);
