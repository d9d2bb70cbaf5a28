//! Management: what an operator orders by a signed command, whichever door it comes through.
//!
//! [`Command::parse`] reads an order.

mod body;
mod command;

pub use command::{
    Command, E2ee, ExternalAuth, Letter, NewRealm, NewToken, RealmChange, Scope, Secret,
    WhichSession, WhichToken,
};
