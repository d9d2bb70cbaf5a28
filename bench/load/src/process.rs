//! What `/proc` says about a process: CPU seconds and resident memory. 0 for process id 0.

/// User and system CPU seconds since the process began, in steps of 10 ms.
pub fn cpu_seconds(pid: u64) -> f64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return 0.0;
    };
    let after_name = &stat[stat.rfind(')').map_or(0, |at| at + 2)..];
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// CPU seconds of this generator.
pub fn own_cpu_seconds() -> f64 {
    cpu_seconds(u64::from(std::process::id()))
}

/// Resident memory in KiB.
pub fn resident_kib(pid: u64) -> u64 {
    status_kib(pid, "VmRSS")
}

/// The most that was ever resident, in KiB.
pub fn peak_kib(pid: u64) -> u64 {
    status_kib(pid, "VmHWM")
}

fn status_kib(pid: u64, name: &str) -> u64 {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return 0;
    };
    let line = status.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// Nanoseconds since 1970, for timestamps inside messages.
pub fn now_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |elapsed| elapsed.as_nanos() as u64)
}
