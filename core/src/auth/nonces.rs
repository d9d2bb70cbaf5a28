//! Nonces of proofs that were used, so that none is used twice, after a restart or at another broker
//! either (AF02, AF46). Knows no signature. Called by `proof` alone.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::store::{Collection, Condition, DocumentChange, Documents};
use crate::{ErrorKind, Result};

use super::TokenHash;
use super::proof::{Proof, WINDOW};

/// Where used nonces are kept.
pub struct Nonces {
    documents: Arc<dyn Documents>,
    /// Older proofs may have been used before this process began.
    not_before: Timestamp,
}

impl Nonces {
    /// Nonces in a keeper that outlives the process.
    pub fn lasting(documents: Arc<dyn Documents>) -> Self {
        Self {
            documents,
            not_before: Timestamp(0),
        }
    }

    /// Nonces in a keeper that ends with the process, which began at `started`: proofs that were signed
    /// before that are refused. One whose signer's clock is ahead may be used again after a restart
    /// within as much time as it is ahead.
    pub fn in_memory(documents: Arc<dyn Documents>, started: Timestamp) -> Self {
        Self {
            documents,
            not_before: started,
        }
    }

    /// Notes that a proof was used with a secret; whether it was not before.
    ///
    /// # Errors
    /// What the keeper says: then nobody knows, and it must not be let through.
    pub(super) async fn use_up(
        &self,
        secret: &TokenHash,
        proof: &Proof,
        now: Timestamp,
    ) -> Result<bool> {
        if proof.timestamp() < self.not_before {
            return Ok(false);
        }
        let change = DocumentChange {
            collection: Collection::Nonces,
            key: format!("{secret}.{}", proof.nonce()).into(),
            text: Some("{}".into()),
            expires: Some(proof.timestamp().plus(Duration::from_millis(2 * WINDOW))),
            only_if: Condition::Absent,
        };
        match self.documents.change_documents(vec![change], now).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for Nonces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nonces")
            .field("not_before", &self.not_before)
            .finish_non_exhaustive()
    }
}
