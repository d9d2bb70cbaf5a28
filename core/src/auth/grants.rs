//! What requests and proofs need of the registry: tokens that were approved, failures that are counted.
//! Knows neither a request nor a signature.

use std::net::IpAddr;
use std::sync::Arc;

use crate::Result;
use crate::store::{Collection, Condition, DocumentChange};

use super::records::{self, Read, Stored};
use super::{Auth, Denied, Failures, Grants, Token, TokenHash};

impl Grants for Auth {
    fn is_known(&self, hash: &TokenHash) -> bool {
        self.is_token_known(hash)
    }

    fn change(&self, hash: &TokenHash, token: &Token) -> Result<DocumentChange> {
        let read = Read {
            key: hash.to_string().into(),
            stored: Stored::<Token>::default(),
            // One that was revoked though the settings file has it stays so.
            unchanged: Condition::Absent,
        };
        let stored = Stored {
            entry: Some(token.clone()),
            ..Stored::default()
        };
        records::put(Collection::Tokens, &read, &stored)
    }

    fn granted(&self, hash: TokenHash, token: Token) {
        let token = Some(Arc::new(token));
        self.0.change(|state| state.set_token(hash, token));
    }
}

impl Failures for Auth {
    fn may_try(&self, address: IpAddr) -> Result<(), Denied> {
        let now = self.0.clock.elapsed();
        self.attempts().check(address, 0, now)
    }

    fn failed(&self, address: IpAddr) {
        let now = self.0.clock.elapsed();
        self.attempts().failed(address, now);
    }
}

#[cfg(test)]
mod tests;
