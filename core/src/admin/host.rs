//! What management needs of the rooms above it: the assembly does what only it can. Knows no command.

use serde_json::{Map, Value};

use crate::broker::Answer;
use crate::store::Copied;

/// Ends those who were connected and have lost their right to be; says how many.
pub type RollCall = Box<dyn FnOnce() -> usize + Send>;

/// Implemented by `server`.
pub trait Host: Send + Sync + 'static {
    /// Live numbers, as `getStats()` tells them.
    fn stats(&self) -> Value;

    /// What the management view says beside authentication: `persistence`, `namespaces`, settings.
    /// Without any secret.
    fn view(&self) -> Map<String, Value>;

    /// Changes the store (P28), by options as `new Server(options)` takes them; what has moved.
    ///
    /// Errors: `config` for what is wrong or outside `data_dir` and `storage_paths` (decided 8);
    /// `unsupported` for a module that is not listed; what the new store says.
    fn set_persistence(&self, options: Map<String, Value>) -> Answer<Copied>;

    /// Reads the settings file now.
    ///
    /// Errors: `config` without such a file, and for what is wrong in it; nothing has changed then.
    fn reload_settings(&self) -> Answer<()>;

    /// Notes who is connected.
    fn roll_call(&self) -> RollCall;
}
