//! One state, whatever keeps its rows: every store of ours against the same model.

mod model;
mod naive;
mod ops;

use std::path::PathBuf;
use std::sync::LazyLock;

use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::Result;
use crate::clock::{TestClock, Timestamp};
use crate::model::{Key, RealmId};

use super::super::types::{Bounds, Exception, QueueKind, QueueSettings, QueueSpec, Seq};
use super::super::{MemoryStore, Pending, Store};

pub(crate) fn realm() -> RealmId {
    RealmId::parse("r").unwrap()
}

pub(crate) fn spec(name: usize, durable: bool) -> QueueSpec {
    QueueSpec {
        realm: realm(),
        key: Key::Any { event: "k".into() },
        kind: QueueKind::Consumer,
        name: name.to_string().into(),
        settings: QueueSettings {
            durable,
            ..QueueSettings::default()
        },
    }
}

/// The answer, waited for if need be.
pub(crate) fn now<T>(mut pending: Pending<T>) -> Result<T> {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().build().unwrap());
    match pending.take_ready() {
        Some(answer) => answer,
        None => RUNTIME.block_on(pending),
    }
}

pub(crate) fn exception(seq: Seq, due: Timestamp) -> Exception {
    Exception {
        seq,
        attempts: 2,
        failures: 1,
        returns: 0,
        due,
        first_error: None,
        last_error: None,
        suspect: false,
    }
}

/// A store under test, and what tests may do to it.
pub(crate) trait Subject {
    /// Whether what it holds are the messages themselves.
    const SHARES_MESSAGES: bool;
    fn make(bounds: Bounds) -> Self;
    fn store(&self) -> &dyn Store;
    /// An empty one to be copied to.
    fn target(&self, bounds: &Bounds) -> Self
    where
        Self: Sized,
    {
        Self::make(bounds.clone())
    }
    /// Closes it and opens it again; whether that is possible.
    fn reopen(&mut self) -> bool;
    /// Lets a command fail.
    fn fail(&self);
    /// Whether it holds what it should: so many unsettled entries; no log if `is_empty`.
    fn check(&self, queued: u64, is_empty: bool);
}

/// What the memory store shows of itself.
pub(crate) trait MemorySubject {
    fn queued(&self) -> u64;
    fn logs_and_wakes(&self) -> (usize, usize);
    /// Bytes that realms count, and those of the messages that are there.
    fn kept(&self) -> (u64, u64);
}

impl Subject for MemoryStore {
    const SHARES_MESSAGES: bool = true;

    fn make(bounds: Bounds) -> Self {
        Self::new(bounds)
    }

    fn store(&self) -> &dyn Store {
        self
    }

    fn reopen(&mut self) -> bool {
        false
    }

    fn fail(&self) {}

    fn check(&self, queued: u64, is_empty: bool) {
        assert_eq!(self.queued(), queued);
        let (logs, wakes) = self.logs_and_wakes();
        assert_eq!((logs == 0, wakes > 1), (is_empty, false));
        check_kept(self.kept(), queued);
    }
}

/// What realms count is there, and nothing is when nothing waits.
fn check_kept((counted, there): (u64, u64), queued: u64) {
    assert_eq!(counted, there);
    assert!(queued > 0 || there == 0, "{there} bytes for nobody");
}

proptest! {
    #[test]
    fn the_memory_store_does_what_a_naive_model_does(story in model::stories()) {
        model::tell::<MemoryStore>(story);
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use tempfile::TempDir;

    use super::super::super::{SqliteOptions, SqliteStore, Synchronous};
    use super::*;

    struct InFile {
        store: SqliteStore,
        bounds: Bounds,
        path: PathBuf,
        _folder: TempDir,
    }

    fn open(path: &std::path::Path, bounds: &Bounds) -> SqliteStore {
        let options = SqliteOptions {
            path: Some(path.into()),
            synchronous: Synchronous::Normal,
            ..SqliteOptions::default()
        };
        let opening = SqliteStore::open(options, bounds.clone(), TestClock::new());
        now(Pending::waiting(opening)).unwrap()
    }

    impl Subject for InFile {
        const SHARES_MESSAGES: bool = false;

        fn make(bounds: Bounds) -> Self {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("model.sqlite");
            Self {
                store: open(&path, &bounds),
                bounds,
                path,
                _folder: folder,
            }
        }

        fn store(&self) -> &dyn Store {
            &self.store
        }

        fn reopen(&mut self) -> bool {
            now(self.store.close()).unwrap();
            self.store = open(&self.path, &self.bounds);
            true
        }

        fn fail(&self) {
            now(self.store.fail_once()).unwrap_err();
        }

        fn check(&self, queued: u64, is_empty: bool) {
            let found = now(self.store.inspect()).unwrap();
            assert_eq!(found.queued, queued);
            assert_eq!((found.logs == 0, found.wakes > 1), (is_empty, false));
            assert_eq!(found.unfit, 0, "bodies and references fit together");
            check_kept(found.kept, queued);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_sqlite_store_does_what_a_naive_model_does(story in model::stories()) {
            model::tell::<InFile>(story);
        }
    }

    /// A store that moves from memory to a file and back.
    enum Moving {
        Memory(Box<MemoryStore>),
        File(Box<InFile>),
    }

    impl Moving {
        fn subject(&self) -> &dyn Inner {
            match self {
                Self::Memory(store) => &**store,
                Self::File(store) => &**store,
            }
        }
    }

    /// The part of a subject that needs no size.
    trait Inner {
        fn store(&self) -> &dyn Store;
        fn fail(&self);
        fn check(&self, queued: u64, is_empty: bool);
    }

    impl<S: Subject> Inner for S {
        fn store(&self) -> &dyn Store {
            Subject::store(self)
        }

        fn fail(&self) {
            Subject::fail(self);
        }

        fn check(&self, queued: u64, is_empty: bool) {
            Subject::check(self, queued, is_empty);
        }
    }

    impl Subject for Moving {
        const SHARES_MESSAGES: bool = false;

        fn make(bounds: Bounds) -> Self {
            Self::Memory(Box::new(MemoryStore::new(bounds)))
        }

        fn target(&self, bounds: &Bounds) -> Self {
            match self {
                Self::Memory(_) => Self::File(Box::new(InFile::make(bounds.clone()))),
                Self::File(_) => Self::make(bounds.clone()),
            }
        }

        fn store(&self) -> &dyn Store {
            self.subject().store()
        }

        fn reopen(&mut self) -> bool {
            match self {
                Self::Memory(_) => false,
                Self::File(store) => store.reopen(),
            }
        }

        fn fail(&self) {
            self.subject().fail();
        }

        fn check(&self, queued: u64, is_empty: bool) {
            self.subject().check(queued, is_empty);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_store_that_moves_does_what_a_naive_model_does(story in model::stories()) {
            model::tell::<Moving>(story);
        }
    }
}
