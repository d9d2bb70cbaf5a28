//! Management: what an operator orders by a signed command, whichever door it comes through.
//!
//! [`Command::parse`] reads an order.

mod body;
mod command;
mod shapes;

pub use command::{
    Command, E2ee, ExternalAuth, NewRealm, NewToken, RealmChange, Scope, Secret, WhichLetter,
    WhichSession, WhichToken,
};
pub use shapes::{Letter, of_queue, of_realm};
