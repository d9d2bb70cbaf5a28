//! What requests and proofs need of the registry: approved tokens are tokens like others, and failed
//! proofs count like failed logins.

use std::net::IpAddr;

use super::proof::Failures;
use super::records;
use super::requests::Grants;
use super::{Auth, Denied, Token, TokenHash};
use crate::Result;
use crate::store::{Collection, DocumentChange};

impl Grants for Auth {
    fn is_known(&self, hash: &TokenHash) -> bool {
        self.is_token_known(hash)
    }

    fn change(&self, hash: &TokenHash, token: &Token) -> Result<DocumentChange> {
        records::new(Collection::Tokens, &hash.to_string(), token)
    }

    fn granted(&self, hash: TokenHash, token: Token) {
        self.0
            .change(|state| state.set_token(hash, Some(token.into())));
    }
}

impl Failures for Auth {
    fn may_try(&self, address: IpAddr) -> Result<(), Denied> {
        self.0.attempts.check(address, 0, self.0.clock.elapsed())
    }

    fn failed(&self, address: IpAddr) {
        self.0.failed(address);
    }
}
