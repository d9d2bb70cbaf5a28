//! A store written in JavaScript: calls go out through the server's port under ids of their own,
//! many at once, and come back in bulk with [`store_answers`]. It holds no rule: what such a store
//! is made into lives in the core, what its methods are called with in `lib/custom_store.js`.
//!
//! Nobody waits here for long: the core gives each call a deadline, and a call that nobody waits
//! for any more is forgotten.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use napi::bindgen_prelude::External;
use napi_derive::napi;
use parking_lot::Mutex;
use restante::clock::Timestamp;
use restante::model::RealmId;
use restante::store::{
    DeadRow, Durability, Leasing, LeasingOptions, Methods, NewRow, Pending, Place, Row, RowId,
    RowPage, Side, SimpleStore,
};
use restante::{Error, ErrorKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::error::{Result, unreadable};
use crate::port::Port;
use crate::server::Broker;

/// What JavaScript remembers of a store object from one server to the next.
pub type Notes = Arc<Mutex<String>>;

/// A store that a server is to be started with.
#[derive(Clone)]
pub struct Custom {
    store: JsStore,
    side: Side,
}

impl Custom {
    /// Lifts the store for one run of a server.
    pub(crate) fn lift(&self, mut options: LeasingOptions) -> restante::Result<Leasing<JsStore>> {
        options.side = self.side.clone();
        Leasing::new(self.store.clone(), options)
    }
}

/// The Rust end of a store in JavaScript.
#[derive(Clone)]
pub struct JsStore {
    bridge: Arc<Bridge>,
    methods: Methods,
    has_close: bool,
    durability: Durability,
}

/// Settles one call with the text of its answer.
type Settle = Box<dyn FnOnce(restante::Result<&RawValue>) + Send>;

struct Bridge {
    port: Arc<Port>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    waiting: HashMap<u32, Settle>,
    last: u32,
}

/// Forgets a call when nobody waits for it any more.
struct Interest {
    bridge: Arc<Bridge>,
    id: u32,
    is_over: bool,
}

impl Drop for Interest {
    fn drop(&mut self) {
        if !self.is_over {
            self.bridge.calls.lock().waiting.remove(&self.id);
        }
    }
}

impl Bridge {
    fn call<T: DeserializeOwned + Send + 'static>(
        self: &Arc<Self>,
        method: &'static str,
        arguments: &impl Serialize,
    ) -> Pending<T> {
        let (done, answer) = oneshot::channel::<restante::Result<T>>();
        let settle: Settle = Box::new(move |outcome| {
            let value = outcome.and_then(|text| {
                serde_json::from_str(text.get()).map_err(|error| {
                    let text = format!(
                        "the store answered {method} with something else than it should: {error}"
                    );
                    Error::new(ErrorKind::StoreUnavailable, text)
                })
            });
            // Nobody may wait any more.
            let _ = done.send(value);
        });
        let id = {
            let mut calls = self.calls.lock();
            // None is under way for so long that the numbers come round.
            calls.last = calls.last.wrapping_add(1);
            let last = calls.last;
            calls.waiting.insert(last, settle);
            last
        };
        let interest = Interest {
            bridge: Arc::clone(self),
            id,
            is_over: false,
        };
        self.port.tell(&[], &("call", id, method, arguments));
        self.port.ring();
        Pending::waiting(async move {
            let mut interest = interest;
            let answered = answer.await;
            interest.is_over = true;
            answered.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::StoreUnavailable, "the store is gone"))
            })
        })
    }

    /// Tells the server's logger.
    fn warn(&self, text: &str) {
        self.port.tell(&[], &("broken", text));
        self.port.ring();
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum JsId {
    Number(i64),
    Text(Arc<str>),
}

impl From<RowId> for JsId {
    fn from(id: RowId) -> Self {
        match id {
            RowId::Text(text) => Self::Text(text),
            RowId::Number(number) => Self::Number(number),
        }
    }
}

impl From<JsId> for RowId {
    fn from(id: JsId) -> Self {
        match id {
            JsId::Text(text) => Self::Text(text),
            JsId::Number(number) => Self::Number(number),
        }
    }
}

/// What `enqueue` gets as its third argument, but for what JavaScript makes of `raw`.
#[derive(Serialize)]
struct JsNewRow<'a> {
    id: &'a str,
    consumer_id: &'a str,
    producer: &'a str,
    ttl: Option<f64>,
    created_at: u64,
    expires_at: Option<u64>,
    raw: String,
}

impl<'a> From<&'a NewRow> for JsNewRow<'a> {
    fn from(row: &'a NewRow) -> Self {
        Self {
            id: &row.id,
            consumer_id: &row.place.consumer,
            producer: &row.message.from,
            ttl: row.ttl.map(|ttl| ttl.as_secs_f64()),
            created_at: row.message.produced.0,
            expires_at: row.message.expires.map(|at| at.0),
            raw: row.raw(),
        }
    }
}

/// A row as `lib/custom_store.js` has checked it.
#[derive(Deserialize)]
struct JsRow {
    id: JsId,
    raw: Option<String>,
    body: Option<String>,
    #[serde(default)]
    parts: Vec<String>,
    producer: Option<String>,
    created_at: Option<u64>,
    expires_at: Option<u64>,
}

impl JsRow {
    fn read(self) -> restante::Result<Row> {
        let id = RowId::from(self.id);
        if let Some(raw) = self.raw {
            return Row::from_raw(id, &raw);
        }
        let corrupt =
            |what: &str| Error::new(ErrorKind::StoreCorrupt, format!("a stored row {what}"));
        let body = Bytes::from(self.body.ok_or_else(|| corrupt("has no payload"))?);
        let parts: std::result::Result<Vec<Bytes>, _> = self
            .parts
            .iter()
            .map(|part| base64_decode(part).ok_or(()))
            .collect();
        let parts = parts.map_err(|()| corrupt("has damaged binary parts"))?;
        let from = self.producer.as_deref().unwrap_or("unknown");
        let created = Timestamp(self.created_at.unwrap_or_default());
        let expires = self.expires_at.map(Timestamp);
        Ok(Row::plain(id, (body, parts), from, created, expires))
    }
}

#[derive(Deserialize)]
struct JsDeadRow {
    realm: String,
    event: String,
    consumer: String,
    reason: String,
    dead_at: u64,
    row: JsRow,
}

fn base64_decode(text: &str) -> Option<Bytes> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .ok()
        .map(Bytes::from)
}

impl JsStore {
    /// Rows that are whole; others are told and left where they are (P7).
    fn rows(&self, rows: Vec<JsRow>) -> Vec<Row> {
        let read = rows.into_iter().filter_map(|row| {
            let id = format!("{:?}", row.id);
            match row.read() {
                Ok(row) => Some(row),
                Err(error) => {
                    self.bridge.warn(&format!("row {id}: {error}"));
                    None
                }
            }
        });
        read.collect()
    }
}

/// Turns the answer of a call into what the core wants.
fn map<A: Send + 'static, B: Send + 'static>(
    pending: Pending<A>,
    map: impl FnOnce(A) -> B + Send + 'static,
) -> Pending<B> {
    Pending::waiting(async move { pending.await.map(map) })
}

impl SimpleStore for JsStore {
    fn enqueue(&self, row: NewRow) -> Pending<RowId> {
        let arguments = (&row.place.realm, &row.place.event, JsNewRow::from(&row));
        map(self.bridge.call::<JsId>("enqueue", &arguments), RowId::from)
    }

    fn dequeue(&self, place: &Place, page: RowPage) -> Pending<Vec<Row>> {
        #[derive(Serialize)]
        struct JsPage {
            limit: Option<usize>,
            after: Option<JsId>,
        }
        let page = JsPage {
            limit: page.limit,
            after: page.after.map(JsId::from),
        };
        let arguments = (&place.realm, &place.event, &place.consumer, page);
        let store = self.clone();
        let rows = self.bridge.call::<Vec<JsRow>>("dequeue", &arguments);
        map(rows, move |rows| store.rows(rows))
    }

    fn ack(&self, id: RowId) -> Pending<()> {
        self.bridge.call("ack", &(JsId::from(id),))
    }

    fn methods(&self) -> Methods {
        self.methods
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn enqueue_many(&self, rows: Vec<NewRow>) -> Pending<Vec<RowId>> {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (&row.place.realm, &row.place.event, JsNewRow::from(row)))
            .collect();
        let ids = self.bridge.call::<Vec<JsId>>("enqueueMany", &(rows,));
        map(ids, |ids| ids.into_iter().map(RowId::from).collect())
    }

    fn ack_many(&self, ids: Vec<RowId>) -> Pending<()> {
        let ids: Vec<JsId> = ids.into_iter().map(JsId::from).collect();
        self.bridge.call("ackMany", &(ids,))
    }

    fn dead_letter(&self, id: RowId, reason: Arc<str>) -> Pending<()> {
        self.bridge.call("deadLetter", &(JsId::from(id), reason))
    }

    fn list_dlq(&self, realm: Option<&RealmId>) -> Pending<Vec<DeadRow>> {
        let realm = realm.map(RealmId::as_str);
        let rows = self.bridge.call::<Vec<JsDeadRow>>("listDlq", &(realm,));
        let store = self.clone();
        map(rows, move |rows| {
            let dead = rows.into_iter().filter_map(|dead| {
                let row = store.rows(vec![dead.row]).pop()?;
                Some(DeadRow {
                    place: Place {
                        realm: dead.realm.into(),
                        event: dead.event.into(),
                        consumer: dead.consumer.into(),
                    },
                    row,
                    reason: dead.reason.into(),
                    dead_at: Timestamp(dead.dead_at),
                })
            });
            dead.collect()
        })
    }

    fn discard_dlq(&self, id: RowId, realm: &RealmId) -> Pending<()> {
        self.bridge
            .call("discardDlq", &(JsId::from(id), realm.as_str()))
    }

    fn count_queued(&self, realm: &RealmId) -> Pending<u64> {
        self.bridge.call("countQueued", &(realm.as_str(),))
    }

    fn purge_realm(&self, realm: &RealmId) -> Pending<()> {
        self.bridge.call("purgeRealm", &(realm.as_str(),))
    }

    fn import(&self, place: &Place, rows: Vec<Row>) -> Pending<()> {
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| {
                let new = NewRow {
                    place: Arc::new(place.clone()),
                    id: "".into(),
                    ttl: None,
                    entry: row.entry.unwrap_or((restante::store::LogId(0), 0)),
                    message: row.message,
                };
                let fields = serde_json::to_value(JsNewRow::from(&new)).unwrap_or_default();
                (JsId::from(row.id), &place.realm, &place.event, fields)
            })
            .collect();
        self.bridge.call("import", &(rows,))
    }

    fn close(&self) -> Pending<()> {
        match self.has_close {
            true => self.bridge.call("close", &()),
            false => Pending::ready(Ok(())),
        }
    }
}

/// What is remembered with a store object in JavaScript.
#[napi(catch_unwind)]
pub fn store_notes() -> External<Notes> {
    External::new(Notes::default())
}

/// The server is to be started with a store in JavaScript that has these methods. Its
/// subscriptions are kept in `file`, else in `notes`.
#[napi(catch_unwind)]
pub fn use_store(
    broker: &External<Broker>,
    methods: Vec<String>,
    file: Option<String>,
    notes: &External<Notes>,
) {
    let has = |name: &str| methods.iter().any(|method| method == name);
    let store = JsStore {
        bridge: Arc::new(Bridge {
            port: Arc::clone(broker.port()),
            calls: Mutex::default(),
        }),
        methods: Methods {
            pages: has("pages"),
            enqueue_many: has("enqueueMany"),
            ack_many: has("ackMany"),
            dead_letter: has("deadLetter"),
            list_dlq: has("listDlq"),
            discard_dlq: has("discardDlq"),
            count_queued: has("countQueued"),
            purge_realm: has("purgeRealm"),
            import: has("import"),
        },
        has_close: has("close"),
        durability: Durability::Process,
    };
    let side = match file {
        Some(file) => Side::File(PathBuf::from(file)),
        None => Side::Memory(Arc::clone(notes)),
    };
    broker.set_custom(Custom { store, side });
}

/// Answers calls: a JSON array of `[id, true, value]` and `[id, false, {code, message}]`.
#[napi(catch_unwind)]
pub fn store_answers(broker: &External<Broker>, answers: String) -> Result<()> {
    #[derive(Default, Deserialize)]
    struct Refusal {
        code: Option<String>,
        message: String,
    }
    let Some(custom) = broker.custom() else {
        return Ok(());
    };
    let answers: Vec<(u32, bool, &RawValue)> =
        serde_json::from_str(&answers).map_err(unreadable)?;
    let settles: Vec<Option<Settle>> = {
        let mut calls = custom.store.bridge.calls.lock();
        let ids = answers.iter().map(|(id, ..)| calls.waiting.remove(id));
        ids.collect()
    };
    for ((_, is_ok, value), settle) in answers.into_iter().zip(settles) {
        let Some(settle) = settle else {
            continue;
        };
        if is_ok {
            settle(Ok(value));
            continue;
        }
        let refusal: Refusal = serde_json::from_str(value.get()).unwrap_or_default();
        let kind = match refusal.code.as_deref() {
            Some("store_full") => ErrorKind::StoreFull,
            Some("store_timeout") => ErrorKind::StoreTimeout,
            _ => ErrorKind::StoreUnavailable,
        };
        let text = format!("the store refused: {}", refusal.message);
        settle(Err(Error::new(kind, text).caused_by(refusal.message)));
    }
    Ok(())
}
