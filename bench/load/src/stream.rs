//! Modes `thr` and `lat`: producers to consumers, everybody connected.
//!
//! `thr` keeps at most `--window` messages on the way, so no server drops or swells, and goes on
//! until the server has used `--cpu` CPU seconds (or `--secs` have passed). `lat` sends at a fixed
//! rate and notes how old each message is when it arrives.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::conn::{Conn, Wish, Writer};
use crate::process::{cpu_seconds, now_ns, own_cpu_seconds, resident_kib};
use crate::pump::{Pump, Tally, Watch};
use crate::wire::{self, Dialect};

const EVENT: &str = "bench";
/// Before anything is counted: connections, caches and allocators get warm.
const WARM_UP: Duration = Duration::from_millis(800);

pub fn throughput(args: &Args) -> String {
    let (producers, consumers) = (args.number("producers", 1), args.number("consumers", 1));
    let window = args.number("window", 1000);
    let (pump, writers) = connect(
        args,
        Watch {
            order: producers == 1,
            ages: false,
        },
    );
    let tally = pump.tally.clone();
    let batch = batch(args, window);
    let threads: Vec<_> = writers
        .into_iter()
        .map(|writer| {
            flood(
                args,
                writer,
                tally.clone(),
                Pace {
                    window,
                    batch,
                    consumers,
                },
            )
        })
        .collect();
    sleep(WARM_UP);
    let pid = args.pid();
    let (enough_cpu, most) = (
        args.number("cpu", 0) as f64,
        Duration::from_secs(args.number("secs", 3)),
    );
    let (begin, received, sent) = (Instant::now(), tally.received(), tally.sent());
    let (cpu, own) = (cpu_seconds(pid), own_cpu_seconds());
    while begin.elapsed() < most && (enough_cpu == 0.0 || cpu_seconds(pid) - cpu < enough_cpu) {
        sleep(Duration::from_millis(20));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let (received, sent) = (
        (tally.received() - received) as f64,
        (tally.sent() - sent) as f64,
    );
    let (cpu, own) = (cpu_seconds(pid) - cpu, own_cpu_seconds() - own);
    let line = format!(
        r#"{{"peer":"{}","mode":"thr","payload":{},"producers":{producers},"consumers":{consumers},"window":{window},"published_per_s":{:.0},"delivered_per_s":{:.0},"server_cpu_s":{cpu:.2},"cpu_s_per_1m_delivered":{:.4},"client_cpu_pct":{:.0},"reordered":{},"closed":{},"rss_kb":{},"secs":{seconds:.2}}}"#,
        args.name(),
        args.payload(),
        sent / seconds,
        received / seconds,
        cpu / received.max(1.0) * 1e6,
        own / seconds * 100.0,
        tally.reordered.load(Relaxed),
        tally.closed.load(Relaxed),
        resident_kib(pid),
    );
    finish(pump, threads);
    line
}

pub fn latency(args: &Args) -> String {
    let rate = args.number("rate", 500);
    let (pump, writers) = connect(
        args,
        Watch {
            order: true,
            ages: true,
        },
    );
    let tally = pump.tally.clone();
    let threads: Vec<_> = writers
        .into_iter()
        .map(|writer| pace(args, writer, tally.clone(), rate))
        .collect();
    sleep(WARM_UP);
    let (pid, begin) = (args.pid(), Instant::now());
    let (cpu, skip) = (cpu_seconds(pid), tally.ages.lock().expect("ages").len());
    sleep(Duration::from_secs(args.number("secs", 20)));
    let percent = (cpu_seconds(pid) - cpu) / begin.elapsed().as_secs_f64() * 100.0;
    let mut ages = tally.ages.lock().expect("ages").split_off(skip);
    ages.sort_unstable();
    let line = format!(
        r#"{{"peer":"{}","mode":"lat","payload":{},"rate":{rate},"n":{},"p50_us":{:.0},"p99_us":{:.0},"p999_us":{:.0},"server_cpu_pct":{percent:.1},"reordered":{}}}"#,
        args.name(),
        args.payload(),
        ages.len(),
        quantile_us(&ages, 0.5),
        quantile_us(&ages, 0.99),
        quantile_us(&ages, 0.999),
        tally.reordered.load(Relaxed),
    );
    finish(pump, threads);
    line
}

/// The `q` quantile of sorted nanoseconds, in microseconds; 0 of nothing.
pub fn quantile_us(sorted: &[u64], q: f64) -> f64 {
    let at = ((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |&ns| ns as f64 / 1000.0)
}

fn connect(args: &Args, watch: Watch) -> (Pump, Vec<Writer>) {
    let consumers = args.number("consumers", 1);
    let mut conns = bystanders(args);
    for index in 0..consumers {
        let mut conn = Conn::open(args);
        conn.consume(&format!("c{index}"), EVENT, Wish::default());
        conn.settle();
        conns.push(conn);
    }
    let mut writers = vec![];
    for _ in 0..args.number("producers", 1) {
        let mut conn = Conn::open(args);
        conn.produce();
        conn.settle();
        writers.push(conn.writer.clone());
        conns.push(conn);
    }
    (Pump::start(conns, watch), writers)
}

/// `--subscriptions N`: that many subscriptions to events that nobody publishes, 1,000 a
/// connection, so that a look-up has something to look through.
fn bystanders(args: &Args) -> Vec<Conn> {
    let wanted = args.number("subscriptions", 0);
    if wanted == 0 || args.dialect() != Dialect::SocketIo {
        return vec![];
    }
    (0..wanted.div_ceil(1000))
        .map(|number| {
            let mut conn = Conn::open(args);
            let name = format!("bystander{number}");
            conn.consume(&name, &format!("quiet-{number}-0"), Wish::default());
            for event in 1..1000.min(wanted - number * 1000) {
                conn.subscribe(&name, &format!("quiet-{number}-{event}"), Wish::default());
            }
            conn.settle();
            conn.want.clear();
            conn
        })
        .collect()
}

#[derive(Clone, Copy)]
struct Pace {
    window: u64,
    batch: u64,
    consumers: u64,
}

/// Messages a write: at most `--batch`, 32 KiB, and half the window.
fn batch(args: &Args, window: u64) -> u64 {
    let fitting = (32 * 1024 / (args.payload() as u64 + 60)).max(1);
    args.number("batch", 32)
        .min(fitting)
        .min((window / 2).max(1))
}

fn flood(args: &Args, writer: Writer, tally: Arc<Tally>, pace: Pace) -> JoinHandle<()> {
    let template = wire::publish(args.dialect(), EVENT, &wire::message(args.payload()));
    spawn(move || {
        let length = template.bytes.len();
        let mut block = template.bytes.repeat(pace.batch as usize);
        let mut sequence = 0;
        while !tally.is_stopped() {
            let under_way = tally
                .sent()
                .saturating_sub(tally.received() / pace.consumers);
            if under_way + pace.batch > pace.window {
                sleep(Duration::from_micros(40));
                continue;
            }
            for message in block.chunks_mut(length) {
                let at = template.message + wire::SEQUENCE_AT;
                wire::put_digits(&mut message[at..at + wire::SEQUENCE_DIGITS], sequence);
                sequence += 1;
            }
            tally.sent.fetch_add(pace.batch, Relaxed);
            if !writer.send(&block) {
                return;
            }
        }
    })
}

fn pace(args: &Args, writer: Writer, tally: Arc<Tally>, rate: u64) -> JoinHandle<()> {
    let template = wire::publish(args.dialect(), EVENT, &wire::message(args.payload()));
    spawn(move || {
        let mut bytes = template.bytes;
        let (stamp, sequence) = (
            template.message + wire::STAMP_AT,
            template.message + wire::SEQUENCE_AT,
        );
        let begin = Instant::now();
        for number in 0.. {
            let due = begin + Duration::from_nanos(number * 1_000_000_000 / rate);
            if let Some(wait) = due.checked_duration_since(Instant::now()) {
                sleep(wait);
            }
            wire::put_digits(
                &mut bytes[sequence..sequence + wire::SEQUENCE_DIGITS],
                number,
            );
            wire::put_digits(&mut bytes[stamp..stamp + wire::STAMP_DIGITS], now_ns());
            if tally.is_stopped() || !writer.send(&bytes) {
                return;
            }
            tally.sent.fetch_add(1, Relaxed);
        }
    })
}

fn finish(pump: Pump, threads: Vec<JoinHandle<()>>) {
    pump.tally.stop();
    for thread in threads {
        _ = thread.join();
    }
}
