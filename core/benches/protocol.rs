//! What a small message costs at the door and on its way out.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use restante::clock::Timestamp;
use restante::model::{Message, SubscriptionDefaults};
use restante::protocol::inbound::Inbound;
use restante::protocol::outbound::{Content, DeliveryHead, Stamp};

const THRESHOLD: usize = 262_144;

/// A PRODUCE of four members whose body is a string of about `size` bytes.
fn produce(size: usize) -> String {
    let body = "x".repeat(size);
    format!(r#"["PRODUCE",{{"event":"paid","message":"{body}","from":"orders","ttl":90}}]"#)
}

fn parse(c: &mut Criterion) {
    let defaults = SubscriptionDefaults::default();
    let mut group = c.benchmark_group("parse");
    for (name, args) in [
        ("produce/128 B", produce(70)),
        ("produce/4 KiB", produce(4096)),
        (
            "ack",
            r#"["ACK",{"msgId":"1a2b3c-7","delivery_attempt":1}]"#.to_owned(),
        ),
    ] {
        group.throughput(Throughput::Bytes(args.len() as u64));
        group.bench_function(name, |b| {
            let mut scratch = String::new();
            b.iter(|| Inbound::parse(black_box(&args), &[], &mut scratch, &defaults).is_ok());
        });
    }
    group.finish();
}

fn deliver(c: &mut Criterion) {
    let head = DeliveryHead::new("CONSUME-orders-paid");
    let now = Timestamp(0);
    let mut group = c.benchmark_group("deliver");
    for size in [128, 4096] {
        let body = format!("\"{}\"", "x".repeat(size));
        let content = Content {
            event: "paid",
            from: "orders",
            body: Some(body.as_bytes()),
            enc: None,
            to: None,
            content_type: None,
            headers: None,
            attachments: &[],
        };
        let tracked = Stamp::Tracked {
            msg_id: "1a2b3c-7",
            attempt: 1,
        };
        for (name, stamp) in [("plain", Stamp::Plain), ("tracked", tracked)] {
            group.bench_function(format!("{name}/{size} B"), |b| {
                let mut out = Vec::new();
                b.iter(|| {
                    out.clear();
                    head.write(&mut out, black_box(&content), stamp, THRESHOLD, || now);
                    out.len()
                });
            });
        }
    }
    group.finish();
}

fn store(c: &mut Criterion) {
    let args = produce(128);
    let mut scratch = String::new();
    let defaults = SubscriptionDefaults::default();
    let Ok(Inbound::Produce(produce)) = Inbound::parse(&args, &[], &mut scratch, &defaults) else {
        return;
    };
    let message = produce.to_message("orders".into(), Timestamp(1), None);
    let mut stored = Vec::new();
    message.encode(&mut stored);
    let stored = bytes::Bytes::from(stored);
    let mut group = c.benchmark_group("stored form");
    group.bench_function("encode/128 B", |b| {
        let mut out = Vec::new();
        b.iter(|| {
            out.clear();
            black_box(&message).encode(&mut out);
            out.len()
        });
    });
    group.bench_function("decode/128 B", |b| {
        b.iter(|| Message::decode(black_box(stored.clone())).is_ok());
    });
    group.finish();
}

criterion_group!(benches, parse, deliver, store);
criterion_main!(benches);
