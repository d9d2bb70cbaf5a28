//! Mode `conf`: confirmed, guaranteed messages with `--window` unanswered, to a durable consumer
//! that is away (`--consumers N`: so many of them); then the first one returns and drains (`--ack 1`:
//! acknowledging each). In the NATS dialect: to a JetStream stream in a file, and its consumer.
//!
//! `--queued N` first fills the queue with N messages that are not counted, so that the price of a
//! message can be compared between an empty and a long queue.

use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::conn::{Conn, Wish, Writer};
use crate::process::{cpu_seconds, peak_kib, resident_kib};
use crate::pump::{Pump, Tally, Watch};
use crate::stream::quantile_us;
use crate::wire::{self, Dialect, Template};

const EVENT: &str = "conf";
const CONSUMER: &str = "conf1";

pub fn confirmed(args: &Args) -> String {
    let wish = Wish {
        durable: true,
        ack: args.number("ack", 0) == 1,
    };
    let (count, queued, pid) = (
        args.number("count", 20_000),
        args.number("queued", 0),
        args.pid(),
    );
    leave_a_subscription(args, wish);
    let before = resident_kib(pid);

    let mut producer = Conn::open(args);
    producer.produce();
    producer.settle();
    match args.dialect() {
        Dialect::SocketIo => producer.want = b"43".to_vec(),
        Dialect::Nats => producer.listen("acks", false),
    }
    let mut line = Line::new(args, producer);
    line.send(queued, 1000);
    let (cpu, begin) = (cpu_seconds(pid), Instant::now());
    let latencies = line.send(count, args.number("window", 256));
    let (fill_seconds, fill_cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds(pid) - cpu);
    let (confirmed, full) = (line.tally().received() - queued, resident_kib(pid));

    let cpu = cpu_seconds(pid);
    let (drained, drain_seconds, reordered) = if args.number("drain", 1) == 1 {
        drain(args, wish, confirmed + queued)
    } else {
        (0, 0.0, 0)
    };
    // The last confirmations are still being written while the last message is counted.
    sleep(Duration::from_millis(200));
    let drain_cpu = cpu_seconds(pid) - cpu;
    let per_million = |cpu: f64, messages: u64| cpu / messages.max(1) as f64 * 1e6;
    let per_second = |messages: u64, seconds: f64| {
        if seconds > 0.0 {
            messages as f64 / seconds
        } else {
            0.0
        }
    };
    format!(
        r#"{{"peer":"{}","mode":"conf","payload":{},"window":{},"ack":{},"queued":{queued},"count":{count},"confirmed":{confirmed},"confirmed_per_s":{:.0},"p50_us":{:.0},"p99_us":{:.0},"drained":{drained},"drain_per_s":{:.0},"reordered":{reordered},"enq_cpu_s_per_1m":{:.3},"drain_cpu_s_per_1m":{:.3},"rss0_kb":{before},"rss_queued_kb":{full},"peak_kb":{}}}"#,
        args.name(),
        args.payload(),
        args.number("window", 256),
        wish.ack,
        per_second(confirmed, fill_seconds),
        quantile_us(&latencies, 0.5),
        quantile_us(&latencies, 0.99),
        per_second(drained, drain_seconds),
        per_million(fill_cpu, confirmed),
        per_million(drain_cpu, drained),
        peak_kib(pid),
    )
}

fn leave_a_subscription(args: &Args, wish: Wish) {
    let mut conn = Conn::open(args);
    if args.dialect() == Dialect::Nats {
        let stream = format!(r#"{{"name":"S","subjects":["{EVENT}"],"storage":"file"}}"#);
        conn.request("$JS.API.STREAM.CREATE.S", &stream);
        return;
    }
    for number in 2..=args.number("consumers", 1) {
        leave(Conn::open(args), &format!("conf{number}"), wish);
    }
    leave(conn, CONSUMER, wish);
    // The name must be free again before it returns; half a second of quiet is part of the mode.
    sleep(Duration::from_millis(500));
}

fn leave(mut conn: Conn, name: &str, wish: Wish) {
    conn.consume(name, EVENT, wish);
    conn.settle();
    conn.text("41");
}

/// The consumer is there again.
fn come_back(args: &Args, conn: &mut Conn, wish: Wish) {
    if args.dialect() == Dialect::SocketIo {
        return conn.consume(CONSUMER, EVENT, wish);
    }
    let policy = if wish.ack {
        r#""explicit","max_ack_pending":1024"#
    } else {
        r#""none""#
    };
    let consumer = format!(
        r#"{{"stream_name":"S","config":{{"durable_name":"{CONSUMER}","deliver_subject":"out","ack_policy":{policy}}}}}"#
    );
    // Subscribed before it is made, or what comes at once would be lost.
    let mut maker = Conn::open(args);
    conn.listen("out", wish.ack);
    conn.settle();
    maker.request(
        &format!("$JS.API.CONSUMER.DURABLE.CREATE.S.{CONSUMER}"),
        &consumer,
    );
}

/// The producer's side: numbered messages, answered by number.
struct Line {
    pump: Pump,
    writer: Writer,
    template: Template,
    next: u64,
    deadline: Instant,
}

impl Line {
    fn new(args: &Args, producer: Conn) -> Self {
        let writer = producer.writer.clone();
        let template = wire::confirmed(args.dialect(), EVENT, &wire::message(args.payload()));
        let deadline = Instant::now() + Duration::from_secs(args.number("max", 100));
        Self {
            pump: Pump::start(vec![producer], Watch::default()),
            writer,
            template,
            next: 0,
            deadline,
        }
    }

    fn tally(&self) -> &Tally {
        &self.pump.tally
    }

    /// Sends `count` messages with at most `window` unanswered; sorted latencies with a window of 1.
    fn send(&mut self, count: u64, window: u64) -> Vec<u64> {
        let batch = (window / 2).clamp(1, 32);
        let length = self.template.bytes.len();
        let mut block = self.template.bytes.repeat(batch as usize);
        let (end, mut latencies) = (self.next + count, vec![]);
        while self.next < end && Instant::now() < self.deadline {
            let size = batch.min(end - self.next);
            self.wait_for(self.next.saturating_sub(window - size), window == 1);
            let begin = Instant::now();
            for (number, message) in (self.next..)
                .zip(block.chunks_mut(length))
                .take(size as usize)
            {
                let at = self.template.message + wire::SEQUENCE_AT;
                if let Some(id) = self.template.reply {
                    wire::put_digits(&mut message[id..id + wire::REPLY_DIGITS], number + 1);
                }
                wire::put_digits(&mut message[at..at + wire::SEQUENCE_DIGITS], number);
            }
            self.writer.send(&block[..size as usize * length]);
            self.next += size;
            if window == 1 {
                self.wait_for(self.next, true);
                latencies.push(begin.elapsed().as_nanos() as u64);
            }
        }
        self.wait_for(self.next, false);
        latencies.sort_unstable();
        latencies
    }

    fn wait_for(&self, answers: u64, spin: bool) {
        while self.tally().received() < answers && Instant::now() < self.deadline {
            if spin {
                std::hint::spin_loop()
            } else {
                sleep(Duration::from_micros(20))
            }
        }
    }
}

/// Messages that the returning consumer got, in how many seconds, and how many out of order.
fn drain(args: &Args, wish: Wish, expected: u64) -> (u64, f64, u64) {
    let mut conn = Conn::open(args);
    let begin = Instant::now();
    let most = Duration::from_secs(args.number("max", 100));
    come_back(args, &mut conn, wish);
    let pump = Pump::start(
        vec![conn],
        Watch {
            order: true,
            ages: false,
        },
    );
    while pump.tally.received() < expected && begin.elapsed() < most {
        sleep(Duration::from_micros(500));
    }
    (
        pump.tally.received(),
        begin.elapsed().as_secs_f64(),
        pump.tally.reordered.load(Relaxed),
    )
}
