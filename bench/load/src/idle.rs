//! Mode `idle`: many connections, each registered with one subscription; then silence, and a look
//! at the server's memory.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::conn::{Conn, Wish};
use crate::process::{cpu_seconds, resident_kib};
use crate::pump::{Pump, Watch};

pub fn idle(args: &Args) -> String {
    let (count, pid) = (args.number("conns", 1000), args.pid());
    let before = resident_kib(pid);
    let begin = Instant::now();
    let conns: Vec<_> = (0..count)
        .map(|index| {
            let mut conn = Conn::open(args);
            conn.consume(
                &format!("idle{index}"),
                &format!("ev{index}"),
                Wish::default(),
            );
            if index % 100 == 99 || index + 1 == count {
                conn.settle();
            }
            // 10,000 of these must not weigh on the machine themselves.
            conn.buffer.truncate(conn.filled.max(1024));
            conn.buffer.shrink_to_fit();
            conn
        })
        .collect();
    let seconds = begin.elapsed().as_secs_f64();
    let pump = Pump::start(conns, Watch::default());
    sleep(Duration::from_secs(args.number("secs", 3)));
    let (after, cpu, begin) = (resident_kib(pid), cpu_seconds(pid), Instant::now());
    sleep(Duration::from_secs(1));
    let percent = (cpu_seconds(pid) - cpu) / begin.elapsed().as_secs_f64() * 100.0;
    format!(
        r#"{{"peer":"{}","mode":"idle","conns":{count},"connect_per_s":{:.0},"rss_idle_kb":{before},"rss_conns_kb":{after},"kb_per_conn":{:.2},"closed":{},"server_cpu_pct":{percent:.1}}}"#,
        args.name(),
        count as f64 / seconds,
        (after as f64 - before as f64) / count as f64,
        pump.tally.closed.load(std::sync::atomic::Ordering::Relaxed),
    )
}
