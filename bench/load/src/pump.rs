//! The reading loop: one thread that reads all connections through epoll, counts messages, checks
//! their order and, if asked, notes how old they are.

use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use memchr::memmem::Finder;

use crate::conn::Conn;
use crate::process::now_ns;
use crate::wire;

/// What the loop tells and is told.
#[derive(Default)]
pub struct Tally {
    pub received: AtomicU64,
    pub sent: AtomicU64,
    /// Messages that came after a later one of the same connection.
    pub reordered: AtomicU64,
    /// Connections that the server closed.
    pub closed: AtomicU64,
    /// Ages in nanoseconds, in order of arrival.
    pub ages: Mutex<Vec<u64>>,
    stop: AtomicBool,
}

impl Tally {
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }
}

/// What the loop looks at beside counting.
#[derive(Clone, Copy, Default)]
pub struct Watch {
    pub order: bool,
    pub ages: bool,
}

/// A running loop; stopped and joined when dropped.
pub struct Pump {
    pub tally: Arc<Tally>,
    thread: Option<JoinHandle<()>>,
}

impl Pump {
    pub fn start(conns: Vec<Conn>, watch: Watch) -> Self {
        let tally = Arc::new(Tally::default());
        let shared = tally.clone();
        let thread = std::thread::spawn(move || run(conns, &shared, watch));
        Self {
            tally,
            thread: Some(thread),
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.tally.stop();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn run(mut conns: Vec<Conn>, tally: &Tally, watch: Watch) {
    let epoll = unsafe { libc::epoll_create1(0) };
    for (index, conn) in conns.iter().enumerate() {
        conn.stream.set_nonblocking(true).expect("nonblocking");
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: index as u64,
        };
        unsafe {
            libc::epoll_ctl(
                epoll,
                libc::EPOLL_CTL_ADD,
                conn.stream.as_raw_fd(),
                &mut event,
            )
        };
    }
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
    let mut reader = Reader::new(watch);
    // What came in behind a handshake is already here.
    for conn in &mut conns {
        reader.cut(conn, tally);
    }
    while !tally.is_stopped() {
        let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 256, 50) };
        for event in &events[..ready.max(0) as usize] {
            let conn = &mut conns[event.u64 as usize];
            if !reader.read(conn, tally) {
                tally.closed.fetch_add(1, Relaxed);
                let fd = conn.stream.as_raw_fd();
                unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
            }
        }
    }
    unsafe { libc::close(epoll) };
}

struct Reader {
    watch: Watch,
    answers: Vec<u8>,
    sequence: Finder<'static>,
    stamp: Finder<'static>,
}

impl Reader {
    fn new(watch: Watch) -> Self {
        Self {
            watch,
            answers: vec![],
            sequence: Finder::new("\"seq\":\""),
            stamp: Finder::new("\"ts\":\""),
        }
    }

    /// Reads until the socket is dry; false when it is closed.
    fn read(&mut self, conn: &mut Conn, tally: &Tally) -> bool {
        loop {
            let room = conn.buffer.len() - conn.filled;
            let filled = conn.filled;
            match (&*conn.stream).read(&mut conn.buffer[filled..]) {
                Ok(0) => return false,
                Ok(read) => {
                    conn.filled += read;
                    self.cut(conn, tally);
                    if read < room {
                        return true;
                    }
                }
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn cut(&mut self, conn: &mut Conn, tally: &Tally) {
        let now = if self.watch.ages { now_ns() } else { 0 };
        let (mut last, mut reordered, mut ages) = (conn.last, 0, vec![]);
        let (watch, sequence, stamp) = (self.watch, &self.sequence, &self.stamp);
        let messages = conn.parse(&mut self.answers, &mut |message| {
            if !watch.order && !watch.ages {
                return;
            }
            let head = &message[..message.len().min(300)];
            let digits = |finder: &Finder<'_>, skip: usize, count: usize| {
                let at = finder.find(head)? + skip;
                head.get(at..at + count).map(wire::take_digits)
            };
            if let Some(number) = digits(sequence, 7, wire::SEQUENCE_DIGITS) {
                reordered += u64::from((number as i64) < last);
                last = number as i64;
            }
            if watch.ages
                && let Some(sent) = digits(stamp, 6, wire::STAMP_DIGITS)
            {
                ages.push(now.saturating_sub(sent));
            }
        });
        conn.last = last;
        if reordered > 0 {
            tally.reordered.fetch_add(reordered, Relaxed);
        }
        if !ages.is_empty() {
            tally.ages.lock().expect("ages").extend(ages);
        }
        if messages > 0 {
            tally.received.fetch_add(messages, Relaxed);
        }
        if !self.answers.is_empty() {
            conn.writer.send(&self.answers);
            self.answers.clear();
        }
    }
}
