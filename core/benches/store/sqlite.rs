//! What the SQLite store does on this disk: rates, memory and processor time, printed. Each figure
//! is one run, but for one append after the other: there the disk's own rate stands beside, taken
//! in turns with ours, and both are medians.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use restante::clock::{SystemClock, Timestamp};
use restante::store::{
    Bounds, LogId, PageLimit, QueueChange, QueueRecord, SqliteOptions, SqliteStore, Store,
    Synchronous,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::{Source, resident, spec};

const TIME: Duration = Duration::from_secs(3);

struct House {
    runtime: Runtime,
    store: SqliteStore,
    folder: TempDir,
}

impl House {
    fn new(synchronous: Synchronous) -> Self {
        // In the directory of the build: the system's temporary files may be in memory.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let options = SqliteOptions {
            path: Some(folder.path().join("bench.sqlite")),
            synchronous,
            ..SqliteOptions::default()
        };
        let bounds = Bounds {
            max_queued: u64::MAX,
            ..Bounds::default()
        };
        let opening = SqliteStore::open(options, bounds, Arc::new(SystemClock::new()));
        let store = runtime.block_on(opening).unwrap();
        Self {
            runtime,
            store,
            folder,
        }
    }

    fn open(&self, name: &str) -> QueueRecord {
        let opened = self.store.open(spec("order", name, true), Timestamp(0));
        self.runtime.block_on(opened).unwrap()
    }

    /// Appends one by one with so many under way for `time`; how many a second.
    fn rate(&self, source: &mut Source, log: LogId, in_flight: usize, time: Duration) -> f64 {
        self.runtime.block_on(async {
            let mut under_way = VecDeque::new();
            let (start, mut count) = (Instant::now(), 0u64);
            while start.elapsed() < time {
                while under_way.len() < in_flight {
                    under_way.push_back(self.store.append(source.batch(log, 1)));
                }
                if let Some(first) = under_way.pop_front() {
                    assert!(first.await.unwrap()[0].is_ok());
                    count += 1;
                }
            }
            for rest in under_way {
                rest.await.unwrap();
            }
            count as f64 / start.elapsed().as_secs_f64()
        })
    }

    fn fill(&self, source: &mut Source, log: LogId, count: usize) {
        self.runtime.block_on(async {
            let mut under_way = VecDeque::new();
            for _ in 0..count / 256 {
                under_way.push_back(self.store.append(source.batch(log, 256)));
                if under_way.len() == 4
                    && let Some(first) = under_way.pop_front()
                {
                    first.await.unwrap();
                }
            }
            for rest in under_way {
                rest.await.unwrap();
            }
        });
    }
}

/// How often a second this disk takes some bytes for sure: they are written to the end of `file`,
/// which grows as it would without a database, and synchronised (`fdatasync`) before the next.
fn disk(file: &mut File, bytes: usize, time: Duration) -> f64 {
    let content = vec![1; bytes];
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < time {
        file.write_all(&content).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// One append after the other, in turns with what the disk does alone, printed.
#[allow(clippy::print_stdout, reason = "a bench reports by printing")]
pub(super) fn alone(_: &mut Criterion) {
    const TURNS: usize = 9;
    let time = TIME / 4;
    for bytes in [128, 4096] {
        let house = House::new(Synchronous::Full);
        let queue = house.open("a");
        let mut source = Source::sized(bytes);
        let mut file = File::create(house.folder.path().join("disk")).unwrap();
        let [mut ours, mut disks, mut ratios] = [(); 3].map(|()| Vec::new());
        for _ in 0..TURNS {
            ours.push(house.rate(&mut source, queue.log, 1, time));
            disks.push(disk(&mut file, bytes, time));
            ratios.push(ours[ours.len() - 1] / disks[disks.len() - 1]);
        }
        println!(
            "sqlite full, {bytes} B, one after the other: {:.0}/s, the disk {:.0}/s, {:.2} of it \
             (medians of {TURNS} turns)",
            median(ours),
            median(disks),
            median(ratios),
        );
    }
}

/// Processor time of this process, all threads; zero where there is no `/proc`.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Rates, printed.
#[allow(clippy::print_stdout, reason = "a bench reports by printing")]
pub(super) fn rates(_: &mut Criterion) {
    for (name, synchronous) in [("full", Synchronous::Full), ("normal", Synchronous::Normal)] {
        for bytes in [128, 4096] {
            for in_flight in [1, 16, 256] {
                let house = House::new(synchronous);
                let queue = house.open("a");
                let mut source = Source::sized(bytes);
                let rate = house.rate(&mut source, queue.log, in_flight, TIME);
                println!("sqlite {name}, {bytes} B, {in_flight} in flight: {rate:.0}/s");
            }
        }
    }
    let house = House::new(Synchronous::Full);
    let queue = house.open("a");
    let numbered = &mut Source::new(Some("instance"));
    let rate = house.rate(numbered, queue.log, 256, TIME);
    println!("sqlite full, 128 B, 256 in flight, numbered: {rate:.0}/s");
    let house = House::new(Synchronous::Full);
    let queues: Vec<_> = (0..1000).map(|n| house.open(&n.to_string())).collect();
    let rate = house.rate(&mut Source::sized(4096), queues[0].log, 256, TIME);
    println!("sqlite full, 4096 B for 1,000 offline consumers: {rate:.0}/s");
}

/// What reading backlogs does to those who write meanwhile, and the other way round, printed.
#[allow(clippy::print_stdout, reason = "a bench reports by printing")]
pub(super) fn reads(_: &mut Criterion) {
    for bytes in [128, 4096] {
        for readers in [0, 1, 4] {
            let house = House::new(Synchronous::Full);
            let mut source = Source::sized(bytes);
            let backlogs: Vec<_> = (0..readers)
                .map(|n| {
                    let spec = spec(&format!("backlog-{n}"), "a", true);
                    let queue = house.runtime.block_on(house.store.open(spec, Timestamp(0)));
                    let queue = queue.unwrap();
                    house.fill(&mut source, queue.log, 20_000);
                    queue
                })
                .collect();
            let queue = house.open("a");
            let is_over = std::cell::Cell::new(false);
            let (pages, entries) = (std::cell::Cell::new(0u32), std::cell::Cell::new(0));
            let read = async |queue: QueueRecord| {
                let mut after = 0;
                while !is_over.get() {
                    let page =
                        house
                            .store
                            .page(queue.queue, after, PageLimit::default(), Timestamp(0));
                    let page = page.await.unwrap();
                    pages.set(pages.get() + 1);
                    entries.set(entries.get() + page.entries.len());
                    after = if page.end { 0 } else { page.next };
                }
            };
            let mut waits = Vec::new();
            let write = async {
                let mut under_way = VecDeque::new();
                let start = Instant::now();
                while start.elapsed() < TIME {
                    while under_way.len() < 256 {
                        let append = house.store.append(source.batch(queue.log, 1));
                        under_way.push_back((Instant::now(), append));
                    }
                    if let Some((called, first)) = under_way.pop_front() {
                        assert!(first.await.unwrap()[0].is_ok());
                        waits.push(called.elapsed());
                    }
                }
                is_over.set(true);
                for (_, rest) in under_way {
                    rest.await.unwrap();
                }
            };
            let reading = futures_util::future::join_all(backlogs.into_iter().map(read));
            house
                .runtime
                .block_on(async { tokio::join!(write, reading) });
            waits.sort_unstable();
            let seconds = TIME.as_secs_f64();
            println!(
                "sqlite full, {bytes} B, 256 in flight, {readers} reading: {:.0}/s, {:.1} ms, 99 % {:.1} ms; \
                 read {:.0} entries and {:.0} pages/s",
                waits.len() as f64 / seconds,
                waits[waits.len() / 2].as_secs_f64() * 1e3,
                waits[waits.len() * 99 / 100].as_secs_f64() * 1e3,
                entries.get() as f64 / seconds,
                f64::from(pages.get()) / seconds,
            );
        }
    }
}

/// A backlog of a million: memory, processor time of an append before and after, and its end.
#[allow(clippy::print_stdout, reason = "a bench reports by printing")]
pub(super) fn backlog(_: &mut Criterion) {
    const MANY: usize = 1_000_000;
    const SOME: usize = 100_000;
    let house = House::new(Synchronous::Normal);
    let queue = house.open("a");
    let mut source = Source::new(None);
    house.fill(&mut source, queue.log, 10_000);
    let time = |source: &mut Source| {
        let before = processor();
        house.fill(source, queue.log, SOME);
        (processor() - before).as_secs_f64() * 1e6 / SOME as f64
    };
    let empty = time(&mut source);
    let before = resident();
    house.fill(&mut source, queue.log, MANY);
    let grown = resident().saturating_sub(before) >> 20;
    let (all, full) = (resident() >> 20, time(&mut source));
    println!("sqlite, 1,000,000 queued: {grown} MiB more, {all} MiB in all");
    println!("sqlite, an append takes {empty:.2} us of processor when empty, {full:.2} us then");
    let (start, mut after, mut count) = (Instant::now(), 0, 0);
    loop {
        let page = house
            .store
            .page(queue.queue, after, PageLimit::default(), Timestamp(0));
        let page = house.runtime.block_on(page).unwrap();
        (after, count) = (page.next, count + page.entries.len());
        let low = QueueChange {
            low: Some(after),
            ..QueueChange::default()
        };
        let update = house.store.update(queue.queue, low, Timestamp(0));
        house.runtime.block_on(update).unwrap();
        if page.end {
            break;
        }
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("sqlite normal, 128 B, pages of 256 settled one after the other: {rate:.0}/s");
}
