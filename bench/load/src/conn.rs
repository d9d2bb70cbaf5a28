//! One connection to the server under test: opens it, registers, and cuts what arrives into
//! messages. The reading loop is in `pump`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use memchr::{memchr, memmem, memrchr};

use crate::args::Args;
use crate::wire::{self, Dialect};

/// The writing half: producers share it with the reading loop, which answers pings.
#[derive(Clone)]
pub struct Writer {
    stream: Arc<TcpStream>,
    turn: Arc<Mutex<()>>,
}

impl Writer {
    /// Writes all of `bytes`, waiting where the socket is full; false when the link is gone.
    pub fn send(&self, mut bytes: &[u8]) -> bool {
        let _turn = self.turn.lock().expect("writer lock");
        while !bytes.is_empty() {
            match (&*self.stream).write(bytes) {
                Ok(0) => return false,
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_until_writable(),
                Err(_) => return false,
            }
        }
        true
    }

    fn wait_until_writable(&self) {
        let mut poll = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        unsafe { libc::poll(&mut poll, 1, 1000) };
    }
}

/// How [`Conn::consume`] subscribes.
#[derive(Clone, Copy, Default)]
pub struct Wish {
    pub durable: bool,
    pub ack: bool,
}

pub struct Conn {
    pub stream: Arc<TcpStream>,
    pub writer: Writer,
    pub buffer: Vec<u8>,
    pub filled: usize,
    /// Messages received so far.
    pub received: u64,
    /// Highest sequence number seen, -1 before the first.
    pub last: i64,
    /// Frames that begin with this count as messages; empty: none does.
    pub want: Vec<u8>,
    start: usize,
    dialect: Dialect,
    ack: bool,
}

impl Conn {
    pub fn open(args: &Args) -> Self {
        let (host, port) = args.address();
        let stream = TcpStream::connect((host.as_str(), port)).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        let stream = Arc::new(stream);
        let writer = Writer {
            stream: stream.clone(),
            turn: Arc::default(),
        };
        let mut conn = Self {
            stream,
            writer,
            buffer: vec![0; 256 * 1024],
            filled: 0,
            received: 0,
            last: -1,
            want: vec![],
            start: 0,
            dialect: args.dialect(),
            ack: false,
        };
        match conn.dialect {
            Dialect::SocketIo => {
                conn.open_socket_io(&host, port);
                conn.authenticate(&args.text("token", ""));
            }
            Dialect::Nats => conn.open_nats(),
        }
        conn
    }

    fn open_socket_io(&mut self, host: &str, port: u16) {
        let request = format!(
            "GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        self.writer.send(request.as_bytes());
        self.until(|bytes| memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4));
        let open = self.frame();
        assert!(
            open.starts_with(b"0{"),
            "open packet: {}",
            String::from_utf8_lossy(&open)
        );
        self.text("40");
        let joined = self.frame();
        assert!(
            joined.starts_with(b"40{"),
            "connect reply: {}",
            String::from_utf8_lossy(&joined)
        );
    }

    /// Shows a token, if there is one, and waits to be let in.
    fn authenticate(&mut self, token: &str) {
        if token.is_empty() {
            return;
        }
        self.text(&format!(r#"42["AUTHENTICATION",{{"token":"{token}"}}]"#));
        let answer = self.frame();
        assert!(
            answer.starts_with(b"42[\"AUTH_OK\""),
            "AUTHENTICATION: {}",
            String::from_utf8_lossy(&answer)
        );
    }

    fn open_nats(&mut self) {
        self.until(|bytes| memchr(b'\n', bytes).map(|at| at + 1));
        let hello = r#"CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1","protocol":1}"#;
        self.writer.send(format!("{hello}\r\nPING\r\n").as_bytes());
        self.until(|bytes| memmem::find(bytes, b"PONG\r\n").map(|at| at + 6));
    }

    pub fn text(&self, text: &str) {
        let mut frame = vec![];
        wire::text_frame(text.as_bytes(), &mut frame);
        self.writer.send(&frame);
    }

    /// Registers as producer `p1`, the only name the messages come from.
    pub fn produce(&self) {
        if self.dialect == Dialect::SocketIo {
            self.text(r#"42["PRODUCER",{"name":"p1"}]"#);
        }
    }

    /// A request to a nats-server and its answer's text (JetStream's own interface).
    pub fn request(&mut self, subject: &str, body: &str) -> String {
        let length = body.len();
        let command = format!("SUB answer 9\r\nPUB {subject} answer {length}\r\n{body}\r\n");
        self.writer.send(command.as_bytes());
        let mut line = vec![];
        // A late INFO may come first.
        while !line.starts_with(b"MSG ") {
            line = self.until(|bytes| memchr(b'\n', bytes).map(|at| at + 1));
        }
        let line = line.trim_ascii_end();
        let length = memrchr(b' ', line).map_or(0, |at| wire::take_digits(&line[at + 1..]));
        let answer =
            self.until(|bytes| Some(length as usize + 2).filter(|&all| all <= bytes.len()));
        self.writer.send(b"UNSUB 9\r\n");
        let answer = String::from_utf8_lossy(&answer).trim_end().to_owned();
        assert!(!answer.contains("\"error\""), "{subject}: {answer}");
        answer
    }

    /// Everything that comes on `subject` counts as a message, acknowledged if asked.
    pub fn listen(&mut self, subject: &str, ack: bool) {
        self.ack = ack;
        self.writer.send(format!("SUB {subject} 1\r\n").as_bytes());
    }

    /// Registers consumer `name` and subscribes it to `event` of producer `p1`.
    pub fn consume(&mut self, name: &str, event: &str, wish: Wish) {
        self.ack = wish.ack;
        match self.dialect {
            Dialect::SocketIo => {
                self.text(&format!(
                    r#"42["CONSUMER",{{"name":"{name}","id":"{name}","consumer_id":"{name}"}}]"#
                ));
                self.subscribe(name, event, wish);
                self.want = format!("42[\"CONSUME-p1-{event}\"").into_bytes();
            }
            Dialect::Nats => self.listen(event, wish.ack),
        }
    }

    /// One more subscription of a registered consumer (Socket.IO only).
    pub fn subscribe(&self, name: &str, event: &str, Wish { durable, ack }: Wish) {
        self.text(&format!(
            r#"42["SUBSCRIBE",{{"event":"{event}","producer":"p1","consumer":"{name}","durable":{durable},"consumer_id":"{name}","ack":{ack}}}]"#
        ));
    }

    /// Waits until the server has worked through all that was sent on this connection.
    pub fn settle(&mut self) {
        match self.dialect {
            Dialect::SocketIo => {
                self.text(r#"421["PING",{}]"#);
                // A plain Socket.IO server has no PING: it gets a moment instead.
                self.stream
                    .set_read_timeout(Some(std::time::Duration::from_millis(500)))
                    .expect("timeout");
                loop {
                    match self.try_frame() {
                        Some(frame) if frame.starts_with(b"431") => break,
                        Some(frame) if frame == b"2" => self.text("3"),
                        Some(_) => {}
                        None => break,
                    }
                }
                self.stream.set_read_timeout(None).expect("timeout");
            }
            Dialect::Nats => {
                self.writer.send(b"PING\r\n");
                self.until(|bytes| memmem::find(bytes, b"PONG\r\n").map(|at| at + 6));
            }
        }
    }

    fn until(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> Vec<u8> {
        self.try_until(end)
            .expect("the server closed or went silent in the handshake")
    }

    fn try_until(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = end(&self.buffer[self.start..self.filled]) {
                let taken = self.buffer[self.start..self.start + length].to_vec();
                self.start += length;
                if self.start == self.filled {
                    (self.start, self.filled) = (0, 0);
                }
                return Some(taken);
            }
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.filled * 2, 0);
            }
            match (&*self.stream).read(&mut self.buffer[self.filled..]) {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.filled += read,
            }
        }
    }

    fn frame(&mut self) -> Vec<u8> {
        self.try_frame()
            .expect("the server closed or went silent in the handshake")
    }

    fn try_frame(&mut self) -> Option<Vec<u8>> {
        let whole = |bytes: &[u8]| {
            let (length, header) = wire::frame_lengths(bytes)?;
            (bytes.len() >= header + length).then_some(header + length)
        };
        let frame = self.try_until(whole)?;
        let (_, header) = wire::frame_lengths(&frame)?;
        Some(frame[header..].to_vec())
    }

    /// Cuts what is buffered: answers go to `answers`, each message to `each`. Number of messages.
    pub fn parse(&mut self, answers: &mut Vec<u8>, each: &mut dyn FnMut(&[u8])) -> u64 {
        let mut messages = 0;
        loop {
            let bytes = &self.buffer[self.start..self.filled];
            let used = match self.dialect {
                Dialect::SocketIo => self.parse_frame(bytes, answers, each, &mut messages),
                Dialect::Nats => self.parse_nats(bytes, answers, each, &mut messages),
            };
            match used {
                Some(used) => self.start += used,
                None => break,
            }
        }
        self.make_room();
        self.received += messages;
        messages
    }

    fn parse_frame(
        &self,
        bytes: &[u8],
        answers: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
        messages: &mut u64,
    ) -> Option<usize> {
        let (length, header) = wire::frame_lengths(bytes)?;
        let payload = bytes.get(header..header + length)?;
        if payload == b"2" {
            wire::text_frame(b"3", answers);
        } else if !self.want.is_empty() && payload.starts_with(&self.want) {
            *messages += 1;
            each(payload);
            if self.ack {
                acknowledge(payload, answers);
            }
        }
        Some(header + length)
    }

    fn parse_nats(
        &self,
        bytes: &[u8],
        answers: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
        messages: &mut u64,
    ) -> Option<usize> {
        let end = memchr(b'\n', bytes)?;
        if !bytes.starts_with(b"MSG ") {
            if bytes.starts_with(b"PING") {
                answers.extend_from_slice(b"PONG\r\n");
            }
            return Some(end + 1);
        }
        let line = &bytes[..end - 1];
        let length = wire::take_digits(&line[memrchr(b' ', line)? + 1..]) as usize;
        each(
            bytes
                .get(end + 1..end + 1 + length + 2)
                .map(|body| &body[..length])?,
        );
        if self.ack {
            let reply = line[4..].split(|&byte| byte == b' ').nth(2)?;
            answers.extend_from_slice(b"PUB ");
            answers.extend_from_slice(reply);
            answers.extend_from_slice(b" 4\r\n+ACK\r\n");
        }
        *messages += 1;
        Some(end + 1 + length + 2)
    }

    fn make_room(&mut self) {
        if self.start == self.filled {
            (self.start, self.filled) = (0, 0);
        } else if self.start > 128 * 1024 || self.filled == self.buffer.len() {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.filled * 2, 0);
            }
        }
    }
}

fn acknowledge(delivery: &[u8], answers: &mut Vec<u8>) {
    let Some(start) = memmem::find(delivery, b"\"msgId\":\"").map(|at| at + 9) else {
        return;
    };
    let Some(length) = memchr(b'"', &delivery[start..]) else {
        return;
    };
    let mut text = br#"42["ACK",{"msgId":""#.to_vec();
    text.extend_from_slice(&delivery[start..start + length]);
    text.extend_from_slice(br#""}]"#);
    wire::text_frame(&text, answers);
}
