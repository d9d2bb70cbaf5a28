//! Mode `disk`: how long this disk takes to have some bytes for sure, one write after the other.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::stream::quantile_us;

pub fn disk(args: &Args) -> String {
    let path = Path::new(&args.text("dir", ".")).join("restante-bench-disk");
    let mut file = File::create(&path).expect("a file to write to");
    let content = vec![1; args.payload()];
    let (begin, most) = (Instant::now(), Duration::from_secs(args.number("secs", 3)));
    let mut took = vec![];
    while begin.elapsed() < most {
        let start = Instant::now();
        file.write_all(&content).expect("write");
        file.sync_all().expect("fsync");
        took.push(start.elapsed().as_nanos() as u64);
    }
    let rate = took.len() as f64 / begin.elapsed().as_secs_f64();
    _ = std::fs::remove_file(&path);
    took.sort_unstable();
    format!(
        r#"{{"mode":"disk","payload":{},"per_s":{rate:.0},"p50_us":{:.0},"p99_us":{:.0}}}"#,
        args.payload(),
        quantile_us(&took, 0.5),
        quantile_us(&took, 0.99),
    )
}
