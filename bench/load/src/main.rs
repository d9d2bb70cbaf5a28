//! Load generator: one JSON line on stdout, cheap on its own CPU so that the server is what is
//! measured. Judges nothing: `bench/run.js` starts servers, calls this and compares.
//!
//! `load thr|lat|idle|conf|dur|disk --dialect sio|nats --port N [--name value …]`; see [`args`].

mod args;
mod confirmed;
mod conn;
mod disk;
mod durable;
mod idle;
mod process;
mod pump;
mod stream;
mod wire;

use args::Args;

fn main() {
    // Sleeps of 20 µs must not become sleeps of 70 µs.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000, 0, 0, 0) };
    let args = Args::from_command_line();
    let line = match args.mode.as_str() {
        "thr" => stream::throughput(&args),
        "lat" => stream::latency(&args),
        "idle" => idle::idle(&args),
        "conf" => confirmed::confirmed(&args),
        "disk" => disk::disk(&args),
        "dur" => durable::durable(&args),
        other => args::usage(&format!("unknown mode {other}")),
    };
    println!("{line}");
}
