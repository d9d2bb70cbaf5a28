//! A transport whose service records what it is told, and raw clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use restante::clock::{Clock, SystemClock};
use restante::transport::{
    Config, Ending, Event, Handler, Hello, Link, Refusal, Service, Stats, Transport, bind,
    refuse_all,
};
use restante::wire::frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longer than anything takes that does not hang.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What the service was told, in order.
#[derive(Debug)]
pub enum Seen {
    Connected(Link, Option<String>),
    Event {
        reply: Option<u64>,
        args: String,
        attachments: Vec<Vec<u8>>,
    },
    Confirmed(u64),
    Writable,
    Oversize(u64),
    Closed(Ending),
}

struct Recorder(mpsc::UnboundedSender<Seen>);

impl Service for Recorder {
    fn connect(&self, link: Link, hello: &Hello<'_>) -> Result<Box<dyn Handler>, Refusal> {
        if hello.auth == Some(r#"{"refuse":true}"#) {
            // Pushed before the reply: must not come out before it.
            link.reply(text_frame("42[\"early\"]"));
            return Err(Refusal {
                message: "not \"you\"".to_owned(),
            });
        }
        let auth = hello.auth.map(str::to_owned);
        let _ = self.0.send(Seen::Connected(link, auth));
        Ok(Box::new(Recording(self.0.clone())))
    }
}

struct Recording(mpsc::UnboundedSender<Seen>);

impl Recording {
    fn saw(&self, seen: Seen) {
        // The test may have ended.
        let _ = self.0.send(seen);
    }
}

impl Handler for Recording {
    fn event(&mut self, event: Event<'_>) {
        assert_ne!(event.args, r#"["panic"]"#, "asked for");
        self.saw(Seen::Event {
            reply: event.reply,
            args: event.args.to_owned(),
            attachments: event
                .attachments
                .iter()
                .map(|bytes| bytes.to_vec())
                .collect(),
        });
    }
    fn read_done(&mut self) {}
    fn confirmed(&mut self, position: u64) {
        self.saw(Seen::Confirmed(position));
    }
    fn writable(&mut self) {
        self.saw(Seen::Writable);
    }
    fn oversize(&mut self, size: u64, _limit: u64) {
        self.saw(Seen::Oversize(size));
    }
    fn tick(&mut self) {}
    fn closed(&mut self, ending: Ending) {
        self.saw(Seen::Closed(ending));
    }
}

/// A running transport and what its service sees.
pub struct Server {
    pub transport: Transport,
    pub seen: mpsc::UnboundedReceiver<Seen>,
}

impl Server {
    pub fn start(config: Config) -> Self {
        Self::with_clock(config, Arc::new(SystemClock::new()))
    }

    pub fn with_clock(config: Config, clock: Arc<dyn Clock>) -> Self {
        let (sender, seen) = mpsc::unbounded_channel();
        let services = ["/", "/custom"].map(|name| {
            (
                name.to_owned(),
                Arc::new(Recorder(sender.clone())) as Arc<dyn Service>,
            )
        });
        let listener = bind(Some("127.0.0.1"), 0).unwrap();
        let transport =
            Transport::start(listener, config, services.into(), refuse_all(), clock).unwrap();
        Self { transport, seen }
    }

    pub fn addr(&self) -> SocketAddr {
        self.transport.local_addr()
    }

    pub async fn next(&mut self) -> Seen {
        timeout(PATIENCE, self.seen.recv())
            .await
            .expect("the service saw nothing")
            .unwrap()
    }

    pub async fn connected(&mut self) -> Link {
        match self.next().await {
            Seen::Connected(link, _) => link,
            other => panic!("expected a connection, saw {other:?}"),
        }
    }

    pub async fn event(&mut self) -> String {
        match self.next().await {
            Seen::Event { args, .. } => args,
            other => panic!("expected an event, saw {other:?}"),
        }
    }

    pub async fn closed(&mut self) -> Ending {
        match self.next().await {
            Seen::Closed(ending) => ending,
            other => panic!("expected the end, saw {other:?}"),
        }
    }

    /// Waits until the numbers of the transport are as wanted.
    pub async fn until(&self, wanted: impl Fn(Stats) -> bool) {
        let fits = async {
            while !wanted(self.transport.stats()) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, fits)
            .await
            .expect("the numbers never fit");
    }

    /// A client on a websocket that has joined `/`.
    pub async fn joined(&mut self) -> (Ws, Link) {
        let mut ws = Ws::open(self.addr()).await;
        ws.send("40").await;
        assert!(ws.text().await.starts_with("40{\"sid\":\""));
        let link = self.connected().await;
        (ws, link)
    }
}

pub fn text_frame(text: &str) -> bytes::Bytes {
    let mut out = Vec::new();
    frame::text(&[text.as_bytes()], &mut out);
    out.into()
}

/// A frame as clients send it: masked.
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        len @ 0..126 => out.push(0x80 | len as u8),
        len @ 126..65_536 => {
            out.push(0x80 | 126);
            out.extend((len as u16).to_be_bytes());
        }
        len => {
            out.push(0x80 | 127);
            out.extend((len as u64).to_be_bytes());
        }
    }
    let key = [0x12, 0x34, 0x56, 0x78];
    out.extend(key);
    let start = out.len();
    out.extend(payload);
    frame::unmask(&mut out[start..], key);
    out
}

pub fn masked_text(text: &str) -> Vec<u8> {
    masked(0x81, text.as_bytes())
}

/// A websocket client that does nothing by itself.
pub struct Ws {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Ws {
    /// Opens and checks that the first frame is the open packet.
    pub async fn open(addr: SocketAddr) -> Self {
        let mut ws = Self::upgrade(addr, "EIO=4&transport=websocket").await;
        let open = ws.text().await;
        assert!(open.starts_with("0{\"sid\":\""), "{open}");
        assert!(open.contains("\"upgrades\":[]"), "{open}");
        ws
    }

    /// Opens with a query and reads the 101.
    pub async fn upgrade(addr: SocketAddr, query: &str) -> Self {
        let (head, ws) = Self::try_upgrade(addr, query, "").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        ws
    }

    /// Opens with a query and more headers; the response's head.
    pub async fn try_upgrade(addr: SocketAddr, query: &str, headers: &str) -> (String, Self) {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let request = format!(
            "GET /socket.io/?{query} HTTP/1.1\r\nHost: {addr}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut ws = Self {
            stream,
            buffer: Vec::new(),
        };
        let end = loop {
            if let Some(end) = ws.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(ws.fill().await, "no response");
        };
        let rest = ws.buffer.split_off(end);
        let head = std::mem::replace(&mut ws.buffer, rest);
        (String::from_utf8(head).unwrap(), ws)
    }

    pub async fn send(&mut self, text: &str) {
        self.send_raw(&masked_text(text)).await;
    }

    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn fill(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.buffer);
        matches!(timeout(PATIENCE, read).await.expect("nothing came"), Ok(count) if count > 0)
    }

    /// The next frame: its first byte and payload; `None` at the end of the stream.
    pub async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let whole = frame::take_whole(&self.buffer, 0);
            if whole > 0 {
                let rest = self.buffer.split_off(whole);
                let frame = std::mem::replace(&mut self.buffer, rest);
                let (_, payload) = frame::walk(&frame).next().unwrap();
                return Some((frame[0], payload.to_vec()));
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    pub async fn text(&mut self) -> String {
        let (first, payload) = self.frame().await.expect("the connection ended");
        assert_eq!(first, 0x81, "{payload:?}");
        String::from_utf8(payload).unwrap()
    }

    /// The code of the close frame that must come next, after which the stream must end.
    pub async fn close_code(&mut self) -> u16 {
        let (first, payload) = self.frame().await.expect("the connection ended");
        assert_eq!(first, 0x88, "{payload:?}");
        assert_eq!(self.frame().await, None);
        u16::from_be_bytes([payload[0], payload[1]])
    }
}

/// One HTTP request on a connection of its own: status and body.
pub async fn http(addr: SocketAddr, method: &str, target: &str, body: &str) -> (u16, String) {
    let (head, body) = http_with(addr, method, target, "", body.as_bytes()).await;
    (status(&head), body)
}

pub fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The same with more headers and bytes: the whole head and the body.
pub async fn http_with(
    addr: SocketAddr,
    method: &str,
    target: &str,
    headers: &str,
    body: &[u8],
) -> (String, String) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\
         Content-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may answer before it has read everything.
    let _ = stream.write_all(body).await;
    let mut response = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut response))
        .await
        .expect("no response")
        .unwrap();
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a whole head");
    (head.to_owned(), body.to_owned())
}

/// Opens a session on polling; its target with sid.
pub async fn polling(addr: SocketAddr) -> String {
    let (status, open) = http(addr, "GET", "/socket.io/?EIO=4&transport=polling", "").await;
    assert_eq!(status, 200, "{open}");
    let sid = open.split('"').nth(3).unwrap();
    assert_eq!(sid.len(), 20);
    format!("/socket.io/?EIO=4&transport=polling&sid={sid}")
}
