//! A whole server in this process on a clock that stands still, and clients that speak the wire.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use restante::clock::{SystemClock, TestClock};
use restante::model::RealmId;
use restante::server::{Server, ServerConfig};
use restante::store::{
    Bounds, DeadLetter, MemoryStore, SharedStore, SqliteOptions, SqliteStore, StoreCounters,
    Synchronous,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::redis::server as redis;
use crate::transport::harness::{PATIENCE, Ws, masked};

/// Lets `clock` run by steps for as long as `what` takes.
pub async fn ticking<T>(clock: &TestClock, step: Duration, what: impl Future<Output = T>) -> T {
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    let run = async {
        loop {
            pace.tick().await;
            clock.advance(step);
        }
    };
    let done = async {
        tokio::select! {
            done = what => done,
            () = run => unreachable!("it never ends"),
        }
    };
    timeout(PATIENCE, done).await.expect("it comes to its end")
}

/// Waits until a look says yes, with some time between two.
pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    let waiting = async {
        while !look().await {
            pace.tick().await;
        }
    };
    timeout(PATIENCE, waiting).await.expect(what);
}

/// The first byte of a binary frame, and of a close frame.
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const HOUR: Duration = Duration::from_secs(3600);

/// Which store a server has.
#[derive(Debug, Clone, Copy)]
pub enum On {
    Memory,
    Sqlite,
    Redis,
}

impl On {
    /// A new one, and the directory that it is in. Only the server's clock stands still.
    async fn open(self, bounds: Bounds) -> (SharedStore, Option<TempDir>) {
        match self {
            Self::Memory => (Arc::new(MemoryStore::new(bounds)), None),
            Self::Sqlite => {
                let folder = TempDir::new().unwrap();
                let options = SqliteOptions {
                    path: Some(folder.path().join("it.sqlite")),
                    synchronous: Synchronous::Normal,
                    ..SqliteOptions::default()
                };
                let store = SqliteStore::open(options, bounds, Arc::new(SystemClock::new()));
                (Arc::new(store.await.unwrap()), Some(folder))
            }
            Self::Redis => {
                let options = redis::shared().options();
                (Arc::new(redis::open(options, bounds).await), None)
            }
        }
    }
}

/// Makes of cases, each an `async fn(On)`, tests on every store.
macro_rules! on_each_store {
    ($($case:ident),+ $(,)?) => {
        mod on_memory { $crate::harness::on_each_store! { @ Memory $($case)+ } }
        mod on_sqlite { $crate::harness::on_each_store! { @ Sqlite $($case)+ } }
        mod on_redis { $crate::harness::on_each_store! { @ Redis $($case)+ } }
    };
    (@ $on:ident $($case:ident)+) => {
        $(#[tokio::test]
        async fn $case() {
            super::$case($crate::harness::On::$on).await;
        })+
    };
}
pub(crate) use on_each_store;

/// A running server, its clock and its store.
pub struct House {
    pub server: Server,
    pub clock: Arc<TestClock>,
    store: SharedStore,
    _folder: Option<TempDir>,
}

impl House {
    /// A server on a free port; heartbeats are out of the way unless `change` says otherwise.
    pub async fn start(on: On, bounds: Bounds, change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::start_at(TestClock::new(), on, bounds, change).await
    }

    /// The same on a clock that others look at too.
    pub async fn start_at(
        clock: Arc<TestClock>,
        on: On,
        bounds: Bounds,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let (store, folder) = on.open(bounds).await;
        let mut config = ServerConfig::default();
        config.host = Some("127.0.0.1".to_owned());
        config.port = 0;
        config.transport.ping_interval = Duration::from_secs(1_000_000_000);
        config.clock = clock.clone();
        config.store = Some(store.clone());
        change(&mut config);
        let server = Server::start(config).await.unwrap();
        Self {
            server,
            clock,
            store,
            _folder: folder,
        }
    }

    pub async fn on(on: On) -> Self {
        Self::start(on, Bounds::default(), |_| {}).await
    }

    pub async fn plain() -> Self {
        Self::on(On::Memory).await
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    pub async fn consumer(&self, name: &str) -> Client {
        Client::open(self.addr(), "CONSUMER", name).await
    }

    pub async fn producer(&self, name: &str) -> Client {
        Client::open(self.addr(), "PRODUCER", name).await
    }

    pub fn counters(&self) -> StoreCounters {
        self.store.counters()
    }

    /// Unsettled messages of the default realm.
    pub async fn depth(&self) -> u64 {
        let depth = self.store.realm_depth(&RealmId::default()).await;
        depth.unwrap().count
    }

    pub async fn dead_letters(&self, limit: usize) -> Vec<DeadLetter> {
        let broker = self.server.broker();
        let page = broker.dead_letters(&RealmId::default(), None, limit);
        page.await.unwrap()
    }

    /// Waits until a look at the server says yes.
    pub async fn until(&self, what: &str, look: impl Fn(&Self) -> bool) {
        until(what, async || look(self)).await;
    }

    /// Closes the server, and lets its deadlines come: clients of a test do not say goodbye.
    pub async fn close(self) {
        let Self {
            server,
            clock,
            _folder,
            ..
        } = self;
        let closing = ticking(&clock, Duration::from_secs(1), server.close(HOUR));
        closing.await.unwrap();
    }
}

/// One connection with one name. Answers heartbeats while it waits for something.
pub struct Client {
    ws: Ws,
    pub name: String,
    pub socket_id: String,
    /// Events in order of arrival that nobody has taken.
    events: VecDeque<(String, Value)>,
    replies: VecDeque<(u64, Value)>,
    last: u64,
}

impl Client {
    pub async fn open(addr: SocketAddr, verb: &str, name: &str) -> Self {
        let mut client = Self::connect(addr, name).await;
        client.say(verb, &json!({ "name": name, "id": name })).await;
        client.sync().await;
        client
    }

    /// Connected, and nothing said yet.
    pub async fn connect(addr: SocketAddr, name: &str) -> Self {
        let mut ws = Ws::open(addr).await;
        ws.send("40").await;
        let welcome = ws.text().await;
        let welcome: Value = serde_json::from_str(welcome.strip_prefix("40").unwrap()).unwrap();
        Self {
            ws,
            name: name.to_owned(),
            socket_id: welcome["sid"].as_str().unwrap().to_owned(),
            events: VecDeque::new(),
            replies: VecDeque::new(),
            last: 0,
        }
    }

    pub async fn say(&mut self, verb: &str, payload: &Value) {
        self.raw(&format!("42{}", json!([verb, payload]))).await;
    }

    /// Sends a text frame as it is.
    pub async fn raw(&mut self, text: &str) {
        self.ws.send(text).await;
    }

    /// Sends a binary frame.
    pub async fn raw_binary(&mut self, bytes: &[u8]) {
        self.ws.send_raw(&masked(BINARY, bytes)).await;
    }

    /// The answer to the acknowledgement id that was sent in a raw frame.
    pub async fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(at) = self.replies.iter().position(|(reply, _)| *reply == id) {
                return self.replies.remove(at).unwrap().1;
            }
            assert!(
                self.step().await,
                "the connection ended before the answer to {id}"
            );
        }
    }

    /// The next event of this name; `None`: the connection has ended before it.
    pub async fn event(&mut self, name: &str) -> Option<Value> {
        loop {
            if let Some(at) = self.events.iter().position(|(event, _)| event == name) {
                return Some(self.events.remove(at).unwrap().1);
            }
            if !self.step().await {
                return None;
            }
        }
    }

    /// Whether an event of this name has come that nobody has taken.
    pub fn has(&self, name: &str) -> bool {
        self.events.iter().any(|(event, _)| event == name)
    }

    /// Sends a verb and waits for the answer to it.
    pub async fn call(&mut self, verb: &str, payload: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.raw(&format!("42{id}{}", json!([verb, payload]))).await;
        self.answer(id).await
    }

    /// Waits until the server has worked through all that was sent.
    pub async fn sync(&mut self) {
        self.call("PING", &json!({})).await;
    }

    /// Takes one frame; false: the connection has ended.
    async fn step(&mut self) -> bool {
        let payload = match self.ws.frame().await {
            None | Some((CLOSE, _)) => return false,
            Some((_, payload)) => payload,
        };
        let text = String::from_utf8(payload).unwrap();
        if text == "2" {
            self.ws.send("3").await;
        } else if let Some(event) = text.strip_prefix("42") {
            let mut event: Vec<Value> = serde_json::from_str(event).unwrap();
            let payload = if event.len() > 1 {
                event.remove(1)
            } else {
                Value::Null
            };
            let name = event.remove(0).as_str().unwrap().to_owned();
            self.events.push_back((name, payload));
        } else if let Some(reply) = text.strip_prefix("43") {
            let start = reply.find('[').unwrap();
            let mut args: Vec<Value> = serde_json::from_str(&reply[start..]).unwrap();
            self.replies
                .push_back((reply[..start].parse().unwrap(), args.remove(0)));
        }
        true
    }

    /// Events of this name that have come and were not taken.
    pub fn take(&mut self, name: &str) -> Vec<Value> {
        let events = std::mem::take(&mut self.events);
        let (taken, left): (VecDeque<_>, _) = events.into_iter().partition(|(of, _)| of == name);
        self.events = left;
        taken.into_iter().map(|(_, payload)| payload).collect()
    }

    /// The next delivery, whatever its key.
    pub async fn delivery(&mut self) -> Value {
        loop {
            let found = self
                .events
                .iter()
                .position(|(name, _)| name.starts_with("CONSUME-"));
            if let Some(at) = found {
                return self.events.remove(at).unwrap().1;
            }
            assert!(self.step().await, "the connection ended before a delivery");
        }
    }

    /// The messages of the next `count` deliveries.
    pub async fn messages(&mut self, count: usize) -> Vec<Value> {
        let mut messages = Vec::with_capacity(count);
        while messages.len() < count {
            messages.push(self.delivery().await["message"].clone());
        }
        messages
    }

    /// Deliveries that have come after a round trip and were not taken.
    pub async fn rest(&mut self) -> usize {
        self.sync().await;
        let events = self.events.iter();
        events
            .filter(|(name, _)| name.starts_with("CONSUME-"))
            .count()
    }

    pub async fn subscribe(&mut self, fields: Value) -> Value {
        let mut payload = json!({ "consumer": self.name, "consumer_id": self.name });
        merge(&mut payload, fields);
        let answer = self.call("SUBSCRIBE", &payload).await;
        assert_eq!(answer["ok"], true, "{answer}");
        answer
    }

    pub async fn produce(&mut self, event: &str, message: Value, fields: Value) -> Value {
        let payload = self.produced(event, message, fields);
        self.call("PRODUCE", &payload).await
    }

    /// Produces without waiting for an answer.
    pub async fn send(&mut self, event: &str, message: Value, fields: Value) {
        let payload = self.produced(event, message, fields);
        self.say("PRODUCE", &payload).await;
    }

    fn produced(&self, event: &str, message: Value, fields: Value) -> Value {
        let mut payload = json!({ "event": event, "message": message, "from": self.name });
        merge(&mut payload, fields);
        payload
    }

    /// ACK, NACK or WORKING for a delivery.
    pub async fn settle(&mut self, verb: &str, delivery: &Value, fields: Value) -> Value {
        let mut payload = json!({ "msgId": delivery["msgId"] });
        merge(&mut payload, fields);
        self.call(verb, &payload).await
    }

    pub async fn ack(&mut self, delivery: &Value) {
        let answer = self.settle("ACK", delivery, json!({})).await;
        assert_eq!(answer["ok"], true, "{answer}");
    }

    /// Leaves as a client that closes, and waits until the server has seen it.
    pub async fn leave(mut self) {
        self.ws.send("41").await;
        self.ws
            .send_raw(&masked(CLOSE, &1000_u16.to_be_bytes()))
            .await;
        while self.step().await {}
    }

    /// Ends the socket without a word.
    pub fn cut(self) {
        drop(self);
    }

    /// Reads until the server has ended the connection.
    pub async fn ended(mut self) {
        while self.step().await {}
    }
}

fn merge(into: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else {
        panic!("fields are an object")
    };
    into.as_object_mut().unwrap().extend(fields);
}

/// Everyday sizes are smaller than those of the specification.
pub fn size(everyday: usize, specified: usize) -> usize {
    match std::env::var("RESTANTE_LONG").as_deref() {
        Ok("1") => specified,
        _ => everyday,
    }
}
