//! A keeper of documents in memory for this room's tests, which can be made to fail. Compiled for tests.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Attempt, Auth, AuthSettings, Denied, Environment, Outcome, Principal};
use crate::clock::{TestClock, Timestamp};
use crate::store::{Collection, Document, DocumentChange, Documents, MemoryStore, Pending};
use crate::{Error, ErrorKind};

/// A time at which nothing has expired yet.
const ALWAYS: Timestamp = Timestamp(0);

#[derive(Default)]
pub(super) struct Shelf {
    store: MemoryStore,
    /// Calls that change something until they fail; `None`: they do not.
    fails_after: Mutex<Option<usize>>,
}

impl Shelf {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// From so many changes on all fail.
    pub(super) fn fail_after(&self, calls: Option<usize>) {
        *self.fails_after.lock() = calls;
    }

    /// Every text, to look for what must not be there.
    pub(super) fn texts(&self) -> String {
        let all = |collection: &Collection| {
            let mut read = self.documents(*collection, None, usize::MAX, ALWAYS);
            read.take_ready().unwrap().unwrap()
        };
        let documents = Collection::ALL.iter().flat_map(all);
        let texts = documents.map(|document| format!("{} {}\n", document.key, document.text));
        texts.collect()
    }
}

impl Documents for Shelf {
    fn documents(
        &self,
        collection: Collection,
        after: Option<Arc<str>>,
        limit: usize,
        now: Timestamp,
    ) -> Pending<Vec<Document>> {
        self.store.documents(collection, after, limit, now)
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, now: Timestamp) -> Pending<()> {
        if let Some(left) = &mut *self.fails_after.lock() {
            if *left == 0 {
                let error = Error::new(ErrorKind::StoreUnavailable, "the shelf is away");
                return Pending::ready(Err(error));
            }
            *left -= 1;
        }
        self.store.change_documents(changes, now)
    }
}

/// Settings from JSON.
pub(super) fn settings(value: &serde_json::Value) -> AuthSettings {
    AuthSettings::parse(value).unwrap()
}

/// An environment with this administrator's secret.
pub(super) fn environment(secret: Option<&'static str>) -> Arc<Environment> {
    Arc::new(move |name: &str| {
        let secret = secret.filter(|_| name == super::ADMIN_TOKEN);
        secret.map(str::to_owned)
    })
}

/// A room over settings, a shelf and a clock; no administrator is made.
pub(super) async fn open(
    shelf: &Arc<Shelf>,
    clock: &Arc<TestClock>,
    value: serde_json::Value,
) -> Arc<Auth> {
    let mut value = value;
    if value.get("auto_admin_token").is_none() {
        value["auto_admin_token"] = false.into();
    }
    if value.get("env_file").is_none() {
        value["env_file"] = "/nonexistent/restante.env".into();
    }
    let opened = Auth::open_with(
        shelf.clone(),
        settings(&value),
        clock.clone(),
        environment(None),
    );
    opened.await.unwrap()
}

/// An attempt with nothing but an address.
pub(super) fn nothing() -> Attempt {
    Attempt {
        token: None,
        realm: None,
        role: None,
        key: None,
        address: [127, 0, 0, 1].into(),
        failures: 0,
    }
}

/// An attempt with what a client sent.
pub(super) fn attempt(value: &serde_json::Value) -> Attempt {
    let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
    Attempt {
        token: text("token"),
        realm: text("realm"),
        role: text("role"),
        key: text("key"),
        ..nothing()
    }
}

/// What becomes of it, waited for.
pub(super) async fn enter(auth: &Auth, attempt: &Attempt) -> Result<Arc<Principal>, Denied> {
    match auth.authenticate(attempt) {
        Outcome::Now(result) => result,
        Outcome::Later(result) => result.await,
    }
}

/// The same as the number a client is told, 0 for yes.
pub(super) async fn code(auth: &Auth, value: &serde_json::Value) -> i32 {
    let result = enter(auth, &attempt(value)).await;
    result.map_or_else(|denied| denied.error.kind().number(), |_| 0)
}
