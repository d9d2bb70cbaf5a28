//! Mode `dur` (Socket.IO only): unconfirmed messages to a durable consumer that is away, sent as
//! fast as the socket takes them; a canary behind them tells when all are stored; then the drain.

use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::conn::{Conn, Wish};
use crate::process::{cpu_seconds, resident_kib};
use crate::pump::{Pump, Tally, Watch};
use crate::wire::{self, Dialect};

const WISH: Wish = Wish {
    durable: true,
    ack: false,
};

pub fn durable(args: &Args) -> String {
    let (count, pid) = (args.number("count", 20_000), args.pid());
    let most = Duration::from_secs(args.number("max", 100));
    let mut away = Conn::open(args);
    away.consume("dur1", "dur", WISH);
    away.settle();
    away.text("41");
    drop(away);
    sleep(Duration::from_millis(500));

    let mut canary = Conn::open(args);
    canary.consume("can1", "canary", Wish::default());
    canary.settle();
    let mut producer = Conn::open(args);
    producer.produce();
    producer.settle();
    let (writer, before) = (producer.writer.clone(), resident_kib(pid));
    let pump = Pump::start(vec![canary, producer], Watch::default());
    let (cpu, begin) = (cpu_seconds(pid), Instant::now());
    let template = wire::publish(Dialect::SocketIo, "dur", &wire::message(args.payload()));
    let mut block = vec![];
    for number in 0..count {
        let at = block.len() + template.message + wire::SEQUENCE_AT;
        block.extend_from_slice(&template.bytes);
        wire::put_digits(&mut block[at..at + wire::SEQUENCE_DIGITS], number);
        if block.len() > 32 * 1024 || number + 1 == count {
            writer.send(&block);
            block.clear();
        }
    }
    writer.send(&wire::publish(Dialect::SocketIo, "canary", &wire::message(64)).bytes);
    let stored = wait_for(&pump.tally, 1, begin, most);
    let (fill_seconds, fill_cpu, full) = (
        begin.elapsed().as_secs_f64(),
        cpu_seconds(pid) - cpu,
        resident_kib(pid),
    );

    let mut back = Conn::open(args);
    let (cpu, begin) = (cpu_seconds(pid), Instant::now());
    back.consume("dur1", "dur", WISH);
    let drain = Pump::start(
        vec![back],
        Watch {
            order: true,
            ages: false,
        },
    );
    wait_for(&drain.tally, count, begin, most);
    let (drained, seconds) = (drain.tally.received(), begin.elapsed().as_secs_f64());
    sleep(Duration::from_millis(200));
    let per_million = |cpu: f64| cpu / count.max(1) as f64 * 1e6;
    format!(
        r#"{{"peer":"{}","mode":"dur","payload":{},"count":{count},"enqueue_per_s":{:.0},"enqueue_done":{stored},"drain_per_s":{:.0},"drained":{drained},"reordered":{},"enq_cpu_s_per_1m":{:.2},"drain_cpu_s_per_1m":{:.2},"rss0_kb":{before},"rss_queued_kb":{full}}}"#,
        args.name(),
        args.payload(),
        count as f64 / fill_seconds,
        drained as f64 / seconds,
        drain.tally.reordered.load(Relaxed),
        per_million(fill_cpu),
        per_million(cpu_seconds(pid) - cpu),
    )
}

fn wait_for(tally: &Tally, messages: u64, begin: Instant, most: Duration) -> bool {
    while tally.received() < messages && begin.elapsed() < most {
        sleep(Duration::from_micros(500));
    }
    tally.received() >= messages
}
