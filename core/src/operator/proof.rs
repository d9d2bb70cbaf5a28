//! What signs the orders of an operator: an administrator's token or a realm's manager key, used here
//! and sent nowhere.

use serde_json::Value;

use crate::Result;
use crate::auth::{Action, new_nonce, sign};
use crate::clock::{Clock, SystemClock};

/// What signs.
pub(super) struct Signer {
    pub(super) secret: String,
    /// It is the manager key of a realm.
    pub(super) is_of_realm: bool,
}

impl Signer {
    /// The proof that goes beside `body`.
    pub(super) fn sign(&self, action: Action, body: &Value) -> Result<Value> {
        let now = SystemClock::new().now();
        sign(action, &body.to_string(), &self.secret, now, &new_nonce()?)
    }
}
