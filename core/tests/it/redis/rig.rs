//! A queue in a Redis under test, and short ways to say what these tests say often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use restante::clock::{Clock as _, SystemClock, Timestamp};
use restante::model::{Key, Message, MessageId, RealmId};
use restante::store::{
    Append, Appended, Bounds, PageLimit, Pending, QueueKind, QueueRecord, QueueSettings, QueueSpec,
    RedisOptions, RedisStore, Store as _,
};

pub const ALL: PageLimit = PageLimit {
    entries: usize::MAX,
    bytes: usize::MAX,
};

pub fn realm() -> RealmId {
    RealmId::parse("r").unwrap()
}

pub fn now() -> Timestamp {
    SystemClock::new().now()
}

pub fn spec(name: &str) -> QueueSpec {
    QueueSpec {
        realm: realm(),
        key: Key::Any { event: "k".into() },
        kind: QueueKind::Consumer,
        name: name.into(),
        settings: QueueSettings {
            durable: true,
            ..QueueSettings::default()
        },
    }
}

pub struct Rig {
    pub store: Arc<RedisStore>,
    pub queue: QueueRecord,
    last: AtomicU64,
}

impl Rig {
    pub async fn new(options: RedisOptions) -> Self {
        let store = Arc::new(super::server::open(options, Bounds::default()).await);
        let queue = store.open(spec("a"), now()).await.unwrap();
        Self {
            store,
            queue,
            last: AtomicU64::new(0),
        }
    }

    pub fn message(&self) -> Message {
        Message {
            id: MessageId(self.last.fetch_add(1, Ordering::SeqCst) + 1),
            event: "k".into(),
            from: "p".into(),
            body: Some(Bytes::from_static(b"1")),
            extras: None,
            produced: now(),
            expires: Some(now().plus(Duration::from_secs(3600))),
            guaranteed: false,
            key: None,
        }
    }

    pub fn item(&self) -> Append {
        Append::new(realm(), Arc::new(self.message()), vec![self.queue.log])
    }

    pub fn put(&self) -> Pending<Vec<restante::Result<Appended>>> {
        self.store.append(vec![self.item()])
    }

    /// Ids of what waits, in order.
    pub async fn waiting(&self) -> Vec<u64> {
        let page = self
            .store
            .page(self.queue.queue, 0, ALL, now())
            .await
            .unwrap();
        let ids = page.entries.iter().map(|entry| entry.message.id.0);
        ids.collect()
    }
}
