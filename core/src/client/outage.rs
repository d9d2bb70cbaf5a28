//! The time without a connection, and when its user is told why: once.
//!
//! Knows no clock and no socket. Kept by the connection's task.

use crate::{Error, ErrorKind};

/// So many tries in a row fail before a first connection is said to be missing: a server that is
/// just starting is nothing to tell.
const TRIES: u32 = 3;

/// Counts what failed since there was a connection.
#[derive(Debug, Default)]
pub(super) struct Outage {
    tries: u32,
    is_told: bool,
    last: Option<Error>,
}

impl Outage {
    /// A link has ended or did not come up; true if it is time to say why.
    pub(super) fn failed(&mut self, error: &Error, was_up: bool, is_first: bool) -> bool {
        let was_refused = error.kind() != ErrorKind::Disconnected;
        if was_up && !was_refused {
            *self = Self::default();
            return false;
        }
        self.tries = self.tries.saturating_add(1);
        self.last = Some(error.clone());
        let is_due = was_refused || (is_first && self.tries >= TRIES);
        let tells = is_due && !self.is_told;
        self.is_told |= is_due;
        tells
    }

    /// Why the latest try failed.
    pub(super) fn last(&self) -> Option<&Error> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "why")
    }

    #[test]
    fn a_missing_server_is_told_at_the_third_try_and_once() {
        let mut outage = Outage::default();
        let gone = error(ErrorKind::Disconnected);
        let told = [0; 6].map(|_| outage.failed(&gone, false, true));
        assert_eq!(told, [false, false, true, false, false, false]);
    }

    #[test]
    fn a_lost_connection_says_nothing_unless_the_server_refuses_the_next_and_then_once_each_time() {
        let mut outage = Outage::default();
        let (gone, refused) = (
            error(ErrorKind::Disconnected),
            error(ErrorKind::RateLimited),
        );
        for _ in 0..2 {
            assert!(!outage.failed(&gone, true, false));
            assert!((0..9).all(|_| !outage.failed(&gone, false, false)));
            assert!(outage.failed(&refused, true, false));
            assert!(!outage.failed(&refused, true, false));
            assert!(!outage.failed(&gone, false, false));
        }
    }
}
