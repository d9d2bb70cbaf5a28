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
