//! What every store of ours knows of queues, logs and realms, whatever keeps the rows.
//!
//! [`State`] is the one place where it is decided who takes an entry, what is settled and what may be let go.
//! It holds a little per queue and per log; what may be many (entries, exceptions, dead letters, delayed messages,
//! users' ids) it leaves to a [`Keep`]: memory keeps them itself, SQLite in tables. Knows no file, no thread and
//! reads no clock. Its methods assume that one caller at a time has it.

mod append;
mod change;
mod changes;
mod documents;
mod export;
mod import;
mod keep;
mod log;
mod marks;
mod queue;
mod reading;
mod realm;
mod runs;
mod sample;
mod small_set;
mod standing;
#[expect(
    clippy::module_inception,
    reason = "the room is named after its one noun"
)]
mod state;
mod sweep;
#[cfg(test)]
pub(super) mod tests;

pub(super) use changes::{Changes, Touched};
pub(super) use keep::{Entries, Held, Keep, Letter, Row, Uids};
pub(super) use log::Totals;
pub(super) use marks::Marks;
pub(super) use reading::{LOOKS, Room, waiting_entry};
pub(super) use realm::Kept;
pub(super) use runs::Runs;
pub(super) use state::{Change, State, no_queue};
#[cfg(feature = "sqlite")]
pub(super) use {
    log::Log,
    marks::Mark,
    queue::{Queue, Shut},
    realm::Realm,
};
