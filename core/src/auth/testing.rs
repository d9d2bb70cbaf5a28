//! A keeper of documents in memory for this room's tests, which can be made to fail. Compiled for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Attempt, Auth, AuthSettings, Denied, Environment, Outcome, Principal};
use crate::clock::{TestClock, Timestamp};
use crate::store::{Collection, Condition, Document, DocumentChange, Documents, Pending};
use crate::{Error, ErrorKind};

type Row = (Arc<str>, u64, Option<Timestamp>);

#[derive(Default)]
pub(super) struct Shelf {
    rows: Mutex<BTreeMap<(Collection, Arc<str>), Row>>,
    version: Mutex<u64>,
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
        let rows = self.rows.lock();
        let texts = rows
            .iter()
            .map(|((_, key), (text, ..))| format!("{key} {text}\n"));
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
        let rows = self.rows.lock();
        let found = rows
            .iter()
            .filter(|((of, key), _)| *of == collection && after.as_ref().is_none_or(|a| key > a))
            .filter(|(_, (.., expires))| expires.is_none_or(|end| end > now))
            .take(limit)
            .map(|((_, key), (text, version, expires))| Document {
                key: key.clone(),
                text: text.clone(),
                version: *version,
                expires: *expires,
            });
        Pending::ready(Ok(found.collect()))
    }

    fn change_documents(&self, changes: Vec<DocumentChange>, _now: Timestamp) -> Pending<()> {
        if let Some(left) = &mut *self.fails_after.lock() {
            if *left == 0 {
                let error = Error::new(ErrorKind::StoreUnavailable, "the shelf is away");
                return Pending::ready(Err(error));
            }
            *left -= 1;
        }
        let mut rows = self.rows.lock();
        let holds = changes.iter().all(|change| {
            let row = rows.get(&(change.collection, change.key.clone()));
            match change.only_if {
                Condition::Always => true,
                Condition::Absent => row.is_none(),
                Condition::Version(version) => row.is_some_and(|(_, known, _)| *known == version),
            }
        });
        if !holds {
            let error = Error::new(ErrorKind::Conflict, "somebody was faster");
            return Pending::ready(Err(error));
        }
        for change in changes {
            let mut version = self.version.lock();
            *version += 1;
            let key = (change.collection, change.key);
            match change.text {
                Some(text) => rows.insert(key, (text, *version, change.expires)),
                None => rows.remove(&key),
            };
        }
        Pending::ready(Ok(()))
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
