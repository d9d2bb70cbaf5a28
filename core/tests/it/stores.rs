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

/// Custom stores of every habit, lifted. Within one run they keep all there is to keep; what they
/// cannot carry over a restart is told by [`Store::gaps`](restante::store::Store::gaps).
mod lifted {
    use std::sync::Arc;

    use restante::store::contract::Making;
    use restante::store::shelf::{Habits, Shelf};
    use restante::store::{Bounds, Leasing, LeasingOptions, SharedStore};

    fn lift(bounds: Bounds, habits: Habits) -> Making {
        Box::pin(async move {
            let options = LeasingOptions {
                bounds,
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
