//! Every store against the contract.

mod memory {
    use std::sync::Arc;

    use restante::store::contract::Making;
    use restante::store::{Bounds, MemoryStore, SharedStore};

    fn make(bounds: Bounds) -> Making {
        Box::pin(async move { Arc::new(MemoryStore::new(bounds)) as SharedStore })
    }

    restante::store_contract!(make);
}

/// A store that has taken the place of another one.
mod swapped {
    use std::sync::Arc;

    use restante::clock::TestClock;
    use restante::store::contract::Making;
    use restante::store::{Bounds, MemoryStore, SharedStore, SwapStore};

    fn make(bounds: Bounds) -> Making {
        Box::pin(async move {
            let store = |bounds| Arc::new(MemoryStore::new(bounds));
            let swap = SwapStore::new(store(bounds.clone()), TestClock::new());
            let swapped = swap.swap_to(
                swap.change().unwrap(),
                store(bounds),
                false,
                "there",
                || Ok(()),
            );
            swapped.await.unwrap();
            Arc::new(swap) as SharedStore
        })
    }

    restante::store_contract!(make);
}

mod sqlite {
    use std::sync::Arc;

    use restante::clock::SystemClock;
    use restante::store::{Bounds, SharedStore, SqliteOptions, SqliteStore};

    async fn open(options: SqliteOptions, bounds: Bounds) -> SharedStore {
        let clock = Arc::new(SystemClock::new());
        Arc::new(SqliteStore::open(options, bounds, clock).await.unwrap())
    }

    mod in_memory {
        use restante::store::contract::Making;
        use restante::store::{Bounds, SqliteOptions};

        fn make(bounds: Bounds) -> Making {
            let options = SqliteOptions {
                path: None,
                ..SqliteOptions::default()
            };
            Box::pin(super::open(options, bounds))
        }

        restante::store_contract!(make);
    }

    mod in_a_file {
        use std::sync::OnceLock;
        use std::sync::atomic::{AtomicU64, Ordering};

        use restante::store::contract::Making;
        use restante::store::{Bounds, SqliteOptions, Synchronous};
        use tempfile::TempDir;

        /// One directory for all of these; what is left in it goes with the system's other
        /// temporary files.
        fn path() -> std::path::PathBuf {
            static FOLDER: OnceLock<TempDir> = OnceLock::new();
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let folder = FOLDER.get_or_init(|| TempDir::new().unwrap());
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            folder.path().join(format!("{next}.sqlite"))
        }

        fn make(bounds: Bounds) -> Making {
            let options = SqliteOptions {
                path: Some(path()),
                synchronous: Synchronous::Normal,
                ..SqliteOptions::default()
            };
            Box::pin(super::open(options, bounds))
        }

        restante::store_contract!(make);
    }
}

/// Custom stores of every habit, lifted. Within one run they keep all there is to keep; what they
/// cannot carry over a restart is told by [`Store::gaps`](restante::store::Store::gaps).
mod lifted {
    use std::sync::Arc;

    use restante::store::contract::Making;
    use restante::store::shelf::{Habits, Shelf};
    use restante::store::{Bounds, Leasing, LeasingOptions, SharedStore, Side};

    fn lift(bounds: Bounds, habits: Habits) -> Making {
        Box::pin(async move {
            let options = LeasingOptions {
                bounds,
                side: Side::Memory(Arc::default()),
                ..LeasingOptions::default()
            };
            Arc::new(Leasing::new(Shelf::new(habits), options).unwrap()) as SharedStore
        })
    }

    /// The three methods; rows come back without what they were stored with.
    mod minimal {
        use super::*;

        fn make(bounds: Bounds) -> Making {
            lift(bounds, Habits::default())
        }

        restante::store_contract!(make);
    }

    /// The three methods; reading takes rows out.
    mod destructive {
        use super::*;

        fn make(bounds: Bounds) -> Making {
            let destructive = true;
            lift(
                bounds,
                Habits {
                    destructive,
                    ..Habits::default()
                },
            )
        }

        restante::store_contract!(make);
    }

    /// All methods, pages, and rows that come back whole.
    mod full {
        use super::*;

        fn make(bounds: Bounds) -> Making {
            let (pages, keeps_raw, full) = (true, true, true);
            lift(
                bounds,
                Habits {
                    destructive: false,
                    pages,
                    keeps_raw,
                    full,
                },
            )
        }

        restante::store_contract!(make);
    }
}

mod redis {
    use std::sync::Arc;

    use restante::store::contract::Making;
    use restante::store::{Bounds, SharedStore};

    use crate::redis::{cluster, server};

    mod one {
        use super::*;

        fn make(bounds: Bounds) -> Making {
            Box::pin(async move {
                let options = server::shared().options();
                Arc::new(server::open(options, bounds).await) as SharedStore
            })
        }

        restante::store_contract!(make);
    }

    mod in_a_cluster {
        use super::*;

        fn make(bounds: Bounds) -> Making {
            Box::pin(async move {
                let options = cluster::shared().options();
                Arc::new(server::open(options, bounds).await) as SharedStore
            })
        }

        restante::store_contract!(make);
    }
}

/// Copies from a store of each kind to one of each other.
mod between {
    use std::sync::Arc;

    use restante::clock::SystemClock;
    use restante::store::contract::{Making, copies_between};
    use restante::store::{Bounds, MemoryStore, SharedStore, SqliteOptions, SqliteStore};

    use crate::redis::server;

    fn memory(bounds: Bounds) -> Making {
        Box::pin(async move { Arc::new(MemoryStore::new(bounds)) as SharedStore })
    }

    fn sqlite(bounds: Bounds) -> Making {
        Box::pin(async move {
            let options = SqliteOptions {
                path: None,
                ..SqliteOptions::default()
            };
            let opening = SqliteStore::open(options, bounds, Arc::new(SystemClock::new()));
            Arc::new(opening.await.unwrap()) as SharedStore
        })
    }

    fn redis(bounds: Bounds) -> Making {
        Box::pin(async move {
            let options = server::shared().options();
            Arc::new(server::open(options, bounds).await) as SharedStore
        })
    }

    #[tokio::test]
    async fn what_is_in_memory_is_copied_to_redis() {
        copies_between(&memory, &redis).await;
    }

    #[tokio::test]
    async fn what_is_in_redis_is_copied_to_memory() {
        copies_between(&redis, &memory).await;
    }

    #[tokio::test]
    async fn what_is_in_a_database_is_copied_to_redis() {
        copies_between(&sqlite, &redis).await;
    }

    #[tokio::test]
    async fn what_is_in_redis_is_copied_to_a_database() {
        copies_between(&redis, &sqlite).await;
    }

    #[tokio::test]
    async fn what_is_in_memory_is_copied_to_a_database_and_back() {
        copies_between(&memory, &sqlite).await;
        copies_between(&sqlite, &memory).await;
    }
}
