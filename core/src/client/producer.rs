//! A producer for Rust users: values in, answers out.

use std::time::Duration;

use serde::Serialize;

use super::answer::Answer;
use super::connection::Connection;
use super::request::{Confirm, Confirmed, DEFAULT_TIMEOUT, Produce};
use crate::{Error, ErrorKind, Result};

/// A registered producer with a connection of its own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Producer(Connection);

impl Producer {
    pub(super) fn new(connection: Connection) -> Self {
        Self(connection)
    }

    /// Sends and forgets: lost if the connection is. False if too much waits to be sent; the
    /// message is taken all the same, but [`Connection::flush`] is due.
    ///
    /// # Errors
    /// `not_carriable`, and those of [`Connection::produce`].
    pub fn produce<T: Serialize + ?Sized>(&self, event: &str, body: &T) -> Result<bool> {
        let message = text(body)?;
        self.0.produce(
            &Produce {
                event,
                message: Some(&message),
                ..Produce::default()
            },
            None,
        )
    }

    /// Sends, over reconnects if need be, and waits until the server has stored every durable copy
    /// (P2); at most 10 s.
    ///
    /// # Errors
    /// `not_carriable`, `timeout`, those of [`Connection::produce`], and the server's refusals.
    pub async fn confirm<T: Serialize + ?Sized>(&self, event: &str, body: &T) -> Result<Confirmed> {
        let message = text(body)?;
        let produce = Produce {
            event,
            message: Some(&message),
            ..Produce::default()
        };
        self.send(&produce, DEFAULT_TIMEOUT).await
    }

    /// Sends a message with all its options, and waits as [`Producer::confirm`] does.
    ///
    /// ```no_run
    /// # async fn example(orders: restante::client::Producer) -> restante::Result<()> {
    /// use std::time::Duration;
    /// use restante::client::Produce;
    ///
    /// let reminder = Produce {
    ///     event: "reminder",
    ///     message: Some(r#"{"order":7}"#),
    ///     guaranteed: true,
    ///     delay: Some(Duration::from_secs(3600)),
    ///     ..Produce::default()
    /// };
    /// let answer = orders.send(&reminder, Duration::from_secs(5)).await?;
    /// assert!(answer.delayed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn send(&self, produce: &Produce<'_>, timeout: Duration) -> Answer<Confirmed> {
        let (settle, answer) = Answer::pair();
        match self.0.produce(produce, Some(Confirm { timeout, settle })) {
            Ok(_) => answer,
            Err(error) => Answer::settled(Err(error)),
        }
    }

    /// The connection, for everything else.
    pub fn connection(&self) -> &Connection {
        &self.0
    }
}

fn text<T: Serialize + ?Sized>(body: &T) -> Result<String> {
    serde_json::to_string(body)
        .map_err(|error| Error::new(ErrorKind::NotCarriable, error.to_string()))
}
